"""Known mistakes of ELECTRA implementations: each check passes on the code and fails on a mutant with the mistake.

The mistakes are those of other ports, and one for each number of the design that a port can get wrong.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from support.tiny_models import MASK, PAD, batch, model, redraw

from electra.model.heads import MaskedLMHead
from electra.model.layers import Embeddings
from electra.pretraining.objectives import networks
from electra.pretraining.objectives.corruptions import corruption, masking_strategies
from electra.pretraining.objectives.corruptions.generators import GeneratorSamples, SampleSettings
from electra.pretraining.objectives.corruptions.masking import count_masked, sample_positions, write_tokens
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import MaskedLM, compute_generator_sizes
from electra.pretraining.objectives.spec import CORRUPTIONS
from electra.pretraining.objectives.targets import replaced_tokens as targets
from electra.pretraining.objectives.targets.target import Prediction

Mutate = Callable[[pytest.MonkeyPatch], None]


def discriminator_inputs(electra: PretrainingModel, inputs, times: int = 20) -> list[torch.Tensor]:
    """Return the discriminator's inputs in several steps."""
    seen: list[torch.Tensor] = []
    hook = electra.target.network.encoder.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    for step in range(times):
        electra(redraw(inputs, step), electra.counts(inputs))
    hook.remove()
    return seen


def check_no_mask_reaches_the_discriminator() -> None:
    for ids in discriminator_inputs(model(), batch()):
        assert not (ids == MASK).any()


def mutant_discriminator_reads_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    original = GeneratorSamples.forward

    def forward(self, inputs, chosen):
        masked = corruption.mask_for_generator(inputs, chosen, self.settings.mask_id, self.settings.masking)
        done = original(self, inputs, chosen)
        return done._replace(input_ids=masked)

    monkeypatch.setattr(GeneratorSamples, "forward", forward)


def check_a_correct_sample_is_original() -> None:
    """With a generator that always samples the original token, nothing is replaced."""
    electra, inputs = model(), batch()
    right = pytest.MonkeyPatch()
    original = networks.score_tokens

    def score_tokens(features, word, bias, targets, **options):
        return original(features, word, bias, targets, **options)._replace(sampled=targets)

    right.setattr(networks, "score_tokens", score_tokens)
    scores: list[torch.Tensor] = []
    electra.target.network.head.register_forward_hook(lambda *arguments: scores.append(arguments[2].detach()))
    try:
        _, sums = electra(inputs, electra.counts(inputs))
    finally:
        right.undo()
    metrics = electra.metrics(sums)
    assert metrics["sampled_accuracy"] == 1.0
    assert metrics["replaced"] == 0.0
    all_original = F.softplus(scores[0][inputs.input_ids != PAD]).mean()
    assert metrics["discriminator_loss"] == pytest.approx(float(all_original), rel=1e-5)


