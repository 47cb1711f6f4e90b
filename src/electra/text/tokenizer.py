"""Tokenizers: vocabulary, pipeline, encoding and files."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from electra.errors import TokenizerError
from electra.schema import read_bytes, read_json, read_object
from electra.storage import write_atomically
from electra.text.hub import locate_model
from electra.text.subwords.bert import Normalization, find_normalization, is_bert, read_bert
from electra.text.subwords.fast import FastPipeline, read_fast
from electra.text.subwords.special_tokens import SPECIAL_TOKENS
from electra.text.tokenizer_schema import VocabularyConfig

__all__ = ["FILES", "SPECIAL_TOKENS", "Normalization", "Tokenizer", "load_tokenizer"]

FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
"""Files of a tokenizer directory; the last one only of BERT's WordPiece."""

TOKENIZER_BYTES = 256 << 20
"""Maximum size of a tokenizer file; one with 250,000 tokens has about 20 MB."""


@dataclass(frozen=True)
class Tokenizer:
    """Tokenizer of any supported pipeline; `train_tokenizer` and `load_tokenizer` return one."""

    vocabulary: tuple[str, ...]
    """In the order of the ids."""
    pipeline: Normalization | FastPipeline
    """BERT's WordPiece with this normalization, or any pipeline of the library."""

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    @property
    def pad_id(self) -> int:
        return self._ids[self.pipeline.special.pad]

    @property
    def unk_id(self) -> int | None:
        """Id of [UNK]; None if the vocabulary has none, as those of all bytes."""
        unk = self.pipeline.special.unk
        return None if unk is None else self._ids[unk]

    @property
    def cls_id(self) -> int:
        return self._ids[self.pipeline.special.cls]

    @property
    def sep_id(self) -> int:
        return self._ids[self.pipeline.special.sep]

    @property
    def mask_id(self) -> int:
        return self._ids[self.pipeline.special.mask]

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of [PAD], [CLS], [SEP] and [MASK]. [UNK] is not included: it represents a word, and is masked like one."""
        return self.pad_id, self.cls_id, self.sep_id, self.mask_id

    @cached_property
    def continuation_ids(self) -> tuple[int, ...]:
        """Ids of the tokens that continue a word."""
        continues, special = self.pipeline.mark.continues, {*self.special_ids}
        return tuple(id for id, token in enumerate(self.vocabulary) if continues(token) and id not in special)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids of a text: vocabulary in the order of ids, and pipeline."""
        return hashlib.sha256(self.pipeline.describe(self.vocabulary).encode()).hexdigest()

    def encode_lines(self, lines: list[str]) -> list[list[int]]:
        """Encode lines without special tokens, on all cores unless TOKENIZERS_PARALLELISM is false.

        "[MASK]" in a text is not a special token but ordinary text, as in BERT's code: the saved tokenizer has the special
        tokens, the one used here does not.
        """
        return [encoding.ids for encoding in self._encoder_backend.encode_batch_fast(lines, add_special_tokens=False)]

    def encode_with_offsets(self, lines: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of encode_lines, and for each the character range [start, end) in its line.

        Ranges refer to the line before normalization. Tokens from one character (a decomposed Korean syllable) have the same
        range; characters that normalization removes belong to no token. A space before a word belongs to no token either,
        although the tokens of some models include it.
        """
        encodings = self._encoder_backend.encode_batch(lines, add_special_tokens=False)
        return [
            (encoding.ids, [_without_space(line, *offsets) for offsets in encoding.offsets])
            for line, encoding in zip(lines, encodings, strict=True)
        ]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.vocabulary[id] for id in ids]

    def save(self, directory: Path, max_length: int | None = None) -> None:
        """Write tokenizer.json and tokenizer_config.json, and vocab.txt of BERT's WordPiece, for load_tokenizer and
        transformers' AutoTokenizer. `max_length` is the maximum number of tokens of the model in the directory.

        Raises StorageError. Other files in the directory are not changed.
        """
        config = {
            # Not BertTokenizer, which transformers would rebuild from the vocabulary, with 100 characters per word.
            "tokenizer_class": "PreTrainedTokenizerFast",
            **self.pipeline.special.build_config(),
            **self.pipeline.build_config(),
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "padding_side": "right",
            **({"model_max_length": max_length} if max_length else {}),
        }
        directory = Path(directory)
        if isinstance(self.pipeline, Normalization):
            write_atomically(directory / "vocab.txt", "".join(f"{token}\n" for token in self.vocabulary).encode())
        write_atomically(directory / "tokenizer_config.json", json.dumps(config, indent=2).encode())
        # Last, because load_tokenizer prefers it.
        saved = self.pipeline.build_saved(self.vocabulary).to_str(pretty=True)
        write_atomically(directory / "tokenizer.json", saved.encode())

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.vocabulary)}

    @cached_property
    def _encoder_backend(self) -> Any:
        return self.pipeline.build_encoder(self.vocabulary)


def _without_space(line: str, start: int, end: int) -> tuple[int, int]:
    """Shorten a range by the white space at its start, unless nothing else is in it."""
    first = start
    while first < end and line[first].isspace():
        first += 1
    return (first, end) if first < end else (start, end)


def load_named_tokenizer(name: str) -> Tokenizer:
    """Load the tokenizer that an option names: a path as in `load_tokenizer`, or a model of the Hugging Face hub.

    Raises TokenizerError.
    """
    return load_tokenizer(locate_model(name, TokenizerError))


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer from a directory with tokenizer.json or vocab.txt, or from one of these files.

    The special tokens are those that tokenizer_config.json names, or else have a usual name, such as [CLS] or <s>. With a
    vocab.txt, tokenizer_config.json sets whether text is lowercased and accents are stripped; both are by default.
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
    return _from_json(file) if file.suffix == ".json" else _from_vocabulary(file)


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
    if missing := [token for token in SPECIAL_TOKENS if token not in first]:
        raise TokenizerError(
            "missing-tokens",
            f"{file}: not in the vocabulary: {', '.join(missing)}; ELECTRA needs BERT's special tokens",
        )
    return Tokenizer(*find_normalization(tokens, config))


def _from_json(file: Path) -> Tokenizer:
    content = read_object(file, TokenizerError, TOKENIZER_BYTES)
    if is_bert(content):
        return Tokenizer(*read_bert(content, file))
    config_file = file.parent / "tokenizer_config.json"
    config = read_object(config_file, TokenizerError) if config_file.exists() else {}
    return Tokenizer(*read_fast(content, config, file))


def _read_text(file: Path) -> str:
    try:
        return read_bytes(file, TokenizerError, TOKENIZER_BYTES).decode()
    except UnicodeDecodeError as error:
        raise TokenizerError("not-utf8", f"{file}: not UTF-8 at byte offset {error.start:,}") from error
