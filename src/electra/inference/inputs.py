"""What is to be predicted, as a stream out of a file or standard input."""

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.errors import DataError
from electra.external import is_unicode
from electra.finetuning.classification.rows import READERS, stream_rows, suffix_of
from electra.finetuning.lines import json_record, numbered_lines, row_id
from electra.finetuning.qa.data import Question, read_squad
from electra.finetuning.tagging.data import Sentence, stream_sentences
from electra.text.files import MAX_LINE_BYTES

log = logging.getLogger(__name__)


STANDARD_INPUT = "-"
COLUMN_HINT = " (see --text and --text-pair)"


@dataclass(frozen=True)
class Text:
    """A text, or a pair of them."""

    id: str
    """What its row calls it, or its number from 0."""
    first: str
    second: str | None
    place: str
    """File and line, for messages."""


def texts(source: str, text: str, pair: str | None) -> Iterator[Text]:
    """Lines (a tab between the two of a pair; a blank line is an empty text), or columns of a table.

    Raises:
        DataError: the source cannot be read, or a text is missing; as in the other readers here.
    """
    if suffix_of(Path(source)) in READERS:
        for number, (place, record) in enumerate(stream_rows(Path(source))):
            first = cell(record, text, place, COLUMN_HINT)
            second = None if pair is None else cell(record, pair, place, COLUMN_HINT)
            yield Text(row_id(record) or str(number), first, second, place)
        return
    for number, (place, line) in enumerate(lines(source, "a text in each, or two with a tab between")):
        first, tab, second = line.partition("\t")
        yield Text(str(number), first, second if tab else None, place)


def sentences(source: str, form: str) -> Iterator[Sentence]:
    """Sentences as words without tags, out of lines or what `stream_sentences` reads."""
    by_line = source == STANDARD_INPUT or form == "lines"
    found = split_lines(source) if by_line else stream_sentences(Path(source))
    for number, sentence in enumerate(found):
        yield Sentence(sentence.words, None, sentence.place, sentence.id or str(number))


def split_lines(source: str) -> Iterator[Sentence]:
    """A sentence a line, its words between spaces."""
    for place, line in lines(source, "a sentence of words in each"):
        yield Sentence(tuple(line.split()), None, place)


def questions(source: str) -> Iterator[Question]:
    """Questions with their contexts: rows of a table, JSON lines, or a SQuAD file, which is one document and read whole."""
    path = Path(source)
    if suffix_of(path) == ".json":
        yield from read_squad(path)
        return
    for number, (place, record) in enumerate(stream_rows(path) if suffix_of(path) in READERS else json_lines(source)):
        question, context = (cell(record, name, place) for name in ("question", "context"))
        yield Question(row_id(record) or str(number), question, context, (), False)


def lines(source: str, meaning: str) -> Iterator[tuple[str, str]]:
    """(place, line) of a text file, plain or compressed, or of standard input, of which it is said what is in the lines."""
    if source != STANDARD_INPUT:
        for number, line in numbered_lines(Path(source)):
            yield f"{source}:{number}", line
        return
    log.info(f"standard input is read as lines, {meaning}")
    number = 0
    try:
        while line := sys.stdin.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise DataError(f"standard input, line {number}: more than {MAX_LINE_BYTES:,} characters; break it up")
            if not is_unicode(line):
                raise DataError(f"standard input, line {number}: not UTF-8")
            yield f"standard input, line {number}", line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"standard input: not UTF-8 ({error})") from None


def json_lines(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of lines; blank ones are passed over."""
    for place, line in lines(source, "a JSON object with question and context in each"):
        if line.strip():
            yield place, json_record(line, place)


def cell(record: dict[str, Any], name: str, place: str, hint: str = "") -> str:
    """A text of a row.

    Raises:
        DataError: it is not there, or not a text; `hint` is what could be done.
    """
    if name not in record:
        raise DataError(f"{place}: {name!r} is missing; there are {', '.join(record) or 'no others'}{hint}")
    if not isinstance(value := record[name], str):
        raise DataError(f"{place}: {name!r} is not a text{hint}")
    return value
