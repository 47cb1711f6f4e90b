"""`--training.compile`: compiled parts give equal losses and gradients; one error where compilation is not possible."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.places import TESTS
from support.toy import TINY_RUN

pytestmark = pytest.mark.slow

SAME = """
from dataclasses import replace

import torch
from support.tiny_models import ENCODER, batch, model

from electra.pretraining.execution import compile_parts


def compute_gradients(compiled):
    network = model(encoder=replace(ENCODER, num_layers=1, dropout=0.0, attention_dropout=0.0))
    if compiled:
        compile_parts(network, torch.device("cpu"))
    examples = batch((40, 23))
    torch.manual_seed(1)
    loss, _ = network(examples, network.counts(examples))
    loss.backward()
    return {"loss": loss, **{name: parameter.grad for name, parameter in network.named_parameters()}}


eager, compiled = compute_gradients(False), compute_gradients(True)
assert eager.keys() == compiled.keys()
for name, value in eager.items():
    torch.testing.assert_close(compiled[name], value, rtol=1e-5, atol=1e-5, msg=name)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 4, "a layer of each network, logits twice"
"""

LOGITS = """
import torch
from electra.pretraining.objectives.chunked_softmax import get_block_functions
from electra.pretraining.objectives.sampling import Sampling, sample_by_partial_sums

torch.manual_seed(0)
logits, targets, u, gradient = 3 * torch.randn(70, 200), torch.randint(200, (70,)), torch.rand(70), torch.rand(70)
logits[:5, 7] = logits[:5].amax(1)  # ties
plain, compiled = get_block_functions(None), get_block_functions("inductor")
for dtype in (torch.float32, torch.bfloat16):
    given = logits.to(dtype)
    for sampling in (None, Sampling(), Sampling(2.5, excluded=3), Sampling(excluded=3, exclude_original_token=True)):
        untouched = given.clone()
        ours, theirs = compiled.block_forward(untouched, targets, sampling, u), plain.block_forward(given.clone(), targets, sampling, u)
        assert torch.equal(untouched, given), "the logits are not overwritten"
        torch.testing.assert_close(ours[:2], theirs[:2])
        torch.testing.assert_close(ours[3], theirs[3])
        assert torch.equal(ours[2], theirs[2]), "argmax"
        assert len(ours) == len(theirs) and (len(ours) == 4 or (ours[4] == theirs[4]).float().mean() > 0.97)
    normalizer = theirs[3]
    ours, theirs = (each.block_backward(given.clone(), normalizer, targets, gradient) for each in (compiled, plain))
    torch.testing.assert_close(ours, theirs)

weights, u = torch.rand(500, 700), torch.rand(500)
weights[:, ::2] = 0.0
ours, theirs = torch.compile(sample_by_partial_sums)(weights, u), sample_by_partial_sums(weights, u)
assert torch.equal(ours, theirs)
"""

MANY = """
from dataclasses import replace

import torch
from support.tiny_models import ENCODER, batch, model

from electra.pretraining.execution import compile_parts

network = model(encoder=replace(ENCODER, num_layers=1))
compile_parts(network, torch.device("cpu"), "aot_eager")
torch._dynamo.config.fail_on_recompile_limit_hit = True
for training in (True, False):
    network.train(training)
    for lengths in ((40, 23), (30, 12), (40, 40)):
        examples = batch(lengths)
        loss, _ = network(examples, network.counts(examples))
        loss.backward()
        assert loss.isfinite()
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 8, "more than the default limit"
gradient = network.target.network.encoder.layers[0].ffn.up.weight.grad
assert gradient.isfinite().all() and gradient.any()
"""

CHANGING = """
from dataclasses import replace

import torch
from support.tiny_models import ENCODER, batch, model

from electra.pretraining.execution import compile_parts
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.networks import GeneratorConfig

sizes = replace(ENCODER, num_layers=1, dropout=0.0, attention_dropout=0.0)
masking = MaskingConfig(fraction=0.5, final_fraction=0.05)
generator = GeneratorConfig(size=0.25, temperature=2.0, final_temperature=0.5)
eager, network = (model(encoder=sizes, masking=masking, generator=generator) for _ in range(2))
compile_parts(network, torch.device("cpu"), "aot_eager")
torch._dynamo.config.recompile_limit = 8
torch._dynamo.config.fail_on_recompile_limit_hit = True
slots = set()
for step in range(30):
    for each in (eager, network):
        each.set_progress(step / 30)
    ours, theirs = (each.run(batch((40, 40))) for each in (network, eager))
    ours.losses["generator_loss"].sum().backward()
    slots.add(ours.masked.positions.shape[1])
    same = ours.corrupted.generated.sampled == theirs.corrupted.generated.sampled
    assert same.float().mean() > 0.97, step
    torch.testing.assert_close(ours.losses["generator_loss"], theirs.losses["generator_loss"])
assert len(slots) > 10
"""

GRAPHED = """
from dataclasses import replace

import torch
from support.computing_again import ComputeAgain
from support.tiny_models import ENCODER, batch, model

from electra.pretraining.execution import compile_parts
from electra.runtime.setup import Runtime
from electra.train.backward import Backward
from electra.train.graphs import GraphedBackward

runtime = Runtime(torch.device("cpu"), torch.float32)
sizes = replace(ENCODER, num_layers=1, dropout=0.0, attention_dropout=0.0)
networks = [model(encoder=sizes), model(encoder=sizes)]
compile_parts(networks[1], runtime.device, "aot_eager")
passes = [Backward(networks[0], runtime), GraphedBackward(networks[1], runtime, ComputeAgain())]
optimizers = [torch.optim.AdamW(network.parameters()) for network in networks]
for step in range(3):
    for number, lengths in enumerate(((40, 23), (30, 12), (40, 40))):
        for network, each in zip(networks, passes):
            examples = batch(lengths, seed=10 * step + number)
            each(examples, network.counts(examples), (step, number), last=True)
    for plain, graphed in zip(networks[0].parameters(), networks[1].parameters()):
        torch.testing.assert_close(graphed.grad, plain.grad, rtol=1e-4, atol=1e-5)
    for each, optimizer in zip(passes, optimizers):
        optimizer.step()
        each.clear(optimizer)
assert ComputeAgain.recordings == 3
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 4
"""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run Python in a separate process without type checks, which torch.compile cannot trace."""
    places = {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | places | environment, check=False)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_gradients_equal_eager_ones() -> None:
    done = python("-c", SAME)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_block_functions_equal_eager_ones() -> None:
    done = python("-c", LOGITS)
    assert done.returncode == 0, done.stderr


def test_many_shapes_with_dropout_compile() -> None:
    """Batches with and without padding, in training and evaluation; this back end needs no C++ compiler."""
    done = python("-c", MANY)
    assert done.returncode == 0, done.stderr


def test_values_that_change_compile_few_variants() -> None:
    """The number of masked positions and the temperature are variables of the compiled code."""
    done = python("-c", CHANGING)
    assert done.returncode == 0, done.stderr


def test_compiled_gradients_in_graphs_equal_eager_ones() -> None:
    """Three micro-batches per step, each of another shape."""
    done = python("-c", GRAPHED)
    assert done.returncode == 0, done.stderr


def test_missing_compiler_raises(text: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(TINY_RUN | {"training": TINY_RUN["training"] | {"compile": True}}))
    places = {"CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    command = ["pretrain", str(text), "--config", str(config), "--out", str(tmp_path / "run")]
    done = python("-m", "electra", *command, **places)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("electra: error: ")]
    assert "--training.compile" in line
