"""Deterministic training of a tokenizer: WordPiece, byte-level BPE or Unigram."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from electra.config.checks import check_choice, check_number
from electra.errors import UsageError
from electra.text.corpus import Corpus
from electra.text.subwords.additions import UNLIKELY, add_tokens, list_reserved
from electra.text.subwords.bert import Normalization
from electra.text.subwords.fast import build_pipeline
from electra.text.subwords.special_tokens import SPECIAL_TOKENS
from electra.text.subwords.word_marks import WORD_MARKS
from electra.text.tokenizer import Tokenizer
from electra.text.vocabulary import (
    MAX_VOCAB_SIZE,
    MIN_FREQUENCY,
    MIN_VOCAB_SIZE,
    build_alphabet,
    require_text,
    sample_corpus,
    train_vocabulary,
)

PAPER_SIZE = 30_522
"""Size of BERT's vocabulary, which the paper uses; it is not rounded."""
WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+"
"""Parts of a text that a BPE never joins: letters with their marks, digits, others, each with the space before it."""
BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(0x100))
"""Tokens of a byte each, as SentencePiece writes them."""
MAX_PIECE = 16
"""Maximum characters of a Unigram token."""


@dataclass(frozen=True)
class TokenizerConfig:
    """What a tokenizer is trained to be."""

    vocab_size: int = PAPER_SIZE
    model: str = "wordpiece"
    cased: bool = False
    keep_accents: bool = False
    byte_fallback: bool = False
    pretokenized: bool = False
    multiple_of: int = 1
    reserved: int = 0

    @property
    def size(self) -> int:
        """The size rounded up."""
        return (
            self.vocab_size
            if self.vocab_size == PAPER_SIZE
            else -(-self.vocab_size // self.multiple_of) * self.multiple_of
        )

    @property
    def normalization(self) -> Normalization:
        """Normalization of characters."""
        strip = not (self.cased or self.keep_accents)
        return Normalization(not self.cased, strip, split_chinese=self.model == "wordpiece" and not self.pretokenized)


def train(corpus: Corpus, config: TokenizerConfig, on_progress: Callable[[int], None] | None = None) -> Tokenizer:
    """Train a tokenizer on a sample of the corpus; `on_progress` is called with Piece.bytes_read.

    Its vocabulary has `config.size` tokens, or fewer if the corpus does not have enough words, in a multiple of
    `config.multiple_of`: the last ones are without a use.

    Raises:
        UsageError: an option is out of range or has no meaning for the model.
        TextError: the corpus is empty, or cannot be read.
    """
    check_choice("--model", config.model, TRAINERS)
    check_number("--multiple-of", config.multiple_of, at_least=1, at_most=65_536)
    check_number("--reserved", config.reserved, at_least=0, at_most=MAX_VOCAB_SIZE)
    if config.byte_fallback and config.model != "unigram":
        raise UsageError(
            "conflicting-options",
            f"--byte-fallback is for --model unigram; {TRAINERS[config.model].title} "
            f"{'has all bytes' if config.model == 'bpe' else 'has [UNK]'}; leave it out",
        )
    needed = 320 if config.model == "bpe" or config.byte_fallback else MIN_VOCAB_SIZE
    # A trainer first allocates about 500 bytes per token, and aborts the process if it cannot.
    check_number("--vocab-size", config.vocab_size, at_least=needed + config.reserved, at_most=MAX_VOCAB_SIZE)
    sample = sample_corpus(corpus, on_progress=on_progress)
    name = ", ".join(corpus.sources)
    require_text(sample, name)
    trained = TRAINERS[config.model].train(sample, config, config.size - config.reserved, name)
    number = config.reserved
    if trained.vocab_size + number != config.size:
        number += -(trained.vocab_size + number) % config.multiple_of
    return add_tokens(trained, list_reserved(number))


def train_wordpiece(sample: Sequence[bytes], config: TokenizerConfig, size: int, name: str) -> Tokenizer:
    """Train BERT's WordPiece; of pre-segmented text, one that splits at white space only."""
    normalization = config.normalization
    if not config.pretokenized:
        return Tokenizer(train_vocabulary(sample, size, normalization, name), normalization)
    splitter = pre_tokenizers.WhitespaceSplit()
    vocabulary = train_vocabulary(sample, size, normalization, name, splitter)
    backend = normalization.build_saved(vocabulary)
    backend.pre_tokenizer = splitter
    return Tokenizer(*build_pipeline(backend, WORD_MARKS["WordPiece"], {}, name))


def train_bpe(sample: Sequence[bytes], config: TokenizerConfig, size: int, name: str) -> Tokenizer:
    """Train a byte-level BPE (Radford et al., 2019), which has no unknown characters."""
    words = pre_tokenizers.Split(" ", "merged_with_next") if config.pretokenized else None
    backend = tokenizers.Tokenizer(BPE())
    backend.normalizer = normalizers.Sequence([*build_normalizers(config), normalizers.Prepend(" ")])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            words or pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = BpeTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(iterate_lines(sample), trainer)
    return finish(backend, "ByteLevel", name)


def train_unigram(sample: Sequence[bytes], config: TokenizerConfig, size: int, name: str) -> Tokenizer:
    """Train a Unigram model (Kudo, 2018), whose words begin with ▁; rare characters are [UNK], or bytes.

    The trainer keeps every character of its text, so rare ones are replaced by spaces before.
    """
    steps = build_normalizers(config)
    extra = BYTE_PIECES if config.byte_fallback else ()
    limit = (size - len(extra)) // 3
    alphabet, _ = build_alphabet(sample, normalizers.Sequence(steps), limit, pre_tokenizers.WhitespaceSplit())
    others = normalizers.Replace(Regex(f"[^{''.join(map(escape, alphabet))}]"), " ")
    backend = tokenizers.Tokenizer(Unigram())
    backend.normalizer = normalizers.Sequence([*steps[:-2], others, *steps[-2:]])
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = UnigramTrainer(
        vocab_size=size - len(extra),
        special_tokens=list(SPECIAL_TOKENS),
        unk_token="[UNK]",
        max_piece_length=MAX_PIECE,
        show_progress=False,
    )
    backend.train_from_iterator(iterate_lines(sample), trainer)
    pieces = json.loads(backend.to_str())["model"]["vocab"]
    low = round(min(score for _, score in pieces) - UNLIKELY, 6)
    learned = settle_scores(pieces[len(SPECIAL_TOKENS) :])
    vocab = [*((token, low) for token in (*SPECIAL_TOKENS, *extra)), *learned]
    backend.model = Unigram(vocab, unk_id=SPECIAL_TOKENS.index("[UNK]"), byte_fallback=config.byte_fallback)
    backend.normalizer = normalizers.Sequence(steps)
    return finish(backend, "Metaspace", name)


def settle_scores(pieces: Sequence[Sequence[Any]]) -> list[tuple[str, float]]:
    """Return tokens by score, with what differs between processes made the same.

    The library adds up counts in a random order, so that the last digits differ. It gives characters that it would have
    dropped scores near the lowest one, 0.0001 apart, in a random order too; here they are in that of the characters.
    """
    scores = {token: round(score, 6) for token, score in pieces}
    characters = sorted(token for token in scores if len(token) == 1)
    near = min(scores.values()) + 1e-4 * (len(characters) + 1)
    rare = [char for char in characters if scores[char] <= near]
    scores |= dict(zip(rare, sorted((scores[char] for char in rare), reverse=True), strict=True))
    return sorted(scores.items(), key=lambda piece: (-piece[1], piece[0]))


def build_normalizers(config: TokenizerConfig) -> list[Any]:
    """Build the steps of the normalization: BERT's of characters, composed characters, single spaces."""
    return [
        config.normalization.build_normalizer(),
        normalizers.NFC(),  # BERT's leaves Korean syllables without accents decomposed
        normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Strip(),
    ]


def iterate_lines(sample: Sequence[bytes]) -> Iterator[list[str]]:
    """Yield the lines of each piece of a sample."""
    return (piece.decode().split("\n") for piece in sample)


def escape(char: str) -> str:
    """Escape a character for a set in a regular expression of the library."""
    return f"\\x{{{ord(char):x}}}" if char.isascii() else re.escape(char)


def finish(backend: Any, mark: str, name: str) -> Tokenizer:
    """Build the tokenizer of a trained pipeline."""
    return Tokenizer(*build_pipeline(backend, WORD_MARKS[mark], {}, name))


@dataclass(frozen=True)
class Trainer:
    """A kind of model to train."""

    title: str
    train: Callable[[Sequence[bytes], TokenizerConfig, int, str], Tokenizer]
    """From a sample, the configuration, the number of tokens and the name of the text."""


TRAINERS: Mapping[str, Trainer] = {
    "wordpiece": Trainer("WordPiece", train_wordpiece),
    "bpe": Trainer("byte-level BPE", train_bpe),
    "unigram": Trainer("Unigram", train_unigram),
}
"""Models that can be trained, by name."""
