"""How tags mark spans (chunks, entities): the scheme of a corpus, and its tags in BIO2.

    scheme  first word of a span         inside   last word   only word
    BIO2    B-X                          I-X      I-X         B-X
    IOB1    I-X; B-X after another X     I-X      I-X         I-X; B-X after another X
    IOBES   B-X                          I-X      E-X         S-X
    BILOU   B-X                          I-X      L-X         U-X

"O" is outside of every span. A type may contain hyphens: it is all that follows the first one.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from electra.errors import DataError
from electra.finetuning.tagging.data import Sentence

SPAN_TAG = re.compile(r"([BIESLU])-(.+)")
PLAIN = "plain"
"""The scheme of tags that mark no spans, like parts of speech."""

Violation = tuple[int, str]
"""The number of a word in its sentence, from 0, and what is wrong with its tag."""


def marks_spans(tags: Iterable[str]) -> bool:
    """Whether a tag set marks spans: it has "O", and a tag like "B-X"."""
    tags = set(tags)
    return "O" in tags and any(SPAN_TAG.fullmatch(tag) for tag in tags)


def find_scheme(sentences: Sequence[Sentence]) -> str:
    """The first of BIO2, IOB1, IOBES and BILOU that all tagged sentences follow.

    A corpus that follows several, because it has no adjacent spans or no spans at all, gets the first; its spans are the
    same in each of them.

    Raises:
        DataError: none fits; the message names the first violation of the most probable one.
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
    """The scheme that has the letters in use."""
    letters = {tag[0] for sentence in sentences for tag in sentence.tags or () if SPAN_TAG.fullmatch(tag)}
    return "IOBES" if letters & set("ES") else "BILOU" if letters & set("LU") else "BIO2"


def find_violation(sentences: Sequence[Sentence], check: Callable[[Sequence[str]], Violation | None]) -> str | None:
    """Place and description of the first violation of a scheme; None where there is none."""
    for sentence in sentences:
        violation = check(sentence.tags or ())
        if violation:
            word, problem = violation
            return f"{sentence.place}: word {word + 1} ({sentence.words[word]!r}): {problem}"
    return None


def split_tag(tag: str) -> tuple[str, str]:
    """Letter and type: ("B", "NP") of "B-NP", ("O", "") of "O", ("", tag) of what is neither."""
    match = SPAN_TAG.fullmatch(tag)
    return (match[1], match[2]) if match else ("O", "") if tag == "O" else ("", tag)


def check_bio2(tags: Sequence[str]) -> Violation | None:
    """The first tag that is not one of BIO2, or an I-X that continues nothing."""
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
    """The first tag that is not one of IOB1, or a B-X that does not follow an X."""
    before = "O"
    for i, tag in enumerate(tags):
        letter, kind = split_tag(tag)
        if letter not in ("B", "I", "O"):
            return i, f"{tag!r} is not O, B-X or I-X"
        if letter == "B" and before not in (f"B-{kind}", f"I-{kind}"):
            return i, f"{tag} after {before if i else 'the start of the sentence'} breaks IOB1"
        before = tag
    return None


def check_closed(tags: Sequence[str], scheme: str, last: str, single: str) -> Violation | None:
    """The first tag that breaks a scheme which also marks the `last` word of a span and the `single` one."""
    before, open_kind = "O", ""  # the tag before, and the type of the span that is open after it
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
    "IOBES": lambda tags: check_closed(tags, "IOBES", "E", "S"),
    "BILOU": lambda tags: check_closed(tags, "BILOU", "L", "U"),
}
"""The check of each scheme: the first violation in the tags of a sentence, or None."""


def to_bio2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """The tags of a sentence, which follow `scheme`, in BIO2."""
    if scheme == "IOB1":
        return repair_bio(tags)
    letters = {"S": "B", "U": "B", "E": "I", "L": "I"}
    return tuple(tag if tag == "O" else letters.get(tag[0], tag[0]) + tag[1:] for tag in tags)


def repair_bio(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags O, B-X and I-X in any order as valid BIO2: an I-X that continues no X starts one, so it becomes B-X.

    conlleval, and seqeval by default, find the same spans before and after.
    """
    repaired: list[str] = []
    for tag in tags:
        before = repaired[-1] if repaired else "O"
        starts = tag.startswith("I-") and before[1:] != tag[1:]
        repaired.append(f"B{tag[1:]}" if starts else tag)
    return tuple(repaired)
