"""A layer in few passes over memory, on a CPU: matrix products by torch, all between them by C++ of our own (`kernels/`).

A CPU spends a third of a small model's step on fetching and writing what lies between two products (LOG.md). The C++ is
compiled when it is first wanted, in some ten seconds, and kept for later. Without a compiler the layer of
`electra.model.layers` does the same, which `tests/model/test_fused.py` has beside this one. Letters of shapes are as there,
and T tokens of a batch.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.console import decided
from electra.model.dropout import levels

KERNELS = Path(__file__).parent / "kernels"
AVX512 = ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"]
INSTRUCTIONS = {"AVX512": AVX512, "AVX2": ["-mavx2", "-mfma", "-mf16c"]}
"""What a compiler may use, by what torch's own kernels use here; what is compiled may lie in a folder of several machines."""


class NoKernelsError(Exception):
    """The kernels cannot be had here; the message says why."""


@cache
def why_no_kernels() -> str | None:
    """What prevents kernels in this process; None where `torch.ops.electra` has them, compiled now if they never were."""
    try:
        load_kernels()
    except (NoKernelsError, OSError) as error:
        return str(error.__cause__ or error)
    return None


def kernels_compiled() -> bool:
    """Whether they were compiled before, and nobody has to wait for them."""
    try:
        return compiled_library().exists()
    except NoKernelsError:
        return False


def load_kernels() -> None:
    """Have `torch.ops.electra`.

    Raises:
        NoKernelsError: another kind of processor, no compiler, or one that fails.
        OSError: no place for what is compiled, or it cannot be loaded.
    """
    command, library = compiler_command(), compiled_library()
    was_there = library.exists()
    if not was_there:
        compile_to(library, command)
    try:
        torch.ops.load_library(str(library))
    except OSError:
        if not was_there:
            raise
        compile_to(library, command)  # it is damaged, or of another system that shares the folder
        torch.ops.load_library(str(library))


def compiler_command() -> list[str]:
    """The compiler and its options, without paths.

    Raises:
        NoKernelsError: as `load_kernels` says.
    """
    from torch.utils import cpp_extension  # takes a while, and only who compiles wants it

    capability = torch.backends.cpu.get_cpu_capability()
    if platform.system() != "Linux" or capability not in INSTRUCTIONS:
        raise NoKernelsError(f"they are for AVX2 and AVX-512 on Linux, not {platform.machine()} on {platform.system()}")
    try:
        compiler = shlex.split(cpp_extension.get_cxx_compiler())
    except ValueError as error:
        raise NoKernelsError(f"CXX: {error}") from None
    if not compiler or shutil.which(compiler[0]) is None:
        raise NoKernelsError(f"no C++ compiler {' '.join(compiler)}; install g++, or name one by CXX")
    flags = ["-O3", "-std=c++20", "-fPIC", "-shared", "-fopenmp", "-mtune=native", *INSTRUCTIONS[capability]]
    return [*compiler, *flags, f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]


def compiled_library() -> Path:
    """Where the kernels are, or will be: beside other extensions of torch, by all that they are made from."""
    from torch.utils import cpp_extension

    made_from = (
        [path.read_text() for path in sorted(KERNELS.iterdir())],
        compiler_command(),
        torch.__version__,
        platform.libc_ver(),
    )
    folder = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    return Path(folder) / "electra" / f"fused-{hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]}.so"


def compile_to(library: Path, command: list[str]) -> None:
    """Compile; the file is whole or not there, also where several processes do this."""
    from torch.utils import cpp_extension

    decided("compiling C++ kernels for this CPU", f"once, in some ten seconds; kept in {library.parent}")
    paths = [f"-isystem{path}" for path in cpp_extension.include_paths()] + [str(KERNELS / "kernels.cpp")]
    paths += [*(f"-L{path}" for path in cpp_extension.library_paths()), "-lc10", "-ltorch_cpu"]
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compiled = Path(folder) / library.name
        done = subprocess.run([*command, *paths, "-o", str(compiled)], capture_output=True, text=True, check=False)
        if done.returncode:
            wrong = [line.strip() for line in done.stderr.splitlines() if "error:" in line or "undefined" in line]
            raise NoKernelsError(f"{command[0]}: {wrong[0] if wrong else f'exit status {done.returncode}'}")
        compiled.replace(library)


class LayerSettings(NamedTuple):
    """Of a layer, beside its weights."""

    heads: int
    eps: float
    """Of its LayerNorms."""
    dropout: float
    attention_dropout: float


