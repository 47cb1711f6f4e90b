"""Predictions of a fine-tuned model for a stream of inputs."""

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from electra.config.checks import check_local
from electra.errors import DataError, UsageError
from electra.external import output_file
from electra.finetuning.batching import Features
from electra.finetuning.checks import OTHER_MODEL
from electra.finetuning.classification.task import encode_pairs, readable
from electra.finetuning.qa.answers import answer_questions
from electra.finetuning.qa.chunks import chunk_questions
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.data import Question
from electra.finetuning.tagging.data import Sentence
from electra.finetuning.tagging.task import Tagging, TaggingConfig
from electra.finetuning.task import Outputs
from electra.inference.config import PredictConfig
from electra.inference.finetuned import Finetuned, load_finetuned
from electra.inference.inputs import STANDARD_INPUT, Text, questions, sentences, texts
from electra.inference.values import Values, question_values, sentence_values, text_values
from electra.model.cpu.library import kernels_compiled
from electra.model.encoder import enable_cpu_kernels
from electra.runtime import Runtime, start_runtime
from electra.storage import check_writable, exclusive, owner_only, writing
from electra.text.coverage import CoverageMonitor

log = logging.getLogger(__name__)


FILE_ROWS = 512
"""Inputs of a file that are sorted by length and predicted together."""
STREAM_ROWS = 16
"""The same of standard input: a slow writer is answered soon."""
INPUT_CHARS = 1 << 20
"""Inputs whose text has this many characters are predicted together at once, however few they are: memory does not grow with
the length of the inputs, but for a single one (MAX_LINE_BYTES)."""
BATCH_ROWS = 32

Record = dict[str, Any]


@dataclass(frozen=True)
class Predictor:
    """A fine-tuned model in memory, on the device of `runtime`; `electra.load` gives one."""

    finetuned: Finetuned
    config: PredictConfig
    runtime: Runtime

    def __post_init__(self) -> None:
        if self.config.null_threshold is not None and "span" not in self.finetuned.settings:
            raise UsageError("--null-threshold has a meaning for models that answer questions only")
        if self.runtime.kernels and kernels_compiled():  # nobody waits for a compiler to have a few lines answered
            enable_cpu_kernels(self.finetuned.model, self.runtime)
        self.finetuned.model.to(self.runtime.device)

    def predict(
        self, input: os.PathLike[str] | Values, *, out: str | os.PathLike[str] | None = None, private: bool = False
    ) -> Iterator[Record]:
        """A prediction for each input, in their order, with its `id`: what the input calls itself, or its number from 0.

        What has a length is read before this returns. Of a file, and of an iterator, only the inputs that are predicted
        together are, and the rest as the predictions are taken. A warning is printed where the vocabulary does not fit the
        inputs; at the end of a file, the share of [UNK] in it.

        Args:
            input: Texts, or a file; see `electra.predict`.
            out: File for the predictions as JSON lines. It is written while the iterator is advanced, and there when it ends.
            private: The file is for its owner alone: it has mode 0600, directories that are made for it 0700.

        Raises:
            DataError: an input is not what the model reads; the message names the place.
            RunError: another process writes `out`.
            StorageError: `out` cannot be written.
        """
        check_paths(input, out)
        if out is not None:
            check_writable(output_file(out).parent)
        if isinstance(input, str) and os.path.isfile(input):
            log.warning(f"{input!r} is read as a text; for the file of this name give pathlib.Path({input!r})")
        if isinstance(input, os.PathLike):
            records = self._predict_file(os.fspath(input))
        else:
            inputs = self._from_values(input)
            inputs = iter(list(inputs)) if isinstance(input, Sized) else inputs
            records = stream(inputs, FILE_ROWS, partial(self._records, self.finetuned))
        return records if out is None else written(records, output_file(out), private)

    def _predict_file(self, file: str) -> Iterator[Record]:
        """Predictions for a file, at the end of which the share of [UNK] in it is printed."""
        coverage = CoverageMonitor(self.finetuned.tokenizer, "input", OTHER_MODEL)
        finetuned = replace(self.finetuned, coverage=coverage)
        rows = STREAM_ROWS if file == STANDARD_INPUT else FILE_ROWS
        return report_at_end(stream(self._from_file(file), rows, partial(self._records, finetuned)), coverage)

    def _from_file(self, file: str) -> Iterator[Any]:
        """The inputs in a file, as the task has them.

        Sentences are lines (a tab between the two of a pair), or rows of a .jsonl, .csv, .tsv or .parquet file; what is
        tagged is CoNLL columns, a .jsonl file, or lines of words; questions are rows of such a table with `question` and
        `context`, or a SQuAD .json file. All are read as they are needed, but for the last, which is a single JSON document.
        """
        settings = self.finetuned.settings
        if "span" in settings:
            return questions(file)
        if "kind" in settings:
            return of_one_kind(texts(file, *columns(settings, self.config)), settings.get("pairs"))
        return sentences(file, self.config.form)

    def _from_values(self, values: Values) -> Iterator[Any]:
        """Values from Python, as the task has them."""
        settings = self.finetuned.settings
        if "span" in settings:
            return question_values(values)
        if "kind" in settings:
            return of_one_kind(text_values(values, *columns(settings, self.config)), settings.get("pairs"))
        return sentence_values(values)

    def _records(self, finetuned: Finetuned, inputs: list[Any]) -> list[Record]:
        """The predictions for some inputs."""
        if "span" in finetuned.settings:
            return answered(finetuned, inputs, self.config.null_threshold, self.runtime)
        return (labeled if "kind" in finetuned.settings else tagged)(finetuned, inputs, self.runtime)


