"""`electra advise`: its rules and their evidence, the cost of the sizes, the recommended run and its config file."""

import csv
import json
import math
import runpy
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.errors import fails, raises
from support.places import ROOT
from support.toy import sentences

import electra
from electra import cli
from electra.commands.pretraining import resolve_pretraining
from electra.errors import DeviceError, StorageError, TextError, UsageError
from electra.pretraining.build import build_meta_model
from electra.pretraining.config import PretrainConfig
from electra.runtime.setup import RuntimeConfig
from electra.studies.advice import advise as module
from electra.studies.advice import evidence, rules
from electra.studies.advice.advise import Advice, advise
from electra.studies.advice.estimate import MAX_RATIO, SizeEstimate, choose_size, estimate_sizes
from electra.studies.advice.report import build_record, format_recipe, list_options
from electra.studies.advice.sizes import SIZES, ModelSize
from electra.studies.advice.text_sample import TextSample
from electra.studies.catalog.variants import set_objective
from electra.studies.compute import Step, compute_look_up_share, compute_step_flops
from electra.studies.paper.glue_scores import FIGURE_1
from electra.text.corpus import Corpus

RESULTS = ROOT / "docs/research/results"
HOURS = [10.0**exponent for exponent in (-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.25, 0.5, 1, 1.5, 2, 3, 4, 5)]


class Machine:
    """A machine with a constant rate, in FLOPs per second as the studies count them; it records what it measures."""

    def __init__(self, rate: float, falls: bool = False) -> None:
        self.rate, self.falls = rate, falls
        self.measured: list[tuple[int, str]] = []

    def measure(self, config: PretrainConfig) -> Step:
        self.measured.append((config.model.hidden_size, config.objective))
        flops = compute_step_flops(config)
        # With `falls`, larger models reach a smaller rate, as counted with look-ups.
        return Step(flops, flops / self.rate * (config.model.hidden_size / 64 if self.falls else 1))


def build_text(tokens: float) -> Callable[[Corpus], TextSample]:
    """Return a function that replaces the sampling: a text of so many tokens with every vocabulary."""

    class Fixed(TextSample):
        def estimate_tokens(self, vocab_size: int, cased: bool, keep_accents: bool) -> float:
            return tokens

    return lambda corpus: Fixed("text", ["a"], 4 * tokens, True)


