"""Inference of multiple choice: the saved task, its predictions, and the export of its head."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from scipy.special import softmax
from torch import nn

from electra.finetuning.batching import EncodedExamples
from electra.finetuning.classification.heads import convert_to_hugging_face
from electra.finetuning.classification.inference import encode_pairs
from electra.finetuning.config import MIN_LENGTH
from electra.finetuning.multiple_choice.data import Question, check_choices, parse_questions, read_questions
from electra.finetuning.multiple_choice.heads import HuggingFaceMultipleChoiceHead, MultipleChoiceHead
from electra.finetuning.recipe import TEXTS
from electra.finetuning.task import HuggingFaceHead, Outputs, Prediction, PredictOptions, Values
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

HEAD_KIND = "multiple-choice"


@dataclass(frozen=True)
class SavedMultipleChoice:
    """Multiple choice; implements `task.SavedTask`."""

    task: str
    max_length: Annotated[int, Field(ge=MIN_LENGTH)]
    choices: Annotated[int, Field(ge=2)] | None = None
    """Endings of each question; if None (unknown), all inputs must have as many as the first one."""
    columns: Annotated[list[str], Field(min_length=1, max_length=2)] | None = None
    """Columns of the context and of the beginning of the endings; if None, those of `data.CONTEXTS`."""

    def build_head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        """See `task.SavedTask`."""
        return HuggingFaceMultipleChoiceHead(encoder.hidden_size)

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Question]:
        """Yield questions from a table, or from JSON lines on standard input."""
        return check_choices(read_questions(file, self._get_columns(options), None), self.choices)

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Question]:
        """Yield questions from mappings with the keys of a table."""
        return check_choices(parse_questions(values, self._get_columns(options)), self.choices)

    def predict(
        self,
        examples: list[Question],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Prediction]:
        """Predict the index of an ending, with the probabilities of all."""
        encoded = encode_questions(examples, tokenizer, self.max_length, f"from {examples[0].place} on")
        return format_predictions(examples, compute(encoded))

    def _get_columns(self, options: PredictOptions) -> tuple[str, ...] | None:
        """Return the columns of the context and of the beginning, from the options or those of fine-tuning."""
        return get_columns(options.text, options.text_pair) or (tuple(self.columns) if self.columns else None)


def get_columns(text: str | None, pair: str | None) -> tuple[str, ...] | None:
    """Return the columns that --text and --text-pair name; None if the first is not given."""
    return None if text is None else (text,) if pair is None else (text, pair)


def encode_questions(
    questions: Sequence[Question], tokenizer: Tokenizer, max_length: int, part: str
) -> EncodedExamples:
    """Tokenize every choice as `[CLS] context [SEP] ending [SEP]`; all questions have the same number of choices.

    The target `label` is the index of the answer; there is none if an answer is unknown. Logs a warning if texts are truncated
    at `max_length` tokens, which names them by `part`.
    """
    contexts = [question.context for question in questions for _ in question.endings]
    endings = [ending for question in questions for ending in question.endings]
    input_ids, segment_a, truncated = encode_pairs(tokenizer, contexts, endings, max_length)
    if truncated:
        log.warning(
            f"{truncated:,} of {len(input_ids):,} choices {part} are cut at {max_length} tokens (--max-length)",
            extra={"code": "truncated"},
        )
    answers = [question.answer for question in questions]
    targets = {} if None in answers else {"label": np.array(answers, dtype=np.int64)}
    return EncodedExamples(input_ids, segment_a, targets, {"cut": truncated}, len(questions[0].endings))


def format_predictions(questions: Sequence[Question], outputs: Outputs) -> list[Prediction]:
    """Format the index of the ending with the highest logit, and the probabilities of all, for each question."""
    return [
        {
            "id": question.id,
            "choice": int(output["logits"].argmax()),
            "probabilities": softmax(output["logits"].astype(np.float64)).tolist(),
        }
        for question, output in zip(questions, outputs, strict=True)
    ]


def export_head(head: nn.Module, settings: Mapping[str, Any]) -> HuggingFaceHead | None:
    """Convert the head to the two layers of Hugging Face; None for a hidden size of 1, in which they do not fit."""
    assert isinstance(head, MultipleChoiceHead)
    weights = convert_to_hugging_face(head.output.weight.detach().cpu(), head.output.bias.detach().cpu())
    # The values with which the class of transformers has these two layers; they are its defaults today.
    config = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
    return None if weights is None else HuggingFaceHead(HEAD_KIND, weights, config)


def from_hugging_face(labels: list[str], problem_type: str | None, positions: int) -> SavedMultipleChoice:
    """Build the task of an `ElectraForMultipleChoice` without `task.json`."""
    return SavedMultipleChoice("multiple-choice", min(TEXTS.max_length, positions))
