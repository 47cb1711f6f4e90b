"""The sources of examples: the examples of each, and a sequence of training examples that mixes them by weight."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import PurePath

import numpy as np
from jaxtyping import Int, Int64

from electra.config.checks import check_number
from electra.data.manifest import Manifest, SourceRun, Split
from electra.errors import DataError, UsageError
from electra.external import format_count
from electra.seeding import Stream, build_numpy_generator, shuffle
from electra.text.corpus import make_absolute

BLOCK = 1 << 16
"""Examples in which each source has its share, up to rounding. A batch has it on average."""
MAX_WEIGHT, MAX_TEMPERATURE = 10**9, 1000


class SourceRows:
    """Rows of the examples of one source in an `ExampleSet`; takes no memory per example."""

    def __init__(self, runs: Sequence[tuple[int, int]]) -> None:
        """`runs` are the first row and the length of each sequence of rows."""
        first, lengths = np.array(runs, dtype=np.int64).reshape(-1, 2).T
        self._ends = np.cumsum(lengths)
        self._shifts = first - (self._ends - lengths)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, numbers: Int[np.ndarray, " B"]) -> Int64[np.ndarray, " B"]:
        """Rows of the examples that have these numbers in the source."""
        return numbers + self._shifts[np.searchsorted(self._ends, numbers, side="right")]


class Mixture:
    """Endless sequence of rows in which each source has a share; a pure function of the position.

    Within a block of BLOCK examples, the sources are in random order. The examples of a source follow in epochs of its own:
    each is read once in each of them, in another order. The seed (one number or several) determines both orders.

    Raises:
        UsageError: a share is too small for one example of a block.
    """

    def __init__(
        self, names: Sequence[str], sources: Sequence[SourceRows], weights: Sequence[int | float], *seed: int
    ) -> None:
        self.names, self._sources, self._seed = names, sources, seed
        self.shares = np.array(weights) / np.sum(weights)
        self._counts = np.diff(np.rint(np.cumsum(self.shares) * BLOCK).astype(np.int64), prepend=0)
        if not self._counts.all():
            source = int(self._counts.argmin())
            raise UsageError(
                "share-too-small",
                f"{names[source]}: its share of the examples would be {self.shares[source]:.1e}, less than one in {BLOCK:,}; "
                "raise its weight, or leave it out",
            )
        self._choices = lru_cache(maxsize=2)(self._choose)
        self._order = lru_cache(maxsize=2 * len(sources))(self._shuffle)

    def rows(self, first: int, number: int) -> Int64[np.ndarray, " B"]:
        """Rows at the positions from `first` on."""
        parts, end = [], first + number
        while first < end:
            block, start = divmod(first, BLOCK)
            stop = min(BLOCK, start + end - first)
            parts.append(self._block_rows(block, start, stop))
            first += stop - start
        return np.concatenate(parts)

    def describe(self, number: int | None = None) -> str:
        """Describe the share of each source, and the epochs of each in the first `number` examples of the sequence."""
        shown = []
        for name, share, rows in zip(self.names, self.shares.tolist(), self._sources, strict=True):
            epochs = "" if number is None else f", {share * number / len(rows):.2f} epochs"
            shown.append(f"{share:.1%} {name} ({format_count(len(rows), 'example')}{epochs})")
        return "; ".join(shown)

    def _block_rows(self, block: int, start: int, stop: int) -> Int64[np.ndarray, " B"]:
        choices, places = self._choices(block)
        choices, places = choices[start:stop], places[start:stop]
        found = np.empty(len(choices), dtype=np.int64)
        for source in np.unique(choices).tolist():
            rows, chosen = self._sources[source], choices == source
            epochs, numbers = np.divmod(block * self._counts[source] + places[chosen], len(rows))
            for epoch in np.unique(epochs).tolist():
                numbers[epochs == epoch] = self._order(source, epoch)[numbers[epochs == epoch]]
            found[chosen] = rows[numbers]
        return found

    def _choose(self, block: int) -> tuple[Int64[np.ndarray, " N"], Int64[np.ndarray, " N"]]:
        """Return the source of each example of a block, and the number of examples of this source before it in the block."""
        choices = np.repeat(np.arange(len(self._counts)), self._counts)
        places = np.concatenate([np.arange(count) for count in self._counts])
        order = build_numpy_generator(Stream.SOURCE_CHOICE, *self._seed, block).permutation(BLOCK)
        choices = choices[order]
        sorted_places = np.empty_like(places)
        sorted_places[np.argsort(choices, kind="stable")] = places
        return choices, sorted_places

    def _shuffle(self, source: int, epoch: int) -> Int[np.ndarray, " N"]:
        return shuffle(len(self._sources[source]), Stream.SOURCE_ORDER, *self._seed, source, epoch)


def list_source_rows(manifest: Manifest, split: Split) -> list[SourceRows]:
    """List the rows of each source in a split; empty for data of older versions, which do not record the sources."""
    runs: list[list[tuple[int, int]]] = [[] for _ in manifest.settings.names or []]
    row = 0
    for entry in manifest.split(split):
        sources: Iterable[SourceRun] | None = entry.sources
        if sources is None:
            return []
        for source, number in sources:
            runs[source].append((row, number))
            row += number
    return [SourceRows(each) for each in runs]


def build_mixture(
    manifest: Manifest, weights: Sequence[str], temperature: float | None, seed: Sequence[int]
) -> Mixture | None:
    """Build the sequence of training examples for these weights or this temperature; None without both.

    Raises:
        UsageError: the weights do not match the sources.
        DataError: the data does not record its sources, or one has no training examples.
    """
    if not weights and temperature is None:
        return None
    names, sources = manifest.settings.names or [], list_source_rows(manifest, "train")
    if not sources:
        raise DataError(
            "unknown-sources",
            "the data was prepared by an older version, which did not record the source of an example; prepare the text again",
        )
    check_sources(weights, temperature, names)
    for name, rows in zip(names, sources, strict=True):
        if not len(rows):
            raise DataError(
                "empty-source",
                f"{name}: no training examples: it is empty, all of it is held out or a duplicate, or another source has its "
                "files; add text, or leave it out",
            )
    values = (
        match_weights(weights, names) if temperature is None else [len(rows) ** (1 / temperature) for rows in sources]
    )
    return Mixture(names, sources, values, *seed)


def check_mixing(weights: Sequence[str], temperature: float | None) -> None:
    """Raise a UsageError for malformed weights, a temperature out of range, or both."""
    check_number("--mix-temperature", temperature, at_least=1, at_most=MAX_TEMPERATURE)
    if weights and temperature is not None:
        raise UsageError(
            "conflicting-options",
            "--weights and --mix-temperature both set the shares of the sources; give one of them",
        )
    for weight in weights:
        parse_weight(weight)


def parse_weight(text: str) -> tuple[str, float]:
    """Parse `NAME=NUMBER`. Raises UsageError."""
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = None
    if not name or value is None:
        raise UsageError("bad-weight", f"--weights: expected SOURCE=NUMBER, as in wiki=2, got {text}")
    check_number(f"--weights: the weight of {name}", value, above=0, at_most=MAX_WEIGHT)
    return name, value


def match_weights(weights: Sequence[str], names: Sequence[str]) -> list[float]:
    """Return the weight of each source; a weight names a source by its path or the last parts of it.

    Raises:
        UsageError: a weight names none or several sources, or a source has none or several weights.
    """
    found: dict[int, float] = {}
    for name, value in map(parse_weight, weights):
        parts = PurePath(name).parts
        exact = [i for i, source in enumerate(names) if source in (name, make_absolute(name))]
        matches = exact or [i for i, source in enumerate(names) if PurePath(source).parts[-len(parts) :] == parts]
        if len(matches) != 1:
            raise UsageError(
                "ambiguous-source" if matches else "unknown-source",
                f"--weights: {name} is {len(matches) or 'none'} of the sources ({', '.join(names)}); "
                "name each by its path, or by the last part of it",
            )
        if matches[0] in found:
            raise UsageError("repeated-weight", f"--weights: {names[matches[0]]} has two weights; give one")
        found[matches[0]] = value
    if missing := [name for i, name in enumerate(names) if i not in found]:
        raise UsageError("missing-weight", f"--weights: {missing[0]} has no weight; give one for each source")
    return [found[i] for i in range(len(names))]


def check_sources(weights: Sequence[str], temperature: float | None, names: Sequence[str]) -> None:
    """Check that weights or a temperature, if given, fit to the sources of these names.

    Raises:
        UsageError: there is only one source, or the weights do not match the sources.
    """
    if (weights or temperature is not None) and len(names) < 2:
        raise UsageError(
            "one-source",
            f"--weights and --mix-temperature mix several sources, got {format_count(len(names), 'source')} "
            f"({', '.join(names)}); name the sources one by one, as in wiki law",
        )
    if weights:
        match_weights(weights, names)


def label_sources(names: Sequence[str]) -> list[str]:
    """Return short names for tables: the last part of each path, or all of it if others have the same last part."""
    last = [PurePath(name).name or name for name in names]
    return [short if last.count(short) == 1 else name for short, name in zip(last, names, strict=True)]
