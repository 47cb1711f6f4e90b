"""Inference of text classification: the saved task, its inputs and predictions, and the export of its head."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from scipy.special import expit, softmax
from torch import nn

from electra.config.checks import check_choice
from electra.errors import DataError
from electra.external import check_unicode
from electra.finetuning.batching import EncodedExamples, encode_with_progress
from electra.finetuning.classification.heads import (
    HuggingFaceClassificationHead,
    LabelKind,
    TextClassificationHead,
    convert_to_hugging_face,
)
from electra.finetuning.classification.pooling import POOLINGS
from electra.finetuning.config import MIN_LENGTH
from electra.finetuning.readers.inputs import (
    build_type_error,
    get_text,
    is_table,
    iterate_values,
    read_lines,
    read_records,
)
from electra.finetuning.recipe import TEXTS
from electra.finetuning.task import HuggingFaceHead, Outputs, Prediction, PredictOptions, Values, build_label_config
from electra.model.encoder import EncoderConfig
from electra.text.lines import get_row_id
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

HEAD_KIND = "sequence-classification"
PROBLEM_TYPES: dict[LabelKind, str] = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}
"""Kind of labels -> `problem_type` in Hugging Face's config.json."""
EXPORT_HINT = "it pools other tokens than [CLS] (--pooling), or there are more labels than half of the hidden size"
COLUMN_HINT = " (see --text and --text-pair)"


@dataclass(frozen=True)
class Text:
    """A text or a pair of texts to classify."""

    id: str
    """The id in the input, or the number of the input, from 0."""
    first: str
    second: str | None
    place: str
    """File and line, or number of the input, for messages."""


@dataclass(frozen=True)
class SavedClassification:
    """Classification of texts or pairs of texts; implements `task.SavedTask`."""

    task: str
    kind: LabelKind
    labels: list[str]
    max_length: Annotated[int, Field(ge=MIN_LENGTH)]
    pairs: bool | None = None
    """Whether the model reads pairs; if None (unknown), all inputs must be like the first one."""
    columns: Annotated[list[str], Field(min_length=1, max_length=2)] | None = None
    """Columns of the texts in the table of fine-tuning."""
    pooling: str = "cls"
    """A key of `pooling.POOLINGS`."""

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, POOLINGS)

    def build_head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        """See `task.SavedTask`."""
        outputs = 1 if self.kind == "regression" else len(self.labels)
        if kind == HEAD_KIND:
            return HuggingFaceClassificationHead(encoder.hidden_size, outputs)
        return TextClassificationHead(self.kind, encoder.hidden_size, outputs, 0.0, pooling=self.pooling)

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Text]:
        """Yield lines (a tab separates the texts of a pair; a blank line is an empty text) or rows of a table."""
        return check_pairs(read_texts(file, *self._get_columns(options)), self.pairs)

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Text]:
        """Yield texts from strings, pairs of strings, or mappings with the columns of a table."""
        return check_pairs(parse_texts(values, *self._get_columns(options)), self.pairs)

    def predict(
        self,
        examples: list[Text],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Prediction]:
        """Predict labels with probabilities, or numbers. Logs a warning if texts are truncated at `max_length` tokens."""
        first = [text.first for text in examples]
        second = None if examples[0].second is None else [text.second or "" for text in examples]
        input_ids, segment_a, truncated = encode_pairs(tokenizer, first, second, self.max_length)
        if truncated:
            log.warning(
                f"{truncated:,} texts from {examples[0].place} on are cut at {self.max_length} tokens",
                extra={"code": "truncated"},
            )
        outputs = compute(EncodedExamples(input_ids, segment_a, {}))
        return [
            {"id": text.id, **format_prediction(self.kind, self.labels, output["logits"])}
            for text, output in zip(examples, outputs, strict=True)
        ]

    def _get_columns(self, options: PredictOptions) -> tuple[str, str | None]:
        """Return the columns of the first and the second text, from the options or those of fine-tuning."""
        if options.text is not None:
            return options.text, options.text_pair
        text, *pair = self.columns or ["sentence"]
        return text, options.text_pair or (pair[0] if pair else None)


def export_head(head: nn.Module, settings: Mapping[str, Any]) -> HuggingFaceHead | None:
    """Convert the head to the two layers of Hugging Face, which read [CLS].

    Returns:
        The head; None if it reads other tokens, or has too many outputs (see `convert_to_hugging_face`).
    """
    assert isinstance(head, TextClassificationHead)
    weights = convert_to_hugging_face(*head.fold_scale()) if head.only_cls else None
    if weights is None:
        return None
    labels = list(settings["labels"]) or ["value"]
    return HuggingFaceHead(
        HEAD_KIND, weights, {**build_label_config(labels), "problem_type": PROBLEM_TYPES[settings["kind"]]}
    )


def from_hugging_face(labels: list[str], problem_type: str | None, positions: int) -> SavedClassification:
    """Build the task of an `ElectraForSequenceClassification` without `task.json`."""
    kinds = {problem: kind for kind, problem in PROBLEM_TYPES.items()}
    kind: LabelKind = "regression" if len(labels) == 1 else "classification"
    return SavedClassification(
        "table", kinds[problem_type] if problem_type else kind, labels, min(TEXTS.max_length, positions)
    )


