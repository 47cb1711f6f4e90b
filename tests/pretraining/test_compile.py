"""`--training.compile`: the same losses and gradients from compiled layers, and one line where it cannot work."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from toy import TINY_RUN

SAME = """
from dataclasses import replace

import torch
from tiny_models import ENCODER, batch, model

from electra.pretraining.device import compile_layers


def learnt(compiled):
    network = model(encoder=replace(ENCODER, num_layers=1, dropout=0.0, attention_dropout=0.0))
    if compiled:
        compile_layers(network, torch.device("cpu"))
    examples = batch((40, 23))
    torch.manual_seed(1)
    loss, _ = network(examples, network.counts(examples))
    loss.backward()
    return {"loss": loss, **{name: parameter.grad for name, parameter in network.named_parameters()}}


eager, compiled = learnt(False), learnt(True)
assert eager.keys() == compiled.keys()
for name, value in eager.items():
    torch.testing.assert_close(compiled[name], value, rtol=1e-5, atol=1e-5, msg=name)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 2, "a layer of each network"
"""

MANY = """
from dataclasses import replace

import torch
from tiny_models import ENCODER, batch, model

from electra.model.dropout import dropped
from electra.pretraining.device import compile_layers

network = model(encoder=replace(ENCODER, num_layers=1))
compile_layers(network, torch.device("cpu"), "aot_eager")
torch._dynamo.config.fail_on_recompile_limit_hit = True
for training in (True, False):
    network.train(training)
    for lengths in ((40, 23), (30, 12), (40, 40)):
        examples = batch(lengths)
        loss, _ = network(examples, network.counts(examples))
        loss.backward()
        assert loss.isfinite()
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 8, "the limit without ours"
gradient = network.prediction.network.encoder.layers[0].ffn.up.weight.grad
assert gradient.isfinite().all() and gradient.any()

ones = torch.ones(50, 8, requires_grad=True)
out = torch.compile(dropped, backend="aot_eager")(ones, 0.3)
out.sum().backward()
assert torch.equal(ones.grad, out.detach()), "what was dropped learns nothing"
assert 0 < out.count_nonzero() < out.numel()
"""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """In a process of its own: types are not checked there, and torch.compile cannot read what checks them."""
    places = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | places | environment, check=False)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_layers_learn_the_same() -> None:
    done = python("-c", SAME)
    assert done.returncode == 0, done.stderr


def test_dropout_and_many_shapes_go_through_the_compiler() -> None:
    """Batches with padding and without, in training and out of it; no C++ is written for this back end."""
    done = python("-c", MANY)
    assert done.returncode == 0, done.stderr


def test_without_a_compiler(text: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(TINY_RUN | {"training": TINY_RUN["training"] | {"compile": True}}))
    places = {"CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    command = ["pretrain", str(text), "--config", str(config), "--out", str(tmp_path / "run")]
    done = python("-m", "electra", *command, **places)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert "--training.compile: torch.compile does not work here" in line
