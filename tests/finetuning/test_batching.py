"""Batches: each example once an epoch, padded to the longest of the batch, a pure function of seed and step."""

import numpy as np
import torch
from support.errors import check_message
from support.toy_tasks import toy_tokenizer

from electra import console
from electra.finetuning.batching import (
    IGNORED,
    BatchLoader,
    EncodedExamples,
    collate,
    encode_with_progress,
    iterate_by_length,
)


def examples(number: int = 1000) -> EncodedExamples:
    lengths = np.random.default_rng(0).integers(3, 100, number)
    ids = [[1, *range(5, 3 + length), 2] for length in lengths]
    tokens = [list(range(len(each))) for each in ids]
    return EncodedExamples(ids, [len(each) for each in ids], {"label": np.arange(number), "tag": tokens})


def test_epoch_has_every_example_once() -> None:
    loader = BatchLoader(examples(), batch_size=32, pad_id=0, seed=3)
    assert loader.steps_per_epoch == 32
    epochs = [torch.cat([loader.batch(32 * e + i).targets["label"] for i in range(32)]).tolist() for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(1000))
    assert epochs[0] != epochs[1]


def test_batches_are_a_function_of_seed_and_step() -> None:
    def labels(seed: int, step: int) -> list[int]:
        return BatchLoader(examples(), batch_size=8, pad_id=0, seed=seed).batch(step).targets["label"].tolist()

    loader = BatchLoader(examples(), batch_size=8, pad_id=0, seed=1)
    ahead = loader.iterate(17)
    assert [next(ahead)[0].targets["label"].tolist() for _ in range(3)] == [labels(1, step) for step in (17, 18, 19)]
    assert labels(1, 17) != labels(2, 17)


def test_little_padding_and_no_order_by_length() -> None:
    loader = BatchLoader(examples(4096), batch_size=32, pad_id=0, seed=0)
    batches = [loader.batch(i).inputs for i in range(loader.steps_per_epoch)]
    real, padded = sum(int(b.lengths.sum()) for b in batches), sum(b.input_ids.numel() for b in batches)
    assert real / padded > 0.95  # one half, if examples were only shuffled
    widths = [b.input_ids.shape[1] for b in batches]
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.3


def test_batch_is_padded_to_its_longest() -> None:
    data = EncodedExamples(
        [[1, 7, 2], [1, 8, 2, 9, 2]], [3, 3], {"label": np.array([0.5, 1.5]), "tag": [[1, 2, 3], [4, 5, 6, 7, 8]]}
    )
    batch = collate(data, np.array([0, 1]), pad_id=0)
    assert batch.inputs.input_ids.tolist() == [[1, 7, 2, 0, 0], [1, 8, 2, 9, 2]]
    assert batch.inputs.token_type_ids.tolist() == [[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]]
    assert batch.inputs.attention_mask is not None
    assert batch.inputs.attention_mask.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert batch.targets["tag"].tolist() == [[1, 2, 3, IGNORED, IGNORED], [4, 5, 6, 7, 8]]
    assert collate(data, np.array([1]), pad_id=0).inputs.attention_mask is None


def test_iterate_by_length_has_every_example_once() -> None:
    seen = [row for rows, _ in iterate_by_length(examples(100), 32, 0) for row in rows]
    assert sorted(seen) == list(range(100))


def test_encode_with_progress(monkeypatch, caplog) -> None:
    caplog.set_level("INFO", "electra")
    monkeypatch.setattr(console, "LINE_EVERY", 0.0)
    tokenizer, texts = toy_tokenizer(), [f"the cat {'is ' * (i % 5)}" for i in range(10_000)]
    assert encode_with_progress(tokenizer.encode_lines, texts) == tokenizer.encode_lines(texts)
    assert len(caplog.messages) == 3
    for message, percent in zip(caplog.messages, (41, 82, 100), strict=True):
        check_message(message, "10,000", f"{percent}%")
    caplog.clear()
    encode_with_progress(tokenizer.encode_lines, texts[:1000])
    assert not caplog.messages, "no progress is logged for a batch of predictions"
