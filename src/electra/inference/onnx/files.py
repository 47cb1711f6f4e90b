"""Names of ONNX files, and checks of a file before ONNX Runtime reads it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.errors import ModelError
from electra.external import one_line
from electra.schema import check_file

FILE_NAMES = {"fp32": "model.onnx", "int8": "model_quantized.onnx"}
"""Precision -> name of the file, as Hugging Face's optimum reads it."""
MAX_BYTES = (1 << 31) - 1
"""Maximum size of a file: protobuf's limit."""


def find_onnx_file(path: Path) -> Path | None:
    """Return an ONNX file, given as such or as its directory; of both precisions in one directory, the first one."""
    if path.suffix == ".onnx":
        return path if path.exists() else None
    return next((path / name for name in FILE_NAMES.values() if (path / name).exists()), None)


def check_onnx_file(file: Path) -> None:
    """Check that a file is ONNX, and that it names no files outside its folder, from which tensors would be read.

    Raises:
        ModelError: it is not a regular file or too large, cannot be parsed, or names such a file.
    """
    import onnx

    check_file(file, ModelError, MAX_BYTES)
    try:
        model = onnx.load(file, load_external_data=False)
    except Exception as error:  # the type depends on protobuf's implementation
        raise ModelError("not-onnx", f"{file}: not an ONNX file, or a truncated one ({one_line(error)})") from None
    if not model.HasField("graph"):
        raise ModelError("not-onnx", f"{file}: not an ONNX file: it has no graph")
    folder = file.parent.resolve()
    for location in iterate_locations(model):
        try:
            is_inside = (folder / location).resolve().is_relative_to(folder)
        except (OSError, ValueError):  # a NUL, or a circle of links
            is_inside = False
        if not is_inside:
            raise ModelError(
                "outside-folder", f"{file}: reads tensors from {location!r}, expected files in {file.parent} only"
            )


def iterate_locations(message: Any) -> Iterator[str]:
    """Yield the names of the files that hold tensors of a protobuf message, at any depth (graphs, functions, attributes)."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for each in [value] if hasattr(value, "ListFields") else value:
            if field.name == "external_data":
                yield from [each.value] if each.key == "location" else []
            else:
                yield from iterate_locations(each)
