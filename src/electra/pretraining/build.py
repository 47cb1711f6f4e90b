"""Build the model of a configuration, with weights or on the meta device."""

from dataclasses import replace

import torch
from jaxtyping import Int64
from torch import Tensor

from electra.errors import DeviceError
from electra.model.hf_config import use_meta_device
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import compute_generator_sizes
from electra.pretraining.objectives.spec import ObjectiveSpec, Vocabulary
from electra.pretraining.stages.procedures import PROCEDURES
from electra.pretraining.stages.two_stage import resolve_generator
from electra.seeding import Stream, seed_everything
from electra.text.tokenizer import Tokenizer


def build_model(config: PretrainConfig, tokenizer: Tokenizer, unigrams: Int64[Tensor, " V"]) -> PretrainingModel:
    """Build the model with initial weights from the seed; V is the size of the tokenizer's vocabulary.

    `unigrams` are the token counts of the corpus.

    Raises:
        DeviceError: not enough memory for networks of these sizes.
    """
    spec = build_spec(config, build_vocabulary(tokenizer), unigrams)
    seed_everything(Stream.INITIAL_WEIGHTS, config.seed)
    try:
        return PretrainingModel(spec)
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        generator = compute_generator_sizes(spec.main, spec.generator).hidden_size
        raise DeviceError(
            "out-of-memory",
            f"not enough memory for an encoder of width {spec.main.hidden_size:,} and a generator of "
            f"{generator:,}; lower --model.hidden-size or --generator.size",
        ) from None


def build_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """Collect the token ids that objectives use."""
    return Vocabulary(
        tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids, tokenizer.unk_id, tokenizer.continuation_ids
    )


def build_meta_model(config: PretrainConfig) -> PretrainingModel:
    """Build the model on the meta device, without memory, to count parameters and FLOPs."""
    vocabulary = Vocabulary(config.model.vocab_size, mask_id=0, special_ids=())
    with use_meta_device():
        return PretrainingModel(build_spec(config, vocabulary, torch.zeros(vocabulary.size, dtype=torch.long)))


def build_spec(config: PretrainConfig, vocabulary: Vocabulary, unigrams: Int64[Tensor, " V"]) -> ObjectiveSpec:
    """Build the specification of the objective."""
    objective = OBJECTIVES[config.objective]
    if config.loss_weight is not None and objective.has_generator:  # relative to the generator's loss
        objective = replace(objective, weight=config.loss_weight)
    main = replace(config.model, vocab_size=vocabulary.size)
    procedure = PROCEDURES[config.procedure]
    continues = procedure.starts_discriminator and not procedure.freezes_generator
    if config.init or continues:  # those positions replace the ones that an attention initializer needs
        main = replace(main, attention_initializer="random")
    return ObjectiveSpec(
        objective,
        main,
        resolve_generator(config),
        config.masking,
        vocabulary,
        unigrams,
        config.contrast,
        copies=config.copy is not False,
        token_prediction=config.token_prediction,
        sequence_contrast=config.sequence_contrast,
        corrective=config.corrective,
    )
