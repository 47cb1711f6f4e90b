"""Our encoder in ONNX Runtime, as a replacement for the PyTorch module."""

import logging
import warnings

import onnxruntime
import torch
from torch import Tensor, nn

from electra.model.encoder import Encoder

INPUTS = ("input_ids", "token_type_ids", "attention_mask", "positions")


class OnnxEncoder(nn.Module):
    """An encoder exported with dynamic rows and length; it returns the hidden state at one position, on the CPU."""

    def __init__(self, encoder: Encoder, threads: int) -> None:
        super().__init__()
        ids = torch.zeros(2, 8, dtype=torch.long)
        rows, length = torch.export.Dim("rows"), torch.export.Dim("length", max=encoder.config.max_positions)
        # The exporter logs every operator of packages that are not installed.
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation warnings of the exporter's own calls
            program = torch.onnx.export(
                encoder.eval(),
                (ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool), ids[:, :1]),
                input_names=INPUTS,
                output_names=["hidden"],
                dynamic_shapes=(*({0: rows, 1: length},) * 3, {0: rows}),
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(
            program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None, positions: Tensor
    ) -> Tensor:
        """As `Encoder.forward`."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids, dtype=torch.bool)
        given = (input_ids, token_type_ids, attention_mask, positions)
        (hidden,) = self.session.run(None, {name: each.numpy() for name, each in zip(INPUTS, given, strict=True)})
        return torch.from_numpy(hidden)
