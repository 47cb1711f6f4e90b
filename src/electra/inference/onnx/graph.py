"""ONNX graphs of networks, and their quantization.

Shapes: B sequences, L tokens.
"""

import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from electra.data.batch import Batch
from electra.errors import ModelError
from electra.inference.onnx.files import MAX_BYTES
from electra.inference.onnx.session import INPUTS
from electra.inference.sources import ExportedNetwork


class ExportModule(nn.Module):
    """A network with the inputs of Hugging Face's classes."""

    def __init__(self, network: ExportedNetwork) -> None:
        super().__init__()
        self.module = network.module
        self.compute = network.compute

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Compute the outputs from int64 inputs [B, L]."""
        inputs = Batch(input_ids, token_type_ids, attention_mask.sum(1), attention_mask.bool())
        return tuple(self.compute(inputs).values())


def write_onnx(network: ExportedNetwork, file: Path) -> None:
    """Write a network as an ONNX file in float32 with any number of sequences and tokens.

    Raises:
        ModelError: the network is larger than an ONNX file can be.
    """
    size = sum(parameter.nbytes for parameter in network.module.parameters())
    if size > MAX_BYTES:
        raise ModelError(
            "too-large", f"the network has {size:,} bytes in float32; an ONNX file has at most {MAX_BYTES:,}"
        )
    ids = torch.zeros(2, min(8, network.positions), dtype=torch.long)
    mask = torch.ones_like(ids)
    with torch.no_grad():
        names = list(network.compute(Batch(ids, ids, mask.sum(1), mask.bool())))
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=network.positions)}
    exporter_log = logging.getLogger("torch.onnx")
    level = exporter_log.level
    exporter_log.setLevel(logging.ERROR)  # it logs every operator of packages that are not installed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation warnings of the exporter's own calls
            program = torch.onnx.export(
                ExportModule(network).eval(),
                (ids, mask, torch.zeros_like(ids)),
                input_names=INPUTS,
                output_names=names,
                dynamic_shapes=(sizes,) * len(INPUTS),
                dynamo=True,
                verbose=False,
            )
    finally:
        exporter_log.setLevel(level)
    assert program is not None
    model = program.model_proto
    remove_traces(model.graph)
    file.write_bytes(model.SerializeToString())


def remove_traces(graph: Any) -> None:
    """Remove the exporter's metadata, which has stack traces with paths of this machine."""
    for each in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer, *graph.value_info):
        each.ClearField("metadata_props")
        each.ClearField("doc_string")


def quantize(source: Path, target: Path) -> None:
    """Write an ONNX file with int8 weights, and activations quantized as they are computed (ONNX Runtime's defaults)."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # It recommends on the root logger, to which it would add a handler, to optimize the graph first; the exporter has done so.
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    root.addFilter(drop_record)
    try:
        quantize_dynamic(source, target, weight_type=QuantType.QInt8)
    finally:
        root.removeFilter(drop_record)
        root.removeHandler(handler)


def drop_record(record: logging.LogRecord) -> bool:
    """Drop a log record."""
    return False
