"""The head of text classification: one linear layer on the pooled hidden states (section 3.1 and the original code: [CLS]).

Shapes: B examples, L tokens, H hidden size, C classes or labels (1 for a number), Q = 1 or L.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from electra.data.batch import Batch
from electra.finetuning.batching import LabeledBatch
from electra.finetuning.classification.pooling import POOLINGS

LabelKind = Literal["classification", "multilabel", "regression"]


class TextClassificationHead(nn.Module):
    """Pooling (a key of `POOLINGS`), dropout and a linear layer: a logit for each class or label, or one number.

    The layer predicts a number y as (y - shift) / scale, because Adam's steps are too small to reach numbers of any size.
    Regression saves both beside the weights.
    """

    shift: Tensor
    scale: Tensor
    class_weights: Tensor | None

    def __init__(
        self,
        kind: LabelKind,
        hidden_size: int,
        outputs: int,
        dropout: float,
        shift: float = 0.0,
        scale: float = 1.0,
        pooling: str = "cls",
        class_weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.pooling = POOLINGS[pooling](hidden_size)
        self.only_cls = self.pooling.only_cls
        if kind == "regression":
            self.register_buffer("shift", torch.tensor(shift))
            self.register_buffer("scale", torch.tensor(scale))
        weights = None if class_weights is None else torch.tensor(class_weights)
        self.register_buffer("class_weights", weights, persistent=False)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size, outputs)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, hidden: Float[Tensor, "B Q H"], inputs: Batch) -> Float[Tensor, "B C"]:
        """Compute logits of classes or labels, or the scaled number."""
        return self.output(self.dropout(self.pooling(hidden, inputs)))

    def fold_scale(self) -> tuple[Float[Tensor, "C H"], Float[Tensor, " C"]]:
        """Return weight and bias of a linear layer with the outputs of `predict`: scale and shift are folded in."""
        weight, bias = self.output.weight.detach(), self.output.bias.detach()
        if self.kind == "regression":
            weight, bias = weight * self.scale, bias * self.scale + self.shift
        return weight.cpu(), bias.cpu()

    def loss(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Compute cross-entropy, binary cross-entropy summed over labels, or the squared error of the scaled number.

        With class weights, the cross-entropy is multiplied by the weight of the right class.
        """
        logits, target = self(hidden, batch.inputs), batch.targets["label"]
        if self.kind == "classification":
            return F.cross_entropy(logits, target, self.class_weights, reduction="none")
        if self.kind == "multilabel":
            return F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)
        return (logits[:, 0] - (target - self.shift) / self.scale) ** 2

    def predict(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute `logits` [B, C]: logits, or the number in its original scale."""
        logits = self(hidden, batch.inputs)
        return {"logits": logits * self.scale + self.shift if self.kind == "regression" else logits}


def convert_to_hugging_face(
    weight: Float[Tensor, "C H"], bias: Float[Tensor, " C"]
) -> dict[str, Float[Tensor, "..."]] | None:
    """Convert a linear layer to the weights of Hugging Face's `ElectraClassificationHead` (dense H -> H, GELU, linear).

    The outputs are equal, because gelu(z) - gelu(-z) = z: the dense layer computes the C outputs and their negatives, and the
    second layer the differences of their GELUs.

    Returns:
        Parameter name -> weight; None if 2 C > H, so that the dense layer is too small.
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

    Models of this package are exported in this form; models fine-tuned with transformers have it.
    """

    only_cls = True

    def __init__(self, hidden_size: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.project = nn.Linear(hidden_size, outputs)

    def predict(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute `logits` [B, C]: logits, or the number in its original scale."""
        return {"logits": self.project(F.gelu(self.dense(hidden[:, 0])))}
