"""WNLI by candidate antecedents: pronouns in toy and real pairs, substitutions, training, labels, errors."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.errors import raises
from support.places import DATA

from electra.errors import DataError, UsageError
from electra.finetuning.batching import IGNORED, collate
from electra.finetuning.classification.glue import load_glue_task
from electra.finetuning.model import FinetunedModel
from electra.finetuning.wnli.schemas import extract_nouns, find_candidates, find_noun_phrases, find_schema
from electra.finetuning.wnli.spec import WNLI_CANDIDATES
from electra.finetuning.wnli.task import Pair, WnliCandidates, WnliHead, load_pretrained_head, read_pairs
from electra.model.checkpoints import load_pretrained, save_pretrained
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.initialization import initialize
from electra.runtime.setup import Runtime
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer

WNLI = DATA / "glue/WNLI"
TROPHY = "The trophy could not fit in the suitcase because it was too big."
WORDS = (
    """the trophy could not fit in suitcase because it was too big small . ' s bob met ann and took his hat her she"""
)
TOKENIZER = Tokenizer((*SPECIAL_TOKENS, *WORDS.split()), Normalization())
PAD = TOKENIZER.pad_id
ENCODER = EncoderConfig(
    vocab_size=TOKENIZER.vocab_size, embedding_size=16, hidden_size=32, num_layers=2, num_heads=2, ffn_size=64,
    max_positions=64, dropout=0.0, attention_dropout=0.0, initializer_range=0.15,
)  # fmt: skip
RUNTIME = Runtime(torch.device("cpu"), torch.float32)
SMALL = TROPHY.replace("big", "small")
TRAIN = [
    Pair(TROPHY, "The trophy was too big.", 1, "t:1"),
    Pair(TROPHY, "The suitcase was too big.", 0, "t:2"),
    Pair(SMALL, "The suitcase was too small.", 1, "t:3"),
    Pair(SMALL, "The trophy was too small.", 0, "t:4"),
]


def task(**splits: list[Pair]) -> WnliCandidates:
    return WnliCandidates(splits, TOKENIZER, max_length=64)


@pytest.mark.parametrize(
    ("premise", "hypothesis", "pronoun", "antecedent", "possessive"),
    [
        (TROPHY, "The suitcase was too big.", TROPHY.index("it was"), "The suitcase", False),
        ("Ann met Sue. She invited her to come out.", "Sue invited her to come out.", 13, "Sue", False),
        ("Ann met Sue. She invited her to come out.", "She invited Ann to come out.", 25, "Ann", False),
        ("Bob met Tim and took his hat.", "Bob met Tim and took Tim's hat.", 21, "Tim", True),
        ("The boys met us; we took their hat.", "We took the boys' hat.", 25, "the boys", True),
        ("Now, I have to get it repaired.", "Now I have to get The roof repaired.", 19, "The roof", False),
        ("He saw Bob, and he ran.", "Bob ran.", 16, "Bob", False),
    ],
)
def test_pronoun_is_found(premise: str, hypothesis: str, pronoun: int, antecedent: str, possessive: bool) -> None:
    schema = find_schema(premise, hypothesis)
    assert schema is not None
    assert (schema.start, schema.antecedent, schema.possessive) == (pronoun, antecedent, possessive)


@pytest.mark.parametrize(
    ("premise", "hypothesis"), [(TROPHY, "Cats sleep all day."), ("Bob ran.", "Bob ran."), ("", "x"), ("it", "")]
)
def test_no_pronoun_without_a_schema(premise: str, hypothesis: str) -> None:
    assert find_schema(premise, hypothesis) is None


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        (TROPHY, ["The trophy", "the suitcase"]),
        (
            "Mr. John Smith met Susan's old dog in the big red barn.",
            ["Mr. John Smith", "Susan", "Susan's old dog", "the big red barn"],
        ),
        ("The sleeping boy chased foxes quickly.", ["The sleeping boy", "foxes"]),
        ("I know that Ann couldn't see her mother.", ["Ann", "her mother"]),
    ],
)
def test_noun_phrases(text: str, phrases: list[str]) -> None:
    assert [text[start:end] for start, end in find_noun_phrases(text)] == phrases


def test_rivals_precede_the_pronoun_and_exclude_the_antecedent() -> None:
    premise = "The cat saw the big mouse and Tom's dog, but it hid in a hole with its toy."
    schema = find_schema(premise, "The mouse hid in a hole.")
    assert schema is not None
    assert find_candidates(schema) == ["The cat", "Tom", "Tom's dog"]


