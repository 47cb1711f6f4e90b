"""Text, tokenizers and prepared data for the benchmarks, of the sizes that they ask for."""

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
    """What a file of text is made of."""

    bytes: int
    passes: int
    """How often the sources were read; from the second time on nothing is new."""


def write_text(file: Path, sources: Sequence[str], megabytes: float) -> Written:
    """The documents of `sources`, as often as it takes, up to `megabytes` (10^6 bytes)."""
    limit, written = megabytes * 1e6, 0
    with file.open("wb") as out:
        for passes in count(1):
            for piece in Corpus(tuple(sources)):
                written += out.write(content(piece))
                if written >= limit:
                    return Written(written, passes)
    raise AssertionError("a corpus without end")


def names_of(sources: Sequence[str]) -> list[str]:
    """What a result calls its text: the names of files and folders."""
    return [Path(source).name for source in sources]


def write_share(file: Path, sources: Sequence[str], megabytes: float) -> int:
    """Every n-th document of `sources`, about `megabytes` in all, or all of them once; returns the bytes written.

    So it is text of the same kinds in the same proportions: how much padding there is depends on them.
    """
    whole = Corpus(tuple(sources))
    share = min(1.0, megabytes * 1e6 / sum(len(content(piece)) for piece in whole))
    number = written = 0
    with file.open("wb") as out:
        for piece in whole:
            if int((number + 1) * share) > int(number * share):
                written += out.write(content(piece))
            number += piece.ends_document
    if not written:
        raise ValueError(f"{', '.join(sources)}: {number} documents are too few for {megabytes:g} MB of them")
    return written


def content(piece: Piece) -> bytes:
    return ("\n".join(piece.lines) + ("\n\n" if piece.ends_document else "\n")).encode()


def tokenizer_of(file: Path, vocab_size: int) -> Tokenizer:
    """Trained on `file`; where that gives less than `vocab_size` entries, filled up, as BERT's is, with unused ones.

    So the vocabulary's matrices have the size that is measured, whatever the text.
    """
    trained = train_tokenizer(Corpus((str(file),)), vocab_size)
    unused = (f"[unused{i}]" for i in range(vocab_size - trained.vocab_size))
    return replace(trained, vocabulary=(*trained.vocabulary, *unused))


def prepared(folder: Path, sources: Sequence[str], megabytes: float, vocab_size: int, seq_len: int) -> PreparedData:
    """A share of `sources`, of `megabytes`, prepared in `folder`, with a tokenizer of its own."""
    file = folder / "text.txt"
    write_share(file, sources, megabytes)
    return prepare(Corpus((str(file),)), tokenizer_of(file, vocab_size), folder / "data", seq_len=seq_len)
