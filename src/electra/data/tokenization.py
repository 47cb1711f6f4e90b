"""Tokenize a chunk of text, cut it into examples, and write its shards; runs in the worker processes."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from electra.data.chunks import Chunk, Document
from electra.data.examples import Examples, cut_examples, pack_examples
from electra.data.manifest import ShardEntry, SourceRun, Split, load_json, save_json
from electra.data.shards import is_intact, write_shard
from electra.errors import DataError
from electra.seeding import Stream, build_numpy_generator
from electra.text.cached_encoder import LineEncoder
from electra.text.coverage import Coverage, CoverageCounter

CHUNKS = "chunks"


@dataclass(frozen=True)
class ChunkRecord:
    """Record of a finished chunk; its file is written after its shards."""

    number: int
    digest: str
    documents: int
    cuts_end: bool
    train: ShardEntry | None
    heldout: ShardEntry | None
    coverage: Coverage | None = None
    """How well the vocabulary covers the text; None in records of older versions."""


@dataclass(frozen=True)
class ChunkWriter:
    """Callable that writes the shards of a chunk."""

    directory: Path
    encoder: LineEncoder
    seq_len: int
    seed: int

    @cached_property
    def counter(self) -> CoverageCounter:
        """Counter of the encoder's tokens; cached, because building it reads the whole vocabulary."""
        return CoverageCounter(self.encoder.tokenizer)

    def __call__(self, chunk: Chunk) -> ChunkRecord:
        """Write the shards and the record of a chunk. Raises StorageError."""
        rng = build_numpy_generator(Stream.EXAMPLE_CUTTING, self.seed, chunk.number)

        def write(split: Split) -> tuple[ShardEntry | None, Coverage]:
            documents = [document for document in chunk.documents if document.heldout == (split == "heldout")]
            examples, sources, coverage = build_examples(documents, self.encoder, self.counter, self.seq_len, rng)
            entry = write_shard(self.directory, split, chunk.number, examples, sources) if len(examples) else None
            return entry, coverage

        (train, of_train), (heldout, of_heldout) = write("train"), write("heldout")
        coverage = of_train + of_heldout
        record = ChunkRecord(chunk.number, chunk.digest(), chunk.started, chunk.cuts_end, train, heldout, coverage)
        save_json(self.directory / format_record_name(chunk.number), record)
        return record


def format_record_name(number: int) -> str:
    return f"{CHUNKS}/{number:05}.json"


def load_finished_record(directory: Path, chunk: Chunk) -> ChunkRecord | None:
    """Load the record of a chunk if its shards are intact and from the same text; otherwise None."""
    path = directory / format_record_name(chunk.number)
    if not path.exists():
        return None
    try:
        record = load_json(path, ChunkRecord)
    except DataError:
        return None  # damaged: the chunk is prepared again
    entries = [entry for entry in (record.train, record.heldout) if entry]
    is_old = record.coverage is None or any(entry.sources is None for entry in entries)
    if is_old or record.digest != chunk.digest():
        return None
    return record if all(is_intact(directory, entry) for entry in entries) else None


def is_made_of(directory: Path, chunks: Iterable[Chunk]) -> bool:
    """Whether finished data was prepared from exactly these chunks. Raises DataError if their records cannot be read."""
    number = 0
    for chunk in chunks:
        path = directory / format_record_name(chunk.number)
        if not path.exists() or load_json(path, ChunkRecord).digest != chunk.digest():
            return False
        number += 1
    return number == sum(1 for _ in (directory / CHUNKS).glob("*.json"))


def build_examples(
    documents: list[Document], encoder: LineEncoder, counter: CoverageCounter, seq_len: int, rng: np.random.Generator
) -> tuple[Examples, list[SourceRun], Coverage]:
    """Build the examples of documents in order, list their sources, and count how well the vocabulary covers them."""
    tokens, lengths = encoder.encode([line for document in documents for line in document.lines])
    tokenizer = encoder.tokenizer
    cuts = [np.zeros((0, 3), np.int64)]
    sources: Counter[int] = Counter()  # a corpus has all documents of a source in sequence
    line = position = 0
    for document in documents:
        of_document = lengths[line : line + len(document.lines)].tolist()
        cuts.append(cut_examples(of_document, seq_len, rng) + position)
        sources[document.source] += len(cuts[-1])
        line += len(of_document)
        position += sum(of_document)
    examples = pack_examples(tokens, np.concatenate(cuts), tokenizer.cls_id, tokenizer.sep_id)
    return examples, list(sources.items()), counter.count(tokens)
