"""An architecture is added from outside the package: a kind of layer, its FLOPs and its names."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.errors import raises
from support.toy import TINY_RUN
from torch import Tensor, nn

import electra
from electra.errors import UsageError
from electra.model.architecture import ARCHITECTURES, ELECTRA, LayerConfig
from electra.model.checkpoints import load_pretrained
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.flops import encoder_flops
from electra.model.initialization import initialize


class FeedForwardLayer(nn.Module):
    """A layer without attention."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, x: Tensor, layout, positions: Tensor | None = None) -> Tensor:
        x = x if positions is None else layout.gather(x, positions)
        return self.norm(x + self.dense(x).relu())


def build_layer(config: LayerConfig) -> nn.Module:
    return FeedForwardLayer(config.hidden_size)


EMBEDDINGS = {
    ours: theirs for ours, theirs in ELECTRA.encoder_weights.items() if ours.startswith(("embeddings", "project"))
}
TOKENWISE = replace(
    ELECTRA,
    build_layer=build_layer,
    layer_flops=lambda config, length: {"dense": 2 * config.hidden_size**2},
    model_type="tokenwise",
    encoder_weights={
        **EMBEDDINGS,
        "layers.{i}.dense": ("encoder.layer.{i}.dense",),
        "layers.{i}.norm": ("encoder.layer.{i}.norm",),
    },
)


@pytest.fixture(autouse=True)
def tokenwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARCHITECTURES, "tokenwise", TOKENWISE)


@pytest.mark.slow
def test_pretraining_export_and_loading(text: Path, tmp_path: Path) -> None:
    options = TINY_RUN | {"model": TINY_RUN["model"] | {"architecture": "tokenwise"}}
    summary = electra.pretrain(text, out=tmp_path / "run", **options)
    directory = tmp_path / "run/discriminator"
    assert json.loads((directory / "config.json").read_text())["model_type"] == "tokenwise"
    pretrained = load_pretrained(directory)
    assert pretrained.config.architecture == "tokenwise"
    weights = pretrained.state("none")
    encoder = Encoder(pretrained.config)
    encoder.load_state_dict({name.removeprefix("encoder."): tensor for name, tensor in weights.items()})
    ids = torch.tensor([[2, 5, 6, 3]])
    assert encoder(ids, torch.zeros_like(ids)).isfinite().all()
    again = electra.pretrain(text, out=tmp_path / "more", init=directory, **TINY_RUN)
    assert again["flops"] == summary["flops"], "the architecture of the initial model is kept"


def test_its_flops_are_counted() -> None:
    config = EncoderConfig(num_layers=2)
    other = replace(config, architecture="tokenwise")
    difference = encoder_flops(replace(other, num_layers=3), 16) - encoder_flops(other, 16)
    assert difference == 16 * 2 * config.hidden_size**2
    assert encoder_flops(config, 16) > encoder_flops(other, 16)


def test_unknown_architecture() -> None:
    with raises(UsageError, "unknown-choice", "model.architecture", "electra", "tokenwise", "bert"):
        EncoderConfig(architecture="bert")


def test_parameters_of_other_modules_are_initialized_by_type() -> None:
    """A LayerNorm of any name is initialized as the identity; parameters of other types keep their values."""

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.final = nn.LayerNorm(4)
            self.scale = nn.Parameter(torch.full((4,), 3.0))

    module = Other()
    initialize(module)
    assert module.final.weight.tolist() == [1.0] * 4
    assert module.scale.tolist() == [3.0] * 4
