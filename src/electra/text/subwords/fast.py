"""Tokenizers of any pipeline of the `tokenizers` library: WordPiece, BPE and Unigram with their normalization."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, ClassVar

import tokenizers

from electra.config.checks import join_choices
from electra.errors import TokenizerError
from electra.external import one_line
from electra.schema import validate
from electra.text.subwords.bert import check_ids
from electra.text.subwords.special_tokens import SpecialTokens, find_special_tokens, list_missing
from electra.text.subwords.word_marks import WordMark, build_word_decoder, find_word_mark
from electra.text.tokenizer_schema import VOCABULARIES, AnyTokenizerFile

RESERVED = re.compile(r"\[unused\d+\]")
"""Tokens without a use, which no text has, as in BERT's vocabulary."""
PROBE = "A word, a number 123 and characters that no vocabulary has: \U0010fffd \x07 é 中"
"""Text that is encoded when a tokenizer is loaded, so that a model that fails on unknown characters is refused then."""


@dataclass(frozen=True)
class FastPipeline:
    """A pipeline of the library, as in `tokenizer.json`, which includes the vocabulary."""

    definition: str
    """`tokenizer.json` in the library's form, without what adds special tokens, pads or truncates."""
    special: SpecialTokens
    mark: WordMark

    has_independent_words: ClassVar[bool] = False
    """Words depend on their neighbors: on the space before them, for example."""

    def build_encoder(self, vocabulary: Sequence[str]) -> Any:
        """Build the encoder of text that has no special tokens: their names in a text are ordinary text.

        It has the special tokens under names that no text has. They cannot be removed, because others would get their ids.
        """
        content = json.loads(self.definition)
        names = {*self.special.names(), *(each["content"] for each in content["added_tokens"] if each["special"])}
        names |= {token for token in vocabulary if RESERVED.fullmatch(token)}
        hidden = {name: f"\uffff{name}\uffff" for name in names}  # U+FFFF is never a character
        model = content["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {hidden.get(token, token): id for token, id in model["vocab"].items()}
        else:
            model["vocab"] = [[hidden.get(token, token), score] for token, score in model["vocab"]]
        if model.get("unk_token") is not None:
            model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
        for each in content["added_tokens"]:
            if each["content"] in hidden:
                each |= {"content": hidden[each["content"]], "normalized": False, "lstrip": False, "rstrip": False}
        return tokenizers.Tokenizer.from_str(json.dumps(content))

    def build_saved(self, vocabulary: Sequence[str]) -> Any:
        """Build the tokenizer to save, which has the special tokens."""
        backend = tokenizers.Tokenizer.from_str(self.definition)
        backend.post_processor = self.special.build_template({token: id for id, token in enumerate(vocabulary)})
        return backend

    def build_config(self) -> dict[str, Any]:
        """Build the entries of `tokenizer_config.json` that other models do not have."""
        return {"clean_up_tokenization_spaces": False}

    def describe(self, vocabulary: Sequence[str]) -> str:
        """Return everything that the ids of a text depend on, as JSON."""
        return json.dumps([self.definition, astuple(self.special)])


def read_fast(
    content: Mapping[str, Any], config: Mapping[str, Any], place: Path
) -> tuple[tuple[str, ...], FastPipeline]:
    """Read a `tokenizer.json`, with the special tokens that `tokenizer_config.json` names.

    Raises:
        TokenizerError: another model, damaged parts, missing special tokens, ids with holes, or tokens without word marks.
    """
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(kind, str) or kind not in VOCABULARIES:
        raise TokenizerError(
            "unknown-tokenizer", f"{place}: a model of type {kind}, expected {join_choices(VOCABULARIES)}"
        )
    validate(model, VOCABULARIES[kind], f"{place}: model", TokenizerError)
    validate(content, AnyTokenizerFile, str(place), TokenizerError)
    mark = find_word_mark({**content, "model": model})
    if mark is None:
        raise TokenizerError(
            "no-word-marks",
            f"{place}: its tokens do not show where words begin, expected a prefix such as ##, the Ġ of byte-level models "
            "or the ▁ of Metaspace; use another tokenizer",
        )
    kept = {key: content.get(key) for key in ("version", "normalizer", "pre_tokenizer", "decoder")}
    dropout = {"dropout": None} if "dropout" in model else {}  # at random, other ids in each call
    backend = parse_backend(kept | {"added_tokens": content.get("added_tokens", []), "model": model | dropout}, place)
    return build_pipeline(backend, mark, config, place)


def build_pipeline(
    backend: Any, mark: WordMark, config: Mapping[str, Any], place: Path | str
) -> tuple[tuple[str, ...], FastPipeline]:
    """Return the vocabulary and the pipeline of a tokenizer of the library.

    Raises:
        TokenizerError: missing special tokens, ids with holes, or text that cannot be encoded.
    """
    ids: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    vocabulary = tuple(sorted(ids, key=ids.__getitem__))
    check_ids([ids[token] for token in vocabulary], Path(place))
    found = find_special_tokens(config, ids)
    model = json.loads(backend.to_str())["model"]
    if model["type"] == "Unigram":
        unknown = None if model["unk_id"] is None else model["vocab"][model["unk_id"]][0]
    else:
        unknown = model["unk_token"]
    needs_unknown = not model.get("byte_fallback") and '"ByteLevel"' not in backend.to_str()
    missing = [
        *list_missing(found),
        *(["an unknown token of the model"] if needs_unknown and unknown not in ids else []),
    ]
    if missing:
        raise TokenizerError(
            "missing-tokens",
            f"{place}: not in the vocabulary: {', '.join(missing)}; ELECTRA needs tokens for padding, start, end and masks",
        )
    special = SpecialTokens(found["pad"], unknown or found.get("unk"), found["cls"], found["sep"], found["mask"])
    declared = {each["content"] for each in json.loads(backend.to_str())["added_tokens"] if each["special"]}
    backend.add_special_tokens([name for name in special.names() if name not in declared])
    backend.decoder = backend.decoder or build_word_decoder(mark)
    backend.post_processor = None
    content = json.loads(backend.to_str())
    pipeline = FastPipeline(json.dumps(content, ensure_ascii=False, sort_keys=True), special, mark)
    try:
        pipeline.build_encoder(vocabulary).encode(PROBE)
    except BaseException as problem:
        raise make_library_error(problem, place) from None
    return vocabulary, pipeline


def parse_backend(content: Mapping[str, Any], place: Path | str) -> Any:
    """Build a tokenizer of the library from the content of a `tokenizer.json`. Raises TokenizerError."""
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except BaseException as problem:
        raise make_library_error(problem, place) from None


def make_library_error(problem: BaseException, place: Path | str) -> BaseException:
    """Convert an error of the library, or what Rust raises where the library has none, to an error of the package."""
    if isinstance(problem, Exception) or type(problem).__name__ == "PanicException":
        return TokenizerError("damaged", f"{place}: the tokenizers library cannot use it ({one_line(problem)})")
    return problem
