"""Architectures are added from outside the package: layers, embeddings, a final module, their FLOPs and their names."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.errors import raises
from support.tiny_models import model
from support.toy import TINY_RUN
from torch import Tensor, nn

import electra
from electra.errors import ModelError, UsageError
from electra.model.architecture import ARCHITECTURES, ELECTRA, Architecture, EncoderOptions
from electra.model.checkpoints import load_pretrained, to_hf
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.flops import encoder_flops
from electra.model.hf_config import load_config
from electra.model.initialization import initialize, initialize_attention
from electra.model.layers import TokenEmbeddings
from electra.model.packing import Packed, Padded
from electra.pretraining.execution import compile_parts


class FeedForwardLayer(nn.Module):
    """A layer without attention."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, x: Tensor, layout, positions: Tensor | None = None) -> Tensor:
        x = x if positions is None else layout.gather(x, positions)
        return self.norm(x + self.dense(x).relu())


def build_layer(config: EncoderOptions) -> nn.Module:
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
    """A LayerNorm or RMSNorm of any name is initialized as the identity; parameters of other types keep their values."""

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.final = nn.LayerNorm(4)
            self.rms = nn.RMSNorm(4)
            self.scale = nn.Parameter(torch.full((4,), 3.0))

    module = Other()
    initialize(module)
    assert module.final.weight.tolist() == [1.0] * 4
    assert module.rms.weight.tolist() == [1.0] * 4
    assert module.scale.tolist() == [3.0] * 4


class ScaledEmbeddings(TokenEmbeddings):
    """Token embeddings without positions and token types."""

    def __init__(self, vocab_size: int, size: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, size)
        self.norm = nn.RMSNorm(size)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        return self.norm(self.word(input_ids))