def check_paths(input: os.PathLike[str] | Values, out: str | os.PathLike[str] | None) -> None:
    """See that neither path is an address of the Hugging Face hub, and that `out` is not blank.

    Raises:
        UsageError: one is.
    """
    check_local({"--input": input if isinstance(input, os.PathLike) else None, "--out": out})
    if out is not None:
        output_file(out)


def load_predictor(model: str, config: PredictConfig) -> Predictor:
    """Read a model that can predict.

    Raises:
        ModelError: the model cannot predict.
        UsageError: an option has no meaning for the model.
    """
    with start_runtime(
        config.runtime
    ) as runtime:  # which is needed no longer then: processes that predict share nothing
        return Predictor(load_finetuned(model), config, runtime)


def report_at_end(records: Iterator[Record], coverage: CoverageMonitor) -> Iterator[Record]:
    """The same; after the last one the share of [UNK] in their inputs is printed."""
    yield from records
    coverage.finish()


def columns(settings: Mapping[str, Any], config: PredictConfig) -> tuple[str, str | None]:
    """The columns of the text and of the second text of a pair."""
    if config.text is not None:
        return config.text, config.text_pair
    text, *pair = settings.get("columns", ["sentence"])
    return text, config.text_pair or (pair[0] if pair else None)


def of_one_kind(texts: Iterable[Text], pairs: bool | None) -> Iterator[Text]:
    """The same texts, which are all pairs or all single ones; where `pairs` is None, the first decides.

    Raises:
        DataError: one of them is not.
    """
    for text in texts:
        found = text.second is not None
        pairs = found if pairs is None else pairs
        if found != pairs:
            raise DataError(
                f"{text.place}: {'a pair of texts' if found else 'one text'}, but the model reads "
                f"{'pairs (a tab between, --text-pair, or two strings)' if pairs else 'single texts'}"
            )
        yield text


def stream(inputs: Iterable[Any], rows: int, predict: Callable[[list[Any]], list[Record]]) -> Iterator[Record]:
    """`predict` over `rows` inputs at a time, the first of which are read at once."""
    parts = batches(inputs, rows)
    first = next(parts, [])
    return (record for some in chain([first], parts) if some for record in predict(some))


