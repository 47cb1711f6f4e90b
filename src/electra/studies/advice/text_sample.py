"""The size of a text in bytes and tokens, from a sample of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from electra.errors import TextError, UsageError
from electra.text.corpus import Corpus
from electra.text.vocabulary import train_on_sample

SAMPLE_BYTES = 4 << 20
"""Text for which tokens are counted: a vocabulary of 30,522 is trained on it in two seconds."""
SAMPLE_FILES = 64
"""Most files of a larger text that are sampled."""
MEASURED_BLOCKS = 4
"""Blocks of a file (1 MB each) over which its text per byte on disk is measured. The first one does not count: decompression
reads ahead."""


@dataclass(frozen=True)
class TextSample:
    """Lines of a text, and its size."""

    name: str
    """Of the text, for messages."""
    lines: list[str]
    text_bytes: float
    """Bytes of the whole text, decompressed and without other fields of its records; estimated if it is not complete."""
    is_complete: bool
    """Whether these are all lines."""

    def estimate_tokens(self, vocab_size: int, cased: bool, keep_accents: bool) -> float:
        """Estimate the tokens of the whole text by a vocabulary of this size that is trained on it.

        Of an incomplete sample, one half trains the vocabulary and the other half is counted: its own words are few tokens.

        Raises:
            TextError: the sample has control characters only.
        """
        trained, counted = (self.lines[::2], self.lines[1::2]) if not self.is_complete else (self.lines, self.lines)
        counted = counted or trained
        pieces = ["\n".join(trained).encode()]
        tokenizer = train_on_sample(pieces, vocab_size, cased, keep_accents, self.name)
        tokens = sum(map(len, tokenizer.encode_lines(counted)))
        return tokens / sum(map(count_bytes, counted)) * self.text_bytes


def count_bytes(line: str) -> int:
    """Count the bytes of a line and its end."""
    return len(line.encode()) + 1


def sample_text(corpus: Corpus) -> TextSample:
    """Read a sample of a corpus: all of a small one, otherwise the first part of files at regular intervals of bytes.

    Raises:
        TextError: a file cannot be read, or the sample is empty.
        UsageError: a source is a data set of the hub.
    """
    files = [(name, size) for name, size in corpus.describe() if size is not None]
    if len(files) < len(corpus.describe()):
        raise UsageError(
            "unknown-size",
            f"{', '.join(corpus.sources)}: the size of a data set of the hub is not known before all of it is read; download "
            "it, and name its files",
        )
    name, total = ", ".join(corpus.sources), sum(size for _, size in files)
    chosen = [(file, size, size) for file, size in files] if total <= SAMPLE_BYTES else choose_files(files, total)
    lines: list[str] = []
    text_bytes, is_complete = 0.0, len(chosen) == len(files)
    for file, size, weight in chosen:
        limit = SAMPLE_BYTES if total <= SAMPLE_BYTES else SAMPLE_BYTES * weight // total
        part = sample_file(replace(corpus, sources=(file,)), size, limit)
        lines += part.lines
        text_bytes += part.text_per_byte * weight
        is_complete &= part.is_complete
    if not lines:
        raise TextError("no-text", f"{name}: no text")
    return TextSample(name, lines, text_bytes, is_complete)


def choose_files(files: Sequence[tuple[str, int]], total: int) -> list[tuple[str, int, int]]:
    """Choose the files at regular intervals of the bytes of all; with the size of each, and the bytes that it stands for."""
    chosen = []
    point, end = 0, 0
    for name, size in files:
        end += size
        points = range(point, min(SAMPLE_FILES, round(end / total * SAMPLE_FILES)))
        if points:
            chosen.append((name, size, total * len(points) // SAMPLE_FILES))
            point = points.stop
    return chosen


@dataclass(frozen=True)
class FileSample:
    """The first lines of a file."""

    lines: list[str]
    text_per_byte: float
    """Bytes of text per byte on disk."""
    is_complete: bool
    """Whether these are all lines."""


def sample_file(corpus: Corpus, size: int, limit: int) -> FileSample:
    """Read about `limit` bytes of the text of a file of `size` bytes, and at least some blocks of it."""
    lines: list[str] = []
    text_bytes = 0
    blocks: list[tuple[int, int]] = []
    """Bytes on disk at the end of each block, and bytes of text up to there."""
    block = 0
    for piece in corpus:
        if piece.bytes_read != block:
            blocks.append((block, text_bytes))
            block = piece.bytes_read
            if text_bytes >= limit and len(blocks) > MEASURED_BLOCKS + 1:
                (first_disk, first_text), (disk, text) = blocks[1], blocks[-1]
                return FileSample(lines, (text - first_text) / (disk - first_disk), False)
        for line in piece.lines:
            if text_bytes < limit:
                lines.append(line)
            text_bytes += count_bytes(line)
    return FileSample(lines, text_bytes / max(1, size), sum(map(count_bytes, lines)) == text_bytes)
