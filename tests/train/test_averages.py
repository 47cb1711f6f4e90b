"""The moving average of the weights (`optimizer.ema`): its values, checkpoints, held-out metrics and saved models."""

import json
from pathlib import Path

import pytest
import torch
from fuzz.seals import seal_checkpoint
from support.callbacks import AtStep, CrashError, crash
from support.errors import raises
from support.tiny_models import checkpoints_in, trained_module
from support.toy import TINY_RUN, trace, weights
from torch import Tensor, nn

import electra
from electra.errors import RunError, UsageError
from electra.model.checkpoints import load_pretrained
from electra.schema import read_tensors
from electra.storage import write_tensors
from electra.train.checkpoint import TrainingState
from electra.train.optimizer import (
    EMA,
    OptimizerConfig,
    averaged_weights,
    build_optimizer,
    update_averages,
)

DECAY = 0.6


class Recorder(electra.Callback):
    """Keeps the weights after each update, and those to evaluate at some steps."""

    def __init__(self, steps: tuple[int, ...] = ()) -> None:
        self.steps = steps
        self.raw: list[dict[str, Tensor]] = []
        self.evaluated: dict[int, dict[str, Tensor]] = {}

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        self.module = module

    def copy(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.module.named_parameters()}

    def on_step_end(self, state: TrainingState) -> None:
        self.raw.append(self.copy())

    def evaluates(self, state: TrainingState) -> bool:
        return state.step in self.steps

    def on_evaluate(self, state: TrainingState) -> None:
        self.evaluated[state.step] = self.copy()


def compute_average(raw: list[dict[str, Tensor]], decay: float) -> dict[str, Tensor]:
    """The average after the last of the weights, in double precision, by its definition."""
    average = {name: tensor.double() for name, tensor in raw[0].items()}
    for step, each in enumerate(raw[1:], start=2):
        d = min(decay, (1 + step) / (10 + step))
        average = {name: d * average[name] + (1 - d) * tensor.double() for name, tensor in each.items()}
    return average


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name].double(), tensor, rtol=1e-5, atol=1e-7)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory, text: Path) -> tuple[Path, Recorder]:
    """A run with an average, and its weights after each update; tied embeddings, two micro-batches of a step."""
    out, recorder = tmp_path_factory.mktemp("averaged") / "run", Recorder((5, 12))
    electra.pretrain(text, out=out, callbacks=[recorder], **TINY_RUN, optimizer={"ema": DECAY})
    return out, recorder


def test_average_equals_its_definition(averaged: tuple[Path, Recorder]) -> None:
    """The decay is still growing at step 5, and constant at the end."""
    _, recorder = averaged
    assert len(recorder.raw) == 12
    for step, found in recorder.evaluated.items():
        expected = compute_average(recorder.raw[:step], DECAY)
        assert_near(found, expected)
        name = "target.network.head.dense.weight"
        assert not torch.allclose(expected[name].float(), recorder.raw[step - 1][name], atol=1e-4)


def test_training_continues_with_the_weights_themselves(
    averaged: tuple[Path, Recorder], finished: Path, text: Path
) -> None:
    assert trace(averaged[0]) == trace(finished)


def test_shared_weights_are_averaged_once(averaged: tuple[Path, Recorder]) -> None:
    tensors = read_tensors(averaged[0] / "checkpoints/step-00000012/optimizer.safetensors", RunError)
    names = [key.removeprefix(f"{EMA}/") for key in tensors if key.startswith(f"{EMA}/")]
    assert sorted(names) == sorted(averaged[1].raw[0])
    assert sum("embeddings.word" in name for name in names) == 1


