"""The peer of `pretrain_step`: an ELECTRA step as a competent user writes it with `transformers`' two classes.

Tied embeddings; 15 % of each row's tokens, a fixed number for static shapes, become [MASK]; the generator's samples are drawn
by the Gumbel-max trick from the logits of its loss; binary cross-entropy over all tokens except padding, times 50; AdamW
(fused, no decay of biases and LayerNorms), clipping at 1.

`ElectraForMaskedLM` computes logits at every position, and the step selects those that it needs: the classes offer no other
way. `masked_only` calls their submodules directly and computes the head at the masked positions only.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from electra.data.batch import Batch
from electra.model.architecture import ELECTRA
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.spec import Vocabulary
from electra.runtime.setup import Runtime

DISCRIMINATOR_WEIGHT = 50.0


@dataclass(frozen=True)
class PeerConfig:
    """Configuration of the peer: the sizes of our networks, and variants of the step."""

    main: EncoderConfig
    generator: EncoderConfig
    fraction: float
    vocabulary: Vocabulary
    seq_len: int
    masked_only: bool = False
    """Compute the vocabulary's logits at the masked positions only."""
    backend: str | None = None
    """Back end of torch.compile, for networks, masks, samples and losses as one graph; None: eager."""
    learning_rate: float = 5e-4


def build_hf_config(sizes: EncoderConfig) -> ElectraConfig:
    """Convert our sizes to a Hugging Face configuration with `scaled_dot_product_attention`."""
    return ElectraConfig(
        **{theirs: getattr(sizes, ours) for ours, theirs in ELECTRA.config_names.items()}, attn_implementation="sdpa"
    )


class HuggingFaceElectra(nn.Module):
    """Generator and discriminator with tied embeddings, and the loss of a batch."""

    def __init__(self, config: PeerConfig) -> None:
        super().__init__()
        self.config = config
        self.discriminator = ElectraForPreTraining(build_hf_config(config.main))
        self.generator = ElectraForMaskedLM(build_hf_config(config.generator))
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = self.discriminator.electra.embeddings.word_embeddings.weight

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Scalar loss of ids [B, L]."""
        context = {"token_type_ids": token_type_ids, "attention_mask": attention_mask}
        positions, used = self.sample_positions(input_ids)
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

    def sample_positions(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Sample positions [B, K]; return also which are used, because short rows have fewer tokens that may be masked."""
        special = torch.zeros_like(input_ids, dtype=torch.bool)
        for token in self.config.vocabulary.special_ids:
            special |= input_ids == token
        keys = torch.rand(input_ids.shape, device=input_ids.device).masked_fill(special, -1.0)
        best, positions = keys.topk(round(self.config.fraction * input_ids.shape[1]), dim=1)
        return positions, best >= 0

    def generator_logits(self, masked: Tensor, context: dict[str, Tensor | None], positions: Tensor) -> Tensor:
        """Logits [B, K, V] at `positions`."""
        if not self.config.masked_only:
            return gather_positions(self.generator(input_ids=masked, **context).logits, positions)
        hidden = self.generator.electra(input_ids=masked, **context).last_hidden_state
        return self.generator.generator_lm_head(
            self.generator.generator_predictions(gather_positions(hidden, positions))
        )


class PeerStep:
    """Training of a peer; each call runs a warm-up step, then the timed steps."""

    def __init__(self, config: PeerConfig, batches: Iterable[list[Batch]], steps: int, runtime: Runtime) -> None:
        self.config, self.steps, self.runtime = config, steps, runtime
        self.batches = iter(batches)
        self.model = HuggingFaceElectra(config).to(runtime.device).train()
        self.loss = torch.compile(self.model, backend=config.backend, fullgraph=True) if config.backend else self.model
        no_decay = [p for name, p in self.model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
        no_decay_ids = set(map(id, no_decay))
        decay = [p for p in self.model.parameters() if id(p) not in no_decay_ids]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, eps=1e-6, fused=True)

    def __call__(self) -> float:
        """Return the seconds of the timed steps, batches included."""
        self.step(next(self.batches))
        self.runtime.synchronize()
        start = time.perf_counter()
        for _ in range(self.steps):
            self.step(next(self.batches))
        self.runtime.synchronize()
        return time.perf_counter() - start

    def step(self, micro_batches: list[Batch]) -> None:
        """Run one update. Batches of a compiled model are padded to the full length, so it has one shape only."""
        for batch in micro_batches:
            if self.config.backend:
                batch = pad_to_length(batch, self.config.seq_len, self.config.vocabulary.special_ids[0])
            batch = batch.to(self.runtime.device)
            with self.runtime.autocast():
                loss = self.loss(batch.input_ids, batch.token_type_ids, batch.attention_mask)
            (loss / len(micro_batches)).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def gather_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Gather the vectors [B, K, H] of `x` [B, L, H] at `positions` [B, K]."""
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def pad_to_length(batch: Batch, length: int, pad_id: int) -> Batch:
    """Pad the rows of a batch to `length` tokens, always with an attention mask."""
    missing = length - batch.input_ids.shape[1]
    return replace(
        batch,
        input_ids=F.pad(batch.input_ids, (0, missing), value=pad_id),
        token_type_ids=F.pad(batch.token_type_ids, (0, missing)),
        attention_mask=torch.arange(length) < batch.lengths[:, None],
    )
