"""Write the learning curves of a study: python benchmarks/curves.py STUDY > docs/research/results/NAME-SCALE-curves.csv

STUDY is the `--out` of `electra study`. A row has the metrics of a run at a step that is a multiple of `--every`, or the last.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from electra.train.metrics_log import read_metrics

METRICS = ("loss", "generator_loss", "sampled_accuracy", "auc")
"""Metrics in the table; a run that lacks one has an empty value."""


def iterate_rows(study: Path, every: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of all runs, by variant and seed."""
    for path in sorted(study.glob("runs/*/seed-*/metrics.jsonl")):
        variant, seed = path.parent.parent.name, int(path.parent.name.removeprefix("seed-"))
        rows = list(read_metrics(path))
        for row in rows:
            if row["step"] % every == 0 or row is rows[-1]:
                metrics = {name: f"{row[name]:.4g}" for name in METRICS if name in row}
                yield {"variant": variant, "seed": seed, "step": row["step"], **metrics}


def main(words: Sequence[str] | None = None) -> None:
    """Write the table to standard output."""
    parser = argparse.ArgumentParser(description="Learning curves of a study as CSV.")
    parser.add_argument("study", type=Path, help="output directory of electra study")
    parser.add_argument("--every", type=int, default=200, help="updates between two rows (default: 200)")
    arguments = parser.parse_args(words)
    rows = list(iterate_rows(arguments.study, arguments.every))
    if not rows:
        sys.exit(f"{arguments.study} has no runs/VARIANT/seed-N/metrics.jsonl; expected the --out of electra study")
    writer = csv.DictWriter(sys.stdout, ["variant", "seed", "step", *METRICS], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
