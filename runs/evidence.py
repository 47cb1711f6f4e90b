"""`python runs/evidence.py`: collect the scores that `electra advise` quotes from docs/research/results.

They are written to the package (electra/studies/advice/evidence.csv); the results are not part of it.
"""

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from electra.studies.advice.evidence import FILE, Score

RESULTS = Path(__file__).parents[1] / "docs/research/results"
STUDIES = ("efficiency-tiny", "convergence-tiny", "objectives-tiny", "objectives-mini")
"""Studies whose rows are used; runs that several of them share count once."""
OBJECTIVES = ("electra", "mlm")


def collect() -> list[Score]:
    """Collect the scores of the two objectives at every budget."""
    runs: dict[tuple[str, str, str], dict[str, dict[str, str]]] = {}
    studies: dict[tuple[str, str, str], dict[str, None]] = {}
    for study in STUDIES:
        with (RESULTS / f"{study}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                # Variants of a share of the budget have it in their name: mlm-0.25.
                objective, share = row["variant"].rsplit("-", 1) if row["line"] else (row["variant"], "1")
                if objective in OBJECTIVES and row["status"] == "done":
                    key = (row["scale"], objective, share)
                    runs.setdefault(key, {})[row["seed"]] = row
                    studies.setdefault(key, {})[study] = None
    scores = [summarize(*key[:2], list(rows.values()), " ".join(studies[key])) for key, rows in runs.items()]
    return sorted(scores, key=lambda score: (score.scale, score.objective, score.flops))


def summarize(scale: str, objective: str, rows: Sequence[dict[str, str]], studies: str) -> Score:
    """Compute means and the standard deviation over the seeds."""
    flops, tokens, tags = ([float(row[name]) for row in rows] for name in ("flops", "tokens", "tags"))
    mean, spread = round(statistics.fmean(tags), 2), round(statistics.stdev(tags), 2)
    return Score(
        scale,
        objective,
        round(statistics.fmean(flops)),
        round(statistics.fmean(tokens)),
        len(rows),
        mean,
        spread,
        studies,
    )


def format_csv(scores: Sequence[Score]) -> str:
    """Format the scores as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Score)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(vars(score) for score in scores)
    return text.getvalue()


if __name__ == "__main__":
    FILE.write_text(format_csv(collect()))
