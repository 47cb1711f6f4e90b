"""From a configuration and a tokenizer to the model that is trained."""

from dataclasses import replace

from jaxtyping import Int64
from torch import Tensor

from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives import OBJECTIVES, PretrainingModel, Setting, Vocabulary
from electra.pretraining.procedure import generator_of
from electra.runtime import seed_everything
from electra.text.tokenizer import Tokenizer


def build_model(config: PretrainConfig, tokenizer: Tokenizer, unigrams: Int64[Tensor, " V"]) -> PretrainingModel:
    """The objective and its networks, with the initial weights that the seed decides; the tokenizer says V.

    `unigrams` are the counts of the tokens in the corpus.
    """
    objective = OBJECTIVES[config.objective]
    if config.loss_weight is not None and objective.corruption == "generator":  # it weighs against a generator's loss
        objective = replace(objective, weight=config.loss_weight)
    special = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    setting = Setting(
        objective,
        replace(config.model, vocab_size=tokenizer.vocab_size),
        generator_of(config),
        config.masking,
        Vocabulary(tokenizer.vocab_size, tokenizer.mask_id, special),
        unigrams,
        config.contrast,
        copies=config.copy is not False,
    )
    seed_everything(config.seed)
    return PretrainingModel(setting)
