"""Tagging schemes, in which tags mark spans (chunks, entities): detection of the scheme of a corpus, conversion to BIO2.

    scheme  first word of a span         inside   last word   only word
    BIO2    B-X                          I-X      I-X         B-X
    IOB1    I-X; B-X after another X     I-X      I-X         I-X; B-X after another X
    IOBES   B-X                          I-X      E-X         S-X
    BILOU   B-X                          I-X      L-X         U-X

"O" is outside of all spans. A type X can contain hyphens: it is all that follows the first one.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from electra.errors import DataError
from electra.finetuning.tagging.data import Sentence

SPAN_TAG = re.compile(r"([BIESLU])-(.+)")
"""Letter and type of a tag that marks a span."""
PLAIN = "plain"
"""Name of the scheme of tags that do not mark spans, as of parts of speech."""

Violation = tuple[int, str]
"""(index of a word in its sentence, description of what is wrong with its tag)."""


def marks_spans(tags: Iterable[str]) -> bool:
    """Whether a set of tags marks spans: it has "O" and a tag such as "B-X"."""
    tags = set(tags)
    return "O" in tags and any(SPAN_TAG.fullmatch(tag) for tag in tags)


def find_scheme(sentences: Sequence[Sentence]) -> str:
    """Return the first of BIO2, IOB1, IOBES and BILOU that the tags of all sentences follow.

    If a corpus follows several, because it has no adjacent spans or no spans at all, its spans are the same in each of them.

    Raises:
        DataError: the tags follow none; the message has the first violation of the most probable scheme.
    """
    violations = {}
    for scheme, check in SCHEMES.items():
        violations[scheme] = find_violation(sentences, check)
        if violations[scheme] is None:
            return scheme
    guess = guess_scheme(sentences)
    message = f"{violations[guess]}; the tags follow none of {', '.join(SCHEMES)}"
    if guess == "BIO2":
        message += f" (and not IOB1: {violations['IOB1']})"
    raise DataError("inconsistent-tags", message)


def guess_scheme(sentences: Sequence[Sentence]) -> str:
    """Guess the scheme from the letters that the tags have."""
    letters = {tag[0] for sentence in sentences for tag in sentence.tags or () if SPAN_TAG.fullmatch(tag)}
    return "IOBES" if letters & set("ES") else "BILOU" if letters & set("LU") else "BIO2"


def find_violation(sentences: Sequence[Sentence], check: Callable[[Sequence[str]], Violation | None]) -> str | None:
    """Describe the first violation of a scheme, with its place; None if there is none."""
    for sentence in sentences:
        violation = check(sentence.tags or ())
        if violation:
            word, problem = violation
            return f"{sentence.place}: word {word + 1} ({sentence.words[word]!r}): {problem}"
    return None


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into letter and type: "B-NP" -> ("B", "NP"), "O" -> ("O", ""), any other tag -> ("", tag)."""
    match = SPAN_TAG.fullmatch(tag)
    return (match[1], match[2]) if match else ("O", "") if tag == "O" else ("", tag)


def check_bio2(tags: Sequence[str]) -> Violation | None:
    """Return the first tag that is not O, B-X or I-X, or an I-X without an X before it; None if the tags follow BIO2."""
    before = "O"
    for i, tag in enumerate(tags):
        letter, kind = split_tag(tag)
        if letter not in ("B", "I", "O"):
            return i, f"{tag!r} is not O, B-X or I-X"
        if letter == "I" and before not in (f"B-{kind}", f"I-{kind}"):
            return i, f"{tag} after {before if i else 'the start of the sentence'} breaks BIO"
        before = tag
    return None


def check_iob1(tags: Sequence[str]) -> Violation | None:
    """Return the first tag that is not O, B-X or I-X, or a B-X without an X before it; None if the tags follow IOB1."""
    before = "O"
    for i, tag in enumerate(tags):
        letter, kind = split_tag(tag)
        if letter not in ("B", "I", "O"):
            return i, f"{tag!r} is not O, B-X or I-X"
        if letter == "B" and before not in (f"B-{kind}", f"I-{kind}"):
            return i, f"{tag} after {before if i else 'the start of the sentence'} breaks IOB1"
        before = tag
    return None


def check_end_tags(tags: Sequence[str], scheme: str, last: str, single: str) -> Violation | None:
    """Return the first violation of a scheme with tags of its own for the last word and the only word of a span.

    Args:
        tags: Tags of a sentence.
        scheme: Name of the scheme, for messages.
        last: Letter of the last word of a span.
        single: Letter of the only word of a span.
    """
    before, open_kind = "O", ""  # the previous tag, and the type of the span that it leaves open
    for i, tag in enumerate([*tags, "O"]):
        letter, kind = split_tag(tag)
        if letter not in ("B", "I", "O", last, single):
            return i, f"{tag!r} is not O, B-X, I-X, {last}-X or {single}-X"
        continues = letter in ("I", last)
        if continues != bool(open_kind) or (continues and kind != open_kind):
            if i == len(tags):
                return i - 1, f"{before} at the end of the sentence leaves its span open"
            return i, f"{tag} after {before if i else 'the start of the sentence'} breaks {scheme}"
        before, open_kind = tag, kind if letter in ("B", "I") else ""
    return None


SCHEMES: dict[str, Callable[[Sequence[str]], Violation | None]] = {
    "BIO2": check_bio2,
    "IOB1": check_iob1,
    "IOBES": lambda tags: check_end_tags(tags, "IOBES", "E", "S"),
    "BILOU": lambda tags: check_end_tags(tags, "BILOU", "L", "U"),
}
"""Scheme -> function that returns the first violation in the tags of a sentence, or None."""


def convert_to_bio2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Convert the tags of a sentence from `scheme` to BIO2."""
    if scheme == "IOB1":
        return repair_bio(tags)
    letters = {"S": "B", "U": "B", "E": "I", "L": "I"}
    return tuple(tag if tag == "O" else letters.get(tag[0], tag[0]) + tag[1:] for tag in tags)


def repair_bio(tags: Sequence[str]) -> tuple[str, ...]:
    """Convert tags O, B-X and I-X in any order to valid BIO2: an I-X without an X before it becomes B-X.

    The spans are the same before and after by the rules of conlleval, and of seqeval by default.
    """
    repaired: list[str] = []
    for tag in tags:
        before = repaired[-1] if repaired else "O"
        starts = tag.startswith("I-") and before[1:] != tag[1:]
        repaired.append(f"B{tag[1:]}" if starts else tag)
    return tuple(repaired)
