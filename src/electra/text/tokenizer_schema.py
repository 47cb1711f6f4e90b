"""Schemas of the JSON files of a tokenizer."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import NotRequired, TypedDict

TokenId = Annotated[int, Field(ge=0, lt=10**8)]


class ModelPart(TypedDict):
    """WordPiece model in `tokenizer.json`."""

    vocab: dict[str, int]
    unk_token: str
    continuing_subword_prefix: str
    max_input_chars_per_word: Annotated[int, Field(ge=1, lt=2**31)]


class NormalizerPart(TypedDict):
    """BERT's normalization in `tokenizer.json`."""

    clean_text: bool
    handle_chinese_chars: bool
    strip_accents: bool | None
    lowercase: bool


class AddedToken(TypedDict):
    """Token added to the vocabulary."""

    content: str


class TokenizerFile(TypedDict):
    """Keys of `tokenizer.json` that are read of BERT's tokenizers."""

    model: ModelPart
    normalizer: NormalizerPart
    added_tokens: NotRequired[list[AddedToken]]


class NumberedToken(AddedToken):
    """Token added to the vocabulary, with its id, as the library reads it."""

    id: TokenId


class AnyTokenizerFile(TypedDict):
    """Keys of any `tokenizer.json` whose content is read; the library checks the others."""

    added_tokens: NotRequired[list[NumberedToken]]


class NumberedVocabulary(TypedDict):
    """A model in `tokenizer.json` whose vocabulary has ids."""

    vocab: dict[str, TokenId]


class ScoredVocabulary(TypedDict):
    """A model in `tokenizer.json` whose vocabulary has a token and its score for each id."""

    vocab: list[list[Any]]


VOCABULARIES: dict[str, type] = {
    "WordPiece": NumberedVocabulary,
    "BPE": NumberedVocabulary,
    "Unigram": ScoredVocabulary,
}
"""Models of the library that are supported -> schema of their vocabulary in `tokenizer.json`."""


@dataclass(frozen=True)
class VocabularyConfig:
    """Keys of `tokenizer_config.json` that are read with a `vocab.txt`."""

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
