"""Predictions of a fine-tuned model for a stream of inputs."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from electra.console import warned
from electra.errors import DataError, UsageError
from electra.finetuning.features import Features
from electra.finetuning.lines import json_record, numbered_lines
from electra.finetuning.rows import read_rows, suffix_of
from electra.finetuning.sentences import encode_pairs, readable
from electra.finetuning.squad_answers import answer_questions
from electra.finetuning.squad_chunks import chunk_questions
from electra.finetuning.squad_config import SpanConfig
from electra.finetuning.squad_data import Question, read_squad
from electra.finetuning.tagging import Tagging, TaggingConfig
from electra.finetuning.tagging_data import Sentence, read_sentences
from electra.finetuning.task import Outputs
from electra.runtime import Runtime, RuntimeConfig, runtime
from electra.serving.finetuned import Finetuned, load_finetuned
from electra.storage import writing

FILE_ROWS = 512
"""Inputs of a file that are sorted by length and predicted together."""
STREAM_ROWS = 16
"""The same of standard input: a slow writer is answered soon."""
BATCH_ROWS = 32

Record = dict[str, Any]


@dataclass(frozen=True)
class Inputs:
    """Where inputs come from and how they are read."""

    source: str
    """A file, or "-" for standard input."""
    text: str | None = None
    """Column of the text; by default that of the table the model was fine-tuned on, or "sentence"."""
    text_pair: str | None = None
    """Column of the second text of a pair; by default that of the table, if it had one."""
    form: Literal["columns", "lines"] = "columns"
    """How a .txt file of words to tag is read; standard input is always lines."""


def predict(
    model: str, inputs: Inputs, out: Path | None, null_threshold: float | None, config: RuntimeConfig
) -> Iterator[Record]:
    """Load a model and predict; what is yielded is also written to `out`, which is whole or not there.

    Raises:
        ModelError: the model cannot predict.
        DataError: an input is not what the model reads.
        StorageError: `out` cannot be written.
    """
    with runtime(config) as where:
        finetuned = load_finetuned(model)
        if null_threshold is not None and "span" not in finetuned.settings:
            raise UsageError("--null-threshold has a meaning for models that answer questions only")
        rows = predictions(finetuned, inputs, null_threshold, where)
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


def predictions(finetuned: Finetuned, inputs: Inputs, null_threshold: float | None, where: Runtime) -> Iterator[Record]:
    """A prediction for each input, in their order.

    Sentences are lines (a tab between the two of a pair), or rows of a .jsonl, .csv, .tsv or .parquet file; what is tagged
    is CoNLL columns, a .jsonl file, or lines of words; questions are rows of .jsonl with `question` and `context`, or a
    SQuAD .json file.

    Raises:
        DataError: an input is not what the model reads; the message names the place.
    """
    finetuned.model.to(where.device)
    settings = finetuned.settings
    if inputs.text is None:
        text, *pair = settings.get("columns", ["sentence"])
        inputs = replace(inputs, text=text, text_pair=inputs.text_pair or (pair[0] if pair else None))
    rows = STREAM_ROWS if inputs.source == "-" else FILE_ROWS
    if "span" in settings:
        return stream(questions(inputs), rows, lambda some: answered(finetuned, some, null_threshold, where))
    if "kind" in settings:
        return stream(sentences(inputs), rows, lambda some: labelled(finetuned, some, where))
    return stream(tagged_sentences(inputs), rows, lambda some: tagged(finetuned, some, where))


def stream(inputs: Iterable[Any], rows: int, predict: Callable[[list[Any]], list[Record]]) -> Iterator[Record]:
    """`predict` over `rows` inputs at a time."""
    rest = iter(inputs)
    while some := list(islice(rest, rows)):
        yield from predict(some)


def outputs(finetuned: Finetuned, features: Features, where: Runtime) -> Outputs:
    """What the model says of features."""
    return finetuned.model.outputs(features, where, BATCH_ROWS, finetuned.tokenizer.pad_id)


def labelled(finetuned: Finetuned, texts: list[tuple[str, str, str | None]], where: Runtime) -> list[Record]:
    """Labels with probabilities, or numbers.

    Raises:
        DataError: a pair for a model that was trained on single sentences, or the other way round.
    """
    settings = finetuned.settings
    pairs = settings.get("pairs", texts[0][2] is not None)
    for place, _, second in texts:
        if (second is not None) != pairs:
            raise DataError(
                f"{place}: {'one text, but' if pairs else 'a pair of texts, but'} the model reads "
                f"{'pairs (a tab between, or --text-pair)' if pairs else 'single texts'}"
            )
    first = [text for _, text, _ in texts]
    second_texts = [second or "" for *_, second in texts] if pairs else None
    ids, segment_a, cut = encode_pairs(finetuned.tokenizer, first, second_texts, settings["max_length"])
    if cut:
        warned(f"{cut:,} texts from {texts[0][0]} on are cut at {settings['max_length']} tokens")
    said = outputs(finetuned, Features(ids, segment_a, {}), where)
    return [readable(settings["kind"], settings["labels"], output["logits"]) for output in said]


def tagged(finetuned: Finetuned, sentences: list[Sentence], where: Runtime) -> list[Record]:
    """Words and their tags; a sentence without words has none."""
    settings = finetuned.settings
    untagged = [Sentence(sentence.words, None, sentence.place) for sentence in sentences if sentence.words]
    config = TaggingConfig(settings["max_length"])
    task = Tagging("tagging", {"test": untagged}, finetuned.tokenizer, config, labels=settings["labels"])
    found = iter(task.predictions("test", outputs(finetuned, task.features("test"), where)) if untagged else ())
    return [next(found) if sentence.words else {"words": [], "tags": []} for sentence in sentences]


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


def lines_of(source: str) -> Iterator[tuple[str, str]]:
    """(place, line) of a text file, plain or compressed, or of standard input."""
    if source != "-":
        if not Path(source).exists():
            raise DataError(f"{source}: no such file")
        for number, line in numbered_lines(Path(source)):
            yield f"{source}:{number}", line
        return
    try:
        for number, line in enumerate(sys.stdin, 1):
            yield f"standard input, line {number}", line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"standard input: not UTF-8 ({error})") from None


def records_of(source: str) -> Iterator[tuple[str, Record]]:
    """(place, object) of a .jsonl file or of standard input; blank lines are passed over."""
    for place, line in lines_of(source):
        if line.strip():
            yield place, json_record(line, place)


def sentences(inputs: Inputs) -> Iterator[tuple[str, str, str | None]]:
    """(place, text, second text or None); a blank line is an empty text."""
    text, pair, path = inputs.text or "sentence", inputs.text_pair, Path(inputs.source)
    suffix = suffix_of(path)
    if suffix == ".jsonl":
        for place, record in records_of(inputs.source):
            yield place, field(record, text, place), None if pair is None else field(record, pair, place)
    elif suffix in (".csv", ".tsv", ".parquet"):
        rows = read_rows(path)
        seconds = [None] * len(rows) if pair is None else rows.texts(pair)
        for i, (first, other) in enumerate(zip(rows.texts(text), seconds, strict=True)):
            yield rows.place(i), first, other
    else:
        for place, line in lines_of(inputs.source):
            first, tab, second = line.partition("\t")
            yield place, first, second if tab else None


def tagged_sentences(inputs: Inputs) -> Iterator[Sentence]:
    """Sentences as words."""
    if inputs.source == "-" or inputs.form == "lines":
        for place, line in lines_of(inputs.source):
            yield Sentence(tuple(line.split()), None, place)
        return
    yield from read_sentences(Path(inputs.source))


def questions(inputs: Inputs) -> Iterator[Question]:
    """Questions with their contexts."""
    if suffix_of(Path(inputs.source)) == ".json":
        yield from read_squad(Path(inputs.source))
        return
    for number, (place, record) in enumerate(records_of(inputs.source)):
        id = str(record.get("id", number))
        yield Question(id, field(record, "question", place), field(record, "context", place), (), False)


def field(record: Record, name: str, place: str) -> str:
    """A text of a record.

    Raises:
        DataError: it is not there, or not a text.
    """
    value = record.get(name)
    if not isinstance(value, str):
        raise DataError(
            f"{place}: {name!r} is {'missing' if value is None else 'not a text'}; see --text and --text-pair"
        )
    return value
