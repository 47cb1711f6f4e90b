"""BERT's WordPiece tokenizer: vocabulary, normalization, encoding and files."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from electra.errors import TokenizerError
from electra.schema import read_bytes, read_json, read_object, validate
from electra.storage import write_atomically
from electra.text.hub import locate_model
from electra.text.tokenizer_schema import TokenizerFile, VocabularyConfig

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""In the order of their ids in vocabularies of this package; other vocabularies have them anywhere."""

FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
"""Files of a tokenizer directory."""

TOKENIZER_BYTES = 256 << 20
"""Maximum size of a tokenizer file; one with 250,000 tokens has about 20 MB."""


@dataclass(frozen=True)
class Normalization:
    """Normalization of text before the vocabulary is used. Control characters are always removed."""

    lowercase: bool = True
    strip_accents: bool = True
    split_chinese: bool = True
    """Make every Chinese character a separate word."""
    max_word_chars: int = 200
    """Longer words become [UNK]; 200 as in BERT's code (100 in transformers' BertTokenizer)."""

    def build_normalizer(self) -> Any:
        return BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.split_chinese,
            strip_accents=self.strip_accents,
            lowercase=self.lowercase,
        )


@dataclass(frozen=True)
class Tokenizer:
    """WordPiece tokenizer; `train_tokenizer` and `load_tokenizer` return one."""

    vocabulary: tuple[str, ...]
    """In the order of the ids."""
    normalization: Normalization

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    @property
    def pad_id(self) -> int:
        return self._ids["[PAD]"]

    @property
    def unk_id(self) -> int:
        return self._ids["[UNK]"]

    @property
    def cls_id(self) -> int:
        return self._ids["[CLS]"]

    @property
    def sep_id(self) -> int:
        return self._ids["[SEP]"]

    @property
    def mask_id(self) -> int:
        return self._ids["[MASK]"]

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of [PAD], [CLS], [SEP] and [MASK]. [UNK] is not included: it represents a word, and is masked like one."""
        return self.pad_id, self.cls_id, self.sep_id, self.mask_id

    @property
    def continuation_ids(self) -> tuple[int, ...]:
        """Ids of the tokens that continue a word (##)."""
        return tuple(id for id, token in enumerate(self.vocabulary) if token.startswith("##"))

    @property
    def lowercase(self) -> bool:
        return self.normalization.lowercase

    @property
    def strip_accents(self) -> bool:
        return self.normalization.strip_accents

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids of a text: vocabulary in the order of ids, and normalization."""
        return hashlib.sha256(json.dumps([self.vocabulary, asdict(self.normalization)]).encode()).hexdigest()

    def encode_lines(self, lines: list[str]) -> list[list[int]]:
        """Encode lines without special tokens, on all cores unless TOKENIZERS_PARALLELISM is false.

        "[MASK]" in a text is not a special token but a word between two brackets, as in BERT's code: the saved tokenizer has
        the special tokens, the one used here does not.
        """
        return [encoding.ids for encoding in self._encoder_backend.encode_batch_fast(lines, add_special_tokens=False)]

    def encode_with_offsets(self, lines: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of encode_lines, and for each the character range [start, end) in its line.

        Ranges refer to the line before normalization. Tokens from one character (a decomposed Korean syllable) have the same
        range; characters that normalization removes belong to no token.
        """
        return [
            (encoding.ids, encoding.offsets)
            for encoding in self._encoder_backend.encode_batch(lines, add_special_tokens=False)
        ]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.vocabulary[id] for id in ids]

    def save(self, directory: Path, max_length: int | None = None) -> None:
        """Write tokenizer.json, tokenizer_config.json and vocab.txt, for load_tokenizer and transformers'
        AutoTokenizer. `max_length` is the maximum number of tokens of the model in the directory.

        Raises StorageError. Other files in the directory are not changed.
        """
        tokens = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS}
        config = {
            # Not BertTokenizer, which transformers would rebuild from the vocabulary, with 100 characters per word.
            "tokenizer_class": "PreTrainedTokenizerFast",
            **tokens,
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.normalization.split_chinese,
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "padding_side": "right",
            "clean_up_tokenization_spaces": True,
            **({"model_max_length": max_length} if max_length else {}),
        }
        directory = Path(directory)
        write_atomically(directory / "vocab.txt", "".join(f"{token}\n" for token in self.vocabulary).encode())
        write_atomically(directory / "tokenizer_config.json", json.dumps(config, indent=2).encode())
        # Last, because load_tokenizer prefers it.
        write_atomically(directory / "tokenizer.json", self._build_saved_backend().to_str(pretty=True).encode())

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.vocabulary)}

    @cached_property
    def _encoder_backend(self) -> Any:
        return self._build_backend()

    def _build_backend(self) -> Any:
        model = WordPiece(self._ids, unk_token="[UNK]", max_input_chars_per_word=self.normalization.max_word_chars)
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = self.normalization.build_normalizer()
        backend.pre_tokenizer = BertPreTokenizer()
        return backend

    def _build_saved_backend(self) -> Any:
        backend = self._build_backend()
        backend.add_special_tokens(list(SPECIAL_TOKENS))
        backend.decoder = WordPieceDecoder(prefix="##")
        backend.post_processor = TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", self.cls_id), ("[SEP]", self.sep_id)],
        )
        return backend


