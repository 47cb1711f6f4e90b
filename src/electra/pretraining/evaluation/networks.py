"""The pre-trained networks of a model directory: a finished run, a folder like it, or a Hugging Face directory."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from electra.config.checks import check_number
from electra.errors import ModelError, RunError, UsageError
from electra.model.architecture import ARCHITECTURES
from electra.model.checkpoints import find_pretraining_heads, load_pretrained
from electra.model.hf_config import CONFIG_BYTES, HuggingFaceConfig, load_config
from electra.pretraining.config import PretrainConfig
from electra.pretraining.evaluation.discriminator_mlm import compute_unmasked_per_masked
from electra.pretraining.objectives.catalog import OBJECTIVES, has_generator_network
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.pretraining.objectives.progress import resolve_at
from electra.pretraining.objectives.spec import CORRUPTIONS, GENERATORS
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.stages.initial_sizes import check_exists, find_generator_directory, find_main_directory
from electra.pretraining.stages.warm_start import load_into
from electra.schema import read_json
from electra.text.tokenizer import Tokenizer, load_tokenizer

log = logging.getLogger(__name__)

Network = TypeVar("Network", MaskedLM, Discriminator)


@dataclass(frozen=True)
class PretrainedNetworks:
    """Where the networks of a model are, and how they were pre-trained."""

    model: Path
    """As the user named it."""
    main: Path
    """Directory of the discriminator or main encoder."""
    is_electra: bool
    """The main network is a discriminator; otherwise it is a masked language model."""
    predicts_tokens: bool
    """The main network has the head of a masked language model, a discriminator beside its own, and was trained on [MASK] as
    far as is known."""
    config: PretrainConfig | None
    """Configuration of the run; None for other directories."""

    def check_masked_lm(self, mask_fraction: float | None) -> None:
        """Check that a main network without a discriminator's head was trained on [MASK], and takes no `mask_fraction`."""
        if mask_fraction is not None:
            raise UsageError(
                "meaningless-option",
                f"--mask-fraction applies to an ELECTRA only; {self.main} is a masked language model",
            )
        if self.config is not None and not reads_masks(self.config):
            raise ModelError(
                "no-mask-token",
                f"{self.main}: was not trained on text with [MASK]; use {self.model / 'generator'}, which was",
            )

    def make_no_generator_error(self) -> ModelError:
        """Build the error for a discriminator where a generator is needed too."""
        config = self.config
        if (
            config is not None
            and OBJECTIVES[config.objective].has_generator
            and not has_generator_network(config.objective, config.generator)
        ):
            return ModelError(
                "not-masked-lm",
                f"{self.model}: its generator is {config.generator.kind} samples, not a network that predicts tokens "
                "from a context; name a run with --generator.kind masked-lm",
            )
        has_sibling = find_generator_directory(self.main.parent) is not None
        advice = (
            f"name {self.main.parent}, which contains both"
            if has_sibling
            else "name a folder with discriminator/ and generator/"
        )
        return ModelError(
            "not-masked-lm", f"{self.main}: a discriminator, which ranks the candidates of its generator; {advice}"
        )


def find_networks(model: Path) -> PretrainedNetworks:
    """Find the networks of a model.

    Raises:
        ModelError: no such model, or its main network has no pre-training head.
        RunError: the run is not finished.
    """
    check_exists(model)
    main, run = find_main_directory(model), RunDirectory(model)
    if main == model and run.config.exists():
        raise RunError(
            "unfinished", f"{model}: the run is not finished, so it has no networks yet; run electra pretrain again"
        )
    config = run.load_config() if run.config.exists() else None
    load_config(main)
    heads = find_pretraining_heads(main)
    if not heads and find_pretraining_heads(main, {"energy"}):
        raise ModelError(
            "no-probabilities",
            f"{main}: an energy-based model (--objective electric), which has energies of tokens and no probabilities; name "
            "the generator of its run, if it has one, or another model",
        )
    if not heads:
        raise ModelError(
            "no-head",
            f"{main}: has no pre-training head; it is an encoder without a head, or a fine-tuned model; name a run of "
            "electra pretrain, or a masked language model",
        )
    return PretrainedNetworks(
        model, main, "replaced-token" in heads, "masked-lm" in heads and (config is None or reads_masks(config)), config
    )


