"""Selection of the epoch with the best dev score."""

from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from electra.errors import RunError
from electra.external import one_line
from electra.schema import check_file, read_tensors
from electra.storage import write_tensors
from electra.train.callbacks import Callback
from electra.train.checkpoint import TrainingState


class BestEpoch(Callback):
    """Saves the weights of the epoch with the best dev score, and the score, in a file that a resumed run continues from.

    Args:
        directory: Run directory; the file is `best.safetensors` in it.
        model: The trained module.
        score: Returns the dev score of the current weights.
        steps: Total steps.
        steps_per_epoch: Steps of an epoch.
    """

    def __init__(
        self, directory: Path, model: nn.Module, score: Callable[[], float], steps: int, steps_per_epoch: int
    ) -> None:
        self.path = directory / "best.safetensors"
        self.model = model
        self.score = score
        self.steps = steps
        self.steps_per_epoch = steps_per_epoch

    def on_step_end(self, state: TrainingState) -> None:
        """At the end of an epoch and of training, score the model and save its weights if the score is the best so far."""
        if state.step % self.steps_per_epoch and state.step != self.steps:
            return
        value = self.score()
        self.model.train()
        saved = self.read_saved()
        if saved is None or value > saved[1] or state.step == saved[0]:
            weights = {name: parameter.detach().contiguous() for name, parameter in self.model.named_parameters()}
            partial = self.path.with_suffix(".partial")
            write_tensors(partial, weights, {"step": str(state.step), "score": repr(value)})
            partial.replace(self.path)

    def read_saved(self) -> tuple[int, float] | None:
        """Read step and score of the saved weights; None if there are none.

        Raises:
            RunError: the file is damaged.
        """
        if not self.path.exists():
            return None
        check_file(self.path, RunError)
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata()
            return int(metadata["step"]), float(metadata["score"])
        except (SafetensorError, OSError, ValueError, LookupError, TypeError) as error:
            raise RunError("damaged", f"{self.path}: damaged ({one_line(error)}); choose another --out") from None

    def restore(self) -> int:
        """Load the saved weights into the model and return their step.

        Raises:
            RunError: the file is damaged, or has the parameters of another model.
        """
        saved = self.read_saved()
        assert saved is not None
        weights = read_tensors(self.path, RunError)
        if {n: t.shape for n, t in weights.items()} != {n: t.shape for n, t in self.model.named_parameters()}:
            raise RunError("other-model", f"{self.path}: has the parameters of another model; choose another --out")
        self.model.load_state_dict(weights, strict=True)
        return saved[0]
