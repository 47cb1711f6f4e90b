"""A corpus in chunks of whole documents, the units of preparation, and which documents are held out."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from electra.text.corpus import Piece

CHUNK_CHARS = 4 << 20
"""A chunk ends with the document that reaches this, and inside of one only at twice as much."""

HELDOUT_END = 0.05


@dataclass(frozen=True)
class Document:
    """A document, or as much of one as is in a chunk."""

    lines: list[str]
    heldout: bool = False


@dataclass(frozen=True)
class Chunk:
    number: int
    documents: list[Document]
    started: int
    """How many of the documents begin in this chunk."""
    chars: int
    bytes_read: int
    """Of the corpus on the disk, up to the end of this chunk."""
    cuts_end: bool = False
    """The held-out part is the end of a document that is otherwise trained on."""

    def digest(self) -> str:
        """Of all that the shards and their record are made from."""
        digest = hashlib.sha256(f"{self.started} {self.cuts_end}".encode())
        for document in self.documents:
            text = "\n".join(document.lines)
            digest.update(f"{'heldout' if document.heldout else 'train'} {len(text)}\n{text}".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class _PendingChunk:
    """A chunk whose held-out documents are not chosen yet."""

    chunk: Chunk
    first_document: int
    """Its number in the corpus, counted from 0."""
    whole: range
    """The documents, as positions in the chunk, that neither began before it nor go on after it."""


def read_chunks(corpus: Iterable[Piece], seed: int, heldout: float) -> Iterator[Chunk]:
    """Chunks that depend on nothing but the corpus, the seed and the share of documents to hold out.

    A document is held out if a hash of the seed and its number says so. So that there always are held-out and
    other documents, the first is never, and if none of the first chunk with several is, the middle one by
    size there. Documents that a chunk boundary cuts are not. Where that leaves none, as in a corpus of a
    single document, its end is: the last 5 % of the text, at most half of the last chunk.
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
    """Only the first document of a chunk can have begun before it, and only its last can go on after it."""
    documents: list[Document] = []
    number = begun = chars = bytes_read = 0  # `begun` counts the documents before this chunk
    continued = goes_on = False  # the chunk began inside a document; the last document is not at its end

    def chunk() -> _PendingChunk:
        whole = range(int(continued), len(documents) - goes_on)
        started = len(documents) - continued
        return _PendingChunk(Chunk(number, documents, started, chars, bytes_read), begun - continued, whole)

    for piece in corpus:
        if goes_on and documents:
            documents[-1].lines.extend(piece.lines)
        else:
            documents.append(Document(list(piece.lines)))
        goes_on = not piece.ends_document
        chars += sum(map(len, piece.lines))
        bytes_read = piece.bytes_read
        if chars >= (2 * CHUNK_CHARS if goes_on else CHUNK_CHARS):
            yield chunk()
            begun += len(documents) - continued
            documents, number, chars, continued = [], number + 1, 0, goes_on
    if documents:
        goes_on = False
        yield chunk()


def _hold_out(open_chunk: _PendingChunk, seed: int, heldout: float, needed: bool) -> Chunk:
    """Hold out the documents that the hash chooses; if it chooses none and one is `needed`, another."""
    chunk, first = open_chunk.chunk, open_chunk.first_document
    eligible = [i for i in open_chunk.whole if first + i > 0]
    chosen = {i for i in eligible if _hash_to_uniform(seed, first + i) < heldout}
    if needed and eligible and not chosen:
        by_size = sorted(eligible, key=lambda i: sum(map(len, chunk.documents[i].lines)))
        chosen = {by_size[len(by_size) // 2]}
    if not chosen:
        return chunk
    documents = [replace(document, heldout=i in chosen) for i, document in enumerate(chunk.documents)]
    return replace(chunk, documents=documents)


def _hash_to_uniform(seed: int, document: int) -> float:
    """In [0, 1), a hash of its arguments."""
    digest = hashlib.blake2b(f"{seed} {document}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _hold_out_end(chunk: Chunk, wanted: float) -> Chunk:
    """Hold out the last lines of the last document, about `wanted` characters.

    Where the last line is most of the document, its last words are.
    """
    lines = chunk.documents[-1].lines
    last = lines[-1]
    if 2 * len(last) > sum(map(len, lines)):
        middle = max(len(last) - int(wanted), len(last) // 2)
        split = last.rfind(" ", 0, middle) + 1 or middle
        train, end = [*lines[:-1], last[:split]], [last[split:]]
    else:
        first, size = len(lines) - 1, len(last)
        while first > (len(lines) + 1) // 2 and size + len(lines[first - 1]) <= wanted:
            first -= 1
            size += len(lines[first])
        train, end = lines[:first], lines[first:]
    documents = [*chunk.documents[:-1], Document(train), Document(end, heldout=True)]
    return replace(chunk, documents=documents, cuts_end=True)
