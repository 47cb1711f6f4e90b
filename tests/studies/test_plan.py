"""Estimated cost of a study, and the budget for a number of hours."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.errors import notices, raises
from support.toy_studies import TASKS, study_config, toy_scale, toy_study
from support.toy_tasks import write_glue

from electra.errors import UsageError
from electra.finetuning import recipe
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.recipe import SizeRecipe
from electra.model.flops import discriminator_step_flops, encoder_parts, masked_lm_step_flops
from electra.pretraining.build import build_meta_model
from electra.pretraining.objectives.corruptions.masking import MaskingConfig, count_masked
from electra.pretraining.objectives.networks import compute_generator_sizes
from electra.pretraining.stages.two_stage import configure_stage_one
from electra.runtime.setup import Runtime, RuntimeConfig
from electra.studies import plan
from electra.studies.compute import (
    MAX_TIMED_FLOPS,
    Step,
    compute_hardware_share,
    compute_look_up_share,
    compute_step_flops,
    count_timed_rows,
    measure_finetuning_step,
    measure_step,
)
from electra.studies.inputs import check_tasks
from electra.studies.plan import StepTimer, compute_budget, make_plan
from electra.studies.run import run_study


class ConstantTimer(StepTimer):
    """A timer with constant results."""

    def step(self, config) -> Step:
        return Step(compute_step_flops(config), 0.01 if config.objective == "electra" else 0.005)

    def finetuning_seconds(self, task, pretraining) -> float:
        return 7.0 if task.name == "sst2" else 2.0


def plan_study(study, glue: Path, seeds: int = 3, workers: int = 2, finetune_seeds: int = 1):
    tasks = check_tasks(TASKS, str(glue))
    runs = {variant.name: seeds for variant in study.variants}
    return make_plan(study, runs, tasks, finetune_seeds, workers, ConstantTimer(RuntimeConfig("cpu")))


def test_step_flops_equal_the_formula() -> None:
    config = replace(toy_scale().config, seq_len=24)
    k = int(count_masked(torch.tensor([24]), config.masking.fraction))
    generator = masked_lm_step_flops(compute_generator_sizes(config.model, config.generator), 24, k)
    assert compute_step_flops(config) == 4 * (discriminator_step_flops(config.model, 24) + generator)
    assert compute_step_flops(replace(config, objective="mlm")) == 4 * masked_lm_step_flops(config.model, 24, k)


def test_step_flops_of_a_changing_masked_share_are_the_mean_over_the_run() -> None:
    """Steps of this number and of a budget of FLOPs spend the same."""
    config = replace(toy_scale().config, seq_len=24, objective="mlm", masking=MaskingConfig(0.5, final_fraction=0.1))
    model, steps = build_meta_model(config), 250
    spent = 0
    for step in range(steps):
        model.set_progress((step + 0.5) / steps)
        spent += 4 * model.row_flops(24)
    assert compute_step_flops(config) * steps == pytest.approx(spent, rel=1e-3)
    constant = [replace(config, masking=MaskingConfig(fraction)) for fraction in (0.5, 0.1)]
    largest, least = map(compute_step_flops, constant)
    assert least < compute_step_flops(config) < largest
    shares = [compute_look_up_share(each) for each in (*constant[::-1], config)]
    assert shares[0] > shares[2] > shares[1]
    two_stages = replace(config, objective="electra", procedure="two-stage-scratch")
    mean = compute_step_flops(two_stages)
    first, last = (
        compute_step_flops(each) for each in (configure_stage_one(two_stages), replace(two_stages, procedure="joint"))
    )
    assert mean < (first + last) / 2, "the second stage's generator has no backward pass"
    assert measure_step(replace(config, runtime=RuntimeConfig("cpu", threads=1))).flops == compute_step_flops(config)


def test_look_ups_are_a_share_of_the_flops() -> None:
    config = replace(toy_scale().config, seq_len=24, objective="mlm")
    look_up = encoder_parts(config.model, 24)["embedding look-up"]
    k = int(count_masked(torch.tensor([24]), config.masking.fraction))
    flops = masked_lm_step_flops(config.model, 24, k)
    assert compute_look_up_share(config) == pytest.approx(2 * look_up / flops)
    assert compute_hardware_share(config) == pytest.approx(3 * (flops / 2 - look_up) / flops)


def test_measured_step_takes_time() -> None:
    config = replace(toy_scale().config, runtime=RuntimeConfig("cpu", threads=1))
    step = measure_step(config)
    assert step.flops == compute_step_flops(config)
    assert step.seconds > 0
    assert measure_finetuning_step(config.model, 16, 32, config.runtime) > 0


def test_timed_rows_are_limited_on_a_cpu() -> None:
    cpu, gpu = (Runtime(torch.device(name), torch.float32) for name in ("cpu", "cuda"))
    assert count_timed_rows(128, MAX_TIMED_FLOPS / 9, cpu) == 9
    assert count_timed_rows(128, 2 * MAX_TIMED_FLOPS, cpu) == 1
    assert count_timed_rows(128, MAX_TIMED_FLOPS / 9, gpu) == 128


def test_plan_counts_steps_hours_and_fine_tuning(glue: Path) -> None:
    study = replace(toy_study(toy_scale()), budget=1e9)
    plan = plan_study(study, glue, finetune_seeds=2)
    rows = {row.variant.name: row for row in plan.rows}
    assert rows["electra"].steps == pytest.approx(1e9 / compute_step_flops(toy_scale().config))
    assert rows["electra"].flops == pytest.approx(1e9)
    assert rows["untrained"].steps == 1
    assert rows["mlm"].seconds == pytest.approx(rows["mlm"].steps * 0.005)
    assert {row.finetuning_seconds for row in plan.rows} == {18.0}
    assert {row.finetuning_seconds for row in plan_study(study, glue, finetune_seeds=0).rows} == {0.0}
    assert plan.finetuning_hours == pytest.approx(3 * 4 * 18 / 3600 / 2)
    steps = replace(study, equal="steps", budget=50.0)
    assert [row.steps for row in plan_study(steps, glue).rows] == [50, 50, 50, 1]


@pytest.mark.parametrize(("hidden_size", "epochs"), [(16, 7.0), (256, 3.0)])
def test_time_of_fine_tuning_follows_the_epochs_of_the_size(
    hidden_size: int, epochs: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MRPC has 40 pairs, which are trained in both orders; a narrow encoder has more epochs over few examples."""
    narrow = SizeRecipe("here", 1e-3, 0.8, "mean", ((80, 7.0),))
    monkeypatch.setattr(recipe, "SIZES", (*(each for each in recipe.SIZES if each[0]), (0, narrow)))
    monkeypatch.setattr(plan, "measure_finetuning_step", lambda *arguments: 2.0)
    task = check_tasks(["mrpc"], str(write_glue(tmp_path, rows=40)))["mrpc"]
    config = toy_scale().config
    config = replace(config, model=replace(config.model, hidden_size=hidden_size))
    seconds = StepTimer(RuntimeConfig("cpu")).finetuning_seconds(task, config)
    assert seconds == pytest.approx(2.0 * epochs * 80 / FinetuneConfig().batch_size)


