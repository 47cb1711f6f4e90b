"""Masking strategies: rare tokens, and tokens with a high expected loss (Appendix H); whole words and spans of words."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from support.tiny_models import MASK, SPECIAL, batch, model, redraw
from torch import Tensor

from electra.data.batch import Batch
from electra.pretraining.objectives.corruptions.masking import (
    MaskingConfig,
    count_masked,
    mark_maskable_tokens,
    sample_positions,
)
from electra.pretraining.objectives.corruptions.units import (
    mark_span_starts,
    mark_word_starts,
    sample_span_lengths,
    sample_units,
)
from electra.seeding import Stream, derive_row_keys


def test_weighted_positions_follow_their_weights() -> None:
    rows = 20_000
    weights = torch.tensor([1.0, 2.0, 4.0, 8.0, 0.5, 0.5])
    candidates = torch.tensor([True, True, True, True, False, False]).expand(rows, 6)
    keys = torch.from_numpy(derive_row_keys(np.arange(rows), Stream.ROWS, 0))
    one = sample_positions(
        candidates, torch.ones(rows, dtype=torch.long), MaskingConfig(), keys, weights.expand(rows, 6)
    )
    counts = torch.bincount(one.positions[one.used], minlength=6)
    assert counts[4:].sum() == 0
    assert chisquare(counts[:4].numpy(), (weights[:4].double() / 15 * rows).numpy()).pvalue > 1e-3


@pytest.mark.slow
def test_rare_tokens_are_masked_more_often() -> None:
    inputs = batch(lengths=(60,) * 200)
    shares = {}
    for strategy in ("uniform", "rare"):
        electra = model(masking=MaskingConfig(strategy=strategy, rarity=1.0)).train()
        done = electra.run(inputs)
        tokens = inputs.input_ids.gather(1, done.masked.positions)[done.masked.used]
        shares[strategy] = float((tokens < 12).double().mean())  # ids 5 to 11 are the rarest
    assert shares["rare"] > 2 * shares["uniform"]
    with torch.no_grad():
        held_out = model(masking=MaskingConfig(strategy="rare", rarity=1.0)).eval().run(inputs).masked
    tokens = inputs.input_ids.gather(1, held_out.positions)[held_out.used]
    assert float((tokens < 12).double().mean()) < 1.5 * shares["uniform"], "held-out positions are uniform"


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm", "electra"])
def test_hard_token_masking_learns_from_the_losses(objective: str) -> None:
    electra, inputs = model(objective, masking=MaskingConfig(strategy="hard")).train(), batch(lengths=(60,) * 8)
    word = electra.target.network.encoder.embeddings.word
    optimizer = torch.optim.Adam(electra.strategy.parameters(), lr=1e-2)
    for step in range(150):  # ids from 40 on have a loss of 6, the others 0
        weights = electra.strategy(inputs.input_ids, word)
        keys = redraw(inputs, step).row_keys
        chosen = sample_positions(inputs.input_ids > MASK, inputs.lengths // 7, MaskingConfig(), keys, weights.detach())
        nll = 6.0 * (inputs.input_ids.gather(1, chosen.positions) >= 40)
        loss = electra.strategy.loss(weights, chosen, nll).sum()
        word.zero_grad()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert word.weight.grad is None, "the strategy does not train the embeddings"
    hard = (inputs.input_ids >= 40).double()
    expected = electra.strategy(inputs.input_ids, word).detach()
    assert float((expected * hard).sum() / hard.sum()) > 3
    assert float((expected * (1 - hard)).sum() / (1 - hard).sum()) < 2
    done = electra.run(inputs)
    assert float(hard.gather(1, done.masked.positions)[done.masked.used].mean()) > float(hard.mean()) + 0.2
    total, sums = electra(inputs, electra.counts(inputs))
    total.backward()
    assert all(p.grad is not None for p in electra.strategy.parameters())
    assert electra.metrics(sums)["loss"] == pytest.approx(float(total.detach()), rel=1e-5)


CONTINUATIONS = tuple(range(40, 64))
"""Two in five of the tokens of `batch` continue a word."""


def build_keys(rows: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(derive_row_keys(np.arange(rows), Stream.ROWS, seed))


def list_words(inputs: Batch, row: int) -> list[list[int]]:
    """The positions of the words of a row, one after the other in Python."""
    words: list[list[int]] = []
    ids, before_is_special = inputs.input_ids[row].tolist(), True
    for position in range(int(inputs.lengths[row])):
        if ids[position] not in SPECIAL:
            if before_is_special or ids[position] not in CONTINUATIONS:
                words.append([])
            words[-1].append(position)
        before_is_special = ids[position] in SPECIAL
    return words


def mask(
    inputs: Batch, strategy: str, fraction: float = 0.2, continuations: tuple[int, ...] = CONTINUATIONS
) -> list[set]:
    """Return the masked positions of each row in training; their number is checked."""
    masking = MaskingConfig(fraction, strategy=strategy)
    masked = model(masking=masking, continuation_ids=continuations).train().run(inputs).masked
    assert torch.equal(masked.used.sum(1), count_masked(inputs.lengths, fraction))
    rows = [set(positions[used].tolist()) for positions, used in zip(*masked, strict=True)]
    assert [len(row) for row in rows] == masked.used.sum(1).tolist(), "no position is masked twice"
    return rows


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_words_are_masked_as_a_whole_except_the_last(fraction: float) -> None:
    inputs = batch(lengths=(60,) * 100 + (23, 7, 5))
    cut = 0
    for row, masked in enumerate(mask(inputs, "word", fraction)):
        words = list_words(inputs, row)
        assert masked <= set().union(*words), "no special token is masked"
        parts = [sorted(masked & set(word)) for word in words if 0 < len(masked & set(word)) < len(word)]
        assert len(parts) <= 1
        assert all(part == list(range(part[0], part[-1] + 1)) for part in parts), "adjacent tokens of it"
        cut += len(parts)
    assert cut > 10, "the case occurs"


def test_words_of_one_token_are_masked_like_single_tokens() -> None:
    inputs = batch(lengths=(60,) * 50 + (23, 7))
    for fraction in (0.15, 0.5):
        assert mask(inputs, "word", fraction, continuations=()) == mask(inputs, "uniform", fraction)
    assert mask(inputs, "word") != mask(inputs, "uniform")


@pytest.mark.parametrize("strategy", ["word", "span"])
def test_masked_units_depend_neither_on_padding_nor_on_other_rows(strategy: str) -> None:
    inputs = batch(lengths=(60, 40, 23, 7))
    alone = batch(lengths=(40, 40, 23, 7))
    together = mask(inputs, strategy)[2:]
    short = Batch(*(each[2:, :23] for each in (inputs.input_ids, inputs.token_type_ids)), inputs.lengths[2:], None)
    keys = inputs.row_keys[2:]
    short = Batch(short.input_ids, short.token_type_ids, short.lengths, inputs.attention_mask[2:, :23], keys)
    assert mask(short, strategy) == together
    assert mask(redraw(alone, 5), strategy) != mask(alone, strategy)


@pytest.mark.parametrize("strategy", ["word", "span"])
def test_held_out_positions_are_uniform(strategy: str) -> None:
    inputs = batch(lengths=(60,) * 20)
    with torch.no_grad():
        ours, plain = (
            model(masking=MaskingConfig(strategy=each), continuation_ids=CONTINUATIONS).eval().run(inputs).masked
            for each in (strategy, "uniform")
        )
    assert torch.equal(ours.positions, plain.positions)


def test_example_that_was_cut_inside_a_word_begins_with_a_word() -> None:
    """Positions: [CLS] ##a b ##c [SEP] ##d ##e f [SEP] padding."""
    candidates = torch.tensor([[False, True, True, True, False, True, True, True, False, False]])
    continues = torch.tensor([[False, True, False, True, False, True, True, False, False, False]])
    starts = mark_word_starts(continues, candidates)
    assert starts.nonzero()[:, 1].tolist() == [1, 2, 5, 7]