def test_substitution_keeps_case_and_possessive() -> None:
    start = find_schema("Bob met Tim. He ran.", "Tim ran.")
    assert start is not None
    assert start.format_replacement("the boy") == "The boy"
    inner = find_schema(TROPHY, "The trophy was too big.")
    assert inner is not None
    assert inner.format_replacement("The trophy") == "the trophy"
    assert inner.format_replacement("Bob") == "Bob"
    owner = find_schema("Bob met Tim and took his hat.", "Bob met Tim and took Bob's hat.")
    assert owner is not None
    assert [owner.format_replacement(phrase) for phrase in ("Tim", "James", "The boys")] == [
        "Tim's",
        "James's",
        "the boys'",
    ]


def test_examples() -> None:
    examples = task(train=TRAIN, dev=TRAIN).encode("train")
    texts = [" ".join(TOKENIZER.tokens(ids)) for ids in examples.input_ids]
    sentence = "[CLS] the trophy could not fit in the suitcase because the {} was too {} . [SEP]"
    assert texts == [
        sentence.format(*pair)
        for pair in [
            ("trophy", "big"),
            ("suitcase", "big"),
            ("suitcase", "big"),
            ("suitcase", "small"),
            ("trophy", "small"),
            ("trophy", "small"),
        ]
    ]
    targets = examples.targets["replaced"]
    assert [[t for t in row if t != IGNORED] for row in targets] == [[0, 0], [1, 1], [1, 1], [0, 0], [1, 1], [1, 1]]
    assert all(row[10] != IGNORED and row[11] != IGNORED for row in targets)
    assert len(task(dev=TRAIN).encode("dev")) == 8, "the rivals of a false pair are scored, although not trained on"


