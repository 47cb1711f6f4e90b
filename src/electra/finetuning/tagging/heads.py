"""The head of tagging. Shapes: B windows, L tokens, H hidden size, C labels."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from electra.finetuning.batching import IGNORED, LabeledBatch


class TaggingHead(nn.Module):
    """One linear layer on every token, without dropout, as in the original code."""

    only_cls = False

    class_weights: Tensor | None

    def __init__(self, hidden_size: int, num_labels: int, class_weights: Sequence[float] | None = None) -> None:
        super().__init__()
        weights = None if class_weights is None else torch.tensor(class_weights)
        self.register_buffer("class_weights", weights, persistent=False)
        self.output = nn.Linear(hidden_size, num_labels)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def loss(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Compute the mean cross-entropy over the words of each window that have a target.

        The original code computes the sum, whose gradients are clipped at norm 1 in every step, so that only their direction
        is used. With the mean, the loss does not depend on the number of words, and clipping is rare.
        With class weights, the loss of each word is multiplied by that of its tag; the number of words divides as before.
        """
        targets = batch.targets["tags"]
        logits = self.output(hidden).transpose(1, 2)
        losses = F.cross_entropy(logits, targets, self.class_weights, ignore_index=IGNORED, reduction="none")
        # A window in the middle of a long sentence can have no word with a target.
        return losses.sum(1) / (targets != IGNORED).sum(1).clamp(min=1)

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute `logits` [B, L, C]; only those at the first token of a word are used."""
        return {"logits": self.output(hidden)}
