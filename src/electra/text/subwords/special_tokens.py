"""Special tokens: their roles, the names that tokenizers give them, and where an input of a model has them."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from tokenizers.processors import TemplateProcessing

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""In the order of their ids in vocabularies of this package; other vocabularies have them anywhere."""

ROLES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pad": (("pad_token",), ("[PAD]", "<pad>")),
    "unk": (("unk_token",), ("[UNK]", "<unk>")),
    "cls": (("cls_token", "bos_token"), ("[CLS]", "<s>", "<cls>", "<bos>")),
    "sep": (("sep_token", "eos_token"), ("[SEP]", "</s>", "<sep>", "<eos>")),
    "mask": (("mask_token",), ("[MASK]", "<mask>")),
}
"""Role -> keys of `tokenizer_config.json` that name its token, and usual names; the first one found is taken."""


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a vocabulary."""

    pad: str = "[PAD]"
    unk: str | None = "[UNK]"
    """None if every text has tokens, as with those of all bytes."""
    cls: str = "[CLS]"
    """Begins an input of a model; BOS in some vocabularies."""
    sep: str = "[SEP]"
    """Ends a segment; EOS in some vocabularies."""
    mask: str = "[MASK]"

    def names(self) -> list[str]:
        """List the tokens, each once; a token can have two roles."""
        return list(dict.fromkeys(token for token in astuple(self) if token is not None))

    def build_config(self) -> dict[str, str]:
        """Build the entries of `tokenizer_config.json`."""
        tokens = zip(ROLES, astuple(self), strict=True)
        return {f"{role}_token": token for role, token in tokens if token is not None}

    def build_template(self, ids: Mapping[str, int]) -> Any:
        """Build what adds [CLS] and [SEP] to one or two segments, with token type 1 in the second one."""
        cls, sep = self.cls, self.sep
        return TemplateProcessing(
            single=[f"{cls}:0", "$A:0", f"{sep}:0"],
            pair=[f"{cls}:0", "$A:0", f"{sep}:0", "$B:1", f"{sep}:1"],
            special_tokens=[(token, ids[token]) for token in dict.fromkeys((cls, sep))],
        )


def find_special_tokens(config: Mapping[str, Any], vocabulary: Container[str]) -> dict[str, str]:
    """Find the special tokens, by role, that the entries of `tokenizer_config.json` or else their names tell."""
    found = {}
    for role, (keys, names) in ROLES.items():
        given = [name for key in keys if (name := _read_name(config.get(key))) is not None]
        if token := next((name for name in (*given, *names) if name in vocabulary), None):
            found[role] = token
    return found


def list_missing(found: Mapping[str, str]) -> Sequence[str]:
    """List usual names of the special tokens that were not found; [UNK] is not needed here."""
    return [" or ".join(names[:2]) for role, (_, names) in ROLES.items() if role not in found and role != "unk"]


def _read_name(entry: Any) -> str | None:
    content = entry.get("content") if isinstance(entry, dict) else entry
    return content if isinstance(content, str) else None
