"""Hidden states of the encoder, its initial values, and checks of its sizes."""

import math

import pytest
import torch
from support.errors import raises

from electra.errors import UsageError
from electra.model.encoder import Encoder, EncoderConfig, initialize
from electra.model.packing import gather_positions
from electra.pretraining.objectives.networks import Discriminator, MaskedLM

CONFIG = EncoderConfig(vocab_size=50, embedding_size=16, hidden_size=32, num_layers=2, num_heads=4, ffn_size=64)


@pytest.fixture
def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    return torch.randint(50, (2, 9)), torch.randint(2, (2, 9)), mask


@torch.no_grad()
def test_hidden_states_at_positions_equal_those_of_the_whole_sequence(inputs) -> None:
    encoder = Encoder(CONFIG).eval()
    positions = torch.tensor([[3, 8, 3], [0, 4, 1]])
    everywhere = encoder(*inputs)
    torch.testing.assert_close(encoder(*inputs, positions), gather_positions(everywhere, positions))


@torch.no_grad()
def test_last_hidden_states_equal_the_output(inputs) -> None:
    encoder = Encoder(CONFIG).eval()
    states = list(encoder.hidden_states(*inputs))
    assert len(states) == CONFIG.num_layers + 1
    assert torch.equal(states[0], encoder.embed(*inputs[:2]))
    torch.testing.assert_close(states[-1][inputs[2]], encoder(*inputs)[inputs[2]])


@torch.no_grad()
def test_padding_does_not_change_hidden_states(inputs) -> None:
    encoder = Encoder(CONFIG).eval()
    ids, types, mask = inputs
    alone = encoder(ids[1:, :5], types[1:, :5])
    torch.testing.assert_close(encoder(ids, types, mask)[1:, :5], alone)


def test_gradients_at_positions_equal_those_of_the_whole_sequence(inputs) -> None:
    encoder = Encoder(CONFIG).eval()
    positions = torch.tensor([[3, 8], [0, 4]])
    encoder(*inputs, positions).square().sum().backward()
    sparse = {name: p.grad.clone() for name, p in encoder.named_parameters()}
    encoder.zero_grad()
    gather_positions(encoder(*inputs), positions).square().sum().backward()
    for name, p in encoder.named_parameters():
        torch.testing.assert_close(sparse[name], p.grad, atol=1e-5, rtol=1e-4)


def test_dropout_of_both_kinds_is_on_in_training_only(inputs) -> None:
    for dropout, attention_dropout in ((0.5, 0.0), (0.0, 0.5)):
        sizes = {name: getattr(CONFIG, name) for name in ("vocab_size", "embedding_size", "hidden_size")}
        config = EncoderConfig(
            **sizes, num_layers=2, num_heads=4, ffn_size=64, dropout=dropout, attention_dropout=attention_dropout
        )
        encoder = Encoder(config)
        assert not torch.equal(encoder(*inputs), encoder(*inputs))
        encoder.eval()
        assert torch.equal(encoder(*inputs), encoder(*inputs))


def expected_start(name: str, p: torch.Tensor, std: float, embedding_std: float | None) -> tuple[float, float]:
    """Return the standard deviation and the largest absolute value of a parameter's initial values in the original code."""
    if name.endswith("norm.weight"):
        return 0.0, 1.0
    if name.endswith("bias"):
        return 0.0, 0.0
    if name.endswith(("project.weight", "score.weight")):
        limit = math.sqrt(6 / sum(p.shape))
        return limit / math.sqrt(3), limit
    if embedding_std is not None and "embeddings" in name:
        std = embedding_std
    return std * 0.8796, 2 * std  # a normal distribution truncated at two standard deviations has 0.88 of the deviation


@pytest.mark.slow
@pytest.mark.parametrize("stds", [(0.02, None), (0.1, None), (0.1, 0.02)])
@pytest.mark.parametrize("network", [Discriminator, MaskedLM])
def test_initial_values(network, stds) -> None:
    torch.manual_seed(0)
    big = EncoderConfig(vocab_size=2000, embedding_size=64, hidden_size=256, num_layers=1, num_heads=4, ffn_size=512)
    module = network(big)
    for p in module.parameters():
        p.data.fill_(7.0)
    initialize(module, *stds)
    for name, p in module.named_parameters():
        deviation, largest = expected_start(name, p, *stds)
        assert p.abs().max() <= largest + 1e-7, name
        assert p.abs().max() >= 0.9 * largest, name
        assert float(p.detach().std(correction=0)) == pytest.approx(deviation, rel=0.1, abs=1e-9), name


def test_invalid_sizes_are_rejected() -> None:
    with raises(UsageError, "indivisible", "model.hidden_size", 30, "model.num_heads", 4):
        EncoderConfig(hidden_size=30, num_heads=4)
    with raises(UsageError, "out-of-range", "--model.num-layers", 0):
        EncoderConfig(num_layers=0)
    with raises(UsageError, "out-of-range", "--model.embedding-initializer-range", -1.0, 0):
        EncoderConfig(embedding_initializer_range=-1.0)
