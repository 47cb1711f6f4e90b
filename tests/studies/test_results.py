"""Rows, tables and figures from records: spreads, missing runs, unequal compute, the paper's scores."""

import csv
import io
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from support.toy_studies import TASKS, study_config, toy_scale

from electra.studies.catalog import STUDIES
from electra.studies.instruments import EvalConfig
from electra.studies.paper.run_costs import count_costs
from electra.studies.reporting.figures import draw, write_figures
from electra.studies.reporting.notes import list_compute_notes
from electra.studies.reporting.results import Results, to_csv
from electra.studies.reporting.table import to_markdown
from electra.studies.run import build_trial
from electra.studies.study import Study


def record(score: float, flops: float, seed: int) -> dict:
    return {
        "seed": seed,
        "step": 100,
        "tokens": 1e4,
        "flops": flops,
        "seconds": 90.0,
        "heldout": {"loss": score / 10, "auc": 0.6},
        "finetuned": {task: {"metric": "accuracy", "median": score, "values": [score]} for task in TASKS},
        "probed": {task: {"last": score - 1, "best": score + 1, "layer": 2} for task in TASKS},
    }


def results_of(name: str, out: Path, scores, seeds: int = 2) -> Results:
    """Build a toy study with given records; `scores` returns the record or failure of a variant and seed, or None."""
    study: Study = STUDIES[name](replace(toy_scale(), name="tiny"))  # whose neighbors the paper has numbers of
    config = study_config(Path("text"), Path("glue"), out)
    trials = {
        variant.name: [
            build_trial(study, variant, seed, config, "data", EvalConfig("glue", TASKS)) for seed in range(seeds)
        ]
        for variant in study.variants
    }  # fmt: skip
    for variant in study.variants:
        for trial in trials[variant.name]:
            if (found := scores(study, variant, trial.config.seed)) is not None:
                trial.path.parent.mkdir(parents=True, exist_ok=True)
                trial.path.write_text(json.dumps({"variant": variant.name, "seed": trial.config.seed, **found}))
    return Results.collect(study, "toy", TASKS, trials)


def good(study: Study, variant, seed: int) -> dict:
    """Return scores that are ten points higher for ELECTRA than for BERT and rise with compute."""
    flops = study.target(variant) or 1.0
    return record((60.0 if variant.line == "ELECTRA" else 50.0) + 4 * variant.share + seed, flops, seed)


@pytest.mark.slow
def test_unequal_compute_is_reported(tmp_path: Path) -> None:
    def scores(study, variant, seed):
        spent = 1.02 if (variant.name, seed) == ("mlm-1", 1) else 1.005
        return record(50.0, spent * study.target(variant), seed)

    results = results_of("efficiency", tmp_path, scores)
    assert results.find_off_budget() == {("BERT, 1 of the budget", 1): pytest.approx(1.02)}
    assert any(
        "BERT, 1 of the budget, seed 1" in line and "102.0%" in line for line in to_markdown(results).splitlines()
    )
    equal = results_of("efficiency", tmp_path / "equal", good)
    assert equal.find_off_budget() == {}
    assert "102.0%" not in to_markdown(equal)
    assert set(list_compute_notes(equal)) - set(list_compute_notes(results)), "the note that all runs are equal"


def test_budget_in_steps_is_reported_as_updates(tmp_path: Path) -> None:
    def scores(study, variant, seed):
        return {**record(50.0, 1e9, seed), "step": 500 + 20 * (variant.name == "all")}

    results = results_of("tying", tmp_path, scores)
    (label,) = {outcome.variant.label for outcome in results.outcomes if outcome.variant.name == "all"}
    assert results.find_off_budget() == {(label, seed): pytest.approx(1.04) for seed in (0, 1)}
    page = to_markdown(results)
    assert "Equal updates: 500 for each run." in page
    assert "| Train FLOPs | 1e+09 | 1e+09 | 1e+09 |" in page


def test_summary_counts_the_main_encoder(tmp_path: Path) -> None:
    """Table 1's inference FLOPs and parameters are those of the main encoder, without other networks."""
    results = results_of("tying", tmp_path, good)
    config = results.study.variants[0].config
    counted = count_costs(config)
    rows = dict(line.strip("| ").split(" | ", 1) for line in to_markdown(results).splitlines() if line.startswith("| "))
    assert {float(each) for each in rows["Infer FLOPs"].split(" | ")} == {float(f"{counted['inference_flops']:.3g}")}
    size = f"{counted['parameters']['main encoder'] / 1e6:.3g}M"
    assert rows["Params"].split(" | ") == [size] * 3


