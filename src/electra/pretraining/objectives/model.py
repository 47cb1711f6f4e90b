"""The module of any objective: corruption, target and masking strategy with their networks."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from electra.data.batch import Batch
from electra.external import format_count
from electra.model.flops import Cost, average_costs
from electra.model.initialization import initialize, initialize_attention
from electra.pretraining.objectives.corruptions.corruption import CorruptedBatch
from electra.pretraining.objectives.corruptions.masking import (
    MaskedPositions,
    MaskingConfig,
    count_masked,
    count_masked_in_row,
    count_masked_over_run,
    mark_maskable_tokens,
    sample_positions,
)
from electra.pretraining.objectives.corruptions.masking_strategies import MASKING
from electra.pretraining.objectives.metrics import LossTerm, build_losses, merge, sum_losses
from electra.pretraining.objectives.networks import MaskedLM
from electra.pretraining.objectives.progress import ProgressModule, list_changing
from electra.pretraining.objectives.spec import CORRUPTIONS, SCORED_AT, TARGETS, ObjectiveSpec
from electra.pretraining.objectives.targets.target import Prediction
from electra.pretraining.objectives.tying import DisentangledEmbedding
from electra.seeding import Draw

GENERATOR_PREFIX = "corruption"
"""Start of the names of the generator's own parameters in a `PretrainingModel`."""


class ForwardOutput(NamedTuple):
    """All intermediate results of a batch."""

    masked: MaskedPositions
    corrupted: CorruptedBatch
    prediction: Prediction
    losses: dict[str, Tensor]
    """By name, one value per position or sequence, in the order of `PretrainingModel.loss_terms`."""
    sums: dict[str, Tensor]
    """Sums for `PretrainingModel.metrics`, including those of the losses; without gradients."""