def test_saved_models_and_held_out_metrics_are_of_the_average(
    averaged: tuple[Path, Recorder], finished: Path, text: Path
) -> None:
    out, recorder = averaged
    expected = recorder.evaluated[12]
    for directory, head, prefix in (
        ("discriminator", "replaced-token", "target.network"),
        ("generator", "masked-lm", "corruption.generator"),
    ):
        saved = load_pretrained(out / directory).state(head)
        own = {name: tensor for name, tensor in expected.items() if name.startswith(f"{prefix}.")}
        assert own
        for name, tensor in own.items():
            assert torch.equal(saved[name.removeprefix(f"{prefix}.")], tensor), name
    heldout = json.loads((out / "summary.json").read_text())["heldout"]
    assert electra.evaluate(out) == heldout, "from the checkpoint, which has both"
    assert heldout != json.loads((finished / "summary.json").read_text())["heldout"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_run_with_an_average_resumes(text: Path, tmp_path: Path, tiny_run: dict, kind: str) -> None:
    options = tiny_run | {"optimizer": {"kind": kind, "ema": DECAY}}
    electra.pretrain(text, out=tmp_path / "whole", **options)
    with pytest.raises(CrashError):
        electra.pretrain(text, out=tmp_path / "run", callbacks=[AtStep(7, crash)], **options)
    electra.pretrain(text, out=tmp_path / "run", **options)
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_with_an_average_and_frozen_weights_resumes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """Saving must not give frozen weights a state, and so an average, from the next update on."""
    frozen = {"generator": {"training": "frozen", "tying": "none"}, "optimizer": {"ema": DECAY}}
    options = tiny_run | frozen | {"training": tiny_run.get("training", {}) | {"checkpoint_every": 2}}
    electra.pretrain(text, out=tmp_path / "whole", **options)
    with pytest.raises(CrashError):
        electra.pretrain(text, out=tmp_path / "run", callbacks=[AtStep(7, crash)], **options)
    electra.pretrain(text, out=tmp_path / "run", **options)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.slow
def test_two_stages_continue_from_the_average(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """The second stage reads the generator that the first one saved, and its frozen weights have no average."""
    options = tiny_run | {"procedure": "two-stage-scratch", "steps": 8, "optimizer": {"ema": DECAY}}
    electra.pretrain(text, out=tmp_path / "run", **options)
    first = load_pretrained(tmp_path / "run/first-stage/masked_lm").state("masked-lm")
    second = load_pretrained(tmp_path / "run/generator").state("masked-lm")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert electra.evaluate(tmp_path / "run") == json.loads((tmp_path / "run/summary.json").read_text())["heldout"]


def test_weights_are_restored_after_an_evaluation_that_fails() -> None:
    module, optimizer = trained_module()
    config = OptimizerConfig(ema=DECAY)
    update_averages(optimizer, config, 1)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    for parameter in module.parameters():
        optimizer.state[parameter][EMA].fill_(2.0)

    def fail() -> None:
        with averaged_weights(optimizer):
            assert all((parameter == 2.0).all() for parameter in module.parameters())
            raise CrashError

    with pytest.raises(CrashError):
        fail()
    assert all(torch.equal(*pair) for pair in zip(module.parameters(), before, strict=True))
    assert all((optimizer.state[parameter][EMA] == 2.0).all() for parameter in module.parameters())


def test_average_of_another_model_in_a_checkpoint_is_rejected(tmp_path: Path) -> None:
    """A checkpoint whose checksums fit: what is evaluated is checked as the weights are."""
    module, _ = trained_module()
    config = OptimizerConfig(ema=DECAY)
    optimizer = build_optimizer(module.named_parameters(), config)
    module(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
    update_averages(optimizer, config, 1)
    kept = checkpoints_in(tmp_path)
    path = kept.save(module, optimizer, TrainingState(1))
    file = path / "optimizer.safetensors"
    for changed in ({f"{EMA}/nothing": torch.ones(2)}, {f"{EMA}/0.weight": torch.ones(3)}):
        write_tensors(file, read_tensors(file, RunError) | changed)
        seal_checkpoint(path)
        with raises(RunError, "other-model", path):
            kept.restore(module)


def test_decay_out_of_range_is_rejected() -> None:
    with raises(UsageError, "out-of-range", "--optimizer.ema", 1.0):
        OptimizerConfig(ema=1.0)