def record_sampled_positions(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Record where tokens were sampled in the last pass, including samples equal to the original."""
    original, last = GeneratorSamples.forward, []

    def forward(self, inputs, chosen):
        nowhere = torch.zeros_like(inputs.input_ids, dtype=torch.bool)
        last[:] = [nowhere.scatter(1, chosen.positions, chosen.used)]
        return original(self, inputs, chosen)

    monkeypatch.setattr(GeneratorSamples, "forward", forward)
    return last


def mutant_the_loss_alone_counts_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    original, sampled = targets.ReplacedTokenDetection.forward, record_sampled_positions(monkeypatch)

    def forward(self, inputs, corrupted, at):
        prediction = original(self, inputs, corrupted, at)
        replaced = sampled[0]
        real = torch.arange(inputs.input_ids.shape[1]) < inputs.lengths[:, None]
        loss = F.binary_cross_entropy_with_logits(prediction.logits, replaced.float(), reduction="none") * real
        return Prediction(prediction.logits, {"discriminator_loss": loss}, prediction.sums)

    monkeypatch.setattr(targets.ReplacedTokenDetection, "forward", forward)


def mutant_every_sample_counts_as_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    original, sampled = targets.ReplacedTokenDetection.forward, record_sampled_positions(monkeypatch)

    def forward(self, inputs, corrupted, at):
        prediction = original(self, inputs, corrupted, at)
        replaced = sampled[0]
        real = torch.arange(inputs.input_ids.shape[1]) < inputs.lengths[:, None]
        histograms = {
            "scores_replaced": targets.compute_histogram(prediction.logits, real & replaced),
            "scores_original": targets.compute_histogram(prediction.logits, real & ~replaced),
        }
        return prediction._replace(sums=prediction.sums | histograms)

    monkeypatch.setattr(targets.ReplacedTokenDetection, "forward", forward)


def check_the_vocabulary_head_runs_at_masked_positions_only() -> None:
    electra, inputs = model(), batch()
    shapes = []
    electra.generator.head.dense.register_forward_pre_hook(lambda _, arguments: shapes.append(arguments[0].shape))
    electra(inputs, electra.counts(inputs))
    slots = int(count_masked(torch.tensor([inputs.input_ids.shape[1]]), 0.15))
    assert [tuple(shape[:2]) for shape in shapes] == [(len(inputs.lengths), slots)]


def mutant_logits_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    original = MaskedLMHead.forward

    def forward(head, hidden, word_embeddings, compute):
        """Compute seven times as many features as there are masked positions."""

        def compute_some(features, word, bias):
            return compute(features[:, ::7], word, bias)

        return original(head, hidden.repeat_interleave(7, dim=1), word_embeddings, compute_some)

    monkeypatch.setattr(MaskedLMHead, "forward", forward)


def check_the_embedding_block_is_tied() -> None:
    electra = model()
    ours = dict(electra.target.network.encoder.embeddings.named_parameters())
    theirs = dict(electra.generator.encoder.embeddings.named_parameters())
    assert ours.keys() == {"word.weight", "position.weight", "token_type.weight", "norm.weight", "norm.bias"}
    assert all(ours[name] is theirs[name] for name in ours)
    # Each network has its own projection, and the generator's output embedding is the input embedding: only one matrix has V
    # rows.
    assert electra.target.network.encoder.project.weight is not electra.generator.encoder.project.weight
    with_v_rows = [name for name, p in electra.named_parameters() if p.dim() == 2 and len(p) == 64 and "word" in name]
    assert len(with_v_rows) == 1


def mutant_only_word_embeddings_tied(monkeypatch: pytest.MonkeyPatch) -> None:
    def samples(spec, main):
        sizes = compute_generator_sizes(spec.main, spec.generator)
        embeddings: Embeddings = deepcopy(main.encoder.embeddings)
        embeddings.word = main.encoder.embeddings.word
        return GeneratorSamples(MaskedLM(sizes, embeddings), SampleSettings(spec.generator, spec.masking, MASK))

    monkeypatch.setitem(CORRUPTIONS, "generator", replace(CORRUPTIONS["generator"], build=samples))


def generator_gradients(electra: PretrainingModel, inputs, weight: float) -> dict[str, torch.Tensor]:
    electra.zero_grad()
    done, counts = electra.run(inputs), electra.counts(inputs)
    loss = (
        weight * done.losses["discriminator_loss"].sum() / counts["tokens"]
        + done.losses["generator_loss"].sum() / counts["masked"]
    )
    loss.backward()
    return {name: p.grad.clone() for name, p in electra.generator.named_parameters() if "embeddings" not in name}


def check_no_gradient_from_discriminator_to_generator() -> None:
    electra, inputs = model().eval(), batch()
    with_discriminator = generator_gradients(electra, inputs, 50.0)
    alone = generator_gradients(electra, inputs, 0.0)
    assert all(torch.equal(with_discriminator[name], alone[name]) for name in alone)


def mutant_discriminators_loss_reaches_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The discriminator's loss also depends on the generator's logits."""
    original = targets.ReplacedTokenDetection.forward

    def forward(self, inputs, corrupted, at):
        prediction = original(self, inputs, corrupted, at)
        loss = prediction.losses["discriminator_loss"] + corrupted.generated.nll.mean()
        return prediction._replace(losses={"discriminator_loss": loss})

    monkeypatch.setattr(targets.ReplacedTokenDetection, "forward", forward)


def check_the_loss_is_over_every_token_but_padding() -> None:
    electra, inputs = model().eval(), batch()
    chosen, corrupted, prediction, *_ = electra.run(inputs)
    loss, _ = electra(inputs, electra.counts(inputs))
    labels = (corrupted.input_ids != inputs.input_ids).float()
    real = inputs.input_ids != PAD
    assert real.sum() == inputs.lengths.sum()
    bce = F.binary_cross_entropy_with_logits(prediction.logits[real], labels[real])
    original = inputs.input_ids.gather(1, chosen.positions)
    masked = corruption.mask_for_generator(inputs, chosen, MASK, electra.spec.masking)
    logits = electra.generator(masked, inputs.token_type_ids, inputs.attention_mask, chosen.positions)
    mlm = F.cross_entropy(logits[chosen.used], original[chosen.used])
    torch.testing.assert_close(loss, mlm + 50 * bce)


def mutant_loss_without_special_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    original = targets.ReplacedTokenDetection.forward

    def forward(self, inputs, corrupted, at):
        prediction = original(self, inputs, corrupted, at)
        loss = prediction.losses["discriminator_loss"] * (inputs.input_ids > MASK)
        return prediction._replace(losses={"discriminator_loss": loss})

    monkeypatch.setattr(targets.ReplacedTokenDetection, "forward", forward)


def mutant_loss_over_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    original = targets.ReplacedTokenDetection.forward

    def forward(self, inputs, corrupted, at):
        prediction = original(self, inputs, corrupted, at)
        everywhere = F.binary_cross_entropy_with_logits(
            prediction.logits, (corrupted.input_ids != inputs.input_ids).float(), reduction="none"
        )
        return prediction._replace(losses={"discriminator_loss": everywhere})

    monkeypatch.setattr(targets.ReplacedTokenDetection, "forward", forward)


def mutant_unused_slots_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    original = GeneratorSamples.forward

    def forward(self, inputs, chosen):
        return original(self, inputs, chosen._replace(used=torch.ones_like(chosen.used)))

    monkeypatch.setattr(GeneratorSamples, "forward", forward)


def check_kept_tokens_are_sampled_again() -> None:
    """The 15 % that the generator sees unmasked are predicted and sampled like the others."""
    electra, inputs = model(), batch(lengths=(60,) * 40)
    replaced_kept = 0
    for step in range(5):
        inputs = redraw(inputs, step)
        masked: list[torch.Tensor] = []
        hook = electra.generator.encoder.register_forward_pre_hook(lambda _, a, masked=masked: masked.append(a[0]))
        chosen, corrupted, *_ = electra.run(inputs)
        hook.remove()
        kept = chosen.used & (masked[0].gather(1, chosen.positions) != MASK)
        changed = (corrupted.input_ids != inputs.input_ids).gather(1, chosen.positions)
        replaced_kept += int((kept & changed).sum())
    assert replaced_kept > 0


def mutant_only_masks_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    original = GeneratorSamples.forward

    def forward(self, inputs, chosen):
        seen: list[torch.Tensor] = []
        hook = self.generator.encoder.register_forward_pre_hook(lambda _, a: seen.append(a[0]))
        done = original(self, inputs, chosen)
        hook.remove()
        used = chosen.used & (seen[0].gather(1, chosen.positions) == MASK)
        return done._replace(input_ids=write_tokens(inputs.input_ids, chosen.positions, done.generated.sampled, used))

    monkeypatch.setattr(GeneratorSamples, "forward", forward)


def check_samples_come_from_the_pass_that_is_trained() -> None:
    """The generator has one forward pass per step, in training mode, so sampling is with dropout."""
    electra, inputs = model(), batch()
    modes = []
    electra.generator.encoder.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    electra.train()(inputs, electra.counts(inputs))
    assert modes == [True]


def mutant_a_second_pass_for_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    original = GeneratorSamples.forward

    def forward(self, inputs, chosen):
        self.generator.eval()(inputs.input_ids, inputs.token_type_ids, inputs.attention_mask, chosen.positions)
        self.generator.train()
        return original(self, inputs, chosen)

    monkeypatch.setattr(GeneratorSamples, "forward", forward)


def check_positions_change_from_step_to_step() -> None:
    electra, inputs = model(), batch()
    first, second = (electra.run(redraw(inputs, step))[0].positions for step in range(2))
    assert not torch.equal(first, second)


def mutant_static_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(candidates, number, masking, keys, *others):
        return sample_positions(candidates, number, masking, torch.arange(len(keys)), *others)

    monkeypatch.setattr(masking_strategies, "sample_positions", sample)


PITFALLS: list[tuple[Callable[[], None], Mutate]] = [
    (check_no_mask_reaches_the_discriminator, mutant_discriminator_reads_masks),
    (check_a_correct_sample_is_original, mutant_every_sample_counts_as_replaced),
    (check_a_correct_sample_is_original, mutant_the_loss_alone_counts_every_sample),
    (check_the_vocabulary_head_runs_at_masked_positions_only, mutant_logits_everywhere),
    (check_the_embedding_block_is_tied, mutant_only_word_embeddings_tied),
    (check_no_gradient_from_discriminator_to_generator, mutant_discriminators_loss_reaches_the_generator),
    (check_the_loss_is_over_every_token_but_padding, mutant_loss_without_special_tokens),
    (check_the_loss_is_over_every_token_but_padding, mutant_loss_over_padding),
    (check_the_loss_is_over_every_token_but_padding, mutant_unused_slots_are_scored),
    (check_kept_tokens_are_sampled_again, mutant_only_masks_are_filled),
    (check_samples_come_from_the_pass_that_is_trained, mutant_a_second_pass_for_sampling),
    (check_positions_change_from_step_to_step, mutant_static_masks),
]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "mutate"), PITFALLS, ids=lambda function: function.__name__)
def test_pitfall(check: Callable[[], None], mutate: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    check()
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check()
