"""The operators of `torch.ops.electra` reject invalid arguments with an error that names the argument."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.attention import require_kernels
from torch import Tensor

TOKENS, WIDTH, HEADS = 7, 8, 2
DROPPED, SEED = 20_000, 3


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    require_kernels()


def valid_arguments() -> dict[str, dict[str, Any]]:
    """Arguments of each operator in their order."""
    torch.manual_seed(0)
    attention = {"qkv": torch.randn(TOKENS, 3 * WIDTH), "cu_seqlens": torch.tensor([0, 3, TOKENS])}
    rest = {"heads": HEADS, "dropped": DROPPED, "seed": SEED}
    saved = {"log_sum_exp": torch.randn(HEADS, TOKENS)}
    return {
        "attend": attention | rest,
        "attend_backward": {"gradient": torch.randn(TOKENS, WIDTH)} | attention | saved | rest,
        "dropout": {"x": torch.randn(TOKENS), "dropped": DROPPED, "seed": SEED},
    }


def call(op: str, arguments: dict[str, Any]) -> Tensor | tuple[Tensor, ...]:
    return getattr(torch.ops.electra, op)(*arguments.values())


# Changes of a single argument that leave a valid call.
VALID = {
    ("attend", "qkv", "of bfloat16"),
    ("attend", "qkv", "dimension 0 longer"),  # tokens after the last sequence
    *(
        ("dropout", "x", change)
        for change in ("of bfloat16", "dimension 0 longer", "dimension 0 shorter", "dimension 0 empty")
    ),
    *(
        (op, "cu_seqlens", f"dimension 0 {change}")
        for op in ("attend", "attend_backward")
        for change in ("longer", "shorter")
    ),
}
SCALARS = {"heads": (0, -1, 3, 16, 2**40, -(2**63)), "dropped": (-1, 2**16, 2**40, -(2**63))}
VALUES = {
    "cu_seqlens": (
        [1, 3, 7],
        [-1, 3, 7],
        [0, 8, 7],
        [0, 3, 8],
        [0, 5, 4],
        [0, -1, 7],
        [0, 3, 2**62],
        [0, -(2**63), 7],
    )
}


def changed_tensors(tensor: Tensor) -> Iterator[tuple[str, Tensor | None]]:
    """Yield changed versions of a tensor with their descriptions; those not in VALID are invalid arguments."""
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


def invalid_calls() -> Iterator[Any]:
    for op, valid in valid_arguments().items():
        for name, value in valid.items():
            if isinstance(value, Tensor):
                changes = [each for each in changed_tensors(value) if (op, name, each[0]) not in VALID]
                changes += [(str(values), torch.tensor(values, dtype=value.dtype)) for values in VALUES.get(name, ())]
            else:
                changes = [(str(invalid), invalid) for invalid in SCALARS.get(name, ())]
            for change, invalid in changes:
                yield pytest.param(op, valid | {name: invalid}, id=f"{op}-{name}-{change}")


@pytest.mark.parametrize("op", valid_arguments())
def test_valid_arguments(op: str) -> None:
    """Also changed ones and those at the limits of their ranges."""
    valid = valid_arguments()[op]
    call(op, valid)
    changes = [
        (name, change)
        for name, value in valid.items()
        if isinstance(value, Tensor)
        for what, change in changed_tensors(value)
        if (op, name, what) in VALID
    ]
    limits = {"dropped": (0, 2**16 - 1), "seed": (-(2**63), 2**63 - 1)}
    changes += [(name, value) for name in limits if name in valid for value in limits[name]]
    for name, value in changes:
        call(op, valid | {name: value})


@pytest.mark.parametrize(("op", "arguments"), list(invalid_calls()))
def test_invalid_arguments(op: str, arguments: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, IndexError)) as raised:
        call(op, arguments)
    if not isinstance(
        raised.value, NotImplementedError
    ):  # raised by the dispatcher, for tensors on other devices and of other layouts
        assert str(raised.value).startswith(f"electra::{op}: ")
        assert ", expected " in str(raised.value)


def test_messages() -> None:
    def message(op: str, **changes: Any) -> str:
        with pytest.raises((RuntimeError, IndexError)) as raised:
            call(op, valid_arguments()[op] | changes)
        return str(raised.value).splitlines()[0]

    assert message("attend", qkv=torch.zeros(7, 24).half()) == (
        "electra::attend: qkv is float16 [7, 24] on cpu, expected contiguous float32 or bfloat16 [*, *] on cpu"
    )
    assert message("attend_backward", log_sum_exp=torch.zeros(7, 2).double().t()) == (
        "electra::attend_backward: log_sum_exp is non-contiguous float64 [2, 7] on cpu, expected contiguous float32 "
        "[2, 7] on cpu"
    )
    assert message("attend", cu_seqlens=torch.tensor([0, 8, 9])) == (
        "electra::attend: cu_seqlens is 8 at 1, expected at most the 7 tokens"
    )
    assert message("attend", heads=3) == "electra::attend: a third of the width of qkv is 8, expected a multiple of 3"


def without_tokens(value: Any) -> Any:
    """Make every dimension that has the size of the tokens empty."""
    if not isinstance(value, Tensor):
        return value
    return value[tuple(slice(0, 0 if size == TOKENS else size) for size in value.shape)].contiguous()


@pytest.mark.parametrize("op", valid_arguments())
@pytest.mark.parametrize("threads", [1, 3])
def test_empty_batches(op: str, threads: int) -> None:
    """A batch without tokens gives results without elements."""
    empty = {name: without_tokens(value) for name, value in valid_arguments()[op].items()}
    if "cu_seqlens" in empty:
        empty["cu_seqlens"] = torch.tensor([0, 0, 0])
    torch.set_num_threads(threads)
    try:
        results = call(op, empty)
    finally:
        torch.set_num_threads(1)
    for result in [results] if isinstance(results, Tensor) else results:
        assert not result.any()


def test_lazily_negated_views() -> None:
    """PyTorch computes the negation before it calls an operator that does not support such views."""
    valid = valid_arguments()["attend"]
    negated = torch._neg_view(valid["qkv"])
    assert negated.is_neg()
    found, expected = (call("attend", valid | {"qkv": qkv}) for qkv in (negated, -valid["qkv"]))
    assert torch.equal(found[0], expected[0])
