"""The schemes of spans: detection, conversion that keeps the spans (compared with seqeval), errors."""

import itertools

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Entities
from support.errors import check_message, raises

from electra.errors import DataError
from electra.finetuning.tagging.data import Sentence
from electra.finetuning.tagging.schemes import (
    SCHEMES,
    convert_to_bio2,
    find_scheme,
    guess_scheme,
    marks_spans,
    repair_bio,
)

# Adjacent spans of the same type and of different types, and spans of one word: where the schemes differ.
SAME_SPANS = {
    "BIO2": "B-PER I-PER B-PER O B-LOC I-LOC I-LOC B-PER",
    "IOB1": "I-PER I-PER B-PER O I-LOC I-LOC I-LOC I-PER",
    "IOBES": "B-PER E-PER S-PER O B-LOC I-LOC E-LOC S-PER",
    "BILOU": "B-PER L-PER U-PER O B-LOC I-LOC L-LOC U-PER",
}


def sentence(tags: str, place: str = "a.txt:1") -> Sentence:
    split = tuple(tags.split())
    return Sentence(tuple(f"w{i}" for i in range(1, len(split) + 1)), split, place)


@pytest.mark.parametrize("scheme", SAME_SPANS)
def test_every_scheme_is_found_and_converted_to_bio2(scheme: str) -> None:
    found = sentence(SAME_SPANS[scheme])
    assert find_scheme([found]) == scheme
    assert convert_to_bio2(found.tags or (), scheme) == tuple(SAME_SPANS["BIO2"].split())


def every_sequence(letters: str, words: int) -> list[list[str]]:
    tags = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("X", "Y"))]
    return [list(sequence) for sequence in itertools.product(tags, repeat=words)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "letters", "theirs"),
    [("BIO2", "BI", IOB2), ("IOB1", "BI", IOB1), ("IOBES", "BIES", IOBES), ("BILOU", "BILU", BILOU)],
)
def test_conversion_keeps_the_spans_of_seqeval(scheme: str, letters: str, theirs: type) -> None:
    valid = [tags for tags in every_sequence(letters, 4) if SCHEMES[scheme](tags) is None]
    assert len(valid) > 50
    for tags in valid:
        expected = [(entity.start, entity.end, entity.tag) for entity in Entities([tags], theirs).entities[0]]
        found = [
            (span.start, span.end, span.tag)
            for span in Entities([list(convert_to_bio2(tags, scheme))], IOB2).entities[0]
        ]
        assert found == expected, tags
        covered = sum(end - start for start, end, _ in expected)
        assert covered == sum(tag != "O" for tag in tags), "every tagged word of a valid sequence is in a span"


def test_numbers_of_valid_sequences() -> None:
    """In BIO2 with one type, the number of valid sequences of n words is the Fibonacci number F(2n + 1)."""
    counts = [
        sum(SCHEMES["BIO2"](tags) is None for tags in itertools.product(("O", "B-X", "I-X"), repeat=n))
        for n in (1, 2, 3, 4)
    ]
    assert counts == [2, 5, 13, 34]


def test_repair_keeps_the_spans_of_seqeval() -> None:
    for tags in every_sequence("BI", 4):
        valid = repair_bio(tags)
        assert SCHEMES["BIO2"](valid) is None
        assert get_entities(list(valid)) == get_entities(tags)
    assert repair_bio(["O", "I-X", "I-X", "I-Y", "B-Y"]) == ("O", "B-X", "I-X", "B-Y", "B-Y")


def test_corpus_that_follows_several_schemes_gets_the_first() -> None:
    assert find_scheme([sentence("O O")]) == "BIO2"
    assert find_scheme([sentence("O I-X"), sentence("B-X")][:1]) == "IOB1"


def test_types_with_hyphens() -> None:
    assert convert_to_bio2(("B-NP-SBJ", "E-NP-SBJ", "S-X"), "IOBES") == ("B-NP-SBJ", "I-NP-SBJ", "B-X")
    assert find_scheme([sentence("B-NP-SBJ I-NP-SBJ")]) == "BIO2"


@pytest.mark.parametrize(
    ("tags", "scheme", "word", "named"),
    [
        ("B-X O I-X", "BIO2", 3, ["I-X", "O"]),
        ("B-X I-Y", "BIO2", 2, ["I-Y", "B-X"]),
        ("I-X B-Y", "BIO2", 1, ["I-X"]),
        ("B-X B", "BIO2", 2, ["'B'", "B-X", "I-X"]),
        ("B-X I-", "BIO2", 2, ["'I-'"]),
        ("b-x", "BIO2", 1, ["'b-x'"]),
        ("B-X 0", "BIO2", 2, ["'0'"]),
        ("B-X E-X E-X", "IOBES", 3, ["E-X", "IOBES"]),
        ("S-X B-X", "IOBES", 2, ["B-X"]),
        ("S-X B-X O", "IOBES", 3, ["O", "B-X", "IOBES"]),
        ("S-X B-X E-Y", "IOBES", 3, ["E-Y", "B-X", "IOBES"]),
        ("U-X L-X", "BILOU", 2, ["L-X", "U-X", "BILOU"]),
        ("S-X U-X", "IOBES", 2, ["'U-X'", "E-X", "S-X"]),
    ],
)
def test_tags_that_violate_every_scheme(tags: str, scheme: str, word: int, named: list[str]) -> None:
    """The error is that of the most probable scheme; it names file and line, word, tag and the tag before it."""
    corpus = [sentence("O O"), sentence(tags, "a.txt:8")]
    assert guess_scheme(corpus) == scheme
    violation = SCHEMES[scheme](tags.split())
    assert violation is not None
    number, problem = violation
    assert number == word - 1
    assert set(named) <= set(problem.replace(",", " ").split())
    with raises(DataError, "inconsistent-tags", "a.txt:8", word, f"'w{word}'", problem):
        find_scheme(corpus)


def test_mixed_schemes_name_a_place_in_each() -> None:
    """The error names the first word that breaks BIO2, then the first that breaks IOB1."""
    with raises(DataError, "inconsistent-tags") as caught:
        find_scheme([sentence("B-X O", "train.txt:1"), sentence("O I-X", "dev.txt:5")])
    bio2, iob1 = str(caught.value).split("train.txt:1")
    check_message(bio2, "dev.txt:5", 2, "'w2'", "I-X")
    check_message(iob1, 1, "'w1'", "B-X", "IOB1")


def test_marks_spans() -> None:
    assert marks_spans({"O", "B-X"})
    assert marks_spans({"O", "U-X"})
    assert not marks_spans({"NN", "VB"})
    assert not marks_spans({"O", "NN"})
