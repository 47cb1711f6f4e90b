"""The study of what changes how much is learned from a FLOP."""

from dataclasses import replace
from typing import Any

from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.targets.replaced_tokens import TokenPredictionConfig
from electra.studies.catalog.variants import BERT, ELECTRA, compute_budget_flops, set_full_size, set_objective
from electra.studies.scales import Scale
from electra.studies.study import Study, Variant

Rows = dict[str, tuple[str, PretrainConfig]]
"""Label and configuration of variants by name."""
MUON_RATE = 2.0
"""Learning rate of Muon relative to AdamW's at the scales tiny and mini (docs/research/log)."""


def elements(scale: Scale) -> Study:
    """Ways to let pre-training learn more at small budgets, one at a time.

    The base is the scale's ELECTRA or BERT with Muon and initial attention to neighbors, except where a label names AdamW or
    random attention.
    """
    adamw = scale.config
    muon, neighbors = set_muon(adamw), set_neighbors(adamw)
    config = set_neighbors(muon)
    bert = set_objective(config, "mlm")
    unigram = set_generator(config, kind="unigram")
    both = TokenPredictionConfig(masked=1.0, filled=1.0)
    masked = TokenPredictionConfig(masked=1.0)
    shared = share_encoder(config)
    variants: Rows = {
        "electra-adamw": (f"{ELECTRA}, AdamW, random attention", adamw),
        "mlm-adamw": (f"{BERT}, AdamW, random attention", set_objective(adamw, "mlm")),
        "electra": (ELECTRA, config),
        "mlm": (BERT, bert),
        "mlm-replaced": (
            f"{BERT}, 50 % [MASK] and 40 % random tokens",
            set_masking(bert, mlm_mask=0.5, mlm_random=0.4),
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
        "generator-half": ("generator of 1/2 of the width", set_generator(config, size=0.5)),
        **vary_masking(config, bert),
        **combine_with_words(config, bert, unigram, both),
        **vary_generators(config),
        **vary_objectives(config, shared),
        **vary_training(config, bert),
        "electra-random-attention": ("random attention", muon),
        "mlm-random-attention": (f"{BERT}, random attention", set_objective(muon, "mlm")),
        "electra-neighbors-adamw": ("AdamW", neighbors),
        "mlm-neighbors-adamw": (f"{BERT}, AdamW", set_objective(neighbors, "mlm")),
    }
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


def share_first_layers(config: PretrainConfig) -> PretrainConfig:
    """Return the run with the first half of the discriminator's layers as the generator's."""
    return replace(config, generator=replace(set_full_size(config.generator), tying="trunk", depth=0.5))


def share_encoder(config: PretrainConfig) -> PretrainConfig:
    """Return the run with one encoder for generator and discriminator.

    It passes the encoder twice per update, so it has half of the rows: at equal FLOPs as many updates as BERT.
    """
    generator = replace(set_full_size(config.generator), tying="all")
    training = replace(config.training, batch_size=config.training.batch_size // 2)
    return replace(config, generator=generator, training=training)


def vary_masking(config: PretrainConfig, bert: PretrainConfig) -> Rows:
    """Build variants of which tokens are masked, and how many."""
    twice = min(0.5, 2 * config.masking.fraction)
    falling = {"fraction": twice, "final_fraction": config.masking.fraction / 2}
    return {
        "mlm-falling-fraction": (f"{BERT}, falling masked share", set_masking(bert, **falling)),
        "electra-falling-fraction": ("falling masked share", set_masking(config, **falling)),
        "mlm-words": (f"{BERT}, whole words", set_masking(bert, strategy="word")),
        "mlm-spans": (f"{BERT}, spans", set_masking(bert, strategy="span")),
        "electra-spans": ("spans", set_masking(config, strategy="span")),
    }


def combine_with_words(
    config: PretrainConfig, bert: PretrainConfig, unigram: PretrainConfig, both: TokenPredictionConfig
) -> Rows:
    """Build variants with whole words masked, and one element more."""
    trunk = share_first_layers(config)
    rows: Rows = {
        "electra-words": ("whole words", config),
        "mlm-words-replaced": (
            f"{BERT}, whole words, 50 % [MASK] and 40 % random tokens",
            set_masking(bert, mlm_mask=0.5, mlm_random=0.4),
        ),
        "shared-both-words": (
            "shared encoder, predicts masked and filled tokens, whole words",
            replace(share_encoder(config), token_prediction=both),
        ),
        "unigram-both-words": (
            "unigram generator, predicts masked and filled tokens, loss weight 1, whole words",
            replace(unigram, token_prediction=both, loss_weight=1.0),
        ),
        "both-words": ("predicts masked and filled tokens, whole words", replace(config, token_prediction=both)),
        "corrective-lm-words": (
            "corrective language modeling, whole words",
            replace(config, objective="corrective-lm"),
        ),
        "trunk-words": ("generator is the first layers, whole words", trunk),
        "trunk-both-words": (
            "generator is the first layers, predicts masked and filled tokens, whole words",
            replace(trunk, token_prediction=both),
        ),
    }
    return {name: (label, set_masking(changed, strategy="word")) for name, (label, changed) in rows.items()}


def vary_generators(config: PretrainConfig) -> Rows:
    """Build variants of the generator, and of what it shares with the discriminator."""
    return {
        "falling-temperature": (
            "temperature from 2 to 1",
            set_generator(config, temperature=2.0, final_temperature=1.0),
        ),
        "from-frequencies": (
            "samples by frequency at first, of the network at last",
            set_generator(config, frequency_share=1.0, final_frequency_share=0.0),
        ),
        "trunk": ("generator is the first layers", share_first_layers(config)),
        "disentangled": ("disentangled embeddings", set_generator(config, tying="disentangled")),
        "layer-mixture": ("samples from several layers", set_generator(config, kind="layer-mixture", size=0.5)),
    }


def vary_objectives(config: PretrainConfig, shared: PretrainConfig) -> Rows:
    """Build variants of what is predicted, and in which order."""
    falling = replace(shared.generator, final_loss_weight=0.0)
    contrast = replace(config.sequence_contrast, weight=1.0)
    return {
        "corrective-lm": ("corrective language modeling", replace(config, objective="corrective-lm")),
        "sequence-contrast": ("sequence contrast", replace(config, sequence_contrast=contrast)),
        "electric": ("Electric", replace(config, objective="electric")),
        "electric-unigram": (
            "Electric, noise by frequency",
            replace(config, objective="electric-unigram", loss_weight=None),
        ),
        "frozen-generator": (
            "generator trained first, then frozen",
            replace(config, procedure="two-stage-scratch", stage_one_share=0.4),
        ),
        "masked-lm-first": ("masked language model first", replace(config, procedure="masked-lm-first")),
        "shared-falling": ("shared encoder, falling masked-LM loss", replace(shared, generator=falling)),
    }


def vary_training(config: PretrainConfig, bert: PretrainConfig) -> Rows:
    """Build variants of schedule, average, dropout and batches."""
    steps, size = config.steps or 0, config.training.batch_size
    small = replace(bert.batch_warmup, steps=steps // 4, size=size // 2)
    return {
        "electra-wsd": ("warm-up, stable, decay", set_schedule(config, "wsd")),
        "mlm-wsd": (f"{BERT}, warm-up, stable, decay", set_schedule(bert, "wsd")),
        "mlm-average": (f"{BERT}, average of weights", replace(bert, optimizer=replace(bert.optimizer, ema=0.999))),
        "mlm-dropout": (
            f"{BERT}, dropout 0.1",
            replace(bert, model=replace(bert.model, dropout=0.1, attention_dropout=0.1)),
        ),
        "mlm-small-batches": (f"{BERT}, small batches first", replace(bert, batch_warmup=small)),
    }


def set_masking(config: PretrainConfig, **values: Any) -> PretrainConfig:
    """Return the run with other options of masking."""
    return replace(config, masking=replace(config.masking, **values))


def set_generator(config: PretrainConfig, **values: Any) -> PretrainConfig:
    """Return the run with other options of the generator."""
    return replace(config, generator=replace(config.generator, **values))
