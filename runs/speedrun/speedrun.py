"""The best encoder of an hour: from raw text to a scored encoder within a fixed time on two CPU cores.

    python runs/speedrun/speedrun.py ENTRY --text TEXT --data DATA --out OUT [--hours 1]

The clock starts with the raw text: vocabulary and data preparation are part of the time, scoring is not. DATA has glue/
(GLUE's layout), chunk/ (CoNLL-2000) and pairs/ (files of minimal pairs). A row is added to records.csv beside this file.
An interrupted run cannot be continued: its time is over. README.md beside this file has the rules and the entries.
"""

import argparse
import csv
import datetime
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import electra
from electra.data.manifest import Manifest
from electra.presets import get_preset
from electra.runtime.setup import RuntimeConfig
from electra.studies.instruments import EvalConfig, measure_minimal_pairs, measure_similarity, measure_tags

HERE = Path(__file__).parent
TASKS = ("cola", "sst2", "mrpc", "stsb", "rte")
FIELDS = (
    "date", "entry", "commit", "hardware", "versions", "hours", "flops", "tokens",
    "pairs", "tags", "tags_last", "similarity", "glue", *TASKS,
)  # fmt: skip


class Clock:
    """The time that is left."""

    def __init__(self, hours: float) -> None:
        self.end = time.monotonic() + 3600 * hours

    @property
    def hours_left(self) -> float:
        """Hours until the end."""
        return (self.end - time.monotonic()) / 3600


def prepare(text: str, out: Path, name: str, vocab_size: int, seq_len: int) -> Path:
    """Prepare the text; the vocabulary in `out`/tokenizer is trained first, if it is not there."""
    electra.tokenizer(text, out=out / "tokenizer", vocab_size=vocab_size)
    return electra.prepare(text, tokenizer=out / "tokenizer", out=out / name, seq_len=seq_len)


def train_preset(text: str, out: Path, clock: Clock, preset: str) -> dict[str, Any]:
    """Pre-train with a preset."""
    config = get_preset(preset)
    data = prepare(text, out, "data", config.model.vocab_size, config.seq_len)
    return electra.pretrain(data=data, out=out / "run", preset=preset, hours=clock.hours_left)


def train_hour_encoder(text: str, out: Path, clock: Clock) -> dict[str, Any]:
    """Pre-train as runs/hour.sh does, with its two parts in proportion to their time there: 40 and 12 minutes."""
    config = HERE.parent / "hour.yaml"
    short_data, data = (prepare(text, out, name, 8_192, length) for name, length in (("short", 32), ("data", 128)))
    first = electra.pretrain(
        data=short_data, out=out / "first", config=config, hours=clock.hours_left * 40 / 52, seq_len=32,
        training={"batch_size": 32},
    )  # fmt: skip
    last = electra.pretrain(
        data=data, out=out / "run", config=config, hours=clock.hours_left, init=out / "first", seq_len=128,
        training={"batch_size": 16}, optimizer={"learning_rate": 5e-4},
    )  # fmt: skip
    return {**last, **{name: first[name] + last[name] for name in ("flops", "tokens")}}


def train_by_trainer(text: str, out: Path, clock: Clock) -> dict[str, Any]:
    """Pre-train BERT with Hugging Face's Trainer: the body of runs/hour.yaml at a common length and rate."""
    from trainer import train

    data = prepare(text, out, "data", 8_192, 128)
    sizes = {
        "embedding_size": 128, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 512, "max_position_embeddings": 512,
    }  # fmt: skip
    return train(data, out / "tokenizer", out / "run", lambda: clock.hours_left, sizes, rate=1e-3)


ENTRIES: dict[str, Callable[[str, Path, Clock], dict[str, Any]]] = {
    "trainer": train_by_trainer,
    "hour": train_hour_encoder,
}
"""By name: a function that trains OUT/run on OUT/data and returns its summary. The name of a preset is an entry too."""


def score(out: Path, data: Path) -> dict[str, float]:
    """Score the encoder OUT/run: minimal pairs (best method), tags, frozen similarity on STS-B, and fine-tuned tasks."""
    run, prepared = out / "run", out / "data"
    pairs = tuple(str(file) for file in sorted((data / "pairs").iterdir()))
    evaluation = EvalConfig(str(data / "glue"), TASKS, tags=str(data / "chunk"), minimal_pairs=pairs)
    length = Manifest.load(prepared).seq_len
    config = replace(get_preset("tiny"), data=str(prepared), seq_len=length, runtime=RuntimeConfig("cpu", "float32"))
    tags = measure_tags(run, config, evaluation)
    methods = measure_minimal_pairs(run, config, evaluation)["methods"]
    layers = measure_similarity(run, config, evaluation)["layers"]
    scores = {
        "pairs": max(method["overall"] for method in methods.values()),
        "tags": tags["layers"][tags["layer"]],
        "tags_last": tags["layers"][-1],
        "similarity": layers[-1],
    }
    for task in TASKS:
        summary = electra.finetune(
            task, model=run, data=data / "glue", out=out / "finetuned" / task, baseline="none", log_to=()
        )
        scores[task] = summary["metrics"]["dev"][summary["main_metric"]]["median"]
    return scores | {"glue": sum(scores[task] for task in TASKS) / len(TASKS)}


def find_commit() -> str:
    """Return the commit of this repository, with a plus sign if files differ from it."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def append_record(file: Path, record: dict[str, Any]) -> None:
    """Add a row to the table of records."""
    is_new = not file.exists()
    with file.open("a", newline="") as rows:
        writer = csv.DictWriter(rows, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow({name: f"{value:.4g}" if isinstance(value, float) else value for name, value in record.items()})


def main(words: list[str] | None = None) -> None:
    """Run an entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entry", help=f"{', '.join(ENTRIES)}, or a preset")
    parser.add_argument("--text", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--records", type=Path, default=HERE / "records.csv")
    given = parser.parse_args(words)
    if given.out.exists():
        parser.error(f"{given.out} exists; an entry starts with nothing prepared, choose another --out")
    given.out.mkdir(parents=True)
    commit, clock = find_commit(), Clock(given.hours)
    train = ENTRIES.get(given.entry, partial(train_preset, preset=given.entry))
    summary = train(given.text, given.out, clock)
    print(f"trained within {given.hours - clock.hours_left:.3f} hours; scoring")
    record = {
        "date": datetime.date.today().isoformat(),
        "entry": given.entry,
        "commit": commit,
        "hours": given.hours,
        **{name: summary[name] for name in ("flops", "tokens", "hardware")},
        "versions": " ".join(f"{name} {number}" for name, number in summary["versions"].items()),
        **score(given.out, given.data),
    }
    append_record(given.records, record)
    print("\n".join(f"{name}: {value}" for name, value in record.items()))


if __name__ == "__main__":
    main()
