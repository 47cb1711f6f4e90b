"""Winograd schemas from WNLI's sentence pairs: the pronoun that the hypothesis replaces, and other candidate antecedents.

The hypothesis is a part of the premise in which a phrase replaces one pronoun:

    premise     The trophy could not fit in the suitcase because it was too big.
    hypothesis  The suitcase was too big.

It means that "it" is "the suitcase". GLUE annotates neither that nor the other antecedents; both are found by rules here,
for English only.
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
"""Words, in lower case, that end a noun phrase; the verbs are the frequent ones whose form does not show it."""
MOST_NOUNS = 3
"""Words of a phrase after its determiner."""

TOKEN = re.compile(r"[^\W_]+|['’](?:s|t|d|ll|m|re|ve)?\b|['’]|[^\w\s]")
WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Token:
    """A word, an ending like 's, or a punctuation mark of a text."""

    text: str
    start: int
    end: int

    @property
    def lower(self) -> str:
        return self.text.lower().replace("’", "'")


@dataclass(frozen=True)
class Schema:
    """A premise, the pronoun in it, and its antecedent by the hypothesis."""

    premise: str
    start: int
    """The position of the pronoun, in characters."""
    end: int
    antecedent: str
    """Without the 's of a possessive."""
    possessive: bool

    def substitute(self, antecedent: str) -> str:
        """What replaces the pronoun: the antecedent, possessive or capitalized where the pronoun is."""
        first = antecedent.split(" ")[0].lower()
        if self.premise[self.start].isupper():
            antecedent = antecedent[0].upper() + antecedent[1:]
        elif first in DETERMINERS:
            antecedent = antecedent[0].lower() + antecedent[1:]
        if not self.possessive:
            return antecedent
        return antecedent + ("'" if antecedent.endswith("s") and first in DETERMINERS else "'s")


def tokenize(text: str) -> list[Token]:
    """The tokens of a text."""
    return [Token(match[0], match.start(), match.end()) for match in TOKEN.finditer(text)]


def find_schema(premise: str, hypothesis: str) -> Schema | None:
    """The pronoun and its antecedent such that premise and hypothesis agree in the most words around them.

    Every pronoun and every phrase of the hypothesis are tried: the words before the phrase are compared with those
    before the pronoun, the words after with those after. At least one must agree, and no more than a quarter may not.
    Punctuation does not count. None where nothing fits: the hypothesis is a freer paraphrase.
    """
    given, stated = (
        [token for token in tokenize(text) if WORD.search(token.text) or token.text in "'’"]
        for text in (premise, hypothesis)
    )
    words, target = [token.lower for token in given], [token.lower for token in stated]
    best: tuple[tuple[int, int, int], int, int, int] | None = None
    for pronoun, word in enumerate(words):
        if word not in PRONOUNS:
            continue
        for first in range(len(target)):
            for stop in range(first + 1, len(target) + 1):
                if target[first:stop] == [word] or any(part in PRONOUNS for part in target[first + 1 : stop]):
                    continue
                agreeing, differing = count_agreement(words, pronoun, target, first, stop)
                if not agreeing or differing * 4 > agreeing + differing:
                    continue
                rank = (agreeing - 2 * differing, first - stop, -pronoun)
                if best is None or rank > best[0]:
                    best = rank, pronoun, first, stop
    if best is None:
        return None
    _, pronoun, first, stop = best
    return build_schema(premise, given[pronoun], hypothesis, stated[first:stop])


def count_agreement(
    words: Sequence[str], pronoun: int, target: Sequence[str], first: int, stop: int
) -> tuple[int, int]:
    """How many words around `target[first:stop]` are those around `words[pronoun]`, and how many are not."""
    sides = [(words[:pronoun][::-1], target[:first][::-1]), (words[pronoun + 1 :], target[stop:])]
    agreeing = sum(a == b for left, right in sides for a, b in zip(left, right, strict=False))
    return agreeing, len(target) - (stop - first) - agreeing


