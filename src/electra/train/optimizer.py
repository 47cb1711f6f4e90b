"""AdamW as in BERT and ELECTRA: weight decay on kernels and embeddings only, one norm to clip all gradients; and Muon."""

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from electra.config.checks import check_choice, check_range
from electra.config.options import choice_field
from electra.errors import UsageError


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer: AdamW, as in the paper (Table 6), or another one."""

    kind: str = choice_field("adamw", lambda: OPTIMIZERS)
    """adamw; or muon: orthogonalized momentum for the matrices of the layers, with steps of the size of AdamW's, and AdamW
    for embeddings, heads, biases and LayerNorms."""
    learning_rate: float = 5e-4
    """Peak learning rate."""
    beta1: float = 0.9
    """Decay of the mean of the gradients."""
    beta2: float = 0.999
    """Decay of the mean of their squares."""
    eps: float = 1e-6
    """Added to the root of the second moment."""
    weight_decay: float = 0.01
    """Decoupled weight decay; biases and LayerNorms have none."""
    clip_norm: float = 1.0
    """Largest norm of all gradients together."""
    bias_correction: bool = True
    """Correct the moments for their initial value of zero; the original code does not."""
    ema: float = 0.0
    """Decay of an exponential moving average of the weights; 0 for none. Held-out evaluation and the saved models have the
    average; training continues with the weights themselves. At update t the decay is at most (1 + t) / (10 + t), so that the
    first weights are soon forgotten."""

    def __post_init__(self) -> None:
        check_choice("optimizer.kind", self.kind, OPTIMIZERS)
        check_range(self, "optimizer", "beta1", "beta2", "ema", at_least=0, below=1)
        check_range(self, "optimizer", "learning_rate", above=0, at_most=100)
        check_range(self, "optimizer", "eps", above=0, at_most=1)
        check_range(self, "optimizer", "weight_decay", at_least=0, at_most=1000)
        check_range(self, "optimizer", "clip_norm", above=0)


def freeze_parameters(module: nn.Module, patterns: Iterable[str]) -> int:
    """Exclude the parameters whose names match a pattern from training; return how many values they have.

    Without a gradient an optimizer changes nothing of a parameter, weight decay included. A pattern has the wildcards of a
    shell and can begin after any dot of a name: `layers.0.*` matches `encoder.layers.0.ffn.up.weight`. A parameter of several
    modules has several names, each of which counts.

    Raises:
        UsageError: a pattern matches nothing (the message has names that are near), or nothing is left to train.
    """
    named = dict(module.named_parameters(remove_duplicate=False))
    frozen: dict[nn.Parameter, None] = {}
    for pattern in patterns:
        found = [each for name, each in named.items() if fnmatchcase(f".{name}", f"*.{pattern}")]
        if not found:
            near = find_near_names(pattern, named)
            raise UsageError(
                "no-such-parameter",
                f"no parameter has a name like {pattern!r}, which is to be frozen; near names: {', '.join(near)}",
            )
        frozen |= dict.fromkeys(found)
    for parameter in frozen:
        parameter.requires_grad_(False)
    if frozen and not any(parameter.requires_grad for parameter in named.values()):
        raise UsageError(
            "nothing-to-train", "every parameter is frozen, so nothing is left to train; leave a pattern out"
        )
    return sum(parameter.numel() for parameter in frozen)


def find_near_names(pattern: str, names: Iterable[str]) -> list[str]:
    """Find the parts of names between dots that are most similar to a pattern, or else a few names."""
    words = [name.split(".") for name in names]
    parts = {".".join(each[i:j]) for each in words for i in range(len(each)) for j in range(i + 1, len(each) + 1)}
    near = difflib.get_close_matches(pattern.strip("*."), sorted(parts), n=4)
    return near or [".".join(each) for each in words[:4]]


def has_decay(parameter: nn.Parameter) -> bool:
    """Whether weight decay applies: to matrices, not to biases and LayerNorms."""
    return parameter.dim() > 1


def get_unit_factor(name: str) -> float:
    """Return 1, the factor of all parameters."""
    return 1.0


def build_optimizer(
    parameters: Iterable[tuple[str, nn.Parameter]],
    config: OptimizerConfig,
    rate_factor: Callable[[str], float] = get_unit_factor,
) -> Optimizer:
    """Build the optimizer of `config.kind` over named parameters; `rate_factor(name)` multiplies the learning rate of each."""
    kind, average = OPTIMIZERS[config.kind], {EMA} if config.ema else set()
    members: dict[tuple[float, bool, str], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in parameters:
        members[rate_factor(name), has_decay(parameter), kind.role(name, parameter)].append(parameter)
    groups = [
        {"params": group, "rate_factor": factor, "decays": decays, "role": role, "state": kind.state[role] | average}
        for (factor, decays, role), group in members.items()
    ]
    return kind.build(groups, config)


def set_learning_rate(optimizer: Optimizer, config: OptimizerConfig, rate: float, step: int) -> None:
    """Set the learning rate of update number `step` (from 1) in every group of parameters."""
    for group in optimizer.param_groups:
        settings = OPTIMIZERS[config.kind].group_settings[group["role"]]
        group.update(settings(config, rate * group["rate_factor"], step, group["decays"]))


EMA = "ema"
"""Name of a parameter's average in its state, which the optimizer itself does not read."""


