"""The head of sentence vectors: pooling, and the contrastive loss of SimCSE (Gao et al., 2021, equations 1 and 5).

Shapes: B examples of a batch, each of G texts, R = B G rows, L tokens, H hidden size, Q = 1 or L, M = B (G - 1) candidates.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from electra.finetuning.batching import LabeledBatch
from electra.finetuning.classification.pooling import POOLINGS


class EmbeddingHead(nn.Module):
    """Pooling (a key of `POOLINGS`) and L2 normalization.

    The first text of an example is the anchor, the second its positive, a third one a hard negative. The loss is that of a
    softmax over the second and third texts of all examples of the batch, on cosine similarities divided by the temperature.
    """

    def __init__(self, hidden_size: int, pooling: str, temperature: float = 0.05, normalize: bool = True) -> None:
        super().__init__()
        self.pooling = POOLINGS[pooling](hidden_size)
        self.only_cls = self.pooling.only_cls
        self.temperature = temperature
        self.normalize = normalize

    def forward(self, hidden: Float[Tensor, "R Q H"], batch: LabeledBatch) -> Float[Tensor, "R H"]:
        """Compute the vector of each text."""
        vectors = self.pooling(hidden, batch.inputs)
        return F.normalize(vectors, dim=-1) if self.normalize else vectors

    def loss(self, hidden: Float[Tensor, "R Q H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Compute the contrastive loss of each example."""
        # In float64, which autocast does not convert: cosines differ by less than bfloat16 resolves.
        vectors = self(hidden, batch).double().view(len(batch), batch.group_size, -1)
        candidates = vectors[:, 1:].flatten(0, 1)
        logits = (vectors[:, 0] @ candidates.t() / self.temperature).masked_fill(find_repeated(batch), -torch.inf)
        positive = torch.arange(0, len(candidates), batch.group_size - 1, device=logits.device)
        return F.cross_entropy(logits, positive, reduction="none").float()

    def predict(self, hidden: Float[Tensor, "R Q H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute `vectors` [B, G, H]."""
        return {"vectors": self(hidden, batch).unflatten(0, (len(batch), -1))}


def find_repeated(batch: LabeledBatch) -> Bool[Tensor, "B M"]:
    """Find the candidates that equal the anchor or the positive of an example, other than its positive: no negatives of it."""
    ids = batch.inputs.input_ids.unflatten(0, (len(batch), -1))
    candidates = ids[:, 1:].flatten(0, 1)
    repeated = (ids[:, :1] == candidates).all(-1) | (ids[:, 1:2] == candidates).all(-1)
    examples = torch.arange(len(batch), device=ids.device)
    repeated[examples, examples * (ids.shape[1] - 1)] = False
    return repeated
