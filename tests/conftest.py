"""Settings for every test: one torch thread (on a busy machine many times faster for tiny models), no hub, no color.

No GPU either, unless CUDA_VISIBLE_DEVICES names one: what is compared to the bit or over two processes is compared on a CPU.
"""

import os
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch
from support import toy_tasks
from support.toy import TINY_RUN, sentences

import electra
from electra.console import show_log
from electra.finetuning.run import finetune

torch.set_num_threads(1)
show_log()

TRAINING_FIXTURES = {"done", "expected_scores", "finished", "inputs", "parts", "runs", "tuned", "wrong"}
"""Fixtures that train a model; tests that use one are slow."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a trained model as slow."""
    for item in items:
        if isinstance(item, pytest.Function) and TRAINING_FIXTURES & set(item.fixturenames):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of text."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "a.txt").write_text(sentences(150))
    (folder / "b.txt").write_text(sentences(50, seed=1))
    return folder


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """A run that was never interrupted."""
    out = tmp_path_factory.mktemp("runs") / "finished"
    electra.pretrain(str(text), out=str(out), **TINY_RUN)
    return out


@pytest.fixture
def tiny_run() -> dict:
    """Options of a tiny run."""
    return {name: dict(value) if isinstance(value, dict) else value for name, value in TINY_RUN.items()}


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory, text: Path, finished: Path) -> Path:
    """Inputs of every command."""
    folder = tmp_path_factory.mktemp("parts")
    toy_tasks.save_model(folder / "model")
    toy_tasks.write_glue(folder / "glue", rows=16)
    config = toy_tasks.finetune_settings(folder / "model", "sst2", data=str(folder / "glue"), epochs=1.0)
    finetune(config, folder / "tuned")
    (folder / "lines.txt").write_text("the cat is good .\n")
    (folder / "text").symlink_to(text)
    (folder / "tokenizer").symlink_to(finished / "tokenizer")
    return folder
