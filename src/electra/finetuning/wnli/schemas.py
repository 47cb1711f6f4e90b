"""Winograd schemas from the sentence pairs of WNLI: the pronoun that the hypothesis replaces, and candidate antecedents.

The hypothesis is a part of the premise in which a phrase, its antecedent, replaces one pronoun:

    premise     The trophy could not fit in the suitcase because it was too big.
    hypothesis  The suitcase was too big.

It is the claim that "it" is "the suitcase". GLUE does not annotate the pronoun, its antecedent or other candidates ("the
trophy"); they are found by rules here, for English only.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WORD_LISTS = {
    "pronoun": "he him his himself she her hers herself it its itself they them their theirs themselves",
    "determiner": "the a an this that these those some any every each all both his her its their my your our",
    "title": "mr mrs ms miss dr professor aunt uncle",
    "other": """i me we us you mine ours yours who whom whose which what there here no one two
        about above across after against along among around as at because before behind below beneath beside besides
        between beyond but by despite down during even except for from in inside into like near of off on onto or out
        outside over past since so than through till to toward towards under until up upon when where whereas while why
        with without yet and nor not if though although unless whether how then now still too very just only also soon
        later longer away luckily always never ever again together alone once almost hardly such really quite please
        next everyone whatever
        am is are was were be been being do does did done has have had having will would shall should can could may
        might must isn wasn weren don doesn didn hasn haven hadn won wouldn shouldn couldn
        get gets got go goes went come comes came give gives gave take takes took see sees saw say says said tell tells
        told make makes made know knows knew run runs ran eat eats ate sit sat stand stood fall fell fit fits throw
        threw keep kept leave left hold held lay led find found pay paid put let set hit beat buy bought sell sold lend
        lent cut break broke win lose lost hear heard feel felt begin began grow grew""",
}
PRONOUNS, DETERMINERS, TITLES = (frozenset(WORD_LISTS[kind].split()) for kind in ("pronoun", "determiner", "title"))
FUNCTION_WORDS = PRONOUNS | DETERMINERS | frozenset(WORD_LISTS["other"].split())
"""Lower-case words that end a noun phrase, among them frequent verbs that no suffix marks as verbs."""
MAX_NOUNS = 3
"""Maximum words of a noun phrase after its determiner."""

TOKEN = re.compile(r"[^\W_]+|['’](?:s|t|d|ll|m|re|ve)?\b|['’]|[^\w\s]")
WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Token:
    """A word, a suffix such as 's, or a punctuation mark, with its character positions [start, end) in the text."""

    text: str
    start: int
    end: int

    @property
    def lower(self) -> str:
        """The token in lower case, with straight apostrophes."""
        return self.text.lower().replace("’", "'")


@dataclass(frozen=True)
class Schema:
    """A premise, a pronoun in it, and the antecedent of the pronoun that the hypothesis claims."""

    premise: str
    start: int
    """First character of the pronoun."""
    end: int
    """End (exclusive) of the pronoun, in characters."""
    antecedent: str
    """Without the 's of a possessive."""
    possessive: bool
    """Whether the pronoun is possessive."""

    def format_replacement(self, antecedent: str) -> str:
        """Format an antecedent to replace the pronoun: possessive or capitalized if the pronoun is."""
        first = antecedent.split(" ")[0].lower()
        if self.premise[self.start].isupper():
            antecedent = antecedent[0].upper() + antecedent[1:]
        elif first in DETERMINERS:
            antecedent = antecedent[0].lower() + antecedent[1:]
        if not self.possessive:
            return antecedent
        return antecedent + ("'" if antecedent.endswith("s") and first in DETERMINERS else "'s")


def tokenize(text: str) -> list[Token]:
    """Split a text into tokens."""
    return [Token(match[0], match.start(), match.end()) for match in TOKEN.finditer(text)]


def find_schema(premise: str, hypothesis: str) -> Schema | None:
    """Find the pronoun and its antecedent for which premise and hypothesis agree in the most words around them.

    For every pronoun of the premise and every phrase of the hypothesis, the words before the phrase are compared with those
    before the pronoun, and the words after it with those after the pronoun. At least one word must be equal, and at most a
    quarter can be different. Punctuation is ignored.

    Returns:
        The schema; None if no pair of pronoun and phrase fits, because the hypothesis paraphrases the premise.
    """
    premise_tokens, hypothesis_tokens = (
        [token for token in tokenize(text) if WORD.search(token.text) or token.text in "'’"]
        for text in (premise, hypothesis)
    )
    words, target = [token.lower for token in premise_tokens], [token.lower for token in hypothesis_tokens]
    best: tuple[tuple[int, int, int], int, int, int] | None = None
    for pronoun, word in enumerate(words):
        if word not in PRONOUNS:
            continue
        for first in range(len(target)):
            for stop in range(first + 1, len(target) + 1):
                if target[first:stop] == [word] or any(part in PRONOUNS for part in target[first + 1 : stop]):
                    continue
                equal, different = count_agreement(words, pronoun, target, first, stop)
                if not equal or different * 4 > equal + different:
                    continue
                rank = (equal - 2 * different, first - stop, -pronoun)
                if best is None or rank > best[0]:
                    best = rank, pronoun, first, stop
    if best is None:
        return None
    _, pronoun, first, stop = best
    return build_schema(premise, premise_tokens[pronoun], hypothesis, hypothesis_tokens[first:stop])


