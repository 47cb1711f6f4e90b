"""Addition of tokens to a vocabulary; the ids of the tokens that it has stay the same."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from electra.text.subwords.bert import Normalization
from electra.text.subwords.fast import build_pipeline, parse_backend
from electra.text.tokenizer import Tokenizer

UNLIKELY = 100.0
"""How far below the lowest score of a Unigram vocabulary that of a token is that no text should have: log-probabilities of
single tokens differ by about 15."""


@dataclass(frozen=True)
class Addition:
    """A token to add."""

    token: str
    merge: tuple[str, str] | None = None
    """Tokens that a BPE joins to this one; None for a token that no text has."""
    score: float | None = None
    """Log-probability in a Unigram vocabulary; None for a token that no text has."""


def list_reserved(number: int) -> list[Addition]:
    """List tokens without a use, as BERT's vocabulary has: [unused0], [unused1] and so on."""
    return [Addition(f"[unused{index}]") for index in range(number)]


def add_tokens(tokenizer: Tokenizer, additions: Sequence[Addition]) -> Tokenizer:
    """Add tokens after all others, in this order. Their names are new."""
    if not additions:
        return tokenizer
    pipeline, tokens = tokenizer.pipeline, [each.token for each in additions]
    if isinstance(pipeline, Normalization):
        return replace(tokenizer, vocabulary=(*tokenizer.vocabulary, *tokens))
    content = json.loads(pipeline.definition)
    model = content["model"]
    if isinstance(model["vocab"], list):
        low = min(score for _, score in model["vocab"]) - UNLIKELY
        # Tokens that were added outside the model, as a mask token is, keep their ids inside it.
        model["vocab"] += [[token, low] for token in tokenizer.vocabulary[len(model["vocab"]) :]]
        model["vocab"] += [[each.token, low if each.score is None else each.score] for each in additions]
    else:
        model["vocab"] = {token: id for id, token in enumerate((*tokenizer.vocabulary, *tokens))}
    if "merges" in model:
        model["merges"] += [list(each.merge) for each in additions if each.merge is not None]
    backend = parse_backend(content, "the new vocabulary")
    return Tokenizer(*build_pipeline(backend, pipeline.mark, pipeline.special.build_config(), "the new vocabulary"))
