"""Settings for every test: one torch thread (on a busy machine many times faster for tiny models), no hub, no colour."""

import os
import random
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch

torch.set_num_threads(1)

# A run that takes a second: every stage of the real one, on a model of 2 layers of 16.
TINY_RUN = {
    "preset": "tiny",
    "steps": 12,
    "seq_len": 24,
    "workers": 1,
    "model": {
        "vocab_size": 160,
        "embedding_size": 8,
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "ffn_size": 32,
        "max_positions": 32,
        "dropout": 0.1,
        "attention_dropout": 0.1,
    },
    "training": {"batch_size": 8, "micro_batch_size": 4, "log_every": 1, "checkpoint_every": 4},
}


def sentences(number: int, seed: int = 0) -> str:
    """Documents of a toy language with words that go together, a blank line between."""
    draw = random.Random(seed)
    animals, verbs, things = (
        ["cat", "dog", "fox", "owl"],
        ["sees", "likes", "hunts"],
        ["mice", "milk", "birds", "sleep"],
    )
    documents = []
    for _ in range(number):
        lines = [
            " ".join(f"the {draw.choice(animals)} {draw.choice(verbs)} {draw.choice(things)} ." for _ in range(3))
            for _ in range(draw.randint(1, 4))
        ]
        documents.append("\n".join(lines))
    return "\n\n".join(documents) + "\n"


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of text."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "a.txt").write_text(sentences(150))
    (folder / "b.txt").write_text(sentences(50, seed=1))
    return folder


@pytest.fixture
def tiny_run() -> dict:
    """Options of a tiny run."""
    return {name: dict(value) if isinstance(value, dict) else value for name, value in TINY_RUN.items()}
