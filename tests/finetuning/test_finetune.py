"""Complete runs on toy tasks: training, repetition, resuming, selection of the best epoch, errors."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.callbacks import AtStep, CrashError, crash
from support.errors import check_message, notices, raises
from support.toy_tasks import TINY, save_model, write_glue, write_jsonl

from electra.config.suggestions import format_flag
from electra.errors import DataError, ModelError, RunError, UsageError
from electra.finetuning import recipe as recipe_module
from electra.finetuning import run
from electra.finetuning.config import FinetuneConfig, build_finetune_config
from electra.finetuning.preparation import Hyperparameters, resolve_hyperparameters
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.recipe import SizeRecipe
from electra.finetuning.registry import TASKS, check_options
from electra.finetuning.run import finetune
from electra.model.encoder import EncoderConfig


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


def config(model: Path, glue: Path, task: str = "sst2", **more) -> FinetuneConfig:
    given = {"epochs": 4.0, "learning_rate": 1e-2, "batch_size": 16, "dropout": 0.1, **more}
    return FinetuneConfig(task=task, model=str(model), data=str(glue), **given)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "seed-0" / "model" / "model.safetensors")


@pytest.mark.slow
def test_run_learns_and_writes_its_files(model, glue, tmp_path, caplog) -> None:
    settings = config(model, glue, epochs=8.0, learning_rate=2e-3)
    summary = finetune(settings, tmp_path / "out", seeds=2)
    accuracy = summary["metrics"]["dev"]["accuracy"]
    assert accuracy["median"] > 90
    assert len(accuracy["values"]) == 2
    assert accuracy["std"] is not None
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == summary
    left = {path.name for path in (tmp_path / "out" / "seed-0").iterdir()}
    assert left == {
        "config.yaml", "inputs.json", "dev_scores.json", "metrics.jsonl", "events", "model", "results.json",
        "predictions-dev.jsonl", "predictions-test.jsonl", "logits-dev.npy", "logits-test.npy",
    }  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "out/seed-0/predictions-test.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [str(i) for i in range(16)]
    assert {row["label"] for row in rows} == {"0", "1"}
    # As if the run was killed after it wrote its results, and before it removed the files that it no longer needs.
    checkpoint = tmp_path / "out/seed-1/checkpoints/step-00000008"
    checkpoint.mkdir(parents=True)
    for path in (checkpoint / "model.safetensors", tmp_path / "out/seed-1/best.safetensors"):
        path.write_bytes(b"left")
    finetune(settings, tmp_path / "out", seeds=2)
    for message, seed in zip(notices(caplog, "finished"), (0, 1), strict=True):
        check_message(message, tmp_path / "out" / f"seed-{seed}")
    assert {path.name for path in (tmp_path / "out/seed-1").iterdir()} == left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "metric"), [("mrpc", "accuracy"), ("stsb", "spearman"), ("rte", "accuracy"), ("mnli", "accuracy")]
)
def test_pairs(model, glue, tmp_path, task: str, metric: str) -> None:
    """Each kind of pair task has the main metric of the paper's tables."""
    summary = finetune(config(model, glue, task, epochs=1.0), tmp_path / "out")
    assert summary["main_metric"] == metric
    assert set(summary["metrics"]) == ({"dev", "dev_mismatched"} if task == "mnli" else {"dev"})


