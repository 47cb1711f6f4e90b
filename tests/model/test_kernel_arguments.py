"""What the operators of `torch.ops.electra` do with wrong arguments: an error that names the argument, and no access beyond it."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.kernels_here import require_kernels
from torch import Tensor

TOKENS, WIDTH, HEADS, ROWS, WORDS = 7, 8, 2, 5, 300
ZEROED, SEED = 20_000, 3


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    require_kernels()


def valid_arguments() -> dict[str, dict[str, Any]]:
    """Arguments of each operator in their order."""
    torch.manual_seed(0)
    wide, hidden, normalizers = torch.randn(TOKENS, 3 * WIDTH), torch.randn(TOKENS, WIDTH), torch.randn(HEADS, TOKENS)
    vector, per_token = torch.randn(WIDTH), torch.rand(TOKENS)
    starts = torch.tensor([0, 3, TOKENS])
    dropout = {"zeroed": ZEROED, "seed": SEED}
    attention = {"product": wide, "bias": torch.randn(3 * WIDTH), "starts": starts}
    vocabulary = {
        "said": torch.randn(ROWS, WIDTH),
        "word": torch.randn(WORDS, WIDTH),
        "bias": torch.randn(WORDS),
        "targets": torch.tensor([0, 299, 255, 256, 7]),
    }
    norm = {"product": hidden, "bias": vector, "residual": hidden, "weight": vector, "shift": vector, "eps": 1e-12}
    saved = {"sums": hidden, "means": per_token, "scales": per_token}
    return {
        "attend": attention | {"heads": HEADS} | dropout,
        "attend_backward": {"gradient": hidden} | attention | {"normalizers": normalizers, "heads": HEADS} | dropout,
        "add_norm": norm | dropout,
        "add_norm_backward": {"gradient": hidden} | saved | {"weight": vector, "like": hidden} | dropout,
        "gelu": {"product": hidden, "bias": vector},
        "gelu_backward": {"gradient": hidden, "product": hidden, "bias": vector},
        "score_words": vocabulary | {"u": torch.rand(ROWS), "never": 4},
        "score_words_backward": {"gradient": torch.randn(ROWS)} | vocabulary | {"log_normalizer": torch.randn(ROWS)},
    }


def call(op: str, arguments: dict[str, Any]) -> Tensor | tuple[Tensor, ...]:
    return getattr(torch.ops.electra, op)(*arguments.values())


# Changes of one argument alone that leave a right call.
RIGHT = {
    *((op, "product", "of bfloat16") for op in ("attend", "add_norm", "gelu")),
    ("add_norm_backward", "like", "of bfloat16"),
    ("attend", "product", "dimension 0 longer"),  # tokens of no row
    *(
        (op, "starts", f"dimension 0 {change}")
        for op in ("attend", "attend_backward")
        for change in ("longer", "shorter")
    ),
    *(("gelu", "product", f"dimension 0 {change}") for change in ("longer", "shorter", "empty")),
    ("score_words", "u", "dimension 0 empty"),
}
SCALARS = {
    "heads": (0, -1, 3, 16, 2**40, -(2**63)),
    "zeroed": (-1, 2**16, 2**40, -(2**63)),
    "eps": (-1e-12, math.nan, math.inf),
    "never": (-2, WORDS, 2**62, -(2**63)),
}
VALUES = {
    "starts": ([1, 3, 7], [-1, 3, 7], [0, 8, 7], [0, 3, 8], [0, 5, 4], [0, -1, 7], [0, 3, 2**62], [0, -(2**63), 7]),
    "targets": ([0, 1, 2, 3, -1], [0, 1, 2, 3, WORDS], [2**62, 1, 2, 3, 4], [-(2**63), 1, 2, 3, 4]),
    "u": ([0, 0, 0, 0, -0.1], [0, 0, 0, 0, 1.1], [math.nan, 0, 0, 0, 0], [math.inf, 0, 0, 0, 0]),
}


def changed_tensors(tensor: Tensor) -> Iterator[tuple[str, Tensor | None]]:
    """Tensors that are not what an operator expects in place of this one, with a description of each."""
    yield "None", None
    yield "on meta", tensor.to("meta")
    yield "sparse", tensor.to_sparse()
    yield "with a dimension more", tensor.unsqueeze(0)
    yield "with a dimension less", tensor[0].clone()
    yield "flat", tensor.flatten().unsqueeze(-1) if tensor.dim() == 1 else tensor.flatten()
    yield "not contiguous", torch.stack([tensor, tensor], -1)[..., 0]
    yield "expanded", tensor[:1].expand(tensor.shape)
    short = tensor.clone()
    short.untyped_storage().resize_(short.nbytes - 1)
    yield "in a storage that is too short", short
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool, torch.complex64):
        if dtype != tensor.dtype:
            yield f"of {str(dtype).removeprefix('torch.')}", tensor.to(dtype)
    if torch.cuda.is_available():
        yield "on a GPU", tensor.cuda()
    for dim, size in enumerate(tensor.shape):
        yield f"dimension {dim} longer", torch.cat([tensor, tensor.narrow(dim, size - 1, 1)], dim)
        yield f"dimension {dim} shorter", tensor.narrow(dim, 0, size - 1).clone()
        yield f"dimension {dim} empty", tensor.narrow(dim, 0, 0).clone()


def wrong_calls() -> Iterator[Any]:
    for op, valid in valid_arguments().items():
        for name, value in valid.items():
            if isinstance(value, Tensor):
                changes = [each for each in changed_tensors(value) if (op, name, each[0]) not in RIGHT]
                changes += [(str(values), torch.tensor(values, dtype=value.dtype)) for values in VALUES.get(name, ())]
            else:
                changes = [(str(wrong), wrong) for wrong in SCALARS.get(name, ())]
            for change, wrong in changes:
                yield pytest.param(op, name, valid | {name: wrong}, id=f"{op}-{name}-{change}")


@pytest.mark.parametrize("op", valid_arguments())
def test_right_arguments(op: str) -> None:
    """And one argument at a limit of what is right."""
    valid = valid_arguments()[op]
    call(op, valid)
    right = [
        (name, change)
        for name, value in valid.items()
        if isinstance(value, Tensor)
        for what, change in changed_tensors(value)
        if (op, name, what) in RIGHT
    ]
    limits = {"zeroed": (0, 2**16 - 1), "never": (-1, 0, WORDS - 1), "seed": (-(2**63), 2**63 - 1), "eps": (0.0,)}
    right += [(name, value) for name in limits if name in valid for value in limits[name]]
    if "u" in valid:
        right.append(("u", torch.tensor([0.0, 1.0, 0.5, 0.0, 1.0])))
    for name, value in right:
        call(op, valid | {name: value})


@pytest.mark.parametrize(("op", "name", "arguments"), list(wrong_calls()))
def test_wrong_arguments(op: str, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, IndexError)) as raised:
        call(op, arguments)
    if not isinstance(raised.value, NotImplementedError):  # the dispatcher's, for tensors of other devices and layouts
        assert str(raised.value).startswith(f"electra::{op}: ")
        assert ", expected " in str(raised.value)


def test_messages() -> None:
    def message(op: str, **changes: Any) -> str:
        with pytest.raises((RuntimeError, IndexError)) as raised:
            call(op, valid_arguments()[op] | changes)
        return str(raised.value).splitlines()[0]

    assert message("gelu", bias=torch.zeros(2, 5).double().t()) == (
        "electra::gelu: bias is non-contiguous float64 [5, 2] on cpu, expected contiguous float32 [8] on cpu"
    )
    assert message("attend", product=torch.zeros(7, 24).half()) == (
        "electra::attend: product is float16 [7, 24] on cpu, expected contiguous float32 or bfloat16 [*, *] on cpu"
    )
    assert message("attend", starts=torch.tensor([0, 8, 9])) == (
        "electra::attend: starts rises to 8 at 1, expected at most the 7 tokens"
    )
    assert message("attend", heads=3) == (
        "electra::attend: a third of the width of product is 8, expected a multiple of 3"
    )
    assert message("score_words", never=300) == "electra::score_words: never is 300, expected -1 to 299"
    with pytest.raises(
        IndexError, match="electra::score_words: targets is 300 at 1, expected at least 0 and less than 300"
    ):
        call("score_words", valid_arguments()["score_words"] | {"targets": torch.tensor([0, 300, 0, 0, 0])})


def without_rows(value: Any, rows: int) -> Any:
    """The argument of a call on no tokens, or no rows: each dimension of that size is empty."""
    if not isinstance(value, Tensor):
        return value
    return value[tuple(slice(0, 0 if size == rows else size) for size in value.shape)].contiguous()


@pytest.mark.parametrize("op", valid_arguments())
@pytest.mark.parametrize("threads", [1, 3])
def test_nothing_to_compute(op: str, threads: int) -> None:
    """No tokens, no rows: results without elements, gradients of vectors that are 0."""
    valid = valid_arguments()[op]
    empty = {name: without_rows(value, ROWS if "words" in op else TOKENS) for name, value in valid.items()}
    if "starts" in empty:
        empty["starts"] = torch.tensor([0, 0, 0])
    torch.set_num_threads(threads)
    try:
        results = call(op, empty)
    finally:
        torch.set_num_threads(1)
    for result in [results] if isinstance(results, Tensor) else results:
        assert not result.any()


def test_lazily_negated_views() -> None:
    """PyTorch computes them before an operator that does not know them reads them."""
    valid = valid_arguments()["gelu"]
    negated = torch._neg_view(valid["product"])
    assert negated.is_neg()
    assert torch.equal(call("gelu", valid | {"product": negated}), call("gelu", valid | {"product": -valid["product"]}))
