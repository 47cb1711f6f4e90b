"""Invalid run directories, checkpoints and studies: an error that names the file, and nothing is overwritten."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.damage import NOT_FILES, NOT_JSON, Damage, broken_json, check_short_error, contents, edit, write
from support.errors import notices, raises
from support.tiny_models import checkpoints_in, trained_module
from support.toy import TINY_RUN
from support.toy_tasks import finetune_settings, save_model, write_jsonl

import electra
from electra import cli
from electra.errors import RunError, UsageError
from electra.finetuning.benchmark.ensemble import read_logits
from electra.finetuning.run import finetune
from electra.finetuning.training.best_epoch import BestEpoch
from electra.pretraining.config import load_saved_config
from electra.pretraining.run_directory import RunDirectory
from electra.studies.trial import read_record
from electra.train.checkpoint import Checkpoints, TrainingState, checksum, seal
from electra.train.metrics_log import MetricsLog, read_metrics

SUMMARIES = {
    **broken_json("summary.json"),
    "no step": edit("summary.json", step=...),
    "a step that is text": edit("summary.json", step="12"),
    "a negative step": edit("summary.json", step=-1),
    "seconds NaN": edit("summary.json", seconds=float("nan")),
    "infinite FLOPs": edit("summary.json", flops=float("inf")),
    "metrics that are text": edit("summary.json", heldout={"loss": "low"}),
    "findings that are text": edit("summary.json", findings="none"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SUMMARIES)
def test_invalid_summaries_are_rejected(case: str, finished: Path, text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("summary.json", "config.yaml"):
        shutil.copy(finished / name, run)
    SUMMARIES[case](run)
    before = contents(run)
    with pytest.raises(RunError) as raised:
        electra.pretrain(str(text), out=str(run), **TINY_RUN)
    check_short_error(raised.value, "summary.json")
    assert contents(run) == before


@pytest.mark.slow
def test_all_fields_of_a_summary_are_loaded(finished: Path) -> None:
    assert RunDirectory(finished).load_summary() == json.loads((finished / "summary.json").read_text())


ROW = {"step": 1, "loss": 1.0, "gradient_norm": 2.0, "learning_rate": 0.1, "seconds": 1.0, "tokens": 1.0, "flops": 1.0}
LINES: dict[str, bytes] = {
    **{case: content.replace(b"\n", b" ") for case, content in NOT_JSON.items()},
    "{}": b"{}",
    "a step that is text": json.dumps(ROW | {"step": "1"}).encode(),
    "a step that is NaN": json.dumps(ROW | {"step": float("nan")}).encode(),
    "a metric that is text": json.dumps(ROW | {"auc": "high"}).encode(),
    "a metric that is a list": json.dumps(ROW | {"auc": [1]}).encode(),
    "a row of another program": b'{"epoch": 1, "train_loss": 0.5}',
    "a row without its loss": json.dumps({"step": 1, "auc": 0.5}).encode(),
    "10 MB without a line break": b"x" * 10_000_000,
}


@pytest.mark.parametrize("case", LINES)
def test_invalid_rows_of_metrics_are_left_out(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "metrics.jsonl"
    good = [json.dumps(ROW), json.dumps(ROW | {"step": 2, "loss": float("nan")})]
    file.write_bytes(good[0].encode() + b"\n" + LINES[case] + b"\n" + good[1].encode() + b"\n")
    MetricsLog(tmp_path).on_train_begin(torch.nn.Linear(2, 2), TrainingState(5))
    (notice,) = notices(caplog, "damaged-metrics")
    assert f"{file}:2: " in notice
    caplog.clear()
    assert [row["step"] for row in read_metrics(file)] == [1, 2], "a loss that is NaN is a metric"
    assert not caplog.records, "invalid rows have been removed from the file"


def test_an_incomplete_last_row_is_left_out_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(ROW) + '\n{"step": 2, "lo')
    assert list(read_metrics(tmp_path / "metrics.jsonl")) == [ROW]
    assert not caplog.records


def test_metrics_in_a_named_pipe_are_rejected(tmp_path: Path) -> None:
    write("metrics.jsonl", "")(tmp_path)
    NOT_FILES["a FIFO"]("metrics.jsonl")(tmp_path)
    with raises(RunError, "special-file", f"{tmp_path / 'metrics.jsonl'}: ", "named pipe"):
        list(read_metrics(tmp_path / "metrics.jsonl"))


@pytest.mark.slow
def test_a_run_with_invalid_rows_of_metrics_is_finished(finished: Path, text: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "summary.json").unlink()
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\xfe\n[]\n" + json.dumps(ROW | {"step": 3, "auc": 0.5}).encode() + b"\n")
    electra.pretrain(str(text), out=str(run), **TINY_RUN)
    assert (run / "report.html").exists()


CONFIGS = {
    "steps that are text": "steps: many\n",
    "a section that is a number": "model: 5\n",
    "an unknown option": "speed: 3\n",
    "two budgets": "steps: 5\nhours: 1.0\n",
    "a negative number of steps": "steps: -5\n",
    "a width of 10^12": "model:\n  hidden_size: 1000000000000\n",
    "text that is a number": "text: 5\n",
    "a preset that is a list": "preset: [1]\n",
    "a learning rate of NaN": "optimizer:\n  learning_rate: .nan\n",
}


@pytest.mark.parametrize("case", CONFIGS)
def test_invalid_saved_configurations_are_rejected(case: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIGS[case])
    with pytest.raises(UsageError) as raised:
        load_saved_config(tmp_path / "config.yaml")
    check_short_error(raised.value, str(tmp_path / "config.yaml"))


def reseal(path: Path) -> None:
    """Update the checksums of a damaged checkpoint."""
    known = json.loads((path / "state.json").read_text())
    known.pop("sha256", None)
    if isinstance(known.get("files"), dict):
        for name in ("model.safetensors", "optimizer.safetensors"):
            if name in known["files"] and (path / name).is_file():
                known["files"][name] = {"bytes": (path / name).stat().st_size, "sha256": checksum(path / name)}
    (path / "state.json").write_text(json.dumps(known | {"sha256": seal(known)}))


def forged(damage: Damage) -> Damage:
    """Damage a checkpoint and update its checksums."""
    return lambda path: (damage(path), reseal(path))


def tensors(name: str, change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    """Change the tensors of a file of a checkpoint."""

    def damage(path: Path) -> None:
        found = load_file(path / name)
        change(found)
        save_file(found, path / name)

    return forged(damage)


def weight(tensor: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    return tensors("model.safetensors", lambda found: found.update({"0.weight": tensor(found["0.weight"])}))


def moment(key: str, tensor: Callable[[torch.Tensor], torch.Tensor]) -> Damage:
    return tensors("optimizer.safetensors", lambda found: found.update({key: tensor(found[key])}))


RECORDS = {
    "no step": forged(edit("state.json", step=...)),
    "a step that is text": forged(edit("state.json", step="2")),
    "a step of NaN": forged(edit("state.json", step=float("nan"))),
    "a negative step": forged(edit("state.json", step=-2)),
    "a step of 10^30": forged(edit("state.json", step=10**30)),
    "another step": forged(edit("state.json", step=7)),
    "seconds of NaN": forged(edit("state.json", seconds=float("nan"))),
    "infinite tokens": forged(edit("state.json", tokens=float("inf"))),
    "negative FLOPs": forged(edit("state.json", flops=-1.0)),
    "a micro-batch of 0": forged(edit("state.json", settings={"micro_batch_size": 0})),
    "a micro-batch that is text": forged(edit("state.json", settings={"micro_batch_size": "4"})),
    "no files": forged(edit("state.json", files={})),
    "files that are a list": forged(edit("state.json", files=[])),
    "a size that is text": edit("state.json", files__optimizer="x"),
    **broken_json("state.json"),
    **{f"weights that are {case}": make("model.safetensors") for case, make in NOT_FILES.items()},
}
TENSORS = {
    "weights of another shape": weight(lambda found: found[:3]),
    "a scalar for a weight": weight(lambda found: found.sum()),
    "a weight of NaN": weight(lambda found: found * float("nan")),
    "whole numbers for a weight": weight(lambda found: found.long()),
    "another weight": tensors("model.safetensors", lambda found: found.update(more=torch.ones(1))),
    "a missing weight": tensors("model.safetensors", lambda found: found.pop("0.bias")),
    "moments of another shape": moment("exp_avg/0.weight", lambda found: found[:3].contiguous()),
    "moments of another type": moment("exp_avg_sq/0.weight", lambda found: found.half()),
    "moments of NaN": moment("exp_avg_sq/0.bias", lambda found: found * float("nan")),
    "a step with a shape": moment("step/0.bias", lambda found: found[None]),
    "moments of whole numbers": moment("exp_avg/0.bias", lambda found: found.int()),
    "a missing moment": tensors("optimizer.safetensors", lambda found: found.pop("exp_avg_sq/0.weight")),
    "moments of another parameter": tensors(
        "optimizer.safetensors", lambda found: found.update({"exp_avg/1.other": torch.ones(1)})
    ),
    "another kind of moment": tensors("optimizer.safetensors", lambda found: found.update({"x/0.bias": torch.ones(8)})),
    "no kind of moment": tensors("optimizer.safetensors", lambda found: found.update(bias=torch.ones(8))),
    "no tensors at all": forged(write("model.safetensors", b"x")),
    "an empty file": forged(write("optimizer.safetensors", b"")),
}


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    kept = checkpoints_in(tmp_path)
    for step in (1, 2):
        sums = {"loss": torch.tensor(1.0, dtype=torch.float64)}
        kept.save(*trained_module(), TrainingState(step, 1.0, 2.0, 3.0, sums))
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("case", RECORDS)
def test_checkpoints_with_an_invalid_record_are_skipped(
    case: str, saved: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    RECORDS[case](saved.paths()[-1])
    assert saved.restore(*trained_module()).step == 1
    assert len(caplog.records) == 1
    (warning,) = notices(caplog, "damaged-checkpoint")
    assert f"{saved.paths()[-1]}: " in warning
    assert "\n" not in warning


@pytest.mark.slow
@pytest.mark.parametrize("case", TENSORS)
def test_invalid_tensors_with_valid_checksums_are_rejected(case: str, saved: Checkpoints) -> None:
    path = saved.paths()[-1]
    TENSORS[case](path)
    before = contents(path)
    module, optimizer = trained_module()
    weights = {name: parameter.clone() for name, parameter in module.named_parameters()}
    with pytest.raises(RunError) as raised:
        saved.restore(module, optimizer)
    check_short_error(raised.value, str(path))
    assert contents(path) == before
    assert all(torch.equal(weights[name], parameter) for name, parameter in module.named_parameters())


def test_sums_of_another_shape_are_rejected(finished: Path, text: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    for name in ("summary.json", "checkpoints/step-00000012"):
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).unlink(missing_ok=True)
    (path,) = sorted((run / "checkpoints").iterdir())[-1:]
    change = tensors(
        "optimizer.safetensors", lambda found: found.update({"sums/gradient_norm": torch.ones(3, dtype=torch.float64)})
    )
    change(path)
    with raises(RunError, "wrong-shape", "'gradient_norm'", " (3,),", " ();"):
        electra.pretrain(str(text), out=str(run), **TINY_RUN)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tuned")
    rows = [
        {"sentence": f"the {animal} is {word}", "label": word} for animal in ("cat", "dog") for word in ("good", "bad")
    ]
    train = write_jsonl(root / "train.jsonl", rows * 8)
    config = finetune_settings(
        save_model(root / "model"), "table", train=str(train), text="sentence", label="label", epochs=1.0
    )
    finetune(config, root / "out")
    return root


RESULTS = {
    **broken_json("seed-0/results.json"),
    "no metrics": edit("seed-0/results.json", metrics=...),
    "metrics of nothing": edit("seed-0/results.json", metrics={}),
    "metrics that are text": edit("seed-0/results.json", metrics={"dev": {"accuracy": "high"}}),
    "no main metric": edit("seed-0/results.json", main_metric="moon"),
    "another seed": edit("seed-0/results.json", seed=3),
    "a seed that is text": edit("seed-0/results.json", seed="0"),
    "no versions": edit("seed-0/results.json", versions=...),
    **broken_json("seed-0/inputs.json"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RESULTS)
def test_invalid_results_are_rejected(case: str, tuned: Path, tmp_path: Path) -> None:
    out = shutil.copytree(tuned / "out", tmp_path / "out")
    RESULTS[case](out)
    before = contents(out)
    config = finetune_settings(
        tuned / "model", "table", train=str(tuned / "train.jsonl"), text="sentence", label="label", epochs=1.0
    )
    with pytest.raises(RunError) as raised:
        finetune(config, out)
    check_short_error(raised.value, str(out) if "inputs.json {}" in case else "seed-0/")
    assert contents(out) == before


def save_pickled(path: Path) -> None:
    np.save(path, np.array([{}]), allow_pickle=True)


def save_header(path: Path) -> None:
    """Write the header of an array of 8 TB, and no numbers."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})


