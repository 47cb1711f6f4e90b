"""Sequence contrastive learning (COCO-LM, Meng et al., 2021, section 3.3): two views of a sequence have similar vectors."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from electra.config.checks import check_range
from electra.data.batch import Batch
from electra.model.encoder import Encoder
from electra.seeding import Draw, uniform


@dataclass(frozen=True)
class SequenceContrastConfig:
    """Similar vectors of the first token, [CLS], in the corrupted sequence and in a part of the original one.

    The other sequences of the micro-batch, in both views, are the negatives: the loss depends on the micro-batch size, and
    training.micro_batch_size is part of the method. Micro-batches hold sequences of similar length. With length_warmup a
    sequence is a piece of an example, and its first token may be another one than [CLS].
    """

    weight: float = 0.0
    """Weight of its loss (1 in COCO-LM); 0: no such task."""
    crop: float = 0.9
    """Share of a sequence's tokens after the first that its second view has: a random contiguous part."""
    temperature: float = 1.0
    """Divisor of the cosine similarities."""

    def __post_init__(self) -> None:
        check_range(self, "sequence_contrast", "weight", at_least=0, at_most=10**6)
        check_range(self, "sequence_contrast", "crop", above=0, at_most=1)
        check_range(self, "sequence_contrast", "temperature", at_least=10**-3, at_most=10**3)


NO_SEQUENCE_CONTRAST = SequenceContrastConfig()


class ContrastOutput(NamedTuple):
    """Output of `contrast_views` for each sequence."""

    loss: Float[Tensor, " B"]
    """Mean of both views' -log probability of the other view."""
    correct: Float[Tensor, " B"]
    """Share of the views to which the other view is the most similar vector."""


def crop_length(length: int, share: float) -> int:
    """Return the number of tokens that remain of `length`: the first one and a share of the others, at least one."""
    return 1 + min(max(1, round(share * (length - 1))), length - 1)


def crop_sequences(batch: Batch, share: float) -> Batch:
    """Return the first token of each row and a random contiguous part of its other tokens.

    The part of a row depends on its key only. Shapes depend on those of the batch only.
    """
    others = batch.lengths - 1
    kept = torch.round(share * others.double()).long().clamp(min=1).minimum(others)
    start = (uniform(batch.row_keys, Draw.CROP, 1).squeeze(1).double() * (others - kept + 1)).long()
    length = batch.input_ids.shape[1]
    columns = torch.arange(crop_length(length, share), device=start.device)
    source = torch.where(columns > 0, columns + start[:, None], 0).clamp(max=length - 1)
    return replace(
        batch,
        input_ids=batch.input_ids.gather(1, source),
        token_type_ids=batch.token_type_ids.gather(1, source),
        lengths=kept + 1,
        attention_mask=None if batch.attention_mask is None else columns <= kept[:, None],
    )


def encode_crops(encoder: Encoder, batch: Batch, share: float) -> Float[Tensor, "B H"]:
    """Compute the vectors of the first tokens of `crop_sequences`."""
    view = crop_sequences(batch, share)
    first = torch.zeros_like(view.lengths).unsqueeze(1)
    return encoder(view.input_ids, view.token_type_ids, view.attention_mask, first).squeeze(1)


def contrast_views(first: Float[Tensor, "B H"], second: Float[Tensor, "B H"], temperature: float) -> ContrastOutput:
    """Compute the contrastive loss of vectors in two views.

    For each of the 2 B vectors, -log of the softmax of its cosine similarities, divided by the temperature, to all others, at
    the vector of the same sequence in the other view.
    """
    # In float64, which autocast does not convert: cosines differ by less than bfloat16 resolves.
    vectors = F.normalize(torch.cat([first, second]).double(), dim=-1)
    similarity = vectors @ vectors.t() / temperature
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    similarity = similarity.masked_fill(itself, -torch.inf)
    other_view = torch.arange(len(vectors), device=vectors.device).roll(len(first))
    loss = F.cross_entropy(similarity, other_view, reduction="none")
    correct: Bool[Tensor, " N"] = similarity.argmax(1) == other_view
    return ContrastOutput(*(each.float().view(2, -1).mean(0) for each in (loss, correct)))
