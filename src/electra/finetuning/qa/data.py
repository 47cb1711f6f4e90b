"""Questions about a context with their answers, in the formats of SQuAD and of the MRQA 2019 shared task."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.errors import DataError, TextError
from electra.external import check_unicode, decode_json
from electra.text.files import read_blocks
from electra.text.lines import read_json_records

MAX_DOCUMENT_BYTES = 512_000_000
"""Maximum size of a SQuAD file, one JSON document that takes several times as much memory when parsed. SQuAD 2.0 has 42 MB."""


@dataclass(frozen=True)
class Answer:
    """An accepted answer to a question."""

    text: str
    start: int | None
    """Position of its first character in the context; None for answers without a position, as some of MRQA's."""


@dataclass(frozen=True)
class Question:
    """A question about a context."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    """The first is the training target, all are accepted in scoring; empty in a test file and for impossible questions."""
    impossible: bool
    """Whether the context has no answer to it."""

    @property
    def has_target(self) -> bool:
        """Whether it has a training target: a position of the first answer, or the mark that it is impossible."""
        return self.impossible or bool(self.answers and self.answers[0].start is not None)


def read_squad(path: Path) -> list[Question]:
    """Read the questions of a SQuAD file, v1.1 or v2.0, plain or .gz.

    Raises:
        DataError: another format, no questions, a repeated id, or an answer that is not in its context; the message names the
            file and the question.
    """
    content = decode_json(read_bytes(path), str(path), DataError, half_surrogates=True)  # checked by `get_field`
    return check_questions(list(parse_squad(content, str(path))), str(path))


def read_mrqa(path: Path) -> list[Question]:
    """Read the questions of an MRQA 2019 file: JSON lines, plain or .gz, the first of which is a header.

    The training target is the first span of the first detected answer, as spelled in the context (the field `text` of the span
    is normalized); the texts in `answers` are accepted too.

    Raises:
        DataError: as in `read_squad`; the message also names the line.
    """
    questions: list[Question] = []
    for number, record in read_json_records(path):
        if number > 1 or "header" not in record:
            questions += parse_mrqa(record, f"{path}:{number}")
    return check_questions(questions, str(path))


def check_answered(questions: list[Question], path: Path) -> None:
    """Check that every question has a training target.

    Raises:
        DataError: a question has neither an answer with a position nor the mark that it is impossible.
    """
    for question in questions:
        if not question.has_target:
            raise DataError(
                "missing-answer",
                f"{path}: question {question.id!r} has no answer; only a test file may lack them "
                "(questions without answer are marked by is_impossible)",
            )


def parse_squad(content: Any, place: str) -> Iterator[Question]:
    """Yield the questions of the JSON document of a SQuAD file; `place` is the file, for messages."""
    for i, article in enumerate(get_field(content, "data", list, place), 1):
        here = f"{place}: article {i}"
        for j, paragraph in enumerate(get_field(article, "paragraphs", list, here), 1):
            here = f"{place}: article {i}, paragraph {j}"
            context = get_text_field(paragraph, "context", here)
            for qa in get_field(paragraph, "qas", list, here):
                id = str(get_field(qa, "id", (str, int), here))
                yield parse_squad_question(qa, id, context, f"{place}: question {id!r}")


def parse_squad_question(qa: dict[str, Any], id: str, context: str, place: str) -> Question:
    """Parse one question of SQuAD; `plausible_answers` of impossible questions are not read.

    Raises:
        DataError: a field is missing or of the wrong type, an answer is empty or not in the context, or an impossible question
            has an answer.
    """
    impossible = get_field(qa, "is_impossible", bool, place) if "is_impossible" in qa else False
    answers = tuple(
        Answer(get_text_field(each, "text", place), get_field(each, "answer_start", int, place))
        for each in get_list_field(qa, "answers", place)
    )
    if impossible and answers:
        raise DataError(
            "impossible-with-answer", f"{place} is marked is_impossible, but has the answer {answers[0].text!r}"
        )
    for answer in answers:
        assert answer.start is not None
        found = context[max(answer.start, 0) :][: len(answer.text)]
        if not answer.text.strip():
            raise DataError(
                "empty-answer", f"{place} has an empty answer; a question without answer is marked by is_impossible"
            )
        if answer.start < 0 or found != answer.text:
            raise DataError(
                "answer-not-found",
                f"{place}: the answer {shorten(answer.text)} is not in the context at character "
                f"{answer.start}, where it has {shorten(found)}",
            )
    return Question(id, get_text_field(qa, "question", place), context, answers, impossible)


def parse_mrqa(record: Any, place: str) -> Iterator[Question]:
    """Yield the questions of one line of an MRQA file."""
    context = get_text_field(record, "context", place)
    for qa in get_field(record, "qas", list, place):
        id = str(get_field(qa, "qid", (str, int), place))
        here = f"{place}: question {id!r}"
        answers = [parse_mrqa_answer(each, context, here) for each in get_list_field(qa, "detected_answers", here)[:1]]
        answers += [Answer(str(text), None) for text in get_list_field(qa, "answers", here)]
        yield Question(id, get_text_field(qa, "question", here), context, tuple(answers), False)


def parse_mrqa_answer(detected: Any, context: str, place: str) -> Answer:
    """Parse the first of the character spans at which an answer was detected; their ends are inclusive.

    Raises:
        DataError: the span is malformed or not in the context.
    """
    spans = get_field(detected, "char_spans", list, place)
    match spans[:1]:
        case [[int(first), int(last)]] if 0 <= first <= last < len(context):
            return Answer(context[first : last + 1], first)
    raise DataError(
        "bad-span",
        f"{place}: the answer's char_spans {spans[:1]} are not within the context of {len(context)} characters",
    )


def check_questions(questions: list[Question], place: str) -> list[Question]:
    """Return the questions after a check that there are any and that their ids differ.

    Raises:
        DataError: there are none, or an id is repeated.
    """
    if not questions:
        raise DataError("no-questions", f"{place}: has no questions")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise DataError("repeated-id", f"{place}: two questions have the id {question.id!r}")
        seen.add(question.id)
    return questions


def get_field(record: Any, name: str, kind: Any, place: str) -> Any:
    """Return a field of a JSON object that must be of the type `kind`, a type or a tuple of types.

    Raises:
        DataError: `record` is not an object, or the field is missing, of another type or not valid Unicode.
    """
    if not isinstance(record, dict):
        raise DataError("wrong-type", f"{place}: {type(record).__name__} where an object with {name!r} is expected")
    if name not in record:
        raise DataError("missing-field", f"{place}: no {name!r}; it has {', '.join(map(repr, record)) or 'nothing'}")
    if not isinstance(record[name], kind):
        raise DataError("wrong-type", f"{place}: {name!r} is of the wrong type, {type(record[name]).__name__}")
    if isinstance(value := record[name], str):
        check_unicode(value, f"{place}: {name!r}", DataError)
    return value


def get_list_field(record: dict[str, Any], name: str, place: str) -> list[Any]:
    """Return a field that must be a list; an empty list if the field is missing."""
    return get_field(record, name, list, place) if name in record else []


def get_text_field(record: Any, name: str, place: str) -> str:
    """Return a field that must be a string."""
    text: str = get_field(record, name, str, place)
    return text


def read_bytes(path: Path) -> bytes:
    """Read a whole file, decompressed.

    Raises:
        DataError: it cannot be read, or has more than MAX_DOCUMENT_BYTES bytes.
    """
    data = bytearray()
    try:
        for block, _ in read_blocks(path):
            data += block
            if len(data) > MAX_DOCUMENT_BYTES:
                raise DataError(
                    "too-large",
                    f"{path}: more than {MAX_DOCUMENT_BYTES // 10**6:,} MB uncompressed, the maximum, because it is "
                    "loaded as a whole; split it into several files",
                )
    except TextError as error:
        raise DataError(error.code, str(error)) from error
    return bytes(data)


def shorten(text: str) -> str:
    """Quote a text for a message, truncated to 40 characters."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
