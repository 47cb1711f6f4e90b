"""The training loop, for any module that returns a loss."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from electra.errors import DivergedError, RunError
from electra.runtime.distributed import share_errors
from electra.runtime.memory import keep_freed_memory
from electra.runtime.setup import Runtime
from electra.train.backward import Backward
from electra.train.callbacks import Callback
from electra.train.checkpoint import Checkpoints, TrainingState
from electra.train.config import Recipe, TrainingConfig
from electra.train.graphs import CudaRecorder, GraphedBackward
from electra.train.optimizer import (
    averaged_weights,
    build_optimizer,
    clip_gradients,
    set_learning_rate,
    swap_averages,
    update_averages,
)
from electra.train.parallel import check_alike, reduce_counts, reduce_sums
from electra.train.schedule import SCHEDULES, compute_factor

log = logging.getLogger(__name__)


class Trainable(Protocol):
    """The methods that the loop needs of an `nn.Module`."""

    def counts(self, batch: Any) -> dict[str, float]:
        """Compute the counts that losses are means over, from a micro-batch on the host; "tokens" is among them."""

    def __call__(self, batch: Any, counts: Mapping[str, float | Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute this micro-batch's share of the loss, and the sums that `metrics` needs."""

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Compute metrics from sums over any number of batches."""

    def flops(self, batch: Any) -> float:
        """Count floating point operations of forward and backward for a micro-batch."""


@runtime_checkable
class FollowsProgress(Protocol):
    """A `Trainable` with values that change over training."""

    def set_progress(self, done: float) -> None:
        """Set the values of the next update, at which the share `done` of the run is over; called before its `counts`."""


def train(
    module: nn.Module,
    batches_from: Callable[[int], Iterable[list[Any]]],
    recipe: Recipe,
    runtime: Runtime,
    checkpoints: Checkpoints,
    callbacks: Sequence[Callback],
    should_stop: Callable[[], bool],
) -> TrainingState:
    """Train `module`, a `Trainable`, until the budget is spent or `should_stop()`; a stopped run resumes.

    `batches_from(step)` gives this process's micro-batches of step `step` and of all that follow. The state returned
    is saved. If a run stopped early, `budget.compute_progress(...)` is less than 1. In the end the module has the weights to
    evaluate: the averaged ones with `optimizer.ema`.

    Raises:
        DivergedError: the gradients are not finite; the newest checkpoint is older.
        StorageError: a checkpoint or log cannot be written.
    """
    optimizer = build_optimizer(module.named_parameters(), recipe.optimizer, recipe.rate_factor)
    with share_errors(runtime):
        state = checkpoints.restore(module, optimizer)
    check_alike({"the step to resume from": state.step}, runtime)
    if (path := checkpoints.path(state.step)).exists():
        log.info(f"resuming from step {state.step:,} ({path})", extra={"code": "resuming"})
    if not runtime.is_main:
        state.sums = build_zero_sums(state.sums)
    backward = build_backward(module, recipe.training, runtime)
    callbacks = callbacks if runtime.is_main else ()
    module.train()
    saved_step, saved_at, rate = state.step, state.seconds, 0.0

    with keep_freed_memory(runtime.device), call_begin_and_end(callbacks, module, state):
        clock, window = Clock(state.seconds), Window(state)  # the start of callbacks is not training time
        for micro_batches in batches_from(state.step):
            # Decisions that must be the same in all processes depend on this shared time, never on a process's own clock.
            shared_seconds, stop = runtime.all_reduce_max(clock.seconds(), float(should_stop()))
            state.seconds = shared_seconds
            over = recipe.budget.compute_progress(state.step, shared_seconds, state.flops) >= 1
            if over and state.step > window.step:  # a run limited by time seldom ends with a full window
                window.log(callbacks, module, state, rate, runtime)
            if over or stop:
                break
            if state.step and state.step == recipe.stem_step:
                save(module, optimizer, state, runtime, checkpoints.stem, callbacks=())
            before = state.flops
            if isinstance(module, FollowsProgress):
                # Its FLOPs may depend on the values, so a budget of FLOPs is taken before the update, not in its middle.
                module.set_progress(compute_update_progress(recipe, state.step, state.seconds, before))
            accumulate_gradients(backward, module, micro_batches, recipe, runtime, state)
            rate = compute_learning_rate(recipe, state.step, state.seconds, (before + state.flops) / 2)
            set_learning_rate(optimizer, recipe.optimizer, rate, state.step + 1)
            norm = clip_gradients(module.parameters(), recipe.optimizer)
            optimizer.step()
            backward.clear(optimizer)
            add(state.sums, {"steps": torch.ones_like(norm), "gradient_norm": norm})
            state.step += 1
            update_averages(optimizer, recipe.optimizer, state.step)
            state.seconds = clock.seconds()
            call_step_end(callbacks, optimizer, state)

            if state.step % recipe.training.log_every == 0:
                window.log(callbacks, module, state, rate, runtime)
            overdue = shared_seconds - saved_at >= 60 * recipe.training.checkpoint_minutes
            if overdue or state.step % recipe.training.checkpoint_every == 0:
                save(module, optimizer, state, runtime, checkpoints, callbacks)
                saved_step, saved_at = state.step, shared_seconds

        if state.step != saved_step:
            save(module, optimizer, state, runtime, checkpoints, callbacks)
    swap_averages(optimizer)
    return state


@contextmanager
def call_begin_and_end(callbacks: Sequence[Callback], module: nn.Module, state: TrainingState) -> Iterator[None]:
    """Call `on_train_begin` of each callback, and at the end, also after an exception, `on_train_end` of those that began."""
    with ExitStack() as ends:
        for callback in callbacks:
            callback.on_train_begin(module, state)
            ends.callback(callback.on_train_end, state)
        yield


def call_step_end(callbacks: Sequence[Callback], optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
    """Call `on_step_end` of each callback, then `on_evaluate` of those that evaluate now."""
    for callback in callbacks:
        callback.on_step_end(state)
    if evaluating := [callback for callback in callbacks if callback.evaluates(state)]:
        with averaged_weights(optimizer):
            for callback in evaluating:
                callback.on_evaluate(state)


def compute_learning_rate(recipe: Recipe, step: int, seconds: float, flops: float) -> float:
    """Compute the learning rate of the update that follows `step` updates, `seconds` and FLOPs of training."""
    return recipe.optimizer.learning_rate * compute_factor(recipe.schedule, recipe.budget, step, seconds, flops)


def compute_update_progress(recipe: Recipe, step: int, seconds: float, flops: float) -> float:
    """Compute the share of the run that is over at the update that follows `step` updates, `seconds` and FLOPs."""
    return recipe.budget.compute_progress(step + SCHEDULES[recipe.schedule.kind].at, seconds, flops)


def build_backward(module: nn.Module, training: TrainingConfig, runtime: Runtime) -> Backward | GraphedBackward:
    return GraphedBackward(module, runtime, CudaRecorder()) if training.graphs else Backward(module, runtime)


def accumulate_gradients(
    backward: Backward | GraphedBackward,
    module: nn.Module,
    micro_batches: list[Any],
    recipe: Recipe,
    runtime: Runtime,
    state: TrainingState,
) -> None:
    """Run forward and backward of one step's micro-batches; add to the gradients, the metric sums and the FLOPs.

    Losses are divided by counts over the whole global batch before the backward pass: micro-batches hold different
    numbers of tokens, so a mean of their means would be another loss.
    """
    trainable = cast(Trainable, module)
    counts = [trainable.counts(batch) | {"flops": trainable.flops(batch)} for batch in micro_batches]
    in_all = len(micro_batches) * runtime.world_size
    total = reduce_counts({name: sum(each[name] for each in counts) for name in counts[0]}, runtime)
    state.tokens += total["tokens"]
    state.flops += total["flops"]
    for i, batch in enumerate(micro_batches):
        # Micro-batch i of this process is number i * world_size + rank of the step, for any number of processes.
        key = (*recipe.seed, state.step, i * runtime.world_size + runtime.rank)
        local = {name: count * in_all for name, count in counts[i].items()}
        means_over = total if recipe.training.means == "global" else local
        add(state.sums, backward(batch, means_over, key, last=i == len(micro_batches) - 1))


def add(sums: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    """Add to running sums, in double precision, without copying from the device.

    Raises:
        RunError: a sum of a checkpoint has another shape.
    """
    for name, tensor in more.items():
        value = tensor.double()
        if name in sums and sums[name].shape != value.shape:  # from a checkpoint
            raise RunError(
                "wrong-shape",
                f"the sum {name!r} of the checkpoint has the shape {tuple(sums[name].shape)}, expected {tuple(value.shape)}; "
                "delete the newest checkpoint",
            )
        sums[name] = sums[name].to(value.device) + value if name in sums else value.clone()


def build_zero_sums(sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Build sums of zeros under the same names, for the processes whose sums were added to those of the main process."""
    return {name: torch.zeros_like(tensor) for name, tensor in sums.items()}