def batches(inputs: Iterable[Any], rows: int) -> Iterator[list[Any]]:
    """Lists of `rows` inputs, or fewer where they reach INPUT_CHARS characters."""
    some: list[Any] = []
    size = 0
    for each in inputs:
        some.append(each)
        size += count_chars(each)
        if len(some) == rows or size >= INPUT_CHARS:
            yield some
            some, size = [], 0
    if some:
        yield some


def count_chars(given: Text | Sentence | Question) -> int:
    """Characters of an input, of which an empty word of a sentence has one, too."""
    match given:
        case Text():
            return len(given.first) + len(given.second or "")
        case Sentence():
            return sum(len(word) + 1 for word in given.words)
    return len(given.question) + len(given.context)


def written(records: Iterable[Record], out: Path, private: bool) -> Iterator[Record]:
    """The same, each also written to a file, which is whole or not there; no other process may write it meanwhile."""
    aside = out.with_name(f".{out.name}.partial")
    with ExitStack() as opened, writing(out):
        with owner_only(private):  # no longer: what the caller writes between two records is not meant
            opened.enter_context(exclusive(out, out.with_name(f".{out.name}.lock"), log.warning))
            opened.callback(aside.unlink, missing_ok=True)
            file = opened.enter_context(aside.open("w", encoding="utf-8"))
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            yield record
        file.close()
        aside.replace(out)


def outputs(finetuned: Finetuned, features: Features, runtime: Runtime) -> Outputs:
    """What the model says of features; their tokens are counted."""
    finetuned.coverage.add(features.ids)
    return finetuned.model.outputs(features, runtime, BATCH_ROWS, finetuned.tokenizer.pad_id)


def labeled(finetuned: Finetuned, texts: list[Text], runtime: Runtime) -> list[Record]:
    """Labels with probabilities, or numbers; of single texts, or of pairs, not of both."""
    settings = finetuned.settings
    first = [text.first for text in texts]
    second = None if texts[0].second is None else [text.second or "" for text in texts]
    ids, segment_a, cut = encode_pairs(finetuned.tokenizer, first, second, settings["max_length"])
    if cut:
        log.warning(f"{cut:,} texts from {texts[0].place} on are cut at {settings['max_length']} tokens")
    said = outputs(finetuned, Features(ids, segment_a, {}), runtime)
    return [
        {"id": text.id, **readable(settings["kind"], settings["labels"], output["logits"])}
        for text, output in zip(texts, said, strict=True)
    ]


def tagged(finetuned: Finetuned, sentences: list[Sentence], runtime: Runtime) -> list[Record]:
    """Words and their tags; a sentence without words has none."""
    settings = finetuned.settings
    filled = [sentence for sentence in sentences if sentence.words]
    config = TaggingConfig(settings["max_length"])
    task = Tagging("tagging", {"test": filled}, finetuned.tokenizer, config, labels=settings["labels"])
    found = iter(task.predictions("test", outputs(finetuned, task.features("test"), runtime)) if filled else ())
    return [next(found) if each.words else {"id": each.id, "words": [], "tags": []} for each in sentences]


def answered(
    finetuned: Finetuned, questions: list[Question], null_threshold: float | None, runtime: Runtime
) -> list[Record]:
    """Answers, null odds and the n best spans.

    No answer is given above the null threshold: the one that is given, or the one that was best on dev when the model was
    fine-tuned, or the head's own.
    """
    settings = finetuned.settings
    best = settings.get("best_null_threshold") if null_threshold is None else null_threshold
    config = SpanConfig(**settings["span"])
    config = config if best is None else replace(config, null_threshold=best)
    chunks = chunk_questions(questions, finetuned.tokenizer, config)
    may_be_none = settings["task"] == "squad2"
    return [
        each.record(config.threshold if may_be_none else None)
        for each in answer_questions(chunks, outputs(finetuned, chunks.features, runtime), config)
    ]
