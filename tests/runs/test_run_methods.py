"""Every method of the paper as a user runs it, from text to checkpoint; training in two stages."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from support.toy import trace, weights
from transformers import AutoModel, ElectraForMaskedLM, ElectraForPreTraining, pipeline

import electra
from electra.errors import DeviceError, RunError, UsageError
from electra.pretraining import run as run_module
from electra.train.metrics_log import read_metrics


@pytest.mark.slow
def test_a_bert(text: Path, tmp_path: Path, tiny_run: dict) -> None:
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
    "shallow": ({"generator.depth": 0.5, "generator.ffn": 0.25}, "auc", {"discriminator", "generator"}),
    "adversarial": ({"generator.training": "adversarial"}, "reward", {"discriminator", "generator"}),
    "never-original": ({"generator.exclude_original_token": True}, "auc", {"discriminator", "generator"}),
    "rare": ({"objective": "mlm", "masking.strategy": "rare"}, "mlm_accuracy", {"masked_lm"}),
    "hard": ({"objective": "mlm", "masking.strategy": "hard"}, "mlm_accuracy", {"masked_lm"}),
    "sentence": ({"contrast.weight": 1.0}, "auc", {"discriminator", "generator"}),
    "two-stage": ({"procedure": "two-stage", "generator.size": 1.0}, "auc", {"discriminator", "generator"}),
    "length-warmup": ({"length_warmup": {"steps": 5, "length": 8}}, "auc", {"discriminator", "generator"}),
    "from-scratch": ({"procedure": "two-stage-scratch"}, "auc", {"discriminator", "generator"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_from_text_to_checkpoint(
    name: str, text: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture
) -> None:
    options, metric, networks = METHODS[name]
    out = tmp_path / "run"
    summary = electra.pretrain(str(text), out=str(out), **options, **tiny_run)
    note = f"objective {name} trains the discriminator on"
    assert (note in capsys.readouterr().out) == (name in ("electra-15", "electra-other-15"))
    assert metric in summary["heldout"]
    assert summary["step"] == 12
    assert summary["flops"] > 0
    assert {path.name for path in out.iterdir()} & {"discriminator", "masked_lm", "generator"} == networks
    for network in networks:
        AutoModel.from_pretrained(out / network)
    assert electra.evaluate(str(out)) == pytest.approx(summary["heldout"], nan_ok=True)


@pytest.mark.slow
def test_two_stages_share_the_budget_and_the_weights(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """The generator ends as its own stage left it; interrupted between the stages, the run ends the same."""
    warmup = {"length_warmup": {"steps": 4, "length": 8}}
    options = tiny_run | {"procedure": "two-stage", "generator.size": 1.0} | warmup
    whole = electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    first = json.loads((tmp_path / "run/first-stage/summary.json").read_text())
    assert first["step"] == 6
    saved = yaml.safe_load((tmp_path / "run/first-stage/config.yaml").read_text())
    assert saved["length_warmup"] == {"steps": 2, "length": 8}, "each stage has its part"
    ours = ElectraForMaskedLM.from_pretrained(tmp_path / "run/generator").state_dict()
    theirs = ElectraForMaskedLM.from_pretrained(tmp_path / "run/first-stage/masked_lm").state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    by_flops = {name: value for name, value in options.items() if name != "steps"} | {"flops": whole["flops"]}
    again = electra.pretrain(str(text), out=str(tmp_path / "flops"), **by_flops)
    assert again["flops"] == pytest.approx(whole["flops"], rel=0.2)
    assert json.loads((tmp_path / "flops/first-stage/summary.json").read_text())["step"] in (6, 7)

    odd = electra.pretrain(str(text), out=str(tmp_path / "odd"), **options | {"steps": 3})
    assert odd["step"] == 3
    with pytest.raises(UsageError, match="needs a step for each stage"):
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
def test_what_the_discriminator_starts_from(procedure: str, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """At a rate of next to nothing it ends where it started: at the generator's weights, or at its own."""
    options = {"procedure": procedure, "generator.size": 1.0, "optimizer.learning_rate": 1e-12}
    electra.pretrain(str(text), out=str(tmp_path / "run"), **options, **tiny_run)
    ours = ElectraForPreTraining.from_pretrained(tmp_path / "run/discriminator").electra.state_dict()
    theirs = ElectraForMaskedLM.from_pretrained(tmp_path / "run/generator").electra.state_dict()
    close = all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    assert close == (procedure == "two-stage")


@pytest.mark.slow
def test_no_memory_in_the_second_stage_loses_nothing_of_the_first(
    text: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = tiny_run | {"procedure": "two-stage-scratch"}
    train_model = run_module.train_model

    def too_little(config, *arguments):
        if config.procedure != "joint":
            raise torch.OutOfMemoryError
        return train_model(config, *arguments)

    monkeypatch.setattr(run_module, "train_model", too_little)
    with pytest.raises(UsageError, match="do not fit this GPU's memory"):
        electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    assert (tmp_path / "run/first-stage/summary.json").exists()
    assert (tmp_path / "run/config.yaml").exists()


@pytest.mark.slow
def test_no_memory_leaves_what_was_prepared_and_smaller_micro_batches_go_on(
    text: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_little(*arguments):
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patched:
        patched.setattr(run_module, "train_model", too_little)
        with pytest.raises(DeviceError, match=r"do not fit this GPU's memory; lower --training.micro-batch-size"):
            electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)
    assert (tmp_path / "run/data/manifest.json").exists()
    tiny_run["training"]["micro_batch_size"] = 2
    assert electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)["step"] == 12


@pytest.mark.slow
def test_micro_batches_stay_where_losses_are_means_over_them(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    tiny_run["training"]["means"] = "local"
    electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)
    tiny_run["training"]["micro_batch_size"] = 2
    with pytest.raises(RunError, match=r"--training.micro-batch-size is 4 there, 2 here"):
        electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)


@pytest.mark.slow
def test_short_sequences_first(text: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture) -> None:
    runs = {"warm": {"length_warmup": {"steps": 5, "length": 8}}, "plain": {}}
    for name, options in runs.items():
        electra.pretrain(str(text), out=str(tmp_path / name), **options, **tiny_run)
    assert "the first 5 steps read sequences of 8, those after them of 24" in capsys.readouterr().out
    warm, plain = (list(read_metrics(tmp_path / name / "metrics.jsonl")) for name in runs)
    assert [row["tokens"] for row in warm] == [row["tokens"] for row in plain]
    spent = [[b["flops"] - a["flops"] for a, b in pairwise(rows)] for rows in (warm, plain)]
    assert spent[0][4:] == spent[1][4:]
    assert all(short < whole for short, whole in zip(spent[0][:4], spent[1][:4], strict=True)), "attention is quadratic"
    only_short = tiny_run | {"steps": 2, "length_warmup": {"steps": 2, "length": 8}}
    electra.pretrain(str(text), out=str(tmp_path / "short"), **only_short)
    assert "the run ends before it reads sequences of 24" in " ".join(capsys.readouterr().out.split())
