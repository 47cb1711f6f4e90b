"""From a configuration and a tokenizer to the model that is trained, or from a configuration alone to its shapes."""

from dataclasses import replace

import torch
from jaxtyping import Int64
from torch import Tensor

from electra.errors import DeviceError
from electra.model.hf_config import allocating_nothing
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.model import OBJECTIVES, ObjectiveSpec, PretrainingModel, Vocabulary
from electra.pretraining.objectives.networks import generator_sizes
from electra.pretraining.two_stage import generator_of
from electra.seeding import Stream, seed_everything
from electra.text.tokenizer import Tokenizer


def build_model(config: PretrainConfig, tokenizer: Tokenizer, unigrams: Int64[Tensor, " V"]) -> PretrainingModel:
    """The objective and its networks, with the initial weights that the seed decides; the tokenizer says V.

    `unigrams` are the counts of the tokens in the corpus.

    Raises:
        DeviceError: there is not enough memory for networks of these sizes.
    """
    setting = setting_of(config, vocabulary_of(tokenizer), unigrams)
    seed_everything(Stream.INITIAL_WEIGHTS, config.seed)
    try:
        return PretrainingModel(setting)
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        generator = generator_sizes(setting.main, setting.generator).hidden_size
        raise DeviceError(
            f"this machine has no memory for a main network of width {setting.main.hidden_size:,} and a generator of "
            f"{generator:,}; lower --model.hidden-size or --generator.size"
        ) from None


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """What objectives need to know of a tokenizer."""
    return Vocabulary(tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids, tokenizer.unk_id)


def build_shapes(config: PretrainConfig) -> PretrainingModel:
    """The objective and its networks without weights (on torch's meta device), to be counted: it takes no memory."""
    vocabulary = Vocabulary(config.model.vocab_size, mask_id=0, special_ids=())
    with allocating_nothing():
        return PretrainingModel(setting_of(config, vocabulary, torch.zeros(vocabulary.size, dtype=torch.long)))


def setting_of(config: PretrainConfig, vocabulary: Vocabulary, unigrams: Int64[Tensor, " V"]) -> ObjectiveSpec:
    """All that the objective is built from."""
    objective = OBJECTIVES[config.objective]
    if config.loss_weight is not None and objective.corruption == "generator":  # it weighs against a generator's loss
        objective = replace(objective, weight=config.loss_weight)
    return ObjectiveSpec(
        objective,
        replace(config.model, vocab_size=vocabulary.size),
        generator_of(config),
        config.masking,
        vocabulary,
        unigrams,
        config.contrast,
        copies=config.copy is not False,
    )
