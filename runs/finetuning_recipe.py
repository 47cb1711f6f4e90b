"""Search of fine-tuning hyperparameters for encoders that are narrower than ELECTRA-Small.

    python runs/finetuning_recipe.py --glue GLUE --out OUT RUN [RUN ...]

Every RUN (of `electra pretrain`) is fine-tuned on three tasks of GLUE that the studies do not report, QNLI, QQP and MNLI, with
1,000 and with all rows of their training files, by every combination of learning rate, epochs and layer-wise decay. Scores
are of the first 2,000 rows of their dev files. OUT/scores.csv has a row per run, OUT/best.md the means over encoders and
tasks. One thread; an interrupted search continues with the same command.
"""

import argparse
import csv
import itertools
import os
import shutil
import statistics
from collections import defaultdict
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import electra

FOLDERS = {"qnli": "QNLI", "qqp": "QQP", "mnli": "MNLI"}
ROWS = (1_000, 1_000_000)
"""Maximum training rows; the larger number takes all."""
DEV_ROWS = 2_000
RATES = (3e-4, 1e-3, 2e-3, 4e-3)
EPOCHS = (3.0, 10.0)
DECAYS = (0.8, 1.0)
HEADER = ("encoder", "task", "rows", "learning_rate", "epochs", "layerwise_decay", "score")


def cut(source: Path, target: Path, rows: int) -> None:
    """Write the header and the first `rows` rows of a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open(encoding="utf-8", newline="") as file:
        target.write_text("".join(itertools.islice(file, rows + 1)), encoding="utf-8", newline="")


def cut_glue(glue: Path, target: Path, rows: int) -> None:
    """Write a folder in GLUE's layout with the first rows of the training and dev files."""
    for folder in FOLDERS.values():
        for source in sorted((glue / folder).glob("*.tsv")):
            if not source.name.startswith("test"):
                cut(source, target / folder / source.name, rows if source.name == "train.tsv" else DEV_ROWS)


def summarize(rows: list[dict[str, str]]) -> str:
    """Format the mean score of every combination, over encoders and tasks, the best first for each number of rows."""
    scores = defaultdict(list)
    for row in rows:
        scores[row["rows"], row["learning_rate"], row["epochs"], row["layerwise_decay"]].append(float(row["score"]))
    lines = ["| rows | learning rate | epochs | layer-wise decay | mean score | runs |", "|---|---|---|---|---|---|"]
    for key, values in sorted(scores.items(), key=lambda item: (item[0][0], -statistics.fmean(item[1]))):
        lines.append(f"| {' | '.join(key)} | {statistics.fmean(values):.2f} | {len(values)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    table = options.out / "scores.csv"
    options.out.mkdir(parents=True, exist_ok=True)
    done = list(csv.DictReader(table.open())) if table.exists() else []
    found = {tuple(row[name] for name in HEADER[:-1]) for row in done}
    if not done:
        table.write_text(",".join(HEADER) + "\n")
    for rows in ROWS:
        data = options.out / f"glue-{rows}"
        cut_glue(options.glue, data, rows)
        for run, task, rate, epochs, decay in itertools.product(options.runs, FOLDERS, RATES, EPOCHS, DECAYS):
            key = (str(run), task, str(rows), f"{rate:g}", f"{epochs:g}", f"{decay:g}")
            if key in found:
                continue
            out = options.out / "run"
            shutil.rmtree(out, ignore_errors=True)
            summary = electra.finetune(
                task,
                model=str(run),
                data=str(data),
                out=str(out),
                learning_rate=rate,
                epochs=epochs,
                layerwise_decay=decay,
                baseline="none",
                log_to=(),
                runtime={"device": "cpu", "threads": 1},
            )
            score = summary["metrics"]["dev" if task != "mnli" else "dev_matched"][summary["main_metric"]]["median"]
            with table.open("a") as file:
                file.write(",".join((*key, f"{score:.2f}")) + "\n")
            (options.out / "best.md").write_text(summarize(list(csv.DictReader(table.open()))))


if __name__ == "__main__":
    main()
