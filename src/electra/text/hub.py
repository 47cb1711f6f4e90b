"""The Hugging Face hub: data sets as streams, `hf://owner/name[:config][@split]`; models, `owner/name[@revision]`."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from electra.errors import ElectraError, ModelError, TextError, UsageError
from electra.external import one_line, require_extra
from electra.text.fields import check_text, choose_field
from electra.text.formats import Piece, split_document

PREFIX = "hf://"
BATCH_ROWS = 64


MODEL_FILES = (
    *("config.json", "model.safetensors", "pytorch_model.bin", "vocab.txt", "tokenizer*.json"),
    *("modules.json", "1_Pooling/config.json", "*sentence*.json"),  # of sentence-transformers
)
"""Files of a model that are downloaded."""
MODEL_NAME = re.compile(r"(?P<name>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?", re.ASCII)


def require_hub(source: str) -> None:
    """Check that the packages of the extra `hub` are installed, before `source` is read from the hub. Raises a UsageError."""
    require_extra("hub", f"{source}: the hub")


def is_hub_name(name: str) -> bool:
    """Whether a model or tokenizer is to be looked for on the hub: no such file, no name of a file, and a name of the hub."""
    is_file = Path(name).suffix in (".txt", ".json", ".index") or ".ckpt" in name
    exists = Path(name).exists() or Path(f"{name}.index").exists()  # the latter is a TensorFlow checkpoint
    return not exists and not is_file and MODEL_NAME.fullmatch(name) is not None


def locate_model(name: str, error: type[ElectraError] = ModelError) -> Path:
    """Return the path that a name stands for: a local one as it is, for a model of the hub the directory of its download.

    Args:
        name: Path, or `owner/name` or `owner/name@revision` (a branch, a tag or a commit).
        error: Type of error for a model that is not there.

    Raises:
        ElectraError: of type `error`: there is neither a file nor a model on the hub of this name, or it cannot be reached.
        UsageError: a name of the hub, and the extra `hub` is not installed.
    """
    match = MODEL_NAME.fullmatch(name)
    if match is None or not is_hub_name(name):
        return Path(name)
    require_hub(name)
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError, RevisionNotFoundError

    try:
        return download_model(match["name"], match["revision"])
    except RevisionNotFoundError:
        raise error("no-revision", f"{name}: the model has no revision {match['revision']!r} on the hub") from None
    except LocalEntryNotFoundError as problem:  # no answer, and not in the cache
        offline = huggingface_hub.constants.HF_HUB_OFFLINE
        reason = "HF_HUB_OFFLINE is set" if offline else f"{huggingface_hub.constants.ENDPOINT} does not answer"
        raise error(
            "hub-unreachable",
            f"{name}: no such file or directory, and the hub cannot be asked: {reason}, and the cache has no such model; "
            f"download it elsewhere (hf download {match['name']} --local-dir FOLDER) and name the folder",
        ) from problem
    except Exception as problem:  # the type depends on the version of the library
        reason = f"{type(problem).__name__}: {one_line(problem, 300)}"
        raise error("missing", f"{name}: neither a file or directory nor a model on the hub ({reason})") from problem


@cache
def download_model(name: str, revision: str | None) -> Path:
    """Download a model of the hub, once per process, so that all of a run reads the same commit; return its directory."""
    import huggingface_hub

    return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=list(MODEL_FILES)))


def open_dataset(source: str, text_field: str) -> tuple[Any, str]:
    """Open a data set as a streaming `datasets.IterableDataset` with only its text column; return also the column's name.

    Raises:
        UsageError: the name is malformed, or the extra `hub` is not installed.
        TextError: the data set cannot be opened, or has no such column.
    """
    match = re.fullmatch(r"hf://(?P<name>[^:@]+)(:(?P<config>[^:@]+))?(@(?P<split>[^:@]+))?", source)
    if match is None:
        raise UsageError(
            "bad-address",
            f"{source}: expected hf://owner/name, hf://owner/name:config or hf://owner/name@split for a hub data set",
        )
    require_hub(source)
    import datasets

    try:
        dataset = datasets.load_dataset(match["name"], match["config"], split=match["split"] or "train", streaming=True)
        columns = dataset.column_names or list(next(iter(dataset.take(1)), {}))
    except Exception as error:  # the type depends on the file format and the file system
        raise TextError(
            "unreadable", f"{source}: cannot be opened: {type(error).__name__}: {one_line(error, 500)}"
        ) from error
    text_field = choose_field(columns, text_field, source, source)
    return dataset.select_columns([text_field]), text_field


def read_dataset(source: str, text_field: str) -> Iterator[Piece]:
    """Read a document per row. bytes_read is always 0 because the size is unknown."""
    dataset, text_field = open_dataset(source, text_field)
    batches, rows = dataset.iter(BATCH_ROWS), 0
    while True:
        try:
            texts = next(batches)[text_field]
        except StopIteration:
            return
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(error, 500)}"
            raise TextError("unreadable", f"{source}: reading failed after row {rows:,}: {reason}") from error
        for row, text in enumerate(texts, rows + 1):
            yield from split_document(check_text(text, text_field, f"{source}: row {row:,}"), 0)
        rows += len(texts)
