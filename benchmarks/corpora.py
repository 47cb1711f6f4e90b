"""Text, tokenizers and prepared data of given sizes for the benchmarks."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

from electra.data.prepare import prepare
from electra.data.shards import PreparedData
from electra.text.corpus import Corpus
from electra.text.formats import Piece
from electra.text.tokenizer import Tokenizer
from electra.text.vocabulary import train_tokenizer


class Written(NamedTuple):
    """Size and origin of a text file."""

    bytes: int
    passes: int
    """Number of passes over the sources; passes after the first one repeat the text."""


def write_text(file: Path, sources: Sequence[str], megabytes: float) -> Written:
    """Write the documents of `sources`, repeated as needed, up to `megabytes` (10^6 bytes)."""
    limit, written = megabytes * 1e6, 0
    with file.open("wb") as out:
        for passes in count(1):
            for piece in Corpus(tuple(sources)):
                written += out.write(encode(piece))
                if written >= limit:
                    return Written(written, passes)
    raise AssertionError("unreachable")


def list_names(sources: Sequence[str]) -> list[str]:
    """List the names of files and folders for the result."""
    return [Path(source).name for source in sources]


def write_share(file: Path, sources: Sequence[str], megabytes: float) -> int:
    """Write every n-th document of `sources`, about `megabytes` in total, or all of them once; return the bytes written.

    This keeps the proportions of the kinds of text, on which the amount of padding depends.
    """
    corpus = Corpus(tuple(sources))
    share = min(1.0, megabytes * 1e6 / sum(len(encode(piece)) for piece in corpus))
    number = written = 0
    with file.open("wb") as out:
        for piece in corpus:
            if int((number + 1) * share) > int(number * share):
                written += out.write(encode(piece))
            number += piece.ends_document
    if not written:
        raise ValueError(f"{', '.join(sources)}: {number} documents are too few for a share of {megabytes:g} MB")
    return written


def encode(piece: Piece) -> bytes:
    return ("\n".join(piece.lines) + ("\n\n" if piece.ends_document else "\n")).encode()


def build_tokenizer(file: Path, vocab_size: int) -> Tokenizer:
    """Train a tokenizer on `file`; fill it up to `vocab_size` with unused tokens, as in BERT's vocabulary.

    The vocabulary's matrices then have the intended size for any text.
    """
    trained = train_tokenizer(Corpus((str(file),)), vocab_size)
    unused = (f"[unused{i}]" for i in range(vocab_size - trained.vocab_size))
    return replace(trained, vocabulary=(*trained.vocabulary, *unused))


def prepare_text(folder: Path, sources: Sequence[str], megabytes: float, vocab_size: int, seq_len: int) -> PreparedData:
    """Prepare a share of `sources`, of `megabytes`, in `folder`, with a new tokenizer."""
    file = folder / "text.txt"
    write_share(file, sources, megabytes)
    return prepare(Corpus((str(file),)), build_tokenizer(file, vocab_size), folder / "data", seq_len=seq_len)
