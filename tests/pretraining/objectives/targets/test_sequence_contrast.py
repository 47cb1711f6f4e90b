"""Sequence contrastive learning: crops, the loss by hand, gradients, micro-batches, cost."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.errors import notices, raises
from support.tiny_models import CLS, ENCODER, batch, model, redraw
from support.toy import TINY_RUN

import electra
from electra.data.batch import Batch
from electra.errors import RunError, UsageError
from electra.model.flops import encoder_flops, encoder_parts
from electra.presets import tiny
from electra.pretraining.execution import resolve_micro_batch_size
from electra.pretraining.objectives.targets.sequence_contrast import (
    SequenceContrastConfig,
    contrast_views,
    crop_length,
    crop_sequences,
)
from electra.runtime.setup import Runtime

NO_DROPOUT = replace(ENCODER, dropout=0.0, attention_dropout=0.0)
CONTRAST = SequenceContrastConfig(weight=2.0, temperature=0.5)


@pytest.mark.parametrize("share", [0.9, 0.5, 1.0, 0.01])
def test_a_crop_is_the_first_token_and_a_contiguous_part(share: float) -> None:
    inputs = batch(lengths=(40, 23, 7, 2))
    view = crop_sequences(inputs, share)
    assert view.input_ids.shape[1] == crop_length(40, share)
    for row, length in enumerate(inputs.lengths.tolist()):
        kept = int(view.lengths[row])
        assert kept == crop_length(length, share) == 1 + max(1, round(share * (length - 1)))
        ids, cropped = inputs.input_ids[row, :length].tolist(), view.input_ids[row, :kept].tolist()
        assert cropped[0] == CLS
        starts = [start for start in range(1, length) if ids[start : start + kept - 1] == cropped[1:]]
        assert starts, "contiguous"
        types = inputs.token_type_ids[row].tolist()
        assert view.token_type_ids[row, 1:kept].tolist() in [types[start : start + kept - 1] for start in starts]
        assert view.attention_mask is not None
        assert view.attention_mask[row].tolist() == [column < kept for column in range(view.input_ids.shape[1])]


def test_every_start_is_as_likely() -> None:
    inputs = batch(lengths=(21,) * 4000)
    numbered = replace(inputs, input_ids=torch.arange(21).expand(4000, -1))
    starts = crop_sequences(numbered, 0.9).input_ids[:, 1]
    counts = starts.bincount(minlength=4)
    assert counts.tolist()[0] == 0
    assert len(counts) == 4, "18 of 20 tokens begin at 1, 2 or 3"
    torch.testing.assert_close(counts[1:] / 4000, torch.full((3,), 1 / 3), atol=0.03, rtol=0)


def test_the_crop_of_a_row_depends_on_its_key_only() -> None:
    inputs = batch(lengths=(40, 40, 23, 7))
    full = crop_sequences(inputs, 0.9)
    last = Batch(*(each[2:, :23] if each.dim() == 2 else each[2:] for each in inputs.tensors()))
    alone = crop_sequences(last, 0.9)
    for row in range(2):
        length = int(alone.lengths[row])
        assert torch.equal(alone.input_ids[row, :length], full.input_ids[2 + row, :length])
    other = crop_sequences(redraw(inputs, 5), 0.9)
    assert not torch.equal(other.input_ids, full.input_ids)
    assert crop_sequences(batch(lengths=(40, 40)), 0.9).attention_mask is None


def compute_loss(first: torch.Tensor, second: torch.Tensor, temperature: float) -> list[float]:
    """The loss of each sequence from the definition, pair by pair."""
    views = [*first.double(), *second.double()]
    number = len(first)

    def similarity(a: int, b: int) -> float:
        cosine = float(views[a] @ views[b] / (views[a].norm() * views[b].norm()))
        return math.exp(cosine / temperature)

    def loss(a: int, b: int) -> float:
        return -math.log(similarity(a, b) / sum(similarity(a, c) for c in range(2 * number) if c != a))

    return [(loss(i, i + number) + loss(i + number, i)) / 2 for i in range(number)]


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_the_loss_equals_its_definition(temperature: float) -> None:
    first, second = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    contrast = contrast_views(first, second, temperature)
    assert contrast.loss.tolist() == pytest.approx(compute_loss(first, second, temperature), rel=1e-5)
    scaled = contrast_views(3 * first, second, temperature)
    torch.testing.assert_close(scaled.loss, contrast.loss), "cosines"


def test_known_values() -> None:
    same = torch.eye(4)
    contrast = contrast_views(same, same, 1.0)
    torch.testing.assert_close(contrast.loss, torch.full((4,), math.log(math.e + 6) - 1))
    assert contrast.correct.tolist() == [1.0] * 4
    equal = contrast_views(torch.ones(4, 3), torch.ones(4, 3), 1.0)
    torch.testing.assert_close(equal.loss, torch.full((4,), math.log(7)))
    swapped = contrast_views(same, same.roll(1, 0), 0.1)
    assert swapped.correct.tolist() == [0.0] * 4
    assert contrast_views(same[:1], same[1:2], 1.0).loss.item() == 0.0, "without negatives"


def test_autocast_does_not_change_the_loss() -> None:
    first, second = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = contrast_views(first, second, 0.1).loss
    assert torch.equal(inside, contrast_views(first, second, 0.1).loss)


@pytest.mark.parametrize("objective", ["electra", "corrective-lm"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "held-out"])
def test_the_views_are_the_corrupted_sequence_and_a_crop_of_the_original(objective: str, training: bool) -> None:
    network = model(objective, encoder=NO_DROPOUT, sequence_contrast=CONTRAST).train(training)
    inputs = batch()
    output = network(inputs)
    encoder = network.target.network.encoder
    corrupted = encoder(output.corrupted.input_ids, inputs.token_type_ids, inputs.attention_mask)[:, 0]
    view = crop_sequences(inputs, CONTRAST.crop)
    crops = encoder(view.input_ids, view.token_type_ids, view.attention_mask)[:, 0]
    expected = compute_loss(corrupted.detach(), crops.detach(), 0.5)
    assert output.losses["sequence_contrast_loss"].tolist() == pytest.approx(expected, rel=1e-4)
    plain = model(objective, encoder=NO_DROPOUT).train(training)
    plain.load_state_dict(network.state_dict())
    counts = network.counts(inputs)
    losses = [float(each(inputs, counts)[0].detach()) for each in (network, plain)]
    assert losses[0] - losses[1] == pytest.approx(2 * sum(expected) / 4, rel=1e-4)


def test_it_has_no_parameters_and_no_gradient_for_heads_and_generator() -> None:
    network = model(sequence_contrast=CONTRAST, generator=None).train()
    assert network.state_dict().keys() == model().state_dict().keys()
    network(batch()).losses["sequence_contrast_loss"].sum().backward()
    trained = {name for name, p in network.named_parameters() if p.grad is not None and p.grad.any()}
    assert trained
    assert all(name.startswith("target.network.encoder.") for name in trained)


def test_metrics_are_means_over_sequences() -> None:
    network, inputs = model(sequence_contrast=CONTRAST).eval(), batch()
    output = network(inputs)
    metrics = network.metrics(output.sums)
    assert metrics["sequence_contrast_loss"] == pytest.approx(
        float(output.losses["sequence_contrast_loss"].detach().mean())
    )
    assert metrics["sequence_contrast_accuracy"] in [number / 8 for number in range(9)]


def test_the_second_pass_costs_flops() -> None:
    with_it, without = model(sequence_contrast=CONTRAST), model()
    assert with_it.row_flops(40) - without.row_flops(40) == 2 * encoder_flops(ENCODER, crop_length(40, 0.9))
    ours, theirs = (each.row_costs(40)["discriminator"] for each in (with_it, without))
    look_up = encoder_parts(ENCODER, crop_length(40, 0.9))["embedding look-up"]
    assert ours.look_ups - theirs.look_ups == 2 * look_up > 0


def runtime(processes: int = 1) -> Runtime:
    return Runtime(torch.device("cpu"), torch.float32, world_size=processes)


def test_micro_batches_are_part_of_the_loss(caplog: pytest.LogCaptureFixture) -> None:
    config = replace(tiny(), sequence_contrast=CONTRAST)
    assert resolve_micro_batch_size(config, runtime()) == 64
    assert not notices(caplog, "negatives-of-micro-batch")
    assert resolve_micro_batch_size(config, runtime(), recorded=16) == 16
    (notice,) = notices(caplog, "negatives-of-micro-batch")
    assert " 16" in notice
    assert " 64" in notice
    with raises(UsageError, "uneven-batch", "sequence_contrast.weight", 64, "2 processes"):
        resolve_micro_batch_size(config, runtime(2), recorded=64)
    one = replace(config, training=replace(config.training, micro_batch_size=1))
    with raises(UsageError, "too-few-negatives", "sequence_contrast.weight", "--training.micro-batch-size"):
        resolve_micro_batch_size(one, runtime())
    assert resolve_micro_batch_size(replace(one, sequence_contrast=SequenceContrastConfig()), runtime()) == 1


@pytest.mark.slow
def test_a_run_keeps_its_micro_batch_size(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    options = tiny_run | {"sequence_contrast": {"weight": 1.0}}
    electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    options["training"] = TINY_RUN["training"] | {"micro_batch_size": 2}
    with raises(RunError, "other-configuration", "--training.micro-batch-size is 4 ", " 2 "):
        electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
