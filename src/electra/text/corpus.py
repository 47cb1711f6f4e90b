"""Corpus: a stream of documents from files, folders, hub data sets and built-in text."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, get_args

from electra.errors import TextError, UsageError
from electra.external import refuse_special_file
from electra.text import hub
from electra.text.builtin import get_builtin_text
from electra.text.files import list_files, make_read_error
from electra.text.formats import Documents, Encoding, Piece, ReadOptions, describe_formats, find_reader

__all__ = ["BUILTIN", "Corpus", "Documents", "Encoding", "Piece", "make_absolute"]

BUILTIN = "builtin"


def make_absolute(source: str) -> str:
    """Make the path of a source absolute, so that it means the same text in any folder; other sources stay as they are."""
    return source if source == BUILTIN or source.startswith("hf://") else str(Path(source).absolute())


class SourceFile(NamedTuple):
    name: str
    path: Path
    size: int
    stamp: tuple[int, int]
    """mtime and ctime in nanoseconds."""
    documents: Documents
    source: int
    """Index in `Corpus.sources`."""


class Listing(NamedTuple):
    files: tuple[SourceFile, ...]
    skipped: tuple[Path, ...]


@dataclass(frozen=True)
class Corpus:
    """Text of `sources` in their order; the same files always yield the same documents.

    Folders are read recursively in sorted order, without hidden files; a file that is named twice, directly or by its folder,
    is read once, at its first position. The files are listed once per Corpus, at its first use.
    """

    sources: tuple[str, ...]
    """Files, folders, hub data sets (hf://owner/name[:config][@split], or hf:///folder for one on disk), or
    "builtin"."""
    documents: Documents = "blank-line"
    """What ends a document of a .txt file, besides the end of the file: a blank line, nothing else, or every line."""
    text_field: str = "text"
    """Field of .jsonl records, or column of .parquet files and hub data sets, with the text of a document."""
    encoding_errors: Encoding = "strict"
    """Raise TextError for bytes that are not UTF-8, or replace them by U+FFFD."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise UsageError("no-text", "no text given: give files, folders, hf://owner/name, or builtin")
        if not all(source.strip() for source in self.sources):
            raise UsageError(
                "empty-name", "an empty name among the text; give files, folders, hf://owner/name, or builtin"
            )
        for name, value, known in (
            ("documents", self.documents, get_args(Documents)),
            ("encoding_errors", self.encoding_errors, get_args(Encoding)),
        ):
            if value not in known:
                raise UsageError("unknown-choice", f"{name}={value!r} is not one of {', '.join(known)}")

    def __iter__(self) -> Iterator[Piece]:
        """Yield the documents in pieces. Raises TextError with file and line if something cannot be read."""
        before = 0
        for file in self._listing.files:
            for piece in self._read(file):
                yield piece._replace(bytes_read=before + piece.bytes_read, source=file.source)
            before += file.size
        for source in self._hub_sources:
            for piece in hub.read_dataset(source, self.text_field):
                yield piece._replace(bytes_read=before, source=self.sources.index(source))

    def check(self) -> None:
        """Check that every source exists, can be opened and has a known format. Raises TextError or UsageError.

        Files are opened but not read. For a hub data set, the description is fetched and the columns are checked.
        """
        for file in self._listing.files:
            try:
                file.path.open("rb").close()
            except OSError as error:
                raise make_read_error(file.path, error) from error
        for source in self._hub_sources:
            hub.open_dataset(source, self.text_field)

    def total_bytes(self) -> int | None:
        """Bytes on disk, as in Piece.bytes_read; None if a source is a hub data set."""
        return None if self._hub_sources else sum(file.size for file in self._listing.files)

    def describe(self) -> list[tuple[str, int | None]]:
        """List name and size of every file, None for a hub data set; another list means another corpus."""
        files: list[tuple[str, int | None]] = [(file.name, file.size) for file in self._listing.files]
        return files + [(source, None) for source in self._hub_sources]

    def stamps(self) -> dict[str, tuple[int, int]]:
        """File name -> mtime and ctime in nanoseconds.

        A file with the same size and stamp is unchanged: a program can reset mtime but not ctime. Copying or touching a file
        changes the stamp.
        """
        return {file.name: file.stamp for file in self._listing.files}

    def skipped(self) -> tuple[Path, ...]:
        """Files in folders that are not read because their format is unknown."""
        return self._listing.skipped

    @property
    def _hub_sources(self) -> list[str]:
        return list(dict.fromkeys(source for source in self.sources if source.startswith(hub.PREFIX)))

    @cached_property
    def _listing(self) -> Listing:
        files: dict[Path, SourceFile] = {}
        skipped: list[Path] = []
        for number, source in enumerate(self.sources):
            if source.startswith(hub.PREFIX):
                continue
            for file in self._find(source, number, skipped):
                files.setdefault(file.path.resolve(), file)
        return Listing(tuple(files.values()), tuple(skipped))

    def _find(self, source: str, number: int, skipped: list[Path]) -> Iterator[SourceFile]:
        if source == BUILTIN:
            path = get_builtin_text()
            yield describe_file(BUILTIN, path, "blank-line", number)
            return
        path = Path(source)
        refuse_special_file(path, TextError)
        try:
            path.stat()
        except OSError as error:
            raise make_read_error(path, error) from error
        found = list(list_files(path)) if path.is_dir() else [path]
        check_one_split(path, found)
        known = [file for file in found if find_reader(file)]
        if not path.is_dir() and not known:
            raise TextError("unknown-format", f"{path}: unknown text format; the formats are {describe_formats()}")
        if not known:
            raise TextError(
                "no-text",
                f"{path}: no text in this folder: none of its {len(found):,} files is one of {describe_formats()}",
            )
        skipped.extend(file for file in found if not find_reader(file))
        for file in known:
            refuse_special_file(file, TextError)
            yield describe_file(str(file), file, self.documents, number)

    def _read(self, file: SourceFile) -> Iterator[Piece]:
        reader = find_reader(file.path)
        assert reader is not None, f"{file.path} was listed without a reader"
        return reader.read(file.path, ReadOptions(file.documents, self.text_field, self.encoding_errors))


def check_one_split(folder: Path, files: list[Path]) -> None:
    """Raise TextError for a folder with several splits of a data set that Hugging Face datasets saved."""
    if folder / "dataset_dict.json" not in files:
        return
    splits = sorted({file.parent.name for file in files if file.parent != folder})
    if len(splits) > 1:
        raise TextError(
            "several-splits",
            f"{folder}: a saved data set with {len(splits)} splits ({', '.join(splits)}); name those to train on, "
            f"as {folder / splits[-1]}",
        )


def describe_file(name: str, path: Path, documents: Documents, source: int) -> SourceFile:
    """Describe a file by its current size and times. Raises TextError for a broken link."""
    try:
        stat = path.stat()
    except OSError as error:
        raise make_read_error(path, error) from error
    return SourceFile(name, path, stat.st_size, (stat.st_mtime_ns, stat.st_ctime_ns), documents, source)
