"""Duplicate documents of a corpus, found in a pass before the text is prepared.

The first of several equal or similar documents is kept. The result depends only on the documents, their order, the method
and the threshold.
"""

import hashlib
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from jaxtyping import Bool, Int64

from electra.config.checks import check_choice, check_number
from electra.data.manifest import SourceDuplicates
from electra.external import require_extra
from electra.text.corpus import Piece

Method = Literal["none", "exact", "minhash"]
THRESHOLD = 0.8
NUM_HASHES = 128
SHINGLE_WORDS = 5
MIN_RECALL = 0.99
"""Minimum probability with which a document whose similarity is the threshold is compared."""
CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Characters of Chinese and Japanese, each a word here: there are no spaces between words."""
find_words = re.compile(rf"[{CJK}]|[^\W{CJK}]+").findall


class Finder(Protocol):
    """Finds duplicates in a sequence of documents."""

    def add(self, lines: list[str]) -> None:
        """Add lines to the current document."""

    def end_document(self) -> None:
        """End the current document."""

    def list_duplicates(self) -> Bool[np.ndarray, " D"]:
        """Whether each document duplicates an earlier one."""


class ExactFinder:
    """Finds documents that are equal after normalization; takes less than 100 bytes of memory for each document.

    Normalization is Unicode's NFKC without case, and one space for all white space. Hashes have 128 bits.
    """

    def __init__(self) -> None:
        self._digests = bytearray()
        self._begin()

    def add(self, lines: list[str]) -> None:
        for line in lines:
            self._hash.update(" ".join(normalize(line).split()).encode("utf-8", "surrogatepass") + b" ")

    def end_document(self) -> None:
        self._digests += self._hash.digest()
        self._begin()

    def list_duplicates(self) -> Bool[np.ndarray, " D"]:
        first, second = np.frombuffer(self._digests, np.uint64).reshape(-1, 2).T
        order = np.lexsort((second, first))  # stable: the first of equal documents comes first
        equals_previous = (first[order][1:] == first[order][:-1]) & (second[order][1:] == second[order][:-1])
        found = np.zeros(len(order), dtype=bool)
        found[order[1:][equals_previous]] = True
        return found

    def _begin(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)


class MinHashFinder:
    """Finds documents whose sets of SHINGLE_WORDS consecutive words have an estimated Jaccard similarity of the threshold.

    The estimate is that of MinHash with NUM_HASHES hashes (Broder, 1997), whose standard error is 0.035 at a similarity of
    0.8. Candidates are found by locality-sensitive hashing: see `choose_bands`. A shorter document is one such sequence; one
    without words is never a duplicate. It takes less than 6 kB of memory for each document that is kept.
    """

    def __init__(self, threshold: float) -> None:
        import rensa

        self._new_sketch: Callable[[], Any] = lambda: rensa.RMinHash(num_perm=NUM_HASHES, seed=0)
        bands = choose_bands(threshold)
        self._kept = rensa.RMinHashDeduplicator(threshold, NUM_HASHES, use_lsh=True, num_bands=bands, seed=0)
        self._found: list[bool] = []
        self._tail: list[str] = []
        self._begin()

    def add(self, lines: list[str]) -> None:
        words = self._tail + [word for line in lines for word in find_words(normalize(line))]
        shingles = [" ".join(words[i : i + SHINGLE_WORDS]) for i in range(len(words) - SHINGLE_WORDS + 1)]
        if shingles:
            self._sketch.update(shingles)
            self._has_shingles = True
        self._tail = words[-(SHINGLE_WORDS - 1) :]

    def end_document(self) -> None:
        if not self._has_shingles and self._tail:
            self._sketch.update([" ".join(self._tail)])
        is_new = not self._tail or self._kept.add(str(len(self._found)), self._sketch)
        self._found.append(not is_new)
        self._begin()

    def list_duplicates(self) -> Bool[np.ndarray, " D"]:
        return np.array(self._found, dtype=bool)

    def _begin(self) -> None:
        self._sketch, self._tail, self._has_shingles = self._new_sketch(), [], False


@dataclass
class Documents:
    """Source and size of each document of a corpus."""

    sources: array = field(default_factory=lambda: array("L"))
    bytes: array = field(default_factory=lambda: array("Q"))

    def count(self, duplicates: Bool[np.ndarray, " D"], num_sources: int) -> list[SourceDuplicates]:
        """Count documents and bytes of each source, and those of the duplicates."""
        sources, sizes = np.frombuffer(self.sources, np.uint64).astype(np.int64), np.frombuffer(self.bytes, np.uint64)

        def add(numbers: np.ndarray) -> Int64[np.ndarray, " S"]:
            return np.bincount(sources, numbers, num_sources).astype(np.int64)

        ones = np.ones(len(sizes))
        columns = (add(ones), add(sizes), add(ones * duplicates), add(sizes * duplicates))
        return [SourceDuplicates(*row) for row in np.stack(columns, axis=1).tolist()]


def choose_bands(threshold: float) -> int:
    """Return the smallest number of bands with MIN_RECALL at the threshold.

    With b bands of r = NUM_HASHES / b hashes, two documents of similarity s are candidates with probability 1 - (1 - s^r)^b.
    """
    choices = [2**power for power in range(NUM_HASHES.bit_length())]
    return next((b for b in choices if 1 - (1 - threshold ** (NUM_HASHES // b)) ** b >= MIN_RECALL), NUM_HASHES)


def normalize(text: str) -> str:
    """Remove the differences of case and of Unicode's compatibility forms."""
    return unicodedata.normalize("NFKC", text).casefold()


