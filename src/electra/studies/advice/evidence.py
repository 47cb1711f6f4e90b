"""Scores of the committed studies by scale, objective and compute, which recommendations quote.

`python runs/evidence.py` writes `evidence.csv` from the rows in docs/research/results; a test compares the two.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "evidence.csv"


@dataclass(frozen=True)
class Score:
    """Results of equal runs with several seeds."""

    scale: str
    objective: str
    flops: int
    """Mean over the seeds, as `tokens`."""
    tokens: int
    seeds: int
    tags: float
    """Accuracy in percent of a linear probe of the frozen encoder on the chunk tags of words (CoNLL-2000), best layer."""
    tags_std: float
    """Standard deviation over the seeds."""
    studies: str
    """Studies that contain the runs."""


@cache
def load_scores() -> tuple[Score, ...]:
    """Load the table, in ascending order of scale, objective and FLOPs."""
    with FILE.open(newline="") as file:
        return tuple(
            Score(
                row["scale"],
                row["objective"],
                int(row["flops"]),
                int(row["tokens"]),
                int(row["seeds"]),
                float(row["tags"]),
                float(row["tags_std"]),
                row["studies"],
            )
            for row in csv.DictReader(file)
        )


def find_scores(scale: str, objective: str) -> list[Score]:
    """Return the scores of an objective at a scale, in ascending order of FLOPs; none for a size without a study."""
    return [score for score in load_scores() if (score.scale, score.objective) == (scale, objective)]
