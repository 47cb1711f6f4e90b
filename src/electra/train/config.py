"""Configuration of the training loop: batches, logging, checkpoints, optimizer, schedule and seed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from electra.config.checks import check_range
from electra.train.optimizer import OptimizerConfig, get_unit_factor
from electra.train.schedule import Budget, ScheduleConfig


@dataclass(frozen=True)
class TrainingConfig:
    """Batches, and how often the loop logs and saves."""

    batch_size: int = 128
    """Sequences of one update, over all processes."""
    micro_batch_size: int | None = None
    """Sequences that pass the model at once; more of them accumulate gradients. By default what suits the device."""
    means: Literal["global", "local"] = "global"
    """Losses are means over the whole batch, or (as the original code) means of each micro-batch's means."""
    log_every: int = 50
    """Updates between two rows of metrics."""
    checkpoint_every: int = 1000
    """Updates between two checkpoints."""
    checkpoint_minutes: float = 10.0
    """Minutes between two checkpoints, if that is sooner."""
    keep_checkpoints: int = 3
    """Checkpoints kept, the newest ones."""
    freeze: tuple[str, ...] = ()
    """Parameters that are not trained: patterns with the wildcards of a shell, which can begin after any dot of a name.
    embeddings.* are the embeddings, layers.0.* the first layer of both networks, target.* is the discriminator, corruption.*
    the generator's own part."""
    compile: bool = False
    """Compile with torch.compile: minutes before the first step, for shorter steps on a GPU. On a CPU nothing is gained
    (docs/research/log). Not measured on a GPU yet."""
    graphs: bool = False
    """Replay forward and backward passes as CUDA graphs, so that a small model's steps do not wait for the host. One is
    recorded whenever micro-batches have a new shape, which takes seconds of the run, so they are padded to one of a few
    lengths. Several GPUs exchange gradients after the passes, not during them. Not measured yet."""

    def __post_init__(self) -> None:
        check_range(self, "training", "batch_size", "micro_batch_size", at_least=1, at_most=10**7)
        check_range(self, "training", "log_every", "checkpoint_every", at_least=1, at_most=10**12)
        check_range(self, "training", "keep_checkpoints", at_least=1, at_most=10**9)
        check_range(self, "training", "checkpoint_minutes", above=0, at_most=10**9)


@dataclass(frozen=True)
class Recipe:
    """The configuration of a training run, independent of the module."""

    budget: Budget
    training: TrainingConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    seed: tuple[int, ...]
    """The run's seed, and further numbers of the key of its random numbers."""
    rate_factor: Callable[[str], float] = get_unit_factor
    """The factor of a parameter's learning rate, by the parameter's name."""

    @property
    def stem_step(self) -> int | None:
        """The step whose checkpoint is the stem: the start of the decay of a run of `steps` updates; None without one."""
        return self.schedule.find_decay(self.budget.steps) if self.budget.steps is not None else None
