"""The head of tagging. Shapes: B windows, L tokens, H hidden size, C labels."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from electra.finetuning.batching import IGNORED, LabeledBatch


class TaggingHead(nn.Module):
    """One linear layer on every token, without dropout, as in the original code."""

    only_cls = False

    def __init__(self, hidden_size: int, num_labels: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden_size, num_labels)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def loss(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Compute the mean cross-entropy over the words of each window that have a target.

        The original code computes the sum, whose gradients are clipped at norm 1 in every step, so that only their direction
        is used. With the mean, the loss does not depend on the number of words, and clipping is rare.
        """
        targets = batch.targets["tags"]
        losses = F.cross_entropy(self.output(hidden).transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
        # A window in the middle of a long sentence can have no word with a target.
        return losses.sum(1) / (targets != IGNORED).sum(1).clamp(min=1)

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute `logits` [B, L, C]; only those at the first token of a word are used."""
        return {"logits": self.output(hidden)}
