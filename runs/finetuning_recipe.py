"""Search of fine-tuning hyperparameters for encoders that are narrower than ELECTRA-Small.

    python runs/finetuning_recipe.py RUN [RUN ...] --glue GLUE --squad TRAIN DEV --out OUT [--rows N ...] [--tasks TASK ...]
        [--rates RATE ...] [--epochs EPOCHS ...] [--decays DECAY ...] [--poolings POOLING ...]

Every RUN (of `electra pretrain`) is fine-tuned on tasks that the studies do not report: QNLI, QQP, MNLI, and `answers`, which
is the kind of answer of a question of SQuAD 1.1 (a number, a name, other) from the question alone. For each number of rows
there is a coordinate search from the paper's values: all pairs of learning rate and epochs (up to 10) first, then more epochs,
the layer-wise decay, and the pooling, each with the best values before it, by the mean score over the tasks. The paper's
values and the best ones are also run with the same network from random weights. Scores are of the first 2,000 rows of the dev
files, of `answers` of 2,000 questions at most. OUT/scores.csv has a row per fine-tuning run, OUT/best.md the means over the
tasks. One thread; an interrupted search continues with the same command, and later ones add to the same table.
"""

import argparse
import csv
import gzip
import itertools
import json
import os
import platform
import re
import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

import electra
from electra.finetuning.classification.pooling import POOLINGS

FOLDERS = {"qnli": "QNLI", "qqp": "QQP", "mnli": "MNLI"}
ANSWERS = "answers"
TASKS = (*FOLDERS, ANSWERS)
ROWS = (1_000, 3_000, 1_000_000)
"""Maximum training rows; the largest number takes all."""
DEV_ROWS = 2_000
RANDOM = "random"
"""Prefix of the name of a network from random weights."""


@dataclass(frozen=True)
class Settings:
    """The searched hyperparameters; the defaults are those of Table 7 for ELECTRA-Small."""

    learning_rate: float = 3e-4
    epochs: float = 3.0
    layerwise_decay: float = 0.8
    pooling: str = "cls"

    def format(self) -> tuple[str, ...]:
        """Return the values as written to the table."""
        return tuple(value if isinstance(value, str) else f"{value:g}" for value in astuple(self))


RATES = (3e-4, 1e-3, 2e-3, 4e-3)
EPOCHS = (3.0, 10.0, 30.0)
DECAYS = (0.8, 0.9, 1.0)
COMBINED_EPOCHS = 10.0
"""Most epochs that are combined with every learning rate."""

KEY = ("encoder", "width", "task", "rows", *(field.name for field in fields(Settings)), "seed")
HEADER = (*KEY, "score", "steps", "seconds", "hardware", "electra", "torch", "python")
SEED = 0

Row = dict[str, str]


def build_stages(
    rates: Sequence[float] = RATES,
    epochs: Sequence[float] = EPOCHS,
    decays: Sequence[float] = DECAYS,
    poolings: Sequence[str] = tuple(POOLINGS),
) -> tuple[dict[str, tuple[Any, ...]], ...]:
    """Return the values of each stage, of which all combinations are run."""
    return (
        {"learning_rate": tuple(rates), "epochs": tuple(each for each in epochs if each <= COMBINED_EPOCHS)},
        {"epochs": tuple(epochs)},
        {"layerwise_decay": tuple(decays)},
        {"pooling": tuple(poolings)},
    )


def search(score: Callable[[Settings], float], stages: Sequence[Mapping[str, tuple[Any, ...]]]) -> Settings:
    """Return the settings with the highest score, found stage by stage; the first of equal ones."""
    best = Settings()
    for values in stages:
        combinations = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
        best = max((replace(best, **each) for each in combinations), key=score)
    return best


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


def find_answer_kind(answer: str) -> str:
    """Return the kind of an answer: number (it has a digit), name (it has an upper-case letter), or other."""
    if re.search(r"\d", answer):
        return "number"
    return "name" if re.search(r"[A-Z]", answer) else "other"


def read_answers(squad: Path) -> list[Row]:
    """Read the questions of a file of SQuAD with the kinds of their first answers."""
    content = gzip.decompress(squad.read_bytes()) if squad.suffix == ".gz" else squad.read_bytes()
    articles = json.loads(content)["data"]
    questions = [qa for each in articles for paragraph in each["paragraphs"] for qa in paragraph["qas"]]
    return [{"question": qa["question"], "kind": find_answer_kind(qa["answers"][0]["text"])} for qa in questions]


