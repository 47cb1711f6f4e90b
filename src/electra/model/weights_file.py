"""Weights files of Hugging Face directories: only tensors are read, and no damaged ones."""

import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from electra.errors import ModelError
from electra.external import one_line
from electra.schema import check_file, read_tensors


def find_weights_file(directory: Path) -> Path:
    """Find the weights file of a Hugging Face directory.

    Raises:
        ModelError: there is none, or it is not a regular file.
    """
    names = ("model.safetensors", "pytorch_model.bin")
    file = next((directory / name for name in names if (directory / name).exists()), None)
    if file is None:
        raise ModelError("missing-weights", f"{directory}: no weights, neither model.safetensors nor pytorch_model.bin")
    check_file(file, ModelError)
    return file


@contextmanager
def convert_read_errors(file: Path) -> Iterator[None]:
    """Turn any error while a weights file is read into a `ModelError`."""
    try:
        yield
    except ModelError:
        raise
    except UnpicklingError:
        raise ModelError("foreign-objects", f"{file}: holds objects other than tensors, which are not loaded") from None
    except Exception as error:  # the unpickler of tensors can raise almost any type
        reason = one_line(error) or type(error).__name__
        raise ModelError("unreadable", f"{file}: cannot be read ({reason})") from None


def check_finite(file: Path, weights: Mapping[str, Tensor]) -> None:
    """Check that all weights are finite; a diverged training or a damaged file has others.

    Raises:
        ModelError: a tensor holds NaN or infinity; the message names the first one.
    """
    for name, tensor in weights.items():
        # A sum reads each value once and allocates nothing. If it is finite, all its terms are.
        if not tensor.sum().isfinite() and (wrong := int((~tensor.isfinite()).sum())):
            raise ModelError(
                "not-finite",
                f"{file}: {name}: {wrong:,} of {tensor.numel():,} values are NaN or infinite, expected finite numbers; "
                "the training diverged or the file is damaged: use an earlier checkpoint, or another copy",
            )


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Load the tensors of a file on the CPU: name -> tensor. No code in the file is executed.

    Raises:
        ModelError: the file is damaged, holds anything other than named tensors, or expands to more than its size.
    """
    if file.suffix == ".safetensors":
        return read_tensors(file, ModelError)
    check_file(file, ModelError)
    with convert_read_errors(file):
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                    raise ModelError("compressed", f"{file}: compressed; torch saves weights uncompressed")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # torch raises an error if it cannot read one
            tensors = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise ModelError("wrong-type", f"{file}: holds a {type(tensors).__name__}, expected a dictionary of tensors")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ModelError("wrong-type", f"{file}: {name} is a {type(tensor).__name__}, expected a tensor")
        # An expanded view can repeat a single number any number of times.
        if tensor.layout != torch.strided or tensor.untyped_storage().nbytes() < tensor.nbytes:
            raise ModelError("wrong-type", f"{file}: {name} is sparse or an expanded view, expected a dense tensor")
    return tensors
