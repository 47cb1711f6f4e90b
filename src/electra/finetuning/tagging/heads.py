"""The head of tagging. Shapes: B sentences (or windows of them), L tokens, H hidden size, K labels."""

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
        """Mean cross-entropy over the scored words of each example.

        The original code takes their sum, of which the clipping at norm 1.0 leaves nothing but the direction; with
        the mean, the loss does not depend on the lengths of the sentences, and clipping is the exception.
        """
        targets = batch.targets["tags"]
        losses = F.cross_entropy(self.output(hidden).transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
        # A window in the middle of a long sentence may have no word to score.
        return losses.sum(1) / (targets != IGNORED).sum(1).clamp(min=1)

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """`logits` [B, L, K]; only those at first pieces mean something."""
        return {"logits": self.output(hidden)}
