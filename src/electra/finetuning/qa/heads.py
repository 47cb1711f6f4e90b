"""The heads of question answering: the paper's, whose end depends on the start (section 3.1), and two plain vectors.

Shapes, beside those of the encoder's layers: K starts of a beam, D width of the heads' hidden layers.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from electra.finetuning.batching import LabeledBatch
from electra.finetuning.qa.config import SpanConfig
from electra.model.packing import gather_positions

HEAD_SIZE = 512
"""Width of the joint head's two hidden layers, whatever the encoder's."""

EXCLUDED = -1000.0
"""Added to the logits of tokens that cannot start or end an answer, as in the original code."""


def build_answer_mask(batch: LabeledBatch) -> Bool[Tensor, "B L"]:
    """True where an answer may start and end: the context, its [SEP], and [CLS], the target of "not in this chunk"."""
    types = batch.inputs.token_type_ids
    return types.bool() | (torch.arange(types.shape[1], device=types.device) == 0)


def exclude(logits: Float[Tensor, "*rows L"], mask: Bool[Tensor, "#*rows L"]) -> Float[Tensor, "*rows L"]:
    """The logits, EXCLUDED added where the mask is false."""
    return logits + EXCLUDED * ~mask


def compute_span_loss(
    start_logits: Float[Tensor, "B L"], end_logits: Float[Tensor, "B L"], batch: LabeledBatch
) -> Float[Tensor, " B"]:
    """The mean of the cross-entropies of start and end."""
    start_loss = F.cross_entropy(start_logits, batch.targets["start"], reduction="none")
    end_loss = F.cross_entropy(end_logits, batch.targets["end"], reduction="none")
    return (start_loss + end_loss) / 2


def init_glorot(module: nn.Module) -> None:
    """Initialize every layer as the original code's heads: Glorot uniform weights, zero biases."""
    for parameter in module.parameters():
        if parameter.dim() == 1:
            nn.init.zeros_(parameter)
        else:
            nn.init.xavier_uniform_(parameter)


class JointSpanHead(nn.Module):
    """p(start) p(end | start), and a classifier of whether the question has an answer."""

    only_cls = False

    def __init__(self, hidden_size: int, config: SpanConfig) -> None:
        super().__init__()
        self.beam_size = config.beam_size
        self.answerable_weight = config.answerable_weight
        self.start = nn.Linear(hidden_size, 1)
        self.end_dense = nn.Linear(2 * hidden_size, HEAD_SIZE)
        self.end = nn.Linear(HEAD_SIZE, 1)
        self.impossible_dense = nn.Linear(2 * hidden_size, HEAD_SIZE)
        self.impossible = nn.Linear(HEAD_SIZE, 1)
        init_glorot(self)

    def loss(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """The loss of the span, its end given the true start, plus the weighted loss of the classifier."""
        mask = build_answer_mask(batch)
        start_logits = self.start_logits(hidden, mask)
        end_logits = self.end_logits(hidden, batch.targets["start"][:, None], mask).squeeze(1)
        impossible_loss = F.binary_cross_entropy_with_logits(
            self.impossible_logit(hidden, start_logits), batch.targets["impossible"].float(), reduction="none"
        )
        return compute_span_loss(start_logits, end_logits, batch) + self.answerable_weight * impossible_loss

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """A beam: the most probable starts, and for each of them the most probable ends.

        Returns, for each row, tokens and log-probabilities `starts` and `start_log_probs` [beam], `ends` and
        `end_log_probs` [beam, beam], and `impossible_logit`. Rows shorter than the beam are padded with [CLS].
        """
        mask = build_answer_mask(batch)
        start_logits = self.start_logits(hidden, mask)
        beam = min(self.beam_size, hidden.shape[1])
        start_log_probs, starts = start_logits.log_softmax(-1).topk(beam)
        end_log_probs, ends = self.end_logits(hidden, starts, mask).log_softmax(-1).topk(beam)
        missing = self.beam_size - beam
        square = (0, missing, 0, missing)
        return {
            "starts": F.pad(starts, (0, missing)),
            "start_log_probs": F.pad(start_log_probs, (0, missing), value=EXCLUDED),
            "ends": F.pad(ends, square),
            "end_log_probs": F.pad(end_log_probs, square, value=EXCLUDED),
            "impossible_logit": self.impossible_logit(hidden, start_logits),
        }

    def start_logits(self, hidden: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"]) -> Float[Tensor, "B L"]:
        """One logit for each token as the start."""
        return exclude(self.start(hidden).squeeze(-1), mask)

    def end_logits(
        self, hidden: Float[Tensor, "B L H"], starts: Int64[Tensor, "B K"], mask: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B K L"]:
        """One logit for each token as the end of an answer that starts at each of `starts`.

        The hidden layer reads the concatenation (start's vector, token's vector); a matrix times a concatenation is
        the sum of its halves' products, so that those of the tokens are shared by all starts.
        """
        start_weight, token_weight = self.end_dense.weight.chunk(2, dim=1)
        start_part = F.linear(gather_positions(hidden, starts), start_weight)  # B K D
        token_part = F.linear(hidden, token_weight, self.end_dense.bias)  # B L D
        # One start at a time: B K L D at once would be gigabytes.
        logits = [self.end(F.gelu(token_part + part[:, None])).squeeze(-1) for part in start_part.unbind(1)]
        return exclude(torch.stack(logits, dim=1), mask[:, None])

    def impossible_logit(
        self, hidden: Float[Tensor, "B L H"], start_logits: Float[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        """Positive where the question has no answer; reads [CLS] and the expected hidden state of the start."""
        expected = torch.einsum("bl,blh->bh", start_logits.softmax(-1), hidden)
        features = torch.cat([hidden[:, 0], expected], dim=-1)
        return self.impossible(F.gelu(self.impossible_dense(features))).squeeze(-1)


class PlainSpanHead(nn.Module):
    """One linear layer with a start logit and an end logit for each token: Hugging Face's `qa_outputs`.

    It predicts the raw logits of `ElectraForQuestionAnswering`. The loss excludes what cannot be an answer, as their
    pipeline does in prediction.
    """

    only_cls = False

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden_size, 2)
        init_glorot(self)

    def loss(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """The loss of the span; a question without answer has [CLS] as its answer."""
        mask = build_answer_mask(batch)
        start_logits, end_logits = self.output(hidden).unbind(-1)
        return compute_span_loss(exclude(start_logits, mask), exclude(end_logits, mask), batch)

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """`start_logits` and `end_logits` [B, L] of every token, also of those that cannot be an answer."""
        start_logits, end_logits = self.output(hidden).unbind(-1)
        return {"start_logits": start_logits, "end_logits": end_logits}


def build_span_head(hidden_size: int, config: SpanConfig) -> nn.Module:
    """The head that the configuration names."""
    return JointSpanHead(hidden_size, config) if config.head == "joint" else PlainSpanHead(hidden_size)
