"""The head of multiple choice. Shapes: B questions, G choices of each, H hidden size."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from electra.finetuning.batching import LabeledBatch
from electra.finetuning.classification.heads import HuggingFaceClassificationHead


class MultipleChoiceHead(nn.Module):
    """Dropout and a linear layer on [CLS]: one logit for each choice; a softmax over the choices of a question."""

    only_cls = True

    def __init__(self, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size, 1)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def loss(self, hidden: Float[Tensor, "BG 1 H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Compute the cross-entropy of the right choice."""
        return F.cross_entropy(self.predict(hidden, batch)["logits"], batch.targets["label"], reduction="none")

    def predict(self, hidden: Float[Tensor, "BG 1 H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute `logits` [B, G]."""
        return {"logits": self.output(self.dropout(hidden[:, 0])).view(-1, batch.group_size)}


class HuggingFaceMultipleChoiceHead(HuggingFaceClassificationHead):
    """The head of Hugging Face's `ElectraForMultipleChoice` for prediction: dense H -> H, GELU, linear H -> 1, on [CLS]."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, 1)

    def predict(self, hidden: Float[Tensor, "BG Q H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute `logits` [B, G]."""
        return {"logits": super().predict(hidden, batch)["logits"].view(-1, batch.group_size)}