def write_answers(squad: Path, target: Path, rows: int) -> None:
    """Write every n-th question, so that there are at most `rows` of them, from all articles."""
    found = read_answers(squad)
    selected = found[:: max(1, -(-len(found) // rows))]
    target.write_text("".join(json.dumps(row) + "\n" for row in selected), encoding="utf-8")


def read_table(file: Path) -> list[Row]:
    """Read the rows of the table that are written so far."""
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines())) if file.exists() else []


def summarize(rows: Iterable[Row]) -> str:
    """Format the scores of every setting, the best first for each encoder and number of rows.

    The mean is over the tasks that all settings of this encoder and this number of rows have.
    """
    groups = defaultdict(list)
    for row in rows:
        groups[(row["encoder"], row["rows"]), tuple(row[field.name] for field in fields(Settings))].append(row)
    names = ["encoder", "rows", *(field.name.replace("_", " ") for field in fields(Settings)), *TASKS, "mean"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    scores = {key: {row["task"]: float(row["score"]) for row in group} for key, group in groups.items()}
    means = {}
    for key, found in scores.items():
        shared = set.intersection(*(set(each) for other, each in scores.items() if other[0] == key[0]))
        means[key] = statistics.fmean(found[task] for task in shared) if shared else 0.0
    for key in sorted(groups, key=lambda each: (each[0], -means[each])):
        cells = [f"{scores[key][task]:.1f}" if task in scores[key] else "" for task in TASKS]
        lines.append(f"| {' | '.join([*key[0], *key[1], *cells, f'{means[key]:.1f}'])} |")
    return "\n".join(lines) + "\n"


class Scorer:
    """Fine-tunes encoders and keeps their scores in a table; a run that is in the table is not repeated."""

    def __init__(self, out: Path, glue: Path, squad: tuple[Path, Path], tasks: Sequence[str]) -> None:
        self.out, self.glue, self.squad, self.tasks = out, glue, squad, tasks
        self.table = out / "scores.csv"
        self.found = {tuple(row[name] for name in KEY): float(row["score"]) for row in read_table(self.table)}

    def score(self, run: Path, rows: int, settings: Settings, random: bool = False) -> float:
        """Return the mean score over the tasks of an encoder, or of the same network from random weights."""
        return statistics.fmean(self.score_task(run, task, rows, settings, random) for task in self.tasks)

    def score_task(self, run: Path, task: str, rows: int, settings: Settings, random: bool) -> float:
        """Return the score of a task, from the table or by fine-tuning."""
        [config] = [*run.glob("discriminator/config.json"), *run.glob("masked_lm/config.json")]
        width = str(json.loads(config.read_text())["hidden_size"])
        # Networks of one size have the same random weights.
        name = f"{RANDOM}-{width}" if random else run.name
        key = (name, width, task, str(rows), *settings.format(), str(SEED))
        if key not in self.found:
            summary = self.finetune(run, task, rows, settings, random)
            split = "dev_matched" if "dev_matched" in summary["metrics"] else "dev"
            self.found[key] = summary["metrics"][split][summary["main_metric"]]["median"]
            results = json.loads((self.out / "run/seed-0/results.json").read_text())
            facts = [summary["hardware"], electra.__version__, torch.__version__, platform.python_version()]
            numbers = [f"{self.found[key]:.2f}", results["steps"], f"{results['seconds']:.1f}"]
            is_new = not self.table.exists()
            with self.table.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([*([HEADER] if is_new else []), [*key, *numbers, *facts]])
            (self.out / "best.md").write_text(summarize(read_table(self.table)), encoding="utf-8")
        return self.found[key]

    def finetune(self, run: Path, task: str, rows: int, settings: Settings, random: bool) -> dict[str, Any]:
        """Fine-tune on the first `rows` rows of a task and return the summary."""
        shutil.rmtree(self.out / "run", ignore_errors=True)
        common: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields(Settings)}
        common |= {"model": run, "out": self.out / "run", "seed": SEED, "from_scratch": random, "baseline": "none"}
        common |= {"log_to": (), "runtime": {"device": "cpu", "threads": 1}}
        data = self.out / f"data-{rows}"
        if task != ANSWERS:
            if not data.exists():
                partial = data.with_suffix(".partial")
                cut_glue(self.glue, partial, rows)
                partial.rename(data)
            return electra.finetune(task, data=data, **common)
        files = {"train": self.out / f"answers-{rows}.jsonl", "dev": self.out / "answers-dev.jsonl"}
        for file, squad, number in zip(files.values(), self.squad, (rows, DEV_ROWS), strict=True):
            write_answers(squad, file, number)
        return electra.finetune("table", **files, text="question", label="kind", kind="classification", **common)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--squad", type=Path, nargs=2, required=True, metavar=("TRAIN", "DEV"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--epochs", type=float, nargs="+", default=EPOCHS)
    parser.add_argument("--decays", type=float, nargs="+", default=DECAYS)
    parser.add_argument("--poolings", nargs="+", default=tuple(POOLINGS), choices=tuple(POOLINGS))
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    scorer = Scorer(options.out, options.glue, tuple(options.squad), options.tasks)
    stages = build_stages(options.rates, options.epochs, options.decays, options.poolings)
    for rows, run in itertools.product(options.rows, options.runs):
        best = search(partial(scorer.score, run, rows), stages)
        for settings, random in itertools.product((Settings(), best), (False, True)):
            scorer.score(run, rows, settings, random)
        print(f"{run.name}, {rows:,} rows: {best}", flush=True)


if __name__ == "__main__":
    main()
