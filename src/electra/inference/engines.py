"""What computes the network of a fine-tuned model in prediction."""

from collections.abc import Callable
from pathlib import Path

from electra.errors import ModelError
from electra.execution import enable_kernels
from electra.finetuning.model import FinetunedModel
from electra.inference.finetuned import LoadedModel, load_finetuned
from electra.inference.onnx.files import find_onnx_file
from electra.inference.onnx.network import load_onnx
from electra.model.cpu.library import kernels_compiled
from electra.runtime.setup import Runtime


def load_torch(model: str, runtime: Runtime) -> LoadedModel:
    """Load a model into PyTorch, on the device of `runtime`.

    Raises:
        ModelError, TokenizerError: as in `load_finetuned`, or the model is only in an ONNX file.
    """
    try:
        loaded = load_finetuned(model)
    except ModelError as error:
        if error.code in ("missing-weights", "not-model") and (file := find_onnx_file(Path(model))):
            raise ModelError(
                "other-engine", f"{model}: has no weights for PyTorch, but {file.name}; add --runtime.engine onnx"
            ) from None
        raise
    assert isinstance(loaded.model, FinetunedModel)
    place(loaded.model, runtime)
    return loaded


def place(model: FinetunedModel, runtime: Runtime) -> FinetunedModel:
    """Move a model to the device of `runtime`, with CPU kernels if they are compiled; return it."""
    if runtime.kernels and kernels_compiled():  # not compiled here: that takes longer than predicting a few lines
        enable_kernels(model, runtime)
    return model.to(runtime.device)


ENGINES: dict[str, Callable[[str, Runtime], LoadedModel]] = {"torch": load_torch, "onnx": load_onnx}
"""By name: a function of a model, as the user names it, and the runtime."""
