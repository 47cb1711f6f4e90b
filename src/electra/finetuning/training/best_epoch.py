"""The weights of the epoch with the best dev score."""

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from electra.errors import RunError
from electra.external import one_line
from electra.schema import check_file, read_tensors
from electra.storage import write_tensors


class BestEpoch:
    """Saves the weights with the best dev score, and the score, in a file that a resumed run continues from.

    Args:
        directory: Run directory; the file is `best.safetensors` in it.
        model: The trained module.
    """

    def __init__(self, directory: Path, model: nn.Module) -> None:
        self.path = directory / "best.safetensors"
        self.model = model

    def offer(self, step: int, score: float) -> None:
        """Save the weights after a step if their score is the best so far."""
        saved = self.read_saved()
        if saved is None or score > saved[1] or step == saved[0]:
            weights = {name: parameter.detach().contiguous() for name, parameter in self.model.named_parameters()}
            partial = self.path.with_suffix(".partial")
            write_tensors(partial, weights, {"step": str(step), "score": repr(score)})
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
        self.model.load_state_dict(weights, strict=False)  # without the buffers, which training does not change
        return saved[0]
