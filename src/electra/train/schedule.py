"""Amounts of training, and the learning rate as a pure function of the progress of the run."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, cast

from electra.config.checks import check_choice, check_range
from electra.config.options import choice_field
from electra.errors import UsageError
from electra.external import format_count, shorten
from electra.train.checkpoint import TrainingState


@dataclass(frozen=True)
class ScheduleConfig:
    """Warm-up and decay of the learning rate (paper, Table 6)."""

    warmup_steps: int = 10_000
    """Updates of warm-up, if the run has a number of steps."""
    max_warmup: float = 0.1
    """Largest share of a run that warms up; a run of hours or FLOPs warms up for exactly this share."""
    kind: str = choice_field("linear", lambda: SCHEDULES)
    """After a linear warm-up to the peak: linear decay to zero (linear), half a cosine to zero (cosine), the peak until the
    last part of the run and then linear decay to zero (wsd: warm-up, stable, decay), or the peak to the end (constant). With
    linear-product, warm-up and linear decay are multiplied from the first step on, as in the original code, which misses the
    peak; there max_warmup does not limit warmup_steps."""
    decay: float = 0.2
    """Schedule wsd: share of the run that decays, at its end. In a run of steps the checkpoint before it is kept (stem)."""

    def __post_init__(self) -> None:
        check_choice("schedule.kind", self.kind, SCHEDULES)
        check_range(self, "schedule", "warmup_steps", at_least=0, at_most=10**12)
        check_range(self, "schedule", "max_warmup", above=0, below=1)
        check_range(self, "schedule", "decay", above=0, at_most=1)

    def warmup(self, steps: int | None) -> float:
        """Return the warm-up of a run of `steps` updates (None: a run of hours or FLOPs) as a share of the run.

        It is more than 1 where a schedule does not limit warm-up steps that exceed the run.
        """
        if steps is None:
            return self.max_warmup
        share = self.warmup_steps / steps
        return min(share, self.max_warmup) if SCHEDULES[self.kind].limits_warmup else share

    def count_warmup(self, steps: int) -> float:
        """Return the warm-up of a run of `steps` updates as a number of updates, which need not be whole."""
        return min(float(self.warmup_steps), self.max_warmup * steps)

    def find_decay(self, steps: int) -> int | None:
        """Return the number of updates before the decay of a run of `steps` updates; None without a stable phase."""
        if not SCHEDULES[self.kind].is_stable:
            return None
        share = min(Fraction(str(self.decay)), 1 - Fraction(self.count_warmup(steps)) / steps)
        return max(0, math.floor(steps * (1 - share) - Fraction(1, 2)) + 1)  # the rate is that of an update's middle


FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
AMOUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[0-9]{1,2})?)([kmbt]?)(steps|tokens|flops)")


@dataclass(frozen=True)
class Amount:
    """A number of updates, tokens or FLOPs."""

    number: float
    unit: Literal["steps", "tokens", "flops"]

    @classmethod
    def parse(cls, option: str, text: str) -> "Amount":
        """Parse an amount such as `500steps`, `1.5Mtokens` or `1e13flops`; k, M, B and T are powers of a thousand.

        Raises:
            UsageError: it is not a positive amount; the message names the option.
        """
        if (match := AMOUNT.fullmatch(text.strip().lower())) is None or not float(match[1]):
            raise UsageError(
                "wrong-amount",
                f"{option}: expected an amount such as 500steps, 1.5Mtokens or 1e13flops, "
                f"got {shorten(text) or 'an empty text'}",
            )
        return cls(float(match[1]) * FACTORS[match[2]], cast(Any, match[3]))

    def count(self, state: TrainingState) -> float:
        """Return how often the amount is contained in a run's training so far."""
        return {"steps": state.step, "tokens": state.tokens, "flops": state.flops}[self.unit] / self.number