def count_agreement(
    words: Sequence[str], pronoun: int, target: Sequence[str], first: int, stop: int
) -> tuple[int, int]:
    """Compare the words around the phrase `target[first:stop]` with those around `words[pronoun]`.

    Returns:
        The numbers of words of `target` outside the phrase that are equal to those of `words`, and that are different.
    """
    sides = [(words[:pronoun][::-1], target[:first][::-1]), (words[pronoun + 1 :], target[stop:])]
    equal = sum(a == b for left, right in sides for a, b in zip(left, right, strict=False))
    return equal, len(target) - (stop - first) - equal


def build_schema(premise: str, pronoun: Token, hypothesis: str, phrase: Sequence[Token]) -> Schema | None:
    """Build the schema in which the tokens `phrase` of the hypothesis replace the pronoun; None if they are only a suffix."""
    possessive = phrase[-1].lower in ("'s", "'")
    inner = phrase[:-1] if possessive else phrase
    if not inner:
        return None
    return Schema(premise, pronoun.start, pronoun.end, hypothesis[inner[0].start : inner[-1].end], possessive)


def find_candidates(schema: Schema) -> list[str]:
    """Find other noun phrases of the premise that can be the antecedent, without duplicates.

    If any precede the pronoun, only these are returned. Phrases that share a noun with the claimed antecedent ("the bottle"
    with "the water bottle") are excluded because they can mean the same, and phrases that contain the pronoun ("his arms").
    """
    antecedent_nouns = extract_nouns(schema.antecedent)
    candidates = [
        (start, schema.premise[start:end])
        for start, end in find_noun_phrases(schema.premise)
        if not start <= schema.start < end and not extract_nouns(schema.premise[start:end]) & antecedent_nouns
    ]
    preceding = [candidate for candidate in candidates if candidate[0] < schema.start]
    distinct: dict[frozenset[str], str] = {}
    for _, phrase in preceding or candidates:
        distinct.setdefault(extract_nouns(phrase), phrase)
    return list(distinct.values())


def extract_nouns(phrase: str) -> frozenset[str]:
    """Return the words of a phrase that are not function words, in lower case."""
    return frozenset(token.lower for token in tokenize(phrase) if WORD.match(token.text)) - FUNCTION_WORDS


def find_noun_phrases(text: str) -> Iterator[tuple[int, int]]:
    """Find names, phrases after a determiner or a possessive, and plurals; yield their characters [start, end).

    This is not a parser: a phrase ends at a function word, a punctuation mark, a word in -ed, -ing or -ly, or after MAX_NOUNS
    words. Errors are rare irregular verbs in phrases, and singular nouns without a determiner ("hair"), which are not found.
    """
    tokens = tokenize(text)
    i = start = 0
    while i < len(tokens):
        stop = find_phrase_end(tokens, i)
        if tokens[i].lower != "'s":
            start = tokens[i].start  # else the phrase starts with the possessor: "Susan", then "Susan's door"
        if stop > i:
            yield start, tokens[stop - 1].end
        i = max(stop, i + 1)


def find_phrase_end(tokens: Sequence[Token], start: int) -> int:
    """Return the end (exclusive) of the noun phrase that starts at the token `start`; `start` if there is none."""
    word = tokens[start].lower
    stop = start + 1
    if is_name(tokens[start]):
        while stop < len(tokens) and (is_name(tokens[stop]) or is_title_period(tokens, stop)):
            stop += 1
        return stop
    if word in DETERMINERS or (word == "'s" and start):
        # "that" before a name starts a clause.
        if word == "that" and stop < len(tokens) and is_name(tokens[stop]):
            return start
        while stop < min(len(tokens), start + 1 + MAX_NOUNS) and is_noun(tokens[stop], first=stop == start + 1):
            stop += 1
        return stop if stop > start + 1 else start
    return stop if is_noun(tokens[start], first=False) and is_plural(word) else start


def is_name(token: Token) -> bool:
    """Whether a token is a capitalized word and no function word; at the start of a sentence, it can be another noun."""
    return token.text[0].isupper() and token.lower not in FUNCTION_WORDS


def is_title_period(tokens: Sequence[Token], i: int) -> bool:
    """Whether a token is the period of a title, as in "Mr."."""
    return tokens[i].text == "." and tokens[i - 1].lower in TITLES


def is_noun(token: Token, first: bool) -> bool:
    """Whether a token can be a noun or, as the `first` word after a determiner, a participle ("the sleeping boy")."""
    word = token.lower
    if not word[0].isalpha() or word in FUNCTION_WORDS or (word.endswith("ly") and len(word) > 4):
        return False
    return first or not (word.endswith(("ed", "ing")) and len(word) > 4)


def is_plural(word: str) -> bool:
    """Whether a word has the suffix of a plural; some verbs ("follows") have it too."""
    return word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3
