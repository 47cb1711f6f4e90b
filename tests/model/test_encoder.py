"""Hidden states of the encoder, and checks of its sizes."""

import pytest
import torch
from support.errors import raises

from electra.errors import UsageError
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.packing import gather_positions

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


def test_invalid_sizes_are_rejected() -> None:
    with raises(UsageError, "indivisible", "model.hidden_size", 30, "model.num_heads", 4):
        EncoderConfig(hidden_size=30, num_heads=4)
    with raises(UsageError, "out-of-range", "--model.num-layers", 0):
        EncoderConfig(num_layers=0)
    with raises(UsageError, "out-of-range", "--model.embedding-initializer-range", -1.0, 0):
        EncoderConfig(embedding_initializer_range=-1.0)
