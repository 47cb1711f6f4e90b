"""Scores of sentences: the sum over the tokens, special tokens left out, of a log-probability given all other tokens."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from electra.config.checks import check_choice
from electra.errors import UsageError
from electra.pretraining.evaluation.network_scorer import METHODS, load_network_scorer
from electra.pretraining.evaluation.networks import is_foreign
from electra.pretraining.evaluation.sentence_batches import TokenizedSentence, number_sentences
from electra.pretraining.evaluation.transformers_scorer import load_transformers_scorer
from electra.runtime.setup import Runtime


@runtime_checkable  # for the checks of types in tests
class Scorer(Protocol):
    """A pre-trained model that scores the tokens of sentences, in float32."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the model can compute, of `METHODS`."""

    @property
    def max_positions(self) -> int | None:
        """Tokens of the longest input; None without a limit."""

    def encode(self, sentences: Sequence[str]) -> list[TokenizedSentence]:
        """Tokenize, without truncation."""

    def score_tokens(
        self,
        sentences: Sequence[TokenizedSentence],
        methods: Sequence[str],
        runtime: Runtime,
        progress: Callable[[int, str], None],
    ) -> dict[str, Float[Tensor, " N"]]:
        """Compute the log-probability of each scored token of all sentences, one after the other, by each of the methods.

        `progress` is called with the percentage of the work that is done, and the network.
        """


class SentenceScore(NamedTuple):
    """The score of a sentence in nats."""

    total: float
    tokens: int

    @property
    def mean(self) -> float:
        """The score per token."""
        return self.total / self.tokens


def load_scorer(model: Path, mask_fraction: float | None = None) -> Scorer:
    """Load a finished run, a folder with discriminator/ and generator/, or one Hugging Face directory, of any architecture.

    `mask_fraction` is p_mask; by default that of the run's configuration. Without either, "both" is not available.

    Raises:
        ModelError: none of these, a network without a pre-training head, or two networks with different tokenizers.
        RunError: the run is not finished.
        TokenizerError: the tokenizer is missing, damaged or does not match the network.
        UsageError: p_mask is given for a model that lacks one of the two networks, or transformers is not installed.
    """
    return (
        load_transformers_scorer(model, mask_fraction)
        if is_foreign(model)
        else load_network_scorer(model, mask_fraction)
    )


def check_methods(scorer: Scorer, methods: Sequence[str], mask_fraction: float | None, model: str) -> tuple[str, ...]:
    """Return the methods to compute, by default all that the scorer has.

    Raises:
        UsageError: there is no method of a name, the model lacks a network for it, or no method uses `mask_fraction`.
    """
    for name in methods:
        check_choice("--methods", name, METHODS)
        if name not in scorer.methods:
            raise UsageError(
                "no-method", f"{model}: cannot score by {name}; its networks can score by {', '.join(scorer.methods)}"
            )
    selected = tuple(dict.fromkeys(methods)) or scorer.methods
    if mask_fraction is not None and "both" not in selected:
        raise UsageError(
            "meaningless-option",
            f"--mask-fraction applies to --methods both, not to {', '.join(selected)}; leave one of the options out",
        )
    return selected


def score_sentences(
    scorer: Scorer,
    sentences: Sequence[str],
    methods: Sequence[str],
    runtime: Runtime,
    progress: Callable[[int, str], None] = lambda number, detail: None,
    places: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, list[SentenceScore]]:
    """Score sentences by each of the methods; equal sentences are scored once.

    Args:
        scorer: From `load_scorer`.
        sentences: Any number of texts.
        methods: Names of `scorer.methods`.
        runtime: Device; its precision is float32.
        progress: Called with the percentage of the work that is done, and the network.
        places: Sentence -> file and line, for messages.

    Raises:
        UsageError: a sentence has no tokens, or more than the model has positions.
    """
    unique = list(dict.fromkeys(sentences))
    encoded = encode_sentences(unique, scorer, places)
    by_method = {}
    for method, log_p in scorer.score_tokens(encoded, methods, runtime, progress).items():
        totals = torch.zeros(len(unique), dtype=torch.float64)
        totals.index_add_(0, number_sentences(encoded), log_p.double())
        scores = {
            text: SentenceScore(float(score), len(each.scored))
            for text, each, score in zip(unique, encoded, totals, strict=True)
        }
        by_method[method] = [scores[text] for text in sentences]
    return by_method


def encode_sentences(sentences: Sequence[str], scorer: Scorer, places: Mapping[str, str]) -> list[TokenizedSentence]:
    """Tokenize sentences. Raises a `UsageError` for one that is empty or too long."""
    encoded, limit = scorer.encode(sentences), scorer.max_positions or math.inf
    for text, each in zip(sentences, encoded, strict=True):
        where = places.get(text) or repr(text[:60])
        if not each.scored:
            raise UsageError("no-tokens", f"{where}: the sentence has no tokens to score")
        if len(each.ids) > limit:
            raise UsageError(
                "longer-than-model",
                f"{where}: {len(each.ids):,} tokens with special tokens, but the model has {limit:,} positions; shorten it",
            )
    return encoded
