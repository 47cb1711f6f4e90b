"""What prepared data says of itself: the settings it was made with, every file's size and checksum."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from electra.errors import DataError
from electra.storage import write_atomically
from electra.text.coverage import Coverage

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = "electra prepared data"
VERSION = 1
MANIFEST = "manifest.json"
SETTINGS = "settings.json"

Split = Literal["train", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "heldout")


def is_prepared(data: str) -> bool:
    """Whether `data` is a directory that `electra prepare` made, or began to make: others have files of these names too."""
    files = (Path(data) / name for name in (MANIFEST, SETTINGS))
    return any(file.is_file() and '"seq_len"' in file.read_text(errors="replace") for file in files)


@dataclass(frozen=True)
class Settings:
    """What decides the content of prepared data. Written first, so that unfinished data says it too."""

    sources: list[tuple[str, int | None]]
    """Name and size of every file, as Corpus.describe gives them."""
    documents: str
    text_field: str
    tokenizer: str
    """Fingerprint."""
    vocab_size: int
    seq_len: int
    seed: int
    heldout: float


@dataclass(frozen=True)
class ShardEntry:
    """One file of examples."""

    name: str
    """Relative to the directory."""
    examples: int
    tokens: int
    """Special tokens included."""
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Checksum:
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Written last: a directory that has one is complete."""

    settings: Settings
    documents: int
    heldout_from: Literal["documents", "end"]
    """Whole documents are held out, or where there are no two to choose from, the end of the last one."""
    train: list[ShardEntry]
    heldout: list[ShardEntry]
    unigrams: Checksum
    coverage: Coverage | None = None
    """How well the vocabulary spells the text; None in data prepared before this was counted."""

    @property
    def seq_len(self) -> int:
        return self.settings.seq_len

    @property
    def vocab_size(self) -> int:
        return self.settings.vocab_size

    def split(self, name: Split) -> list[ShardEntry]:
        return self.train if name == "train" else self.heldout

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Raises DataError: no prepared data here, not finished, of another version, or not readable."""
        path = directory / MANIFEST
        if not path.exists():
            if (directory / SETTINGS).exists():
                raise DataError(
                    f"{directory}: preparing it was not finished (there is no {MANIFEST}); "
                    "run the same command that began it again: it goes on where it stopped"
                )
            what = f"not prepared data (there is no {MANIFEST})" if directory.exists() else "no such directory"
            raise DataError(f"{directory}: {what}; electra prepare makes one")
        content = load_json(path)
        try:
            return cls(
                **content
                | {
                    "settings": _settings(content["settings"]),
                    "train": [ShardEntry(**entry) for entry in content["train"]],
                    "heldout": [ShardEntry(**entry) for entry in content["heldout"]],
                    "unigrams": Checksum(**content["unigrams"]),
                    "coverage": Coverage(**content["coverage"]) if content.get("coverage") else None,
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, error) from error


def load_settings(directory: Path) -> Settings:
    """Raises DataError where the file is damaged or of another version."""
    path = directory / SETTINGS
    content = load_json(path)
    try:
        return _settings(content)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from error


def save_json(path: Path, content: "DataclassInstance") -> None:
    """Raises StorageError."""
    write_atomically(path, json.dumps({"format": FORMAT, "version": VERSION} | asdict(content), indent=1).encode())


def load_json(path: Path) -> dict[str, Any]:
    """The fields that save_json wrote; anything else raises DataError."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise _damaged(path, error) from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise DataError(f"{path}: not written by electra prepare; choose another directory")
    if (version := content.pop("version", None)) != VERSION:
        raise DataError(f"{path}: format version {version}, this electra reads {VERSION}; prepare the text anew")
    return content


def _settings(content: dict[str, Any]) -> Settings:
    return Settings(**content | {"sources": [(name, size) for name, size in content["sources"]]})


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: damaged ({error}); delete it and prepare again: what is intact is not done anew")
