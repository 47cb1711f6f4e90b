"""A step's code asks the device for no value, and brings it none on the way: what a CUDA graph needs of it.

Seen without a GPU: tensors of torch's `meta` device have shapes and no values, so that whatever asks for a value, or for a
shape that depends on one, fails. The code takes the same branches for them as for a GPU: it asks only whether a device is a CPU.
What CUDA's own kernels do, attention's and those of lower precisions among them, is left to `tests/test_gpu.py`.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.tiny_models import batch, model
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from electra.data.loader import Batch
from electra.pretraining.objectives.masking import MaskingConfig
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.spec import OBJECTIVES
from electra.pretraining.objectives.targets import ContrastConfig

METHODS: dict[str, dict[str, Any]] = {
    "adversarial": {"generator": GeneratorConfig(training="adversarial")},
    "frozen": {"generator": GeneratorConfig(training="frozen", tying="none")},
    "tied": {"generator": GeneratorConfig(size=1.0, tying="all")},
    "temperature": {"generator": GeneratorConfig(temperature=0.5)},
    "never the original": {"generator": GeneratorConfig(exclude_original_token=True)},
    "unigrams": {"generator": GeneratorConfig(kind="unigram")},
    "unigrams, never the original": {"generator": GeneratorConfig(kind="unigram", exclude_original_token=True)},
    "uniform": {"generator": GeneratorConfig(kind="uniform")},
    "rare": {"masking": MaskingConfig(strategy="rare")},
    "hard": {"masking": MaskingConfig(strategy="hard")},
    "with replacement": {"masking": MaskingConfig(with_replacement=True)},
    "contrast": {"contrast": ContrastConfig(weight=1.0)},
    "no copies": {"objective": "all-tokens-mlm", "copies": False},
}


class BetweenDevices(TorchDispatchMode):
    """Notes the operations that have to do with tensors of two devices, or with a mask as an index, which CUDA counts first."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        by_mask = str(function).startswith("aten.index") and any(leaf.dtype == torch.bool for leaf in leaves[1:])
        if by_mask or len({leaf.device for leaf in leaves}) > 1:
            self.seen.append(str(function))
        return result


def on_the_host_only(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same for the host; a tensor made of the host's values elsewhere travels there, and no operation shows it."""

    def checked(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = make(*args, **kwargs)
        assert made.device.type == "cpu", "values travel"
        return made

    return checked


def step(electra: PretrainingModel, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Forward and backward without values; what happened between devices."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # it does not know the device
    for where, name in ((torch, "tensor"), (torch, "as_tensor"), (torch.Tensor, "new_tensor")):
        monkeypatch.setattr(where, name, on_the_host_only(getattr(where, name)))
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


RAISED: dict[str, tuple[type[Exception], Callable[[Batch, torch.Tensor], object]]] = {
    "a value": (RuntimeError, lambda inputs, loss: float(loss)),
    "a shape": (RuntimeError, lambda inputs, loss: inputs.input_ids[inputs.input_ids > 3]),
    "a list": (AssertionError, lambda inputs, loss: torch.tensor([1.0, 2.0], device=loss.device)),
}
NOTED: dict[str, Callable[[Batch, torch.Tensor], object]] = {
    "a copy": lambda inputs, loss: torch.ones(2).to(loss.device),
    "a mask": lambda inputs, loss: (
        torch.ones_like(loss).expand(2, 40).clone().index_put_((inputs.input_ids > 3,), loss)
    ),
}


def mistaken(mistake: Callable[[Batch, torch.Tensor], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A step with a mistake at its end."""
    forward = PretrainingModel.forward

    def at_last(self, inputs, counts):
        loss, sums = forward(self, inputs, counts)
        mistake(inputs, loss.detach())
        return loss, sums

    monkeypatch.setattr(PretrainingModel, "forward", at_last)
    return step(model(), (40, 23), monkeypatch)


@pytest.mark.parametrize("mistake", RAISED)
def test_mistakes_that_stop_a_step(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, what = RAISED[mistake]
    with pytest.raises(error, match="meta|travel"):
        mistaken(what, monkeypatch)


@pytest.mark.parametrize("mistake", NOTED)
def test_mistakes_that_are_noted(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(mistaken(NOTED[mistake], monkeypatch)) == 1
