"""A step on a GPU nowhere waits for the device, and nothing travels to it on the way: what a CUDA graph needs.

Seen without a GPU: tensors of torch's `meta` device have shapes and no values, so that whatever asks for a value, or for a
shape that depends on one, fails. The code takes the same branches for them as for a GPU: it asks only whether a device is a CPU.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_models import batch, model
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from electra.data.loader import Batch
from electra.pretraining.masking import MaskingConfig
from electra.pretraining.networks import GeneratorConfig
from electra.pretraining.objectives import OBJECTIVES, PretrainingModel
from electra.pretraining.prediction import ContrastConfig

METHODS: dict[str, dict[str, Any]] = {
    "adversarial": {"generator": GeneratorConfig(learning="adversarial")},
    "frozen": {"generator": GeneratorConfig(learning="none", tying="none")},
    "tied": {"generator": GeneratorConfig(size=1.0, tying="all")},
    "temperature": {"generator": GeneratorConfig(temperature=0.5)},
    "never the original": {"generator": GeneratorConfig(never_original=True)},
    "unigrams": {"generator": GeneratorConfig(kind="unigram")},
    "unigrams, never the original": {"generator": GeneratorConfig(kind="unigram", never_original=True)},
    "uniform": {"generator": GeneratorConfig(kind="uniform")},
    "rare": {"masking": MaskingConfig(strategy="rare")},
    "hard": {"masking": MaskingConfig(strategy="hard")},
    "with replacement": {"masking": MaskingConfig(with_replacement=True)},
    "contrast": {"contrast": ContrastConfig(weight=1.0)},
    "no copies": {"objective": "all-tokens-mlm", "copies": False},
}


class BetweenDevices(TorchDispatchMode):
    """Notes the operations that have to do with tensors of two devices."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves((args, kwargs, result))
        if len({leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}) > 1:
            self.seen.append(str(function))
        return result


def step(electra: PretrainingModel, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Forward and backward without values; what happened between devices."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # it does not know the device
    electra.to("meta")
    on_host = batch(lengths)
    inputs = Batch(*(None if t is None else t.to("meta") for t in vars(on_host).values()))
    counts = {name: torch.ones((), device="meta") for name in electra.counts(on_host)}
    with BetweenDevices() as between:
        loss, sums = electra(inputs, counts)
        loss.backward()
    assert {tensor.device.type for tensor in sums.values()} == {"meta"}
    assert any(p.grad is not None for p in electra.parameters())
    return between.seen


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("lengths", [(40, 23), (40, 40)], ids=["padding", "no padding"])
def test_objectives(objective: str, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert step(model(objective), lengths, monkeypatch) == []


@pytest.mark.parametrize("method", METHODS)
def test_methods(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert step(model(**METHODS[method]), (40, 23), monkeypatch) == []


def test_waiting_and_travelling_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = PretrainingModel.forward

    def waits(self, inputs, counts):
        loss, sums = forward(self, inputs, counts)
        return loss * float(loss), sums

    def travels(self, inputs, counts):
        return forward(self, replace(inputs, lengths=torch.tensor([40, 23]).to(inputs.lengths.device)), counts)

    with monkeypatch.context() as patched:
        patched.setattr(PretrainingModel, "forward", waits)
        with pytest.raises(RuntimeError, match="meta"):
            step(model(), (40, 23), monkeypatch)
    monkeypatch.setattr(PretrainingModel, "forward", travels)
    assert step(model(), (40, 23), monkeypatch) == ["aten._to_copy.default"]
