"""Predictions of a fine-tuned model for a stream of inputs."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from electra.errors import DataError
from electra.finetuning.features import Features
from electra.finetuning.rows import read_rows
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

STREAMED_ROWS = 512
"""Inputs that are sorted by length and predicted together."""
BATCH_ROWS = 32

Record = dict[str, Any]


def predict(
    model: str, source: str, out: Path | None, columns: tuple[str, str | None], config: RuntimeConfig
) -> Iterator[Record]:
    """Load a model and predict; what is yielded is also written to `out`, which is whole or not there.

    Raises:
        ModelError: the model cannot predict.
        DataError: an input is not what the model reads.
        StorageError: `out` cannot be written.
    """
    with runtime(config) as where:
        rows = predictions(load_finetuned(model), source, columns, where)
        if out is None:
            yield from rows
            return
        partial = out.with_name(f".{out.name}.partial")
        try:
            with writing(out):
                out.parent.mkdir(parents=True, exist_ok=True)
                with partial.open("w") as file:
                    for row in rows:
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")
                        yield row
                partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)


def predictions(finetuned: Finetuned, source: str, columns: tuple[str, str | None], where: Runtime) -> Iterator[Record]:
    """A prediction for each input of a file, or of standard input ("-"), in their order.

    Sentences are lines (a tab between the two of a pair), or rows of a .jsonl, .csv, .tsv or .parquet file with the
    columns given; what is tagged are lines of words, a CoNLL or a .jsonl file; questions are rows of .jsonl with
    `question` and `context`, or a SQuAD .json file.

    Raises:
        DataError: an input is not what the model reads; the message names the place.
    """
    finetuned.model.to(where.device)
    settings = finetuned.settings
    if "span" in settings:
        return stream(questions(source), lambda some: answered(finetuned, some, where))
    if "kind" in settings:
        return stream(sentences(source, columns), lambda some: labelled(finetuned, some, where))
    return stream(tagged_sentences(source), lambda some: tagged(finetuned, some, where))


def stream(inputs: Iterable[Any], predict: Callable[[list[Any]], list[Record]]) -> Iterator[Record]:
    """`predict` over a few hundred inputs at a time."""
    rest = iter(inputs)
    while some := list(islice(rest, STREAMED_ROWS)):
        yield from predict(some)


def outputs(finetuned: Finetuned, features: Features, where: Runtime) -> Outputs:
    """What the model says of features."""
    return finetuned.model.outputs(features, where, BATCH_ROWS, finetuned.tokenizer.pad_id)


def labelled(finetuned: Finetuned, pairs: list[tuple[str, str | None]], where: Runtime) -> list[Record]:
    """Labels with probabilities, or numbers."""
    settings = finetuned.settings
    first = [a for a, _ in pairs]
    second = None if pairs[0][1] is None else [b or "" for _, b in pairs]
    ids, segment_a, _ = encode_pairs(finetuned.tokenizer, first, second, settings["max_length"])
    said = outputs(finetuned, Features(ids, segment_a, {}), where)
    return [readable(settings["kind"], settings["labels"], output["logits"]) for output in said]


def tagged(finetuned: Finetuned, sentences: list[Sentence], where: Runtime) -> list[Record]:
    """Words and their tags."""
    settings = finetuned.settings
    untagged = [Sentence(sentence.words, None, sentence.place) for sentence in sentences]
    config = TaggingConfig(settings["max_length"])
    task = Tagging("tagging", {"test": untagged}, finetuned.tokenizer, config, labels=settings["labels"])
    return task.predictions("test", outputs(finetuned, task.features("test"), where))


def answered(finetuned: Finetuned, questions: list[Question], where: Runtime) -> list[Record]:
    """Answers, null odds and the n best spans."""
    config = SpanConfig(**finetuned.settings["span"])
    chunks = chunk_questions(questions, finetuned.tokenizer, config)
    may_be_none = finetuned.settings["task"] == "squad2"
    return [
        {
            "id": each.id,
            "answer": each.answer(config.threshold) if may_be_none else each.best,
            "null_odds": each.null_odds,
            "n_best": [asdict(candidate) for candidate in each.n_best],
        }
        for each in answer_questions(chunks, outputs(finetuned, chunks.features, where), config)
    ]


def lines_of(source: str) -> Iterator[tuple[str, str]]:
    """(place, line) of a text file or of standard input; empty lines are passed over."""
    try:
        with sys.stdin if source == "-" else Path(source).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield f"{source}:{number}", line.rstrip("\r\n")
    except FileNotFoundError:
        raise DataError(f"{source}: no such file") from None
    except UnicodeDecodeError:
        raise DataError(f"{source}: not UTF-8") from None


def records_of(source: str) -> Iterator[tuple[str, Record]]:
    """(place, object) of a .jsonl file or of standard input."""
    for place, line in lines_of(source):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{place}: not JSON ({error.msg})") from None
        if not isinstance(record, dict):
            raise DataError(f"{place}: not a JSON object")
        yield place, record


def sentences(source: str, columns: tuple[str, str | None]) -> Iterator[tuple[str, str | None]]:
    """Sentences and pairs."""
    text, pair = columns
    if source.endswith(".jsonl"):
        for place, record in records_of(source):
            yield field(record, text, place), None if pair is None else field(record, pair, place)
    elif source.endswith((".csv", ".tsv", ".parquet")):
        rows = read_rows(Path(source))
        seconds = [None] * len(rows) if pair is None else rows.column(pair)
        yield from zip(rows.column(text), seconds, strict=True)
    else:
        for _, line in lines_of(source):
            first, tab, second = line.partition("\t")
            yield first, second if tab else None


def tagged_sentences(source: str) -> Iterator[Sentence]:
    """Sentences as words."""
    if source != "-" and not source.endswith(".txt"):
        yield from read_sentences(Path(source))
        return
    for place, line in lines_of(source):
        yield Sentence(tuple(line.split()), None, place)


def questions(source: str) -> Iterator[Question]:
    """Questions with their contexts."""
    if source.endswith((".json", ".json.gz")):
        yield from read_squad(Path(source))
        return
    for number, (place, record) in enumerate(records_of(source)):
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
