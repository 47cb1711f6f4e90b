"""Contexts, questions and a tokenizer that need no files."""

import json
import random
import string
from pathlib import Path

import numpy as np

from electra.finetuning.qa.data import Answer, Question
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer

WORDS = ["who", "met", "the", "in", "anna", "bert", "carl", "dora", "emil", "fritz", "york", "paris", "rome", "oslo"]
TOKENIZER = Tokenizer(
    (
        *SPECIAL_TOKENS,
        *WORDS,
        *string.ascii_lowercase,
        *(f"##{letter}" for letter in string.ascii_lowercase + "ß"),
        *".,?0123456789",
    ),
    Normalization(),
)
"""Words of the list are one token, all others a token for every letter."""

NAMES = ["Anna", "Bert", "Carl", "Dora", "Emil", "Fritz"]
PLACES = ["New York", "Paris", "Rome", "Oslo"]


def ask(id: str, question: str, context: str, *answers: str) -> Question:
    """A question whose answers stand at their first place in the context; impossible without any."""
    return Question(
        id, question, context, tuple(Answer(text, context.index(text)) for text in answers), impossible=not answers
    )


def meetings(number: int, seed: int = 0, impossible_every: int = 0, sentences: int = 3) -> list[Question]:
    """Who met whom and where: the answer is the place where the one who is asked for was met."""
    draw = random.Random(seed)
    questions = []
    for i in range(number):
        names, places = draw.sample(NAMES, sentences + 1), draw.choices(PLACES, k=sentences)
        context = " ".join(f"In {place} the {name} met." for place, name in zip(places, names, strict=False))
        if impossible_every and i % impossible_every == 0:
            questions.append(ask(str(i), f"Who met {names[-1]}?", context))
        else:
            chosen = draw.randrange(sentences)
            start = context.index(f"{places[chosen]} the {names[chosen]}")
            answer = Answer(places[chosen], start)
            questions.append(Question(str(i), f"Who met {names[chosen]}?", context, (answer,), False))
    return questions


def nonsense(number: int, seed: int = 0) -> list[Question]:
    """Long contexts of random words with accents, of every length, and an answer of one to four words anywhere."""
    draw = random.Random(seed)
    words = ["Émil", "naïve", "Fritz", "Rome,", "x", "Übermut", "2024", "met", "Große", "cafe\u0301"]
    questions = []
    for i in range(number):
        text = [draw.choice(words) for _ in range(draw.randint(4, 60))]
        first = draw.randrange(len(text) - 3)
        answer = " ".join(text[first : first + draw.randint(1, 4)])
        start = len(" ".join([*text[:first], ""]))
        asked = " ".join(draw.choices(words, k=draw.randint(1, 4)))
        questions.append(Question(str(i), asked, " ".join(text), (Answer(answer, start),), False))
    return questions


def write_squad(path: Path, questions: list[Question], version: str = "v2.0") -> Path:
    """A paragraph for each question."""
    paragraphs = []
    for each in questions:
        qa = {"id": each.id, "question": each.question}
        qa["answers"] = [{"text": answer.text, "answer_start": answer.start} for answer in each.answers]
        if version != "1.1":
            qa["is_impossible"] = each.impossible
        paragraphs.append({"context": each.context, "qas": [qa]})
    path.write_text(json.dumps({"version": version, "data": [{"title": "", "paragraphs": paragraphs}]}))
    return path


def random_beam(length: int, beam: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """What a joint head might say of a window."""
    return {
        "starts": rng.integers(0, length, beam).astype(np.float32),
        "start_log_probs": rng.normal(size=beam).astype(np.float32),
        "ends": rng.integers(0, length, (beam, beam)).astype(np.float32),
        "end_log_probs": rng.normal(size=(beam, beam)).astype(np.float32),
        "impossible_logit": rng.normal(size=()).astype(np.float32),
    }
