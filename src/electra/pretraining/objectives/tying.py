"""Weights that a generator shares with the discriminator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from electra.model.encoder import Encoder, EncoderConfig
from electra.model.flops import Cost
from electra.pretraining.objectives.networks import GeneratorConfig, MaskedLM, compute_generator_sizes


def build_generator(main: EncoderConfig, config: GeneratorConfig, encoder: Encoder) -> MaskedLM:
    """Build a generator that shares weights with the discriminator's encoder according to `config.tying`."""
    return TYINGS[config.tying].build(compute_generator_sizes(main, config), encoder)


def build_on_trunk(sizes: EncoderConfig, encoder: Encoder) -> MaskedLM:
    """Build a generator of the first layers of `encoder`; of all of them it is the encoder itself."""
    is_whole = sizes.num_layers == encoder.config.num_layers
    return MaskedLM(sizes, encoder=encoder if is_whole else Encoder(sizes, trunk=encoder))


class DisentangledEmbedding(nn.Module):
    """Token embeddings that are those of another network, without gradients to them, plus a difference that starts at zero.

    Gradient-disentangled embedding sharing of DeBERTaV3 (He et al., 2021, section 3.3). In a state_dict it has the sum, under
    the name of plain embeddings; the parameter that is trained and saved in checkpoints is the difference.
    """

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        self.delta = nn.Parameter(torch.zeros_like(base.weight))
        self._base = (base,)  # not a module of this one: its weight is a parameter of the other network only
        self.register_state_dict_post_hook(self._write_sum)
        self.register_load_state_dict_pre_hook(self._read_sum)

    @property
    def base(self) -> Float[Tensor, "V E"]:
        """The embeddings of the other network, without gradients."""
        return self._base[0].weight.detach()

    @property
    def weight(self) -> Float[Tensor, "V E"]:
        """The sum, whose gradient is that of the difference."""
        return self.base + self.delta

    def forward(self, input_ids: Int64[Tensor, "B L"]) -> Float[Tensor, "B L E"]:
        return F.embedding(input_ids, self.base) + F.embedding(input_ids, self.delta)

    def cost(self, length: int) -> Cost:
        """FLOPs of one row beyond those of plain embeddings: the other network's are looked up and added, not trained."""
        look_up = 2 * self.delta.numel()
        return Cost({"embedding look-up": length * look_up, "sum": length * self.delta.shape[1]}, has_backward=False)

    @staticmethod
    def _write_sum(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        assert isinstance(module, DisentangledEmbedding)
        del state[f"{prefix}delta"]
        state[f"{prefix}weight"] = module.weight.detach()

    @staticmethod
    def _read_sum(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        assert isinstance(module, DisentangledEmbedding)
        state[f"{prefix}delta"] = state.pop(f"{prefix}weight") - module.base


def build_disentangled(sizes: EncoderConfig, encoder: Encoder) -> MaskedLM:
    """Build a generator with embeddings of its own, and let the token embeddings of `encoder` be theirs plus a difference.

    Positions, token types and their LayerNorm are each network's own, so that no loss of the discriminator trains a weight
    of the generator.
    """
    generator = MaskedLM(sizes)
    # It has the forward and the weight of an nn.Embedding.
    encoder.embeddings.word = DisentangledEmbedding(generator.encoder.embeddings.word)  # type: ignore[assignment]
    return generator


@dataclass(frozen=True)
class TyingKind:
    """A row of `TYINGS`."""

    build: Callable[[EncoderConfig, Encoder], MaskedLM]
    """Build a generator of these sizes that shares weights with the discriminator's encoder."""
    shares: str = ""
    """What of the discriminator the generator has, for messages."""
    same_size: tuple[str, ...] = ()
    """Multipliers of `GeneratorConfig` that must be 1, because layers are shared; empty if none are."""
    trains_generator: bool = True
    """Whether the discriminator's loss trains weights of the generator."""


TYINGS: dict[str, TyingKind] = {
    "none": TyingKind(lambda sizes, encoder: MaskedLM(sizes), trains_generator=False),
    "embeddings": TyingKind(
        lambda sizes, encoder: MaskedLM(sizes, encoder.embeddings), "the discriminator's embeddings"
    ),
    "disentangled": TyingKind(build_disentangled, "the discriminator's embeddings", trains_generator=False),
    "trunk": TyingKind(build_on_trunk, "the discriminator's first layers", same_size=("size", "heads", "ffn")),
    "all": TyingKind(build_on_trunk, "the discriminator's encoder", same_size=("size", "depth", "heads", "ffn")),
}
"""By `GeneratorConfig.tying`."""