@pytest.mark.slow
def test_heldout_table_has_the_generators_accuracies(tmp_path: Path) -> None:
    """Appendix F: 58 % against 65 %."""

    def scores(study: Study, variant, seed: int) -> dict:
        accuracy = {"electra-1": 0.65, "adversarial-1": 0.58}.get(variant.name)
        known = good(study, variant, seed)
        return known | {"heldout": known["heldout"] | ({"generator_accuracy": accuracy} if accuracy else {})}

    page = to_markdown(results_of("training-algorithms", tmp_path, scores, seeds=1)).split("## Held-out text")[1]
    header, *rows = (line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| "))
    place = header.index("generator accuracy")
    found = {row[0]: row[place] for row in rows if len(row) > place and row[place].strip()}
    assert found["ELECTRA, 1 of the budget"] == "0.650"
    assert found["adversarial, 1 of the budget"] == "0.580"


@pytest.mark.slow
def test_spreads_failures_and_missing_runs(tmp_path: Path) -> None:
    def scores(study, variant, seed):
        if variant.name == "mlm-0.25":
            return {"failed": "step 7: the gradients are not finite | numbers"} if seed else None
        return good(study, variant, seed)

    results = results_of("efficiency", tmp_path, scores)
    page = to_markdown(results)
    line = next(line for line in page.splitlines() if line.startswith("| ELECTRA, 1 of the budget |"))
    mean, std = statistics.fmean([64, 65]), statistics.stdev([64, 65])
    assert f"| {mean:.1f} ± {std:.1f} | {mean + 1:.1f} ± {std:.1f} | {mean - 1:.1f} ± {std:.1f} | 79.9 |" in line
    assert "| 2 |" in line
    assert "- Failed: BERT, 0.25 of the budget, seed 1: step 7: the gradients are not finite | numbers" in page
    assert "- Not run yet: BERT, 0.25 of the budget, seed 0" in page
    rows = list(csv.DictReader(io.StringIO(to_csv(results))))
    assert len(rows) == 2 * len(results.study.variants)
    status = {(row["variant"], row["seed"]): row["status"] for row in rows}
    assert status["mlm-0.25", "0"] == "not run"
    assert status["mlm-0.25", "1"].startswith("failed: step 7")
    assert float(rows[0]["heldout_auc"]) == 0.6
    assert float(rows[0]["probe_layer_sst2"]) == 2


def tuned(values: list[float]):
    """Return records with that many fine-tuning runs per task, for BERT always one."""

    def scores(study: Study, variant, seed: int) -> dict:
        score = {"metric": "accuracy", "median": statistics.median(values), "values": values}
        known = good(study, variant, seed)
        return known if variant.line == "BERT" else {**known, "finetuned": dict.fromkeys(TASKS, score)}

    return scores


@pytest.mark.slow
def test_fine_tuning_runs_and_their_spread_are_reported(tmp_path: Path) -> None:
    equal = to_markdown(results_of("convergence", tmp_path / "equal", good))
    assert "- A fine-tuned score is of one run." in equal
    assert "over the fine-tuning runs of one encoder" not in equal
    several = results_of("convergence", tmp_path / "several", tuned([50.0, 60.0, 61.0]))
    page = to_markdown(several)
    assert "- Not equal: the fine-tuning runs behind a score (ELECTRA, 0.25 of the budget 3," in page
    assert "BERT, 4 of the budget 1)" in page
    assert "| ELECTRA, 4 of the budget | 6.1 ± 0.0 | 6.1 ± 0.0 |" in page
    row, *_ = csv.DictReader(io.StringIO(to_csv(several)))
    assert float(row["finetuning_runs"]) == 3
    assert float(row["finetuning_std_sst2"]) == pytest.approx(statistics.stdev([50, 60, 61]))


@pytest.mark.slow
def test_tag_probe_is_reported(tmp_path: Path) -> None:
    def tagged(study: Study, variant, seed: int) -> dict:
        found = {"layers": [70.0, 80.0, 75.0], "layer": 1, "source": "test.txt (SHA-256 0)", "split": "test"}
        known = good(study, variant, seed)
        return known if variant.line == "BERT" else {**known, "tags": found}

    results = results_of("convergence", tmp_path, tagged)
    page = to_markdown(results)
    assert "| ELECTRA, 4 of the budget | 70.0 ± 0.0 | 80.0 ± 0.0 | 75.0 ± 0.0 | 1.0 ± 0.0 |" in page
    assert "words (test of test.txt (SHA-256 0))" in page
    assert "- Scored in part: BERT, 4 of the budget, seed 1; not yet on tags" in page
    rows = list(csv.DictReader(io.StringIO(to_csv(results))))
    status = {row["line"]: row["status"] for row in rows}
    assert status == {"ELECTRA": "done", "BERT": "scored in part"}
    assert float(rows[0]["tags"]) == 80
    titles = [axes.get_title() for axes in draw(results).axes]
    assert "linear probe of words' tags, best layer" in titles
    assert "Tags" not in to_markdown(results_of("convergence", tmp_path / "none", good))


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "shown"), [(1, "2"), (2, "2.0 ± 0.0")])
def test_best_layer_of_one_seed_is_an_integer(seeds: int, shown: str, tmp_path: Path) -> None:
    page = to_markdown(results_of("convergence", tmp_path, good, seeds))
    assert f"| ELECTRA, 4 of the budget | {' | '.join([shown] * len(TASKS))} |" in page.split("Best layer (0")[1]


