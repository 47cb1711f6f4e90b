"""Export of a network as an ONNX file that has been compared with PyTorch."""

from pathlib import Path
from typing import Any

from electra.errors import ModelError
from electra.external import require_extra
from electra.finetuning.batching import EncodedExamples
from electra.inference.onnx.comparison import TOLERANCE, Comparison, build_examples, compare
from electra.inference.onnx.files import FILE_NAMES
from electra.inference.onnx.graph import quantize, write_onnx
from electra.inference.onnx.session import OnnxSession
from electra.inference.sources import ExportSource


def export_onnx(source: ExportSource, precision: str, folder: Path, texts: Path | None) -> dict[str, Any]:
    """Write the ONNX file of a network to a folder, after a comparison with PyTorch.

    Args:
        source: The model.
        precision: fp32 or int8.
        folder: An existing folder.
        texts: File of texts for the comparison; by default random tokens of the vocabulary.

    Returns:
        `file`, the name of the file, and the results of the comparison: `sequences`, `max_difference`, `equal_predictions`.

    Raises:
        UsageError: the extra `onnx` is not installed.
        ModelError: the float32 file differs from PyTorch, or the network is too large.
        DataError: the texts cannot be read.
    """
    require_extra("onnx", "the format onnx")
    encoded = None if texts is None else source.encode_texts(texts)
    examples = build_examples(source.tokenizer, source.max_length, encoded, source.network.kind == "masked-lm")
    file = folder / FILE_NAMES["fp32"]
    write_onnx(source.network, file)
    found = compare_file(source, file, examples)
    if not found.max_excess <= TOLERANCE:
        raise ModelError(
            "differs",
            f"{source.directory}: its ONNX file differs from PyTorch by up to {found.max_difference:.3g}, expected at most "
            f"{TOLERANCE:g} (times the value, if that is over 1); nothing is written",
        )
    if precision == "int8":
        quantized = folder / FILE_NAMES["int8"]
        quantize(file, quantized)
        file.unlink()
        file, found = quantized, compare_file(source, quantized, examples)
    return {
        "file": file.name,
        "sequences": len(examples),
        "max_difference": found.max_difference,
        "equal_predictions": found.equal_predictions,
    }


def compare_file(source: ExportSource, file: Path, examples: EncodedExamples) -> Comparison:
    """Compare an ONNX file with PyTorch."""
    return compare(source.network, OnnxSession(file), examples, source.tokenizer.pad_id)