@pytest.mark.slow
@pytest.mark.parametrize("select", ["last", "best"])
def test_killed_run_ends_like_an_uninterrupted_one(model, glue, tmp_path, monkeypatch, caplog, select: str) -> None:
    settings = config(model, glue, select=select)
    build_recipe = run.build_recipe

    def checkpoint_often(*arguments):
        recipe = build_recipe(*arguments)
        return replace(recipe, training=replace(recipe.training, checkpoint_every=3))

    monkeypatch.setattr(run, "build_recipe", checkpoint_often)
    whole = finetune(settings, tmp_path / "whole")
    for killed_at in (2, 5, 11):
        with pytest.raises(CrashError):
            finetune(settings, tmp_path / "killed", callbacks=[AtStep(killed_at, crash)])
    caplog.clear()
    resumed = finetune(settings, tmp_path / "killed")
    [message] = notices(caplog, "resuming")
    check_message(message, 9)
    assert resumed["metrics"] == whole["metrics"]
    assert resumed["selected"] == whole["selected"]
    ours, theirs = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_kill_9(model, glue, tmp_path) -> None:
    """Kill the process with SIGKILL at three moments, then resume: the results equal those of an uninterrupted run."""
    words = [
        "--model",
        str(model),
        "--data",
        str(glue),
        "--epochs",
        "12",
        "--learning-rate",
        "1e-2",
        "--batch-size",
        "16",
    ]
    command = [sys.executable, "-m", "electra", "finetune", "sst2", *words, "--select", "best"]
    whole = subprocess.run([*command, "--out", str(tmp_path / "whole")], capture_output=True, check=True)
    assert str(tmp_path / "whole" / "results.json").encode() in whole.stdout
    for _ in range(3):
        best = tmp_path / "killed" / "seed-0" / "best.safetensors"
        before = best.stat().st_mtime_ns if best.exists() else 0
        process = subprocess.Popen([*command, "--out", str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
        while process.poll() is None and (not best.exists() or best.stat().st_mtime_ns == before):
            time.sleep(0.01)
        process.kill()
        process.wait()
    subprocess.run([*command, "--out", str(tmp_path / "killed")], capture_output=True, check=True)
    one, other = (json.loads((tmp_path / name / "seed-0" / "results.json").read_text()) for name in ("whole", "killed"))
    assert (one["metrics"], one["selected"]) == (other["metrics"], other["selected"])
    ours, theirs = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_best_epoch_is_selected_by_option(model, glue, tmp_path, monkeypatch) -> None:
    """If the score falls from epoch to epoch, the weights of the first epoch are selected."""
    falling = iter([3.0, 2.0, 1.0, 0.0, 50.0, 50.0, 50.0])
    settings = config(model, glue, select="best")
    one = finetune(replace(settings, epochs=1.0, select="last"), tmp_path / "one")
    assert one["selected"] == ["last epoch"]
    monkeypatch.setattr(run.Run, "score_dev", lambda self: next(falling))
    best = finetune(settings, tmp_path / "best")
    assert best["selected"] == ["best on dev, after step 4 of 16"]
    last = finetune(replace(settings, select="last"), tmp_path / "last")
    assert last["selected"] == ["last epoch"]
    assert not torch.equal(
        weights(tmp_path / "best")["classifier.dense.weight"], weights(tmp_path / "last")["classifier.dense.weight"]
    )


@pytest.mark.slow
def test_seeds_differ_and_repeat(model, glue, tmp_path) -> None:
    short = config(model, glue, epochs=1.0)
    finetune(short, tmp_path / "a")
    finetune(short, tmp_path / "b")
    finetune(replace(short, seed=1), tmp_path / "c")
    name = "electra.encoder.layer.0.output.dense.weight"
    assert torch.equal(weights(tmp_path / "a")[name], weights(tmp_path / "b")[name])
    other = load_file(tmp_path / "c" / "seed-1" / "model" / "model.safetensors")
    assert not torch.equal(weights(tmp_path / "a")[name], other[name])


@pytest.mark.slow
def test_from_scratch_ignores_the_weights(model, glue, tmp_path) -> None:
    """With a learning rate near 0, the weights keep their initial values."""
    frozen = config(model, glue, epochs=1.0, learning_rate=1e-12)
    finetune(frozen, tmp_path / "kept")
    finetune(replace(frozen, from_scratch=True), tmp_path / "scratch")
    name = "electra.encoder.layer.1.output.dense.weight"
    original = load_file(model / "model.safetensors")[name]
    torch.testing.assert_close(weights(tmp_path / "kept")[name], original)
    fresh = weights(tmp_path / "scratch")[name]
    assert not torch.allclose(fresh, original, atol=1e-3)
    assert float(fresh.std()) == pytest.approx(float(original.std()), rel=0.1)


@pytest.mark.slow
def test_summed_loss_is_the_batch_size_times_the_mean(model, glue, tmp_path) -> None:
    for summed in (False, True):
        settings = config(model, glue, epochs=1.0, dropout=0.0, learning_rate=1e-12, summed_loss=summed)
        finetune(settings, tmp_path / str(summed))
    rows = [json.loads((tmp_path / name / "seed-0/metrics.jsonl").read_text()) for name in ("False", "True")]
    assert rows[1]["gradient_norm"] == pytest.approx(16 * rows[0]["gradient_norm"], rel=1e-4)


@pytest.mark.slow
def test_bias_correction_is_an_option(model, glue, tmp_path) -> None:
    """The first update is the rate times g / |g|; without correction it is (1 - beta1) / sqrt(1 - beta2) = 3.16 times that."""
    for corrected in (None, False, True):
        given = {} if corrected is None else {"bias_correction": corrected}
        one_step = config(model, glue, epochs=1.0, batch_size=64, warmup=0.0, learning_rate=1e-3, **given)
        finetune(one_step, tmp_path / str(corrected))
    name = "electra.encoder.layer.1.output.dense.weight"
    start = load_file(model / "model.safetensors")[name]
    default, uncorrected, corrected = (
        (weights(tmp_path / str(each))[name] - start).abs().max() for each in (None, False, True)
    )
    assert float(corrected) > 0
    assert float(uncorrected / corrected) == pytest.approx(0.1 / 0.001**0.5, rel=1e-2)
    assert torch.equal(default, uncorrected)


@pytest.mark.slow
def test_table_without_dev(model, tmp_path, caplog) -> None:
    rows = [
        {"t": f"the {a} is {w}", "y": y} for a in ("cat", "dog", "fox") for w, y in (("good", "kind"), ("bad", "rude"))
    ]
    train = write_jsonl(tmp_path / "train.jsonl", rows * 8)
    settings = build_finetune_config(
        "table",
        {"model": str(model), "train": str(train), "text": "t", "label": "y", "epochs": 30, "learning_rate": 3e-3},
    )
    summary = finetune(settings, tmp_path / "out")
    assert summary["metrics"]["dev"]["accuracy"]["median"] > 90
    [message] = notices(caplog, "held-out")
    check_message(message, "train.jsonl")


def test_default_hyperparameters_are_those_of_the_paper() -> None:
    small, large = (replace(TINY, hidden_size=size, num_heads=size // 64) for size in (256, 1024))
    open_config = FinetuneConfig(task="rte")

    def resolve(config: FinetuneConfig, encoder: EncoderConfig, task: str = "rte") -> Hyperparameters:
        return resolve_hyperparameters(config, TASKS[task], encoder, 2_490)

    assert resolve(open_config, small) == Hyperparameters(10.0, 3e-4, 0.8, "cls")
    assert resolve(open_config, large) == Hyperparameters(10.0, 5e-5, 0.9, "cls")
    assert resolve(open_config, large, "chunk") == Hyperparameters(3.0, 5e-5, 0.9, None)
    given = FinetuneConfig(task="rte", epochs=1.0, learning_rate=1e-5, layerwise_decay=1.0, pooling="mean")
    for encoder in (TINY, large):
        assert resolve(given, encoder) == Hyperparameters(1.0, 1e-5, 1.0, "mean")


@pytest.mark.parametrize("rows", [20, 40])
def test_defaults_are_trained_with_and_logged(model, tmp_path, monkeypatch, caplog, rows: int) -> None:
    """Those of a narrow encoder, which depend on the number of training examples."""
    narrow = SizeRecipe("here", 2e-3, 0.7, "attention", ((30, 6.0),))
    monkeypatch.setattr(recipe_module, "SIZES", ((256, recipe_module.SIZES[-2][1]), (0, narrow)))
    glue = write_glue(tmp_path / "glue", rows=rows)
    config = FinetuneConfig(task="sst2", model=str(model), data=str(glue), baseline="none")
    summary = finetune(config, tmp_path / "out")
    epochs = 6.0 if rows <= 30 else 3.0
    expected = {"epochs": epochs, "learning_rate": 2e-3, "layerwise_decay": 0.7, "pooling": "attention"}
    assert summary["hyperparameters"] == expected
    [message] = notices(caplog, "defaults")
    check_message(message, 32, rows, "here", "--pooling attention", "--layerwise-decay 0.7", "--learning-rate 0.002")
    steps = json.loads((tmp_path / "out/seed-0/results.json").read_text())["steps"]
    assert steps == round(epochs * -(-rows // 32))
    caplog.clear()
    finetune(replace(config, **expected), tmp_path / "given")
    assert not notices(caplog, "defaults")


def test_another_configuration_in_the_same_directory(model, glue, tmp_path) -> None:
    finetune(config(model, glue, epochs=1.0), tmp_path / "out")
    with raises(RunError, "other-configuration", "--epochs", 1.0, 2.0):
        finetune(config(model, glue, epochs=2.0), tmp_path / "out")
    (tmp_path / "other" / "seed-0").mkdir(parents=True)
    (tmp_path / "other" / "seed-0" / "mine.txt").write_text("mine")
    with raises(RunError, "not-run", tmp_path / "other", "--out"):
        finetune(config(model, glue), tmp_path / "other")


def test_run_that_was_killed_at_its_start_restarts(model, glue, tmp_path) -> None:
    """A directory with only the partial file of an interrupted write is not a run, and can be used."""
    (tmp_path / "out" / "seed-0").mkdir(parents=True)
    (tmp_path / "out" / "seed-0" / ".config.yaml.123.partial").write_text("ta")
    (tmp_path / "out" / "seed-0" / "inputs.json").write_text("{}")
    assert finetune(config(model, glue, epochs=1.0), tmp_path / "out")["metrics"]


def test_changed_input_files(model, tmp_path) -> None:
    rows = [{"t": "the cat", "y": "kind"}, {"t": "the dog", "y": "rude"}] * 8
    train = write_jsonl(tmp_path / "train.jsonl", rows)
    given = {"model": str(model), "train": str(train), "text": "t", "label": "y", "epochs": 1}
    finetune(build_finetune_config("table", given), tmp_path / "out")
    write_jsonl(train, rows * 2)
    with raises(RunError, "changed-file", "train.jsonl"):
        finetune(build_finetune_config("table", given), tmp_path / "out")


def test_wrong_options_write_nothing(model, glue, tmp_path) -> None:
    with raises(UsageError, "longer-than-model", "--max-length", 65, 64):
        finetune(config(model, glue, max_length=65), tmp_path / "out")
    broken = write_glue(tmp_path / "glue")
    (broken / "SST-2" / "test.tsv").write_text("index\tsentence\n0\n")
    with raises(DataError, "bad-row", "test.tsv:2", 1):  # before training, although the file is read only after it
        finetune(config(model, broken), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_skip_bad_rows_is_for_training_rows_only(model, tmp_path, caplog) -> None:
    data = write_glue(tmp_path / "glue")
    with (data / "SST-2" / "train.tsv").open("a") as file:
        file.write("half a row\n")
    summary = finetune(config(model, data, epochs=1.0, skip_bad_rows=True), tmp_path / "out")
    assert summary["data"]["train"] == {"examples": 64, "cut": 0, "rows_left_out": 1}
    [message] = notices(caplog, "skipped-rows")
    check_message(message, "train.tsv", 1)
    with (data / "SST-2" / "dev.tsv").open("a") as file:
        file.write("half a row\n")
    with raises(DataError, "bad-row", "dev.tsv:34", 1) as caught:
        finetune(config(model, data, epochs=1.0, skip_bad_rows=True), tmp_path / "other")
    assert "--skip-bad-rows" not in str(caught.value)


def test_weights_that_contradict_the_config(glue, tmp_path) -> None:
    model = save_model(tmp_path / "model")
    saved = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**saved, "intermediate_size": 32}))
    with raises(ModelError, "wrong-shape", "intermediate.dense.weight", (64, 32), (32, 32)):
        finetune(config(model, glue), tmp_path / "out")


def test_models_that_cannot_be_used(glue, tmp_path) -> None:
    with raises(ModelError, "not-model", "nosuch"):
        finetune(config(tmp_path / "nosuch", glue), tmp_path / "out")
    other = save_model(tmp_path / "other")
    saved = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**saved, "model_type": "gpt2"}))
    with raises(ModelError, "unknown-model-type", "'gpt2'", "'electra'"):
        finetune(config(other, glue), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0.0),
        ("learning_rate", -1.0),
        ("batch_size", 0),
        ("dropout", 1.0),
        ("dev_share", 1.0),
        ("max_length", 4),
        ("seed", -1),
        ("weight_decay", -0.1),
    ],
)
def test_options_out_of_range(name: str, value: float) -> None:
    with raises(UsageError, "out-of-range", format_flag(name), value):
        FinetuneConfig(**{name: value})


