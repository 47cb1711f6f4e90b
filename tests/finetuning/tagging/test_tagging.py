"""Tagging: windows that contain every word, scores compared with seqeval, training of a tiny encoder, bad splits."""

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from support.errors import raises
from support.places import DATA

from electra.errors import DataError, UsageError
from electra.finetuning.batching import IGNORED, collate
from electra.finetuning.model import FinetunedModel
from electra.finetuning.tagging.data import Sentence, find_splits, read_conll, read_sentences
from electra.finetuning.tagging.heads import TaggingHead
from electra.finetuning.tagging.task import Tagging
from electra.finetuning.tagging.windows import assign_scored_words, build_windows, compute_word_ranges
from electra.finetuning.task import Outputs
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.initialization import initialize
from electra.runtime.setup import Runtime
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer

CONLL_2000 = DATA / "chunk"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = Tokenizer((*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "."), Normalization())
PAD, CLS, SEP, _ = TOKENIZER.special_ids
UNK = TOKENIZER.unk_id
ENCODER = EncoderConfig(
    vocab_size=TOKENIZER.vocab_size, embedding_size=16, hidden_size=32, num_layers=2, num_heads=2, ffn_size=64,
    max_positions=64, dropout=0.0, attention_dropout=0.0, initializer_range=0.15,
)  # fmt: skip
RUNTIME = Runtime(torch.device("cpu"), torch.float32)

# Persons are bob and cab, places are words that begin with x; adjacent ones of a type are one span.
TOY = [
    ("bob saw cab", "B-PER O B-PER"), ("bob cab saw xu", "B-PER I-PER O B-LOC"), ("go to xu xi", "O O B-LOC I-LOC"),
    ("cab cab ran", "B-PER I-PER O"), ("xo is far", "B-LOC O O"), ("he saw bob in xa", "O O B-PER O B-LOC"),
    ("xu xi xo", "B-LOC I-LOC I-LOC"), ("run .", "O O"), ("cab met bob .", "B-PER O B-PER O"), ("in xa cab ran", "O B-LOC B-PER O"),
]  # fmt: skip


def sentences(pairs: list[tuple[str, str]], file: str = "a.txt") -> list[Sentence]:
    return [Sentence(tuple(w.split()), tuple(t.split()), f"{file}:{i}") for i, (w, t) in enumerate(pairs, 1)]


SPANS = {"chunk": True, "ner": True, "pos": False, "tagging": None}


def build(name: str, splits: dict[str, list[Sentence]], **more: Any) -> Tagging:
    """Build the task as `registry.TASKS` does."""
    return Tagging(name, splits, TOKENIZER, spans=SPANS[name], **more)


def toy(name: str = "ner", **config: int) -> Tagging:
    return build(name, {"train": sentences(TOY), "dev": sentences(TOY)}, **config)


def outputs_of(task: Tagging, split: str, tags: list[list[str]]) -> Outputs:
    """Return logits that predict `tags`, and at tokens that are not scored, the last label."""
    outputs = []
    for window in build_windows(task._splits[split], TOKENIZER, task.max_length):
        logits = np.zeros((len(window.input_ids) + 3, len(task.labels)), np.float32)
        logits[:, -1] = 1.0
        for word, position in window.scored_words.items():
            logits[position] = np.array(task.labels) == tags[window.sentence][word]
        outputs.append({"logits": logits})
    return outputs


def test_only_the_first_token_of_a_word_is_scored() -> None:
    task = toy()
    examples = task.encode("train")
    assert TOKENIZER.tokens(examples.input_ids[0]) == [
        "[CLS]",
        "b",
        "##o",
        "##b",
        "s",
        "##a",
        "##w",
        "c",
        "##a",
        "##b",
        "[SEP]",
    ]
    person, outside = task.labels.index("B-PER"), task.labels.index("O")
    expected = [IGNORED, person, IGNORED, IGNORED, outside, IGNORED, IGNORED, person, IGNORED, IGNORED, IGNORED]
    assert list(examples.targets["tags"][0]) == expected
    batch = collate(examples, np.array([0, 7]), PAD)
    assert not batch.inputs.token_type_ids.any()
    assert batch.targets["tags"].shape == batch.inputs.input_ids.shape