@pytest.mark.parametrize("equal", ["flops", "steps"])
def test_budget_fits_into_the_hours(equal, glue: Path) -> None:
    study = replace(toy_study(toy_scale()), budget=1e9 if equal == "flops" else 1e3, equal=equal)
    plan = plan_study(study, glue)
    fitting = replace(study, budget=compute_budget(plan, 2.0))
    then = plan_study(fitting, glue)
    assert then.training_hours + then.finetuning_hours == pytest.approx(2.0, rel=0.01)
    with raises(UsageError, "too-few-hours", "--hours 0.001", "0.015 h"):
        compute_budget(plan, 0.001)


@pytest.mark.slow
def test_budget_by_hours_is_computed_once(text: Path, glue: Path, tmp_path: Path) -> None:
    out, words = tmp_path / "study", {"variants": ("untrained",), "tasks": ("sst2",)}
    out.mkdir()
    (out / ".study.json.123.partial").write_text("{")  # of a call that was killed
    first = run_study(study_config(text, glue, out, hours=0.5, **words))
    for hours in (None, 0.5):
        assert run_study(study_config(text, glue, out, hours=hours, **words))["budget"] == first["budget"]


@pytest.mark.slow
def test_dry_run_writes_nothing(text: Path, glue: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    out = tmp_path / "study"
    plan = run_study(study_config(text, glue, out, hours=0.5, variants=("electra", "mlm")), dry_run=True)
    assert not out.exists()
    assert [row["variant"] for row in plan["rows"]] == ["electra", "mlm"]
    assert plan["hours"] == pytest.approx(0.5, rel=0.1)
    assert plan["rows"][0]["flops"] == pytest.approx(plan["budget"])
    (todo,) = notices(caplog, "study")
    assert "2 variants" in todo
    assert "2 runs" in todo
    assert plan["summary"][1][0] == "electra"
    assert plan["summary"][2][3] == f"{plan['rows'][1]['steps']:,.0f}"
    assert len(notices(caplog, "time-estimate")) == 1
