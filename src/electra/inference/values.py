"""What is to be predicted, as values from Python: texts, pairs, words, dictionaries."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from electra.errors import DataError
from electra.finetuning.lines import row_id
from electra.finetuning.qa.data import Question
from electra.finetuning.tagging.data import Sentence, json_sentence
from electra.inference.inputs import COLUMN_HINT, Text, cell

Values = str | Mapping[str, Any] | Iterable[Any]
"""A string or a mapping is one input, anything else is many of them."""


def text_values(values: Values, text: str, pair: str | None) -> Iterator[Text]:
    """Strings, pairs of strings, or mappings with the keys `text` and, of pairs, `pair`.

    Raises:
        DataError: an input is something else; as in the other readers here.
    """
    for number, (place, value) in enumerate(each_of(values)):
        if isinstance(value, Mapping):
            names = (text,) if pair is None else (text, pair)
            both = [cell(dict(value), name, place, COLUMN_HINT) for name in names]
        else:
            both = list(value) if isinstance(value, list | tuple) else [value]
        if len(both) not in (1, 2) or not all(isinstance(each, str) for each in both):
            raise unexpected(value, place, "a string, a pair of strings or a dictionary")
        first, *second = (encodable(each, place) for each in both)
        yield Text(own_id(value, number), first, second[0] if second else None, place)


def sentence_values(values: Values) -> Iterator[Sentence]:
    """Strings of words between spaces, lists of words, or mappings with the key `words`; a sentence may have no words."""
    for number, (place, value) in enumerate(each_of(values)):
        words = value.get("words") if isinstance(value, Mapping) else value
        if isinstance(words, str) and not isinstance(value, Mapping):
            words = words.split()
        if not isinstance(words, list | tuple):
            raise unexpected(value, place, "a string, a list of words or a dictionary with 'words'")
        if words:
            words = json_sentence({"words": list(words)}, place, "words", "tags").words
        yield Sentence(tuple(encodable(word, place) for word in words), None, place, own_id(value, number))


def question_values(values: Values) -> Iterator[Question]:
    """Mappings with the keys `question` and `context`."""
    for number, (place, value) in enumerate(each_of(values)):
        if not isinstance(value, Mapping):
            raise unexpected(value, place, "a dictionary with 'question' and 'context'")
        question, context = (encodable(cell(dict(value), name, place), place) for name in ("question", "context"))
        yield Question(own_id(value, number), question, context, (), False)


def each_of(values: Values) -> Iterator[tuple[str, Any]]:
    """(place, value) of every input; the place is what messages call it."""
    single = isinstance(values, str | bytes | Mapping)
    for number, value in enumerate([values] if single else values):
        yield f"input {number}", value


def own_id(value: Any, number: int) -> str:
    """What a mapping calls itself, or the number of the input."""
    return (row_id(value) if isinstance(value, Mapping) else "") or str(number)


def encodable(text: str, place: str) -> str:
    """The same text, which a tokenizer takes.

    Raises:
        DataError: it has half a surrogate pair, as Python's strings can.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{place}: half a surrogate pair at character {error.start}, which is no character") from None
    return text


def unexpected(value: Any, place: str, wanted: str) -> DataError:
    """An error about the type of an input."""
    inside = ""
    if isinstance(value, list | tuple):
        inside = f" of {len(value)}: {', '.join(type(each).__name__ for each in value[:3])}{', …' * (len(value) > 3)}"
    return DataError(f"{place}: got {type(value).__name__}{inside}; expected {wanted}")
