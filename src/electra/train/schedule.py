"""The learning rate as a pure function of how much of the run is done."""

from dataclasses import dataclass

from electra.config.checks import check_limits
from electra.console import format_count
from electra.errors import UsageError


@dataclass(frozen=True)
class ScheduleConfig:
    """Linear warm-up to the peak, then linear to zero (paper, Table 6)."""

    warmup_steps: int = 10_000
    """Updates of warm-up, if the run has a number of steps."""
    max_warmup: float = 0.1
    """Largest share of a run that warms up; a run by the clock or by FLOPs warms up for just this share."""
    multiply: bool = False
    """Multiply warm-up and decay from the first step on, as the original code does, so that the peak is missed. Where the
    run has a number of steps, all warmup_steps count, also in a shorter run, which then never reaches the peak."""

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise UsageError(f"schedule.warmup_steps is {self.warmup_steps}; it must not be negative")
        check_limits(self, "schedule.", warmup_steps=10**12)
        if not 0 < self.max_warmup < 1:
            raise UsageError(f"schedule.max_warmup is {self.max_warmup}; it must lie between 0 and 1")

    def warmup(self, steps: int | None) -> float:
        """The warm-up of a run of `steps` updates (None: a run by the clock or by FLOPs) as a share of the run.

        It is more than 1 where `multiply` keeps warm-up steps that exceed the run.
        """
        if steps is None:
            return self.max_warmup
        share = self.warmup_steps / steps
        return share if self.multiply else min(share, self.max_warmup)


@dataclass(frozen=True)
class Budget:
    """How long a run lasts: a number of updates, hours of training, or floating point operations; exactly one of them."""

    steps: int | None = None
    hours: float | None = None
    flops: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            raise UsageError("say one of --steps, --hours and --flops")
        for name, value in given.items():
            if not value > 0:
                raise UsageError(f"--{name} must be more than 0")
        check_limits(self, "--", steps=10**12, hours=10**6, flops=10**30)

    def __str__(self) -> str:
        if self.steps is not None:
            return format_count(self.steps, "step")
        return f"{self.hours:g} h" if self.hours is not None else f"{self.flops:.3g} FLOPs"

    def done(self, step: int | float, seconds: float, flops: float) -> float:
        """The share of the run that is over after `step` updates, `seconds` and FLOPs of training; 1.0 or more: stop."""
        if self.steps is not None:
            return step / self.steps
        return seconds / (3600 * self.hours) if self.hours is not None else flops / (self.flops or 1.0)


def learning_rate_factor(done: float, warmup: float) -> float:
    """The share of the peak learning rate when the share `done` of a run is over."""
    return done / warmup if done < warmup else max(0.0, (1 - done) / (1 - warmup))


def multiplied_factor(done: float, warmup: float) -> float:
    """The original code's form: warm-up times decay; its peak is 1 - warmup, and the first update has rate 0."""
    return (1 - done) * min(1.0, done / warmup) if warmup else 1 - done