def test_word_without_tokens_is_unknown_and_keeps_its_tag() -> None:
    split = [Sentence(("a", "\x07", "[MASK]", "\u0301"), ("O", "B-X", "O", "O"), "a.txt:1")]
    task = build("ner", {"train": split})
    examples = task.encode("train")
    assert TOKENIZER.tokens(examples.input_ids[0])[:3] == ["[CLS]", "a", "[UNK]"]
    assert TOKENIZER.mask_id not in examples.input_ids[0]
    assert sum(target != IGNORED for target in examples.targets["tags"][0]) == 4


def most_context(lengths: list[int], spans: list[range]) -> list[int]:
    """Return for each word the number of tokens on its shorter side, in the window where this is largest."""
    return [
        max(min(sum(lengths[s.start : word]), sum(lengths[word + 1 : s.stop])) for s in spans if word in s)
        for word in range(len(lengths))
    ]


@pytest.mark.parametrize("capacity", [2, 3, 7, 14, 254])
def test_every_word_is_scored_once_where_it_has_most_context(capacity: int) -> None:
    draw = np.random.default_rng(capacity)
    for words in (1, 2, 5, 40, 300):
        lengths = draw.integers(1, max(2, capacity - capacity // 2 + 1), words).tolist()
        lengths = [min(length, capacity - capacity // 2) for length in lengths]
        spans = compute_word_ranges(lengths, capacity)
        assert spans[0].start == 0
        assert spans[-1].stop == words
        assert all(sum(lengths[i] for i in span) <= capacity for span in spans)
        assert all(a.start < b.start <= a.stop < b.stop for a, b in pairwise(spans))
        scored = assign_scored_words(lengths, spans)
        assert sorted(word for window in scored for word in window) == list(range(words))
        best = most_context(lengths, spans)
        for span, window in zip(spans, scored, strict=True):
            for word in window:
                assert min(sum(lengths[span.start : word]), sum(lengths[word + 1 : span.stop])) == best[word]


def test_long_sentence_in_windows() -> None:
    words = tuple("abcdefghijkl")
    windows = build_windows([Sentence(words, None, "a.txt:1")], TOKENIZER, 10)
    assert [" ".join(TOKENIZER.tokens(window.input_ids)) for window in windows] == [
        "[CLS] a b c d e f g h [SEP]",
        "[CLS] e f g h i j k l [SEP]",
    ]
    assert [list(window.scored_words) for window in windows] == [list(range(6)), list(range(6, 12))]
    assert [window.input_ids[position] for window in windows for position in window.scored_words.values()] == [
        TOKENIZER.vocabulary.index(word) for word in words
    ]


def test_word_longer_than_a_window_is_truncated_and_scored() -> None:
    windows = build_windows([Sentence(("a", "b" * 40, "." * 300, "c"), None, "a.txt:1")], TOKENIZER, 10)
    assert all(len(window.input_ids) <= 10 for window in windows)
    assert sorted(word for window in windows for word in window.scored_words) == [0, 1, 2, 3]


def test_every_tag_is_recovered_from_windows() -> None:
    draw = np.random.default_rng(0)
    tags = [["O", "B-X", "B-Y"][i] for i in draw.integers(0, 3, 500)]
    words = ["".join(draw.choice(list(LETTERS), draw.integers(1, 9))) for _ in tags]
    split = [Sentence(tuple(words), tuple(tags), "a.txt:1"), *sentences([("a b", "B-X I-X")])]
    task = build("ner", {"train": split}, max_length=32)
    examples = task.encode("train")
    assert len(examples) > 50
    assert max(len(ids) for ids in examples.input_ids) <= 32
    gold = [list(sentence.tags or ()) for sentence in split]
    assert task.decode_tags("train", outputs_of(task, "train", gold)) == gold
    assert sum(t != IGNORED for row in examples.targets["tags"] for t in row) == 502


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_those_of_seqeval(seed: int) -> None:
    draw = np.random.default_rng(seed)
    gold = [tags.split() for _, tags in TOY]
    task = toy()
    predicted = [[str(draw.choice(task.labels)) if draw.random() < 0.3 else tag for tag in tags] for tags in gold]
    scores = task.score("dev", outputs_of(task, "dev", predicted))
    # seqeval scores the predicted tags as they are; the task converts them to valid BIO2 first.
    assert scores["f1"] == pytest.approx(100 * f1_score(gold, predicted))
    assert scores["precision"] == pytest.approx(100 * precision_score(gold, predicted))
    assert scores["recall"] == pytest.approx(100 * recall_score(gold, predicted))
    valid = [prediction["tags"] for prediction in task.format_predictions("dev", outputs_of(task, "dev", predicted))]
    assert scores["accuracy"] == pytest.approx(100 * accuracy_score(gold, valid))


def test_scores_against_values_by_hand() -> None:
    """As in conlleval, a predicted span is correct if its words and its type are."""
    task = build(
        "ner",
        {"dev": sentences([("a b c d e f", "B-X I-X O B-Y B-X B-Y")])},
        labels=["O", "B-X", "I-X", "B-Y"],
    )
    predicted = [["B-X", "I-X", "O", "B-Y", "I-X", "O"]]
    assert task.score("dev", outputs_of(task, "dev", predicted)) == pytest.approx(
        {"accuracy": 100 * 5 / 6, "precision": 100.0, "recall": 75.0, "f1": 100 * 6 / 7}
    )
    predicted = [["B-X", "O", "O", "B-Y", "B-X", "O"]]
    assert task.score("dev", outputs_of(task, "dev", predicted)) == pytest.approx(
        {"accuracy": 100 * 4 / 6, "precision": 100 * 2 / 3, "recall": 50.0, "f1": 100 * 4 / 7}
    )
    nothing = task.score("dev", outputs_of(task, "dev", [["O"] * 6]))
    assert (nothing["precision"], nothing["recall"], nothing["f1"]) == (0.0, 0.0, 0.0)


def test_parts_of_speech_have_an_accuracy_only() -> None:
    split = sentences([("a b c", "DT NN B-X"), ("d", "NN")])
    task = build("pos", {"train": split})
    assert (task.scheme, task.main_metric, task.labels) == ("plain", "accuracy", ("B-X", "DT", "NN"))
    assert task.score("train", outputs_of(task, "train", [["DT", "NN", "NN"], ["NN"]])) == {"accuracy": 75.0}


@pytest.mark.parametrize(
    ("tags", "scheme", "metric"),
    [("O I-X B-X", "IOB1", "f1"), ("O S-X O", "IOBES", "f1"), ("DT NN VB", "plain", "accuracy")],
)
def test_scheme_of_own_tags_is_inferred(tags: str, scheme: str, metric: str) -> None:
    task = build("tagging", {"train": sentences([("a b c", tags)])})
    assert (task.scheme, task.main_metric) == (scheme, metric)


def test_iobes_is_converted_to_bio2() -> None:
    task = build("chunk", {"train": sentences([("a b c", "B-X E-X S-Y")])})
    assert task.labels == ("O", "B-X", "I-X", "B-Y", "I-Y")
    assert task.get_settings() == {"task": "chunk", "labels": list(task.labels), "scheme": "IOBES", "max_length": 256}
    predicted = outputs_of(task, "train", [["B-X", "I-X", "I-Y"]])
    assert task.format_predictions("train", predicted) == [
        {"id": "0", "words": ["a", "b", "c"], "tags": ["B-X", "I-X", "B-Y"]}
    ]
    assert task.score("train", predicted)["f1"] == 100.0


def test_unlabeled_text_is_tagged_by_saved_settings() -> None:
    trained = json.loads(json.dumps(toy().get_settings()))
    task = build("tagging", {"test": [Sentence(("a", "b"), None, "a.txt:1", "x7")]}, labels=trained["labels"])
    assert task.encode("test").targets == {}
    predicted = outputs_of(task, "test", [["I-PER", "I-PER"]])
    assert task.format_predictions("test", predicted) == [{"id": "x7", "words": ["a", "b"], "tags": ["B-PER", "I-PER"]}]
    with raises(DataError, "no-labels", "a.txt:1", "test"):
        task.score("test", predicted)


def test_initial_head_and_its_mean_loss_over_words() -> None:
    torch.manual_seed(0)
    task = toy(max_length=64)
    head = task.build_head(ENCODER)
    assert isinstance(head, TaggingHead)
    limit = (6 / (ENCODER.hidden_size + len(task.labels))) ** 0.5
    assert 0.9 * limit < float(head.output.weight.detach().abs().max()) <= limit
    assert not head.output.bias.any()
    batch = collate(task.encode("train"), np.arange(3), PAD)
    hidden = torch.randn(*batch.inputs.input_ids.shape, ENCODER.hidden_size)
    logits = hidden @ head.output.weight.T
    for row, loss in enumerate(head.loss(hidden, batch).detach().tolist()):
        targets = batch.targets["tags"][row]
        first = targets != IGNORED
        expected = -logits.detach()[row, first].log_softmax(-1)[torch.arange(int(first.sum())), targets[first]].mean()
        assert loss == pytest.approx(float(expected), rel=1e-5)
    nothing = collate(task.encode("train"), np.arange(3), PAD)
    nothing.targets["tags"][:] = IGNORED
    assert head.loss(hidden, nothing).detach().tolist() == [0.0, 0.0, 0.0]


@pytest.mark.slow
def test_tiny_encoder_overfits_ten_sentences() -> None:
    torch.manual_seed(0)
    task = toy(max_length=10)
    assert len(task.encode("train")) > len(TOY), "some sentences have several windows"
    encoder = Encoder(ENCODER)
    initialize(encoder, ENCODER.initializer_range)
    model = FinetunedModel(encoder, task.build_head(ENCODER))
    examples = task.encode("train")
    batch = collate(examples, np.arange(len(examples)), PAD)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(80):
        loss, _ = model(batch, model.counts(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scores = task.score("dev", model.compute_outputs(task.encode("dev"), RUNTIME, 4, PAD))
    assert scores["f1"] == 100.0
    assert scores["accuracy"] == 100.0


@pytest.mark.parametrize(
    ("name", "splits", "code", "values"),
    [
        ("ner", {"train": ["B-X O"], "dev": ["B-Y O"]}, "unknown-label", ["dev.txt:1", "'a'", "B-Y", "O, B-X, I-X"]),
        ("pos", {"train": ["NN VB"], "dev": ["NN NN", "JJ NN"]}, "unknown-label", ["dev.txt:2", "'a'", "JJ", "NN, VB"]),
        ("ner", {"train": ["B-X O"], "dev": ["O I-X"]}, "inconsistent-tags", ["dev.txt:1", 2, "'b'", "I-X", "BIO"]),
        ("chunk", {"train": ["NN VB"]}, "inconsistent-tags", ["train.txt:1", 1, "'a'", "'NN'"]),
        ("ner", {"train": [None]}, "no-labels", ["train.txt:1"]),
        ("ner", {"train": ["O O"], "dev": ["O O", None]}, "no-labels", ["dev.txt:2"]),
        ("ner", {"test": ["B-X O"]}, "unknown-label", ["test.txt:1", "'a'", "B-X", "none"]),
    ],
)  # fmt: skip
def test_bad_splits(name: str, splits: dict[str, list[str | None]], code: str, values: list) -> None:
    made = {
        split: [
            Sentence(("a", "b"), tags and tuple(tags.split()), f"{split}.txt:{i}") for i, tags in enumerate(rows, 1)
        ]
        for split, rows in splits.items()
    }
    with raises(DataError, code, *values):
        build(name, made)


def test_errors() -> None:
    with raises(UsageError, "no-labels", "ner"):
        build("ner", {}).build_head(ENCODER)
    with raises(UsageError, "longer-than-model", "max_length", 256, 64):
        toy().build_head(ENCODER)
    with raises(UsageError, "out-of-range", "--max-length", 3, 4):
        toy(max_length=3)
    with raises(DataError, "missing-split", "ner", "test", "train, dev"):
        toy().encode("test")


@pytest.mark.slow
@pytest.mark.skipif(not CONLL_2000.is_dir(), reason=f"CoNLL-2000 is not at {CONLL_2000}")
def test_conll_2000() -> None:
    """Score the baseline of the data's README: the chunk tag that is most frequent for each part of speech."""
    paths = find_splits(CONLL_2000)
    rows = [line.split() for line in paths["train"].read_text().splitlines() if line]
    counts = Counter((pos, tag) for _, pos, tag in rows)
    best = {pos: tag for (pos, tag), _ in sorted(counts.items(), key=lambda item: item[1])}
    predicted = [[best[pos] for pos in sentence.tags or ()] for sentence in read_conll(paths["test"], tag_column=1)]
    types = sorted({tag[2:] for _, tag in counts if tag != "O"})
    labels = ["O", *(f"{letter}-{kind}" for kind in types for letter in "BI")]
    task = build("chunk", {"test": read_sentences(paths["test"])}, max_length=64, labels=labels)
    assert task.scheme == "BIO2"
    scores = task.score("test", outputs_of(task, "test", predicted))
    rounded = {name: round(value, 2) for name, value in scores.items() if name != "accuracy"}
    assert rounded == {"precision": 72.58, "recall": 82.14, "f1": 77.07}