@pytest.mark.slow
def test_tiny_discriminator_learns_the_antecedents() -> None:
    torch.manual_seed(0)
    wnli = task(train=TRAIN, dev=TRAIN, test=[Pair(p.premise, p.hypothesis, None, p.place) for p in TRAIN])
    encoder = Encoder(ENCODER)
    initialize(encoder, ENCODER.initializer_range)
    model = FinetunedModel(encoder, wnli.build_head(ENCODER))
    examples = wnli.encode("train")
    batch = collate(examples, np.arange(len(examples)), PAD)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        loss, _ = model(batch, model.counts(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    outputs = model.compute_outputs(wnli.encode("dev"), RUNTIME, 3, PAD)
    assert wnli.score("dev", outputs) == {"accuracy": 100.0, "pronoun_found": 100.0}
    predictions = wnli.format_predictions("test", model.compute_outputs(wnli.encode("test"), RUNTIME, 3, PAD))
    assert [row["label"] for row in predictions] == [1, 0, 1, 0]
    assert [row["antecedent"] for row in predictions] == ["The trophy", "The suitcase", "The suitcase", "The trophy"]


def test_predicted_labels_against_values_by_hand() -> None:
    no_rival = Pair("She was too big.", "Ann was too big.", 1, "t:5")
    no_pronoun = Pair(TROPHY, "Bob met Ann.", 0, "t:6")
    wnli = task(dev=[TRAIN[0], TRAIN[1], no_rival, no_pronoun])
    rows = wnli._get_substitutions("dev")
    assert [row.pair for row in rows] == [0, 0, 1, 1, 2]
    # Logits of "replaced" at the candidate's tokens; at all others, values that would change the result if they were read.
    outputs = []
    for row, logits in zip(rows, [(-1.0, 3.0), (2.0, 2.0), (0.5, 0.5), (1.0, -3.0), (-0.5,)], strict=True):
        predictions = np.full(len(row.input_ids) + 2, -50.0, np.float32)
        predictions[row.positions.start : row.positions.stop] = logits
        outputs.append({"replaced": predictions})
    predicted = wnli.format_predictions("dev", outputs)
    np.testing.assert_array_equal(wnli.get_logits("dev", outputs), [[0, 1.0], [0, -1.5], [0, 0.5], [0, -np.inf]])
    assert [(row["label"], row["score"], row["rival"]) for row in predicted] == [
        (1, -1.0, -2.0), (0, -0.5, 1.0), (1, 0.5, None), (0, None, None),
    ]  # fmt: skip
    assert wnli.score("dev", outputs) == {"accuracy": 100.0, "pronoun_found": 75.0}


def test_loss_is_the_pretraining_loss_on_the_tokens_of_the_candidate() -> None:
    torch.manual_seed(0)
    wnli = task(train=TRAIN)
    head = wnli.build_head(ENCODER)
    assert isinstance(head, WnliHead)
    batch = collate(wnli.encode("train"), np.arange(2), PAD)
    hidden = torch.randn(*batch.inputs.input_ids.shape, ENCODER.hidden_size)
    logits = head(hidden).detach()
    # -log(1 - p) where the candidate is correct, -log p where it is not, with p the probability of "replaced".
    expected = torch.stack([-(1 - logits[0, 10:12].sigmoid()).log().mean(), -logits[1, 10:12].sigmoid().log().mean()])
    torch.testing.assert_close(head.loss(hidden, batch).detach(), expected)


def test_head_starts_from_the_weights_of_the_discriminator(tmp_path: Path) -> None:
    model = FinetunedModel(Encoder(ENCODER), WnliHead(ENCODER.hidden_size, None))
    save_pretrained(tmp_path, model.state_dict(), ENCODER, "replaced-token", PAD)
    weights = load_pretrained_head(load_pretrained(tmp_path))
    head = WnliCandidates({}, TOKENIZER, weights, max_length=64).build_head(ENCODER)
    for name, weight in model.head.state_dict().items():
        assert torch.equal(head.state_dict()[name], weight)


def test_pairs_are_the_rows_of_glue(tmp_path: Path) -> None:
    (tmp_path / "WNLI").mkdir()
    (tmp_path / "WNLI" / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n1\tc\td\t0\n")
    (tmp_path / "WNLI" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\te\tf\n")
    rows = load_glue_task("wnli", str(tmp_path), TOKENIZER)
    assert read_pairs(rows.read("dev"), "dev") == [
        Pair("a", "b", 1, "wnli: row 1 of dev"), Pair("c", "d", 0, "wnli: row 2 of dev"),
    ]  # fmt: skip
    assert read_pairs(rows.read("test"), "test") == [Pair("e", "f", None, "wnli: row 1 of test")]


def test_errors() -> None:
    with raises(DataError, "missing-label", "t:9", "dev"):
        task(dev=[Pair(TROPHY, "The trophy was too big.", None, "t:9")])
    with raises(DataError, "missing-split", "wnli-candidates", "dev", "train"):
        task(train=TRAIN).encode("dev")
    with raises(DataError, "too-long", "t:1", 17, "max_length", 16):
        WnliCandidates({"train": TRAIN}, TOKENIZER, max_length=16)
    with raises(UsageError, "longer-than-model", "max_length", 128, 64):
        WnliCandidates({}, TOKENIZER).build_head(ENCODER)


def test_baselines_are_those_of_its_pairs() -> None:
    """Three of four hypotheses are entailed in train, two in dev, where the suitcase, as in train, never is."""
    train = [TRAIN[0], TRAIN[1], Pair(SMALL, "The trophy was too small.", 1, "t:5"), TRAIN[0]]
    found = WNLI_CANDIDATES.score_baselines(task(train=train, dev=TRAIN[:2]), "dev")
    assert found == {"majority class": {"accuracy": 50.0}, "TF-IDF, logistic regression": {"accuracy": 100.0}}


@pytest.mark.skipif(not WNLI.is_dir(), reason=f"WNLI is not at {WNLI}")
def test_real_dev_set() -> None:
    """The pronoun is found in at least 95% of the 71 pairs, and the antecedent by rule in at least 85% of these."""
    rows = load_glue_task("wnli", str(WNLI.parent), TOKENIZER)
    pairs = read_pairs(rows.read("dev"), "dev")
    schemas = [find_schema(pair.premise, pair.hypothesis) for pair in pairs]
    found = [schema for schema in schemas if schema is not None]
    assert len(pairs) == 71
    assert len(found) >= 0.95 * 71
    among_candidates = [
        extract_nouns(schema.antecedent)
        in [extract_nouns(schema.premise[start:end]) for start, end in find_noun_phrases(schema.premise)]
        for schema in found
    ]
    assert sum(among_candidates) >= 0.85 * len(found)
    assert read_pairs(rows.read("test"), "test")[0].label is None
