"""Packed batches, which have no padding, against padded ones."""

import pytest
import torch

from electra.model.encoder import Encoder, EncoderConfig, choose_layout
from electra.model.packing import Packed, Padded

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


def test_pack_and_unpack(mask: torch.Tensor, x: torch.Tensor) -> None:
    packed = Packed(mask)
    assert torch.equal(packed.pack(x), x[mask])
    again = packed.unpack(packed.pack(x))
    assert torch.equal(again[mask], x[mask])
    assert not again[~mask].any()


def test_split_and_merge_heads(mask: torch.Tensor, x: torch.Tensor) -> None:
    packed, padded = Packed(mask), Padded(mask)
    real = mask[:, None, :, None]
    for part, plain in zip(packed.split_heads(x[mask], 3, SIZE), padded.split_heads(x, 3, SIZE), strict=True):
        assert part.shape == plain.shape == (ROWS, HEADS, LENGTH, SIZE)
        assert part.is_contiguous()
        assert torch.equal(part, plain * real)
        assert torch.equal(packed.merge_heads(part), padded.merge_heads(plain)[mask])


def test_gather_vectors_at_positions(mask: torch.Tensor, x: torch.Tensor) -> None:
    assert torch.equal(Packed(mask).gather(x[mask], POSITIONS), Padded(mask).gather(x, POSITIONS))


def test_gradients(mask: torch.Tensor, x: torch.Tensor) -> None:
    """Gradients of all operations on a packed batch; a position that is gathered twice has the sum of both."""
    weights = torch.randn_like(x)
    gradients = []
    for layout in (Packed(mask), Padded(mask)):
        given = x.clone().requires_grad_()
        packed = layout.pack(given)
        q, k, v = layout.split_heads(packed, 3, SIZE)
        keys = k * mask[:, None, :, None]
        through = layout.merge_heads(q * keys.sum(2, keepdim=True) + v.exp())
        chosen = layout.gather(packed, POSITIONS).square().sum()
        ((layout.unpack(packed) * weights)[mask].sum() + chosen).backward(retain_graph=True)
        through = through if isinstance(layout, Packed) else through[mask]
        (through * weights[mask][:, : through.shape[-1]]).sum().backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*(gradient[mask] for gradient in gradients))
    assert not gradients[0][~mask].any(), "no gradient reaches padding"


def test_encoder_packs_batches_on_a_cpu(mask: torch.Tensor) -> None:
    seen = []
    config = EncoderConfig(50, embedding_size=8, hidden_size=8, num_layers=1, num_heads=2, ffn_size=16)
    encoder = Encoder(config).eval()
    encoder.layers[0].ffn.register_forward_hook(lambda module, given, out: seen.append(out.shape))
    ids = torch.randint(50, mask.shape)
    hidden = encoder(ids, torch.zeros_like(ids), mask)
    encoder(ids, torch.zeros_like(ids))
    assert seen == [(int(mask.sum()), 8), (ROWS, LENGTH, 8)]
    assert not hidden[~mask].any()
    assert isinstance(choose_layout(mask, 0.05), Packed)
    assert isinstance(choose_layout(None, 0.05), Padded)
    assert isinstance(choose_layout(torch.arange(100) < torch.tensor([[100], [99]]), 0.05), Padded), (
        "too little padding"
    )
    assert isinstance(choose_layout(mask.to("meta"), 0.05), Padded), "not on another device"