ARRAYS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "not an array": lambda path: path.write_bytes(b"x" * 200),
    "pickled": save_pickled,
    "text": lambda path: np.save(path, np.array([["a", "b"]] * 4)),
    "one dimension": lambda path: np.save(path, np.zeros(4)),
    "another number": lambda path: np.save(path, np.zeros((5, 2))),
    "a header alone": save_header,
    "a directory": Path.mkdir,
}


@pytest.mark.parametrize("case", ARRAYS)
def test_invalid_logits_are_rejected(case: str, tmp_path: Path) -> None:
    path = tmp_path / "logits-dev.npy"
    ARRAYS[case](path)
    with pytest.raises(RunError) as raised:
        read_logits(path, 4)
    check_short_error(raised.value, str(path))


BEST: dict[str, Damage] = {
    "empty": write("best.safetensors", b""),
    "no metadata": lambda folder: save_file({"weight": torch.ones(1)}, folder / "best.safetensors"),
    "a step that is text": lambda folder: save_file(
        {"weight": torch.ones(1)}, folder / "best.safetensors", {"step": "x", "score": "1.0"}
    ),
    "a FIFO": NOT_FILES["a FIFO"]("best.safetensors"),
    "other parameters": lambda folder: save_file(
        {"other": torch.ones(1)}, folder / "best.safetensors", {"step": "1", "score": "1.0"}
    ),
}


