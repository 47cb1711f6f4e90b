"""A step reads no value from the device and copies none to it, as CUDA graphs require.

The tests need no GPU: tensors on the `meta` device have shapes but no values, so code that reads a value, or needs a shape that
depends on one, fails. The code takes the same branches for them as for a GPU, because it tests only whether a device is a CPU.
`tests/runtime/test_gpu.py` covers CUDA's own kernels, such as attention and lower precisions.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.tiny_models import batch, model
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from electra.data.batch import Batch
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.targets.corrective import CorrectiveConfig
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, TokenPredictionConfig
from electra.pretraining.objectives.targets.sequence_contrast import SequenceContrastConfig

METHODS: dict[str, dict[str, Any]] = {
    "adversarial": {"generator": GeneratorConfig(training="adversarial")},
    "frozen": {"generator": GeneratorConfig(training="frozen", tying="none")},
    "tied": {"generator": GeneratorConfig(size=1.0, tying="all")},
    "trunk": {"generator": GeneratorConfig(size=1.0, depth=0.5, tying="trunk")},
    "disentangled": {"generator": GeneratorConfig(tying="disentangled")},
    "layer mixture": {"generator": GeneratorConfig(kind="layer-mixture")},
    "temperature": {"generator": GeneratorConfig(temperature=0.5)},
    "never the original": {"generator": GeneratorConfig(exclude_original_token=True)},
    "unigrams": {"generator": GeneratorConfig(kind="unigram")},
    "unigrams, never the original": {"generator": GeneratorConfig(kind="unigram", exclude_original_token=True)},
    "uniform": {"generator": GeneratorConfig(kind="uniform")},
    "rare": {"masking": MaskingConfig(strategy="rare")},
    "hard": {"masking": MaskingConfig(strategy="hard")},
    "word": {"masking": MaskingConfig(strategy="word"), "continuation_ids": (40, 41)},
    "span": {"masking": MaskingConfig(strategy="span"), "continuation_ids": (40, 41)},
    "frequencies": {"generator": GeneratorConfig(frequency_share=0.5)},
    "frequencies, never the original": {"generator": GeneratorConfig(frequency_share=0.5, exclude_original_token=True)},
    "with replacement": {"masking": MaskingConfig(with_replacement=True)},
    "contrast": {"contrast": ContrastConfig(weight=1.0)},
    "token prediction": {"token_prediction": TokenPredictionConfig(masked=1.0, filled=1.0)},
    "sequence contrast": {"sequence_contrast": SequenceContrastConfig(weight=1.0)},
    "corrective, all tokens": {"objective": "corrective-lm", "corrective": CorrectiveConfig(all_tokens=True)},
    "noise of a frozen generator": {
        "objective": "electric",
        "generator": GeneratorConfig(training="frozen", tying="none"),
    },
    "no copies": {"objective": "all-tokens-mlm", "copies": False},
}


class BetweenDevices(TorchDispatchMode):
    """Records operations with tensors on two devices, and boolean masks as indices, which synchronize on CUDA."""

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


def require_host(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Allow a constructor only on the host: on a device it copies values, which the dispatch mode does not record."""

    def checked(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = make(*args, **kwargs)
        assert made.device.type == "cpu", f"values are copied to {made.device.type}"
        return made

    return checked


def step(electra: PretrainingModel, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run forward and backward without values; return the recorded operations."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # autocast does not support the meta device
    for where, name in ((torch, "tensor"), (torch, "as_tensor"), (torch.Tensor, "new_tensor")):
        monkeypatch.setattr(where, name, require_host(getattr(where, name)))
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


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("lengths", [(40, 23), (40, 40)], ids=["padding", "no padding"])
def test_objectives_need_no_device_transfer(
    objective: str, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert step(model(objective), lengths, monkeypatch) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_options_need_no_device_transfer(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert step(model(**METHODS[method]), (40, 23), monkeypatch) == []


RAISED: dict[str, tuple[type[Exception], Callable[[Batch, torch.Tensor], object]]] = {
    "a value": (RuntimeError, lambda inputs, loss: float(loss)),
    "a shape": (RuntimeError, lambda inputs, loss: inputs.input_ids[inputs.input_ids > 3]),
    "a list": (AssertionError, lambda inputs, loss: torch.tensor([1.0, 2.0], device=loss.device)),
}
RECORDED: dict[str, Callable[[Batch, torch.Tensor], object]] = {
    "a copy": lambda inputs, loss: torch.ones(2).to(loss.device),
    "a mask": lambda inputs, loss: (
        torch.ones_like(loss).expand(2, 40).clone().index_put_((inputs.input_ids > 3,), loss)
    ),
}


def run_with_mistake(mistake: Callable[[Batch, torch.Tensor], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a step with a mistake at its end."""
    forward = PretrainingModel.forward

    def forward_with_mistake(self, inputs, counts):
        loss, sums = forward(self, inputs, counts)
        mistake(inputs, loss.detach())
        return loss, sums

    monkeypatch.setattr(PretrainingModel, "forward", forward_with_mistake)
    return step(model(), (40, 23), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", RAISED)
def test_synchronization_raises(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, synchronize = RAISED[mistake]
    with pytest.raises(error, match="meta"):
        run_with_mistake(synchronize, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", RECORDED)
def test_device_transfer_is_recorded(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(run_with_mistake(RECORDED[mistake], monkeypatch)) == 1
