"""Predictions of a fine-tuned model for a stream of inputs."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from electra.console import warned
from electra.errors import DataError, UsageError
from electra.finetuning.features import Features
from electra.finetuning.sentences import encode_pairs, readable
from electra.finetuning.squad_answers import answer_questions
from electra.finetuning.squad_chunks import chunk_questions
from electra.finetuning.squad_config import SpanConfig
from electra.finetuning.squad_data import Question
from electra.finetuning.tagging import Tagging, TaggingConfig
from electra.finetuning.tagging_data import Sentence
from electra.finetuning.task import Outputs
from electra.model.encoder import fuse
from electra.model.kernel_library import kernels_compiled
from electra.runtime import Runtime, runtime
from electra.serving.config import PredictConfig
from electra.serving.finetuned import Finetuned, load_finetuned
from electra.serving.inputs import STANDARD_INPUT, Text, questions, sentences, texts
from electra.storage import writing
from electra.text.coverage import CoverageMonitor

FILE_ROWS = 512
"""Inputs of a file that are sorted by length and predicted together."""
STREAM_ROWS = 16
"""The same of standard input: a slow writer is answered soon."""
BATCH_ROWS = 32

Record = dict[str, Any]


def predict(model: str, source: str, out: Path | None, config: PredictConfig) -> Iterator[Record]:
    """Load a model and predict for a file, or for standard input ("-").

    What is yielded is also written to `out`, which is whole or not there.

    Raises:
        ModelError: the model cannot predict.
        DataError: an input is not what the model reads.
        StorageError: `out` cannot be written.
    """
    with runtime(config.runtime) as where:
        finetuned = load_finetuned(model)
        if config.null_threshold is not None and "span" not in finetuned.settings:
            raise UsageError("--null-threshold has a meaning for models that answer questions only")
        rows = report_at_end(predictions(finetuned, source, config, where), finetuned.coverage)
        if out is None:
            yield from rows
            return
        partial = out.with_name(f".{out.name}.partial")
        try:
            with writing(out):
                out.parent.mkdir(parents=True, exist_ok=True)
                with partial.open("w", encoding="utf-8") as file:
                    for row in rows:
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")
                        yield row
                partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)


def report_at_end(rows: Iterator[Record], coverage: CoverageMonitor) -> Iterator[Record]:
    """The rows; after the last one the share of [UNK] in their inputs is printed."""
    yield from rows
    coverage.finish()


def predictions(finetuned: Finetuned, source: str, config: PredictConfig, where: Runtime) -> Iterator[Record]:
    """A prediction for each input, in their order, with its `id`: that of a column id, idx or index, or its number from 0.

    Sentences are lines (a tab between the two of a pair), or rows of a .jsonl, .csv, .tsv or .parquet file; what is tagged
    is CoNLL columns, a .jsonl file, or lines of words; questions are rows of such a table with `question` and `context`, or
    a SQuAD .json file. All are read as they are needed, but for the last, which is a single JSON document.

    Raises:
        DataError: an input is not what the model reads; the message names the place.
    """
    if where.kernels and kernels_compiled():  # nobody waits for a compiler to have a few lines answered
        fuse(finetuned.model, where)
    finetuned.model.to(where.device)
    settings = finetuned.settings
    rows = STREAM_ROWS if source == STANDARD_INPUT else FILE_ROWS
    if "span" in settings:
        return stream(questions(source), rows, lambda some: answered(finetuned, some, config.null_threshold, where))
    if "kind" in settings:
        text, pair = columns(settings, config)
        return stream(texts(source, text, pair), rows, lambda some: labelled(finetuned, some, where))
    return stream(sentences(source, config.form), rows, lambda some: tagged(finetuned, some, where))


def columns(settings: Mapping[str, Any], config: PredictConfig) -> tuple[str, str | None]:
    """The columns of the text and of the second text of a pair."""
    if config.text is not None:
        return config.text, config.text_pair
    text, *pair = settings.get("columns", ["sentence"])
    return text, config.text_pair or (pair[0] if pair else None)


def stream(inputs: Iterable[Any], rows: int, predict: Callable[[list[Any]], list[Record]]) -> Iterator[Record]:
    """`predict` over `rows` inputs at a time."""
    rest = iter(inputs)
    while some := list(islice(rest, rows)):
        yield from predict(some)


def outputs(finetuned: Finetuned, features: Features, where: Runtime) -> Outputs:
    """What the model says of features; their tokens are counted."""
    finetuned.coverage.add(features.ids)
    return finetuned.model.outputs(features, where, BATCH_ROWS, finetuned.tokenizer.pad_id)


def labelled(finetuned: Finetuned, texts: list[Text], where: Runtime) -> list[Record]:
    """Labels with probabilities, or numbers.

    Raises:
        DataError: a pair for a model that was trained on single sentences, or the other way round.
    """
    settings = finetuned.settings
    pairs = settings.get("pairs", texts[0].second is not None)
    for text in texts:
        if (text.second is not None) != pairs:
            raise DataError(
                f"{text.place}: {'one text, but' if pairs else 'a pair of texts, but'} the model reads "
                f"{'pairs (a tab between, or --text-pair)' if pairs else 'single texts'}"
            )
    first = [text.first for text in texts]
    second = [text.second or "" for text in texts] if pairs else None
    ids, segment_a, cut = encode_pairs(finetuned.tokenizer, first, second, settings["max_length"])
    if cut:
        warned(f"{cut:,} texts from {texts[0].place} on are cut at {settings['max_length']} tokens")
    said = outputs(finetuned, Features(ids, segment_a, {}), where)
    return [
        {"id": text.id, **readable(settings["kind"], settings["labels"], output["logits"])}
        for text, output in zip(texts, said, strict=True)
    ]


def tagged(finetuned: Finetuned, sentences: list[Sentence], where: Runtime) -> list[Record]:
    """Words and their tags; a sentence without words has none."""
    settings = finetuned.settings
    filled = [sentence for sentence in sentences if sentence.words]
    config = TaggingConfig(settings["max_length"])
    task = Tagging("tagging", {"test": filled}, finetuned.tokenizer, config, labels=settings["labels"])
    found = iter(task.predictions("test", outputs(finetuned, task.features("test"), where)) if filled else ())
    return [next(found) if each.words else {"id": each.id, "words": [], "tags": []} for each in sentences]


def answered(
    finetuned: Finetuned, questions: list[Question], null_threshold: float | None, where: Runtime
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
        for each in answer_questions(chunks, outputs(finetuned, chunks.features, where), config)
    ]
