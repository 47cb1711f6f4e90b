"""BERT's WordPiece: normalization, splitting, and the files of its vocabularies."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import tokenizers
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from electra.errors import TokenizerError
from electra.schema import validate
from electra.text.subwords.special_tokens import SPECIAL_TOKENS, SpecialTokens
from electra.text.subwords.word_marks import WORD_MARKS, WordMark, build_word_decoder
from electra.text.tokenizer_schema import TokenizerFile, VocabularyConfig


@dataclass(frozen=True)
class Normalization:
    """Normalization of text before the vocabulary is used. Control characters are always removed."""

    lowercase: bool = True
    strip_accents: bool = True
    split_chinese: bool = True
    """Make every Chinese character a separate word."""
    max_word_chars: int = 200
    """Longer words become [UNK]; 200 as in BERT's code (100 in transformers' BertTokenizer)."""

    special: ClassVar[SpecialTokens] = SpecialTokens()
    mark: ClassVar[WordMark] = WORD_MARKS["WordPiece"]
    has_independent_words: ClassVar[bool] = True
    """Text between spaces and ASCII punctuation marks has the same ids in any line."""

    def build_normalizer(self) -> Any:
        return BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.split_chinese,
            strip_accents=self.strip_accents,
            lowercase=self.lowercase,
        )

    def build_encoder(self, vocabulary: Sequence[str]) -> Any:
        """Build the encoder of text that has no special tokens."""
        ids = {token: id for id, token in enumerate(vocabulary)}
        model = WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=self.max_word_chars)
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = self.build_normalizer()
        backend.pre_tokenizer = BertPreTokenizer()
        return backend

    def build_saved(self, vocabulary: Sequence[str]) -> Any:
        """Build the tokenizer to save, which has the special tokens."""
        backend = self.build_encoder(vocabulary)
        backend.add_special_tokens(list(SPECIAL_TOKENS))
        backend.decoder = build_word_decoder(self.mark)
        backend.post_processor = self.special.build_template({token: id for id, token in enumerate(vocabulary)})
        return backend

    def build_config(self) -> dict[str, Any]:
        """Build the entries of `tokenizer_config.json` that other models do not have."""
        return {
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.split_chinese,
            "clean_up_tokenization_spaces": True,
        }

    def describe(self, vocabulary: Sequence[str]) -> str:
        """Return everything that the ids of a text depend on, as JSON."""
        return json.dumps([vocabulary, asdict(self)])


def find_normalization(vocabulary: Sequence[str], config: VocabularyConfig) -> tuple[tuple[str, ...], Normalization]:
    """Return the vocabulary of a `vocab.txt` with the normalization in `tokenizer_config.json`."""
    lowercase = config.do_lower_case is not False
    strip, split_chinese = config.strip_accents, config.tokenize_chinese_chars is not False
    return tuple(vocabulary), Normalization(lowercase, lowercase if strip is None else strip, split_chinese)


def is_bert(content: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` is that of a BERT, whose words are independent of their neighbors."""
    parts = [content.get(key) for key in ("model", "normalizer", "pre_tokenizer")]
    model, normalizer, pre_tokenizer = (part if isinstance(part, dict) else {} for part in parts)
    types = (model.get("type", "WordPiece"), normalizer.get("type"), pre_tokenizer.get("type"))
    if types != ("WordPiece", "BertNormalizer", "BertPreTokenizer") or not model:
        return False
    expected = (normalizer.get("clean_text"), model.get("continuing_subword_prefix"), model.get("unk_token"))
    # Parts of a wrong type are BERT's with a mistake, which the schema describes.
    if all(isinstance(each, bool | str) for each in expected) and expected != (True, "##", "[UNK]"):
        return False
    vocab, added = model.get("vocab"), content.get("added_tokens", [])
    if not isinstance(vocab, dict) or not isinstance(added, list):
        return True
    names = (token.get("content") if isinstance(token, dict) else None for token in added)
    return all(name in vocab for name in (*SPECIAL_TOKENS, *names) if isinstance(name, str))


def read_bert(content: Mapping[str, Any], place: Path) -> tuple[tuple[str, ...], Normalization]:
    """Read the settings that differ among BERT's tokenizers; padding and truncation in the file are ignored.

    Raises:
        TokenizerError: the file does not match the schema, or has holes in its ids.
    """
    validate(content, TokenizerFile, str(place), TokenizerError)
    model, normalizer, vocab = content["model"], content["normalizer"], content["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.__getitem__)
    check_ids([vocab[token] for token in tokens], place)
    lowercase, strip = normalizer["lowercase"], normalizer["strip_accents"]
    return tuple(tokens), Normalization(
        lowercase,
        lowercase if strip is None else strip,
        normalizer["handle_chinese_chars"],
        model["max_input_chars_per_word"],
    )


def check_ids(ids: Sequence[int], place: Path) -> None:
    """Raise a TokenizerError unless these sorted ids are 0, 1, 2 ..."""
    if list(ids) != list(range(len(ids))):
        raise TokenizerError(
            "wrong-ids", f"{place}: the ids of the vocabulary are not 0 to {len(ids) - 1:,}, each once"
        )
