"""A layer in few passes over memory, on a CPU: matrix products by torch, all between them by C++ of our own (`kernels/`).

A CPU spends a third of a small model's step on fetching and writing what lies between two products (LOG.md). The C++ is
compiled when it is first wanted, in some ten seconds, and kept for later. Without a compiler the layer of
`electra.model.layers` does the same, which `tests/model/test_fused.py` has beside this one. Letters of shapes are as there,
and T tokens of a batch.
"""

import hashlib
import os
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import cpp_extension

from electra.console import decided
from electra.model.dropout import levels

KERNELS = Path(__file__).parent / "kernels"
AVX512 = ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"]
INSTRUCTIONS = {"AVX512": AVX512, "AVX2": ["-mavx2", "-mfma", "-mf16c"]}
"""What a compiler may use, by what torch's own kernels use here. Named, not `native`: a cache may serve several machines."""


class NoKernelsError(Exception):
    """The kernels cannot be had here; the message says why."""


@cache
def load_kernels() -> None:
    """Have `torch.ops.electra`, compiled now if that was never done.

    Raises:
        NoKernelsError: another kind of processor, no compiler, or no place for what is compiled.
    """
    if (capability := torch.backends.cpu.get_cpu_capability()) not in INSTRUCTIONS:
        raise NoKernelsError(f"a processor with {capability} instructions, not AVX2 or AVX-512")
    flags = ["-O3", "-std=c++20", "-fPIC", "-shared", "-fopenmp", "-mtune=native", *INSTRUCTIONS[capability]]
    flags += [f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]
    flags += [f"-isystem{path}" for path in cpp_extension.include_paths()]
    linked = [*(f"-L{path}" for path in cpp_extension.library_paths()), "-lc10", "-ltorch_cpu"]
    command = [*shlex.split(cpp_extension.get_cxx_compiler()), *flags, str(KERNELS / "layer.cpp"), *linked]
    what = ([path.read_text() for path in sorted(KERNELS.iterdir())], command, torch.__version__)
    library = cache_folder() / f"fused-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}.so"
    try:
        if not library.exists():
            decided("C++ kernels for this CPU are compiled", "once, in some ten seconds")
            compile_to(library, command)
        torch.ops.load_library(str(library))
    except OSError as error:  # the compiler, the cache, or the library; torch names what was missing in another one
        raise NoKernelsError(str(error.__cause__ or error)) from None


def cache_folder() -> Path:
    """Where torch keeps extensions."""
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()) / "electra"


def compile_to(library: Path, command: list[str]) -> None:
    """Compile; the file is whole or not there, also where several processes do this."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compiled = Path(folder) / library.name
        done = subprocess.run([*command, "-o", str(compiled)], capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise NoKernelsError(f"{command[0]}: {errors[0].strip() if errors else f'exit status {done.returncode}'}")
        compiled.rename(library)


class Sizes(NamedTuple):
    """Of a layer, beside its weights."""

    heads: int
    eps: float
    """Of its LayerNorms."""
    dropout: float
    attention_dropout: float


class FusedLayer(torch.autograd.Function):
    """`TransformerLayer` for all tokens of a batch; products in float32, or as autocast has them, all sums in float32.

    `starts` says where each row of the batch begins among the tokens, and in the end how many there are. The weights are
    those of the layer in the order of its parameters.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "T H"], starts: Int64[Tensor, " S"], sizes: Sizes, *weights: Tensor
    ) -> Float[Tensor, "T H"]:
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
        _, b_qkv, _, b_output, w_norm, b_norm, _, b_up, _, b_down, w_last_norm, b_last_norm = weights
        w_qkv, w_output, w_up, w_down = (weights[i].to(dtype) for i in (0, 2, 6, 8))
        kernels, x = torch.ops.electra, x.float().contiguous()
        zeroed, of_attention = levels(sizes.dropout), levels(sizes.attention_dropout)
        seeds = [0, 0, 0]
        if zeroed or of_attention:
            seeds = torch.empty(3, dtype=torch.int64).random_(-(2**63), None).tolist()

        given = x.to(dtype)
        qkv = given @ w_qkv.t()
        attended, normalisers = kernels.attend(qkv, b_qkv, starts, sizes.heads, of_attention, seeds[0])
        output = attended @ w_output.t()
        y, *of_norm = kernels.add_norm(output, b_output, x, w_norm, b_norm, sizes.eps, zeroed, seeds[1])
        halfway = y.to(dtype)
        up = halfway @ w_up.t()
        inner = kernels.gelu(up, b_up)
        down = inner @ w_down.t()
        out, *of_last_norm = kernels.add_norm(down, b_down, y, w_last_norm, b_last_norm, sizes.eps, zeroed, seeds[2])

        states = given, starts, qkv, attended, normalisers, halfway, up, inner, *of_norm, *of_last_norm
        ctx.save_for_backward(*states, w_qkv, b_qkv, w_output, w_norm, w_up, b_up, w_down, w_last_norm)
        ctx.drawn = sizes.heads, zeroed, of_attention, seeds
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "T H"]) -> tuple[Tensor | None, ...]:
        given, starts, qkv, attended, normalisers, halfway, up, inner, *rest = ctx.saved_tensors
        of_norm, of_last_norm, weights = rest[:3], rest[3:6], rest[6:]
        w_qkv, b_qkv, w_output, w_norm, w_up, b_up, w_down, w_last_norm = weights
        heads, zeroed, of_attention, seeds = ctx.drawn
        kernels, gradient = torch.ops.electra, gradient.contiguous()

        d_down, d_y, d_vectors = kernels.add_norm_backward(
            gradient, *of_last_norm, w_last_norm, given, zeroed, seeds[2]
        )
        d_up, d_b_up = kernels.gelu_backward(d_down @ w_down, up, b_up)
        of_ffn = d_up.t() @ halfway, d_b_up, d_down.t() @ inner, *d_vectors
        add_product(d_y, d_up, w_up)

        d_output, d_x, d_vectors = kernels.add_norm_backward(d_y, *of_norm, w_norm, given, zeroed, seeds[1])
        d_qkv, d_b_qkv = kernels.attend_backward(
            d_output @ w_output, qkv, b_qkv, starts, normalisers, heads, of_attention, seeds[0]
        )
        of_attending = d_qkv.t() @ given, d_b_qkv, d_output.t() @ attended, *d_vectors
        add_product(d_x, d_qkv, w_qkv)
        return d_x, None, None, *of_attending, *of_ffn


def add_product(to: Float[Tensor, "T H"], a: Float[Tensor, "T X"], b: Float[Tensor, "X H"]) -> None:
    """Add a @ b, in the same pass where precisions allow it."""
    if a.dtype == to.dtype:
        to.addmm_(a, b)
    else:
        to.add_(a @ b)
