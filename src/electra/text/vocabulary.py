"""Sample of a corpus, its alphabet, and deterministic training of a WordPiece vocabulary on it."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

from electra.config.checks import check_number
from electra.errors import TextError
from electra.text.corpus import Corpus
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer

SAMPLE_BYTES = 64 << 20
HUB_BYTES = 2 << 30
"""Maximum bytes read from a hub data set, which may be too large to read completely."""
MIN_VOCAB_SIZE = 64
MAX_VOCAB_SIZE = 10_000_000
MIN_FREQUENCY = 2
COVERAGE = 0.9999
"""Share of the characters of the text in the vocabulary; the rarest become [UNK] (as SentencePiece's character_coverage).
A fixed number of characters, as in other trainers, is too small for Chinese, which uses thousands, and wastes hundreds of
entries on foreign names in English."""


def train_tokenizer(
    corpus: Corpus,
    vocab_size: int,
    cased: bool = False,
    keep_accents: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Tokenizer:
    """Train a vocabulary of `vocab_size` tokens, or fewer if the corpus does not have enough words (the caller logs this).

    Without `cased`, accents are stripped unless `keep_accents`; with it they are always kept, as in BERT. The corpus is read
    once, and `on_progress` is called with Piece.bytes_read; training uses `sample_corpus`. Every character of the alphabet is
    in the vocabulary both as the start and as the inside of a word, so that no word of these characters is [UNK].

    Raises:
        UsageError: `vocab_size` is under MIN_VOCAB_SIZE or over MAX_VOCAB_SIZE.
        TextError: the corpus is empty, or cannot be read.
    """
    # The trainer first allocates about 500 bytes per token, and aborts the process if it cannot.
    check_number("--vocab-size", vocab_size, at_least=MIN_VOCAB_SIZE, at_most=MAX_VOCAB_SIZE)
    sample = sample_corpus(corpus, on_progress=on_progress)
    return train_on_sample(sample, vocab_size, cased, keep_accents, ", ".join(corpus.sources))


def train_on_sample(sample: Sequence[bytes], vocab_size: int, cased: bool, keep_accents: bool, name: str) -> Tokenizer:
    """Train a vocabulary on pieces of text, of which each has several lines; `name` is that of the text, for messages.

    Raises:
        TextError: there is no text.
    """
    normalization = Normalization(lowercase=not cased, strip_accents=not (cased or keep_accents))
    return Tokenizer(train_vocabulary(sample, vocab_size, normalization, name), normalization)


def require_text(sample: Sequence[bytes], name: str) -> None:
    """Raise a TextError if a sample is empty."""
    if not sample:
        raise TextError("no-text", f"no text to train a tokenizer on in {name}")


def train_vocabulary(
    sample: Sequence[bytes], vocab_size: int, normalization: Normalization, name: str, splitter: Any = None
) -> tuple[str, ...]:
    """Train the vocabulary of a WordPiece; `splitter` splits text into words, by default BERT's.

    Raises:
        TextError: there is no text.
    """
    require_text(sample, name)
    splitter = splitter or BertPreTokenizer()
    normalizer = normalization.build_normalizer()
    starts, continuations = build_alphabet(sample, normalizer, vocab_size // 3, splitter)
    if not starts:
        raise TextError(
            "only-control-characters",
            f"no text to train a tokenizer on in {name}: only control characters, which BERT's tokenizers remove",
        )
    backend = tokenizers.Tokenizer(WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizer
    backend.pre_tokenizer = splitter
    # The library numbers the characters, and breaks ties among the rarest, in an order that differs between processes, and
    # its merges depend on these numbers. Passing all characters first makes the order deterministic.
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=[*SPECIAL_TOKENS, *starts, *(f"##{char}" for char in continuations)],
        initial_alphabet=starts,
        limit_alphabet=len(starts),
        show_progress=False,
    )
    backend.train_from_iterator((piece.decode().split("\n") for piece in sample), trainer)
    ids: dict[str, int] = backend.get_vocab()
    return tuple(sorted(ids, key=ids.__getitem__))


def sample_corpus(
    corpus: Corpus, limit: int = SAMPLE_BYTES, on_progress: Callable[[int], None] | None = None
) -> list[bytes]:
    """Sample at most `limit` bytes of text evenly from the corpus, and at least about half of that if there is enough text.

    A piece of the corpus (a document, or 1 MB of a long one) is kept if a hash of its number is below a threshold. Whenever
    the limit is reached, the threshold is halved and pieces above it are dropped: the sample depends only on the corpus,
    whose size does not have to be known. Each element has the lines of one piece.
    """
    kept: list[tuple[int, bytes]] = []
    threshold, size, read = 1 << 64, 0, 0
    is_finite = corpus.total_bytes() is not None
    for number, piece in enumerate(corpus):
        if on_progress:
            on_progress(piece.bytes_read)
        read += sum(map(len, piece.lines))
        if read > HUB_BYTES and not is_finite:
            break
        rank = int.from_bytes(hashlib.blake2b(b"%d" % number, digest_size=8).digest(), "big")
        if rank >= threshold:
            continue
        kept.append((rank, "\n".join(piece.lines).encode()))
        size += len(kept[-1][1])
        while size > limit and len(kept) > 1:
            threshold //= 2
            kept = [entry for entry in kept if entry[0] < threshold]
            size = sum(len(text) for _, text in kept)
    return [text for _, text in kept]


def build_alphabet(
    sample: Sequence[bytes], normalizer: Any, limit: int, splitter: Any = None
) -> tuple[list[str], list[str]]:
    """Return the characters for a vocabulary, most frequent first, and those of them that occur inside words.

    They cover COVERAGE of the characters of the sample after normalization, but are at most `limit`. `splitter` splits text
    into words, by default BERT's.
    """
    codes = count_characters(sample)
    counts: Counter[str] = Counter()
    within: set[str] = set()
    splitter = splitter or BertPreTokenizer()
    for code in np.flatnonzero(codes).tolist():
        chars, continues = _normalize_char(chr(code), normalizer, splitter)
        for char in chars:
            counts[char] += int(codes[code])
        if continues:
            within.update(chars)
    total = counts.total()
    starts: list[str] = []
    covered = 0
    for char, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= COVERAGE * total or len(starts) == limit:
            break
        starts.append(char)
        covered += count
    return starts, [char for char in starts if char in within]


def count_characters(sample: Sequence[bytes], batch: int = 1000) -> np.ndarray:
    """Count each Unicode character, line ends included: int64 [0x110000]."""
    counts = np.zeros(0x110000, np.int64)
    for start in range(0, len(sample), batch):
        text = b"".join(sample[start : start + batch]).decode()
        counts += np.bincount(np.frombuffer(text.encode("utf-32-le"), np.uint32), minlength=len(counts))
    return counts


def _normalize_char(char: str, normalizer: Any, splitter: Any) -> tuple[str, bool]:
    """Return the normalized form of a character (zero or more characters), and whether it can be inside a word.

    Normalization treats each character independently, so character counts can be normalized instead of the text.
    """
    pieces = [piece for piece, _ in splitter.pre_tokenize_str(normalizer.normalize_str(f"0{char}0"))]
    if len(pieces) == 1:
        return pieces[0][1:-1], True
    return "".join(pieces)[1:-1], False