def load_named_tokenizer(name: str) -> Tokenizer:
    """Load the tokenizer that an option names: a path as in `load_tokenizer`, or a model of the Hugging Face hub.

    Raises TokenizerError.
    """
    return load_tokenizer(locate_model(name, TokenizerError))


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer from a directory with tokenizer.json or vocab.txt, or from one of these files.

    With a vocab.txt, tokenizer_config.json sets whether text is lowercased and accents are stripped; both are by default.
    Raises TokenizerError.
    """
    path = Path(path)
    if not path.exists():
        raise TokenizerError("missing", f"{path}: no such file or directory")
    candidates = [path / "tokenizer.json", path / "vocab.txt"] if path.is_dir() else [path]
    file = next((candidate for candidate in candidates if candidate.exists()), None)
    if file is None:
        raise TokenizerError(
            "no-tokenizer", f"{path}: no tokenizer, neither tokenizer.json nor vocab.txt; electra tokenizer trains one"
        )
    tokenizer = _from_json(file) if file.suffix == ".json" else _from_vocabulary(file)
    missing = [token for token in SPECIAL_TOKENS if token not in tokenizer._ids]
    if missing:
        raise TokenizerError(
            "missing-tokens",
            f"{file}: not in the vocabulary: {', '.join(missing)}; ELECTRA needs BERT's special tokens",
        )
    return tokenizer


def _from_vocabulary(file: Path) -> Tokenizer:
    tokens = [line.removesuffix("\r") for line in _read_text(file).removesuffix("\n").split("\n")]
    first: dict[str, int] = {}
    for number, token in enumerate(tokens, 1):
        if first.setdefault(token, number) != number:
            raise TokenizerError(
                "repeated-token", f"{file}:{number}: {token!r} is already on line {first[token]}; a token has one id"
            )
    config_file = file.parent / "tokenizer_config.json"
    config = read_json(config_file, VocabularyConfig, TokenizerError) if config_file.exists() else VocabularyConfig()
    lowercase = config.do_lower_case is not False
    strip, split_chinese = config.strip_accents, config.tokenize_chinese_chars is not False
    return Tokenizer(tuple(tokens), Normalization(lowercase, lowercase if strip is None else strip, split_chinese))


def _from_json(file: Path) -> Tokenizer:
    """Read the settings that differ among BERT's tokenizers; padding and truncation in the file are ignored."""
    content = read_object(file, TokenizerError, TOKENIZER_BYTES)
    parts = (content.get(key) for key in ("model", "normalizer", "pre_tokenizer"))
    model, normalizer, pre_tokenizer = (part if isinstance(part, dict) else {} for part in parts)
    if model.get("type", "WordPiece") != "WordPiece" or "max_input_chars_per_word" not in model:
        raise TokenizerError(
            "unknown-tokenizer", f"{file}: a {model.get('type')} tokenizer; only BERT's WordPiece is supported"
        )
    for part, expected in ((normalizer, "BertNormalizer"), (pre_tokenizer, "BertPreTokenizer")):
        if part.get("type") != expected:
            raise TokenizerError(
                "unknown-tokenizer",
                f"{file}: {part.get('type')} where BERT's tokenizers have {expected}; only these are supported",
            )
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not all(isinstance(id, int) for id in vocab.values()):
        raise TokenizerError("damaged", f"{file}: the vocabulary is not an object from tokens to ids")
    validate(content, TokenizerFile, str(file), TokenizerError)
    if not normalizer["clean_text"] or model["continuing_subword_prefix"] != "##" or model["unk_token"] != "[UNK]":
        raise TokenizerError(
            "unknown-tokenizer", f"{file}: clean_text, the prefix ## or [UNK] differs from BERT's tokenizers"
        )
    tokens = sorted(vocab, key=vocab.__getitem__)
    if [vocab[token] for token in tokens] != list(range(len(tokens))):
        raise TokenizerError(
            "wrong-ids", f"{file}: the ids of the vocabulary are not 0 to {len(tokens) - 1:,}, each once"
        )
    added = [token["content"] for token in content.get("added_tokens", []) if token["content"] not in vocab]
    if added:
        raise TokenizerError(
            "added-tokens", f"{file}: {len(added)} added tokens, like {added[0]!r}, are not in the WordPiece vocabulary"
        )
    lowercase, strip = normalizer["lowercase"], normalizer["strip_accents"]
    return Tokenizer(
        tuple(tokens),
        Normalization(
            lowercase,
            lowercase if strip is None else strip,
            normalizer["handle_chinese_chars"],
            model["max_input_chars_per_word"],
        ),
    )


def _read_text(file: Path) -> str:
    try:
        return read_bytes(file, TokenizerError, TOKENIZER_BYTES).decode()
    except UnicodeDecodeError as error:
        raise TokenizerError("not-utf8", f"{file}: not UTF-8 at byte offset {error.start:,}") from error
