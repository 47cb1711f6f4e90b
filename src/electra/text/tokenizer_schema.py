"""What is read of the JSON files of a tokenizer."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from typing_extensions import NotRequired, TypedDict


class ModelPart(TypedDict):
    """The part of `tokenizer.json` that is WordPiece."""

    vocab: dict[str, int]
    unk_token: str
    continuing_subword_prefix: str
    max_input_chars_per_word: Annotated[int, Field(ge=1, lt=2**31)]


class NormalizerPart(TypedDict):
    """The part of `tokenizer.json` that is BERT's normalization."""

    clean_text: bool
    handle_chinese_chars: bool
    strip_accents: bool | None
    lowercase: bool


class AddedToken(TypedDict):
    """A token that was added to the vocabulary."""

    content: str


class TokenizerFile(TypedDict):
    """What is read of `tokenizer.json`."""

    model: ModelPart
    normalizer: NormalizerPart
    added_tokens: NotRequired[list[AddedToken]]


@dataclass(frozen=True)
class VocabularyConfig:
    """What is read of `tokenizer_config.json` beside a `vocab.txt`."""

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
