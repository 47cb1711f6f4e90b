"""Inference of question answering: the saved task, its inputs and predictions, and the export of its head."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat
from torch import nn

from electra.errors import DataError
from electra.external import check_unicode
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.qa.answers import answer_questions
from electra.finetuning.qa.config import SpanConfig, fit_to_length
from electra.finetuning.qa.data import Question, read_squad
from electra.finetuning.qa.heads import PlainSpanHead, build_span_head
from electra.finetuning.qa.windows import build_windows
from electra.finetuning.readers.inputs import build_type_error, get_text, iterate_values, read_records
from electra.finetuning.readers.tables import get_suffix
from electra.finetuning.recipe import QUESTIONS
from electra.finetuning.task import HuggingFaceHead, Outputs, Prediction, PredictOptions, Values
from electra.model.encoder import EncoderConfig
from electra.text.lines import get_row_id
from electra.text.tokenizer import Tokenizer

HEAD_KIND = "question-answering"
WITH_IMPOSSIBLE = "squad2"
"""Name of the task in which a question can have no answer."""


@dataclass(frozen=True)
class SavedQuestionAnswering:
    """Question answering; implements `task.SavedTask`."""

    task: str
    span: SpanConfig
    best_null_threshold: FiniteFloat | None = None
    """Null threshold with the best F1 on dev."""

    @property
    def max_length(self) -> int:
        """See `task.SavedTask`."""
        return self.span.max_length

    def build_head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        """See `task.SavedTask`."""
        if kind == HEAD_KIND:
            return PlainSpanHead(encoder.hidden_size)
        return build_span_head(encoder.hidden_size, self.span)

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Question]:
        """Yield questions from the rows of a table, from JSON lines, or from a SQuAD file, which is read as a whole."""
        if get_suffix(Path(file)) == ".json":
            yield from read_squad(Path(file))
            return
        for number, (place, record) in enumerate(read_records(file, "a JSON object with question and context in each")):
            question, context = (get_text(record, name, place) for name in ("question", "context"))
            yield Question(get_row_id(record) or str(number), question, context, (), False)

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Question]:
        """Yield questions from mappings with the keys `question` and `context`."""
        for place, id, value in iterate_values(values):
            if not isinstance(value, Mapping):
                raise build_type_error(value, place, "a dictionary with 'question' and 'context'")
            texts = [check_unicode(get_text(value, name, place), place, DataError) for name in ("question", "context")]
            yield Question(id, texts[0], texts[1], (), False)

    def predict(
        self,
        examples: list[Question],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Prediction]:
        """Predict answers with null odds and the n best spans.

        In squad2, a question with null odds above the threshold has no answer. The threshold is the option, else the one with
        the best F1 on dev, else the default of the head.
        """
        threshold = self.best_null_threshold if options.null_threshold is None else options.null_threshold
        config = self.span if threshold is None else replace(self.span, null_threshold=threshold)
        windows = build_windows(examples, tokenizer, config)
        applied = config.threshold if self.task == WITH_IMPOSSIBLE else None
        return [
            prediction.to_record(applied) for prediction in answer_questions(windows, compute(windows.examples), config)
        ]


def export_head(head: nn.Module, settings: Mapping[str, Any]) -> HuggingFaceHead | None:
    """Convert the plain head to Hugging Face's class; None for the joint head, which has no class there."""
    return HuggingFaceHead(HEAD_KIND, head.state_dict()) if isinstance(head, PlainSpanHead) else None


def from_hugging_face(labels: list[str], problem_type: str | None, positions: int) -> SavedQuestionAnswering:
    """Build the task of an `ElectraForQuestionAnswering` without `task.json`; questions can have no answer."""
    span = fit_to_length(SpanConfig(head="plain"), min(QUESTIONS.max_length, positions))
    return SavedQuestionAnswering(WITH_IMPOSSIBLE, span)
