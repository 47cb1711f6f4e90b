"""Options that conflict, are invalid or have no effect: errors and warnings name them and valid alternatives."""

import re
import shlex
from pathlib import Path

import pytest
from support.errors import fails, notices, raises

import electra
from electra import cli
from electra.errors import UsageError
from electra.pretraining import run
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.corruptions.masking import MaskingConfig

CONFLICTS: dict[str, tuple[str, ...]] = {
    "--generator.tying all": (
        "generator.tying all",
        "generator.size 0.5",
        "--generator.size 1",
        "--generator.tying embeddings",
    ),
    "--generator.tying all --generator.size 1 --generator.depth 0.5": (
        "generator.tying all",
        "and generator.depth 0.5",
        "use --generator.depth 1,",
    ),
    "--generator.tying all --generator.depth 0.5": (
        "generator.tying all",
        "generator.size 0.5 and generator.depth 0.5",
        "--generator.size 1 --generator.depth 1",
    ),
    "--generator.tying all --generator.kind unigram": ("generator.tying all", "generator.kind is unigram"),
    "--generator.tying all --generator.size 1 --generator.initializer-range 0.1": (
        "generator.tying all",
        "generator.initializer_range",
    ),
    "--generator.tying trunk --generator.depth 0.5": (
        "generator.tying trunk",
        "generator.size 0.5",
        "use --generator.size 1,",
        "--generator.tying embeddings",
    ),
    "--generator.tying trunk --generator.size 1 --generator.depth 2": (
        "generator.tying trunk",
        "generator.depth 2 ",
        "--generator.depth 1",
    ),
    "--generator.tying trunk --generator.kind uniform": ("generator.tying trunk", "generator.kind is uniform"),
    "--generator.tying trunk --generator.size 1 --generator.initializer-range 0.1": (
        "generator.tying trunk",
        "generator.initializer_range",
    ),
    "--generator.tying trunk --generator.size 1 --generator.training frozen": (
        "generator.training frozen",
        "generator.tying trunk",
        "--generator.tying none",
    ),
    "--generator.kind layer-mixture --generator.training adversarial": (
        "generator.kind layer-mixture",
        "generator.training is adversarial",
    ),
    "--procedure two-stage-scratch --generator.kind layer-mixture": (
        "--procedure two-stage-scratch",
        "generator.kind layer-mixture",
        "--generator.kind masked-lm",
    ),
    "--procedure two-stage-scratch --generator.tying trunk --generator.size 1": (
        "--procedure two-stage-scratch",
        "generator.tying trunk",
    ),
    "--procedure masked-lm-first --objective mlm": ("--procedure masked-lm-first", "--objective mlm"),
    "--procedure masked-lm-first --init somewhere": ("--procedure masked-lm-first", "--init"),
    "--procedure masked-lm-first --generator.training frozen --generator.tying none": (
        "--procedure masked-lm-first",
        "generator.size 0.5",
        "--generator.size 1",
    ),
    "--objective electra-15 --generator.kind none": ("--objective electra-15", "generator.kind is none"),
    "--copy true --objective replace-mlm": ("--copy", "--objective replace-mlm", "--objective all-tokens-mlm"),
    "--copy true --objective mlm": ("--copy", "--objective mlm", "--objective all-tokens-mlm"),
    "--copy true": ("--copy", "--objective electra ", "--objective all-tokens-mlm"),
    "--generator.training adversarial --generator.kind uniform": (
        "generator.training adversarial",
        "generator.kind is uniform",
    ),
    "--generator.training adversarial --objective replace-mlm": (
        "generator.training adversarial",
        "--objective replace-mlm",
    ),
    "--generator.training frozen": (
        "generator.training frozen",
        "generator.tying embeddings",
        "--generator.tying none",
    ),
    "--token-prediction.masked 1 --objective mlm": ("token_prediction", "--objective mlm"),
    "--contrast.weight 1 --objective mlm": ("contrast.weight", "--objective mlm"),
    "--sequence-contrast.weight 1 --objective mlm": ("sequence_contrast.weight", "--objective mlm", "corrective-lm"),
    "--corrective.all-tokens true": ("corrective.all_tokens", "--objective electra;", "--objective corrective-lm"),
    "--token-prediction.filled 1 --objective corrective-lm": ("token_prediction", "--objective corrective-lm"),
    "--batch-warmup.steps 5 --batch-warmup.size 32 --sequence-contrast.weight 1": (
        "--batch-warmup.steps",
        "sequence_contrast.weight",
    ),
    "--batch-warmup.steps 5 --batch-warmup.size 32 --training.means local": ("--batch-warmup.steps", "training.means"),
    "--objective electric --generator.kind layer-mixture": (
        "--objective electric ",
        "generator.kind layer-mixture",
        "--generator.kind masked-lm",
    ),
    "--objective electric --masking.with-replacement true": (
        "--objective electric ",
        "masking.with_replacement",
        "--masking.with-replacement false",
    ),
    "--objective electric-unigram --masking.with-replacement true": (
        "--objective electric-unigram",
        "masking.with_replacement",
    ),
    "--objective electric-unigram --masking.strategy rare": (
        "--objective electric-unigram",
        "masking.strategy is rare",
        "--masking.strategy uniform",
    ),
    "--objective electric --generator.kind uniform": (
        "--objective electric ",
        "generator.kind is uniform",
        "--objective electric-unigram",
    ),
    "--objective electric --generator.temperature 2": (
        "--objective electric ",
        "generator.temperature is 2",
        "--generator.temperature 1",
    ),
    "--objective electric --generator.final-temperature 2": ("--objective electric ", "generator.final_temperature"),
    "--objective electric --generator.final-frequency-share 0.5": (
        "--objective electric ",
        "generator.frequency_share",
    ),
    "--objective electric-unigram --masking.strategy span": (
        "--objective electric-unigram ",
        "masking.strategy is span",
        "--masking.strategy uniform",
    ),
    "--objective electric --generator.exclude-original-token true": (
        "--objective electric ",
        "generator.exclude_original_token",
    ),
    "--objective electric --generator.training adversarial": (
        "generator.training adversarial",
        "--objective electric ",
    ),
    "--masking.strategy hard --generator.kind unigram": (
        "masking.strategy hard",
        "generator.kind unigram",
        "--generator.kind masked-lm",
    ),
    "--training.graphs true --masking.final-fraction 0.1": ("--training.graphs", "masking.final_fraction"),
    "--training.graphs true --generator.final-loss-weight 0 --generator.final-frequency-share 0.5": (
        "--training.graphs",
        "generator.final_frequency_share and generator.final_loss_weight",
    ),
    "--generator.training adversarial --generator.final-frequency-share 0.5": (
        "generator.training adversarial",
        "generator.frequency_share",
    ),
    "--masking.strategy word --masking.with-replacement true": ("masking.strategy word", "masking.with_replacement"),
    "--masking.strategy span --masking.with-replacement true": ("masking.strategy span", "masking.with_replacement"),
    "--procedure two-stage": (
        "--procedure two-stage ",
        "generator.size 0.5",
        "--generator.size 1",
        "--procedure two-stage-scratch",
    ),
    "--procedure two-stage --objective mlm": ("--procedure two-stage ", "--objective mlm"),
    "--procedure two-stage-scratch --generator.kind unigram": (
        "--procedure two-stage-scratch",
        "generator.kind unigram",
    ),
    "--procedure two-stage-scratch --generator.tying all --generator.size 1": (
        "--procedure two-stage-scratch",
        "generator.tying all",
    ),
    "--procedure two-stage-scratch --generator.training adversarial": (
        "--procedure two-stage-scratch",
        "generator.training is adversarial",
    ),
    "--procedure two-stage-scratch --init somewhere": ("--procedure two-stage-scratch", "--init"),
}
"""Both options, and options of a valid alternative."""

