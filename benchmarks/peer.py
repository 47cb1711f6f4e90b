"""The peer of `pretrain_step`: an ELECTRA step as a competent user writes it with `transformers`' two classes.

Tied embeddings; 15 % of each row's tokens, a fixed number so that shapes are static, become [MASK]; the generator's
samples are drawn by Gumbel's trick from the logits that its loss is computed from; binary cross-entropy over all tokens
that are not padding, times 50; AdamW (fused, no decay of biases and LayerNorms), clipping at 1.

`ElectraForMaskedLM` computes logits at every position, and the step takes those that it needs: with these classes there is no
other way but to go into them. `chosen_only` does go into them, and computes the head at the chosen positions alone.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from electra.data.loader import Batch
from electra.model.encoder import EncoderConfig
from electra.model.hf_config import CONFIG_NAMES
from electra.pretraining.objectives.spec import Vocabulary
from electra.runtime.setup import Runtime

DISCRIMINATOR_WEIGHT = 50.0


@dataclass(frozen=True)
class PeerConfig:
    """What the peer is built from: the sizes of our networks, and how its user writes the step."""

    main: EncoderConfig
    generator: EncoderConfig
    fraction: float
    vocabulary: Vocabulary
    seq_len: int
    chosen_only: bool = False
    """Compute the vocabulary's logits at the chosen positions only."""
    backend: str | None = None
    """Of torch.compile, for the networks with masks, samples and losses as one graph; None: eager."""
    learning_rate: float = 5e-4


def hf_config(sizes: EncoderConfig) -> ElectraConfig:
    """Our sizes in Hugging Face's words, with `scaled_dot_product_attention`."""
    return ElectraConfig(
        **{theirs: getattr(sizes, ours) for ours, theirs in CONFIG_NAMES.items()}, attn_implementation="sdpa"
    )


class HuggingFaceElectra(nn.Module):
    """Generator and discriminator with tied embeddings, and the loss of a batch."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__()
        self.config = config
        self.discriminator = ElectraForPreTraining(hf_config(config.main))
        self.generator = ElectraForMaskedLM(hf_config(config.generator))
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Scalar loss of ids [B, L]."""
        context = {"token_type_ids": token_type_ids, "attention_mask": attention_mask}
        positions, used = self.choose(input_ids)
        original = input_ids.gather(1, positions)
        masks = torch.where(used, self.config.vocabulary.mask_id, original)
        logits = self.generator_logits(input_ids.scatter(1, positions, masks), context, positions).float()
        targets = original.masked_fill(~used, -100)
        generator_loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        with torch.no_grad():
            gumbel = -torch.rand_like(logits).log().neg().log()  # exponential_ would be slower on a CPU
            samples = torch.where(used, (logits + gumbel).argmax(-1), original)
        corrupted = input_ids.scatter(1, positions, samples)
        scores = self.discriminator(input_ids=corrupted, **context).logits
        replaced = (corrupted != input_ids).float()
        loss = F.binary_cross_entropy_with_logits(scores.float(), replaced, reduction="none")
        if attention_mask is None:
            return generator_loss + DISCRIMINATOR_WEIGHT * loss.mean()
        return generator_loss + DISCRIMINATOR_WEIGHT * (loss * attention_mask).sum() / attention_mask.sum()

    def choose(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Positions [B, K], and where they are none but special tokens and padding that a short row leaves."""
        special = torch.zeros_like(input_ids, dtype=torch.bool)
        for token in self.config.vocabulary.special_ids:
            special |= input_ids == token
        keys = torch.rand(input_ids.shape, device=input_ids.device).masked_fill(special, -1.0)
        best, positions = keys.topk(round(self.config.fraction * input_ids.shape[1]), dim=1)
        return positions, best >= 0

    def generator_logits(self, masked: Tensor, context: dict[str, Tensor | None], positions: Tensor) -> Tensor:
        """Logits [B, K, V] at `positions`."""
        if not self.config.chosen_only:
            return vectors_at(self.generator(input_ids=masked, **context).logits, positions)
        hidden = self.generator.electra(input_ids=masked, **context).last_hidden_state
        return self.generator.generator_lm_head(self.generator.generator_predictions(vectors_at(hidden, positions)))


class PeerStep:
    """A peer in training; each call makes a step, and some that count, of which it returns the seconds."""

    def __init__(self, config: PeerConfig, batches: Iterable[list[Batch]], steps: int, runtime: Runtime) -> None:
        self.config, self.steps, self.runtime = config, steps, runtime
        self.batches = iter(batches)
        self.model = HuggingFaceElectra(config).to(runtime.device).train()
        self.loss = torch.compile(self.model, backend=config.backend, fullgraph=True) if config.backend else self.model
        plain = [p for name, p in self.model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
        known = set(map(id, plain))
        others = [p for p in self.model.parameters() if id(p) not in known]
        groups = [{"params": others, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, eps=1e-6, fused=True)

    def __call__(self) -> float:
        """Seconds of the steps, batches included."""
        self.step(next(self.batches))
        self.runtime.synchronize()
        start = time.perf_counter()
        for _ in range(self.steps):
            self.step(next(self.batches))
        self.runtime.synchronize()
        return time.perf_counter() - start

    def step(self, micro_batches: list[Batch]) -> None:
        """One update. A compiled model sees one shape only, so its batches are padded to the full length."""
        for batch in micro_batches:
            if self.config.backend:
                batch = to_length(batch, self.config.seq_len, self.config.vocabulary.special_ids[0])
            batch = batch.to(self.runtime.device)
            with self.runtime.autocast():
                loss = self.loss(batch.input_ids, batch.token_type_ids, batch.attention_mask)
            (loss / len(micro_batches)).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def vectors_at(x: Tensor, positions: Tensor) -> Tensor:
    """The vectors [B, K, H] of `x` [B, L, H] at `positions` [B, K]."""
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def to_length(batch: Batch, length: int, pad_id: int) -> Batch:
    """The batch with rows of `length` tokens, and always with a mask."""
    missing = length - batch.input_ids.shape[1]
    return replace(
        batch,
        input_ids=F.pad(batch.input_ids, (0, missing), value=pad_id),
        token_type_ids=F.pad(batch.token_type_ids, (0, missing)),
        attention_mask=torch.arange(length) < batch.lengths[:, None],
    )
