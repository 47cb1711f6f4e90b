"""Inference of tagging: a saved task, the sentences that it reads, their tags."""

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
    iterate_values,
    read_lines,
    unexpected_type,
)
from electra.finetuning.recipe import TAGS
from electra.finetuning.tagging.data import Sentence, parse_sentence, stream_sentences
from electra.finetuning.tagging.heads import TaggingHead
from electra.finetuning.tagging.schemes import PLAIN, marks_spans, repair_bio
from electra.finetuning.tagging.windows import decode_windows, encode_windows, split_into_windows
from electra.finetuning.task import HuggingFaceHead, Outputs, PredictOptions, Record, Values, label_config
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

HEAD = "token-classification"


@dataclass(frozen=True)
class SavedTagging:
    """A saved task over sentences; implements `task.SavedTask`."""

    task: str
    labels: list[str]
    max_length: Annotated[int, Field(ge=MIN_LENGTH)]
    scheme: str = ""
    """The scheme of the training data (see `schemes`); empty where it is unknown."""

    def head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        """See `task.SavedTask`."""
        return TaggingHead(encoder.hidden_size, len(self.labels))

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Sentence]:
        """CoNLL columns, JSON lines, or lines of words between spaces (option `form`, and standard input)."""
        by_line = file == STANDARD_INPUT or options.form == "lines"
        found = read_sentence_lines(file) if by_line else stream_sentences(Path(file))
        for number, sentence in enumerate(found):
            yield Sentence(sentence.words, None, sentence.place, sentence.id or str(number))

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Sentence]:
        """Strings of words between spaces, lists of words, or mappings with the key `words`; all may be empty."""
        for place, id, value in iterate_values(values):
            words = value.get("words") if isinstance(value, Mapping) else value
            if isinstance(words, str) and not isinstance(value, Mapping):
                words = words.split()
            if not isinstance(words, list | tuple):
                raise unexpected_type(value, place, "a string, a list of words or a dictionary with 'words'")
            if words:
                words = parse_sentence({"words": list(words)}, place, "words", "tags").words
            yield Sentence(tuple(check_unicode(word, place, DataError) for word in words), None, place, id)

    def predict(
        self,
        examples: list[Sentence],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Record]:
        """Words and their tags; a sentence without words has none."""
        sentences = [sentence for sentence in examples if sentence.words]
        windows = split_into_windows(sentences, tokenizer, self.max_length)
        outputs = compute(encode_windows(windows)) if windows else []
        tags = iter(decode_windows(sentences, windows, outputs, self.labels))
        return [
            {"id": each.id, "words": list(each.words), "tags": self._repair(next(tags)) if each.words else []}
            for each in examples
        ]

    def _repair(self, tags: list[str]) -> list[str]:
        spans = self.scheme != PLAIN if self.scheme else marks_spans(self.labels)
        return list(repair_bio(tags)) if spans else tags


def read_sentence_lines(source: str) -> Iterator[Sentence]:
    """A sentence from each line, its words between spaces."""
    for place, line in read_lines(source, "a sentence of words in each"):
        yield Sentence(tuple(line.split()), None, place)


def export_head(head: nn.Module, settings: Mapping[str, Any]) -> HuggingFaceHead:
    """The head as Hugging Face has it."""
    return HuggingFaceHead(HEAD, head.state_dict(), label_config(settings["labels"]))


def from_hugging_face(labels: list[str], problem_type: str | None, positions: int) -> SavedTagging:
    """The task of an `ElectraForTokenClassification` that others fine-tuned."""
    return SavedTagging("tagging", labels, min(TAGS.max_length, positions))