INVALID: dict[str, tuple[str, ...]] = {
    "--token-prediction.filled -1": ("out-of-range", "--token-prediction.filled", "-1.0"),
    "--stage-one-share 1": ("out-of-range", "--stage-one-share", "1.0"),
    "--generator.kind layer-mixture --generator.mixture-layers 1 3": (
        "wrong-layers",
        "generator.mixture_layers",
        "1 3",
    ),
    "--contrast.weight -1": ("out-of-range", "contrast.weight", "-1.0"),
    "--loss-weight -5": ("out-of-range", "--loss-weight", "-5.0"),
    "--sequence-contrast.weight -1": ("out-of-range", "--sequence-contrast.weight", "-1.0"),
    "--sequence-contrast.crop 0": ("out-of-range", "--sequence-contrast.crop", "0.0"),
    "--sequence-contrast.temperature 0": ("out-of-range", "--sequence-contrast.temperature", "0.0"),
    "--contrast.unchanged 1": ("out-of-range", "contrast.unchanged", "1.0"),
    "--masking.rarity 0": ("out-of-range", "masking.rarity", "0.0"),
    "--generator.heads 1.5": ("indivisible", "generator.size 0.5", "generator.heads 1.5", "32", "3 heads"),
    "--masking.final-fraction 0": ("out-of-range", "masking.final-fraction", "0.0"),
    "--masking.final-fraction 0.6": ("out-of-range", "masking.final-fraction", "0.6", "0.5"),
    "--generator.final-temperature 0": ("out-of-range", "generator.final-temperature", "0.0"),
    "--generator.final-temperature 1e-9": ("out-of-range", "generator.final_temperature", "1e-09", "1e-06"),
    "--generator.frequency-share 1.5": ("out-of-range", "generator.frequency-share", "1.5"),
    "--generator.final-frequency-share -1": ("out-of-range", "generator.final-frequency-share", "-1.0"),
    "--generator.loss-weight -1": ("out-of-range", "generator.loss-weight", "-1.0"),
    "--generator.final-loss-weight -1": ("out-of-range", "generator.final-loss-weight", "-1.0"),
    "--generator.ffn 0": ("out-of-range", "generator.ffn", "0.0"),
    "--length-warmup.steps 5": (
        "no-length-warmup",
        "length_warmup.length 16",
        "--seq-len 16",
        "--length-warmup.steps",
    ),
    "--length-warmup.steps -1": ("out-of-range", "--length-warmup.steps", "-1"),
    "--length-warmup.length 4": ("out-of-range", "--length-warmup.length", "4", "5"),
    "--batch-warmup.steps 5 --batch-warmup.size 64": (
        "no-batch-warmup",
        "batch_warmup.size 64",
        "--training.batch-size 64",
        "--batch-warmup.steps",
    ),
    "--batch-warmup.steps 5 --batch-warmup.size 24": ("no-batch-warmup", "batch_warmup.size 24"),
    "--batch-warmup.steps -1": ("out-of-range", "--batch-warmup.steps", "-1"),
    "--flops 1e12 --steps 5": ("wrong-budget", "--steps", "--hours", "--flops"),
}
"""Code, and values."""


