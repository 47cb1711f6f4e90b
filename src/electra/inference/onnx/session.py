"""An ONNX file in ONNX Runtime, with the inputs of Hugging Face's ELECTRA classes."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from electra.data.batch import Batch
from electra.errors import ModelError
from electra.external import one_line
from electra.inference.onnx.files import check_onnx_file

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Names of the inputs, int64 [B, L] each; a file may lack the last one."""
FATAL = 4
"""Severity from which ONNX Runtime writes its own log records; its errors are raised too."""


class OnnxSession:
    """An ONNX file in memory, on the CPU.

    Raises:
        ModelError: the file is damaged, not ONNX, names files outside its folder, or has other inputs.
    """

    def __init__(self, file: Path) -> None:
        import onnxruntime

        check_onnx_file(file)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = FATAL
        self.file = file
        try:
            self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a class of its own for each status
            raise ModelError("unreadable", f"{file}: ONNX Runtime cannot read it ({one_line(error)})") from None
        self._inputs = check_inputs(file, self._session.get_inputs())
        self._outputs = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: Batch) -> dict[str, np.ndarray]:
        """Compute the outputs of a batch: name -> array [B, ...].

        Raises:
            ModelError: ONNX Runtime fails, for example because the file has embeddings for fewer tokens.
        """
        mask = inputs.attention_mask
        given = {
            "input_ids": inputs.input_ids,
            "attention_mask": torch.ones_like(inputs.input_ids) if mask is None else mask.long(),
            "token_type_ids": inputs.token_type_ids,
        }
        try:
            arrays = self._session.run(None, {name: given[name].numpy() for name in self._inputs})
        except Exception as error:
            raise ModelError("not-computable", f"{self.file}: ONNX Runtime fails ({one_line(error)})") from None
        return dict(zip(self._outputs, arrays, strict=True))


def check_inputs(file: Path, inputs: list[Any]) -> list[str]:
    """Return the names of a file's inputs, which must be those of `INPUTS` with two dimensions of any size.

    Raises:
        ModelError: they are others.
    """
    names = [each.name for each in inputs]
    missing = {"input_ids", "attention_mask"} - set(names)
    for each in inputs:
        fits = len(each.shape) == 2 and not any(isinstance(size, int) for size in each.shape)
        if missing or each.name not in INPUTS or each.type != "tensor(int64)" or not fits:
            found = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs)
            raise ModelError(
                "wrong-inputs",
                f"{file}: has the inputs {found[:300]}; expected {', '.join(INPUTS)}, each tensor(int64) with two "
                "dimensions of any size, as electra export writes them",
            )
    if missing:
        raise ModelError("wrong-inputs", f"{file}: has no inputs, expected {', '.join(INPUTS)}")
    return names
