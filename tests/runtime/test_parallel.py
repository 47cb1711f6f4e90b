"""Runs in two processes on the CPU have the same losses as runs in one process."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file
from support.errors import raises
from support.places import TESTS
from support.processes import TIMEOUT
from support.tiny_models import batch, model

import electra
from electra.errors import UsageError
from electra.presets import PRESETS, tiny
from electra.pretraining.execution import resolve_micro_batch_size
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, TokenPredictionConfig
from electra.runtime.setup import Runtime
from electra.train.metrics_log import read_metrics

LOSSES = ("loss", "generator_loss", "discriminator_loss", "gradient_norm", "auc", "tokens", "flops")
GRAPHED = str(TESTS / "support/computing_again.py")


def run_two_processes(config: dict, tmp_path: Path, program: tuple[str, ...] = ("-m", "electra")) -> str:
    """Train in two processes, in the directory `two`; returns their output."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, *program, "pretrain", "--config", str(file), "--out", str(tmp_path / "two")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def assert_equal_losses(tmp_path: Path, steps: list[int]) -> None:
    """Check that the runs in one and in two processes have logged these steps, with equal losses."""
    two, one = (list(read_metrics(tmp_path / name / "metrics.jsonl")) for name in ("two", "one"))
    assert [row["step"] for row in two] == [row["step"] for row in one] == steps
    for a, b in zip(one, two, strict=True):
        for name in LOSSES:
            assert a[name] == pytest.approx(b[name], rel=1e-5, abs=1e-5), (a["step"], name)


@pytest.mark.slow
@pytest.mark.parametrize("means", ["global", "local"])
def test_two_processes_have_the_losses_of_one(text: Path, tmp_path: Path, tiny_run: dict, means: str) -> None:
    """Also dropout, masks and samples are equal: the random numbers of a micro-batch do not depend on the process."""
    tiny_run["training"]["means"] = means
    output = run_two_processes(tiny_run | {"text": [str(text)]}, tmp_path)
    assert output.count("report.html") == 1, "one process logs"
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run)
    assert_equal_losses(tmp_path, list(range(1, 13)))


@pytest.mark.slow
def test_two_processes_with_graphs_have_the_losses_of_one(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """With graphs, gradients are summed over the processes once per step; each process has two micro-batches."""
    tiny_run["training"] |= {"batch_size": 16}
    graphed = tiny_run | {"training": tiny_run["training"] | {"graphs": True}, "text": [str(text)]}
    run_two_processes(graphed, tmp_path, (GRAPHED,))
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run)
    assert_equal_losses(tmp_path, list(range(1, 13)))


@pytest.mark.slow
def test_values_that_change_in_two_processes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """Numbers of masked positions and weights are the same in both; the budget of FLOPs is that of one process."""
    changing = {
        "masking": {"fraction": 0.4, "final_fraction": 0.1, "strategy": "span"},
        "generator": {"final_temperature": 0.5, "frequency_share": 0.8, "final_frequency_share": 0.0},
        "steps": None,
        "flops": 1e8,
    }
    run_two_processes(tiny_run | changing | {"text": [str(text)]}, tmp_path)
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run | changing)
    rows = list(read_metrics(tmp_path / "one/metrics.jsonl"))
    assert len(rows) > 5
    assert_equal_losses(tmp_path, list(range(1, len(rows) + 1)))


@pytest.mark.slow
def test_samples_drawn_before_training_in_two_processes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """The main process draws the samples of all; a run in one process reads the same file."""
    generator = {"training": "frozen", "tying": "none", "samples": str(tmp_path / "samples.arrow")}
    run_two_processes(tiny_run | {"generator": generator, "text": [str(text)]}, tmp_path)
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run | {"generator": generator})
    for one, two in zip(*(read_metrics(tmp_path / name / "metrics.jsonl") for name in ("one", "two")), strict=True):
        assert one["sampled_accuracy"] == two["sampled_accuracy"]
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)


@pytest.mark.slow
def test_two_stages_in_two_processes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """The second process waits until the first stage is saved."""
    tiny_run |= {"procedure": "two-stage-scratch", "text": [str(text)], "steps": 4}
    assert run_two_processes(tiny_run, tmp_path).count("report.html") == 2, "one process logs, for each stage"


@pytest.mark.slow
def test_logs_and_checkpoints_at_different_steps(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """Checkpoints are due by time, and the last step has a checkpoint and no log: the processes do not deadlock."""
    tiny_run["training"] |= {"log_every": 5, "checkpoint_minutes": 1e-4}
    run_two_processes(tiny_run | {"text": [str(text)]}, tmp_path)
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run)
    assert_equal_losses(tmp_path, [5, 10, 12])