def pretrain_tiny(options: str) -> list[str]:
    return ["pretrain", "text", "--preset", "tiny", "--out", "out", *shlex.split(options)]


@pytest.mark.parametrize("options", CONFLICTS)
def test_conflicting_options_raise(options: str) -> None:
    fails(pretrain_tiny(options), "conflicting-options", *CONFLICTS[options])


def test_values_that_change_do_not_continue_from_a_stem() -> None:
    with raises(UsageError, "conflicting-options", "--stem", "masking.final_fraction"):
        PretrainConfig(stem="run", masking=MaskingConfig(final_fraction=0.1))


@pytest.mark.parametrize("options", INVALID)
def test_invalid_options_raise(options: str) -> None:
    fails(pretrain_tiny(options), *INVALID[options])


@pytest.mark.parametrize(
    "options",
    [
        "--generator.tying all --generator.size 1",
        "--objective mlm --generator.kind none",
        "--objective all-tokens-mlm --copy false",
        "--generator.training frozen --generator.tying none",
        "--masking.strategy hard --objective mlm --generator.kind unigram",
        "--procedure two-stage --generator.size 1",
        "--procedure two-stage-scratch",
        "--procedure two-stage-scratch --stage-one-share 0.2",
        "--procedure masked-lm-first --generator.kind layer-mixture",
        "--procedure masked-lm-first --generator.training frozen --generator.tying none --generator.size 1",
        "--procedure masked-lm-first --generator.kind unigram",
        "--generator.tying trunk --generator.size 1 --generator.depth 0.5",
        "--generator.tying disentangled --generator.training frozen",
        "--flops 1e12",
        "--length-warmup.steps 5 --length-warmup.length 8",
        "--batch-warmup.steps 5 --batch-warmup.size 32",
        "--objective corrective-lm --copy false --sequence-contrast.weight 1 --contrast.weight 1",
        "--objective corrective-lm --corrective.all-tokens true --generator.tying all --generator.size 1",
        "--objective electric --masking.strategy rare --procedure two-stage-scratch",
        "--objective electric-unigram",
        "--training.graphs true --masking.strategy span --generator.frequency-share 0.5 --generator.loss-weight 2",
        "--training.compile true --masking.final-fraction 0.1 --generator.final-temperature 2",
    ],
)
def test_advised_alternatives_are_valid(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[PretrainConfig] = []
    monkeypatch.setattr(run, "pretrain", lambda config, out, callbacks: seen.append(config) or {})
    cli.main(pretrain_tiny(options))
    assert len(seen) == 1


WITHOUT_EFFECT: dict[str, tuple[str, str]] = {
    "--objective mlm --generator.size 0.5": ("--generator.size", "--objective mlm"),
    "--objective mlm --loss-weight 5": ("--loss-weight", "--objective mlm"),
    "--objective mlm --masking.generator-mask 0.5": ("--masking.generator-mask", "--objective mlm"),
    "--generator.kind unigram --generator.size 0.5": ("--generator.size", "generator.kind unigram"),
    "--masking.mlm-mask 0.7": ("--masking.mlm-mask", "--objective electra"),
    "--masking.rarity 2": ("--masking.rarity", "masking.strategy is uniform"),
    "--generator.kind uniform --generator.temperature 2": ("--generator.temperature", "uniform"),
    "--generator.kind unigram --generator.frequency-share 0.5": (
        "--generator.frequency-share",
        "generator.kind unigram",
    ),
    "--generator.training adversarial --generator.final-loss-weight 2": (
        "--generator.final-loss-weight",
        "no such loss",
    ),
    "--procedure two-stage-scratch --generator.loss-weight 2": ("--generator.loss-weight", "no such loss"),
    "--procedure two-stage-scratch --generator.tying embeddings": (
        "--generator.tying",
        "--procedure two-stage-scratch",
    ),
    "--stage-one-share 0.5": ("--stage-one-share", "--procedure joint"),
    "--generator.mixture-layers 1 2": ("--generator.mixture-layers", "generator.kind masked-lm"),
    "--generator.kind unigram --generator.tying disentangled": ("--generator.tying", "generator.kind unigram"),
    "--schedule.decay 0.5": ("--schedule.decay", "schedule.kind is linear"),
    "--contrast.unchanged 0.5": ("--contrast.unchanged", "contrast.weight is 0"),
    "--sequence-contrast.crop 0.5": ("--sequence-contrast.crop", "sequence_contrast.weight is 0"),
    "--objective electric --masking.generator-mask 0.5": ("--masking.generator-mask", "--objective electric"),
    "--objective electric-unigram --generator.temperature 2": (
        "--generator.temperature",
        "--objective electric-unigram",
    ),
    "--copy false": ("--copy", "--objective electra"),
    "--flops 1e12 --schedule.warmup-steps 5": ("--schedule.warmup-steps", "--flops, schedule.max_warmup"),
    "--length-warmup.length 8": ("--length-warmup.length", "length_warmup.steps is 0"),
    "--batch-warmup.size 8": ("--batch-warmup.size", "batch_warmup.steps is 0"),
}
"""The option, and the value of another one that makes it unused."""
WITH_EFFECT = (
    "--generator.kind unigram --generator.temperature 2",
    "--copy null",
    "--generator.kind layer-mixture --generator.mixture-layers 1 2",
    "--procedure masked-lm-first --stage-one-share 0.5 --generator.tying disentangled",
    "--masking.final-fraction 0.1 --generator.final-temperature 2 --generator.frequency-share 0.5",
    "--generator.final-frequency-share 0.5 --generator.loss-weight 2 --generator.final-loss-weight 1",
    "--objective all-tokens-mlm --copy false --schedule.warmup-steps 5",
    "--objective mlm --masking.mlm-mask 0.7 --masking.strategy rare --masking.rarity 2",
    "--contrast.weight 1 --contrast.unchanged 0.5 --generator.size 0.5 --loss-weight 7 --masking.generator-mask 0.9",
)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log of `electra pretrain`, without training."""
    monkeypatch.setattr(run, "pretrain", lambda config, out, callbacks: {})
    return caplog


def count_warnings(log: pytest.LogCaptureFixture) -> int:
    return sum(record.levelname == "WARNING" for record in log.records)


@pytest.mark.parametrize("options", WITHOUT_EFFECT)
def test_options_without_effect_give_a_warning(options: str, log: pytest.LogCaptureFixture) -> None:
    cli.main(["pretrain", "builtin", "--out", "nowhere", "--preset", "tiny", *shlex.split(options)])
    (message,) = notices(log, "unused-option")
    option, reason = WITHOUT_EFFECT[options]
    assert message.startswith(f"{option} ")
    assert reason in message
    assert count_warnings(log) == 1


@pytest.mark.parametrize("options", WITH_EFFECT)
def test_options_with_an_effect_give_no_warning(options: str, log: pytest.LogCaptureFixture) -> None:
    cli.main(["pretrain", "builtin", "--out", "nowhere", "--preset", "tiny", *shlex.split(options)])
    assert count_warnings(log) == 0


def test_keyword_arguments_without_effect_give_a_warning(log: pytest.LogCaptureFixture) -> None:
    electra.pretrain("builtin", out="nowhere", preset="tiny", masking={"rarity": 2.0})
    (message,) = notices(log, "unused-option")
    assert message.startswith("--masking.rarity ")
    assert "masking.strategy is uniform" in message
    assert count_warnings(log) == 1


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, []),
        (
            {"generator.training": "adversarial", "masking": {"strategy": "rare"}},
            ["generator.training adversarial", "masking.strategy rare"],
        ),
    ],
    ids=["none", "two"],
)
def test_log_lists_the_differences_from_the_preset(
    options: dict, shown: list[str], log: pytest.LogCaptureFixture
) -> None:
    electra.pretrain("builtin", out="nowhere", preset="tiny", **options)
    (message,) = notices(log, "preset")
    assert "tiny" in message
    assert re.findall(r"\w+\.\w+ \w+", message) == shown


def test_networks_too_large_for_memory_raise(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("so much for so little .\n" * 50)
    sizes = "--preset tiny --steps 1 --model.vocab-size 100 --training.batch-size 4 --generator.size 1e7"
    words = ["pretrain", text, "--out", tmp_path / "run", *sizes.split()]
    fails(words, "out-of-memory", " 64 ", "640,000,000", "--model.hidden-size")
