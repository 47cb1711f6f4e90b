"""The contrastive loss equals that of sentence-transformers; equal texts are no negatives; dropout makes two vectors of a text."""

import math

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from support.errors import raises
from support.toy_tasks import TINY, toy_tokenizer

from electra.errors import DataError
from electra.finetuning.batching import BatchLoader, EncodedExamples, LabeledBatch, collate
from electra.finetuning.embedding.data import TextGroups
from electra.finetuning.embedding.heads import EmbeddingHead
from electra.finetuning.embedding.task import (
    SentenceVectors,
    compute_accuracy,
    compute_mean_distance,
    compute_similarities,
)
from electra.finetuning.model import FinetunedModel
from electra.model.encoder import Encoder
from electra.model.initialization import initialize

HIDDEN = 6


def build_batch(ids: list[int], size: int) -> LabeledBatch:
    """Build a batch of texts of one token each."""
    rows = [[1, token, 2] for token in ids]
    examples = EncodedExamples(rows, [3] * len(rows), {}, group_size=size)
    return collate(examples, np.arange(len(examples)), 0)


def draw_hidden(rows: int) -> torch.Tensor:
    return torch.randn(rows, 3, HIDDEN, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_loss_is_that_of_sentence_transformers(size: int, pooling: str) -> None:
    batch, hidden = build_batch(list(range(5, 5 + 4 * size)), size), draw_hidden(4 * size)
    head = EmbeddingHead(HIDDEN, pooling, temperature=0.05)
    states = hidden[:, :1] if head.only_cls else hidden
    vectors = states.mean(1).view(4, size, HIDDEN)
    theirs = MultipleNegativesRankingLoss(None, scale=20.0)
    expected = theirs.compute_loss_from_embeddings([vectors[:, i] for i in range(size)], None)
    torch.testing.assert_close(head.loss(states, batch).mean(), expected)


def test_equal_texts_are_no_negatives() -> None:
    """The second example has the positive of the first one, the third its anchor as positive: the first has no negative."""
    batch, hidden = build_batch([5, 6, 7, 6, 8, 5], 2), draw_hidden(6)
    losses = EmbeddingHead(HIDDEN, "mean").loss(hidden, batch)
    assert losses[0] == 0
    assert (losses[1:] > 0).all()
    unit = torch.nn.functional.normalize(hidden.mean(1), dim=-1)
    logits = (unit[2] @ unit[[3, 5]].T / 0.05).double()  # the positive of the first example equals its own
    torch.testing.assert_close(losses[1].double(), -logits.log_softmax(0)[0], atol=1e-5, rtol=1e-5)


def test_examples_stay_whole_in_batches() -> None:
    lengths = [3, 9, 4, 4, 12, 3, 5, 5]
    rows = [[1, *[5 + i] * (length - 2), 2] for i, length in enumerate(lengths)]
    examples = EncodedExamples(rows, lengths, {}, group_size=2)
    assert len(examples) == 4
    assert examples.measure_lengths().tolist() == [9, 4, 12, 5]
    loader = BatchLoader(examples, batch_size=2, pad_id=0, seed=0)
    batches = [loader.batch(step) for step in range(loader.steps_per_epoch)]
    assert [len(batch) for batch in batches] == [2, 2]
    pairs = [pair for batch in batches for pair in batch.inputs.input_ids[:, 1].view(2, 2).tolist()]
    assert sorted(pairs) == [[5, 6], [7, 8], [9, 10], [11, 12]]


def test_single_texts_are_pairs_of_two_dropouts() -> None:
    groups = TextGroups([("the cat",), ("a dog",)], ["a:1", "a:2"])
    tokenizer = toy_tokenizer()
    task = SentenceVectors("embedding", {"train": groups, "held_out": groups}, tokenizer, 16, "mean", 0.05)
    train, held_out = task.encode("train"), task.encode("held_out")
    assert (len(train), train.group_size, len(held_out)) == (2, 2, 2)
    torch.manual_seed(0)
    model = FinetunedModel(Encoder(TINY), task.build_head(TINY))
    initialize(model.encoder, 0.15)
    batch = collate(train, np.arange(2), tokenizer.pad_id)
    first, second = model.train().head.predict(model.compute_hidden(batch), batch)["vectors"].unbind(1)
    assert ((first * second).sum(1) < 0.999).all()
    first, second = model.eval().head.predict(model.compute_hidden(batch), batch)["vectors"].unbind(1)
    torch.testing.assert_close(first, second)


def test_text_without_tokens_is_an_error_with_its_place() -> None:
    groups = TextGroups([("the cat", "a dog"), ("a cat", " \t")], ["a:1", "a:2"])
    task = SentenceVectors("embedding", {"train": groups}, toy_tokenizer(), 16, "mean", 0.05)
    with raises(DataError, "no-tokens", "a:2"):
        task.encode("train")


def test_scores() -> None:
    def unit(*degrees: float) -> list[list[float]]:
        return [[math.cos(math.radians(each)), math.sin(math.radians(each))] for each in degrees]

    pairs = np.array([unit(0, 60), unit(90, 95), unit(180, 175)], np.float32)
    np.testing.assert_allclose(compute_similarities(pairs), np.cos(np.radians([60, 5, 5])), atol=1e-6)
    # The positive at 95 degrees is not nearer to 0 than that at 60.
    assert compute_accuracy(pairs) == 1
    # Hard negatives: that of the first example is nearer, that of the second one is not.
    triples = np.array([unit(0, 60, 30), unit(90, 95, 200)], np.float32)
    assert compute_accuracy(triples) == 0.5
    vectors = np.array(unit(0, 90, 180), np.float32)
    assert compute_mean_distance(vectors) == pytest.approx((1 + 1 + 2) / 3, abs=1e-6)