def read_texts(source: str, text: str, pair: str | None) -> Iterator[Text]:
    """Yield the texts in a file, from the columns `text` and `pair` of a table, or from lines.

    Raises:
        DataError: the file cannot be read, or a column is missing.
    """
    if is_table(source):
        for number, (place, record) in enumerate(read_records(source, "")):
            first = get_text(record, text, place, COLUMN_HINT)
            second = None if pair is None else get_text(record, pair, place, COLUMN_HINT)
            yield Text(get_row_id(record) or str(number), first, second, place)
        return
    for number, (place, line) in enumerate(read_lines(source, "a text in each, or two with a tab between")):
        first, tab, second = line.partition("\t")
        yield Text(str(number), first, second if tab else None, place)


def parse_texts(values: Values, text: str, pair: str | None) -> Iterator[Text]:
    """Yield the texts in values from Python; mappings have the keys `text` and, for pairs, `pair`.

    Raises:
        DataError: a value is of another type, lacks a key, or is not valid Unicode.
    """
    for place, id, value in iterate_values(values):
        if isinstance(value, Mapping):
            names = (text,) if pair is None else (text, pair)
            texts = [get_text(value, name, place, COLUMN_HINT) for name in names]
        else:
            texts = list(value) if isinstance(value, list | tuple) else [value]
        if len(texts) not in (1, 2) or not all(isinstance(each, str) for each in texts):
            raise build_type_error(value, place, "a string, a pair of strings or a dictionary")
        first, *second = (check_unicode(each, place, DataError) for each in texts)
        yield Text(id, first, second[0] if second else None, place)


def check_pairs(texts: Iterable[Text], pairs: bool | None) -> Iterator[Text]:
    """Yield the texts after a check that they are all pairs, or all single texts; if `pairs` is None, like the first one.

    Raises:
        DataError: a pair among single texts, or the reverse.
    """
    for text in texts:
        is_pair = text.second is not None
        pairs = is_pair if pairs is None else pairs
        if is_pair != pairs:
            raise DataError(
                "unexpected-pair" if is_pair else "missing-pair",
                f"{text.place}: {'a pair of texts' if is_pair else 'one text'}, but the model reads "
                f"{'pairs (a tab between, --text-pair, or two strings)' if pairs else 'single texts'}",
            )
        yield text


def format_prediction(kind: LabelKind, labels: Sequence[str], logits: np.ndarray) -> Prediction:
    """Format the logits [C] of one example.

    Returns:
        `value` for regression; `labels` (those with a probability over 0.5) and `probabilities` for multilabel; `label` and
        `probabilities` for classification.
    """
    if kind == "regression":
        return {"value": float(logits[0])}
    if kind == "multilabel":
        probabilities = expit(logits.astype(np.float64))
        present = [label for label, p in zip(labels, probabilities, strict=True) if p > 0.5]
        return {"labels": present, "probabilities": dict(zip(labels, probabilities.tolist(), strict=True))}
    probabilities = softmax(logits.astype(np.float64))
    return {
        "label": labels[int(logits.argmax())],
        "probabilities": dict(zip(labels, probabilities.tolist(), strict=True)),
    }


def encode_pairs(
    tokenizer: Tokenizer, first: list[str], second: list[str] | None, max_length: int
) -> tuple[list[list[int]], list[int], int]:
    """Tokenize texts as `[CLS] a [SEP]`, or pairs as `[CLS] a [SEP] b [SEP]`, of at most `max_length` tokens.

    A pair that is too long loses tokens from the end of its longer text, or of the second one if both are equally long.

    Returns:
        The token ids of each example, the numbers of tokens of `[CLS] a [SEP]`, and the number of truncated examples.
    """
    firsts = encode_with_progress(tokenizer.encode_lines, first)
    seconds = [[]] * len(first) if second is None else encode_with_progress(tokenizer.encode_lines, second)
    capacity = max_length - (2 if second is None else 3)
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    input_ids, segment_a, truncated = [], [], 0
    for a, b in zip(firsts, seconds, strict=True):
        keep_a, keep_b = truncate_lengths(len(a), len(b), capacity)
        truncated += (keep_a, keep_b) != (len(a), len(b))
        tail = [] if second is None else [*b[:keep_b], sep]
        input_ids.append([cls, *a[:keep_a], sep, *tail])
        segment_a.append(keep_a + 2)
    return input_ids, segment_a, truncated


def truncate_lengths(a: int, b: int, capacity: int) -> tuple[int, int]:
    """Return the lengths of two texts of `a` and `b` tokens after truncation to `capacity` tokens in total.

    Tokens are removed one at a time from the longer text, or from the second one if both are equally long.
    """
    if a + b <= capacity:
        return a, b
    if min(a, b) >= (capacity + 1) // 2:  # both end equally long, or the second one token shorter
        return capacity - capacity // 2, capacity // 2
    return (a, capacity - a) if a < b else (capacity - b, b)
