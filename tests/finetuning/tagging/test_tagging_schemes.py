"""The schemes of spans: detection, conversion without changing a span (seqeval is the oracle), errors."""

import itertools

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Entities

from electra.errors import DataError
from electra.finetuning.tagging.data import Sentence
from electra.finetuning.tagging.schemes import SCHEMES, convert_to_bio2, find_scheme, marks_spans, repair_bio

# Two adjacent spans of one type, a span of another right after, one of a single word: all that tells schemes apart.
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


@pytest.mark.parametrize(
    ("scheme", "letters", "theirs"),
    [("BIO2", "BI", IOB2), ("IOB1", "BI", IOB1), ("IOBES", "BIES", IOBES), ("BILOU", "BILU", BILOU)],
)
def test_conversion_keeps_the_spans_of_seqeval(scheme: str, letters: str, theirs: type) -> None:
    legal = [tags for tags in every_sequence(letters, 4) if SCHEMES[scheme](tags) is None]
    assert len(legal) > 50
    for tags in legal:
        expected = [(entity.start, entity.end, entity.tag) for entity in Entities([tags], theirs).entities[0]]
        found = [
            (span.start, span.end, span.tag)
            for span in Entities([list(convert_to_bio2(tags, scheme))], IOB2).entities[0]
        ]
        assert found == expected, tags
        covered = sum(end - start for start, end, _ in expected)
        assert covered == sum(tag != "O" for tag in tags), "no word of a legal sequence is outside of a span"


def test_numbers_of_valid_sequences() -> None:
    """Against counting by hand: in BIO2 with one type, sequences of n words are the Fibonacci numbers F(2n + 1)."""
    counts = [
        sum(SCHEMES["BIO2"](tags) is None for tags in itertools.product(("O", "B-X", "I-X"), repeat=n))
        for n in (1, 2, 3, 4)
    ]
    assert counts == [2, 5, 13, 34]


def test_repair_keeps_the_spans_of_seqeval() -> None:
    for tags in every_sequence("BI", 4):
        legal = repair_bio(tags)
        assert SCHEMES["BIO2"](legal) is None
        assert get_entities(list(legal)) == get_entities(tags)
    assert repair_bio(["O", "I-X", "I-X", "I-Y", "B-Y"]) == ("O", "B-X", "I-X", "B-Y", "B-Y")


def test_corpus_that_follows_several_schemes_gets_the_first() -> None:
    assert find_scheme([sentence("O O")]) == "BIO2"
    assert find_scheme([sentence("O I-X"), sentence("B-X")][:1]) == "IOB1"


def test_types_with_hyphens() -> None:
    assert convert_to_bio2(("B-NP-SBJ", "E-NP-SBJ", "S-X"), "IOBES") == ("B-NP-SBJ", "I-NP-SBJ", "B-X")
    assert find_scheme([sentence("B-NP-SBJ I-NP-SBJ")]) == "BIO2"


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ("B-X O I-X", "a.txt:8: word 3 ('w3'): I-X after O breaks BIO"),
        ("B-X I-Y", "a.txt:8: word 2 ('w2'): I-Y after B-X breaks BIO"),
        ("I-X B-Y", "a.txt:8: word 1 ('w1'): I-X after the start of the sentence breaks BIO"),
        ("B-X B", "a.txt:8: word 2 ('w2'): 'B' is not O, B-X or I-X"),
        ("B-X I-", "'I-' is not O, B-X or I-X"),
        ("b-x", "'b-x' is not O, B-X or I-X"),
        ("B-X 0", "'0' is not O, B-X or I-X"),
        ("B-X E-X E-X", "word 3 ('w3'): E-X after E-X breaks IOBES"),
        ("S-X B-X", "word 2 ('w2'): B-X at the end of the sentence leaves its span open"),
        ("S-X B-X O", "word 3 ('w3'): O after B-X breaks IOBES"),
        ("S-X B-X E-Y", "word 3 ('w3'): E-Y after B-X breaks IOBES"),
        ("U-X L-X", "word 2 ('w2'): L-X after U-X breaks BILOU"),
        ("S-X U-X", "'U-X' is not O, B-X, I-X, E-X or S-X"),
    ],
)
def test_tags_that_violate_every_scheme(tags: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        find_scheme([sentence("O O"), sentence(tags, "a.txt:8")])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mixed_schemes_name_a_place_in_each() -> None:
    with pytest.raises(DataError) as caught:
        find_scheme([sentence("B-X O", "train.txt:1"), sentence("O I-X", "dev.txt:5")])
    assert "dev.txt:5: word 2 ('w2'): I-X after O breaks BIO" in str(caught.value)
    assert "and not IOB1: train.txt:1: word 1 ('w1'): B-X after the start of the sentence breaks IOB1" in str(
        caught.value
    )


def test_marks_spans() -> None:
    assert marks_spans({"O", "B-X"})
    assert marks_spans({"O", "U-X"})
    assert not marks_spans({"NN", "VB"})
    assert not marks_spans({"O", "NN"})