def test_every_token_of_a_unit_can_be_masked_when_only_a_part_fits() -> None:
    rows = 8000
    candidates = torch.tensor([False, True, True, True, True, False]).expand(rows, 6)
    starts = torch.tensor([False, True, False, False, False, False]).expand(rows, 6)
    for number, places in ((1, 4), (2, 3), (3, 2)):
        found = sample_units(starts, candidates, torch.full((rows,), number), 3, build_keys(rows))
        first = found.positions[:, 0]
        assert torch.equal(found.used.sum(1), torch.full((rows,), number))
        assert torch.equal(found.positions[:, :number], first[:, None] + torch.arange(number)), "adjacent tokens"
        assert chisquare(torch.bincount(first - 1, minlength=places).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("strategy", ["word", "span"])
def test_every_token_has_a_chance(strategy: str) -> None:
    row = batch(lengths=(40,))
    rows = 1000
    ids, types, lengths = (
        each.expand(rows, *each.shape[1:]) for each in (row.input_ids, row.token_type_ids, row.lengths)
    )
    masked = mask(Batch(ids, types, lengths, None, build_keys(rows)), strategy, 0.15)
    counts = np.bincount([position for each in masked for position in each], minlength=40)
    maskable = mark_maskable_tokens(row.input_ids, SPECIAL)[0].numpy()
    assert (counts[~maskable] == 0).all()
    # Of a unit that is cut, tokens in its middle are masked more often than those at its ends.
    assert counts[maskable].min() > 0.3 * counts[maskable].mean()
    assert counts[maskable].max() < 1.7 * counts[maskable].mean()


def test_units_of_a_row_with_too_few_candidates() -> None:
    candidates = torch.tensor([[False, True, True, False, False], [False] * 5])
    starts = torch.tensor([[False, True, False, False, False], [False] * 5])
    found = sample_units(starts, candidates, torch.tensor([3, 1]), 3, build_keys(2))
    assert found.used.tolist() == [[True, True, False], [False] * 3]
    assert found.positions[0, :2].tolist() == [1, 2]
    assert int(found.positions.min()) >= 0
    assert int(found.positions.max()) < 5


def test_span_lengths_follow_the_geometric_distribution() -> None:
    """SpanBERT, section 3.1: p = 0.2, at most 10 words, a mean of 3.8."""
    lengths = sample_span_lengths(build_keys(500), 40).flatten()
    expected = 0.2 * 0.8 ** np.arange(10)
    expected *= len(lengths) / expected.sum()
    counts = torch.bincount(lengths, minlength=11).numpy()
    assert counts[0] == 0
    assert chisquare(counts[1:], expected).pvalue > 1e-3
    assert float(lengths.double().mean()) == pytest.approx(3.8, abs=0.05)


def test_rows_are_divided_into_spans_of_whole_words() -> None:
    inputs = batch(lengths=(60,) * 400)
    candidates = mark_maskable_tokens(inputs.input_ids, SPECIAL)
    words = mark_word_starts(torch.isin(inputs.input_ids, torch.tensor(CONTINUATIONS)), candidates)
    starts = mark_span_starts(words, candidates, inputs.row_keys)
    assert not (starts & ~words).any()
    drawn, inner = sample_span_lengths(inputs.row_keys, 60), []
    for row in range(len(candidates)):
        in_words = [bool(starts[row, word[0]]) for word in list_words(inputs, row)]
        sizes = np.diff([*np.flatnonzero(in_words), len(in_words)])
        first = next(
            i for i, word in enumerate(list_words(inputs, row)) if word[0] > 30
        )  # after the [SEP] in the middle
        assert in_words[0], "a row begins with a span"
        assert in_words[first], "a special token ends a span"
        before = int(sum(in_words[:first]))
        assert sizes[: before - 1].tolist() == drawn[row, : before - 1].tolist()
        inner += sizes.tolist()
    assert max(inner) == 10


@pytest.mark.parametrize("fraction", [0.15, 0.4])
def test_spans_are_masked_as_a_whole_except_the_last(fraction: float) -> None:
    inputs = batch(lengths=(60,) * 100)
    candidates = mark_maskable_tokens(inputs.input_ids, SPECIAL)
    words = mark_word_starts(torch.isin(inputs.input_ids, torch.tensor(CONTINUATIONS)), candidates)
    span = mark_span_starts(words, candidates, inputs.row_keys).cumsum(1)
    cut = 0
    for row, masked in enumerate(mask(inputs, "span", fraction)):
        spans = [set(torch.nonzero(candidates[row] & (span[row] == i))[:, 0].tolist()) for i in span[row].unique()]
        parts = [masked & each for each in spans if 0 < len(masked & each) < len(each)]
        assert len(parts) <= 1
        assert all(max(part) - min(part) == len(part) - 1 for part in parts)
        cut += len(parts)
    assert cut > 10, "the case occurs"


def test_spans_are_longer_than_words() -> None:
    """The masked tokens of a row form fewer groups of adjacent tokens."""
    inputs = batch(lengths=(60,) * 100)
    groups = {
        strategy: sum(len(row - {position + 1 for position in row}) for row in mask(inputs, strategy, continuations=()))
        for strategy in ("word", "span")
    }
    assert groups["span"] < 0.5 * groups["word"]
