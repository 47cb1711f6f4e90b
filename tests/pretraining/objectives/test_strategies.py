"""Masking strategies (Appendix H): rare tokens, and tokens with a high expected loss."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from support.tiny_models import MASK, batch, model, redraw

from electra.pretraining.objectives.corruptions.masking import MaskingConfig, sample_positions
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
