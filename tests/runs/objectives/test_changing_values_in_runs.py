"""Runs with options that change over training: values by progress, budgets, interruptions, micro-batches, two stages."""

import itertools
import json
from itertools import pairwise
from pathlib import Path

import pytest
from support.callbacks import AtStep, CrashError, crash
from support.toy import TINY_RUN, trace, weights

import electra
from electra.train import loop
from electra.train.metrics_log import read_metrics

CHANGING = {
    "masking": {"fraction": 0.4, "final_fraction": 0.1, "strategy": "span"},
    "generator": {
        "size": 0.5,
        "temperature": 2.0,
        "final_temperature": 0.5,
        "frequency_share": 0.8,
        "final_frequency_share": 0.0,
        "loss_weight": 1.0,
        "final_loss_weight": 0.25,
    },
}
METRICS = {
    "masking_fraction": (0.4, 0.1),
    "generator_temperature": (2.0, 0.5),
    "generator_frequency_share": (0.8, 0.0),
    "generator_loss_weight": (1.0, 0.25),
}
"""Metrics, and their values at the beginning and at the end of a run."""


def run(text: Path, out: Path, **options: object) -> list[dict]:
    """Train with changing values; returns the rows of the log."""
    electra.pretrain(str(text), out=str(out), **TINY_RUN | CHANGING | options)
    return list(read_metrics(out / "metrics.jsonl"))


def assert_follows(rows: list[dict], done: list[float]) -> None:
    """Check the values of each row, where `done` of the run is over."""
    for name, (first, last) in METRICS.items():
        expected = [first + share * (last - first) for share in done]
        assert [row[name] for row in rows] == pytest.approx(expected, abs=1e-9), name


@pytest.mark.slow
def test_values_change_with_the_steps(text: Path, tmp_path: Path) -> None:
    """At the middle of an update, as the learning rate. The held-out metrics have final values, also later."""
    rows = run(text, tmp_path / "run")
    assert_follows(rows, [(step + 0.5) / 12 for step in range(12)])
    constant = run(text, tmp_path / "constant", masking={"fraction": 0.4})
    spent = [[b["flops"] - a["flops"] for a, b in pairwise([{"flops": 0.0}, *each])] for each in (rows, constant)]
    ratios = [ours / theirs for ours, theirs in zip(*spent, strict=True)]
    assert 1.0 > ratios[0] > ratios[6] > ratios[-1] > 0.5, "an update costs less with fewer predictions"
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert not METRICS.keys() & summary["heldout"].keys()
    assert electra.evaluate(str(tmp_path / "run")) == pytest.approx(summary["heldout"], nan_ok=True)
    assert "40% to 10% of the tokens" in (tmp_path / "run/report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_budget_of_flops_is_spent(share: float, text: Path, tmp_path: Path) -> None:
    """The update that reaches the budget is the last; values follow the FLOPs before each update."""
    by_steps = run(text, tmp_path / "steps")
    budget = share * by_steps[-1]["flops"]
    rows = run(text, tmp_path / "flops", steps=None, flops=budget)
    before = [0.0, *(row["flops"] for row in rows[:-1])]
    assert before[-1] < budget <= rows[-1]["flops"]
    assert_follows(rows, [flops / budget for flops in before])


@pytest.mark.slow
def test_values_change_with_the_time(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that advances by 2 ms per call, which the loop calls twice in an update."""
    ticks = itertools.count()
    monkeypatch.setattr(loop.Clock, "seconds", lambda self: next(ticks) * 0.002)
    rows = run(text, tmp_path / "run", steps=None, hours=0.1 / 3600)
    starts = [row["seconds"] - 0.002 for row in rows]
    assert_follows(rows, [seconds / 0.1 for seconds in starts])


@pytest.mark.slow
def test_an_interrupted_run_ends_bit_for_bit_the_same(text: Path, tmp_path: Path) -> None:
    run(text, tmp_path / "whole")
    out = tmp_path / "interrupted"
    for step in (3, 7, 11):
        with pytest.raises(CrashError):
            electra.pretrain(str(text), out=str(out), callbacks=[AtStep(step, crash)], **TINY_RUN | CHANGING)
    run(text, out)
    assert trace(out) == trace(tmp_path / "whole")
    assert weights(out) == weights(tmp_path / "whole")
    summaries = [json.loads((each / "summary.json").read_text())["heldout"] for each in (out, tmp_path / "whole")]
    assert summaries[0] == summaries[1]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["span", "word", "uniform"])
def test_micro_batches_do_not_change_a_run(strategy: str, text: Path, tmp_path: Path) -> None:
    sizes = TINY_RUN["model"] | {"dropout": 0.0, "attention_dropout": 0.0}
    masking = CHANGING["masking"] | {"strategy": strategy}
    names = ("loss", "generator_loss", "discriminator_loss", "sampled_accuracy", "gradient_norm", "replaced")
    losses = []
    for size in (8, 2):
        training = TINY_RUN["training"] | {"micro_batch_size": size}
        rows = run(text, tmp_path / str(size), model=sizes, training=training, masking=masking)
        losses.append([[row[name] for name in names] for row in rows])
    for row, expected in zip(*losses, strict=True):
        assert row == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["steps", "flops"])
def test_values_change_in_each_stage(budget: str, text: Path, tmp_path: Path) -> None:
    """As the learning rate: each stage has a schedule of its own. Both have as many updates, also with a budget of FLOPs."""
    options = {"procedure": "two-stage-scratch"}
    rows = run(text, tmp_path / "run", **options)
    if budget == "flops":
        first = list(read_metrics(tmp_path / "run/first-stage/metrics.jsonl"))
        flops = first[-1]["flops"] + rows[-1]["flops"]
        rows = run(text, tmp_path / "flops", steps=None, flops=flops, **options)
        numbers = [len(list(read_metrics(tmp_path / f"flops/{stage}metrics.jsonl"))) for stage in ("first-stage/", "")]
        assert abs(numbers[0] - numbers[1]) <= 1
        assert sum(numbers) == pytest.approx(12, abs=1)
        return
    assert_follows(rows, [(step + 0.5) / 6 for step in range(6)])
    first = list(read_metrics(tmp_path / "run/first-stage/metrics.jsonl"))
    fractions = [0.4 - 0.3 * (step + 0.5) / 6 for step in range(6)]
    assert [row["masking_fraction"] for row in first] == pytest.approx(fractions)
    assert "generator_temperature" not in first[0], "the first stage has no generator"
