"""Manifest of prepared data: its settings, and the size and checksum of every file."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import Field

from electra.errors import DataError
from electra.external import format_count
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
"""Maximum size; about 400 bytes per chunk of text, and the names of all files."""

Split = Literal["train", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "heldout")


def is_prepared(data: str) -> bool:
    """Whether `electra prepare` created the directory `data`; checks the content, because other programs use these names."""
    files = (Path(data) / name for name in (MANIFEST, SETTINGS))
    return any(file.is_file() and b'"seq_len"' in read_bytes(file, DataError, MANIFEST_BYTES) for file in files)


Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1, le=10**7)]
T = TypeVar("T")
SourceRun = tuple[Count, Count]
"""Consecutive examples of one source: its index in `Settings.names`, and their number."""


@dataclass(frozen=True)
class Header:
    """First keys of every JSON file of prepared data."""

    format: str
    version: int | None = None


@dataclass(frozen=True)
class Settings:
    """Settings that determine the content of prepared data. They are written first, so that unfinished data has them."""

    sources: list[tuple[str, int | None]]
    """Name and size of every file, as in Corpus.describe."""
    documents: str
    text_field: str
    tokenizer: str
    """Fingerprint of the tokenizer."""
    vocab_size: Size
    seq_len: Size
    seed: int
    heldout: float
    names: list[str] | None = None
    """The sources as they were given, as in Corpus.sources; None in data of older versions."""
    deduplicate: str = "none"
    dedup_threshold: float | None = None
    """None unless the method has one."""


@dataclass(frozen=True)
class ShardEntry:
    """A file of examples."""

    name: Annotated[str, Field(pattern=r"^(train|heldout)/[0-9]+\.arrow$")]
    """Path relative to the directory."""
    examples: Count
    tokens: Count
    """Tokens with special tokens."""
    bytes: Count
    sha256: str
    sources: list[SourceRun] | None = None
    """The examples in their order by source; None in data of older versions."""


@dataclass(frozen=True)
class Checksum:
    bytes: Count
    sha256: str


@dataclass(frozen=True)
class SourceDuplicates:
    """Size of a source, and of its documents that were dropped because they duplicate earlier ones."""

    documents: Count
    bytes: Count
    """Bytes of the text in UTF-8."""
    dropped_documents: Count
    dropped_bytes: Count

    def __str__(self) -> str:
        share = self.dropped_bytes / max(self.bytes, 1)
        return (
            f"{self.dropped_documents:,} of {format_count(self.documents, 'document')}, "
            f"{self.dropped_bytes / 1e6:,.2f} of {self.bytes / 1e6:,.2f} MB ({share:.1%})"
        )


@dataclass(frozen=True)
class Manifest:
    """Content of prepared data. It is written last: a directory that has one is complete."""

    settings: Settings
    documents: Count
    heldout_from: Literal["documents", "end"]
    """Whether complete documents are held out, or, if no document is eligible, the end of the last one."""
    train: list[ShardEntry]
    heldout: list[ShardEntry]
    unigrams: Checksum
    coverage: Coverage | None = None
    """How well the vocabulary covers the text; None in data of older versions."""
    duplicates: list[SourceDuplicates] | None = None
    """What deduplication dropped of each source in `Settings.names`; None without deduplication."""

    @property
    def seq_len(self) -> int:
        return self.settings.seq_len

    @property
    def vocab_size(self) -> int:
        return self.settings.vocab_size

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the content of the data, from the checksums of its files."""
        parts = [self.settings.tokenizer, self.unigrams.sha256, *(each.sha256 for each in self.train + self.heldout)]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def split(self, name: Split) -> list[ShardEntry]:
        return self.train if name == "train" else self.heldout

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Load the manifest. Raises DataError if the data is missing, unfinished, of another version, or not readable."""
        path = directory / MANIFEST
        if not path.exists():
            if (directory / SETTINGS).exists():
                raise DataError(
                    "unfinished",
                    f"{directory}: preparation was not finished (there is no {MANIFEST}); "
                    "run the same command again to resume it",
                )
            advice = "electra prepare creates prepared data"
            if directory.exists():
                raise DataError("no-manifest", f"{directory}: not prepared data (there is no {MANIFEST}); {advice}")
            raise DataError("missing", f"{directory}: no such directory; {advice}")
        return load_json(path, cls)


def load_settings(directory: Path) -> Settings:
    """Load the settings. Raises DataError if the file is damaged or of another version."""
    return load_json(directory / SETTINGS, Settings)


def save_json(path: Path, content: "DataclassInstance") -> None:
    """Write a dataclass with the header. Raises StorageError."""
    write_atomically(path, json.dumps({"format": FORMAT, "version": VERSION} | asdict(content), indent=1).encode())


def load_json(path: Path, schema: type[T]) -> T:
    """Load what `save_json` wrote for a `schema`; anything else raises DataError."""
    data = read_bytes(path, DataError, MANIFEST_BYTES)
    try:
        header = validate_json(data, Header, str(path), DataError)
    except DataError as error:
        if data.lstrip()[:1] != b"{":  # a truncated object may be from this package, anything else is not
            raise make_foreign_error(path) from None
        raise make_foreign_error(path) if error.code != "not-json" else make_damaged_error(path, error) from None
    if header.format != FORMAT:
        raise make_foreign_error(path)
    if header.version != VERSION:
        raise DataError(
            "other-version", f"{path}: format version {header.version}, expected {VERSION}; prepare the text again"
        )
    try:
        return validate_json(data, schema, str(path), DataError)
    except DataError as error:
        raise make_damaged_error(path, error) from None


def make_foreign_error(path: Path) -> DataError:
    """Build the error for a file that another program wrote."""
    return DataError("not-prepared", f"{path}: not written by electra prepare; choose another directory")


def make_damaged_error(path: Path, error: DataError) -> DataError:
    """Build the error for a file that does not match its schema."""
    reason = re.sub(r"^(\d+): ", r"line \1: ", str(error).removeprefix(f"{path}:").strip())
    return DataError("damaged", f"{path}: damaged ({reason}); delete it and prepare again: intact parts are reused")