def kernels_precision() -> torch.dtype | None:
    """That of the products; None where autocast has one that kernels do not know."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
    return dtype if dtype in (torch.float32, torch.bfloat16) else None


class FusedLayer(torch.autograd.Function):
    """`TransformerLayer` for all tokens of a batch; products in float32, or as autocast has them, all sums in float32.

    `starts` says where each row of the batch begins among the tokens, and in the end how many there are. The weights are
    those of the layer in the order of its parameters.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "T H"], starts: Int64[Tensor, " S"], settings: LayerSettings, *weights: Tensor
    ) -> Float[Tensor, "T H"]:
        dtype = kernels_precision()
        assert dtype is not None
        _, b_qkv, _, b_output, w_norm, b_norm, _, b_up, _, b_down, w_last_norm, b_last_norm = weights
        w_qkv, w_output, w_up, w_down = (weights[i].to(dtype) for i in (0, 2, 6, 8))
        kernels, x = torch.ops.electra, x.float().contiguous()
        zeroed, of_attention = levels(settings.dropout), levels(settings.attention_dropout)
        seeds = [0, 0, 0]
        if zeroed or of_attention:
            seeds = torch.empty(3, dtype=torch.int64).random_(-(2**63), None).tolist()

        given = x.to(dtype)
        qkv = given @ w_qkv.t()
        attended, normalisers = kernels.attend(qkv, b_qkv, starts, settings.heads, of_attention, seeds[0])
        output = attended @ w_output.t()
        y, *of_norm = kernels.add_norm(output, b_output, x, w_norm, b_norm, settings.eps, zeroed, seeds[1])
        halfway = y.to(dtype)
        up = halfway @ w_up.t()
        inner = kernels.gelu(up, b_up)
        down = inner @ w_down.t()
        out, *of_last_norm = kernels.add_norm(down, b_down, y, w_last_norm, b_last_norm, settings.eps, zeroed, seeds[2])

        states = given, starts, qkv, attended, normalisers, halfway, up, inner, *of_norm, *of_last_norm
        ctx.save_for_backward(*states, w_qkv, b_qkv, w_output, w_norm, w_up, b_up, w_down, w_last_norm)
        ctx.settings, ctx.zeroed, ctx.of_attention, ctx.seeds = settings, zeroed, of_attention, seeds
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "T H"]) -> tuple[Tensor | None, ...]:
        given, starts, qkv, attended, normalisers, halfway, up, inner, *rest = ctx.saved_tensors
        of_norm, of_last_norm, weights = rest[:3], rest[3:6], rest[6:]
        w_qkv, b_qkv, w_output, w_norm, w_up, b_up, w_down, w_last_norm = weights
        heads, zeroed, of_attention, seeds = ctx.settings.heads, ctx.zeroed, ctx.of_attention, ctx.seeds
        learns_qkv, learns_output, learns_up, learns_down = (ctx.needs_input_grad[3 + i] for i in (0, 2, 6, 8))
        kernels, gradient = torch.ops.electra, gradient.contiguous()

        d_down, d_y, d_vectors = kernels.add_norm_backward(
            gradient, *of_last_norm, w_last_norm, given, zeroed, seeds[2]
        )
        d_up, d_b_up = kernels.gelu_backward(d_down @ w_down, up, b_up)
        d_w_up = d_up.t() @ halfway if learns_up else None
        d_w_down = d_down.t() @ inner if learns_down else None
        of_ffn = d_w_up, d_b_up, d_w_down, *d_vectors
        add_product(d_y, d_up, w_up)

        d_output, d_x, d_vectors = kernels.add_norm_backward(d_y, *of_norm, w_norm, given, zeroed, seeds[1])
        d_qkv, d_b_qkv = kernels.attend_backward(
            d_output @ w_output, qkv, b_qkv, starts, normalisers, heads, of_attention, seeds[0]
        )
        d_w_qkv = d_qkv.t() @ given if learns_qkv else None
        d_w_output = d_output.t() @ attended if learns_output else None
        add_product(d_x, d_qkv, w_qkv)
        return d_x, None, None, d_w_qkv, d_b_qkv, d_w_output, *d_vectors, *of_ffn


def add_product(to: Float[Tensor, "T H"], a: Float[Tensor, "T X"], b: Float[Tensor, "X H"]) -> None:
    """Add a @ b, in the same pass where precisions allow it."""
    if a.dtype == to.dtype:
        to.addmm_(a, b)
    else:
        to.add_(a @ b)
