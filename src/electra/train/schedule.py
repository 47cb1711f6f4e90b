"""The learning rate as a pure function of how much of the run is done."""

from dataclasses import dataclass

from electra.errors import UsageError


@dataclass(frozen=True)
class ScheduleConfig:
    """Linear warm-up to the peak, then linear to zero (paper, Table 6)."""

    warmup_steps: int = 10_000
    """Updates of warm-up, if the run has a number of steps."""
    max_warmup: float = 0.1
    """Largest share of a run that warms up; a run by the clock (--hours) warms up for just this share."""
    multiply: bool = False
    """Multiply warm-up and decay from the first step on, as the original code does, so that the peak is missed."""

    def __post_init__(self) -> None:
        if not 0 < self.max_warmup < 1:
            raise UsageError(f"schedule.max_warmup is {self.max_warmup}; it must lie between 0 and 1")

    def warmup(self, steps: int | None) -> float:
        """The share of a run of `steps` updates (None: a run by the clock) that warms up."""
        return self.max_warmup if steps is None else min(self.warmup_steps / steps, self.max_warmup)


@dataclass(frozen=True)
class Budget:
    """How long a run lasts: a number of updates or hours of training, exactly one of them."""

    steps: int | None = None
    hours: float | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.hours is None):
            raise UsageError("say either --steps or --hours, not both")
        if not (self.steps or self.hours or 0) > 0:
            raise UsageError(f"--{'hours' if self.steps is None else 'steps'} must be more than 0")

    def done(self, step: int | float, seconds: float) -> float:
        """The share of the run that is over after `step` updates and `seconds` of training; 1.0 or more: stop."""
        return step / self.steps if self.steps else seconds / (3600 * (self.hours or 0))


def learning_rate_factor(done: float, warmup: float) -> float:
    """The share of the peak learning rate when the share `done` of a run is over."""
    return done / warmup if done < warmup else max(0.0, (1 - done) / (1 - warmup))


def multiplied_factor(done: float, warmup: float) -> float:
    """The original code's form: warm-up times decay; its peak is 1 - warmup, and the first update has rate 0."""
    return (1 - done) * min(1.0, done / warmup) if warmup else 1 - done