@pytest.mark.parametrize("case", BEST)
def test_an_invalid_best_epoch_is_rejected(case: str, tmp_path: Path) -> None:
    best = BestEpoch(tmp_path, torch.nn.Linear(2, 2))
    best.offer(3, 1.0)
    assert best.restore() == 3
    BEST[case](tmp_path)
    with pytest.raises(RunError) as raised:
        best.restore()
    check_short_error(raised.value, str(tmp_path / "best.safetensors"))


SCORES = {"metric": "accuracy", "median": 50.0, "values": [50.0]}
CELL = {
    "variant": "a",
    "seed": 0,
    "step": 5,
    "tokens": 1.0,
    "flops": 1.0,
    "seconds": 1.0,
    "heldout": {"loss": 1.0},
    "finetuned": {"rte": SCORES},
    "probed": {"rte": {"last": 1.0, "best": 2.0, "layer": 1}},
    "tags": {"layers": [1.0, 2.0], "layer": 1, "source": "f", "split": "dev"},
    "pairs": {"source": "p", "methods": {"masked-lm": {"overall": 55.0}}},
    "similarity": {"source": "g", "layers": [1.0, 2.0]},
}
CELLS = {
    **broken_json("cell.json"),
    "no seed": edit("cell.json", seed=...),
    "a failure that is a number": edit("cell.json", failed=5),
    "no steps": edit("cell.json", step=...),
    "FLOPs that are NaN": edit("cell.json", flops=float("nan")),
    "scores that are text": edit("cell.json", finetuned__rte__median="high"),
    "no scores": edit("cell.json", finetuned__rte__values=[]),
    "a probe without a layer": edit("cell.json", probed__rte__layer=...),
    "probes that are a list": edit("cell.json", probed=[]),
    "tags of a missing layer": edit("cell.json", tags__layer=2),
    "minimal pairs without an overall accuracy": edit("cell.json", pairs={"source": "p", "methods": {"both": {}}}),
    "accuracies that are text": edit("cell.json", pairs={"source": "p", "methods": {"both": {"overall": "high"}}}),
    "similarities of no layer": edit("cell.json", similarity__layers=[]),
}


