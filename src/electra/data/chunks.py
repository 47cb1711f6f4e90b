"""Split a corpus into chunks of complete documents, the units of preparation, and select held-out documents."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from electra.text.corpus import Piece

CHUNK_CHARS = 4 << 20
"""A chunk ends after the document that reaches this size, and inside a document only at twice this size."""

HELDOUT_END = 0.05
"""Share of the text that is held out at the end of the last document if no document is held out."""


@dataclass(frozen=True)
class Document:
    """A document, or the part of it in a chunk."""

    lines: list[str]
    heldout: bool = False
    source: int = 0
    """Index in `Corpus.sources`."""


@dataclass(frozen=True)
class Chunk:
    """A part of the corpus, from which a worker makes shards."""

    number: int
    """Index of the chunk in the corpus."""
    documents: list[Document]
    started: int
    """Number of documents that begin in this chunk."""
    chars: int
    bytes_read: int
    """Bytes of the corpus on disk up to the end of this chunk."""
    cuts_end: bool = False
    """Whether the held-out part is the end of a training document."""

    def digest(self) -> str:
        """Hash everything that the shards and their record depend on."""
        digest = hashlib.sha256(f"{self.started} {self.cuts_end}".encode())
        for document in self.documents:
            text = "\n".join(document.lines)
            digest.update(f"{'heldout' if document.heldout else 'train'} {len(text)}\n{text}".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class _PendingChunk:
    """A chunk whose held-out documents are not selected yet."""

    chunk: Chunk
    first_document: int
    """Index of the first document of the chunk in the corpus."""
    complete: range
    """Indices of the documents that are completely in the chunk."""


def read_chunks(corpus: Iterable[Piece], seed: int, heldout: float) -> Iterator[Chunk]:
    """Yield chunks that depend only on the corpus, the seed and the share of documents to hold out.

    A hash of the seed and its index decides whether a document is held out. So that both splits always have documents, the
    first document is never held out, and if the hash selects none in the first chunk with eligible documents, its document of
    median size is. Documents split by a chunk boundary are never held out. If no document is held out, as in a corpus of a
    single document, the end of the last one is: the last 5 % of the text, at most half of the last chunk.
    """
    found = False
    chars = 0
    waiting: _PendingChunk | None = None
    for following in _split_corpus(corpus):
        if waiting is not None:
            chunk = _hold_out(waiting, seed, heldout, needed=not found)
            found = found or any(document.heldout for document in chunk.documents)
            chars += chunk.chars
            yield chunk
        waiting = following
    if waiting is not None:
        chunk = _hold_out(waiting, seed, heldout, needed=not found)
        found = found or any(document.heldout for document in chunk.documents)
        yield chunk if found else _hold_out_end(chunk, HELDOUT_END * (chars + chunk.chars))


def _split_corpus(corpus: Iterable[Piece]) -> Iterator[_PendingChunk]:
    """Yield chunks; only the first document of a chunk can begin before it, and only the last can continue after it."""
    documents: list[Document] = []
    number = previous = chars = bytes_read = 0  # `previous`: number of documents before this chunk
    continued = is_open = False  # the chunk begins inside a document; the last document has not ended

    def chunk() -> _PendingChunk:
        complete = range(int(continued), len(documents) - is_open)
        started = len(documents) - continued
        return _PendingChunk(Chunk(number, documents, started, chars, bytes_read), previous - continued, complete)

    for piece in corpus:
        if is_open and documents:
            documents[-1].lines.extend(piece.lines)
        else:
            documents.append(Document(list(piece.lines), source=piece.source))
        is_open = not piece.ends_document
        chars += sum(map(len, piece.lines))
        bytes_read = piece.bytes_read
        if chars >= (2 * CHUNK_CHARS if is_open else CHUNK_CHARS):
            yield chunk()
            previous += len(documents) - continued
            documents, number, chars, continued = [], number + 1, 0, is_open
    if documents:
        is_open = False
        yield chunk()


def _hold_out(open_chunk: _PendingChunk, seed: int, heldout: float, needed: bool) -> Chunk:
    """Hold out the documents that the hash selects; if it selects none and one is `needed`, the one of median size."""
    chunk, first = open_chunk.chunk, open_chunk.first_document
    eligible = [i for i in open_chunk.complete if first + i > 0]
    chosen = {i for i in eligible if _hash_to_uniform(seed, first + i) < heldout}
    if needed and eligible and not chosen:
        by_size = sorted(eligible, key=lambda i: sum(map(len, chunk.documents[i].lines)))
        chosen = {by_size[len(by_size) // 2]}
    if not chosen:
        return chunk
    documents = [replace(document, heldout=i in chosen) for i, document in enumerate(chunk.documents)]
    return replace(chunk, documents=documents)


def _hash_to_uniform(seed: int, document: int) -> float:
    """Hash the arguments to [0, 1)."""
    digest = hashlib.blake2b(f"{seed} {document}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _hold_out_end(chunk: Chunk, num_characters: float) -> Chunk:
    """Hold out the last lines of the last document, about `num_characters` characters.

    If the last line is most of the document, its last words are held out.
    """
    lines = chunk.documents[-1].lines
    last = lines[-1]
    if 2 * len(last) > sum(map(len, lines)):
        middle = max(len(last) - int(num_characters), len(last) // 2)
        split = last.rfind(" ", 0, middle) + 1 or middle
        train, end = [*lines[:-1], last[:split]], [last[split:]]
    else:
        first, size = len(lines) - 1, len(last)
        while first > (len(lines) + 1) // 2 and size + len(lines[first - 1]) <= num_characters:
            first -= 1
            size += len(lines[first])
        train, end = lines[:first], lines[first:]
    *others, document = chunk.documents
    documents = [*others, replace(document, lines=train), replace(document, lines=end, heldout=True)]
    return replace(chunk, documents=documents, cuts_end=True)
