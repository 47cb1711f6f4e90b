"""Pre-train with a new objective, detection of swapped tokens: python examples/objective.py TEXT OUT [OPTION=VALUE ...]

The corruption permutes the tokens at the masked positions of a sequence; the target is ELECTRA's, original or replaced.
"""

import sys

import torch
import yaml

import electra
from electra.data.batch import Batch
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.corruptions.corruption import CorruptedBatch, Corruption, compute_ratio
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, write_tokens
from electra.pretraining.objectives.metrics import DETECTION_METRICS, Metric
from electra.pretraining.objectives.spec import CORRUPTIONS, CorruptionKind, Objective


class SwapTokens(Corruption):
    """Replace the token at each masked position by that of the next masked position, and the last one by the first."""

    def forward(self, batch: Batch, masked: MaskedPositions) -> CorruptedBatch:
        original = batch.input_ids.gather(1, masked.positions)
        slots = torch.arange(original.shape[1], device=original.device)
        following = (slots + 1) % masked.used.sum(1, keepdim=True).clamp(min=1)
        swapped = original.gather(1, following)
        same = ((swapped == original) & masked.used).sum()
        ids = write_tokens(batch.input_ids, masked.positions, swapped, masked.used)
        return CorruptedBatch(ids, None, {"swapped_same": same})

    def metrics(self, sums: dict[str, torch.Tensor]) -> dict[str, float]:
        return {"swapped_same": compute_ratio(sums["swapped_same"], sums["masked"])}


CORRUPTIONS["swap"] = CorruptionKind(lambda spec, main: SwapTokens())
OBJECTIVES["swap"] = Objective(
    corruption="swap",
    target="replaced",
    scored="tokens",
    weight=1.0,
    description="detection of swapped tokens",
    metrics={"swapped_same": Metric("share of swaps of equal tokens", "masked"), **DETECTION_METRICS},
)


def main(text: str, out: str, *options: str) -> None:
    """Pre-train with the objective on the text; `options` are those of `electra.pretrain`, as NAME=VALUE."""
    settings = {name: yaml.safe_load(value) for name, value in (option.split("=", 1) for option in options)}
    electra.show_log()
    summary = electra.pretrain(text, out=out, preset="tiny", objective="swap", **settings)
    print(f"AUC {summary['heldout']['auc']:.3f}, of token frequency {summary['heldout']['frequency_auc']:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
