"""The study of the compute at which replaced token detection overtakes masked language modeling."""

from dataclasses import replace

from electra.pretraining.objectives.targets.replaced_tokens import TokenPredictionConfig
from electra.studies.catalog.elements import set_masking, set_muon, set_neighbors, share_encoder
from electra.studies.catalog.variants import BERT, ELECTRA, compute_budget_flops, set_objective, vary_compute
from electra.studies.scales import Scale
from electra.studies.study import Axis, Published, Study

SHARES = (1 / 16, 1 / 4, 1.0, 4.0)
DETECTION_AND_PREDICTION = "shared encoder, predicts tokens too"
"""The form of replaced token detection with the highest tags in the study of elements."""


def crossover(scale: Scale) -> Study:
    """ELECTRA, BERT, and one encoder that detects and predicts, over compute.

    All have Muon, initial attention to neighbors, and whole words masked, without which ELECTRA does not leave its plateau at
    the smaller budgets (docs/research/results.md).
    """
    config = set_masking(set_neighbors(set_muon(scale.config)), strategy="word")
    both = replace(share_encoder(config), token_prediction=TokenPredictionConfig(masked=1.0, filled=1.0))
    compared = {
        "electra": (ELECTRA, config),
        "mlm": (BERT, set_objective(config, "mlm")),
        "shared-both": (DETECTION_AND_PREDICTION, both),
    }
    return Study(
        "crossover",
        "Replaced token detection and masked language modeling over compute",
        tuple(vary_compute(compared, SHARES)),
        Published(""),
        axis=Axis("pre-training FLOPs", flops=True),
        budget=compute_budget_flops(scale),
        compared=(DETECTION_AND_PREDICTION, BERT),
    )
