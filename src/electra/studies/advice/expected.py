"""Scores that the studies or the paper have for a size and an objective, nearest in compute."""

import math
from dataclasses import dataclass

from electra.studies.advice.evidence import find_scores
from electra.studies.advice.sizes import SIZES
from electra.studies.catalog.variants import BERT, ELECTRA
from electra.studies.paper.glue_scores import FIGURE_1

LABELS = {"electra": ELECTRA, "mlm": BERT}
"""Objective -> its line in the paper's figures."""


@dataclass(frozen=True)
class Expected:
    """A score at a compute."""

    metric: str
    score: float
    std: float | None
    """Standard deviation over `seeds` runs; None for published scores."""
    seeds: int | None
    objective: str
    flops: float | int
    source: str


def find_expected(name: str, objective: str, flops: float) -> list[Expected]:
    """Return the score of the nearest compute for a size; empty if no study has run it.

    For a size that a study has run with both objectives, also that of the other one.
    """
    found = []
    for each in (objective, *(other for other in LABELS if other != objective)):
        scores = [
            Expected(
                "tags", score.tags, score.tags_std, score.seeds, each, score.flops, f"{score.studies}, scale {name}"
            )
            for score in find_scores(name, each)
        ]
        low, high = SIZES[name].published
        scores += [
            Expected("GLUE", score, None, None, each, at, f"Clark et al. (2020), {FIGURE_1.source}")
            for label, points in FIGURE_1.lines
            if label == LABELS[each]
            for at, score in points
            if low <= at <= high
        ]
        found += sorted(scores, key=lambda score: abs(math.log(score.flops / flops)))[:1]
    return found
