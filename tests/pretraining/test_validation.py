"""Conflicting options: one line that names both and a valid alternative."""

import shlex
from pathlib import Path

import pytest

import electra
from electra import cli
from electra.pretraining import run
from electra.pretraining.config import PretrainConfig

CONFLICTS = [
    ("--generator.tying all", "generator.tying all shares the encoder, and generator.size 0.5 makes its size differ"),
    (
        "--generator.tying all --generator.size 1 --generator.depth 0.5",
        "and generator.depth 0.5 makes its size differ from the discriminator's; use --generator.depth 1, or",
    ),
    (
        "--generator.tying all --generator.depth 0.5",
        "and generator.size 0.5 and generator.depth 0.5 makes its size differ from the discriminator's; "
        "use --generator.size 1 --generator.depth 1, or",
    ),
    (
        "--generator.tying all --generator.kind unigram",
        "generator.tying all needs a network, and generator.kind is unigram",
    ),
    (
        "--generator.tying all --generator.size 1 --generator.initializer-range 0.1",
        "generator.initializer_range initializes the generator's own",
    ),
    (
        "--objective electra-15 --generator.kind none",
        "--objective electra-15 needs a generator, and generator.kind is none",
    ),
    (
        "--copy true --objective replace-mlm",
        "--objective replace-mlm predicts only the masked tokens; use --objective all-t",
    ),
    ("--copy true --objective mlm", "--objective mlm predicts only the masked tokens"),
    ("--copy true", "--objective electra classifies tokens as replaced or original"),
    ("--generator.training adversarial --generator.kind uniform", "generator.training adversarial needs a network"),
    (
        "--generator.training adversarial --objective replace-mlm",
        "needs a discriminator, and --objective replace-mlm",
    ),
    (
        "--generator.training frozen",
        "generator.tying embeddings shares them with the discriminator, which is trained; use --generator.tying none",
    ),
    (
        "--contrast.weight 1 --objective mlm",
        "contrast.weight needs a discriminator, and --objective mlm has none",
    ),
    (
        "--masking.strategy hard --generator.kind unigram",
        "generator.kind unigram has none; use --generator.kind masked-lm",
    ),
    (
        "--procedure two-stage",
        "generator.size 0.5 makes the sizes differ; use --generator.size 1, or --procedure two-",
    ),
    ("--procedure two-stage --objective mlm", "trains a generator first, and --objective mlm has none"),
    ("--procedure two-stage-scratch --generator.kind unigram", "and generator.kind unigram has none to train"),
    (
        "--procedure two-stage-scratch --generator.tying all --generator.size 1",
        "shares its encoder with the discriminator; leave one of them",
    ),
    ("--procedure two-stage-scratch --generator.training adversarial", "defines how the generator is trained"),
    (
        "--procedure two-stage-scratch --init somewhere",
        "sets the discriminator's initial weights, and so does --init; leave",
    ),
    ("--contrast.weight -1", "contrast.weight is -1.0; it must not be negative"),
    ("--loss-weight -5", "--loss-weight is -5.0; it must not be negative"),
    ("--contrast.unchanged 1", "contrast.unchanged is 1.0; it must be between 0 and 1"),
    ("--masking.rarity 0", "masking.rarity is 0.0; it must be more than 0"),
    (
        "--generator.heads 1.5",
        "generator.size 0.5 and generator.heads 1.5 give a hidden size of 32, which is not a multiple of 3 heads",
    ),
    ("--generator.ffn 0", "generator.ffn is 0.0; it must be more than 0"),
    (
        "--length-warmup.steps 5",
        "length_warmup.length 16 is no shorter than --seq-len 16; lower it, or leave --length-w",
    ),
    ("--length-warmup.steps -1", "length_warmup.steps is -1; it must not be negative"),
    ("--length-warmup.length 4", "length_warmup.length is 4; it must be at least 5"),
    ("--flops 1e12 --steps 5", "exactly one of --steps, --hours and --flops is needed"),
]


