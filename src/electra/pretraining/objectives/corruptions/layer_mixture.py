"""A mixture of generators: several layers of one network predict the masked tokens (AMOS, Meng et al., 2022)."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from electra.data.batch import Batch
from electra.errors import UsageError
from electra.model.encoder import Encoder, EncoderConfig, choose_layout
from electra.model.flops import Cost, masked_lm_head_flops
from electra.pretraining.objectives.corruptions.generators import GeneratorSamples, SampleSettings
from electra.pretraining.objectives.networks import GeneratorConfig, MaskedLM, MaskedLMOutput
from electra.seeding import Draw, uniform


def resolve_mixture_layers(sizes: EncoderConfig, config: GeneratorConfig) -> tuple[int, ...]:
    """Return the numbers (from 1) of the layers that predict tokens: those configured, else half, 3/4 and all of the layers.

    Raises:
        UsageError: fewer than two layers, one that does not exist or occurs twice, or not the last one, whose weights no loss
            would train.
    """
    depth = sizes.num_layers
    layers = config.mixture_layers or tuple(sorted({max(1, round(depth * share)) for share in (0.5, 0.75, 1.0)}))
    if len(layers) < 2 or list(layers) != sorted(set(layers)) or layers[0] < 1 or layers[-1] != depth:
        raise UsageError(
            "wrong-layers",
            f"generator.kind {config.kind} needs two or more layers in ascending order, the last one {depth}, the generator's "
            f"depth, and generator.mixture_layers gives {' '.join(map(str, layers))}; change it, or raise --generator.depth",
        )
    return layers


def iterate_outputs(
    encoder: Encoder, layers: Sequence[int], batch: Batch, input_ids: Int64[Tensor, "B L"], positions: Tensor
) -> Iterator[Float[Tensor, "B K H"]]:
    """Yield the hidden states at `positions` after each of `layers`; a layer has gradients of the next yield only."""
    x = encoder.embed(input_ids, batch.token_type_ids)
    layout = choose_layout(batch.attention_mask, encoder.min_padding)
    x = layout.pack(x)
    for number, layer in enumerate(encoder.layers[: layers[-1] - 1], start=1):
        x = layer(x, layout)
        if number in layers:
            yield encoder.final(layout.gather(x, positions))
            x = x.detach()
    yield encoder.final(encoder.layers[layers[-1] - 1](x, layout, positions))


class LayerMixtureSamples(GeneratorSamples):
    """Samples of several masked language models of different depth, which are the first layers of one network.

    Each has the mean masked-LM loss over the masked positions, and the generator's loss is their mean. Gradients stop between
    them: a layer is trained by the prediction from the next of `layers` alone. All share one head and the token embeddings, so
    that the network, with its last layer, is an ordinary masked language model. The token of each position is a sample of one
    of them, chosen uniformly (the paper learns weights that maximize the discriminator's loss).
    """

    def __init__(self, generator: MaskedLM, settings: SampleSettings, layers: tuple[int, ...]) -> None:
        super().__init__(generator, settings)
        self.layers = layers

    def predict(
        self,
        batch: Batch,
        input_ids: Int64[Tensor, "B L"],
        positions: Int64[Tensor, "B K"],
        original: Int64[Tensor, "B K"],
        u: Float[Tensor, "B K"],
    ) -> MaskedLMOutput:
        """Return the mean loss; the rest is of the network that is chosen at each position."""
        outputs = [
            self.generator(hidden=hidden, targets=original, sampling=self.current_sampling, u=u)
            for hidden in iterate_outputs(self.generator.encoder, self.layers, batch, input_ids, positions)
        ]
        number = len(outputs)
        chosen = (uniform(batch.row_keys, Draw.MIXTURE, original.shape[1]) * number).long().unsqueeze(0)

        def choose(tensors: list[Tensor]) -> Tensor:
            return torch.stack(tensors).gather(0, chosen).squeeze(0)

        scores = outputs[-1].scores._replace(
            nll=torch.stack([output.scores.nll for output in outputs]).mean(0),
            correct=choose([output.scores.correct for output in outputs]),
            sampled=choose([output.scores.sampled for output in outputs]),
        )
        return MaskedLMOutput(outputs[-1].hidden, scores)

    def cost(self, length: int, predictions: int) -> Cost:
        heads = (len(self.layers) - 1) * predictions * masked_lm_head_flops(self.generator.config)
        return Cost(super().cost(length, predictions).forward | {"other masked-LM predictions": heads})
