"""Schemas of the JSON files of a tokenizer."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from typing_extensions import NotRequired, TypedDict


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
    """Keys of `tokenizer.json` that are read."""

    model: ModelPart
    normalizer: NormalizerPart
    added_tokens: NotRequired[list[AddedToken]]


@dataclass(frozen=True)
class VocabularyConfig:
    """Keys of `tokenizer_config.json` that are read with a `vocab.txt`."""

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
