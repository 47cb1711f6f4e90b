"""A tokenizer for which a word is a token, and text made of its words."""

import random

import pytest

from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer

WORDS = [first + second + "n" for first in "bdfgklmprst" for second in "aeiou"]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer((*SPECIAL_TOKENS, *WORDS), Normalization())


@pytest.fixture(scope="session")
def documents() -> list[list[str]]:
    """300 documents of lines of words; no two lines of the corpus are the same."""
    rng = random.Random(7)
    return [[" ".join(rng.choices(WORDS, k=rng.randint(12, 40))) for _ in range(rng.randint(1, 8))] for _ in range(300)]
