"""Prepared data on disk: a directory with memory-mapped Arrow files of examples.

manifest.json          written last: settings, counts, sizes, checksums
settings.json          written first
stamps.json            times of the last change of the text
train/00000.arrow …    input_ids: large_list<uint16 or uint32>, segment_a: int32; one batch
heldout/00000.arrow …  the same for held-out documents
unigrams.npy           int64 [V]: count of each token in the training text
tokenizer/             the tokenizer
chunks/00000.json …    records of finished chunks
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Int, Int64, UInt

from electra.data.content import check_shard, check_sources, read_counts
from electra.data.examples import Examples
from electra.data.manifest import MANIFEST, Checksum, Manifest, ShardEntry, SourceRun, Split
from electra.errors import DataError
from electra.schema import check_file
from electra.storage import write_atomically

UNIGRAMS = "unigrams.npy"
TOKENIZER = "tokenizer"
TOKENS_PER_COUNT = 1 << 16
"""Tokens counted at a time."""


class Example(NamedTuple):
    """`[CLS] a [SEP] b [SEP]`, a view into the memory map.

    The token types are 0 before position `segment_a` and 1 from there.
    """

    ids: UInt[np.ndarray, " T"]
    segment_a: int


class Shard:
    """Examples that are read at the first access to one of them.

    They are not read sooner because Linux can count 2 MB of a mapped file as memory of the process for each access.
    """

    def __init__(self, size: int, tokens: int, read: Callable[[], Examples]) -> None:
        self.size = size
        self.tokens = tokens
        self._read = read

    @cached_property
    def examples(self) -> Examples:
        return self._read()


class ExampleSet:
    """Examples in shards: opening the set takes no memory, and an example is read when it is accessed."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        self._shards = list(shards)
        self._first = np.cumsum([0, *(shard.size for shard in self._shards)])

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def tokens(self) -> int:
        """Tokens of all examples, with special tokens."""
        return sum(shard.tokens for shard in self._shards)

    def __getitem__(self, index: int) -> Example:
        return next(self.rows([range(len(self))[index]]))

    def rows(self, indices: Sequence[int] | Int[np.ndarray, " B"]) -> Iterator[Example]:
        """Yield the examples at `indices` (not negative), faster than one by one."""
        for shard, row in self._locate(indices):
            yield Example(shard.ids[shard.offsets[row] : shard.offsets[row + 1]], int(shard.segment_a[row]))

    def lengths(self, indices: Sequence[int] | Int[np.ndarray, " B"]) -> Int64[np.ndarray, " B"]:
        """Tokens of each example at `indices`, with special tokens."""
        lengths = (shard.offsets[row + 1] - shard.offsets[row] for shard, row in self._locate(indices))
        return np.fromiter(lengths, np.int64, len(indices))

    def _locate(self, indices: Sequence[int] | Int[np.ndarray, " B"]) -> Iterator[tuple[Examples, int]]:
        """Yield the shard of each example, and its row there."""
        indices = np.asarray(indices, dtype=np.int64)
        shards = np.searchsorted(self._first, indices, side="right") - 1
        for number, row in zip(shards.tolist(), (indices - self._first[shards]).tolist(), strict=True):
            yield self._shards[number].examples, row


@dataclass(frozen=True)
class PreparedData:
    """A directory that `prepare` finished."""

    path: Path
    manifest: Manifest
    train: ExampleSet
    heldout: ExampleSet
    unigrams: Int64[np.ndarray, " V"]
    """Count of each token in the training examples; 0 for [CLS] and [SEP], which are not in the text."""

    @classmethod
    def open(cls, path: str | Path) -> "PreparedData":
        """Check every file against the manifest. Raises DataError for a file that is missing, differs, or does not contain
        examples of these settings."""
        path = Path(path)
        manifest = Manifest.load(path)

        def open_checked(entry: ShardEntry) -> Shard:
            shard = _open_shard(path, entry)
            check_shard(path / entry.name, entry, manifest.settings)
            check_sources(path / MANIFEST, entry, manifest.settings)
            return shard

        with ThreadPoolExecutor() as pool:  # hashing releases the GIL
            train, heldout = (list(pool.map(open_checked, manifest.split(split))) for split in ("train", "heldout"))
        counts = read_counts(path / UNIGRAMS, _map_checked(path, UNIGRAMS, manifest.unigrams), manifest.vocab_size)
        return cls(path, manifest, ExampleSet(train), ExampleSet(heldout), counts)

    @property
    def tokenizer_path(self) -> Path:
        return self.path / TOKENIZER

    def check_tokenizer(self, fingerprint: str, vocab_size: int) -> None:
        """Raise DataError unless the data was prepared with the tokenizer of this fingerprint and size."""
        expected = self.manifest.settings.tokenizer
        if fingerprint != expected:
            raise DataError(
                "other-tokenizer",
                f"{self.path}: prepared with another tokenizer (its fingerprint is {expected[:12]}, "
                f"yours is {fingerprint[:12]}); "
                f"use the one in {self.tokenizer_path}, or prepare the text again with yours",
            )
        if vocab_size != self.manifest.vocab_size:
            raise DataError(
                "other-vocabulary",
                f"{self.path / MANIFEST}: a vocabulary of {self.manifest.vocab_size:,} tokens, but the tokenizer has "
                f"{vocab_size:,}; prepare the text again",
            )


