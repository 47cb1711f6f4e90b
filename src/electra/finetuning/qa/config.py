"""The options of question answering."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from electra.config.checks import check_number, check_range
from electra.config.options import fixed_field
from electra.errors import UsageError
from electra.finetuning.recipe import QUESTIONS

HeadKind = Literal["joint", "plain"]

DEFAULT_NULL_THRESHOLDS: dict[HeadKind, float] = {"joint": -2.75, "plain": 0.0}
"""The joint head's is that of the original code; the plain head's null odds are a difference of two scores: 0 is neutral."""


@dataclass(frozen=True)
class SpanConfig:
    """Options of windows, the head, and the selection of answers (section 3.1, Appendix C).

    A window is `[CLS] question [SEP] part of the context [SEP]`; a long context has several, which overlap.
    """

    max_length: int = fixed_field(QUESTIONS.max_length)
    """Maximum tokens of a window."""
    doc_stride: int = 128
    """Tokens of the context from the start of a window to the start of the next window."""
    max_query_length: int = 64
    """Maximum tokens of a question; longer ones are truncated."""
    max_answer_length: int = 30
    """Maximum tokens of an answer."""
    n_best_size: int = 20
    """Number of answers returned for each question, the best first."""
    beam_size: int = 20
    """Joint head: number of starts that are considered, and of ends for each start."""
    answerable_weight: float = 0.5
    """Joint head: weight of the loss of the classifier of impossible questions."""
    head: HeadKind = "joint"
    """joint: the end depends on the start, as in the paper; plain: one linear layer, as in Hugging Face models."""
    null_threshold: float | None = None
    """squad2: null odds above which the prediction is "no answer"; by default -2.75 for the joint head, 0 for the plain."""

    def __post_init__(self) -> None:
        counts = ("doc_stride", "max_query_length", "max_answer_length", "n_best_size", "beam_size")
        check_range(self, "span", *counts, at_least=1, at_most=10**6)
        check_range(self, "span", "answerable_weight", at_least=0, at_most=10**6)
        check_number("--max-length", self.max_length, at_most=10**7)
        if self.max_length < self.max_query_length + 4:
            raise UsageError(
                "too-short",
                f"--max-length {self.max_length} is too small for a question of --span.max-query-length "
                f"{self.max_query_length}, [CLS], two [SEP] and a token of the context",
            )
        if self.null_threshold is not None and math.isnan(self.null_threshold):
            raise UsageError("not-finite", "--span.null-threshold is NaN; it must be a number")

    @property
    def threshold(self) -> float:
        """`null_threshold`, or the default of the head."""
        return DEFAULT_NULL_THRESHOLDS[self.head] if self.null_threshold is None else self.null_threshold


def fit_to_length(span: SpanConfig, max_length: int) -> SpanConfig:
    """Return the options for windows of `max_length` tokens.

    The original code's stride of 128 and question length of 64 are for windows of 512 tokens. For shorter windows, their
    defaults are reduced to a quarter of `max_length`.
    """
    defaults = SpanConfig()
    shorter = {
        name: min(getattr(defaults, name), max_length // 4)
        for name in ("doc_stride", "max_query_length")
        if getattr(span, name) == getattr(defaults, name)
    }
    return replace(span, max_length=max_length, **shorter)
