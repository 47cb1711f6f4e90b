"""The study of what changes how much is learned from a FLOP."""

from dataclasses import replace

from electra.pretraining.objectives.targets.replaced_tokens import TokenPredictionConfig
from electra.studies.catalog.variants import BERT, ELECTRA, compute_budget_flops, set_full_size, set_objective
from electra.studies.scales import Scale
from electra.studies.study import Study, Variant

WEIGHTS = (1.0, 5.0, 20.0)
"""Weights of the discriminator's loss where its encoder predicts masked tokens too."""


def elements(scale: Scale) -> Study:
    """Ways to let replaced token detection learn more at small budgets, one at a time, compared with ELECTRA and BERT."""
    config = scale.config
    shared = replace(config, generator=replace(set_full_size(config.generator), tying="all"))
    masked, filled = TokenPredictionConfig(masked=1.0), TokenPredictionConfig(filled=1.0)
    both = TokenPredictionConfig(masked=1.0, filled=1.0)
    muon = replace(config, optimizer=replace(config.optimizer, kind="muon"))
    neighbors = replace(config, model=replace(config.model, attention_initializer="neighbors"))
    muon_neighbors = replace(muon, model=neighbors.model)
    wsd = replace(config, schedule=replace(config.schedule, kind="wsd"))
    unigram = replace(config, generator=replace(config.generator, kind="unigram"))
    variants = {
        "electra": (ELECTRA, config),
        "mlm": (BERT, set_objective(config, "mlm")),
        "unigram": ("ELECTRA, unigram generator", unigram),
        **{f"shared-{w:g}": (f"shared encoder, loss weight {w:g}", replace(shared, loss_weight=w)) for w in WEIGHTS},
        "masked": ("ELECTRA, predicts masked tokens too", replace(config, token_prediction=masked)),
        "filled": ("ELECTRA, predicts filled tokens too", replace(config, token_prediction=filled)),
        "both": ("ELECTRA, predicts masked and filled tokens too", replace(config, token_prediction=both)),
        **{
            f"{name}-shared-{w:g}": (
                f"shared encoder, predicts {label} tokens too, loss weight {w:g}",
                replace(shared, token_prediction=prediction, loss_weight=w),
            )
            for name, label, prediction in (
                ("masked", "masked", masked),
                ("filled", "filled", filled),
                ("both", "masked and filled", both),
            )
            for w in WEIGHTS
        },
        "electra-muon": ("ELECTRA, Muon", muon),
        "mlm-muon": ("BERT, Muon", set_objective(muon, "mlm")),
        "electra-neighbors": ("ELECTRA, attention to neighbors", neighbors),
        "mlm-neighbors": ("BERT, attention to neighbors", set_objective(neighbors, "mlm")),
        "electra-muon-neighbors": ("ELECTRA, Muon, attention to neighbors", muon_neighbors),
        "mlm-muon-neighbors": ("BERT, Muon, attention to neighbors", set_objective(muon_neighbors, "mlm")),
        "unigram-muon-neighbors": (
            "ELECTRA, unigram generator, Muon, attention to neighbors",
            replace(muon_neighbors, generator=unigram.generator),
        ),
        "electra-wsd": ("ELECTRA, warm-up, stable, decay", wsd),
        "mlm-wsd": ("BERT, warm-up, stable, decay", set_objective(wsd, "mlm")),
    }
    control = Variant("untrained", "one update", config, share=0.0)
    return Study(
        "elements",
        "Elements that change what is learned from a FLOP",
        (*(Variant(name, label, changed) for name, (label, changed) in variants.items()), control),
        budget=compute_budget_flops(scale),
    )