def write_shard(
    directory: Path, split: Split, number: int, examples: Examples, sources: list[SourceRun] | None = None
) -> ShardEntry:
    """Write a shard atomically; `sources` are those of its examples. Raises StorageError."""
    name = f"{split}/{number:05}.arrow"
    ids = pa.LargeListArray.from_arrays(_to_arrow(examples.offsets), _to_arrow(examples.ids))
    batch = pa.record_batch({"input_ids": ids, "segment_a": _to_arrow(examples.segment_a)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    write_atomically(directory / name, data)
    return ShardEntry(name, len(examples), len(examples.ids), len(data), hashlib.sha256(data).hexdigest(), sources)


def _to_arrow(values: np.ndarray) -> pa.Array:
    """Convert without a copy; `pa.array` would import pandas (half a second, 50 MB) to check for its types."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def write_unigrams(directory: Path, shards: Iterable[ShardEntry], vocab_size: int, without: Sequence[int]) -> Checksum:
    """Count the tokens of shards and write the counts; those of the tokens `without` are set to 0.

    Raises DataError if a shard has changed, and StorageError.
    """
    counts = np.zeros(vocab_size, dtype=np.int64)
    for entry in shards:
        ids = _open_shard(directory, entry).examples.ids
        for start in range(0, len(ids), TOKENS_PER_COUNT):  # bincount converts to int64
            counts += np.bincount(ids[start : start + TOKENS_PER_COUNT], minlength=vocab_size)
    counts[list(without)] = 0
    file = io.BytesIO()
    np.save(file, counts)
    data = file.getvalue()
    write_atomically(directory / UNIGRAMS, data)
    return Checksum(len(data), hashlib.sha256(data).hexdigest())


def is_intact(directory: Path, entry: ShardEntry) -> bool:
    """Whether a shard exists and is unchanged."""
    try:
        _map_checked(directory, entry.name, entry)
    except DataError:
        return False
    return True


def _open_shard(directory: Path, entry: ShardEntry) -> Shard:
    return Shard(entry.examples, entry.tokens, partial(_get_examples, _map_checked(directory, entry.name, entry)))


def _get_examples(data: pa.Buffer) -> Examples:
    """Read the examples from a mapped file."""
    with pa.ipc.open_file(data) as reader:
        batch = reader.get_batch(0)
    ids, segment_a = batch.column("input_ids"), batch.column("segment_a")
    # As in `_to_arrow`: `to_numpy` would import pandas.
    return Examples(*map(np.from_dlpack, (ids.values, ids.offsets, segment_a)))


def _map_checked(directory: Path, name: str, expected: ShardEntry | Checksum) -> pa.Buffer:
    """Check the content of a file and map it.

    The check reads through a small buffer: pages read through the map count as memory of the process. The map remains valid
    after the file is closed, so that thousands of shards keep no file open.
    """
    path = directory / name
    advice = f"delete {directory / MANIFEST} and run electra prepare as before: only damaged parts are prepared again"
    try:
        check_file(path, DataError)
    except DataError as error:
        raise DataError(error.code, f"{error}; {advice}") from error
    try:
        if path.stat().st_size > expected.bytes:  # do not read it
            raise DataError(
                "wrong-size",
                f"{path}: {path.stat().st_size:,} bytes, expected {expected.bytes:,}: it was changed; {advice}",
            )
        size, sha256 = _hash_file(path)
        with pa.memory_map(str(path)) as file:
            data = file.read_buffer()
    except OSError as error:
        raise DataError("unreadable", f"{path}: cannot be read: {error.strerror or error}; {advice}") from error
    if size != expected.bytes:
        raise DataError(
            "wrong-size", f"{path}: {size:,} bytes, expected {expected.bytes:,}: it was truncated or changed; {advice}"
        )
    if sha256 != expected.sha256:
        raise DataError(
            "wrong-checksum",
            f"{path}: its checksum is {sha256[:12]}, expected {expected.sha256[:12]}: it was changed; {advice}",
        )
    return data


def _hash_file(path: Path) -> tuple[int, str]:
    """Compute size and SHA-256 through a small buffer; each thread has its own."""
    digest, size, block = hashlib.sha256(), 0, bytearray(1 << 18)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(memoryview(block)[:count])
            size += count
    return size, digest.hexdigest()