def build_schema(premise: str, pronoun: Token, hypothesis: str, phrase: Sequence[Token]) -> Schema | None:
    """The schema in which `phrase`, words of the hypothesis, replaces the pronoun."""
    possessive = phrase[-1].lower in ("'s", "'")
    inner = phrase[:-1] if possessive else phrase
    if not inner:
        return None
    return Schema(premise, pronoun.start, pronoun.end, hypothesis[inner[0].start : inner[-1].end], possessive)


def find_candidates(schema: Schema) -> list[str]:
    """Other noun phrases of the premise that may be the antecedent, each once.

    They precede the pronoun if any does. One that shares a noun with the antecedent ("the bottle" with "the water
    bottle") may be the same thing, and one that the pronoun itself starts ("his arms") cannot be: both are excluded.
    """
    own = extract_nouns(schema.antecedent)
    rivals = [
        (start, schema.premise[start:end])
        for start, end in find_noun_phrases(schema.premise)
        if not start <= schema.start < end and not extract_nouns(schema.premise[start:end]) & own
    ]
    before = [rival for rival in rivals if rival[0] < schema.start]
    found: dict[frozenset[str], str] = {}
    for _, phrase in before or rivals:
        found.setdefault(extract_nouns(phrase), phrase)
    return list(found.values())


def extract_nouns(phrase: str) -> frozenset[str]:
    """The words of a phrase, in lower case, that are not function words."""
    return frozenset(token.lower for token in tokenize(phrase) if WORD.match(token.text)) - FUNCTION_WORDS


def find_noun_phrases(text: str) -> Iterator[tuple[int, int]]:
    """Names, phrases after a determiner or an owner, and plurals without one, as spans of characters.

    No parser: a phrase ends at a function word, a mark, a word in -ed, -ing or -ly, or after MOST_NOUNS words. So rare
    irregular verbs get into phrases, and singulars without a determiner ("hair") are missed.
    """
    tokens = tokenize(text)
    i = start = 0
    while i < len(tokens):
        stop = find_phrase_end(tokens, i)
        if tokens[i].lower != "'s":
            start = tokens[i].start  # else the phrase continues from its owner: "Susan", then "Susan's door"
        if stop > i:
            yield start, tokens[stop - 1].end
        i = max(stop, i + 1)


def find_phrase_end(tokens: Sequence[Token], start: int) -> int:
    """The end of the noun phrase at `start`; `start` itself if there is none."""
    word = tokens[start].lower
    stop = start + 1
    if is_name(tokens[start]):
        while stop < len(tokens) and (is_name(tokens[stop]) or ends_title(tokens, stop)):
            stop += 1
        return stop
    if word in DETERMINERS or (word == "'s" and start):
        # "that" before a name starts a clause.
        if word == "that" and stop < len(tokens) and is_name(tokens[stop]):
            return start
        while stop < min(len(tokens), start + 1 + MOST_NOUNS) and is_noun(tokens[stop], first=stop == start + 1):
            stop += 1
        return stop if stop > start + 1 else start
    return stop if is_noun(tokens[start], first=False) and is_plural(word) else start


def is_name(token: Token) -> bool:
    """A capitalized word that is no function word; at the start of a sentence some are no names."""
    return token.text[0].isupper() and token.lower not in FUNCTION_WORDS


def ends_title(tokens: Sequence[Token], i: int) -> bool:
    """The full stop of "Mr."."""
    return tokens[i].text == "." and tokens[i - 1].lower in TITLES


def is_noun(token: Token, first: bool) -> bool:
    """What may be a noun or, as the `first` word after a determiner, a participle before it ("the sleeping boy")."""
    word = token.lower
    if not word[0].isalpha() or word in FUNCTION_WORDS or (word.endswith("ly") and len(word) > 4):
        return False
    return first or not (word.endswith(("ed", "ing")) and len(word) > 4)


def is_plural(word: str) -> bool:
    """Ends like a plural; so do verbs ("follows")."""
    return word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3
