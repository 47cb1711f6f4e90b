"""Text, tokenizers and prepared data for the benchmarks, of the sizes that they ask for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from electra.data.prepare import prepare
from electra.data.shards import PreparedData
from electra.text.corpus import Corpus
from electra.text.readers import Piece
from electra.text.tokenizer import Tokenizer
from electra.text.vocabulary import train_tokenizer


def write_text(file: Path, sources: Sequence[str], megabytes: float) -> int:
    """The documents of `sources`, as often as it takes, up to `megabytes` (10^6 bytes); returns the bytes written."""
    limit, written = megabytes * 1e6, 0
    with file.open("wb") as out:
        while True:
            for piece in Corpus(tuple(sources)):
                written += out.write(content(piece))
                if written >= limit:
                    return written


def write_share(file: Path, whole: Path, megabytes: float) -> int:
    """Every n-th document of `whole`, about `megabytes` in all; returns the bytes written.

    So it is text of the same kinds in the same proportions.
    """
    share = megabytes * 1e6 / whole.stat().st_size
    number = written = 0
    with file.open("wb") as out:
        for piece in Corpus((str(whole),)):
            if int((number + 1) * share) > int(number * share):
                written += out.write(content(piece))
            number += piece.ends_document
    if not written:
        raise ValueError(f"{whole}: {number} documents are too few for {megabytes:g} MB of them")
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
    """`megabytes` of `sources` prepared in `folder`, with a tokenizer of their own."""
    file = folder / "text.txt"
    write_text(file, sources, megabytes)
    return prepare(Corpus((str(file),)), tokenizer_of(file, vocab_size), folder / "data", seq_len=seq_len)
