"""The study of what changes how much is learned from a FLOP."""

from dataclasses import replace

from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.targets.replaced_tokens import TokenPredictionConfig
from electra.studies.catalog.variants import BERT, ELECTRA, compute_budget_flops, set_full_size, set_objective
from electra.studies.scales import Scale
from electra.studies.study import Study, Variant

MUON_RATE = 2.0
"""Learning rate of Muon relative to AdamW's at the scales tiny and mini (docs/research/log)."""


def elements(scale: Scale) -> Study:
    """Ways to let pre-training learn more at small budgets, one at a time.

    The base of all variants but the first two is the scale's ELECTRA or BERT with Muon and initial attention to neighbors.
    """
    adamw = scale.config
    muon, neighbors = set_muon(adamw), set_neighbors(adamw)
    config = set_neighbors(muon)
    bert = set_objective(config, "mlm")
    unigram = replace(config, generator=replace(config.generator, kind="unigram"))
    both = TokenPredictionConfig(masked=1.0, filled=1.0)
    masked = TokenPredictionConfig(masked=1.0)
    shared = share_encoder(config)
    variants = {
        "electra-adamw": (f"{ELECTRA}, AdamW, random attention", adamw),
        "mlm-adamw": (f"{BERT}, AdamW, random attention", set_objective(adamw, "mlm")),
        "electra": (ELECTRA, config),
        "mlm": (BERT, bert),
        "mlm-replaced": (
            f"{BERT}, 50 % [MASK] and 40 % random tokens",
            replace(bert, masking=replace(bert.masking, mlm_mask=0.5, mlm_random=0.4)),
        ),
        "shared-both": ("shared encoder, predicts masked and filled tokens", replace(shared, token_prediction=both)),
        "shared-masked": ("shared encoder, predicts masked tokens", replace(shared, token_prediction=masked)),
        "shared": ("shared encoder", shared),
        "unigram": ("unigram generator", unigram),
        "unigram-both": (
            "unigram generator, predicts masked and filled tokens, loss weight 1",
            replace(unigram, token_prediction=both, loss_weight=1.0),
        ),
        "both": ("predicts masked and filled tokens", replace(config, token_prediction=both)),
        "generator-half": ("generator of 1/2 of the width", replace(config, generator=replace(config.generator, size=0.5))),
        "electra-random-attention": ("random attention", muon),
        "mlm-random-attention": (f"{BERT}, random attention", set_objective(muon, "mlm")),
        "electra-neighbors-adamw": ("AdamW", neighbors),
        "mlm-neighbors-adamw": (f"{BERT}, AdamW", set_objective(neighbors, "mlm")),
        "electra-wsd": ("warm-up, stable, decay", set_schedule(config, "wsd")),
        "mlm-wsd": (f"{BERT}, warm-up, stable, decay", set_schedule(bert, "wsd")),
    }  # fmt: skip
    control = Variant("untrained", "one update", adamw, share=0.0)
    return Study(
        "elements",
        "Elements that change what is learned from a FLOP",
        (*(Variant(name, label, changed) for name, (label, changed) in variants.items()), control),
        budget=compute_budget_flops(scale),
    )


def set_muon(config: PretrainConfig) -> PretrainConfig:
    """Return the run with Muon and its learning rate."""
    rate = MUON_RATE * config.optimizer.learning_rate
    return replace(config, optimizer=replace(config.optimizer, kind="muon", learning_rate=rate))


def set_neighbors(config: PretrainConfig) -> PretrainConfig:
    """Return the run with initial attention to neighbors."""
    return replace(config, model=replace(config.model, attention_initializer="neighbors"))


def set_schedule(config: PretrainConfig, kind: str) -> PretrainConfig:
    """Return the run with another schedule."""
    return replace(config, schedule=replace(config.schedule, kind=kind))


def share_encoder(config: PretrainConfig) -> PretrainConfig:
    """Return the run with one encoder for generator and discriminator.

    It passes the encoder twice per update, so it has half of the rows: at equal FLOPs as many updates as BERT.
    """
    generator = replace(set_full_size(config.generator), tying="all")
    training = replace(config.training, batch_size=config.training.batch_size // 2)
    return replace(config, generator=generator, training=training)