def reads_masks(config: PretrainConfig) -> bool:
    """Whether the main network of a run was trained on [MASK]."""
    return CORRUPTIONS[OBJECTIVES[config.objective].corruption].writes_masks or config.token_prediction.masked > 0


def is_foreign(model: Path) -> bool:
    """Whether a directory has a network of an architecture of which this package reads no pre-training head.

    Raises:
        ModelError: a broken config.json.
    """
    file = find_main_directory(model) / "config.json"
    if not file.exists():
        return False
    model_type = read_json(file, HuggingFaceConfig, ModelError, CONFIG_BYTES).get("model_type")
    return model_type not in {None, *(each.model_type for each in ARCHITECTURES.values())}


def load_generator(found: PretrainedNetworks, tokenizer: Tokenizer) -> MaskedLM | None:
    """Load the generator of an ELECTRA; None without one. Raises a `ModelError` if its tokenizer is another."""
    directory = find_generator_directory(found.model)
    if directory is None:
        return None
    if load_tokenizer(directory).fingerprint != tokenizer.fingerprint:
        raise ModelError(
            "other-tokenizer",
            f"{directory}: its tokenizer differs from that of {found.main}; use a generator and a discriminator of the "
            "same run",
        )
    return load_network(directory, MaskedLM, "masked-lm", tokenizer)


def load_network(directory: Path, kind: type[Network], head: str, tokenizer: Tokenizer) -> Network:
    """Build a network with the weights of a Hugging Face directory."""
    pretrained = load_pretrained(directory)
    network = kind(replace(pretrained.config, vocab_size=tokenizer.vocab_size))
    load_into(network, pretrained, head)
    return network


def resolve_sampling(found: PretrainedNetworks, mask_fraction: float | None) -> tuple[float, float]:
    """Return the paper's a and the sampling temperature of the generator, as at the end of pre-training."""
    config, model = found.config, found.model
    check_number("--mask-fraction", mask_fraction, above=0, at_most=0.5)  # as in pre-training
    if config is not None:
        fraction = resolve_at(config.masking, 1.0).fraction if mask_fraction is None else mask_fraction
        masked_only = OBJECTIVES[config.objective].scored == "masked"
        if options := find_violated_assumptions(config):
            log.warning(
                f"{model}: trained with {' and '.join(options)}, for which the formula of Appendix G is an approximation",
                extra={"code": "inexact-formula"},
            )
        return compute_unmasked_per_masked(fraction, masked_only), resolve_at(config.generator, 1.0).temperature
    if mask_fraction is None:
        raise UsageError(
            "missing-option",
            f"{model}: has no {RunDirectory(model).config.name} with the share of tokens masked in "
            "pre-training; give --mask-fraction (in the paper 0.15, for Large 0.25)",
        )
    return compute_unmasked_per_masked(mask_fraction, masked_only=False), 1.0


def find_violated_assumptions(config: PretrainConfig) -> list[str]:
    """Return the options of a run that violate the formula's assumptions: uniform masking with p_mask, samples from p_G."""
    violations = {
        "generator.kind": GENERATORS[config.generator.kind].is_mixture,
        "generator.exclude_original_token": config.generator.exclude_original_token,
        "generator.frequency_share": resolve_at(config.generator, 1.0).frequency_share > 0,
        "masking.with_replacement": config.masking.with_replacement,
        "masking.strategy": config.masking.strategy != "uniform",
        "contrast.weight": config.contrast.weight > 0,
    }
    return [name for name, violated in violations.items() if violated]
