"""Minimal pairs (BLiMP, Warstadt et al., 2020): how often a model prefers the acceptable sentence of two."""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Int64

from electra.errors import DataError
from electra.pretraining.evaluation.sentence_scores import Scorer, SentenceScore, score_sentences
from electra.runtime.setup import Runtime
from electra.storage import write_atomically
from electra.text.lines import read_json_records
from electra.text.tokenizer import Tokenizer

GROUPS = ("field", "phenomenon", "paradigm")
"""Levels at which accuracies are reported, besides the mean over all paradigms."""
CHANCE = 0.5


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in acceptability only."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str
    field: str
    place: str
    """File and line."""

    def group(self, level: str) -> str:
        """The name of its group at a level of `GROUPS`."""
        return str(getattr(self, level))


def read_minimal_pairs(files: Sequence[Path]) -> list[MinimalPair]:
    """Read JSON lines in BLiMP's format, plain or compressed.

    `sentence_good` and `sentence_bad` are required. The paradigm is `UID`, or the file's name without its suffixes;
    `linguistics_term` and `field` are the paradigm where they are missing.

    Raises:
        DataError: a file cannot be read, has no pairs, or a record lacks a sentence; or two files would be one paradigm
            because they have the same name and no `UID`.
    """
    pairs: list[MinimalPair] = []
    named: dict[str, Path] = {}
    for file in files:
        before = len(pairs)
        for number, record in read_json_records(file):
            good, bad = (get_sentence(record, name, f"{file}:{number}") for name in ("sentence_good", "sentence_bad"))
            paradigm = str(record.get("UID") or file.name.partition(".")[0])
            if not record.get("UID") and named.setdefault(paradigm, file) != file:
                raise DataError(
                    "same-name", f"{file}: has the name of {named[paradigm]}, and no 'UID' tells them apart; rename it"
                )
            phenomenon = str(record.get("linguistics_term") or paradigm)
            # BLiMP writes one of its fields both ways.
            field = str(record.get("field") or phenomenon).replace("syntax_semantics", "syntax/semantics")
            pairs.append(MinimalPair(good, bad, paradigm, phenomenon, field, f"{file}:{number}"))
        if len(pairs) == before:
            raise DataError("no-rows", f"{file}: no minimal pairs")
    return pairs


def get_sentence(record: Mapping[str, Any], name: str, place: str) -> str:
    """Return a field of a record. Raises a `DataError` if it is missing, blank or not a string."""
    sentence = record.get(name)
    if not isinstance(sentence, str) or not sentence.strip():
        raise DataError("missing-field", f"{place}: {name!r} is missing or not a text")
    return sentence


def evaluate_by_frequencies(
    pairs: Sequence[MinimalPair], tokenizer: Tokenizer, unigrams: Int64[np.ndarray, " V"]
) -> float:
    """Compute the accuracy over all of a score without context: the sum of the log frequencies of a sentence's tokens.

    `unigrams` are the tokens' counts in a text; each is raised by one. A model that is not above this accuracy has not shown
    that it uses a context.
    """
    log_frequencies = np.log((unigrams + 1) / (unigrams + 1).sum())
    encoded = tokenizer.encode_lines([sentence for pair in pairs for sentence in (pair.good, pair.bad)])
    scores = [SentenceScore(float(log_frequencies[ids].sum()), len(ids)) for ids in encoded]
    return float(summarize(pairs, scores)["overall"])