def check_finite(state: TrainingState) -> None:
    """Stop a run whose gradients are not finite, before a checkpoint of it is written.

    Raises:
        DivergedError: a gradient norm since the last log is NaN or infinite.
    """
    if "gradient_norm" in state.sums and not torch.isfinite(state.sums["gradient_norm"]):
        raise DivergedError(
            "diverged",
            f"step {state.step}: the gradients are not finite numbers any more; the last checkpoint is "
            "older. Try another --out with a lower --optimizer.learning-rate or a longer --schedule.warmup-steps",
        )


def save(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: TrainingState,
    runtime: Runtime,
    checkpoints: Checkpoints,
    callbacks: Sequence[Callback],
) -> None:
    """Write a checkpoint in the main process; the metric sums of all processes are added in it."""
    check_finite(state)
    sums = reduce_sums(state.sums, runtime)
    state.sums = sums if runtime.is_main else build_zero_sums(sums)
    if runtime.is_main:
        path = checkpoints.save(module, optimizer, state)
        for callback in callbacks:
            callback.on_save(state, path)


class Clock:
    """Seconds of training over all restarts."""

    def __init__(self, before: float) -> None:
        self.start = time.perf_counter() - before

    def seconds(self) -> float:
        """Return the seconds so far."""
        return time.perf_counter() - self.start


class Window:
    """The time since the last log, for rates."""

    def __init__(self, state: TrainingState) -> None:
        self.open(state)

    def open(self, state: TrainingState) -> None:
        """Begin a window at this state."""
        self.step, self.seconds, self.tokens, self.flops = state.step, state.seconds, state.tokens, state.flops

    def log(
        self, callbacks: Sequence[Callback], module: nn.Module, state: TrainingState, rate: float, runtime: Runtime
    ) -> None:
        """Pass the metrics since the last log to the callbacks, and reset the sums."""
        metrics = self.metrics(module, state, rate, runtime)
        for callback in callbacks:
            callback.on_log(state, metrics)
        check_finite(state)
        state.sums.clear()

    def metrics(self, module: nn.Module, state: TrainingState, rate: float, runtime: Runtime) -> dict[str, float]:
        """Compute all metrics of the steps since the last log; start the next window."""
        sums = reduce_sums(state.sums, runtime)
        seconds = state.seconds - self.seconds
        metrics = {
            **cast(Trainable, module).metrics(sums),
            # Every process adds the same step and the same norm, so that their ratio is right.
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