def run(hours: float, tokens: float, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Advice:
    monkeypatch.setattr(module, "sample_text", build_text(tokens))
    return advise(Corpus(("a.txt",)), hours, RuntimeConfig("cpu"), measure=machine.measure)


def test_scores_are_those_of_the_committed_results() -> None:
    script = runpy.run_path(str(ROOT / "runs/evidence.py"), run_name="evidence")
    assert evidence.FILE.read_text() == script["format_csv"](script["collect"]()), "run python runs/evidence.py"
    rows = csv.DictReader((RESULTS / "convergence-tiny.csv").read_text().splitlines())
    tags = [float(row["tags"]) for row in rows if row["variant"] == "mlm-4"]
    score = evidence.find_scores("tiny", "mlm")[-1]
    assert (score.tags, score.tags_std, score.seeds) == (
        round(statistics.mean(tags), 2),
        round(statistics.stdev(tags), 2),
        2,
    )
    for scale, objective in (("tiny", "mlm"), ("tiny", "electra")):
        flops = [score.flops for score in evidence.find_scores(scale, objective)]
        assert len(flops) == 6, "6.25 to 100 % and four times the budget"
        assert flops == sorted(flops)


def test_the_rule_of_the_objective_follows_from_the_scores() -> None:
    bounds = [rule.below for rule in rules.OBJECTIVE_RULES]
    assert bounds == sorted(bounds)
    assert bounds[-1] == math.inf
    scores = [(mlm, electra) for scale in ("tiny", "mini") for mlm, electra in pair_scores(scale)]
    assert len(scores) == 7
    assert all(mlm.tags > other.tags - other.tags_std for mlm, other in scores), "ahead or level"
    largest = max(mlm.flops for mlm, _ in scores)
    smallest_published = min(flops for name, points in FIGURE_1.lines if name == "ELECTRA" for flops, _ in points)
    assert rules.OBJECTIVE_RULES[0].below == pytest.approx(math.sqrt(largest * smallest_published), rel=0.05)
    assert [rules.find_objective_rule(flops).objective for flops in (1e10, 1e14, 3.2e15)] == ["mlm"] * 3
    assert [rules.find_objective_rule(flops).objective for flops in (3.3e15, 1e30)] == ["electra"] * 2


def pair_scores(scale: str) -> list[tuple[evidence.Score, evidence.Score]]:
    """Pair the scores of the two objectives by budget."""
    return list(zip(*(evidence.find_scores(scale, name) for name in ("mlm", "electra")), strict=True))


def test_tokens_per_parameter_are_those_of_scale_mini_where_it_is_ahead_of_tiny() -> None:
    (mini,) = evidence.find_scores("mini", "mlm")
    tiny = evidence.find_scores("tiny", "mlm")[-1]
    assert mini.flops < tiny.flops
    assert mini.tags > tiny.tags + 3 * (mini.tags_std + tiny.tags_std)
    target = build_meta_model(set_objective(SIZES["mini"].build(), "mlm")).target
    parameters = sum(each.numel() for each in target.parameters())
    assert rules.compute_tokens_per_parameter() == mini.tokens / parameters == pytest.approx(7.41, abs=0.01)


def test_the_guide_has_the_numbers_of_the_rules() -> None:
    guide = " ".join((ROOT / "docs/guides/choosing.md").read_text().split())
    assert f"{rules.compute_tokens_per_parameter():.1f} tokens per parameter" in guide
    assert f"below {rules.OBJECTIVE_RULES[0].below:.1e} FLOPs".replace("e+", "e") in guide
    assert f"more than {rules.FEW_EPOCHS} times" in guide
    assert f"{rules.MAX_EPOCHS} epochs" in guide
    assert all(f"| `{name}` |" in guide for name in SIZES)
    assert [rule.objective for rule in rules.OBJECTIVE_RULES] == ["mlm", "electra"], "the guide gives their reasons"


def estimate(hours: float, machine: Machine, tokens: float = 1e12) -> list[SizeEstimate]:
    return estimate_sizes(SIZES, hours, lambda config: config, machine.measure, lambda vocab_size: tokens)


def test_needs_of_a_size_follow_from_a_measured_update() -> None:
    """By hand for tiny: 403,520 parameters; updates of 32 sequences of 32 tokens."""
    config = set_objective(SIZES["tiny"].build(), "mlm")
    flops = compute_step_flops(config)
    first = estimate(1.0, Machine(rate=10 * flops))[0]
    assert (first.name, first.parameters, first.step_tokens, first.is_measured) == ("tiny", 403_520, 1024, True)
    assert first.step.seconds == pytest.approx(0.1)
    tokens = 403_520 * rules.compute_tokens_per_parameter()
    assert first.needed_tokens == tokens
    assert first.needed_flops == pytest.approx(tokens / 1024 * flops)
    assert first.needed_hours == pytest.approx(tokens / 1024 * 0.1 / 3600)


def test_sizes_are_in_ascending_order() -> None:
    needed = [each.needed_flops for each in estimate(1e6, Machine(1e20))]
    assert needed == sorted(needed)


def test_sizes_far_beyond_the_hours_are_estimated_by_the_rate_of_the_size_before() -> None:
    machine = Machine(rate=1e11)
    found = estimate(1.5, machine)  # 5.4e14 FLOPs: mini fits, 4x256 needs 1.7 times as much, Small 11 times
    assert machine.measured == [(64, "mlm"), (128, "mlm"), (256, "mlm")]
    assert [each.is_measured for each in found] == [True, True, True, False, False]
    assert [each.text_tokens is None for each in found] == [False, False, True, True, True], "counted where it fits"
    before, small = found[2:4]
    assert small.needed_hours > 1.5 * MAX_RATIO
    computed = [compute_step_flops(each.config) * (1 - compute_look_up_share(each.config)) for each in (before, small)]
    assert small.step.seconds == pytest.approx(computed[1] / computed[0] * before.step.seconds)


def test_a_vocabulary_that_two_sizes_share_is_counted_once() -> None:
    counted: list[int] = []
    estimate_sizes(SIZES, 1e5, lambda config: config, Machine(1e18).measure, lambda size: counted.append(size) or 1e12)
    assert counted == [4_096, 8_192, 16_384, 30_522]


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "tokens"), [(1e9, 1e12), (1e11, 1e3), (1e11, 1e7), (1e11, 1e12), (1e14, 1e12)])
def test_more_hours_never_give_less(rate: float, tokens: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a smaller model nor fewer FLOPs nor an earlier objective."""
    names, objectives = list(SIZES), [rule.objective for rule in rules.OBJECTIVE_RULES]
    found = [run(hours, tokens, Machine(rate), monkeypatch) for hours in HOURS]
    for less, more, hours in zip(found, found[1:], HOURS[1:], strict=False):
        assert names.index(less.chosen.name) <= names.index(more.chosen.name)
        # A number of steps is rounded down.
        assert less.flops <= more.flops + compute_step_flops(more.config)
        assert objectives.index(less.config.objective) <= objectives.index(more.config.objective)
        assert more.hours <= hours or more.config.steps == 1
    assert len({each.chosen.name for each in found}) > 1 or tokens == 1e3
    falling = [run(hours, tokens, Machine(rate, falls=True), monkeypatch) for hours in HOURS]
    positions = [names.index(each.chosen.name) for each in falling]
    assert positions == sorted(positions)


def test_a_huge_text_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = run(24.0, 1e13, Machine(1e15), monkeypatch)
    assert (advice.chosen.name, advice.config.objective) == ("base", "electra")
    assert advice.epochs == advice.tokens / 1e13 < 0.02
    assert advice.warnings == []
    assert advice.hours == pytest.approx(24.0, rel=0.001)
    assert {each.metric for each in advice.expected} == {"GLUE"}
    assert [each.score for each in advice.expected] == [85.1, 82.2], "ELECTRA-Base and BERT-Base"


def test_a_tiny_text_limits_the_size_and_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = run(24.0, 1e4, Machine(1e15), monkeypatch)
    assert advice.chosen.name == "tiny"
    assert advice.config.steps == 390, "40 epochs of 1e4 tokens in updates of 1,024"
    assert advice.epochs == pytest.approx(rules.MAX_EPOCHS, rel=0.01)
    repeated, limited, short = advice.warnings
    assert "40" in limited
    assert rules.EPOCHS_SOURCE in repeated
    assert "--init" in repeated
    assert "3e+06" in short, "tokens that it needs"
    assert advice.config.length_warmup.steps == 195, "half of the steps, as in the studies"


def test_hours_that_a_tiny_text_cannot_use_do_not_choose_the_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (run(hours, 3e5, Machine(7e10), monkeypatch) for hours in (5.0, 1e5))
    assert few.config.objective == many.config.objective == "mlm"
    assert many.flops < rules.OBJECTIVE_RULES[0].below


def test_a_repeated_text_gives_a_warning_with_the_hours_of_four_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    config = set_objective(SIZES["tiny"].build(), "mlm")
    machine = Machine(rate=compute_step_flops(config))  # a second per update
    advice = run(2.0, 7200 * 1024 / 8, machine, monkeypatch)  # eight times
    assert (advice.config.steps, advice.epochs) == (7200, 8.0)
    (warning,) = advice.warnings
    assert "60 min" in warning
    assert run(1.0, 7200 * 1024 / 8, machine, monkeypatch).warnings == [], "four times"


def test_the_objective_is_measured_and_has_its_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(rate=1e12)
    below = run(0.9, 1e12, machine, monkeypatch)  # 3.2e15 FLOPs
    assert (below.config.objective, {name for _, name in machine.measured}) == ("mlm", {"mlm"})
    above = run(0.95, 1e12, machine, monkeypatch)
    assert (above.config.objective, machine.measured[-1]) == ("electra", (256, "electra"))
    assert below.chosen.name == above.chosen.name == "4x256"
    for advice, hours in ((below, 0.9), (above, 0.95)):
        assert advice.config.steps == int(hours * 3600 / (compute_step_flops(advice.config) / 1e12))
    assert above.config.loss_weight == SIZES["4x256"].build().loss_weight


def test_expected_scores_are_those_of_the_nearest_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = run(3e13 / 1e10 / 3600, 1e12, Machine(1e10), monkeypatch)
    assert advice.chosen.name == "tiny"
    mlm, other = advice.expected
    assert (mlm.objective, mlm.score, mlm.seeds) == ("mlm", 77.84, 2)
    assert (other.objective, other.score) == ("electra", 73.81)
    assert run(0.5, 1e12, Machine(1e12), monkeypatch).expected == [], "no study has run 4x256"
    small = run(1e17 / 1e13 / 3600, 1e12, Machine(1e13), monkeypatch)
    assert (small.chosen.name, [each.score for each in small.expected]) == ("small", [74.1, 75.1])


def test_the_largest_fitting_size_is_chosen_also_if_a_smaller_one_does_not_fit() -> None:
    found = estimate(10.0, Machine(1e12))
    assert choose_size(found, 10.0).name == "small"
    slow = replace(found[1], step=replace(found[1].step, seconds=1e9))
    assert choose_size([found[0], slow, *found[2:]], 10.0).name == "small"
    assert choose_size(found, 1e-9).name == "tiny", "the smallest, if none fits"


@pytest.mark.parametrize(("hours", "rate"), [(1e-3, 1e11), (1.0, 1e11), (10.0, 1e12), (1000.0, 1e14)])
def test_the_written_file_is_the_recommended_configuration(
    hours: float, rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = run(hours, 1e12, Machine(rate), monkeypatch)
    record = build_record(advice, hours)
    (tmp_path / "recipe.yaml").write_text(format_recipe(record))
    assert resolve_pretraining({}, tmp_path / "recipe.yaml", tmp_path / "out") == advice.config
    assert resolve_pretraining(record["options"], None, tmp_path / "out") == advice.config
    lines = [line[2:] for line in (tmp_path / "recipe.yaml").read_text().splitlines() if line.startswith("# ")]
    assert all(reason.split(":")[0] in " ".join(lines) for reason in advice.reasons)
    assert json.loads(json.dumps(record))["run"]["steps"] == advice.config.steps


def test_options_of_the_text_and_the_device_are_in_the_file(text: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": line}) + "\n" for line in sentences(50).split("\n")))
    given: dict[str, Any] = {"text_field": "body", "encoding_errors": "replace", "cased": True, "keep_accents": True}
    record = electra.advise(
        tmp_path / "a.jsonl",
        hours=1e-4,
        device="cpu",
        precision="float32",
        threads=1,
        write=tmp_path / "recipe.yaml",
        **given,
    )
    expected = given | {"runtime.device": "cpu", "runtime.precision": "float32", "runtime.threads": 1}
    assert expected.items() <= record["options"].items()
    assert yaml.safe_load((tmp_path / "recipe.yaml").read_text())["runtime"]["threads"] == 1
    assert electra.advise(text, hours=1e-4)["options"].keys().isdisjoint(expected)


@pytest.mark.slow
def test_a_run_starts_with_the_written_file(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    recipe = tmp_path / "recipe.yaml"
    cli.main(["advise", str(text), "--hours", "0.0005", "--threads", "1", "--write", str(recipe)])
    shown = capsys.readouterr().out
    assert "recommended" in shown
    assert all(name in shown for name in SIZES)
    assert f"--config {recipe}" in shown
    assert "! " in shown, "warnings"
    few = ["--training.batch-size", "4", "--steps", "2", "--length-warmup.steps", "0", "--workers", "1"]
    cli.main(["pretrain", str(text), "--config", str(recipe), "--out", str(tmp_path / "run"), *few])
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["step"] == 2
    assert (tmp_path / "run/masked_lm/config.json").exists(), "objective mlm"


def test_impossible_calls_are_refused(text: Path, tmp_path: Path) -> None:
    for hours in (0.0, -1.0, math.nan, math.inf, 1e6):
        with raises(UsageError, "out-of-range", "--hours"):
            electra.advise(text, hours=hours)
    with raises(TextError, "missing", "nosuch.txt"):
        electra.advise(tmp_path / "nosuch.txt", hours=1.0)
    with raises(UsageError, "no-text"):
        electra.advise([], hours=1.0)
    for content in ("", "\n\n"):
        (tmp_path / "empty.txt").write_text(content)
        with raises(TextError, "no-text", tmp_path / "empty.txt"):
            electra.advise(tmp_path / "empty.txt", hours=1.0)
    (tmp_path / "control.txt").write_text("\x01\x02\n")
    with raises(TextError, "only-control-characters"):
        electra.advise(tmp_path / "control.txt", hours=1.0)
    with raises(UsageError, "empty-option", "--write"):
        electra.advise(text, hours=1.0, write="")
    with raises(UsageError, "not-regular-file", "--write", tmp_path):
        electra.advise(text, hours=1.0, write=tmp_path)
    with raises(StorageError, "not-directory"):
        electra.advise(text, hours=1.0, write=tmp_path / "empty.txt" / "recipe.yaml")
    with raises(DeviceError, "no-gpu"):
        electra.advise(text, hours=1e-4, device="cuda")
    fails(["advise", text], "missing-option", "--hours")
    fails(["advise", "--hours", "1"], "missing-option", "TEXT")


def test_every_size_is_a_valid_run_of_both_objectives() -> None:
    for name, size in SIZES.items():
        assert isinstance(size, ModelSize)
        for objective in ("mlm", "electra"):
            config = set_objective(size.build(), objective)
            assert config.steps is not None, name
            assert list_options(config)["preset"] == config.preset