class PretrainingModel(ProgressModule):
    """An objective with its initialized networks: the module to wrap, train and save.

    Raises:
        ValueError: losses, metrics or sums of the objective have the same name, or its `Objective` does not list a metric.
            Losses are checked here, sums and metrics when they are computed.
    """

    def __init__(self, spec: ObjectiveSpec) -> None:
        super().__init__()
        self.spec = spec
        self.target = TARGETS[spec.objective.target].build(spec)
        self.corruption = CORRUPTIONS[spec.objective.corruption].build(spec, self.target.network)
        if self.generator is not None and self.generator.encoder is self.target.network.encoder:
            self.target.share_head(self.generator)
        self.strategy = MASKING[spec.masking.strategy].build(spec)
        spec.objective.check_listed(self.loss_terms)
        initialize(self, spec.main.initializer_range, spec.main.embedding_initializer_range)
        if self.generator is not None and spec.generator.initializer_range is not None:
            for module in (self.generator.encoder.layers, self.generator.head):
                initialize(module, spec.generator.initializer_range)
        initialize_attention(self)

    @property
    def generator(self) -> MaskedLM | None:
        """The generator if the objective has one that is a network, else None."""
        return self.corruption.generator

    @property
    def discriminates(self) -> bool:
        """Whether a discriminator is trained."""
        return self.spec.objective.discriminates

    @property
    def scores_all_tokens(self) -> bool:
        """Whether the target is scored at all tokens."""
        return self.spec.objective.scored == "tokens"

    def summary(self) -> str:
        """Format the number of parameters and the sizes for the log."""
        main = self.spec.main
        parts = [
            f"{sum(p.numel() for p in self.parameters()) / 1e6:.2f} M parameters",
            f"{format_count(main.num_layers, 'layer')} of {main.hidden_size}",
        ]
        if self.generator is not None:
            sizes = self.generator.config
            parts.append(f"generator of {format_count(sizes.num_layers, 'layer')} of {sizes.hidden_size}")
        elif self.spec.objective.has_generator:
            parts.append(f"{self.spec.generator.kind} generator")
        return ", ".join(parts)

    def set_progress(self, done: float) -> None:
        """Set the values of options that change to those where the share `done` of the run is over."""
        for module in self.modules():
            if isinstance(module, ProgressModule):
                module.progress = done

    @property
    def masking(self) -> MaskingConfig:
        """The options of masking at the current update."""
        return self.resolve(self.spec.masking)

    @property
    def changing_values(self) -> dict[str, float]:
        """The values at the current update of the options that change, by the name of their metric."""
        configs = {"masking": self.spec.masking} | (
            {} if self.generator is None else {"generator": self.spec.generator}
        )
        return {
            f"{section}_{name}": getattr(self.resolve(config), name)
            for section, config in configs.items()
            for name in list_changing(config)
        }

    @property
    def loss_terms(self) -> dict[str, LossTerm]:
        """How each loss enters the total at the current update, in the order of addition."""
        objective = self.spec.objective
        return merge(
            {self.target.loss_name: LossTerm(objective.scored, objective.weight)},
            self.corruption.current_loss_terms,
            self.target.loss_terms,
            {"strategy_loss": LossTerm("masked")},
        )

    def run(self, batch: Batch) -> ForwardOutput:
        """Sample positions, corrupt them, and compute the target."""
        masked, weights = self.sample_masked(batch)
        corrupted = self.corruption(batch, masked)._replace(filled=masked)

        def sample_others() -> MaskedPositions:
            candidates, number = self.find_candidates(batch)
            return sample_positions(candidates, number, self.masking, batch.row_keys, draw=Draw.OTHER_POSITIONS)

        # Not on held-out text: its metrics are those of an input without [MASK].
        if self.training:
            corrupted = self.target.change_input(batch, corrupted, sample_others)
        at = SCORED_AT[self.spec.objective.scored](masked, sample_others)
        prediction = self.target(batch, corrupted, at)
        generator = self.corruption.compute_losses(batch, masked, corrupted, prediction.logits)
        losses = merge(prediction.losses, generator.losses)
        # Losses at the masked positions: the generator's, or the main encoder's if it predicts the tokens itself.
        nll = corrupted.generated.nll if corrupted.generated else prediction.losses[self.target.loss_name]
        strategy_loss = self.strategy.loss(weights, masked, nll)
        if strategy_loss is not None:
            losses["strategy_loss"] = strategy_loss
        losses = {name: losses[name] for name in self.loss_terms if name in losses}
        loss_sums = {name: loss.sum() for name, loss in losses.items()}
        sums = merge(self.count_tensors(batch), corrupted.sums, prediction.sums, generator.sums, loss_sums)
        return ForwardOutput(masked, corrupted, prediction, losses, {name: t.detach() for name, t in sums.items()})

    def find_candidates(self, batch: Batch) -> tuple[Bool[Tensor, "B L"], Int64[Tensor, " B"]]:
        """Return which tokens may be masked, and the number of masked positions of each row."""
        candidates = mark_maskable_tokens(batch.input_ids, self.spec.vocabulary.special_ids)
        return candidates, count_masked(batch.lengths, self.masking.fraction)

    def sample_masked(self, batch: Batch) -> tuple[MaskedPositions, Float[Tensor, "B L"] | None]:
        """Sample the masked positions; return them and the masking strategy's weights, if it has any."""
        candidates, number = self.find_candidates(batch)
        if not self.training:  # held-out metrics use uniformly sampled positions for every strategy
            return sample_positions(candidates, number, self.masking, batch.row_keys), None
        weights = self.strategy(batch.input_ids, self.target.network.encoder.embeddings.word)
        sampling_weights = None if weights is None else weights.detach()
        return self.strategy.sample(batch, candidates, number, self.masking, sampling_weights), weights

    def forward(
        self, batch: Batch, counts: Mapping[str, float | Tensor] | None = None
    ) -> tuple[Tensor, dict[str, Tensor]] | ForwardOutput:
        """Return the micro-batch's share of the loss of a global batch with `counts`, and sums for `metrics`.

        Without `counts`, return all intermediate results.
        """
        output = self.run(batch)
        if counts is None:
            return output
        losses = build_losses({name: loss.sum() for name, loss in output.losses.items()}, self.loss_terms)
        return sum_losses(losses, counts), output.sums

    def count_tensors(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the counts that losses are means over, without padding, from the lengths and on their device."""
        fraction = self.masking.fraction
        return {
            "sequences": torch.ones_like(batch.lengths).sum(),
            "tokens": batch.lengths.sum(),
            **dict.fromkeys(
                (name for name in SCORED_AT if name != "tokens"), count_masked(batch.lengths, fraction).sum()
            ),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        """`count_tensors` as numbers, from a batch on the host."""
        return {name: float(count) for name, count in self.count_tensors(batch).items()}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Compute the total loss, all losses and all other metrics from sums over any number of batches.

        Weights that change have the values of the current update; in training, the values that change are metrics too.
        """
        objective = self.spec.objective
        totals = {name: float(sums[name]) for name in self.loss_terms if name in sums}
        losses = build_losses(totals, self.loss_terms)
        counts = {loss.mean_over: float(sums[loss.mean_over]) or math.nan for loss in losses.values()}
        means = {name: loss.sum / counts[loss.mean_over] for name, loss in losses.items()}
        total = {"loss": sum_losses(losses, counts)}
        if objective.weight != 1:
            total["weighted_loss"] = objective.weight * means[self.target.loss_name]
        changing = self.changing_values if self.training else {}
        parts = (self.corruption.metrics(sums), means, self.target.metrics(sums, sums[objective.scored]))
        metrics = merge(total, changing, *parts)
        objective.check_listed(metrics)
        return metrics

    def flops(self, batch: Batch) -> float:
        """FLOPs of forward and backward of a batch on the host, as in Appendix E, for rows as long as the longest."""
        return float(len(batch.lengths) * self.row_flops(int(batch.lengths.max())))

    def row_flops(self, length: int) -> int:
        """FLOPs of forward and backward of one row at the current update, as in Appendix E."""
        return sum(cost.flops for cost in self.row_costs(length).values())

    def row_costs(self, length: int) -> dict[str, Cost]:
        """`row_flops` by network."""
        return self.count_row_costs(length, count_masked_in_row(length, self.masking.fraction))

    def mean_row_costs(self, length: int) -> dict[str, Cost]:
        """Mean of `row_costs` over a run."""
        shares = count_masked_over_run(length, self.spec.masking)
        return average_costs([(self.count_row_costs(length, number), share) for number, share in shares.items()])

    def mean_row_flops(self, length: int) -> int:
        """Mean of `row_flops` over a run."""
        return sum(cost.flops for cost in self.mean_row_costs(length).values())

    def count_row_costs(self, length: int, predictions: int) -> dict[str, Cost]:
        """FLOPs of one row with `predictions` masked positions, by network."""
        costs = {
            "generator": self.corruption.cost(length, predictions),
            "discriminator" if self.discriminates else "main encoder": self.target.cost(length, predictions),
            **self.strategy.costs(length),
        }
        if isinstance(word := self.target.network.encoder.embeddings.word, DisentangledEmbedding):
            costs["generator's embeddings in the discriminator"] = word.cost(length)
        return {network: cost for network, cost in costs.items() if cost.forward}

    def utilized_share(self, length: int) -> float:
        """Ratio of hardware operations to the FLOPs of Appendix E, for rows of `length`.

        Slightly too high: a last layer that is computed only at the masked positions counts in full.
        """
        return sum(cost.utilized for cost in self.row_costs(length).values()) / self.row_flops(length)
