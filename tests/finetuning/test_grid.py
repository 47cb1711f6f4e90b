"""The GLUE benchmark: the table, resuming, ensembles, intermediate training on MNLI, files for the GLUE site."""

import json
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.errors import check_message, notices, raises
from support.toy_tasks import save_model, write_glue, write_wnli
from torch import nn

import electra
from electra.errors import DataError, ModelError, UsageError
from electra.finetuning import run
from electra.finetuning.benchmark import grid
from electra.finetuning.benchmark.ensemble import average_logits, select_best_runs
from electra.finetuning.benchmark.grid import glue
from electra.finetuning.benchmark.score_table import COLUMNS, PUBLISHED, list_notes
from electra.finetuning.classification.glue import load_glue_task
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.run import finetune
from electra.text.tokenizer import load_tokenizer
from electra.train.checkpoint import TrainingState


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> FinetuneConfig:
    model = save_model(tmp_path_factory.mktemp("model"))
    data = write_glue(tmp_path_factory.mktemp("glue"), rows=32)
    return FinetuneConfig(model=str(model), data=str(data), epochs=1.0, learning_rate=1e-2)


@pytest.fixture(scope="module")
def done(settings: FinetuneConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("grid")
    return out, glue(
        settings, out, tasks=["sst2", "rte", "stsb"], seeds=3, ensemble=2, intermediate=True, submission=True
    )


@pytest.mark.slow
def test_table(done) -> None:
    out, results = done
    values = results["tasks"]["sst2"]["metrics"]["dev"]["accuracy"]["values"]
    assert len(values) == 3
    assert results["average"] is None  # five of the paper's tasks were not run
    table = (out / "results.md").read_text()
    assert f"{statistics.median(values):.1f} ± {statistics.stdev(values):.1f}" in table
    assert "ELECTRA-Large, 1.75M (Table 2) | 69.1" in table
    assert "| ensemble of the 2 " in table
    notes = list_notes(results)
    assert all(note in table for note in notes)
    assert len(list_notes({**results, "intermediate": False})) == len(notes) - 1
    assert len(list_notes({name: results[name] for name in results if name != "ensemble"})) == len(notes) - 1
    assert json.loads((out / "results.json").read_text()) == results


def test_published_averages_are_the_means_of_their_rows() -> None:
    assert all(len(row) == len(COLUMNS) + 1 for row in PUBLISHED.values())
    for *scores, average in PUBLISHED.values():
        if scores[0] is not None:
            assert statistics.fmean(scores) == pytest.approx(average, abs=0.06)


def test_rte_and_sts_start_from_mnli(done, settings) -> None:
    out, _ = done
    assert (out / "mnli" / "seed-0" / "results.json").exists()
    starts = {task: (out / task / "seed-0" / "config.yaml").read_text() for task in ("sst2", "rte", "stsb")}
    assert "mnli/seed-0/model" in starts["rte"]
    assert "mnli/seed-0/model" in starts["stsb"]
    assert "mnli" not in starts["sst2"]


def test_learning_rate_of_rte_after_mnli(settings, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(grid, "run_seeds", lambda config, out, seeds, callbacks: ([{"seed": config.seed}], []))
    config = FinetuneConfig(task="rte", model=settings.model, data=settings.data)
    assert grid.start_from_mnli(config, tmp_path).learning_rate == 2e-5
    assert grid.start_from_mnli(FinetuneConfig(task="stsb", model=settings.model), tmp_path).learning_rate is None


def test_ensemble_is_the_mean_of_the_best(done, settings) -> None:
    out, results = done
    runs = [json.loads((out / "sst2" / f"seed-{seed}" / "results.json").read_text()) for seed in range(3)]
    chosen = results["best_seeds"]["sst2"]
    assert chosen == select_best_runs(runs, 2, "dev")
    left_out = next(iter({0, 1, 2} - set(chosen)))
    score = [each["metrics"]["dev"]["accuracy"] for each in runs]
    assert all(score[seed] >= score[left_out] for seed in chosen)
    task = load_glue_task("sst2", settings.data, load_tokenizer(settings.model))
    probabilities = average_logits(task, out / "sst2", chosen, "dev")
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    right = (probabilities.argmax(1) == task.read("dev").labels).mean()
    assert results["ensemble"]["sst2"]["dev"]["accuracy"] == pytest.approx(100 * right)


def test_files_for_the_site(done) -> None:
    out, _ = done
    assert {path.name for path in (out / "submission").iterdir()} == {"SST-2.tsv", "RTE.tsv", "STS-B.tsv"}
    lines = (out / "submission" / "RTE.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == [str(i) for i in range(8)]
    assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}
    similarities = [
        float(line.split("\t")[1]) for line in (out / "submission" / "STS-B.tsv").read_text().splitlines()[1:]
    ]
    assert all(0 <= value <= 5 for value in similarities)


@pytest.mark.slow
def test_ax_and_wnli(settings, tmp_path, caplog) -> None:
    """AX is predicted by the models of MNLI; WNLI is scored by candidates, and its runs are averaged as for other tasks."""
    data = write_wnli(write_glue(tmp_path / "glue", rows=32))
    config = replace(settings, data=str(data))
    results = glue(config, tmp_path / "out", tasks=["ax,wnli"], seeds=2, ensemble=2, submission=True)
    assert list(results["tasks"]) == ["mnli", "wnli"]
    written = {path.name: path.read_text().splitlines() for path in (tmp_path / "out" / "submission").iterdir()}
    assert written.keys() == {"MNLI-m.tsv", "AX.tsv", "WNLI.tsv"}
    assert written["AX.tsv"][1].split("\t")[1] in ("contradiction", "entailment", "neutral")
    runs = [tmp_path / "out" / "wnli" / f"seed-{seed}" for seed in (0, 1)]
    margins = []
    for each in runs:
        rows = [json.loads(line) for line in (each / "predictions-test.jsonl").read_text().splitlines()]
        margins.append([row["score"] - row["rival"] for row in rows])
    follows = (1 / (1 + np.exp(-np.array(margins)))).mean(0) > 0.5
    assert written["WNLI.tsv"] == ["index\tprediction", *(f"{i}\t{int(each)}" for i, each in enumerate(follows))]
    assert results["ensemble"]["wnli"]["dev"]["accuracy"] == pytest.approx(
        100 * np.mean(follows == [True, False, True])
    )
    table, notes = (tmp_path / "out" / "results.md").read_text(), list_notes(results)
    assert all(note in table for note in notes)
    assert len(list_notes({**results, "tasks": {}})) == len(notes) - 1
    [message] = notices(caplog, "incomplete-submission")
    check_message(message, "CoLA.tsv")


def test_resolve_task_names(settings, tmp_path) -> None:
    data = settings.data
    assert grid.resolve_task_names(["cola,rte", "sst2, rte"], data, False) == ["cola", "rte", "sst2"]
    assert grid.resolve_task_names(["ax", "mnli"], data, False) == ["mnli"]
    assert grid.resolve_task_names([], data, False) == grid.resolve_task_names([], data, True) == list(COLUMNS)
    assert grid.resolve_task_names([], str(write_wnli(tmp_path)), True) == [*COLUMNS, "wnli"]
    with raises(DataError, "missing", "AX/diagnostic.tsv"):
        grid.resolve_task_names(["ax"], str(tmp_path), False)


def test_wnli_needs_the_head_of_the_discriminator(settings, tmp_path) -> None:
    data = write_wnli(write_glue(tmp_path / "glue", rows=32))
    finetune(replace(settings, task="sst2"), tmp_path / "sst2")
    config = replace(settings, data=str(data), model=str(tmp_path / "sst2"))
    with raises(ModelError, "missing-weight", "discriminator_predictions", "--tasks"):
        glue(config, tmp_path / "out", tasks=["rte", "wnli"], seeds=1)
    assert not (tmp_path / "out").exists()


def test_warnings_are_logged_once(settings, tmp_path, caplog) -> None:
    """The files are read twice: all of them before the first run, to find missing ones, and those of each run."""
    data = write_glue(tmp_path / "glue", rows=32)
    with (data / "SST-2" / "train.tsv").open("a") as file:
        file.write("half a row\n")
    glue(replace(settings, data=str(data), skip_bad_rows=True), tmp_path / "out", tasks=["sst2"], seeds=1)
    [message] = notices(caplog, "skipped-rows")
    check_message(message, "train.tsv", 1)


@pytest.mark.slow
def test_kill_9(settings, tmp_path) -> None:
    """Kill the process with SIGKILL after the end of a run and after the start of one, then resume.

    The results equal those of an uninterrupted grid.
    """
    words = ["--model", settings.model, "--data", settings.data, "--tasks", "sst2,rte", "--seeds", "2"]
    command = [sys.executable, "-m", "electra", "glue", *words, "--epochs", "1", "--learning-rate", "1e-2"]
    out = tmp_path / "killed"
    for moment in ("sst2/seed-0/results.json", "rte/seed-0/config.yaml"):
        process = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL)
        while process.poll() is None and not (out / moment).exists():
            time.sleep(0.01)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    first = (out / "sst2/seed-0/results.json").stat().st_mtime_ns
    killed, whole = (glue(settings, each, tasks=["sst2", "rte"], seeds=2) for each in (out, tmp_path / "whole"))
    assert (out / "sst2/seed-0/results.json").stat().st_mtime_ns == first, "finished runs are not repeated"
    for task in ("sst2", "rte"):
        assert killed["tasks"][task]["metrics"] == whole["tasks"][task]["metrics"]
        weights = [load_file(each / task / "seed-1/model/model.safetensors") for each in (out, tmp_path / "whole")]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_grid_resumes_at_the_first_missing_run(settings, tmp_path, monkeypatch) -> None:
    glue(settings, tmp_path, tasks=["sst2"], seeds=2)
    (tmp_path / "sst2" / "seed-1" / "results.json").unlink()
    trained = []
    train_model = run.train_model

    def counted(each, *rest):
        trained.append(each.config.seed)
        return train_model(each, *rest)

    monkeypatch.setattr(run, "train_model", counted)
    results = glue(settings, tmp_path, tasks=["sst2"], seeds=3)
    assert trained == [1, 2]
    assert results["tasks"]["sst2"]["seeds"] == [0, 1, 2]


class StartRecorder(electra.Callback):
    """Records the step at which each run starts."""

    def __init__(self) -> None:
        self.starts: list[int] = []

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        self.starts.append(state.step)


def test_callbacks_of_every_run(settings, tmp_path) -> None:
    """Every seed of every task calls them, and so does the run on MNLI that RTE starts from; finished runs do not."""
    recorder = StartRecorder()
    options = {"model": settings.model, "data": settings.data, "epochs": 1, "learning_rate": 1e-2}
    options |= {"out": tmp_path, "tasks": ["sst2", "rte"], "intermediate": True, "callbacks": [recorder]}
    electra.glue(**options, seeds=1)
    assert recorder.starts == [0] * 3
    electra.glue(**options, seeds=2)
    assert recorder.starts == [0] * 5


def test_missing_files_are_found_before_the_first_run(settings, tmp_path) -> None:
    with raises(DataError, "missing", "CoLA/train.tsv", "--tasks"):
        glue(settings, tmp_path / "out", seeds=1)
    with raises(UsageError, "unknown-task", "'squad'"):
        glue(settings, tmp_path / "out", tasks=["squad"])
    with raises(UsageError, "too-few-seeds", "--ensemble", 3, "--seeds", 2):
        glue(settings, tmp_path / "out", tasks=["rte"], seeds=2, ensemble=3)
    with raises(UsageError, "meaningless-option", "--text", "rte"):
        glue(replace(settings, text="sentence"), tmp_path / "out", tasks=["rte"], seeds=1)
    assert not (tmp_path / "out").exists()