def test_failure_keeps_existing_scores(tmp_path: Path) -> None:
    results_of("tying", tmp_path, good, seeds=1)
    study = STUDIES["tying"](toy_scale())
    trials = {
        variant.name: [build_trial(study, variant, 0, study_config(Path("text"), Path("glue"), tmp_path), "data", EvalConfig("glue", TASKS))]
        for variant in study.variants
    }  # fmt: skip
    trials["none"][0].fail("the disk is full")
    results = Results.collect(study, "toy", TASKS, trials)
    row, *others = csv.DictReader(io.StringIO(to_csv(results)))
    assert len(others) == 2
    assert (row["status"], float(row["average"])) == ("failed: the disk is full", 54.0)
    assert "- Failed: no tying, seed 0: the disk is full" in to_markdown(results)
    assert not trials["none"][0].is_finished()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "toy"])
def test_every_study_has_a_figure(name: str, tmp_path: Path) -> None:
    results = results_of(name, tmp_path, good)
    write_figures(results, tmp_path)
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    drawing = (tmp_path / "figure.svg").read_text()
    study = results.study
    if study.axis is None:
        words = [variant.label for variant in study.variants]
    else:
        words = [study.axis.label, *study.axis.ticks, *{variant.line for variant in study.variants}]
    for word in words:
        assert word in drawing
    assert ("the paper: " in drawing) == bool(study.published.lines or study.variants[0].published)


@pytest.mark.slow
def test_equal_results_give_equal_files(tmp_path: Path) -> None:
    results = results_of("tying", tmp_path, good)
    drawings = []
    for _ in range(2):
        write_figures(results, tmp_path)
        drawings.append((tmp_path / "figure.svg").read_bytes())
    assert drawings[0] == drawings[1]


@pytest.mark.slow
def test_figure_has_scores_and_differences(tmp_path: Path) -> None:
    figure = draw(results_of("model-size", tmp_path, good))
    tuned, best, last, difference, paper = figure.axes
    assert [axes.get_title() for axes in figure.axes[:4]] == [
        "fine-tuned", "linear probe, best layer", "linear probe, last layer", "ELECTRA minus BERT"
    ]  # fmt: skip
    gain = difference.containers[0].lines[0]
    assert list(gain.get_xdata()) == [8.0, 16.0]
    assert list(gain.get_ydata()) == pytest.approx([10.0, 10.0]), "seed by seed"
    assert best.get_lines()[0].get_ydata()[0] == tuned.get_lines()[0].get_ydata()[0] + 1
    assert last.get_xlabel() == "hidden size"
    assert "Figure 4" in paper.get_title()


def test_line_has_a_gap_at_missing_runs(tmp_path: Path) -> None:
    def scores(study: Study, variant, seed: int) -> dict | None:
        return None if variant.name == "d16-gunigram" else good(study, variant, seed)

    panel = draw(results_of("generator-size", tmp_path, scores)).axes[0]
    drawn = panel.containers[0].lines[0].get_ydata()
    assert [math.isnan(value) for value in drawn] == [False, True, False, False]


def test_table_has_the_variant_names_of_the_command_line(tmp_path: Path) -> None:
    page = to_markdown(results_of("tying", tmp_path, good))
    assert "- For `--variants`: no tying `none`, embeddings tied `embeddings`, all weights tied `all`." in page


def test_table_without_fine_tuning_has_no_column_for_it(tmp_path: Path) -> None:
    page = to_markdown(results_of("tying", tmp_path, lambda *about: good(*about) | {"finetuned": {}}))
    assert "| Probe avg. |" in page
    assert "GLUE avg. |" not in page


@pytest.mark.slow
def test_results_without_records(tmp_path: Path) -> None:
    for name in ("objectives", "model-size"):
        results = results_of(name, tmp_path / name, lambda *_: None)
        write_figures(results, tmp_path)
        assert to_markdown(results).count("Not run yet") == len(results.study.variants)