@pytest.mark.parametrize(("options", "message"), CONFLICTS)
def test_conflicting_options_raise_one_line(options: str, message: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["pretrain", "text", "--preset", "tiny", "--out", "out", *shlex.split(options)])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


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
        "--flops 1e12",
        "--length-warmup.steps 5 --length-warmup.length 8",
    ],
)
def test_advised_alternatives_are_valid(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[PretrainConfig] = []
    monkeypatch.setattr(run, "pretrain", lambda config, out, callbacks: seen.append(config) or {})
    cli.main(["pretrain", "text", "--preset", "tiny", "--out", "out", *shlex.split(options)])
    assert len(seen) == 1


WITHOUT_EFFECT = [
    ("--objective mlm --generator.size 0.5", "--generator.size has no effect: --objective mlm has no generator"),
    ("--objective mlm --loss-weight 5", "--loss-weight has no effect: --objective mlm has no generator"),
    (
        "--objective mlm --masking.generator-mask 0.5",
        "--masking.generator-mask has no effect: --objective mlm has no gen",
    ),
    (
        "--generator.kind unigram --generator.size 0.5",
        "--generator.size has no effect: generator.kind unigram is not a ",
    ),
    (
        "--masking.mlm-mask 0.7",
        "--masking.mlm-mask has no effect: --objective electra has no [MASK] in the input",
    ),
    ("--masking.rarity 2", "--masking.rarity has no effect: masking.strategy is uniform"),
    (
        "--generator.kind uniform --generator.temperature 2",
        "--generator.temperature has no effect: uniform samples stay uniform",
    ),
    (
        "--procedure two-stage-scratch --generator.tying embeddings",
        "--generator.tying has no effect: --procedure two-stage-scratch shares no weights",
    ),
    ("--contrast.unchanged 0.5", "--contrast.unchanged has no effect: contrast.weight is 0"),
    ("--copy false", "--copy has no effect: --objective electra has no copy mechanism"),
    (
        "--flops 1e12 --schedule.warmup-steps 5",
        "--schedule.warmup-steps has no effect: with --flops, schedule.max_warmup sets the warm-up's share of the run",
    ),
    ("--length-warmup.length 8", "--length-warmup.length has no effect: length_warmup.steps is 0"),
]
WITH_EFFECT = (
    "--generator.kind unigram --generator.temperature 2",
    "--copy null",
    "--objective all-tokens-mlm --copy false --schedule.warmup-steps 5",
    "--objective mlm --masking.mlm-mask 0.7 --masking.strategy rare --masking.rarity 2",
    "--contrast.weight 1 --contrast.unchanged 0.5 --generator.size 0.5 --loss-weight 7 --masking.generator-mask 0.9",
)


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Capture the warnings of `electra pretrain`, without training."""
    monkeypatch.setattr(run, "pretrain", lambda config, out, callbacks: {})
    return caplog


def list_warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(("options", "message"), WITHOUT_EFFECT)
def test_options_without_effect_give_a_warning(options: str, message: str, warnings: pytest.LogCaptureFixture) -> None:
    cli.main(["pretrain", "builtin", "--out", "nowhere", "--preset", "tiny", *shlex.split(options)])
    (line,) = list_warnings(warnings)
    assert line.startswith(message)


@pytest.mark.parametrize("options", WITH_EFFECT)
def test_options_with_an_effect_give_no_warning(options: str, warnings: pytest.LogCaptureFixture) -> None:
    cli.main(["pretrain", "builtin", "--out", "nowhere", "--preset", "tiny", *shlex.split(options)])
    assert list_warnings(warnings) == []


def test_keyword_arguments_without_effect_give_a_warning(warnings: pytest.LogCaptureFixture) -> None:
    electra.pretrain("builtin", out="nowhere", preset="tiny", masking={"rarity": 2.0})
    assert list_warnings(warnings) == ["--masking.rarity has no effect: masking.strategy is uniform"]


def test_log_lists_the_differences_from_the_preset(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(run, "pretrain", lambda config, out, callbacks: {})
    for more, shown in (
        ({}, "preset tiny (unchanged)"),
        (
            {"generator.training": "adversarial", "masking": {"strategy": "rare"}},
            "preset tiny (generator.training adversarial, masking.strategy rare)",
        ),
    ):
        electra.pretrain("builtin", out="nowhere", preset="tiny", **more)
        assert shown in capsys.readouterr().out


def test_networks_too_large_for_memory_raise(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("so much for so little .\n" * 50)
    sizes = "--preset tiny --steps 1 --model.vocab-size 100 --training.batch-size 4 --generator.size 1e7"
    words = f"pretrain {text} --out {tmp_path / 'run'} {sizes}"
    with pytest.raises(SystemExit):
        cli.main(shlex.split(words))
    output = " ".join(capsys.readouterr().err.split())
    assert (
        "not enough memory for an encoder of width 64 and a generator of 640,000,000; lower --model.hidden-size"
        in output
    )
