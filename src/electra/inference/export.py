"""Export of models to formats of other programs; a new format is a row in `EXPORT_FORMATS`."""

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.config.checks import check_choice
from electra.errors import ModelError, UsageError
from electra.inference.onnx.export import export_onnx
from electra.inference.onnx.files import FILE_NAMES
from electra.inference.sources import ExportSource, load_source
from electra.model.hf_config import CONFIG_BYTES
from electra.runtime.setup import RuntimeConfig, start_runtime
from electra.schema import read_object
from electra.storage import check_writable, convert_os_errors, holds_files

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportFormat:
    """A format of exported models."""

    precisions: tuple[str, ...]
    """The first one is the default."""
    export: Callable[[ExportSource, str, Path, Path | None], dict[str, Any]]
    """Write the file of a network, in a precision, to a folder, after a comparison with PyTorch on random tokens or on a file
    of texts; return `file`, its name, and the results."""


EXPORT_FORMATS = {"onnx": ExportFormat(tuple(FILE_NAMES), export_onnx)}
"""Formats by name."""


def export(
    model: str, out: Path, format: str, precision: str | None, encoder: bool, texts: Path | None, threads: int | None
) -> dict[str, Any]:
    """Export a model to a new directory, which appears when it is complete; see `electra.commands.export`."""
    check_choice("--to", format, EXPORT_FORMATS)
    row = EXPORT_FORMATS[format]
    precision = precision or row.precisions[0]
    check_choice("--precision", precision, row.precisions)
    check_writable(out)
    if out.exists() and (not out.is_dir() or holds_files(out)):
        raise UsageError("not-empty", f"--out {out}: exists and is not an empty folder; name a new one")
    with start_runtime(RuntimeConfig("cpu", "float32", threads)):
        source = load_source(model, encoder)
        folder = out.absolute().parent / f".writing-{out.absolute().name}"
        with convert_os_errors(out):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            try:
                result = row.export(source, precision, folder, texts)
                write_companions(source, folder, encoder)
                folder.replace(out)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    file = out / result["file"]
    log.info(f"model saved in {file}", extra={"code": "saved"})
    return {"format": format, "precision": precision, **result, "file": str(file), "bytes": file.stat().st_size}


def write_companions(source: ExportSource, folder: Path, encoder: bool) -> None:
    """Write the configuration, the tokenizer, and what prediction reads of a fine-tuned model."""
    config = read_object(source.directory / "config.json", ModelError, CONFIG_BYTES)
    if encoder:
        config.pop("architectures", None)  # the class has the head that is left out
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    source.tokenizer.save(folder, source.network.positions)
    for name in source.files:
        shutil.copyfile(source.directory / name, folder / name)