class WindowLayer(nn.Module):
    """A layer before which the hidden states are normalized; a token reads the mean of the `window` tokens before it."""

    def __init__(self, hidden_size: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.norm = nn.RMSNorm(hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, layout: Padded | Packed, positions: Tensor | None = None) -> Tensor:
        padded = nn.functional.pad(layout.unpack(self.norm(x)), (0, 0, self.window - 1, 0))
        means = layout.pack(padded.unfold(1, self.window, 1).mean(-1))
        y = x + nn.functional.silu(self.dense(means))
        return y if positions is None else layout.gather(y, positions)


def check_sizes(config: EncoderOptions) -> None:
    if config.embedding_size != config.hidden_size:
        raise UsageError("unequal-sizes", f"{config.embedding_size} and {config.hidden_size} differ")


def build_windowed(window: int) -> Architecture:
    """Build the architecture with a size of the window, an option of its layers."""
    return replace(
        ELECTRA,
        build_layer=lambda config: WindowLayer(config.hidden_size, window),
        layer_flops=lambda config, length: {"dense": 2 * config.hidden_size**2, "window": window * config.hidden_size},
        build_embeddings=lambda config: ScaledEmbeddings(config.vocab_size, config.embedding_size),
        build_final=lambda config: nn.RMSNorm(config.hidden_size, eps=1e-3),
        other_flops=lambda config, length: {"embedding look-up": 2 * config.embedding_size * config.vocab_size},
        check_config=check_sizes,
        model_type="windowed",
        config_names={
            "vocab_size": "vocab_size",
            "embedding_size": "dim",
            "hidden_size": "dim",
            "num_layers": "depth",
            "max_positions": "longest",
            "initializer_range": "initializer_range",
        },
        config_values={"hidden_act": "silu", "position_embedding_type": "none", "window": window},
        encoder_weights={
            "embeddings.word.weight": ("tokens.weight",),
            "embeddings.norm.weight": ("norm_in.weight",),
            "layers.{i}.norm.weight": ("blocks.{i}.norm.weight",),
            "layers.{i}.dense": ("blocks.{i}.dense",),
            "final.weight": ("norm_out.weight",),
        },
    )


@pytest.fixture
def windowed(monkeypatch: pytest.MonkeyPatch) -> EncoderConfig:
    """Sizes of an architecture of which nothing is ELECTRA's; it is registered with two sizes of its window."""
    for window in (2, 3):
        monkeypatch.setitem(ARCHITECTURES, f"windowed-{window}", build_windowed(window))
    return EncoderConfig(
        vocab_size=160, embedding_size=16, hidden_size=16, num_layers=2, num_heads=2, architecture="windowed-3"
    )


@pytest.mark.slow
@pytest.mark.parametrize("window", [2, 3])
def test_pretraining_with_other_embeddings_layers_and_final_norm(
    window: int, windowed: EncoderConfig, text: Path, tmp_path: Path
) -> None:
    sizes = {"embedding_size": 16, "architecture": f"windowed-{window}"}
    generator = {"generator": {"size": 1.0, "tying": "all"}}
    options = TINY_RUN | {"model": TINY_RUN["model"] | sizes} | generator
    summary = electra.pretrain(text, out=tmp_path / "run", **options)
    directory = tmp_path / "run/discriminator"
    config = json.loads((directory / "config.json").read_text())
    assert {key: config[key] for key in ("model_type", "hidden_act", "window", "dim", "depth")} == {
        "model_type": "windowed",
        "hidden_act": "silu",
        "window": window,
        "dim": 16,
        "depth": 2,
    }
    pretrained = load_pretrained(directory)
    assert pretrained.config.architecture == f"windowed-{window}"
    assert pretrained.state("none")["encoder.final.weight"].shape == (16,)
    more = options | {"model": TINY_RUN["model"] | {"embedding_size": 16}}
    again = electra.pretrain(text, out=tmp_path / "more", init=tmp_path / "run", **more)
    assert again["flops"] == summary["flops"], "the architecture of the initial model is kept"


@torch.no_grad()
def test_parameters_without_a_name_are_not_left_out(windowed: EncoderConfig, tmp_path: Path, monkeypatch) -> None:
    row = ARCHITECTURES[windowed.architecture]
    names = {ours: theirs for ours, theirs in row.encoder_weights.items() if not ours.startswith("final")}
    monkeypatch.setitem(ARCHITECTURES, windowed.architecture, replace(row, encoder_weights=names))
    state = {f"encoder.{name}": tensor for name, tensor in Encoder(windowed).state_dict().items()}
    with pytest.raises(ValueError, match=r"lacks encoder\.final"):
        to_hf(state, windowed, "none")


def test_final_module_is_applied_in_both_layouts(windowed: EncoderConfig) -> None:
    encoder = Encoder(windowed).eval()
    nn.init.uniform_(encoder.final.weight)
    ids = torch.randint(5, 160, (3, 9))
    mask = torch.arange(9) < torch.tensor([[9], [4], [6]])
    packed = encoder(ids, torch.zeros_like(ids), mask)
    encoder.min_padding = 1.0
    padded = encoder(ids, torch.zeros_like(ids), mask)
    torch.testing.assert_close(packed[mask], padded[mask])
    *_, before, last = encoder.hidden_states(ids, torch.zeros_like(ids), mask)
    assert torch.equal(last, padded)
    torch.testing.assert_close(last, encoder.final(encoder.layers[-1](before, Padded(mask))))
    positions = torch.tensor([[1, 3], [2, 0], [5, 5]])
    some = encoder(ids, torch.zeros_like(ids), mask, positions)
    torch.testing.assert_close(some, padded.gather(1, positions[..., None].expand(-1, -1, 16)))


def test_flops_of_all_parts_are_counted(windowed: EncoderConfig) -> None:
    assert encoder_flops(windowed, 10) == 10 * (2 * 16 * 160 + 2 * (2 * 16**2 + 3 * 16))


def test_sizes_are_checked_by_the_architecture(windowed: EncoderConfig) -> None:
    with raises(UsageError, "unequal-sizes", 8, 16):
        replace(windowed, embedding_size=8)
    with raises(UsageError, "conflicting-options", "windowed-3", "--model.attention-initializer random"):
        initialize_attention(Encoder(replace(windowed, attention_initializer="neighbors")))


@pytest.mark.parametrize(
    ("change", "code", "values"),
    [
        ({"window": 4}, "other-value", ["window is 4", "2"]),
        ({"hidden_act": "gelu"}, "unknown-activation", ["'gelu'", "'silu'"]),
        ({"depth": "2"}, "wrong-type", ["depth"]),
        ({"depth": 0}, "wrong-value", ["depth"]),
    ],
)
def test_keys_of_its_own_are_checked(
    change: dict, code: str, values: list[str], windowed: EncoderConfig, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    sizes = {"dim": 16, "depth": 2, "longest": 24, "vocab_size": 160, "initializer_range": None}
    given = {"model_type": "windowed", "hidden_act": "silu", "window": 3, **sizes}
    file.write_text(json.dumps(given))
    assert load_config(tmp_path) == replace(windowed, max_positions=24, num_heads=EncoderConfig.num_heads)
    file.write_text(json.dumps(given | change))
    with raises(ModelError, code, file, *values):
        load_config(tmp_path)


@pytest.mark.slow
def test_its_layers_are_compiled(windowed: EncoderConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(WindowLayer, "compile", lambda layer, backend: compiled.append(layer))
    network = model(encoder=windowed, size=1.0)
    compile_parts(network, torch.device("cpu"), "eager")
    layers = [*network.target.network.encoder.layers, *network.generator.encoder.layers]
    assert {*map(id, compiled)} == {*map(id, layers)}
    assert len(compiled) == len(layers)