def update_averages(optimizer: Optimizer, config: OptimizerConfig, step: int) -> None:
    """Update the moving average of every trained parameter after update number `step` (from 1).

    The average of a parameter begins with its value after its first update. Frozen parameters have none.
    """
    if not config.ema:
        return
    averages, weights = [], []
    for parameter, state in optimizer.state.items():
        if EMA in state:
            averages.append(state[EMA])
            weights.append(parameter.detach())
        elif state:  # a frozen parameter has no state, or an empty one
            state[EMA] = parameter.detach().clone()
    if averages:
        get_ema_multi_avg_fn(min(config.ema, (1 + step) / (10 + step)))(averages, weights, step)


def swap_averages(optimizer: Optimizer) -> None:
    """Exchange the values of the parameters and of their averages, if there are any."""
    for parameter, state in optimizer.state.items():
        if EMA in state:
            weight = parameter.detach().clone()
            parameter.detach().copy_(state[EMA])
            state[EMA].copy_(weight)


@contextmanager
def averaged_weights(optimizer: Optimizer) -> Iterator[None]:
    """Give the parameters the values of their averages in the block, if there are any."""
    swap_averages(optimizer)
    try:
        yield
    finally:
        swap_averages(optimizer)


def build_adamw(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    """Build torch's AdamW in its fused form."""
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
    )


def compute_adamw_settings(config: OptimizerConfig, rate: float, step: int, decays: bool) -> dict[str, float]:
    """Compute learning rate, epsilon and decay for update number `step` (from 1).

    Without bias correction the update is rate * m / (sqrt(v) + eps). torch's AdamW computes it when its rate, epsilon
    and decay are scaled by the corrections that it applies.
    """
    eps, scale = config.eps, 1.0
    if not config.bias_correction:
        root = (1 - config.beta2**step) ** 0.5
        eps, scale = config.eps / root, (1 - config.beta1**step) / root
    return {"lr": rate * scale, "eps": eps, "weight_decay": config.weight_decay / scale if decays else 0.0}


class CombinedOptimizer(Optimizer):
    """Several optimizers as one, each with parameter groups of its own; they share the state, which is by parameter."""

    def __init__(self, parts: list[Optimizer]) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        self.param_groups = [group for part in parts for group in part.param_groups]  # the same dicts, not copies
        for part in parts:
            part.state = self.state

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step with each of them."""
        for part in self.parts:
            part.step()


def build_muon(groups: list[dict[str, Any]], config: OptimizerConfig) -> Optimizer:
    """Build torch's Muon (Jordan et al., 2024) for the groups of matrices, AdamW for the others.

    Updates of matrices are scaled to the root mean square of AdamW's, so that both use one learning rate and one decay
    (Liu et al., 2025).
    """
    parts: list[Optimizer] = []
    if rest := [group for group in groups if group["role"] == DEFAULT]:
        parts.append(build_adamw(rest, config))
    if matrices := [group for group in groups if group["role"] == MATRICES]:
        parts.append(torch.optim.Muon(matrices, lr=config.learning_rate, adjust_lr_fn="match_rms_adamw"))
    return CombinedOptimizer(parts)


def choose_muon_role(name: str, parameter: nn.Parameter) -> str:
    """Return the role of a parameter: Muon updates matrices of layers, not embeddings, their projections, or heads."""
    return MATRICES if parameter.dim() == 2 and ".layers." in f".{name}" else DEFAULT


def compute_muon_settings(config: OptimizerConfig, rate: float, step: int, decays: bool) -> dict[str, float]:
    """Return learning rate and decay; Muon has no bias correction."""
    return {"lr": rate, "weight_decay": config.weight_decay if decays else 0.0}


DEFAULT, MATRICES = "default", "matrices"
"""Roles of parameters; an optimizer that treats all parameters alike has the first one only."""


@dataclass(frozen=True)
class OptimizerKind:
    """An optimizer of the table. Parameters of different roles are updated differently; most optimizers have one role."""

    build: Callable[[list[dict[str, Any]], OptimizerConfig], Optimizer]
    """From groups of parameters, whose role is in `group["role"]`."""
    group_settings: Mapping[str, Callable[[OptimizerConfig, float, int, bool], dict[str, float]]]
    """By role: from configuration, learning rate, number of the update and whether the group decays, what to set in a
    group."""
    state: Mapping[str, frozenset[str]]
    """By role: names in `optimizer.state[parameter]`; `step` is a scalar, all else has the parameter's shape."""
    role: Callable[[str, nn.Parameter], str] = lambda name, parameter: DEFAULT
    """The role of a parameter, by its name."""


ADAMW_STATE = frozenset({"step", "exp_avg", "exp_avg_sq"})
OPTIMIZERS: dict[str, OptimizerKind] = {
    "adamw": OptimizerKind(build_adamw, {DEFAULT: compute_adamw_settings}, {DEFAULT: ADAMW_STATE}),
    "muon": OptimizerKind(
        build_muon,
        {DEFAULT: compute_adamw_settings, MATRICES: compute_muon_settings},
        {DEFAULT: ADAMW_STATE, MATRICES: frozenset({"momentum_buffer"})},
        choose_muon_role,
    ),
}
"""Optimizers by name."""


def clip_gradients(parameters: Iterable[Tensor], config: OptimizerConfig) -> Tensor:
    """Scale all gradients so that their common norm is at most `clip_norm`; return the norm before clipping."""
    return nn.utils.clip_grad_norm_(parameters, config.clip_norm)
