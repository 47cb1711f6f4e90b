"""How tags mark spans (chunks, entities): which scheme a corpus follows, and its tags in BIO2.

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

Breach = tuple[int, str]
"""A word's number in its sentence, from 0, and what is wrong with its tag."""


def marks_spans(tags: Iterable[str]) -> bool:
    """Whether a tag set looks like spans: it has "O", and a tag like "B-X"."""
    tags = set(tags)
    return "O" in tags and any(SPAN_TAG.fullmatch(tag) for tag in tags)


def find_scheme(sentences: Sequence[Sentence]) -> str:
    """The first of BIO2, IOB1, IOBES and BILOU that all tagged sentences keep to.

    A corpus that keeps to several, because it has no two adjacent spans or no span at all, gets the first; its spans
    are the same in each of them.

    Raises:
        DataError: none fits; the message names the first place that breaks the likeliest.
    """
    breaches = {}
    for scheme, check in SCHEMES.items():
        breaches[scheme] = first_breach(sentences, check)
        if breaches[scheme] is None:
            return scheme
    likeliest = likeliest_scheme(sentences)
    message = f"{breaches[likeliest]}; the tags keep to none of {', '.join(SCHEMES)}"
    if likeliest == "BIO2":
        message += f" (against IOB1 stands {breaches['IOB1']})"
    raise DataError(message)


def likeliest_scheme(sentences: Sequence[Sentence]) -> str:
    """What the letters in use point to."""
    letters = {tag[0] for sentence in sentences for tag in sentence.tags or () if SPAN_TAG.fullmatch(tag)}
    return "IOBES" if letters & set("ES") else "BILOU" if letters & set("LU") else "BIO2"


def first_breach(sentences: Sequence[Sentence], check: Callable[[Sequence[str]], Breach | None]) -> str | None:
    """Place and nature of the first tag that breaks a scheme."""
    for sentence in sentences:
        breach = check(sentence.tags or ())
        if breach:
            word, problem = breach
            return f"{sentence.place}: word {word + 1} ({sentence.words[word]!r}): {problem}"
    return None


def parts(tag: str) -> tuple[str, str]:
    """Letter and type: ("B", "NP") of "B-NP", ("O", "") of "O", ("", tag) of what is neither."""
    match = SPAN_TAG.fullmatch(tag)
    return (match[1], match[2]) if match else ("O", "") if tag == "O" else ("", tag)


def bio2_breach(tags: Sequence[str]) -> Breach | None:
    """The first tag that is not one of BIO2, or an I-X that continues nothing."""
    before = "O"
    for i, tag in enumerate(tags):
        letter, kind = parts(tag)
        if letter not in ("B", "I", "O"):
            return i, f"{tag!r} is not O, B-X or I-X"
        if letter == "I" and before not in (f"B-{kind}", f"I-{kind}"):
            return i, f"{tag} after {before if i else 'the start of the sentence'} breaks BIO"
        before = tag
    return None


def iob1_breach(tags: Sequence[str]) -> Breach | None:
    """The first tag that is not one of IOB1, or a B-X that does not follow an X."""
    before = "O"
    for i, tag in enumerate(tags):
        letter, kind = parts(tag)
        if letter not in ("B", "I", "O"):
            return i, f"{tag!r} is not O, B-X or I-X"
        if letter == "B" and before not in (f"B-{kind}", f"I-{kind}"):
            return i, f"{tag} after {before if i else 'the start of the sentence'} breaks IOB1"
        before = tag
    return None


def closed_breach(tags: Sequence[str], scheme: str, last: str, single: str) -> Breach | None:
    """The first tag that breaks a scheme which also marks the `last` word of a span and the `single` one."""
    before, open_kind = "O", ""  # the tag before, and the type of the span that is open after it
    for i, tag in enumerate([*tags, "O"]):
        letter, kind = parts(tag)
        if letter not in ("B", "I", "O", last, single):
            return i, f"{tag!r} is not O, B-X, I-X, {last}-X or {single}-X"
        continues = letter in ("I", last)
        if continues != bool(open_kind) or (continues and kind != open_kind):
            if i == len(tags):
                return i - 1, f"{before} at the end of the sentence leaves its span open"
            return i, f"{tag} after {before if i else 'the start of the sentence'} breaks {scheme}"
        before, open_kind = tag, kind if letter in ("B", "I") else ""
    return None


SCHEMES: dict[str, Callable[[Sequence[str]], Breach | None]] = {
    "BIO2": bio2_breach,
    "IOB1": iob1_breach,
    "IOBES": lambda tags: closed_breach(tags, "IOBES", "E", "S"),
    "BILOU": lambda tags: closed_breach(tags, "BILOU", "L", "U"),
}
"""What is wrong with the tags of a sentence in each scheme."""


def to_bio2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """The tags of a sentence that keeps to `scheme`."""
    if scheme == "IOB1":
        return legal_bio(tags)
    letters = {"S": "B", "U": "B", "E": "I", "L": "I"}
    return tuple(tag if tag == "O" else letters.get(tag[0], tag[0]) + tag[1:] for tag in tags)


def legal_bio(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags out of O, B-X and I-X in any order as BIO2: an I-X that continues no X starts one, so it becomes B-X.

    That is how conlleval, and seqeval by default, read it: their spans are the same before and after.
    """
    legal: list[str] = []
    for tag in tags:
        before = legal[-1] if legal else "O"
        starts = tag.startswith("I-") and before[1:] != tag[1:]
        legal.append(f"B{tag[1:]}" if starts else tag)
    return tuple(legal)
