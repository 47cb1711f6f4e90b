"""What each size costs on this machine, and the largest one that a number of hours and a text train enough."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from electra.pretraining.config import PretrainConfig
from electra.studies.advice.rules import MAX_EPOCHS, compute_tokens_per_parameter, count_main_parameters
from electra.studies.advice.sizes import ModelSize
from electra.studies.catalog.variants import set_objective
from electra.studies.compute import Step, compute_look_up_share, compute_step_flops

MAX_RATIO = 3.0
"""A size that needs more than this multiple of the hours, by the rate of the size before it, is not measured."""


@dataclass(frozen=True)
class SizeEstimate:
    """The cost of a size with masked language modeling, the cheapest objective."""

    name: str
    config: PretrainConfig
    parameters: int
    """Of the main encoder."""
    step: Step
    is_measured: bool
    """Otherwise its seconds are estimated by the rate of the size before it."""
    text_tokens: float | None
    """Tokens of the text with the vocabulary of this size; None if that was not counted, because the hours do not suffice."""

    @property
    def step_tokens(self) -> int:
        """Tokens of an update."""
        return self.config.training.batch_size * self.config.seq_len

    @property
    def needed_tokens(self) -> float:
        """Tokens that train this size enough."""
        return compute_tokens_per_parameter() * self.parameters

    @property
    def needed_flops(self) -> float:
        """FLOPs of these tokens."""
        return self.needed_tokens / self.step_tokens * self.step.flops

    @property
    def needed_hours(self) -> float:
        """Hours for these tokens."""
        return self.needed_tokens / self.step_tokens * self.step.seconds / 3600

    @property
    def has_enough_text(self) -> bool:
        """Whether the text has enough tokens for it, if it is repeated as often as is of use."""
        return self.text_tokens is not None and self.needed_tokens <= MAX_EPOCHS * self.text_tokens


def estimate_sizes(
    sizes: Mapping[str, ModelSize],
    hours: float,
    options: Callable[[PretrainConfig], PretrainConfig],
    measure: Callable[[PretrainConfig], Step],
    count_tokens: Callable[[int], float],
) -> list[SizeEstimate]:
    """Estimate the cost of sizes in ascending order.

    Args:
        sizes: By name.
        hours: Hours of training.
        options: Sets the device and the text's options of a configuration.
        measure: Measures a step on this machine.
        count_tokens: Size of a vocabulary -> tokens of the text.
    """
    estimates: list[SizeEstimate] = []
    tokens: dict[int, float] = {}
    rate = 0.0
    for name, size in sizes.items():
        config = options(set_objective(size.build(), "mlm"))
        computed = compute_step_flops(config) * (1 - compute_look_up_share(config))
        # Without look-ups, which no machine computes, and whose share differs between the sizes.
        step = Step(compute_step_flops(config), computed / rate) if rate else measure(config)
        estimate = SizeEstimate(name, config, count_main_parameters(config), step, not rate, None)
        if rate and estimate.needed_hours <= MAX_RATIO * hours:
            estimate = replace(estimate, step=measure(config), is_measured=True)
        if estimate.is_measured:
            rate = computed / estimate.step.seconds
        if not estimates or estimate.needed_hours <= hours:
            vocab_size = config.model.vocab_size
            if vocab_size not in tokens:
                tokens[vocab_size] = count_tokens(vocab_size)
            estimate = replace(estimate, text_tokens=tokens[vocab_size])
        estimates.append(estimate)
    return estimates


def choose_size(estimates: Sequence[SizeEstimate], hours: float) -> SizeEstimate:
    """Return the largest size that the hours and the text train enough; the smallest if there is none."""
    fitting = [each for each in estimates if each.needed_hours <= hours and each.has_enough_text]
    return fitting[-1] if fitting else estimates[0]
