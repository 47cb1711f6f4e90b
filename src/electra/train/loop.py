"""The training loop. It drives any module that returns a loss, for a number of steps or by the clock."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from electra.config.checks import check_limits
from electra.errors import DivergedError, RunError, UsageError
from electra.runtime.distributed import share_errors
from electra.runtime.memory import keep_freed_memory
from electra.runtime.setup import Runtime
from electra.train.backward import Backward
from electra.train.checkpoint import Checkpoints, TrainingState
from electra.train.graphs import CudaRecorder, GraphedBackward
from electra.train.optimizer import OptimizerConfig, build_optimizer, clip_gradients, same_rate, set_learning_rate
from electra.train.parallel import check_alike, global_counts, global_sums
from electra.train.schedule import Budget, ScheduleConfig, learning_rate_factor, multiplied_factor


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
    compile: bool = False
    """Compile with torch.compile: minutes before the first step, for shorter steps on a GPU. On a CPU nothing is gained
    (docs/research/log). Not measured on a GPU yet."""
    graphs: bool = False
    """Replay forward and backward passes as CUDA graphs, so that a small model's steps do not wait for the host. One is
    recorded whenever micro-batches have a new shape, which takes seconds of the run, so they are padded to one of a few
    lengths. Several GPUs exchange gradients after the passes, not during them. Not measured yet."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "micro_batch_size", "log_every", "checkpoint_every", "keep_checkpoints"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UsageError(f"training.{name} is {getattr(self, name)}; it must be at least 1")
        if not self.checkpoint_minutes > 0:
            raise UsageError(f"training.checkpoint_minutes is {self.checkpoint_minutes:g}; it must be more than 0")
        check_limits(self, "training.", batch_size=10**7, micro_batch_size=10**7, log_every=10**12)
        check_limits(self, "training.", checkpoint_every=10**12, checkpoint_minutes=10**9, keep_checkpoints=10**9)


