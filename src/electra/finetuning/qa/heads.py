"""The heads of question answering: joint, in which the end depends on the start (section 3.1), and plain, one linear layer.

Shapes: B windows, L tokens, H hidden size, K starts of a beam, D width of the joint head's hidden layers.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from electra.finetuning.batching import LabeledBatch
from electra.finetuning.qa.config import SpanConfig
from electra.model.packing import gather_positions

HEAD_SIZE = 512
"""Width of the joint head's two hidden layers, for encoders of all sizes."""

EXCLUDED = -1000.0
"""Added to the logits of tokens that cannot start or end an answer, as in the original code."""


def build_answer_mask(batch: LabeledBatch) -> Bool[Tensor, "B L"]:
    """Build the mask of the tokens that can start or end an answer: the context, its [SEP], and [CLS], which stands for "no
    answer in this window"."""
    types = batch.inputs.token_type_ids
    return types.bool() | (torch.arange(types.shape[1], device=types.device) == 0)


def mask_logits(logits: Float[Tensor, "*rows L"], mask: Bool[Tensor, "#*rows L"]) -> Float[Tensor, "*rows L"]:
    """Add EXCLUDED to the logits where the mask is False."""
    return logits + EXCLUDED * ~mask


def compute_span_loss(
    start_logits: Float[Tensor, "B L"], end_logits: Float[Tensor, "B L"], batch: LabeledBatch
) -> Float[Tensor, " B"]:
    """Compute the mean of the cross-entropies of start and end."""
    start_loss = F.cross_entropy(start_logits, batch.targets["start"], reduction="none")
    end_loss = F.cross_entropy(end_logits, batch.targets["end"], reduction="none")
    return (start_loss + end_loss) / 2


def init_glorot(module: nn.Module) -> None:
    """Initialize every layer as in the original code's heads: Glorot uniform weights, zero biases."""
    for parameter in module.parameters():
        if parameter.dim() == 1:
            nn.init.zeros_(parameter)
        else:
            nn.init.xavier_uniform_(parameter)


class PairLinear(nn.Linear):
    """A linear layer of two concatenated vectors that returns the product of each half, so that one can be used many times.

    Their sum is the layer's output.
    """

    def forward(  # type: ignore[override]
        self, first: Float[Tensor, "*rows H"], second: Float[Tensor, "*others H"]
    ) -> tuple[Float[Tensor, "*rows D"], Float[Tensor, "*others D"]]:
        first_weight, second_weight = self.weight.chunk(2, dim=1)
        return F.linear(first, first_weight), F.linear(second, second_weight, self.bias)


class JointSpanHead(nn.Module):
    """The paper's head: p(start), p(end | start), and a classifier of impossible questions."""

    only_cls = False

    def __init__(self, hidden_size: int, config: SpanConfig) -> None:
        super().__init__()
        self.beam_size = config.beam_size
        self.answerable_weight = config.answerable_weight
        self.start = nn.Linear(hidden_size, 1)
        self.end_dense = PairLinear(2 * hidden_size, HEAD_SIZE)
        self.end = nn.Linear(HEAD_SIZE, 1)
        self.impossible_dense = nn.Linear(2 * hidden_size, HEAD_SIZE)
        self.impossible = nn.Linear(HEAD_SIZE, 1)
        init_glorot(self)

    def loss(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Compute the loss of the span, with the end given the true start, plus the weighted loss of the classifier."""
        mask = build_answer_mask(batch)
        start_logits = self.compute_start_logits(hidden, mask)
        end_logits = self.compute_end_logits(hidden, batch.targets["start"][:, None], mask).squeeze(1)
        impossible_loss = F.binary_cross_entropy_with_logits(
            self.compute_impossible_logit(hidden, start_logits), batch.targets["impossible"].float(), reduction="none"
        )
        return compute_span_loss(start_logits, end_logits, batch) + self.answerable_weight * impossible_loss

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Search the most probable starts, and for each of them the most probable ends.

        Returns:
            `starts` and `start_log_probs` [B, K], positions of tokens and their log-probabilities; `ends` and `end_log_probs`
            [B, K, K], the same of the ends for each start; `impossible_logit` [B]. If L < K, they are padded with [CLS].
        """
        mask = build_answer_mask(batch)
        start_logits = self.compute_start_logits(hidden, mask)
        beam = min(self.beam_size, hidden.shape[1])
        start_log_probs, starts = start_logits.log_softmax(-1).topk(beam)
        end_log_probs, ends = self.compute_end_logits(hidden, starts, mask).log_softmax(-1).topk(beam)
        missing = self.beam_size - beam
        square = (0, missing, 0, missing)
        return {
            "starts": F.pad(starts, (0, missing)),
            "start_log_probs": F.pad(start_log_probs, (0, missing), value=EXCLUDED),
            "ends": F.pad(ends, square),
            "end_log_probs": F.pad(end_log_probs, square, value=EXCLUDED),
            "impossible_logit": self.compute_impossible_logit(hidden, start_logits),
        }

    def compute_start_logits(self, hidden: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"]) -> Float[Tensor, "B L"]:
        """Compute the logit of each token as the start."""
        return mask_logits(self.start(hidden).squeeze(-1), mask)

    def compute_end_logits(
        self, hidden: Float[Tensor, "B L H"], starts: Int64[Tensor, "B K"], mask: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B K L"]:
        """Compute the logit of each token as the end of an answer, for each position of its start in `starts`.

        The hidden layer reads the concatenated hidden states of start and token; the part of the tokens is computed once for
        all starts.
        """
        start_part, token_part = self.end_dense(gather_positions(hidden, starts), hidden)  # B K D, B L D
        # One start at a time, because a tensor B K L D would have gigabytes.
        logits = [self.end(F.gelu(token_part + part[:, None])).squeeze(-1) for part in start_part.unbind(1)]
        return mask_logits(torch.stack(logits, dim=1), mask[:, None])

    def compute_impossible_logit(
        self, hidden: Float[Tensor, "B L H"], start_logits: Float[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        """Compute a logit from [CLS] and the expected hidden state of the start; positive: the question has no answer."""
        expected = torch.einsum("bl,blh->bh", start_logits.softmax(-1), hidden)
        features = torch.cat([hidden[:, 0], expected], dim=-1)
        return self.impossible(F.gelu(self.impossible_dense(features))).squeeze(-1)


class PlainSpanHead(nn.Module):
    """One linear layer with a start logit and an end logit for each token: Hugging Face's `qa_outputs`.

    Its predictions are the logits of `ElectraForQuestionAnswering`. The loss excludes tokens that cannot be an answer, as the
    pipeline of transformers does in prediction.
    """

    only_cls = False

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden_size, 2)
        init_glorot(self)

    def loss(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Compute the loss of the span; for a window without the answer, start and end are [CLS]."""
        mask = build_answer_mask(batch)
        start_logits, end_logits = self.output(hidden).unbind(-1)
        return compute_span_loss(mask_logits(start_logits, mask), mask_logits(end_logits, mask), batch)

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute `start_logits` and `end_logits` [B, L] of all tokens, also of those that cannot be an answer."""
        start_logits, end_logits = self.output(hidden).unbind(-1)
        return {"start_logits": start_logits, "end_logits": end_logits}


def build_span_head(hidden_size: int, config: SpanConfig) -> nn.Module:
    """Build the head that the configuration names."""
    return JointSpanHead(hidden_size, config) if config.head == "joint" else PlainSpanHead(hidden_size)