@pytest.mark.slow
def test_average_exports_stem_and_small_batches_in_two_processes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """With micro-batches of one row, on whose size dropout and FLOPs depend; the main process exports the average."""
    tiny_run["training"] |= {"micro_batch_size": 1}
    tiny_run |= {
        "optimizer": {"ema": 0.7},
        "export_at": ["6steps"],
        "batch_warmup": {"steps": 4, "size": 2},
        "schedule": {"kind": "wsd", "warmup_steps": 2, "max_warmup": 0.5, "decay": 0.25},
    }
    run_two_processes(tiny_run | {"text": [str(text)]}, tmp_path)
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run)
    assert_equal_losses(tmp_path, list(range(1, 13)))
    ours, theirs = (
        [load_file(file) for file in sorted((tmp_path / name).glob(pattern))]
        for name in ("one", "two")
        for pattern in ["**/discriminator/model.safetensors"]
    )
    assert len(ours) == len(theirs) == 2
    for a, b in zip(ours, theirs, strict=True):
        assert all(torch.allclose(a[name], b[name], rtol=1e-3, atol=1e-5) for name in a)
    (tmp_path / "again").mkdir()
    longer = {"stem": str(tmp_path / "two"), "steps": 16}
    run_two_processes(longer, tmp_path / "again")
    electra.pretrain(out=tmp_path / "again/one", **longer)
    assert_equal_losses(tmp_path / "again", list(range(1, 17)))


@pytest.mark.slow
def test_additional_losses_in_two_processes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    tasks = {"contrast": {"weight": 1.0}, "token_prediction": {"masked": 1.0, "filled": 1.0}}
    run_two_processes(tiny_run | tasks | {"text": [str(text)], "steps": 3}, tmp_path)
    assert len(list(read_metrics(tmp_path / "two/metrics.jsonl"))) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "generator",
    [{"tying": "disentangled", "kind": "layer-mixture"}, {"tying": "trunk", "size": 1.0, "depth": 0.5}],
    ids=["disentangled mixture", "trunk"],
)
def test_kinds_of_generators_in_two_processes(text: Path, tmp_path: Path, tiny_run: dict, generator: dict) -> None:
    tiny_run |= {"generator": generator, "steps": 4}
    run_two_processes(tiny_run | {"text": [str(text)]}, tmp_path)
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run)
    assert_equal_losses(tmp_path, list(range(1, 5)))


@pytest.mark.parametrize(
    "parts",
    [
        {"generator": GeneratorConfig(training="adversarial")},
        {"contrast": ContrastConfig(weight=1.0), "token_prediction": TokenPredictionConfig(masked=1.0, filled=1.0)},
        {"masking": MaskingConfig(strategy="hard")},
        {"objective": "all-tokens-mlm"},
        {"generator": GeneratorConfig(size=1.0, depth=0.5, tying="trunk")},
        {"generator": GeneratorConfig(kind="layer-mixture", tying="disentangled")},
    ],
    ids=["adversarial", "contrast and token prediction", "hard", "copy mechanism", "trunk", "mixture"],
)
def test_every_parameter_has_a_gradient(parts: dict) -> None:
    """Distributed training fails if a parameter has no gradient in a step."""
    network, examples = model(**parts), batch()
    loss, _ = network(examples, network.counts(examples))
    loss.backward()
    assert [name for name, parameter in network.named_parameters() if parameter.grad is None] == []


def test_batch_that_cannot_be_divided_among_processes_is_rejected() -> None:
    runtime, config = Runtime(torch.device("cpu"), torch.float32, 0, 3), tiny()
    odd = replace(config, training=replace(config.training, batch_size=64))
    with raises(UsageError, "uneven-batch", "--training.batch-size 64", 3):
        resolve_micro_batch_size(odd, runtime)
    assert resolve_micro_batch_size(replace(config, training=replace(config.training, batch_size=120)), runtime) == 40


@pytest.mark.parametrize(("gib", "rows"), [(16, {"small": 128, "base": 16}), (140, {"small": 128, "base": 128})])
def test_micro_batch_size_depends_on_gpu_memory(
    gib: int, rows: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = SimpleNamespace(total_memory=gib * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    runtime = Runtime(torch.device("cuda"), torch.bfloat16)
    assert {name: resolve_micro_batch_size(PRESETS[name](), runtime) for name in rows} == rows


def test_graphs_use_half_of_the_gpu_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other half is for the first computation of a shape, which is not recorded yet."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=16 * 2**30))
    base = PRESETS["base"]()
    graphed = replace(base, training=replace(base.training, graphs=True))
    assert resolve_micro_batch_size(graphed, Runtime(torch.device("cuda"), torch.bfloat16)) == 8
