"""The head of text classification: one linear layer on the hidden state of [CLS] (section 3.1 and the original code)."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from electra.finetuning.batching import LabeledBatch

Kind = Literal["classification", "multilabel", "regression"]


class TextClassificationHead(nn.Module):
    """Dropout and a linear layer on [CLS], with a logit for each class or label, or one number.

    The target of a number y is (y - shift) / scale: Adam's first steps are too small for the numbers of some data sets.
    """

    only_cls = True

    def __init__(
        self, kind: Kind, hidden_size: int, outputs: int, dropout: float, shift: float = 0.0, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.kind = kind
        self.shift = shift
        self.scale = scale
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size, outputs)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, hidden: Float[Tensor, "B Q H"]) -> Float[Tensor, "B C"]:
        """Logits of classes or labels, or the scaled number."""
        return self.output(self.dropout(hidden[:, 0]))

    def unscaled(self) -> tuple[Float[Tensor, "C H"], Float[Tensor, " C"]]:
        """Weight and bias of the linear layer whose outputs are those of `predict`, with scale and shift folded in."""
        weight, bias = self.output.weight.detach().cpu(), self.output.bias.detach().cpu()
        return (weight * self.scale, bias * self.scale + self.shift) if self.kind == "regression" else (weight, bias)

    def loss(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Cross-entropy, binary cross-entropy summed over labels, or squared error of the scaled number."""
        logits, target = self(hidden), batch.targets["label"]
        if self.kind == "classification":
            return F.cross_entropy(logits, target, reduction="none")
        if self.kind == "multilabel":
            return F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)
        return (logits[:, 0] - (target - self.shift) / self.scale) ** 2

    def predict(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Logits, or the number itself."""
        logits = self(hidden)
        return {"logits": logits * self.scale + self.shift if self.kind == "regression" else logits}


def to_hugging_face_classifier(
    weight: Float[Tensor, "C H"], bias: Float[Tensor, " C"]
) -> dict[str, Float[Tensor, "..."]] | None:
    """The linear layer as Hugging Face's `ElectraClassificationHead` (dense H -> H, GELU, linear), exactly.

    gelu(z) - gelu(-z) = z, so a dense layer with the outputs and their negatives, and an output layer that
    subtracts the one from the other, compute the linear layer. None where 2 C units do not fit into H.
    """
    outputs, hidden = weight.shape
    if 2 * outputs > hidden:
        return None
    dense, dense_bias, project = torch.zeros(hidden, hidden), torch.zeros(hidden), torch.zeros(outputs, hidden)
    dense[:outputs], dense[outputs : 2 * outputs] = weight, -weight
    dense_bias[:outputs], dense_bias[outputs : 2 * outputs] = bias, -bias
    project[:, :outputs], project[:, outputs : 2 * outputs] = torch.eye(outputs), -torch.eye(outputs)
    return {
        "dense.weight": dense,
        "dense.bias": dense_bias,
        "project.weight": project,
        "project.bias": torch.zeros(outputs),
    }


class HuggingFaceClassificationHead(nn.Module):
    """Hugging Face's `ElectraClassificationHead` for prediction: dense H -> H, GELU, linear, on [CLS].

    Our models are exported in this form, and models that others fine-tuned have it.
    """

    only_cls = True

    def __init__(self, hidden_size: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.project = nn.Linear(hidden_size, outputs)

    def predict(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Logits, or the number itself."""
        return {"logits": self.project(F.gelu(self.dense(hidden[:, 0])))}
