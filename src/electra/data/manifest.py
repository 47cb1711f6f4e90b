"""What prepared data says of itself: the settings it was made with, every file's size and checksum."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import Field

from electra.errors import DataError
from electra.schema import read_bytes, validate_json
from electra.storage import write_atomically
from electra.text.coverage import Coverage

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = "electra prepared data"
VERSION = 1
MANIFEST = "manifest.json"
SETTINGS = "settings.json"
MANIFEST_BYTES = 1 << 30
"""Some 400 bytes a chunk of text, and the names of all files."""

Split = Literal["train", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "heldout")


def is_prepared(data: str) -> bool:
    """Whether `data` is a directory that `electra prepare` made, or began to make: others have files of these names too."""
    files = (Path(data) / name for name in (MANIFEST, SETTINGS))
    return any(file.is_file() and b'"seq_len"' in read_bytes(file, DataError, MANIFEST_BYTES) for file in files)


Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1, le=10**7)]
T = TypeVar("T")


@dataclass(frozen=True)
class Header:
    """What every file of prepared data begins with."""

    format: str
    version: int | None = None


@dataclass(frozen=True)
class Settings:
    """What decides the content of prepared data. Written first, so that unfinished data says it too."""

    sources: list[tuple[str, int | None]]
    """Name and size of every file, as Corpus.describe gives them."""
    documents: str
    text_field: str
    tokenizer: str
    """Fingerprint."""
    vocab_size: Size
    seq_len: Size
    seed: int
    heldout: float


@dataclass(frozen=True)
class ShardEntry:
    """One file of examples."""

    name: Annotated[str, Field(pattern=r"^(train|heldout)/[0-9]+\.arrow$")]
    """Relative to the directory."""
    examples: Count
    tokens: Count
    """Special tokens included."""
    bytes: Count
    sha256: str


@dataclass(frozen=True)
class Checksum:
    bytes: Count
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Written last: a directory that has one is complete."""

    settings: Settings
    documents: Count
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

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that the data holds, out of the checksums of its files."""
        parts = [self.settings.tokenizer, self.unigrams.sha256, *(each.sha256 for each in self.train + self.heldout)]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

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
        return load_json(path, cls)


def load_settings(directory: Path) -> Settings:
    """Raises DataError where the file is damaged or of another version."""
    return load_json(directory / SETTINGS, Settings)


def save_json(path: Path, content: "DataclassInstance") -> None:
    """Raises StorageError."""
    write_atomically(path, json.dumps({"format": FORMAT, "version": VERSION} | asdict(content), indent=1).encode())


def load_json(path: Path, schema: type[T]) -> T:
    """What save_json wrote of a `schema`; anything else raises DataError."""
    data = read_bytes(path, DataError, MANIFEST_BYTES)
    try:
        header = validate_json(data, Header, str(path), DataError)
    except DataError as error:
        if data.lstrip()[:1] != b"{":  # what was cut is ours, what is no object is not
            raise make_foreign_error(path) from None
        raise make_foreign_error(path) if "not JSON" not in str(error) else make_damaged_error(path, error) from None
    if header.format != FORMAT:
        raise make_foreign_error(path)
    if header.version != VERSION:
        raise DataError(f"{path}: format version {header.version}, this electra reads {VERSION}; prepare the text anew")
    try:
        return validate_json(data, schema, str(path), DataError)
    except DataError as error:
        raise make_damaged_error(path, error) from None


def make_foreign_error(path: Path) -> DataError:
    """Of a file that others wrote."""
    return DataError(f"{path}: not written by electra prepare; choose another directory")


def make_damaged_error(path: Path, error: DataError) -> DataError:
    """Of a file that does not fit its schema."""
    reason = re.sub(r"^(\d+): ", r"line \1: ", str(error).removeprefix(f"{path}:").strip())
    return DataError(f"{path}: damaged ({reason}); delete it and prepare again: what is intact is not done anew")
