"""Training procedures: joint training, or a masked language model first."""

from collections.abc import Callable
from dataclasses import dataclass

from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.networks import GeneratorConfig, compute_generator_sizes


@dataclass(frozen=True)
class Procedure:
    """A row of `PROCEDURES`."""

    stage_one: Callable[[EncoderConfig, GeneratorConfig], EncoderConfig] | None = None
    """Sizes of the masked language model that stage one trains, from those of the discriminator; None: only one stage."""
    freezes_generator: bool = False
    """Whether stage two samples from the network of stage one, frozen and with embeddings of its own. If not, it trains the
    configured generator, which starts from that network if their sizes are equal."""
    starts_discriminator: bool = False
    """Whether the discriminator starts from the encoder of stage one."""

    @property
    def uses(self) -> frozenset[str]:
        """Options of `MaskingConfig` that stage one reads."""
        if self.stage_one is None:
            return frozenset()
        return frozenset({"generator_mask"} if self.freezes_generator else {"mlm_mask", "mlm_random"})


PROCEDURES: dict[str, Procedure] = {
    "joint": Procedure(),
    "two-stage": Procedure(compute_generator_sizes, freezes_generator=True, starts_discriminator=True),
    "two-stage-scratch": Procedure(compute_generator_sizes, freezes_generator=True),
    "masked-lm-first": Procedure(lambda main, generator: main, starts_discriminator=True),
}
"""By `electra.pretraining.config.PretrainConfig.procedure`."""
