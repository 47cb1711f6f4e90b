"""Inference of question answering: a saved task, the questions that it reads, its answers."""

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
from electra.finetuning.qa.chunks import chunk_questions
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.data import Question, read_squad
from electra.finetuning.qa.heads import PlainSpanHead, build_span_head
from electra.finetuning.readers.inputs import get_text, iterate_values, read_records, unexpected_type
from electra.finetuning.readers.tables import get_suffix
from electra.finetuning.recipe import QUESTIONS
from electra.finetuning.task import HuggingFaceHead, Outputs, PredictOptions, Record, Values
from electra.model.encoder import EncoderConfig
from electra.text.lines import get_row_id
from electra.text.tokenizer import Tokenizer

HEAD = "question-answering"
WITH_IMPOSSIBLE = "squad2"
"""The task in which a question may have no answer."""


@dataclass(frozen=True)
class SavedQuestionAnswering:
    """A saved task over questions; implements `task.SavedTask`."""

    task: str
    span: SpanConfig
    best_null_threshold: FiniteFloat | None = None
    """The null threshold with the best F1 on dev."""

    @property
    def max_length(self) -> int:
        """See `task.SavedTask`."""
        return self.span.max_length

    def head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        """See `task.SavedTask`."""
        if kind == HEAD:
            return PlainSpanHead(encoder.hidden_size)
        return build_span_head(encoder.hidden_size, self.span)

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Question]:
        """Rows of a table, JSON lines, or a SQuAD file, which is one JSON document and is read whole."""
        if get_suffix(Path(file)) == ".json":
            yield from read_squad(Path(file))
            return
        for number, (place, record) in enumerate(read_records(file, "a JSON object with question and context in each")):
            question, context = (get_text(record, name, place) for name in ("question", "context"))
            yield Question(get_row_id(record) or str(number), question, context, (), False)

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Question]:
        """Mappings with the keys `question` and `context`."""
        for place, id, value in iterate_values(values):
            if not isinstance(value, Mapping):
                raise unexpected_type(value, place, "a dictionary with 'question' and 'context'")
            texts = [check_unicode(get_text(value, name, place), place, DataError) for name in ("question", "context")]
            yield Question(id, texts[0], texts[1], (), False)

    def predict(
        self,
        examples: list[Question],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Record]:
        """Answers, null odds and the n best spans.

        There is no answer above the null threshold: the option, or the best one on dev, or the head's default.
        """
        threshold = self.best_null_threshold if options.null_threshold is None else options.null_threshold
        config = self.span if threshold is None else replace(self.span, null_threshold=threshold)
        chunks = chunk_questions(examples, tokenizer, config)
        used = config.threshold if self.task == WITH_IMPOSSIBLE else None
        return [each.record(used) for each in answer_questions(chunks, compute(chunks.examples), config)]


def export_head(head: nn.Module, settings: Mapping[str, Any]) -> HuggingFaceHead | None:
    """The plain head as Hugging Face has it; None for the joint head."""
    return HuggingFaceHead(HEAD, head.state_dict()) if isinstance(head, PlainSpanHead) else None


def from_hugging_face(labels: list[str], problem_type: str | None, positions: int) -> SavedQuestionAnswering:
    """The task of an `ElectraForQuestionAnswering` that others fine-tuned: a question may have no answer."""
    span = SpanConfig(head="plain", max_length=min(QUESTIONS.max_length, positions))
    return SavedQuestionAnswering(WITH_IMPOSSIBLE, span)