@pytest.mark.parametrize(
    ("given", "code", "values"),
    [
        ({"task": "colla"}, "unknown-task", ["'colla'"]),
        ({"task": "sst2", "dev": "d.tsv"}, "meaningless-option", ["--dev", "sst2"]),
        ({"task": "rte", "text": "t"}, "meaningless-option", ["--text", "rte"]),
        ({"task": "rte", "span": SpanConfig(head="plain")}, "meaningless-option", ["--span", "rte"]),
        ({"task": "chunk", "swap_pairs": True}, "meaningless-option", ["--swap-pairs", "chunk"]),
        ({"task": "table", "data": "d"}, "meaningless-option", ["--data", "table"]),
        ({"task": "wnli-candidates", "swap_pairs": True}, "meaningless-option", ["--swap-pairs", "wnli-candidates"]),
        ({"task": "squad1", "data": "d", "dev": "d.json"}, "conflicting-options", ["--data", "--dev"]),
        ({"task": "squad1", "data": "hf://squad"}, "hub-not-allowed", ["--data", "hf://squad"]),
    ],
)
def test_options_that_the_task_does_not_use(given, code: str, values: list) -> None:
    with raises(UsageError, code, *values):
        check_options(FinetuneConfig(**given))


def test_ordered_pairs_are_not_swapped(model, glue, tmp_path) -> None:
    with raises(UsageError, "no-swap", "--swap-pairs", "rte"):
        finetune(config(model, glue, "rte", swap_pairs=True), tmp_path / "out")