@pytest.mark.parametrize("case", CELLS)
def test_invalid_records_of_studies_are_rejected(case: str, tmp_path: Path) -> None:
    file = tmp_path / "cell.json"
    file.write_text(json.dumps(CELL))
    assert read_record(file) == CELL
    CELLS[case](tmp_path)
    with pytest.raises(RunError) as raised:
        read_record(file)
    check_short_error(raised.value, str(file))


STUDIES = {
    **broken_json("study.json"),
    "a budget that is text": write("study.json", '{"budget": "1"}'),
    "a budget of NaN": write("study.json", '{"budget": NaN}'),
    "a negative budget": write("study.json", '{"budget": -1}'),
    "a budget alone": write("study.json", '{"budget": 1.0, "study": 5}'),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STUDIES)
def test_invalid_studies_are_rejected(case: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("electra.studies.run.check_tasks", lambda tasks, glue: {})
    out = tmp_path / "study"
    out.mkdir()
    (out / "study.json").write_text("{}")
    STUDIES[case](out)
    before = contents(out)
    with pytest.raises(SystemExit) as stop:
        cli.main(f"study objectives --data {text} --glue {text} --out {out} --scale tiny".split())
    assert stop.value.code == 2
    assert isinstance(stop.value.__cause__, RunError)
    check_short_error(stop.value.__cause__, str(out))
    assert contents(out) == before


def test_checksum_of_a_seal_does_not_depend_on_how_numbers_are_read() -> None:
    """Checkpoints of an earlier version have an integer number of tokens, which must not be hashed as a float."""
    known = {"tokens": 5, "seconds": 0.1 + 0.2}
    assert (
        seal(json.loads(json.dumps(known)))
        == hashlib.sha256(b'{"seconds": 0.30000000000000004, "tokens": 5}').hexdigest()
    )
