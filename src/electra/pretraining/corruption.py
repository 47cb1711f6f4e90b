"""What stands at the chosen positions when the main network reads the text."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from electra.data.loader import Batch
from electra.pretraining.masking import Chosen, MaskingConfig, write_tokens
from electra.pretraining.networks import MaskedLM


def mask_for_generator(
    input_ids: Int64[Tensor, "B L"], chosen: Chosen, mask_id: int, config: MaskingConfig
) -> Int64[Tensor, "B L"]:
    """The generator's input: of the chosen tokens 85 % become [MASK] and 15 % stay; never a random token."""
    original = input_ids.gather(1, chosen.positions)
    draw = torch.rand(original.shape, device=original.device)
    return write_tokens(input_ids, chosen, torch.where(draw < config.generator_mask, mask_id, original))


def mask_like_bert(
    input_ids: Int64[Tensor, "B L"], chosen: Chosen, mask_id: int, vocab_size: int, config: MaskingConfig
) -> Int64[Tensor, "B L"]:
    """BERT's corruption: of the chosen tokens 80 % become [MASK], 10 % any token of the vocabulary, 10 % stay."""
    original = input_ids.gather(1, chosen.positions)
    draw = torch.rand(original.shape, device=original.device)
    anything = torch.randint_like(original, vocab_size)
    tokens = torch.where(draw < config.mlm_mask + config.mlm_random, anything, original)
    return write_tokens(input_ids, chosen, torch.where(draw < config.mlm_mask, mask_id, tokens))


@torch.no_grad()
def sample_tokens(logits: Float[Tensor, "B K V"], temperature: float, never: int | None = None) -> Int64[Tensor, "B K"]:
    """One token a position from softmax(logits / temperature), as the argmax after Gumbel noise, in float32.

    The token `never` does not come up. No gradient flows back: the generator learns from its own loss alone.
    """
    # -log(-log(u)) is Gumbel noise. Drawing exponentials instead saves a logarithm but takes three times as long on a CPU.
    noise = torch.rand_like(logits, dtype=torch.float32).log_().neg_().log_()
    scores = logits.float() / temperature - noise
    if never is not None:
        scores[..., never] = -math.inf
    return scores.argmax(dim=-1)


class Corrupted(NamedTuple):
    """A corrupted batch."""

    input_ids: Int64[Tensor, "B L"]
    nll: Float[Tensor, "B K"] | None
    """The generator's own loss at the chosen positions (0 where a slot is unused), where it has one to learn from."""
    sums: dict[str, Tensor]
    """Sums for `metrics`."""


class GeneratorSamples(nn.Module):
    """A small masked language model fills the chosen positions; it learns from its own likelihood (section 2)."""

    def __init__(self, generator: MaskedLM, temperature: float, masking: MaskingConfig, mask_id: int) -> None:
        super().__init__()
        self.generator = generator
        self.temperature = temperature
        self.masking = masking
        self.mask_id = mask_id

    def forward(self, batch: Batch, chosen: Chosen) -> Corrupted:
        masked_ids = mask_for_generator(batch.input_ids, chosen, self.mask_id, self.masking)
        logits = self.generator(masked_ids, batch.token_type_ids, batch.attention_mask, chosen.positions).float()
        original = batch.input_ids.gather(1, chosen.positions)
        # An untrained generator says [MASK] as often as any other token, and the discriminator must never see one.
        sampled = sample_tokens(logits, self.temperature, never=self.mask_id)
        nll = token_nll(logits, original) * chosen.used
        sums = {
            "generator_nll": nll.sum(),
            "generator_correct": ((logits.argmax(-1) == original) & chosen.used).sum(),
            "sampled_correct": ((sampled == original) & chosen.used).sum(),
        }
        return Corrupted(write_tokens(batch.input_ids, chosen, sampled), nll, sums)

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The generator's loss and accuracies at the chosen positions."""
        return {
            "generator_loss": ratio(sums["generator_nll"], sums["masked"]),
            "generator_accuracy": ratio(sums["generator_correct"], sums["masked"]),
            "sampled_accuracy": ratio(sums["sampled_correct"], sums["masked"]),
        }


class Masks(nn.Module):
    """BERT's corruption; nothing to learn."""

    def __init__(self, masking: MaskingConfig, mask_id: int, vocab_size: int) -> None:
        super().__init__()
        self.masking = masking
        self.mask_id = mask_id
        self.vocab_size = vocab_size

    def forward(self, batch: Batch, chosen: Chosen) -> Corrupted:
        ids = mask_like_bert(batch.input_ids, chosen, self.mask_id, self.vocab_size, self.masking)
        return Corrupted(ids, None, {})

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """None: the main network's are all there is."""
        return {}


def token_nll(logits: Float[Tensor, "B K V"], tokens: Int64[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """-log p(token) at each position, in float32."""
    return F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten(), reduction="none").view_as(tokens)


def ratio(a: Tensor, b: Tensor) -> float:
    """a / b of two sums; nan where nothing was counted."""
    return float(a) / float(b) if float(b) else math.nan
