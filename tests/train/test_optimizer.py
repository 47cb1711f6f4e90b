"""AdamW against its update rule, with and without bias correction; weight decay, clipping, and other optimizers."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.callbacks import AtStep, CrashError, crash
from support.errors import raises
from support.tiny_models import checkpoints_in, model, trained_module
from support.toy import trace
from torch import nn

import electra
from electra.errors import RunError, UsageError
from electra.model.encoder import EncoderConfig
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.networks import Discriminator, GeneratorConfig
from electra.train.checkpoint import TrainingState
from electra.train.optimizer import (
    OPTIMIZERS,
    OptimizerConfig,
    OptimizerKind,
    build_optimizer,
    clip_gradients,
    has_decay,
    set_learning_rate,
)


def test_biases_and_layer_norms_do_not_decay() -> None:
    parameters = Discriminator(EncoderConfig(num_layers=1)).named_parameters()
    decaying = {name for name, parameter in parameters if has_decay(parameter)}
    assert decaying == {
        "encoder.embeddings.word.weight",
        "encoder.embeddings.position.weight",
        "encoder.embeddings.token_type.weight",
        "encoder.project.weight",
        "encoder.layers.0.attention.qkv.weight",
        "encoder.layers.0.attention.output.weight",
        "encoder.layers.0.ffn.up.weight",
        "encoder.layers.0.ffn.down.weight",
        "head.dense.weight",
        "head.score.weight",
    }


@pytest.mark.parametrize("bias_correction", [True, False])
def test_updates_equal_those_of_the_update_rule(bias_correction: bool) -> None:
    torch.manual_seed(0)
    config = OptimizerConfig(eps=1e-3, weight_decay=0.1, bias_correction=bias_correction)
    layer = nn.Linear(3, 2).double()
    optimizer = build_optimizer(layer.named_parameters(), config)
    expected = {name: p.detach().clone() for name, p in layer.named_parameters()}
    m = {name: torch.zeros_like(p) for name, p in expected.items()}
    v = {name: torch.zeros_like(p) for name, p in expected.items()}
    for step in range(1, 8):
        rate = 0.1 / step
        set_learning_rate(optimizer, config, rate, step)
        for name, p in layer.named_parameters():
            p.grad = torch.randn_like(p)
            m[name] = config.beta1 * m[name] + (1 - config.beta1) * p.grad
            v[name] = config.beta2 * v[name] + (1 - config.beta2) * p.grad**2
            c1 = 1 - config.beta1**step if bias_correction else 1.0
            c2 = 1 - config.beta2**step if bias_correction else 1.0
            decay = 0.0 if name == "bias" else config.weight_decay
            update = (m[name] / c1) / ((v[name] / c2).sqrt() + config.eps) + decay * expected[name]
            expected[name] = expected[name] - rate * update
        optimizer.step()
        for name, p in layer.named_parameters():
            torch.testing.assert_close(p.detach(), expected[name], rtol=1e-9, atol=1e-12)


def test_muon_updates_matrices_of_layers_and_adamw_the_rest() -> None:
    """Both beside torch's optimizers alone, with the learning rate and the decay of each step."""
    torch.manual_seed(0)
    config = OptimizerConfig(kind="muon", weight_decay=0.1)
    network = Discriminator(EncoderConfig(50, 16, 32, 2, 2, 64, 40))
    alone = copy.deepcopy(network)
    optimizer = build_optimizer(network.named_parameters(), config)
    parameters = dict(alone.named_parameters())
    matrices = {name for name, p in parameters.items() if "layers." in name and p.dim() == 2}
    assert matrices == {
        f"encoder.layers.{layer}.{part}.weight"
        for layer in range(2)
        for part in ("attention.qkv", "attention.output", "ffn.up", "ffn.down")
    }
    muon = torch.optim.Muon([parameters[name] for name in matrices], adjust_lr_fn="match_rms_adamw", weight_decay=0.1)
    rest = build_optimizer(
        ((name, p) for name, p in parameters.items() if name not in matrices), replace(config, kind="adamw")
    )
    for step in (1, 2, 3):
        set_learning_rate(optimizer, config, 0.01 / step, step)
        set_learning_rate(rest, replace(config, kind="adamw"), 0.01 / step, step)
        muon.param_groups[0]["lr"] = 0.01 / step
        for ours, theirs in zip(network.parameters(), alone.parameters(), strict=True):
            ours.grad = torch.randn_like(ours)
            theirs.grad = ours.grad.clone()
        for each in (optimizer, muon, rest):
            each.step()
        optimizer.zero_grad()
        assert all(p.grad is None for p in network.parameters())
        for name, ours in network.named_parameters():
            assert torch.equal(ours, parameters[name]), name


