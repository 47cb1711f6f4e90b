"""A batch in one line is the batch in rows, without what stands at padding."""

import pytest
import torch

from electra.model.encoder import Encoder, EncoderConfig, layout_of
from electra.model.packing import Line, Rows

ROWS, LENGTH, HEADS, SIZE = 3, 7, 2, 4
PADDING = torch.arange(LENGTH) < torch.tensor([[7], [3], [5]])
HOLES = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 0, 1, 0, 0, 0, 0], [1, 1, 0, 0, 1, 0, 1]], dtype=torch.bool)
POSITIONS = torch.tensor([[6, 0], [2, 2], [4, 0]])


@pytest.fixture(params=["padding", "holes"])
def mask(request: pytest.FixtureRequest) -> torch.Tensor:
    return {"padding": PADDING, "holes": HOLES}[request.param]


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(ROWS, LENGTH, 3 * HEADS * SIZE)


def test_a_line_has_the_real_tokens_row_after_row(mask: torch.Tensor, x: torch.Tensor) -> None:
    line = Line(mask)
    assert torch.equal(line.laid(x), x[mask])
    again = line.unlaid(line.laid(x))
    assert torch.equal(again[mask], x[mask])
    assert not again[~mask].any()


def test_heads_of_a_line_are_those_of_rows(mask: torch.Tensor, x: torch.Tensor) -> None:
    line, rows = Line(mask), Rows(mask)
    real = mask[:, None, :, None]
    for part, plain in zip(line.split(x[mask], 3, SIZE), rows.split(x, 3, SIZE), strict=True):
        assert part.shape == plain.shape == (ROWS, HEADS, LENGTH, SIZE)
        assert part.is_contiguous()
        assert torch.equal(part, plain * real)
        assert torch.equal(line.joined(part), rows.joined(plain)[mask])


def test_vectors_at_positions(mask: torch.Tensor, x: torch.Tensor) -> None:
    assert torch.equal(Line(mask).at(x[mask], POSITIONS), Rows(mask).at(x, POSITIONS))


def test_gradients(mask: torch.Tensor, x: torch.Tensor) -> None:
    """Of everything a layer does with a line; a position that is asked for twice counts twice."""
    weights = torch.randn_like(x)
    gradients = []
    for rows in (Line(mask), Rows(mask)):
        given = x.clone().requires_grad_()
        laid = rows.laid(given)
        q, k, v = rows.split(laid, 3, SIZE)
        keys = k * mask[:, None, :, None]
        through = rows.joined(q * keys.sum(2, keepdim=True) + v.exp())
        chosen = rows.at(laid, POSITIONS).square().sum()
        ((rows.unlaid(laid) * weights)[mask].sum() + chosen).backward(retain_graph=True)
        through = through if isinstance(rows, Line) else through[mask]
        (through * weights[mask][:, : through.shape[-1]]).sum().backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*(gradient[mask] for gradient in gradients))
    assert not gradients[0][~mask].any(), "what stands at padding is nothing to it"


def test_an_encoder_leaves_padding_out_on_a_cpu(mask: torch.Tensor) -> None:
    seen = []
    config = EncoderConfig(50, embedding_size=8, hidden_size=8, num_layers=1, num_heads=2, ffn_size=16)
    encoder = Encoder(config).eval()
    encoder.layers[0].ffn.register_forward_hook(lambda module, given, out: seen.append(out.shape))
    ids = torch.randint(50, mask.shape)
    hidden = encoder(ids, torch.zeros_like(ids), mask)
    encoder(ids, torch.zeros_like(ids))
    assert seen == [(int(mask.sum()), 8), (ROWS, LENGTH, 8)]
    assert not hidden[~mask].any()
    assert isinstance(layout_of(mask), Line)
    assert isinstance(layout_of(None), Rows)
    assert isinstance(layout_of(torch.arange(100) < torch.tensor([[100], [99]])), Rows), "too little padding"
    assert isinstance(layout_of(mask.to("meta")), Rows), "not on another device"
