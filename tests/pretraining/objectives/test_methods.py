"""The paper's other objectives and options: their losses and behavior."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from support.tiny_models import ENCODER, MASK, PAD, SPECIAL, VOCAB, batch, model

from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.model import ForwardOutput, PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig, compute_generator_sizes
from electra.pretraining.objectives.targets.all_tokens import AllTokensPrediction, compute_copy_log_p
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig


def run_seeded(electra: PretrainingModel, inputs) -> tuple[ForwardOutput, torch.Tensor]:
    """Run a forward pass; return its output and its loss."""
    torch.manual_seed(3)
    done = electra.run(inputs)
    torch.manual_seed(3)
    loss, _ = electra(inputs, electra.counts(inputs))
    return done, loss


def bce(done: ForwardOutput, inputs, where: torch.Tensor) -> torch.Tensor:
    replaced = (done.corrupted.input_ids != inputs.input_ids).float()
    return F.binary_cross_entropy_with_logits(done.prediction.logits[where], replaced[where])


def tokens_at(inputs, chosen) -> torch.Tensor:
    return torch.zeros_like(inputs.input_ids, dtype=torch.bool).scatter(1, chosen.positions, chosen.used)


@torch.no_grad()
def test_electra_15_is_scored_at_masked_positions() -> None:
    electra, inputs = model("electra-15").eval(), batch(lengths=(40, 40, 23, 33))
    done, loss = run_seeded(electra, inputs)
    expected = done.losses["generator_loss"].sum() / electra.counts(inputs)["masked"]
    torch.testing.assert_close(loss, expected + 50 * bce(done, inputs, tokens_at(inputs, done.masked)))


@torch.no_grad()
def test_electra_other_15_is_scored_at_independent_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    electra, inputs = model("electra-other-15").eval(), batch(lengths=(60,) * 50)
    seen = []
    forward = electra.target.forward
    monkeypatch.setattr(electra.target, "forward", lambda b, c, at: seen.append(at) or forward(b, c, at))
    done, loss = run_seeded(electra, inputs)
    others, chosen = tokens_at(inputs, seen[0]), tokens_at(inputs, done.masked)
    assert not torch.isin(inputs.input_ids[others], torch.tensor(SPECIAL)).any()
    assert others.sum() == electra.counts(inputs)["others"] == 50 * 9
    share = float((others & chosen).sum() / others.sum())
    assert share == pytest.approx(9 / 57, abs=0.05), "some are masked by chance, so both classes occur"
    expected = done.losses["generator_loss"].sum() / electra.counts(inputs)["masked"]
    torch.testing.assert_close(loss, expected + 50 * bce(done, inputs, others))


@torch.no_grad()
def test_replace_mlm_reads_samples_without_masks() -> None:
    electra, inputs = model("replace-mlm").eval(), batch()
    done, loss = run_seeded(electra, inputs)
    assert not (done.corrupted.input_ids == MASK).any()
    original = inputs.input_ids.gather(1, done.masked.positions)
    main = electra.target.network(
        done.corrupted.input_ids, inputs.token_type_ids, inputs.attention_mask, done.masked.positions
    )
    mlm = F.cross_entropy(main[done.masked.used], original[done.masked.used])
    torch.testing.assert_close(loss, mlm + done.losses["generator_loss"].sum() / electra.counts(inputs)["masked"])


@torch.no_grad()
def test_all_tokens_mlm_mixes_copy_and_softmax() -> None:
    electra, inputs = model("all-tokens-mlm").eval(), batch()
    assert isinstance(electra.target, AllTokensPrediction)
    done, loss = run_seeded(electra, inputs)
    hidden = electra.target.network.encoder(done.corrupted.input_ids, inputs.token_type_ids, inputs.attention_mask)
    copy = torch.sigmoid(electra.target.copy(hidden))
    read = F.one_hot(done.corrupted.input_ids, VOCAB)
    p = copy * read + (1 - copy) * electra.target.network(hidden=hidden).softmax(-1)
    torch.testing.assert_close(p.sum(-1), torch.ones_like(p[..., 0]))
    real = inputs.input_ids != PAD
    nll = -p.gather(-1, inputs.input_ids.unsqueeze(-1)).squeeze(-1)[real].log().mean()
    torch.testing.assert_close(loss, nll + done.losses["generator_loss"].sum() / electra.counts(inputs)["masked"])
    sums = done.sums
    assert int(sums["prediction_correct"]) == int(((p.argmax(-1) == inputs.input_ids) & real).sum())
    changed = real & (done.corrupted.input_ids != inputs.input_ids)
    assert int(sums["replaced"]) == int(changed.sum())
    assert int(sums["restored"]) == int(((p.argmax(-1) == inputs.input_ids) & changed).sum())


@torch.no_grad()
def test_all_tokens_mlm_without_copy_is_a_softmax_at_all_tokens() -> None:
    electra, inputs = model("all-tokens-mlm", copies=False).eval(), batch()
    done, loss = run_seeded(electra, inputs)
    real = inputs.input_ids != PAD
    network = electra.target.network
    hidden = network.encoder(done.corrupted.input_ids, inputs.token_type_ids, inputs.attention_mask)
    everywhere = F.cross_entropy(network(hidden=hidden)[real], inputs.input_ids[real])
    torch.testing.assert_close(
        loss, everywhere + done.losses["generator_loss"].sum() / electra.counts(inputs)["masked"]
    )


def test_certain_copy_has_loss_zero_and_finite_gradients() -> None:
    log_p = torch.tensor([[-80.0, -80.0]], requires_grad=True)
    loss = -compute_copy_log_p(log_p, torch.tensor([[60.0, 60.0]]), torch.tensor([[True, False]]))
    assert loss.tolist() == [pytest.approx([0.0, 140.0], abs=1e-5)]
    loss.sum().backward()
    assert log_p.grad.isfinite().all()


def test_generator_sizes_follow_their_multipliers() -> None:
    main = EncoderConfig(embedding_size=128, hidden_size=256, num_layers=12, num_heads=4, ffn_size=1024)
    sizes = compute_generator_sizes(main, GeneratorConfig(size=0.5, depth=0.25, heads=1.0, ffn=0.125))
    assert (sizes.hidden_size, sizes.num_layers, sizes.num_heads, sizes.ffn_size) == (128, 3, 4, 128)
    assert compute_generator_sizes(main, GeneratorConfig(size=0.25, tying="none")).embedding_size == 64
    assert compute_generator_sizes(main, GeneratorConfig(size=1.0, tying="none")).embedding_size == 128
    electra = model(generator=GeneratorConfig(size=0.5, depth=0.5))
    assert len(electra.generator.encoder.layers) == 1
    assert "generator of 1 layer of 16" in electra.summary()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "temperature"), [("unigram", 1.0), ("unigram", 2.0), ("uniform", 1.0)])
def test_frequency_samples_follow_their_distribution(kind: str, temperature: float) -> None:
    electra = model(generator=GeneratorConfig(kind=kind, temperature=temperature))
    inputs = batch(lengths=(60,) * 300)
    done = electra.run(inputs)
    counts = torch.bincount(
        done.corrupted.input_ids.gather(1, done.masked.positions)[done.masked.used], minlength=VOCAB
    )
    assert counts[list(SPECIAL)].sum() == 0
    weights = electra.spec.unigrams.double() + 0.5 if kind == "unigram" else torch.ones(VOCAB, dtype=torch.float64)
    weights **= 1 / temperature
    weights[list(SPECIAL)] = 0
    candidates = weights > 0
    expected = weights[candidates] / weights.sum() * counts.sum()
    assert chisquare(counts[candidates].double().numpy(), expected.numpy()).pvalue > 1e-3
    assert electra.generator is None
    assert "generator_loss" not in done.losses
    assert electra.discriminates
    assert electra.summary().endswith(f"{kind} generator")
    metrics = electra.metrics(done.sums)
    assert "generator_loss" not in metrics
    assert metrics["loss"] == pytest.approx(50 * metrics["discriminator_loss"])
    assert metrics["sampled_accuracy"] < 0.1


def own_parameters(electra: PretrainingModel) -> set[str]:
    """Return the names of parameters that the generator does not share."""
    shared = {id(p) for p in electra.target.network.parameters()}
    return {name for name, p in electra.generator.named_parameters() if id(p) not in shared}


def test_tying_shares_the_configured_parameters() -> None:
    none, embeddings, everything = (
        own_parameters(model(generator=GeneratorConfig(size=1.0, tying=tying)))
        for tying in ("none", "embeddings", "all")
    )
    assert none - embeddings == {name for name in none if name.startswith("encoder.embeddings.")} != set()
    assert any(name.startswith("encoder.layers.") for name in embeddings)
    assert not any(name.startswith("encoder.embeddings.") for name in embeddings)
    assert {name.split(".")[0] for name in everything} == {"head"}


@torch.no_grad()
def test_exclude_original_token_never_samples_the_original() -> None:
    inputs = batch(lengths=(60,) * 20)
    for kind in ("masked-lm", "unigram"):
        electra = model(generator=GeneratorConfig(kind=kind, exclude_original_token=True))
        right = model(generator=GeneratorConfig(kind=kind))
        for network in (electra, right):
            done = network.run(inputs)
            changed = (done.corrupted.input_ids != inputs.input_ids).gather(1, done.masked.positions)
            assert bool(changed[done.masked.used].all()) == (network is electra)


def test_frozen_generator_has_no_gradients() -> None:
    electra, inputs = model(generator=GeneratorConfig(tying="none", training="frozen")), batch()
    loss, _ = electra(inputs, electra.counts(inputs))
    loss.backward()
    assert all(p.grad is None for p in electra.generator.parameters())
    assert all(p.grad is not None for p in electra.target.parameters())
    learning = model(generator=GeneratorConfig(tying="none"))
    assert electra.corruption.cost(40, 6).flops == learning.corruption.cost(40, 6).flops / 2
    metrics = electra.metrics(electra.run(inputs).sums)
    assert metrics["loss"] == metrics["weighted_loss"]
    assert metrics["generator_loss"] == pytest.approx(math.log(VOCAB), rel=0.05), "the metric is still reported"


def test_generator_has_its_own_initializer_range() -> None:
    wide = model(generator=GeneratorConfig(initializer_range=0.5, size=1.0))
    ours, theirs = (network.encoder.layers[0].ffn.up.weight.std() for network in (wide.target.network, wide.generator))
    assert float(ours.detach()) < 0.03
    assert float(theirs.detach()) > 0.3
    assert float(wide.generator.encoder.embeddings.word.weight.std().detach()) < 0.03


def test_embeddings_have_their_own_initializer_range() -> None:
    encoder = replace(ENCODER, initializer_range=0.2, embedding_initializer_range=0.01)
    for generator in (GeneratorConfig(), GeneratorConfig(tying="none")):
        electra = model(encoder=encoder, generator=generator)
        for network in (electra.target.network, electra.generator):
            assert float(network.encoder.embeddings.word.weight.std().detach()) < 0.02
            assert float(network.encoder.layers[0].ffn.up.weight.std().detach()) > 0.1


@pytest.mark.slow
def test_sentence_task_has_loss_and_uncorrupted_rows() -> None:
    contrast = ContrastConfig(weight=2.0, unchanged=0.25)
    electra, inputs = model(contrast=contrast), batch(lengths=(40,) * 400)
    done = electra.train().run(inputs)
    unchanged = (done.corrupted.input_ids == inputs.input_ids).all(1)
    assert float(unchanged.double().mean()) == pytest.approx(0.25, abs=0.08)
    assert done.losses["sentence_loss"].shape == (400,)
    loss, sums = electra(inputs, electra.counts(inputs))
    metrics = electra.metrics(sums)
    assert metrics["sentence_loss"] == pytest.approx(math.log(2), abs=0.1)
    parts = metrics["weighted_loss"] + metrics["generator_loss"] + 2.0 * metrics["sentence_loss"]
    assert float(loss.detach()) == pytest.approx(parts, rel=1e-5)
    with torch.no_grad():
        held_out = electra.eval().run(inputs)
    changed = (held_out.corrupted.input_ids != inputs.input_ids).any(1)
    assert float(changed.double().mean()) > 0.99, "all held-out rows are corrupted"
    assert "sentence_loss" not in held_out.losses
    assert "sentence_loss" not in electra.metrics(held_out.sums)
    assert model().target.sentence is None


def test_flops_of_objectives_and_options() -> None:
    """Each option counts what it adds and what it saves."""
    electra, mlm = model(), model("mlm")
    assert model("replace-mlm").row_flops(40) == mlm.row_flops(40) + electra.corruption.cost(40, 6).flops
    assert model("electra-15").row_flops(40) == electra.row_flops(40)
    assert model(generator=GeneratorConfig(kind="unigram")).row_flops(40) == electra.target.cost(40, 6).flops
    everywhere = model("all-tokens-mlm", copies=False)
    mlm_everywhere = mlm.target.cost(40, 40).flops
    assert mlm_everywhere > mlm.row_flops(40)
    assert everywhere.row_flops(40) == mlm_everywhere + electra.corruption.cost(40, 6).flops
    copying = model("all-tokens-mlm").row_flops(40) - everywhere.row_flops(40)
    assert copying == 40 * 4 * ENCODER.hidden_size
    adversary = model(generator=GeneratorConfig(training="adversarial")).row_flops(40)
    assert adversary - electra.row_flops(40) == 6 * 4 * 8
    hard = model(masking=MaskingConfig(strategy="hard"))
    looked_up = 40 * 2 * 16 * VOCAB  # forward only: the embeddings are not trained
    assert hard.row_flops(40) - electra.row_flops(40) == 40 * 4 * (16 * 5 * 64 + 64) + looked_up
    sentence = model(contrast=ContrastConfig(weight=1.0)).row_flops(40) - electra.row_flops(40)
    assert sentence == 4 * ENCODER.hidden_size
