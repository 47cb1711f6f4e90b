"""Every method of the paper from text to checkpoint; training in two stages; runs without enough memory."""

import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from support.errors import notices, raises
from support.toy import trace, weights
from transformers import AutoModel, ElectraForMaskedLM, ElectraForPreTraining, pipeline

import electra
from electra.errors import DeviceError, RunError, UsageError
from electra.pretraining import run as run_module
from electra.train.metrics_log import read_metrics


@pytest.mark.slow
def test_masked_language_modeling(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    summary = electra.pretrain(str(text), out=str(tmp_path / "run"), objective="mlm", **tiny_run)
    assert "mlm_accuracy" in summary["heldout"]
    assert summary["heldout"]["loss"] == summary["heldout"]["mlm_loss"], "the preset's loss weight is a generator's"
    assert AutoModel.from_pretrained(tmp_path / "run/masked_lm").config.hidden_size == 16
    guesses = pipeline("fill-mask", str(tmp_path / "run/masked_lm"))("the cat [MASK] mice .")
    assert len(guesses) == 5


METHODS = {
    "electra-15": ({"objective": "electra-15"}, "auc", {"discriminator", "generator"}),
    "electra-other-15": ({"objective": "electra-other-15"}, "auc", {"discriminator", "generator"}),
    "replace-mlm": ({"objective": "replace-mlm"}, "mlm_accuracy", {"masked_lm", "generator"}),
    "all-tokens-mlm": ({"objective": "all-tokens-mlm"}, "restored", {"masked_lm", "generator"}),
    "without-copy": ({"objective": "all-tokens-mlm", "copy": False}, "restored", {"masked_lm", "generator"}),
    "unigram": ({"generator.kind": "unigram"}, "sampled_accuracy", {"discriminator"}),
    "uniform": ({"generator.kind": "uniform"}, "sampled_accuracy", {"discriminator"}),
    "tied": ({"generator.tying": "all", "generator.size": 1.0}, "auc", {"discriminator", "generator"}),
    "untied": ({"generator.tying": "none"}, "auc", {"discriminator", "generator"}),
    "trunk": (
        {"generator.tying": "trunk", "generator.size": 1.0, "generator.depth": 0.5},
        "auc",
        {"discriminator", "generator"},
    ),
    "disentangled": ({"generator.tying": "disentangled"}, "auc", {"discriminator", "generator"}),
    "layer-mixture": ({"generator.kind": "layer-mixture"}, "generator_accuracy", {"discriminator", "generator"}),
    "masked-lm-first": ({"procedure": "masked-lm-first"}, "auc", {"discriminator", "generator"}),
    "shallow": ({"generator.depth": 0.5, "generator.ffn": 0.25}, "auc", {"discriminator", "generator"}),
    "adversarial": ({"generator.training": "adversarial"}, "reward", {"discriminator", "generator"}),
    "never-original": ({"generator.exclude_original_token": True}, "auc", {"discriminator", "generator"}),
    "rare": ({"objective": "mlm", "masking.strategy": "rare"}, "mlm_accuracy", {"masked_lm"}),
    "hard": ({"objective": "mlm", "masking.strategy": "hard"}, "mlm_accuracy", {"masked_lm"}),
    "word": ({"objective": "mlm", "masking.strategy": "word"}, "mlm_accuracy", {"masked_lm"}),
    "span": ({"masking.strategy": "span"}, "auc", {"discriminator", "generator"}),
    "masked-share": (
        {"objective": "mlm", "masking.fraction": 0.3, "masking.final_fraction": 0.15},
        "mlm_accuracy",
        {"masked_lm"},
    ),
    "temperature": (
        {"generator.temperature": 2.0, "generator.final_temperature": 1.0},
        "auc",
        {"discriminator", "generator"},
    ),
    "frequency-share": (
        {"generator.frequency_share": 1.0, "generator.final_frequency_share": 0.0},
        "auc",
        {"discriminator", "generator"},
    ),
    "generator-loss-weight": (
        {"generator.tying": "all", "generator.size": 1.0, "generator.final_loss_weight": 0.0},
        "auc",
        {"discriminator", "generator"},
    ),
    "token-prediction": (
        {"token_prediction.masked": 1.0, "token_prediction.filled": 2.0},
        "auc",
        {"discriminator", "generator"},
    ),
    "token-prediction-shared-encoder": (
        {"token_prediction.masked": 1.0, "generator.tying": "all", "generator.size": 1.0, "loss_weight": 5.0},
        "auc",
        {"discriminator", "generator"},
    ),
    "sentence": ({"contrast.weight": 1.0}, "auc", {"discriminator", "generator"}),
    "two-stage": ({"procedure": "two-stage", "generator.size": 1.0}, "auc", {"discriminator", "generator"}),
    "length-warmup": ({"length_warmup": {"steps": 5, "length": 8}}, "auc", {"discriminator", "generator"}),
    "from-scratch": ({"procedure": "two-stage-scratch"}, "auc", {"discriminator", "generator"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_from_text_to_checkpoint(
    name: str, text: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture
) -> None:
    options, metric, networks = METHODS[name]
    out = tmp_path / "run"
    summary = electra.pretrain(str(text), out=str(out), **options, **tiny_run)
    assert [f"objective {name} " in notice for notice in notices(caplog, "part-of-tokens")] == (
        [True] if name in ("electra-15", "electra-other-15") else []
    )
    assert metric in summary["heldout"]
    assert summary["step"] == 12
    assert summary["flops"] > 0
    assert {path.name for path in out.iterdir()} & {"discriminator", "masked_lm", "generator"} == networks
    for network in networks:
        AutoModel.from_pretrained(out / network)
    assert electra.evaluate(str(out)) == pytest.approx(summary["heldout"], nan_ok=True)


@pytest.mark.slow
def test_two_stages_share_the_budget_and_the_weights(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """The generator has the weights of the first stage; a run interrupted between the stages ends with the same weights."""
    warmup = {"length_warmup": {"steps": 4, "length": 8}}
    options = tiny_run | {"procedure": "two-stage", "generator.size": 1.0} | warmup
    whole = electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    first = json.loads((tmp_path / "run/first-stage/summary.json").read_text())
    assert first["step"] == 6
    saved = yaml.safe_load((tmp_path / "run/first-stage/config.yaml").read_text())
    assert saved["length_warmup"] == {"steps": 2, "length": 8}, "the length warm-up is divided between the stages"
    ours = ElectraForMaskedLM.from_pretrained(tmp_path / "run/generator").state_dict()
    theirs = ElectraForMaskedLM.from_pretrained(tmp_path / "run/first-stage/masked_lm").state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    by_flops = {name: value for name, value in options.items() if name != "steps"} | {"flops": whole["flops"]}
    again = electra.pretrain(str(text), out=str(tmp_path / "flops"), **by_flops)
    assert again["flops"] == pytest.approx(whole["flops"], rel=0.2)
    assert json.loads((tmp_path / "flops/first-stage/summary.json").read_text())["step"] in (6, 7)

    odd = electra.pretrain(str(text), out=str(tmp_path / "odd"), **options | {"steps": 3})
    assert odd["step"] == 3
    with raises(UsageError, "too-few-steps", "--procedure two-stage ", "--steps is 1"):
        electra.pretrain(str(text), out=str(tmp_path / "one"), **options | {"steps": 1})

    broken = tmp_path / "broken"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "load_stage_one", lambda *_, **__: sys.exit(9))
        with pytest.raises(SystemExit):
            electra.pretrain(str(text), out=str(broken), **options)
    electra.pretrain(str(text), out=str(broken), **options)
    assert weights(broken) == weights(tmp_path / "run")
    assert trace(broken) == trace(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("procedure", ["two-stage", "two-stage-scratch"])
def test_initial_weights_of_the_discriminator(procedure: str, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """With a learning rate near 0 it keeps its initial weights: those of the generator, or random ones."""
    options = {"procedure": procedure, "generator.size": 1.0, "optimizer.learning_rate": 1e-12}
    electra.pretrain(str(text), out=str(tmp_path / "run"), **options, **tiny_run)
    ours = ElectraForPreTraining.from_pretrained(tmp_path / "run/discriminator").electra.state_dict()
    theirs = ElectraForMaskedLM.from_pretrained(tmp_path / "run/generator").electra.state_dict()
    close = all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    assert close == (procedure == "two-stage")


@pytest.mark.slow
def test_out_of_memory_in_the_second_stage_keeps_the_first(
    text: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = tiny_run | {"procedure": "two-stage-scratch"}
    train_model = run_module.train_model

    def too_little(config, *arguments):
        if config.procedure != "joint":
            raise torch.OutOfMemoryError
        return train_model(config, *arguments)

    monkeypatch.setattr(run_module, "train_model", too_little)
    with raises(DeviceError, "out-of-memory", "--training.micro-batch-size"):
        electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    assert (tmp_path / "run/first-stage/summary.json").exists()
    assert (tmp_path / "run/config.yaml").exists()


@pytest.mark.slow
def test_run_out_of_memory_is_resumed_with_smaller_micro_batches(
    text: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_little(*arguments):
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patched:
        patched.setattr(run_module, "train_model", too_little)
        with raises(DeviceError, "out-of-memory", "--training.micro-batch-size"):
            electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)
    assert (tmp_path / "run/data/manifest.json").exists()
    tiny_run["training"]["micro_batch_size"] = 2
    assert electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)["step"] == 12


@pytest.mark.slow
def test_micro_batch_size_cannot_change_when_losses_are_means_over_micro_batches(
    text: Path, tmp_path: Path, tiny_run: dict
) -> None:
    tiny_run["training"]["means"] = "local"
    electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)
    tiny_run["training"]["micro_batch_size"] = 2
    with raises(RunError, "other-configuration", "--training.micro-batch-size is 4 ", " 2 "):
        electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)


@pytest.mark.slow
def test_length_warmup(text: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture) -> None:
    runs = {"warm": {"length_warmup": {"steps": 5, "length": 8}}, "plain": {}}
    for name, options in runs.items():
        electra.pretrain(str(text), out=str(tmp_path / name), **options, **tiny_run)
    (notice,) = notices(caplog, "length-warmup")
    assert sorted(re.findall(r"\d+", notice), key=int) == ["5", "8", "24"]
    warm, plain = (list(read_metrics(tmp_path / name / "metrics.jsonl")) for name in runs)
    assert [row["tokens"] for row in warm] == [row["tokens"] for row in plain]
    spent = [[b["flops"] - a["flops"] for a, b in pairwise(rows)] for rows in (warm, plain)]
    assert spent[0][4:] == spent[1][4:]
    assert all(short < whole for short, whole in zip(spent[0][:4], spent[1][:4], strict=True)), (
        "the cost of attention is quadratic in the length"
    )
    only_short = tiny_run | {"steps": 2, "length_warmup": {"steps": 2, "length": 8}}
    electra.pretrain(str(text), out=str(tmp_path / "short"), **only_short)
    (notice,) = notices(caplog, "length-warmup-over-run")
    assert sorted(re.findall(r"\d+", notice), key=int) == ["2", "2", "24"]
