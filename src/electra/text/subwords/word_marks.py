"""How tokens show which of them begin and which continue a word, by kind of model."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tokenizers import decoders, pre_tokenizers


@dataclass(frozen=True)
class WordMark:
    """The start of some tokens that marks words."""

    mark: str
    is_continuation: bool
    """The mark begins tokens that continue a word; otherwise those that begin one."""
    read: Callable[[str], str] = str
    """Return the text of a token without its mark; of a part of a character, at most one character."""

    def continues(self, token: str) -> bool:
        """Whether a token, not a special one, continues the word before it."""
        return token.startswith(self.mark) == self.is_continuation

    def count_characters(self, token: str) -> int:
        """Count the characters of a token's text."""
        return len(self.read(token.removeprefix(self.mark)))


@cache
def map_bytes() -> dict[str, int]:
    """Map the characters that byte-level models write for bytes to the bytes."""
    # Each byte in the context of a text where it occurs; the library has no function for it.
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    unshifted = [char for char in characters if ord(char) < 0x100]
    shifted = [char for char in characters if ord(char) >= 0x100]
    rest = [byte for byte in range(0x100) if chr(byte) not in unshifted]
    return {char: ord(char) for char in unshifted} | dict(zip(shifted, rest, strict=True))


def read_bytes(token: str) -> str:
    """Decode a token of byte characters; incomplete characters become U+FFFD."""
    table = map_bytes()
    return bytes(table.get(char, 0x3F) for char in token).decode(errors="replace")


def read_byte_piece(token: str) -> str:
    """Return the text of a token; one character for a byte, as in <0xE4>."""
    return "\ufffd" if is_byte_piece(token) else token


def is_byte_piece(token: str) -> bool:
    """Whether a token is a byte, as in <0xE4>, for characters that are not in the vocabulary."""
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")


WORD_MARKS: Mapping[str, WordMark] = {
    "WordPiece": WordMark("##", is_continuation=True),
    "ByteLevel": WordMark("Ġ", is_continuation=False, read=read_bytes),
    "Metaspace": WordMark("▁", is_continuation=False, read=read_byte_piece),
}
"""By model, or by the part of the pipeline that marks words."""


def find_word_mark(content: Mapping[str, Any]) -> WordMark | None:
    """Find how the tokens of a `tokenizer.json` mark words; None if they do not, or in another way.

    A BPE with suffixes, as "</w>", is such another way: a token continues a word if the one before it has no suffix.
    """
    model = content["model"]
    if model.get("end_of_word_suffix"):
        return None
    if model["type"] == "WordPiece" or model.get("continuing_subword_prefix"):
        prefix = model.get("continuing_subword_prefix")
        return replace(WORD_MARKS["WordPiece"], mark=prefix) if isinstance(prefix, str) and prefix else None
    parts = json.dumps([content.get("normalizer"), content.get("pre_tokenizer")], ensure_ascii=False)
    if '"ByteLevel"' in parts:
        return WORD_MARKS["ByteLevel"]
    return WORD_MARKS["Metaspace"] if "▁" in parts else None


def build_word_decoder(mark: WordMark) -> Any:
    """Build the decoder that joins tokens to text."""
    if mark.is_continuation:
        return decoders.WordPiece(prefix=mark.mark)
    if mark == WORD_MARKS["ByteLevel"]:
        return decoders.ByteLevel()
    return decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
