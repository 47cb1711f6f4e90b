"""A fine-tuned model in ONNX Runtime."""

from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from electra.data.batch import Batch
from electra.errors import ModelError
from electra.external import require_extra
from electra.finetuning.batching import EncodedExamples, LabeledBatch
from electra.finetuning.hub import find_model_directory
from electra.finetuning.model import compute_by_length
from electra.finetuning.task import Head, Outputs
from electra.inference.finetuned import LoadedModel, SavedModel, build_checked, load_head_weights, read_saved_model
from electra.inference.onnx.files import FILE_NAMES, find_onnx_file
from electra.inference.onnx.session import OnnxSession
from electra.inference.sources import HIDDEN
from electra.model.hf_config import load_config, use_meta_device
from electra.runtime.setup import Runtime


class OnnxNetwork:
    """A network in ONNX Runtime; implements `inference.finetuned.Network`.

    With `head`, one that no Hugging Face class has, the file is the encoder alone, and PyTorch computes the head.
    """

    def __init__(self, session: OnnxSession, head: nn.Module | None) -> None:
        self.session = session
        self.head = head

    def compute_outputs(self, examples: EncodedExamples, runtime: Runtime, batch_size: int, pad_id: int) -> Outputs:
        """See `inference.finetuned.Network`."""
        with torch.inference_mode():
            return compute_by_length(examples, batch_size, pad_id, self.compute)

    def compute(self, batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute the outputs of the head by name, tensors [B, ...]."""
        arrays = self.session.run(batch.inputs)
        outputs = {name: torch.from_numpy(array) for name, array in arrays.items() if isinstance(array, np.ndarray)}
        if self.head is None:
            return outputs
        head = cast(Head, self.head)
        return head.predict(outputs[HIDDEN][:, :1] if head.only_cls else outputs[HIDDEN], batch)


def load_onnx(model: str, runtime: Runtime) -> LoadedModel:
    """Load a fine-tuned model for ONNX Runtime: a directory that `electra export` wrote, or an ONNX file in it.

    Raises:
        UsageError: the extra `onnx` is not installed.
        ModelError: the model is not fine-tuned, the ONNX file is missing, damaged or does not match the other files.
        TokenizerError: its tokenizer is missing or broken.
    """
    require_extra("onnx", f"{model}: ONNX Runtime")
    named = Path(model)
    directory = find_model_directory(str(named.parent) if named.suffix == ".onnx" else model)
    file = find_onnx_file(named if named.suffix == ".onnx" else directory)
    if file is None:
        raise ModelError(
            "missing-onnx",
            f"{model}: there is no such file, or none of {' and '.join(FILE_NAMES.values())}; write one with electra export",
        )
    saved = read_saved_model(directory, load_config(directory))
    head: nn.Module | None = None
    if (head_file := saved.head_file) is not None:
        weights = load_head_weights(head_file)
        head = build_checked(head_file, weights, saved.build_head)
        head.load_state_dict(weights)
        head.eval()
    session = OnnxSession(file)
    check_outputs(session, saved)
    return saved.attach(OnnxNetwork(session, head))


def check_outputs(session: OnnxSession, saved: SavedModel) -> None:
    """Run a file on one sequence of the maximum length that has the last token, and check names and shapes of the outputs.

    Raises:
        ModelError: they do not match the task, are not finite, or there are too few embeddings.
    """
    ids = torch.full((1, saved.task.max_length), saved.tokenizer.vocab_size - 1)
    inputs = Batch(ids, torch.zeros_like(ids), torch.tensor([ids.shape[1]]), None)
    expected = compute_output_shapes(saved, inputs)
    arrays = session.run(inputs)
    for name, shape in expected.items():
        array = arrays.get(name)
        if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != shape:
            shapes = {key: getattr(each, "shape", type(each).__name__) for key, each in arrays.items()}
            raise ModelError(
                "wrong-outputs",
                f"{session.file}: for one sequence of {ids.shape[1]} tokens it has the outputs {str(shapes)[:300]}, expected "
                f"float32 {expected} from the task and its labels; export the model again",
            )
        if not np.isfinite(array).all():
            raise ModelError("not-finite", f"{session.file}: {name} is NaN or infinite; export the model again")


def compute_output_shapes(saved: SavedModel, inputs: Batch) -> dict[str, tuple[int, ...]]:
    """Compute the shapes of the outputs that a file must have for a batch: name -> shape."""
    size, length = inputs.input_ids.shape
    hidden = (size, length, saved.sizes.hidden_size)
    if saved.head_file is not None:
        return {HIDDEN: hidden}
    with use_meta_device():
        head = cast(Head, saved.build_head())
        outputs = head.predict(
            torch.empty(hidden)[:, :1] if head.only_cls else torch.empty(hidden), LabeledBatch(inputs, {})
        )
    return {name: tuple(tensor.shape) for name, tensor in outputs.items()}
