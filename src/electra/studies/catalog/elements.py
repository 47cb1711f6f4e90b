"""The study of what changes how much is learned from a FLOP."""

from dataclasses import replace

from electra.studies.catalog.variants import BERT, ELECTRA, compute_budget_flops, set_full_size, set_objective
from electra.studies.scales import Scale
from electra.studies.study import Study, Variant

TRUNK_WEIGHTS = (1.0, 5.0, 20.0)
"""Weights of the discriminator's loss in `elements` where it shares its encoder with masked-token prediction."""


def elements(scale: Scale) -> Study:
    """Ways to let replaced token detection learn more at small budgets, one at a time, compared with ELECTRA and BERT."""
    config = scale.config
    trunk = replace(config, generator=replace(set_full_size(config.generator), tying="all"))
    remask = replace(config, remask=replace(config.remask, weight=1.0))
    remask_trunk = replace(trunk, remask=remask.remask)
    variants = {
        "electra": (ELECTRA, config),
        "mlm": (BERT, set_objective(config, "mlm")),
        **{
            f"trunk-{weight:g}": (f"one trunk, loss weight {weight:g}", replace(trunk, loss_weight=weight))
            for weight in TRUNK_WEIGHTS
        },
        "remask": ("ELECTRA with masked tokens in the discriminator's input", remask),
        **{
            f"remask-{weight:g}": (
                f"ELECTRA with masked tokens in the discriminator's input, loss weight {weight:g}",
                replace(remask, loss_weight=weight),
            )
            for weight in TRUNK_WEIGHTS
        },
        **{
            f"remask-trunk-{weight:g}": (
                f"one trunk, masked tokens in both inputs, loss weight {weight:g}",
                replace(remask_trunk, loss_weight=weight),
            )
            for weight in TRUNK_WEIGHTS
        },
    }
    return Study(
        "elements",
        "Elements that change what is learned from a FLOP",
        tuple(Variant(name, label, changed) for name, (label, changed) in variants.items()),
        budget=compute_budget_flops(scale),
    )
