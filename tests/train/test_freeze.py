"""Frozen parameters keep every bit, whatever the optimizer; a run with them resumes; patterns that match nothing are errors."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.callbacks import AtStep, CrashError, crash
from support.errors import fails, notices, raises
from support.tiny_models import batch, model
from support.toy import TINY_RUN, trace, weights
from support.toy_tasks import finetune_settings, save_model, write_glue
from torch import nn

import electra
from electra.errors import UsageError
from electra.finetuning.run import finetune
from electra.pretraining.objectives.networks import TYINGS, GeneratorConfig
from electra.train.optimizer import (
    OPTIMIZERS,
    OptimizerConfig,
    averaged_weights,
    build_optimizer,
    freeze_parameters,
    set_learning_rate,
    update_averages,
)

PATTERNS = ("embeddings.*", "layers.0.*")


def is_frozen(name: str) -> bool:
    """Whether `PATTERNS` name a parameter of any model, found without wildcards."""
    return ".embeddings." in name or ".layers.0." in name


def copy_parameters(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("tying", TYINGS)
def test_frozen_parameters_keep_every_bit(kind: str, tying: str) -> None:
    sizes = {"size": 1.0} if tying in ("trunk", "all") else {}
    module = model(generator=GeneratorConfig(tying=tying, **sizes))
    before = copy_parameters(module)
    number = freeze_parameters(module, PATTERNS)
    frozen = {name for name in before if is_frozen(name)}
    assert number == sum(before[name].numel() for name in frozen) > 0
    config = OptimizerConfig(kind=kind, weight_decay=0.5, ema=0.9)
    optimizer = build_optimizer(module.named_parameters(), config)
    for step in (1, 2):
        inputs = batch()
        counts = module.counts(inputs)
        module(inputs, counts)[0].backward()
        set_learning_rate(optimizer, config, 0.01, step)
        optimizer.step()
        optimizer.zero_grad()
        update_averages(optimizer, config, step)
    with averaged_weights(optimizer):
        averaged = copy_parameters(module)
    for after in (copy_parameters(module), averaged):
        assert {name for name in before if torch.equal(before[name], after[name])} == frozen


def test_patterns() -> None:
    module = model()
    names = dict(module.named_parameters())

    def freeze(*patterns: str) -> set[str]:
        for parameter in names.values():
            parameter.requires_grad_(True)
        freeze_parameters(module, patterns)
        return {name for name, parameter in names.items() if not parameter.requires_grad}

    assert freeze() == set()
    assert freeze("corruption.*") >= {name for name in names if name.startswith("corruption.")}
    assert freeze("layers.1.ffn.*.bias") == {name for name in names if ".layers.1.ffn." in name and "bias" in name}
    assert freeze("layers.[01].*") == {name for name in names if ".layers." in name}
    # The generator's embeddings are the discriminator's: either name names them.
    assert freeze("corruption.generator.encoder.embeddings.*") == freeze("target.network.encoder.embeddings.*")
    assert freeze("target.*.layers.0.*") == {
        name for name in names if ".layers.0." in name and name.startswith("target.")
    }
    assert freeze("word.weight") == {"target.network.encoder.embeddings.word.weight"}
    for pattern, near in (
        ("layer.0.*", "layers.0"),
        ("embedding.*", "embeddings"),
        ("", "target"),
        ("ord.weight", "word"),
    ):
        with raises(UsageError, "no-such-parameter", repr(pattern), near):
            freeze(pattern)
    with raises(UsageError, "nothing-to-train"):
        freeze("*")


@pytest.mark.slow
def test_pretraining_with_frozen_parameters(
    finished: Path, text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {name: value for name, value in TINY_RUN.items() if name != "model"} | {"init": str(finished)}
    options |= {"training": {**TINY_RUN["training"], "freeze": PATTERNS}}
    electra.pretrain(str(text), out=str(tmp_path / "whole"), **options)
    assert len(notices(caplog, "frozen")) == 1
    with pytest.raises(CrashError):
        electra.pretrain(str(text), out=str(tmp_path / "resumed"), callbacks=[AtStep(6, crash)], **options)
    electra.pretrain(str(text), out=str(tmp_path / "resumed"), **options)
    assert weights(tmp_path / "whole") == weights(tmp_path / "resumed")
    assert trace(tmp_path / "whole") == trace(tmp_path / "resumed")
    for network in ("discriminator", "generator"):
        before, after = (load_file(run / network / "model.safetensors") for run in (finished, tmp_path / "whole"))
        same = {name for name in before if torch.equal(before[name], after[name])}
        assert same == {name for name in before if ".embeddings." in name or ".layer.0." in name}
    changed = {**options, "training": TINY_RUN["training"]}
    with pytest.raises(electra.ElectraError, match="training.freeze"):
        electra.pretrain(str(text), out=str(tmp_path / "whole"), **changed)


def test_wrong_patterns_are_found_before_text_is_read(tmp_path: Path) -> None:
    words = ["pretrain", tmp_path / "nowhere", "--preset", "tiny", "--out", tmp_path / "run", "--training.freeze"]
    fails([*words, "embeddings.*", "layer.0.*"], "no-such-parameter", "layer.0.*", "layers.0")
    fails([*words, "*"], "nothing-to-train")
    fails([*words, "target.*", "--procedure", "two-stage"], "conflicting-options", "--training.freeze")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_fine_tuning_with_frozen_parameters(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    data = {"data": str(write_glue(tmp_path / "glue", rows=16)), "epochs": 1.0, "weight_decay": 0.5}
    finetune(finetune_settings(folder, "sst2", freeze=PATTERNS, **data), tmp_path / "out")
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "out/seed-0/model/model.safetensors")
    encoder = {name for name in before if name.startswith("electra.")}
    same = {name for name in encoder if torch.equal(before[name], after[name])}
    assert same == {name for name in encoder if ".embeddings." in name or ".layer.0." in name}
    with raises(UsageError, "no-such-parameter", "layers.9.*", "layers."):
        finetune(finetune_settings(folder, "sst2", freeze=("layers.9.*",), **data), tmp_path / "wrong")
    assert not any((tmp_path / "wrong").glob("seed-*/*"))
