"""From a configuration and a tokenizer to the model that is trained."""

from dataclasses import replace

from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives import OBJECTIVES, PretrainingModel, Setting, Vocabulary
from electra.runtime import seed_everything
from electra.text.tokenizer import Tokenizer


def build_model(config: PretrainConfig, tokenizer: Tokenizer) -> PretrainingModel:
    """The objective and its networks, with the initial weights that the seed decides; the tokenizer says V."""
    objective = OBJECTIVES[config.objective]
    if config.loss_weight is not None and objective.corruption == "generator":  # it weighs against a generator's loss
        objective = replace(objective, weight=config.loss_weight)
    main = replace(config.model, vocab_size=tokenizer.vocab_size)
    special = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    vocabulary = Vocabulary(tokenizer.vocab_size, tokenizer.mask_id, special)
    seed_everything(config.seed)
    return PretrainingModel(Setting(objective, main, config.generator, config.masking, vocabulary))