@dataclass(frozen=True)
class Budget:
    """How long a run lasts: a number of updates, hours of training, or floating point operations; exactly one of them."""

    steps: int | None = None
    hours: float | None = None
    flops: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            raise UsageError("wrong-budget", "exactly one of --steps, --hours and --flops is needed")
        check_range(self, "", "steps", above=0, at_most=10**12)
        check_range(self, "", "hours", above=0, at_most=10**6)
        check_range(self, "", "flops", above=0, at_most=10**30)

    def __str__(self) -> str:
        if self.steps is not None:
            return format_count(self.steps, "step")
        return f"{self.hours:g} h" if self.hours is not None else f"{self.flops:.3g} FLOPs"

    def compute_progress(self, step: int | float, seconds: float, flops: float) -> float:
        """Compute the share of the run that is over after `step` updates, `seconds` and FLOPs of training; at 1.0 it ends."""
        if self.steps is not None:
            return step / self.steps
        return seconds / (3600 * self.hours) if self.hours is not None else flops / (self.flops or 1.0)

    def share(self, state: TrainingState) -> float:
        """Return the share of the run that is over at `state`, at most 1."""
        return min(1.0, self.compute_progress(state.step, state.seconds, state.flops))


def linear(done: float, warmup: float, config: ScheduleConfig) -> float:
    """Linear warm-up, then linear decay to zero."""
    return done / warmup if done < warmup else max(0.0, (1 - done) / (1 - warmup))


def cosine(done: float, warmup: float, config: ScheduleConfig) -> float:
    """Linear warm-up, then half a cosine to zero (Loshchilov and Hutter, 2017)."""
    return done / warmup if done < warmup else 0.5 * (1 + math.cos(math.pi * min(1.0, (done - warmup) / (1 - warmup))))


def wsd(done: float, warmup: float, config: ScheduleConfig) -> float:
    """Linear warm-up, the peak, and linear decay to zero in the last part of the run (Hu et al., 2024)."""
    return done / warmup if done < warmup else min(1.0, max(0.0, 1 - done) / min(config.decay, 1 - warmup))


def constant(done: float, warmup: float, config: ScheduleConfig) -> float:
    """Linear warm-up, then the peak."""
    return min(1.0, done / warmup) if warmup else 1.0


def linear_product(done: float, warmup: float, config: ScheduleConfig) -> float:
    """The original code's warm-up times decay; its peak is 1 - warmup, and the first update has rate 0."""
    return (1 - done) * min(1.0, done / warmup) if warmup else 1 - done


@dataclass(frozen=True)
class Schedule:
    """A learning rate schedule."""

    factor: Callable[[float, float, ScheduleConfig], float]
    """The share of the peak rate, from the share of the run that is over and the share of it that is warm-up."""
    at: float = 0.5
    """Where in an update the share of the run is taken: 0.5 is its middle, so that neither the first nor the last update
    has rate zero; 0 its start."""
    limits_warmup: bool = True
    """`max_warmup` limits `warmup_steps`."""
    uses: frozenset[str] = frozenset()
    """Options of `ScheduleConfig` that only some schedules read: decay."""
    is_stable: bool = False
    """Whether the rate is at its peak between the warm-up and a decay in the last share `decay` of the run."""


SCHEDULES: dict[str, Schedule] = {
    "linear": Schedule(linear),
    "cosine": Schedule(cosine),
    "wsd": Schedule(wsd, uses=frozenset({"decay"}), is_stable=True),
    "constant": Schedule(constant),
    "linear-product": Schedule(linear_product, at=0.0, limits_warmup=False),
}
"""Learning rate schedules by name."""


def compute_factor(config: ScheduleConfig, budget: Budget, step: int, seconds: float, flops: float) -> float:
    """Compute the share of the peak rate of the update that follows `step` updates, `seconds` and FLOPs of training.

    Before its decay, a stable schedule of `steps` updates is computed from updates, not from shares of the run: these round
    differently for each budget, and a run can continue from the stem of a run with another budget.
    """
    schedule, steps = SCHEDULES[config.kind], budget.steps
    if steps is not None and step < (config.find_decay(steps) or 0):
        return constant(step + schedule.at, config.count_warmup(steps), config)
    return schedule.factor(budget.compute_progress(step + schedule.at, seconds, flops), config.warmup(steps), config)
