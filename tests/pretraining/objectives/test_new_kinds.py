"""Generators and masking strategies are added from outside the package; checks of options read their rows."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.errors import notices, raises
from support.tiny_models import MASK, batch, model
from support.toy import TINY_RUN, sentences
from torch import Tensor, nn

import electra
from electra.data.batch import Batch
from electra.errors import UsageError
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.flops import Cost
from electra.presets import tiny
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.corruptions.corruption import CorruptedBatch, Corruption, compute_ratio
from electra.pretraining.objectives.corruptions.generators import GENERATOR_TRAINING, GeneratorSamples
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, MaskingConfig, write_samples
from electra.pretraining.objectives.corruptions.masking_strategies import MASKING, MaskingKind, MaskingStrategy
from electra.pretraining.objectives.networks import GeneratorConfig, MaskedLM
from electra.pretraining.objectives.spec import GENERATORS, GeneratorKind, Main, ObjectiveSpec, build_sample_settings
from electra.pretraining.objectives.tying import TYINGS, TyingKind, build_generator
from electra.pretraining.unused_options import find_unused_options
from electra.train.metrics_log import read_metrics
from electra.train.schedule import SCHEDULES, Schedule


def find_unused(*names: str, **options: object) -> list[str]:
    """Return the options of `names` that a configuration does not use."""
    return [line.split()[0] for line in find_unused_options(names, replace(tiny(), **options))]


class LaterMasking(MaskingStrategy):
    """Later positions are masked more often; `rarity` is the exponent."""

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent

    def forward(self, input_ids: Tensor, word: nn.Embedding) -> Tensor:
        return torch.arange(1.0, input_ids.shape[1] + 1).pow(self.exponent).expand(input_ids.shape)

    def costs(self, length: int) -> dict[str, Cost]:
        return {"positions": Cost({"power": length}, has_backward=False)}


def test_masking_strategy_from_outside_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(spec: ObjectiveSpec) -> MaskingStrategy:
        return LaterMasking(spec.masking.rarity)

    monkeypatch.setitem(MASKING, "later", MaskingKind(build, uses=frozenset({"rarity"})))
    inputs = batch(lengths=(60,) * 50)
    means = []
    for strategy in ("uniform", "later"):
        electra_model = model(masking=MaskingConfig(strategy=strategy, rarity=3.0)).train()
        masked = electra_model.run(inputs).masked
        means.append(float(masked.positions[masked.used].double().mean()))
    assert means[0] == pytest.approx(29.5, abs=3)
    assert means[1] == pytest.approx(48, abs=3), "the mean of a density that grows with the third power"
    assert electra_model.row_flops(40) == model().row_flops(40) + 40
    assert find_unused("masking.rarity", masking=MaskingConfig(strategy="later")) == []
    assert find_unused("masking.rarity") == ["--masking.rarity"]


def test_masking_strategy_that_needs_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MASKING, "harder", MASKING["hard"])
    masking, unigram = MaskingConfig(strategy="harder"), GeneratorConfig(kind="unigram")
    with raises(UsageError, "conflicting-options", "masking.strategy harder", "generator.kind unigram"):
        replace(tiny(), masking=masking, generator=unigram)
    assert replace(tiny(), masking=masking, generator=GeneratorConfig()).masking == masking


class SamplesOfTheRow(Corruption):
    """The masked positions get the tokens of other masked positions of their row."""

    def __init__(self, masking: MaskingConfig) -> None:
        super().__init__()
        self.masking = masking

    def forward(self, inputs: Batch, masked: MaskedPositions) -> CorruptedBatch:
        original = inputs.input_ids.gather(1, masked.positions)
        sampled = original.roll(1, dims=1)
        ids = write_samples(inputs.input_ids, masked.positions, sampled, masked.used, self.masking)
        return CorruptedBatch(ids, None, {"sampled_correct": ((sampled == original) & masked.used).sum()})

    def metrics(self, sums: dict) -> dict[str, float]:
        return {"sampled_accuracy": compute_ratio(sums["sampled_correct"], sums["masked"])}


def test_generator_without_a_network_from_outside_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATORS, "row", GeneratorKind(lambda spec, main: SamplesOfTheRow(spec.masking)))
    electra_model, inputs = model(generator=GeneratorConfig(kind="row")), batch((40, 40))
    done = electra_model.run(inputs)
    masked = (tokens.gather(1, done.masked.positions) for tokens in (done.corrupted.input_ids, inputs.input_ids))
    ours, theirs = (tokens.sort().values for tokens in masked)
    assert torch.equal(ours, theirs)
    assert electra_model.generator is None
    assert electra_model.summary().endswith("row generator")
    generator = GeneratorConfig(kind="row")
    names = ("generator.kind", "generator.size", "generator.temperature", "loss_weight")
    assert find_unused(*names, generator=generator) == ["--generator.size", "--generator.temperature"]
    for options in ({"training": "adversarial"}, {"tying": "all", "size": 1.0}):
        with raises(UsageError, "conflicting-options", "generator.kind is row"):
            replace(tiny(), generator=replace(generator, **options))


def build_wide_generator(spec: ObjectiveSpec, main: Main) -> Corruption:
    """Build a generator with a feed-forward network of twice the size."""
    config = replace(spec.generator, ffn=2 * (spec.generator.ffn or spec.generator.size))
    network: MaskedLM = build_generator(spec.main, config, main.encoder)
    return GENERATOR_TRAINING[spec.generator.training](network, build_sample_settings(spec))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> GeneratorConfig:
    """A generator from outside the package that is a network."""
    monkeypatch.setitem(GENERATORS, "wide", GeneratorKind(build_wide_generator, is_network=True))
    return GeneratorConfig(kind="wide")


@pytest.mark.slow
def test_generator_network_from_outside_the_package(
    wide: GeneratorConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is trained adversarially, saved and reported."""
    (tmp_path / "text.txt").write_text(sentences(150))
    options = {**TINY_RUN, "generator": {"kind": "wide", "training": "adversarial", "size": 0.5}}
    electra.pretrain(tmp_path / "text.txt", out=tmp_path / "run", **options)
    assert "reward" in list(read_metrics(tmp_path / "run/metrics.jsonl"))[-1]
    assert (tmp_path / "run/generator/model.safetensors").exists()
    assert not notices(caplog, "unused-option")
    answers = electra.fill_mask("the [MASK] sees the milk .", model=tmp_path / "run")
    assert answers[0]["answers"]