def check_deduplication(method: str, threshold: float) -> None:
    """Check the options before text is read.

    Raises:
        UsageError: an unknown method, a threshold out of range, or the extra `dedup` is not installed.
    """
    check_choice("--deduplicate", method, ("none", "exact", "minhash"))
    check_number("--dedup-threshold", threshold, at_least=0.1, at_most=1)
    if method == "minhash":
        require_extra("dedup", "--deduplicate minhash")


def find_duplicates(
    corpus: Iterable[Piece],
    method: str,
    threshold: float,
    names: list[str],
    on_progress: Callable[[int], None] = lambda bytes_read: None,
) -> tuple[Bool[np.ndarray, " D"], list[SourceDuplicates]]:
    """Return whether each document is a duplicate, and the counts of each source; calls `on_progress` with bytes read."""
    finder: Finder = ExactFinder() if method == "exact" else MinHashFinder(threshold)
    documents, size = Documents(), 0
    for piece in corpus:
        finder.add(piece.lines)
        size += sum(len(line.encode("utf-8", "surrogatepass")) for line in piece.lines)
        if piece.ends_document:
            finder.end_document()
            documents.sources.append(piece.source)
            documents.bytes.append(size)
            size = 0
            on_progress(piece.bytes_read)
    duplicates = finder.list_duplicates()
    return duplicates, documents.count(duplicates, len(names))


def drop_documents(corpus: Iterable[Piece], duplicates: Bool[np.ndarray, " D"]) -> Iterator[Piece]:
    """Yield the pieces of the documents that are not duplicates."""
    number = 0
    for piece in corpus:
        # More documents than before: the text has changed meanwhile, which the caller finds by the times of its files.
        if number >= len(duplicates) or not duplicates[number]:
            yield piece
        number += piece.ends_document


def describe_duplicates(counts: list[SourceDuplicates], names: list[str]) -> str:
    """Describe what was dropped: documents, bytes and share, in total and by source."""
    total = SourceDuplicates(*map(sum, zip(*map(astuple, counts), strict=True)))
    parts = [f"{name}: {each}" for name, each in zip(names, counts, strict=True)] if len(names) > 1 else []
    return f"duplicates dropped: {'; '.join([str(total), *parts])}"