def test_gradients_are_clipped_by_their_common_norm() -> None:
    a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    a.grad, b.grad = torch.tensor([3.0]), torch.tensor([4.0])
    assert float(clip_gradients([a, b], OptimizerConfig(clip_norm=1.0))) == pytest.approx(5.0)
    assert (float(a.grad), float(b.grad)) == pytest.approx((0.6, 0.8), rel=1e-4)


def test_the_generator_has_a_rate_of_its_own() -> None:
    """Its own weights take steps twice as large, those that it shares do not."""
    config = PretrainConfig(steps=1, generator=GeneratorConfig(rate_factor=2.0))
    network = model(generator=config.generator)
    optimizer = build_optimizer(network.named_parameters(), config.optimizer, config.recipe().rate_factor)
    set_learning_rate(optimizer, config.optimizer, 0.01, 1)
    rates = {parameter: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    shared = set(network.target.parameters())
    own = [parameter for parameter in network.generator.parameters() if parameter not in shared]
    assert network.generator.encoder.embeddings.word.weight in shared
    assert {rates[parameter] for parameter in shared} == {rates[next(network.target.parameters())]}
    assert {rates[parameter] for parameter in own} == {2 * rates[next(network.target.parameters())]}


@pytest.mark.slow
def test_a_run_with_muon_resumes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    options = tiny_run | {"optimizer": {"kind": "muon"}}
    electra.pretrain(text, out=tmp_path / "whole", **options)
    with pytest.raises(CrashError):
        electra.pretrain(text, out=tmp_path / "run", callbacks=[AtStep(7, crash)], **options)
    electra.pretrain(text, out=tmp_path / "run", **options)
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")
    electra.pretrain(text, out=tmp_path / "adamw", **tiny_run)
    assert trace(tmp_path / "run") != trace(tmp_path / "adamw")


@pytest.mark.slow
def test_optimizer_of_a_user_trains_and_resumes(
    text: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGD with momentum, whose state differs from that of AdamW."""
    kind = OptimizerKind(
        lambda groups, config: torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.beta1),
        {"default": lambda config, rate, step, decays: {"lr": rate}},
        {"default": frozenset({"momentum_buffer"})},
    )
    monkeypatch.setitem(OPTIMIZERS, "sgd", kind)
    options = tiny_run | {"optimizer": {"kind": "sgd"}}
    electra.pretrain(text, out=tmp_path / "whole", **options)
    with pytest.raises(CrashError):
        electra.pretrain(text, out=tmp_path / "run", callbacks=[AtStep(7, crash)], **options)
    electra.pretrain(text, out=tmp_path / "run", **options)
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")
    module, adamw = trained_module()
    checkpoints_in(tmp_path).save(module, adamw, TrainingState(1))
    sgd = build_optimizer(module.named_parameters(), OptimizerConfig(kind="sgd"))
    with raises(RunError, "unknown-state", "exp_avg"):
        checkpoints_in(tmp_path).restore(module, sgd)


def test_unknown_optimizer_is_rejected() -> None:
    with raises(UsageError, "unknown-choice", "optimizer.kind", "adamw or muon", "lion"):
        OptimizerConfig(kind="lion")