class Trainable(Protocol):
    """What the loop asks of a module, beside being an `nn.Module`."""

    def counts(self, batch: Any) -> dict[str, float]:
        """What the losses are means over, from a micro-batch on the host; "tokens" is among them."""

    def __call__(self, batch: Any, counts: Mapping[str, float | Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """This micro-batch's share of the loss, and sums from which `metrics` are made."""

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Readable numbers out of sums over any number of batches."""

    def flops(self, batch: Any) -> float:
        """Floating point operations of forward and backward for a micro-batch."""


@runtime_checkable
class Observer(Protocol):
    """Who is told how the run goes. Called in every process; only the main one should speak."""

    def started(self, state: TrainingState) -> None:
        """The first step is about to begin."""

    def stepped(self, state: TrainingState) -> None:
        """An update was made."""

    def logged(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """The metrics of all steps since the last call."""


@dataclass(frozen=True)
class Recipe:
    """All that decides how a module is trained."""

    budget: Budget
    training: TrainingConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    seed: tuple[int, ...]
    """The run's seed, and what else is to be part of the key of its random numbers."""
    rate_factor: Callable[[str], float] = same_rate
    """By a parameter's name, what multiplies its learning rate."""


def train(
    module: nn.Module,
    batches_from: Callable[[int], Iterable[list[Any]]],
    recipe: Recipe,
    runtime: Runtime,
    checkpoints: Checkpoints,
    observer: Observer,
    stop_asked: Callable[[], bool],
) -> TrainingState:
    """Train `module`, a `Trainable`, until the budget is spent or `stop_asked()`; resumes where a run stopped.

    `batches_from(step)` gives this process's micro-batches of step `step` and of all that follow. The state returned
    is saved. A run that stopped early is one of which `budget.done(...)` is less than 1.

    Raises:
        DivergedError: the gradients are not finite; the newest checkpoint is from before that was seen.
        StorageError: a checkpoint or log cannot be written.
    """
    optimizer = build_optimizer(module.named_parameters(), recipe.optimizer, recipe.rate_factor)
    with share_errors(runtime):
        state = checkpoints.restore(module, optimizer)
    check_alike({"the step to go on from": state.step}, runtime)
    if not runtime.is_main:
        state.sums = zeros(state.sums)
    backward = backward_of(module, recipe.training, runtime)
    module.train()
    observer.started(state)
    clock, window = Clock(state.seconds), Window(state)
    saved_step, saved_at, rate = state.step, state.seconds, 0.0

    with keep_freed_memory(runtime.device):
        for micro_batches in batches_from(state.step):
            # Whatever the processes do together is decided by what they agreed on, never by a clock of their own.
            agreed, stop = runtime.all_reduce_max(clock.seconds(), float(stop_asked()))
            state.seconds = agreed
            over = recipe.budget.done(state.step, agreed, state.flops) >= 1
            if over and state.step > window.step:  # a run by the clock seldom ends with a full window
                window.log(observer, module, state, rate, runtime)
            if over or stop:
                break
            before = state.flops
            accumulate_gradients(backward, module, micro_batches, recipe, runtime, state)
            rate = learning_rate(recipe, state.step, state.seconds, (before + state.flops) / 2)
            set_learning_rate(optimizer, recipe.optimizer, rate, state.step + 1)
            norm = clip_gradients(module.parameters(), recipe.optimizer)
            optimizer.step()
            backward.clear(optimizer)
            add(state.sums, {"steps": torch.ones_like(norm), "gradient_norm": norm})
            state.step += 1
            state.seconds = clock.seconds()
            observer.stepped(state)

            if state.step % recipe.training.log_every == 0:
                window.log(observer, module, state, rate, runtime)
            overdue = agreed - saved_at >= 60 * recipe.training.checkpoint_minutes
            if overdue or state.step % recipe.training.checkpoint_every == 0:
                save(module, optimizer, state, runtime, checkpoints)
                saved_step, saved_at = state.step, agreed

    if state.step != saved_step:
        save(module, optimizer, state, runtime, checkpoints)
    return state


def learning_rate(recipe: Recipe, step: int, seconds: float, flops: float) -> float:
    """The rate of the update after `step` updates, `seconds` and FLOPs of training."""
    warmup, peak = recipe.schedule.warmup(recipe.budget.steps), recipe.optimizer.learning_rate
    if recipe.schedule.multiply:
        return peak * multiplied_factor(recipe.budget.done(step, seconds, flops), warmup)
    # Seen from the middle of the step, so that neither the first nor the last update has rate zero.
    return peak * learning_rate_factor(recipe.budget.done(step + 0.5, seconds, flops), warmup)


def backward_of(module: nn.Module, training: TrainingConfig, runtime: Runtime) -> Backward | GraphedBackward:
    return GraphedBackward(module, runtime, CudaRecorder()) if training.graphs else Backward(module, runtime)


def accumulate_gradients(
    backward: Backward | GraphedBackward,
    module: nn.Module,
    micro_batches: list[Any],
    recipe: Recipe,
    runtime: Runtime,
    state: TrainingState,
) -> None:
    """Forward and backward of one step's micro-batches; adds to the gradients, the metric sums and the FLOPs.

    Losses are divided by counts over the whole global batch before the backward pass: micro-batches hold different
    numbers of tokens, so a mean of their means would be another loss.
    """
    trainable = cast(Trainable, module)
    counts = [trainable.counts(batch) | {"flops": trainable.flops(batch)} for batch in micro_batches]
    in_all = len(micro_batches) * runtime.world_size
    total = global_counts({name: sum(each[name] for each in counts) for name in counts[0]}, runtime)
    state.tokens += total["tokens"]
    state.flops += total["flops"]
    for i, batch in enumerate(micro_batches):
        # Micro-batch i of this process is number i * world_size + rank of the step, whatever the arrangement.
        key = (*recipe.seed, state.step, i * runtime.world_size + runtime.rank)
        local = {name: count * in_all for name, count in counts[i].items()}
        means_over = total if recipe.training.means == "global" else local
        add(state.sums, backward(batch, means_over, key, last=i == len(micro_batches) - 1))


def add(sums: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    """Add to running sums, in double precision, without fetching anything from the device.

    Raises:
        RunError: a sum so far, which a checkpoint held, has another shape.
    """
    for name, tensor in more.items():
        value = tensor.double()
        if name in sums and sums[name].shape != value.shape:  # out of a checkpoint
            raise RunError(
                f"the sum {name!r} of the checkpoint has the shape {tuple(sums[name].shape)}, expected {tuple(value.shape)}; "
                "delete the newest checkpoint"
            )
        sums[name] = sums[name].to(value.device) + value if name in sums else value.clone()


def zeros(sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Nothing, under the same names: of sums that are those of all processes, and count once."""
    return {name: torch.zeros_like(tensor) for name, tensor in sums.items()}


def check_finite(state: TrainingState) -> None:
    """Stop a run whose gradients have become meaningless, before a checkpoint of it is written.

    Raises:
        DivergedError: a gradient norm since the last log is NaN or infinite.
    """
    if "gradient_norm" in state.sums and not torch.isfinite(state.sums["gradient_norm"]):
        raise DivergedError(
            f"step {state.step}: the gradients are not finite numbers any more; the last checkpoint is older "
            "than that. Try another --out with a lower --optimizer.learning-rate or a longer --schedule.warmup-steps"
        )


def save(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: TrainingState,
    runtime: Runtime,
    checkpoints: Checkpoints,
) -> None:
    """Write a checkpoint from the main process, which takes over the metric sums of the others."""
    check_finite(state)
    sums = global_sums(state.sums, runtime)
    state.sums = sums if runtime.is_main else zeros(sums)
    if runtime.is_main:
        checkpoints.save(module, optimizer, state)


class Clock:
    """Seconds of training over all restarts."""

    def __init__(self, before: float) -> None:
        self.start = time.perf_counter() - before

    def seconds(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self.start


class Window:
    """The time since the last log, for rates."""

    def __init__(self, state: TrainingState) -> None:
        self.open(state)

    def open(self, state: TrainingState) -> None:
        """Begin a window here."""
        self.step, self.seconds, self.tokens, self.flops = state.step, state.seconds, state.tokens, state.flops

    def log(self, observer: Observer, module: nn.Module, state: TrainingState, rate: float, runtime: Runtime) -> None:
        """Tell the observer the metrics since the last log, and begin anew."""
        observer.logged(state, self.metrics(module, state, rate, runtime))
        check_finite(state)
        state.sums.clear()

    def metrics(self, module: nn.Module, state: TrainingState, rate: float, runtime: Runtime) -> dict[str, float]:
        """All metrics of the steps since the last log; opens the next window."""
        sums = global_sums(state.sums, runtime)
        seconds = state.seconds - self.seconds
        metrics = {
            **cast(Trainable, module).metrics(sums),
            # Every process counts the same step and the same norm; their quotient does not mind.
            "gradient_norm": float(sums["gradient_norm"] / sums["steps"]),
            "learning_rate": rate,
            "seconds": state.seconds,
            "tokens": state.tokens,
            "tokens_per_second": (state.tokens - self.tokens) / seconds,
            "flops": state.flops,
            "flops_per_second": (state.flops - self.flops) / seconds,
        }
        self.open(state)
        return metrics
