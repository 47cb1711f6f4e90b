"""Inference of tagging: the saved task, its inputs and predictions, and the export of its head."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from torch import nn

from electra.errors import DataError
from electra.external import check_unicode
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.config import MIN_LENGTH
from electra.finetuning.readers.inputs import (
    STANDARD_INPUT,
    build_type_error,
    iterate_values,
    read_lines,
)
from electra.finetuning.recipe import TAGS
from electra.finetuning.tagging.data import Sentence, parse_sentence, stream_sentences
from electra.finetuning.tagging.heads import TaggingHead
from electra.finetuning.tagging.schemes import PLAIN, marks_spans, repair_bio
from electra.finetuning.tagging.windows import build_windows, decode_windows, encode_windows
from electra.finetuning.task import HuggingFaceHead, Outputs, Prediction, PredictOptions, Values, build_label_config
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

HEAD_KIND = "token-classification"


@dataclass(frozen=True)
class SavedTagging:
    """Tagging of words; implements `task.SavedTask`."""

    task: str
    labels: list[str]
    max_length: Annotated[int, Field(ge=MIN_LENGTH)]
    scheme: str = ""
    """Scheme of the training data (see `schemes`); empty if unknown."""

    def build_head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        """See `task.SavedTask`."""
        return TaggingHead(encoder.hidden_size, len(self.labels))

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Sentence]:
        """Yield sentences from CoNLL columns, JSON lines, or lines of words separated by spaces.

        Lines are read from standard input, and from files with the option `form` "lines".
        """
        by_line = file == STANDARD_INPUT or options.form == "lines"
        sentences = read_sentence_lines(file) if by_line else stream_sentences(Path(file))
        for number, sentence in enumerate(sentences):
            yield Sentence(sentence.words, None, sentence.place, sentence.id or str(number))

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Sentence]:
        """Yield sentences from strings of words separated by spaces, lists of words, or mappings with the key `words`.

        A sentence can be empty.
        """
        for place, id, value in iterate_values(values):
            words = value.get("words") if isinstance(value, Mapping) else value
            if isinstance(words, str) and not isinstance(value, Mapping):
                words = words.split()
            if not isinstance(words, list | tuple):
                raise build_type_error(value, place, "a string, a list of words or a dictionary with 'words'")
            if words:
                words = parse_sentence({"words": list(words)}, place, "words", "tags").words
            yield Sentence(tuple(check_unicode(word, place, DataError) for word in words), None, place, id)

    def predict(
        self,
        examples: list[Sentence],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Prediction]:
        """Predict a tag for each word; a sentence without words has none."""
        sentences = [sentence for sentence in examples if sentence.words]
        windows = build_windows(sentences, tokenizer, self.max_length)
        outputs = compute(encode_windows(windows)) if windows else []
        tags = iter(decode_windows(sentences, windows, outputs, self.labels))
        return [
            {
                "id": sentence.id,
                "words": list(sentence.words),
                "tags": self._repair(next(tags)) if sentence.words else [],
            }
            for sentence in examples
        ]

    def _repair(self, tags: list[str]) -> list[str]:
        """Make tags that mark spans valid BIO2."""
        spans = self.scheme != PLAIN if self.scheme else marks_spans(self.labels)
        return list(repair_bio(tags)) if spans else tags


def read_sentence_lines(source: str) -> Iterator[Sentence]:
    """Yield a sentence from each line, with words separated by spaces."""
    for place, line in read_lines(source, "a sentence of words in each"):
        yield Sentence(tuple(line.split()), None, place)


def export_head(head: nn.Module, settings: Mapping[str, Any]) -> HuggingFaceHead:
    """Convert the head to Hugging Face's class, which has the same layer."""
    return HuggingFaceHead(HEAD_KIND, head.state_dict(), build_label_config(settings["labels"]))


def from_hugging_face(labels: list[str], problem_type: str | None, positions: int) -> SavedTagging:
    """Build the task of an `ElectraForTokenClassification` without `task.json`."""
    return SavedTagging("tagging", labels, min(TAGS.max_length, positions))
