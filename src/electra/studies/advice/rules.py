"""Rules of the recommendation, with the results that they follow from. A later study replaces the rows."""

import math
from dataclasses import dataclass
from functools import cache

from electra.pretraining.build import build_meta_model
from electra.pretraining.config import PretrainConfig
from electra.studies.advice.evidence import find_scores
from electra.studies.catalog.variants import set_objective
from electra.studies.paper.run_costs import count_parameters
from electra.studies.scales import SCALES


@dataclass(frozen=True)
class ObjectiveRule:
    """The objective for a range of budgets."""

    objective: str
    below: float
    """FLOPs of the run, with objective mlm, below which the rule applies, if none above it does."""
    reason: str
    source: str


OBJECTIVE_RULES = (
    ObjectiveRule(
        "mlm",
        3.3e15,
        "masked language modeling is ahead of ELECTRA, or level with it, at every budget compared here, up to 1.2e14 FLOPs; "
        "between that and 8.9e16, the smallest published budget, nothing was compared, and 3.3e15 is their geometric mean",
        "docs/research/results.md",
    ),
    ObjectiveRule(
        "electra",
        math.inf,
        "ELECTRA-Small with 8.9e16 FLOPs is published with 74.1 on GLUE, close to the 75.1 of BERT-Small with 1.4e18; no "
        "study here had such a budget",
        "Clark et al. (2020), Table 1",
    ),
)
"""In ascending order."""

SIZE_SOURCE = "docs/research/results.md"
"""Source of the tokens that a size needs: at about 1e14 FLOPs scale mini, which reads these, is ahead of scale tiny."""

FEW_EPOCHS, MAX_EPOCHS = 4, 40
"""Up to 4 epochs, repeated text is almost as good as new text; at 40, more repetition is of no use."""
EPOCHS_SOURCE = "Muennighoff et al. (2023)"


@cache
def compute_tokens_per_parameter() -> float:
    """Compute the tokens per parameter of the main encoder for which a larger size is known to be worth it.

    They are those of masked language modeling at scale mini, whose scores are above those of scale tiny with a little more
    FLOPs. For other sizes they are an extrapolation.
    """
    (row,) = find_scores("mini", "mlm")
    return row.tokens / count_main_parameters(set_objective(SCALES["mini"]().config, "mlm"))


@cache
def count_main_parameters(config: PretrainConfig) -> int:
    """Count the parameters of the main encoder with its head."""
    return count_parameters(build_meta_model(config).target)


def find_objective_rule(flops: float) -> ObjectiveRule:
    """Return the rule for a budget."""
    return next(rule for rule in OBJECTIVE_RULES if flops < rule.below)
