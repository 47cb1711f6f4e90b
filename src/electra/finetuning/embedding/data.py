"""Texts for contrastive training, and pairs of texts with a similarity for its evaluation."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from electra.errors import DataError, UsageError
from electra.finetuning.classification.task import parse_number
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.readers.inputs import is_table
from electra.finetuning.readers.tables import Table, read_table
from electra.finetuning.splits import hold_out
from electra.text.lines import read_numbered_lines

log = logging.getLogger(__name__)

ENTAILMENT, CONTRADICTION = "entailment", "contradiction"
"""Labels of natural language inference that make a positive and a hard negative."""


@dataclass(frozen=True)
class TextGroups:
    """Groups of texts, all of one size: single texts, pairs with the same meaning, or these with a hard negative as third."""

    texts: Sequence[tuple[str, ...]]
    places: Sequence[str]
    """File and line of each group."""
    scores: np.ndarray | None = None
    """Similarity of each pair [N], in an evaluation file."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts for results.json."""

    @property
    def size(self) -> int:
        """Texts of a group."""
        return len(self.texts[0])


def read_training_texts(config: FinetuneConfig, path: Path) -> TextGroups:
    """Read the groups of --train: the lines of a text file, or the columns of a table that the options name.

    Raises:
        UsageError: a column is not named, or columns are named that contradict each other or that a text file does not have.
        DataError: the file cannot be read, or a column is missing.
    """
    columns = {
        "--text": config.text,
        "--text-pair": config.text_pair,
        "--embedding.negative": config.embedding.negative,
        "--label": config.label,
    }
    named = [option for option, column in columns.items() if column is not None]
    if not is_table(str(path)):
        if named:
            raise UsageError("meaningless-option", f"{named[0]} names a column of a table, but {path} is read as lines")
        numbered = list(read_numbered_lines(path))
        return TextGroups([(line,) for _, line in numbered], [f"{path}:{number}" for number, _ in numbered])
    if config.text is None:
        raise UsageError("missing-option", f"{path}: a table needs --text, the name of its column")
    if config.text_pair is None and len(named) > 1:
        raise UsageError("missing-option", f"{named[1]} needs --text-pair, the column of a text with the same meaning")
    if config.label is not None and config.embedding.negative is not None:
        raise UsageError(
            "conflicting-options", "give either --embedding.negative or --label, by which hard negatives are found"
        )
    table = read_table(path, skip_bad=config.skip_bad_rows)
    counts = {"rows_left_out": table.skipped} if table.skipped else {}
    if config.label is not None:
        return build_inference_triples(table, config.text, config.text_pair or "", config.label, counts)
    names = [config.text, config.text_pair, config.embedding.negative]
    texts = zip(*(table.get_texts(name) for name in names if name is not None), strict=True)
    return TextGroups(list(texts), [table.format_place(i) for i in range(len(table))], counts=counts)


def build_inference_triples(
    table: Table, premise: str, hypothesis: str, label: str, counts: Mapping[str, int]
) -> TextGroups:
    """Build triples from rows of natural language inference, given the names of the columns (section 4).

    Every hypothesis that a premise entails is a positive; one that it contradicts is the hard negative, in turn if there are
    several. Premises without either are left out.

    Raises:
        DataError: a column is missing, or no premise has both.
    """
    premises, hypotheses = table.get_texts(premise), table.get_texts(hypothesis)
    rows: dict[str, dict[str, list[int]]] = {}
    for i, (text, value) in enumerate(zip(premises, table.get_texts(label), strict=True)):
        rows.setdefault(text, {}).setdefault(value, []).append(i)
    texts, places = [], []
    for text, by_label in rows.items():
        negatives = by_label.get(CONTRADICTION)
        for number, i in enumerate(by_label.get(ENTAILMENT, []) if negatives else []):
            assert negatives
            texts.append((text, hypotheses[i], hypotheses[negatives[number % len(negatives)]]))
            places.append(table.format_place(i))
    if not texts:
        raise DataError(
            "no-triples",
            f"{table.path}: no text of {premise!r} has rows with {ENTAILMENT!r} and with {CONTRADICTION!r} in {label!r}",
        )
    log.info(f"{table.path}: {len(texts):,} triples from {len(table):,} rows", extra={"code": "triples"})
    return TextGroups(texts, places, counts=counts)


def read_similarities(path: Path, columns: tuple[str, ...]) -> TextGroups:
    """Read pairs of texts with their similarity from a table.

    Raises:
        DataError: the file cannot be read, a column is missing, a score is not a finite number, or all are equal.
    """
    table = read_table(path)
    first, second, score = columns
    texts = list(zip(table.get_texts(first), table.get_texts(second), strict=True))
    places = [table.format_place(i) for i in range(len(table))]
    scores = np.array([parse_score(*cell) for cell in zip(table.get_column(score), places, strict=True)])
    if np.ptp(scores) == 0:
        raise DataError(
            "equal-scores", f"{path}: every score is {scores[0]:g}; a rank correlation needs different ones"
        )
    return TextGroups(texts, places, scores)


def parse_score(value: Any, place: str) -> float:
    """Parse a similarity. Raises a `DataError` if it is not a finite number."""
    try:
        return parse_number(str(value))
    except ValueError:
        raise DataError("wrong-score", f"{place}: the score is {value!r}, expected a finite number") from None


def hold_out_groups(groups: TextGroups, config: FinetuneConfig) -> tuple[TextGroups, TextGroups]:
    """Split the groups into (train, held-out) ones; groups with the same first text stay together.

    Raises:
        DataError: there are too few of them.
    """
    items, anchors = list(zip(groups.texts, groups.places, strict=True)), [texts[0] for texts in groups.texts]
    parts = hold_out(items, anchors, config, "texts" if groups.size == 1 else "groups of texts")
    train, held_out = (
        replace(groups, texts=[texts for texts, _ in part], places=[place for _, place in part]) for part in parts
    )
    if held_out.size == 1 and len(set(held_out.texts)) < 2:
        raise DataError("too-few-rows", f"{config.train}: too few texts to hold some out as dev; give --dev")
    return train, held_out


def require_negatives(groups: TextGroups, path: Path) -> None:
    """Check that there are different texts: each is contrasted with the others of its batch.

    Raises:
        DataError: there is one text, or one group, only.
    """
    if not groups.texts:
        raise DataError("no-rows", f"{path}: no texts")
    if len({texts[0] for texts in groups.texts}) < 2:
        raise DataError(
            "no-negatives",
            f"{groups.places[0]}: the only text to train on ({path}); contrastive training needs at least two different ones",
        )