def evaluate_minimal_pairs(
    scorer: Scorer,
    pairs: Sequence[MinimalPair],
    methods: Sequence[str],
    runtime: Runtime,
    progress: Callable[[int, str], None] = lambda number, detail: None,
) -> dict[str, Any]:
    """Compute accuracies with each of the methods: the share of pairs whose better sentence has the higher score.

    A tie counts one half. The accuracy of a phenomenon, of a field and of all is the mean over its paradigms, in percent.

    Returns:
        `pairs` and `paradigms` (their numbers), `groups` (for each level of `GROUPS` the number of pairs by name), and
        `methods`: for each method `overall`, `ties`, and for each level of `GROUPS` the accuracies by name.
    """
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    places = {sentence: pair.place for pair in reversed(pairs) for sentence in (pair.good, pair.bad)}
    scores = score_sentences(scorer, sentences, methods, runtime, progress, places)
    groups = {level: Counter(pair.group(level) for pair in pairs) for level in GROUPS}
    return {
        "pairs": len(pairs),
        "paradigms": len(groups["paradigm"]),
        "groups": {level: dict(each) for level, each in groups.items()},
        "methods": {method: summarize(pairs, each) for method, each in scores.items()},
    }


def summarize(pairs: Sequence[MinimalPair], scores: Sequence[SentenceScore]) -> dict[str, Any]:
    """Average the outcomes of pairs, whose scores alternate good and bad, over paradigms and groups of paradigms."""
    outcomes: dict[str, list[float]] = defaultdict(list)
    groups: dict[str, dict[str, set[str]]] = {level: defaultdict(set) for level in GROUPS}
    for pair, good, bad in zip(pairs, scores[::2], scores[1::2], strict=True):
        outcomes[pair.paradigm].append(0.5 if good.total == bad.total else float(good.total > bad.total))
        for level in GROUPS:
            groups[level][pair.group(level)].add(pair.paradigm)
    accuracies = {paradigm: 100 * fmean(each) for paradigm, each in outcomes.items()}
    return {
        "overall": fmean(accuracies.values()),
        "ties": sum(outcome == 0.5 for each in outcomes.values() for outcome in each),
        **{
            level: {
                name: fmean(accuracies[paradigm] for paradigm in sorted(members)) for name, members in found.items()
            }
            for level, found in groups.items()
        },
    }


def build_rows(results: Mapping[str, Any]) -> list[dict[str, str | int | float]]:
    """Convert the result of `evaluate_minimal_pairs` to rows: level, name, number of pairs, accuracy by each method."""
    methods = results["methods"]
    rows: list[dict[str, str | int | float]] = [
        {"level": "overall", "name": "", "pairs": results["pairs"]}
        | {method: each["overall"] for method, each in methods.items()}
    ]
    rows += [
        {"level": level, "name": name, "pairs": number}
        | {method: each[level][name] for method, each in methods.items()}
        for level in GROUPS
        for name, number in sorted(results["groups"][level].items())
    ]
    return rows


def write_minimal_pairs(results: Mapping[str, Any], directory: Path) -> None:
    """Write `minimal_pairs.csv`, with accuracies in percent, and `minimal_pairs.png`."""
    rows = build_rows(results)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: f"{v:.2f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / "minimal_pairs.csv", text.getvalue().encode())
    write_atomically(directory / "minimal_pairs.png", draw_accuracies(results))


def draw_accuracies(results: Mapping[str, Any]) -> bytes:
    """Draw the accuracy of each phenomenon by each method, and chance, as a PNG."""
    from electra.plotting import Figure

    methods = results["methods"]
    names = sorted(next(iter(methods.values()))["phenomenon"], reverse=True)
    labels = [*names, "all paradigms"]
    figure = Figure(figsize=(6.4, 1.2 + 0.3 * len(labels)), layout="constrained")
    axes = figure.subplots()
    for number, (method, each) in enumerate(methods.items()):
        values = [*(each["phenomenon"][name] for name in names), each["overall"]]
        offset = 0.16 * (number - (len(methods) - 1) / 2)
        axes.plot(values, [place - offset for place in range(len(labels))], "os^"[number % 3], label=method)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.axvline(100 * CHANCE, color="#777777", linewidth=1, linestyle="--", label="chance")
    axes.set_yticks(range(len(labels)), [label.replace("_", " ") for label in labels])
    axes.set_xlabel("minimal pairs, accuracy in %")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=len(methods) + 1, frameon=False)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()
