"""A batch in one line is the batch in rows, without what stands at padding."""

import pytest
import torch

from electra.model.encoder import Encoder, EncoderConfig, layout_of
from electra.model.layout import Line, Rows

ROWS, LENGTH, HEADS, SIZE = 3, 7, 2, 4
MASK = torch.arange(LENGTH) < torch.tensor([[7], [3], [5]])


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(ROWS, LENGTH, 3 * HEADS * SIZE)


def test_a_line_has_the_real_tokens_row_after_row(x: torch.Tensor) -> None:
    line = Line(MASK)
    assert torch.equal(line.laid(x), x[MASK])
    again = line.unlaid(line.laid(x))
    assert torch.equal(again[MASK], x[MASK])
    assert not again[~MASK].any()


def test_heads_of_a_line_are_those_of_rows(x: torch.Tensor) -> None:
    line, rows = Line(MASK), Rows(MASK)
    real = MASK[:, None, :, None]
    for part, plain in zip(line.split(x[MASK], 3, SIZE), rows.split(x, 3, SIZE), strict=True):
        assert part.shape == plain.shape == (ROWS, HEADS, LENGTH, SIZE)
        assert part.is_contiguous()
        assert torch.equal(part, plain * real)
        assert torch.equal(line.joined(part), rows.joined(plain)[MASK])


def test_vectors_at_positions(x: torch.Tensor) -> None:
    positions = torch.tensor([[6, 0], [2, 2], [4, 0]])
    assert torch.equal(Line(MASK).at(x[MASK], positions), Rows(MASK).at(x, positions))


def test_gradients(x: torch.Tensor) -> None:
    """Of everything a layer does with a line; a position that is asked for twice counts twice."""
    weights = torch.randn_like(x)
    positions = torch.tensor([[6, 0], [2, 2], [4, 0]])
    gradients = []
    for rows in (Line(MASK), Rows(MASK)):
        given = x.clone().requires_grad_()
        laid = rows.laid(given)
        q, k, v = rows.split(laid, 3, SIZE)
        keys = k * MASK[:, None, :, None]
        through = rows.joined(q * keys.sum(2, keepdim=True) + v.exp())
        chosen = rows.at(laid, positions).square().sum()
        ((rows.unlaid(laid) * weights)[MASK].sum() + chosen).backward(retain_graph=True)
        through = through if isinstance(rows, Line) else through[MASK]
        (through * weights[MASK][:, : through.shape[-1]]).sum().backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*(gradient[MASK] for gradient in gradients))
    assert not gradients[0][~MASK].any(), "what stands at padding is nothing to it"


def test_an_encoder_leaves_padding_out_on_a_cpu() -> None:
    seen = []
    config = EncoderConfig(50, embedding_size=8, hidden_size=8, num_layers=1, num_heads=2, ffn_size=16)
    encoder = Encoder(config).eval()
    encoder.layers[0].ffn.register_forward_hook(lambda module, given, out: seen.append(out.shape))
    ids = torch.randint(50, MASK.shape)
    hidden = encoder(ids, torch.zeros_like(ids), MASK)
    encoder(ids, torch.zeros_like(ids))
    assert seen == [(int(MASK.sum()), 8), (ROWS, LENGTH, 8)]
    assert not hidden[~MASK].any()
    assert isinstance(layout_of(MASK), Line)
    assert isinstance(layout_of(None), Rows)
    assert isinstance(layout_of(MASK.to("meta")), Rows), "not on another device"
