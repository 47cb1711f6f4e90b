"""Callbacks of the training loop."""

from pathlib import Path

from torch import nn

from electra.train.checkpoint import TrainingState


class Callback:
    """Called by the loop in the main process, in the order of the list; a subclass overrides the methods it needs.

    An exception ends the run; its newest checkpoint is kept. A method that communicates with other processes blocks,
    because they do not call it.
    """

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Before the first update; `state.step` is that of the checkpoint that the run resumes from, or 0."""

    def on_step_end(self, state: TrainingState) -> None:
        """After each update."""

    def evaluates(self, state: TrainingState) -> bool:
        """Whether `on_evaluate` is to be called after this update; asked after `on_step_end` of all callbacks."""
        return False

    def on_evaluate(self, state: TrainingState) -> None:
        """After such an update, while the module has the weights to evaluate: the averaged ones with `optimizer.ema`."""

    def on_log(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Every `log_every` updates, with the metrics of the updates since the last call.

        Numbers that are added to `metrics` reach the callbacks after this one, metrics.jsonl and trackers among them.
        """

    def on_save(self, state: TrainingState, path: Path) -> None:
        """After a checkpoint was written to the directory `path`."""

    def on_train_end(self, state: TrainingState) -> None:
        """When training ends, also by an exception, if `on_train_begin` returned."""
