"""GLUE as a whole: the table, resuming, ensembles, MNLI first, files for the site."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from toy_tasks import save_model, write_glue

from electra.errors import DataError, UsageError
from electra.finetuning import grid, run
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.ensemble import averaged_logits, best_runs
from electra.finetuning.glue import glue_task
from electra.finetuning.grid import COLUMNS, PUBLISHED, glue
from electra.text.tokenizer import load_tokenizer


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


def test_the_table(done) -> None:
    out, results = done
    values = results["tasks"]["sst2"]["metrics"]["dev"]["accuracy"]["values"]
    assert len(values) == 3
    assert results["average"] is None  # five of the paper's tasks were not run
    table = (out / "results.md").read_text()
    assert f"{statistics.median(values):.1f} ± {statistics.stdev(values):.1f}" in table
    assert "ELECTRA-Large, 1.75M (Table 2) | 69.1" in table
    assert "ensemble of the 2 best on dev" in table
    assert "runs of the ensemble were chosen on the dev rows that are scored here, which flatters" in table
    assert "RTE and STS start from" in table
    assert json.loads((out / "results.json").read_text()) == results


def test_published_averages_are_those_of_their_rows() -> None:
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


def test_rte_s_rate_after_mnli(settings, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(grid, "finetune_once", lambda config, out: {})
    config = FinetuneConfig(task="rte", model=settings.model, data=settings.data)
    assert grid.after_mnli(config, tmp_path).learning_rate == 2e-5
    assert grid.after_mnli(FinetuneConfig(task="stsb", model=settings.model), tmp_path).learning_rate is None


def test_an_ensemble_is_the_mean_of_the_best(done, settings) -> None:
    out, results = done
    runs = [json.loads((out / "sst2" / f"seed-{seed}" / "results.json").read_text()) for seed in range(3)]
    chosen = results["best_seeds"]["sst2"]
    assert chosen == best_runs(runs, 2, "dev")
    left_out = next(iter({0, 1, 2} - set(chosen)))
    score = [each["metrics"]["dev"]["accuracy"] for each in runs]
    assert all(score[seed] >= score[left_out] for seed in chosen)
    task = glue_task("sst2", settings.data, load_tokenizer(settings.model))
    probabilities = averaged_logits(task, out / "sst2", chosen, "dev")
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    right = (probabilities.argmax(1) == task.read("dev").labels).mean()
    assert results["ensemble"]["sst2"]["dev"]["accuracy"] == pytest.approx(100 * right)


def test_files_for_the_site(done, capsys) -> None:
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


def test_the_grid_goes_on_at_the_first_missing_run(settings, tmp_path, monkeypatch) -> None:
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


def test_what_is_missing_is_said_before_anything_runs(settings, tmp_path) -> None:
    with pytest.raises(DataError, match=r"no CoLA/train\.tsv here.*--tasks"):
        glue(settings, tmp_path / "out", seeds=1)
    with pytest.raises(UsageError, match="there is no GLUE task 'squad'"):
        glue(settings, tmp_path / "out", tasks=["squad"])
    with pytest.raises(UsageError, match="--ensemble 3 needs as many seeds"):
        glue(settings, tmp_path / "out", tasks=["rte"], seeds=2, ensemble=3)
    assert not (tmp_path / "out").exists()
