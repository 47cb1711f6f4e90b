"""Objectives of later work from text to checkpoint: saved networks, reports, held-out metrics, a resumed run."""

from pathlib import Path
from typing import Any

import pytest
from support.callbacks import AtStep, CrashError, crash
from support.toy import TINY_RUN, trace
from transformers import AutoModel

import electra
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.train.metrics_log import read_metrics

CONTRAST = {"weight": 1.0, "temperature": 0.5}
WARMUP = {"steps": 5, "length": 8}
RUNS: dict[str, tuple[dict[str, Any], set[str], set[str]]] = {
    "corrective-lm": (
        {"objective": "corrective-lm"},
        {"corrective_loss", "corrective_accuracy", "restored", "discriminator_loss", "auc"},
        {"discriminator", "generator"},
    ),
    "coco-lm": (
        {"objective": "corrective-lm", "sequence_contrast": CONTRAST, "corrective": {"all_tokens": True}},
        {"corrective_loss", "sequence_contrast_loss", "sequence_contrast_accuracy"},
        {"discriminator", "generator"},
    ),
    "adversarial": (
        {"objective": "corrective-lm", "generator.training": "adversarial"},
        {"corrective_loss", "reward"},
        {"discriminator", "generator"},
    ),
    "sequence-contrast": (
        {"sequence_contrast": CONTRAST, "length_warmup": WARMUP, "token_prediction.masked": 1.0},
        {"sequence_contrast_loss", "sequence_contrast_accuracy", "auc"},
        {"discriminator", "generator"},
    ),
    "electric": (
        {"objective": "electric", "length_warmup": WARMUP},
        {"electric_loss", "electric_accuracy", "electric_noise", "energy", "generator_loss"},
        {"energy_model", "generator"},
    ),
    "electric-two-stage": (
        {"objective": "electric", "procedure": "two-stage", "generator.size": 1.0},
        {"electric_loss", "generator_loss"},
        {"energy_model", "generator"},
    ),
    "electric-masked-lm-first": (
        {"objective": "electric", "procedure": "masked-lm-first"},
        {"electric_loss", "generator_loss"},
        {"energy_model", "generator"},
    ),
    "electric-unigram": (
        {"objective": "electric-unigram"},
        {"electric_loss", "sampled_accuracy", "energy"},
        {"energy_model"},
    ),
}
"""Options, some of the metrics, and directories of networks."""


def read_weights(run: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(run.glob("*/model.safetensors"))]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_from_text_to_checkpoint(name: str, text: Path, tmp_path: Path) -> None:
    options, metrics, networks = RUNS[name]
    run = tmp_path / "run"
    summary = electra.pretrain(str(text), out=str(run), **options, **TINY_RUN)
    rows = list(read_metrics(run / "metrics.jsonl"))
    assert metrics <= summary["heldout"].keys()
    assert metrics <= rows[-1].keys()
    assert {path.parent.name for path in run.glob("*/model.safetensors")} == networks
    for network in networks:
        assert AutoModel.from_pretrained(run / network).config.hidden_size in (8, 16)
    report = (run / "report.html").read_text()
    descriptions = OBJECTIVES[options.get("objective", "electra")].all_metrics
    assert all(descriptions[metric].description.replace('"', "&quot;") in report for metric in metrics)
    assert electra.evaluate(str(run)) == pytest.approx(summary["heldout"], nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coco-lm", "sequence-contrast", "electric", "electric-unigram"])
def test_a_resumed_run_ends_bit_for_bit_the_same(name: str, text: Path, tmp_path: Path) -> None:
    options, *_ = RUNS[name]
    runs = tmp_path / "whole", tmp_path / "resumed"
    electra.pretrain(str(text), out=str(runs[0]), **options, **TINY_RUN)
    with pytest.raises(CrashError):
        electra.pretrain(str(text), out=str(runs[1]), **options, **TINY_RUN, callbacks=[AtStep(6, crash)])
    electra.pretrain(str(text), out=str(runs[1]), **options, **TINY_RUN)
    assert trace(runs[0]) == trace(runs[1])
    assert read_weights(runs[0]) == read_weights(runs[1])
