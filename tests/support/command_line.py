"""Command lines that tests run in this process."""

from pathlib import Path

RUN = [
    "--preset",
    "tiny",
    "--steps",
    "2",
    "--seq-len",
    "24",
    "--workers",
    "1",
    "--training.batch-size",
    "4",
    "--model.num-layers",
    "1",
    "--model.vocab-size",
    "160",
]
"""Options of a run of a second on the toy language."""


def commands(inputs: Path, out: Path) -> dict[str, list[str]]:
    """Return a command line of each command that writes files; their --out is `out`."""
    tuned = ["--model", f"{inputs}/model", "--data", f"{inputs}/glue", "--seeds", "1", "--epochs", "1"]
    study = ["--data", f"{inputs}/text", "--glue", f"{inputs}/glue", "--scale", "tiny"]
    words = {
        "pretrain": [f"{inputs}/text", *RUN],
        "finetune": ["sst2", *tuned],
        "glue": ["--tasks", "sst2", *tuned],
        "study": ["objectives", *study],
        "predict": ["--model", f"{inputs}/tuned/seed-0/model", "--input", f"{inputs}/lines.txt"],
        "prepare": [f"{inputs}/text", "--tokenizer", f"{inputs}/tokenizer", "--seq-len", "24", "--workers", "1"],
        "tokenizer": [f"{inputs}/text", "--vocab-size", "160"],
    }
    return {name: [name, *options, "--out", str(out)] for name, options in words.items()}