def share_words(sizes: EncoderConfig, encoder: Encoder) -> MaskedLM:
    """Build a generator with positions and token types of its own."""
    generator = MaskedLM(sizes)
    generator.encoder.embeddings.word = encoder.embeddings.word
    return generator


def test_tying_from_outside_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TYINGS, "words", TyingKind(share_words, "the discriminator's words"))
    generator = GeneratorConfig(size=0.5, tying="words")
    assert replace(tiny(), generator=generator).generator.tying == "words"
    electra_model = model(generator=generator)
    ours, theirs = (each.encoder.embeddings for each in (electra_model.generator, electra_model.target.network))
    assert ours.word is theirs.word
    assert ours.position is not theirs.position
    with raises(UsageError, "conflicting-options", "generator.training frozen", "generator.tying words"):
        replace(tiny(), generator=replace(generator, training="frozen"))
    with raises(UsageError, "unknown-choice", "generator.tying", "letters", "words"):
        replace(tiny(), generator=replace(generator, tying="letters"))


def test_options_of_networks_apply_to_a_generator_network(wide: GeneratorConfig) -> None:
    both = {"masking": MaskingConfig(strategy="hard"), "generator": replace(wide, tying="all", size=1.0)}
    assert isinstance(replace(tiny(), **both), PretrainConfig)
    assert replace(tiny(), procedure="two-stage-scratch", generator=wide).stage == 1
    assert isinstance(model(generator=wide).corruption, GeneratorSamples)
    assert model(generator=wide).generator.config.ffn_size == 2 * model().generator.config.ffn_size
    assert MASK not in model(generator=wide).run(batch()).corrupted.input_ids


def test_schedule_from_outside_the_package_that_reads_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULES, "step", Schedule(lambda done, warmup, config: config.decay if done > 0.5 else 1.0))
    schedule = replace(tiny().schedule, kind="step")
    assert find_unused("schedule.decay", schedule=schedule) == ["--schedule.decay"]
    monkeypatch.setitem(SCHEDULES, "step", replace(SCHEDULES["step"], uses=frozenset({"decay"})))
    assert find_unused("schedule.decay", schedule=schedule) == []
