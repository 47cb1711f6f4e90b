"""Model cards of the networks of a pre-training run."""

from collections.abc import Mapping
from pathlib import PurePath

from electra.model.architecture import ARCHITECTURES
from electra.model.model_card import ModelCard
from electra.pretraining.config import PretrainConfig

DESCRIPTIONS = {
    "discriminator": "A text encoder pre-trained by replaced token detection (ELECTRA): for every token it predicts "
    "whether a generator replaced it. Fine-tune this model.",
    "generator": "The generator of an ELECTRA run: a small masked language model whose samples replace tokens of the "
    "discriminator's input. Use it to fill masks, or to continue pre-training.",
    "masked_lm": "A text encoder pre-trained as a masked language model.",
    "energy_model": "A text encoder pre-trained as an energy-based cloze model (Electric): a low energy of a token means that "
    "it is probable in its context. Fine-tune this model.",
}


def build_model_card(
    name: str, head: str, config: PretrainConfig, facts: Mapping[str, str], metrics: Mapping[str, str]
) -> ModelCard:
    """Build the model card of one network of a run (`discriminator`, `generator` or `masked_lm`).

    `facts` and `metrics` are descriptions and formatted values.
    """
    # Model cards are published: local paths would reveal the user and the machine.
    sources = [*config.text, *([config.data] if config.data else [])]
    starts = {"initialized from": config.init, "generator initialized from": config.init_generator}
    initial = {fact: format_source(source) for fact, source in starts.items() if source}
    return ModelCard(
        title=f"ELECTRA {name.replace('_', ' ')}",
        description=DESCRIPTIONS.get(name, ""),
        architecture=ARCHITECTURES[config.model.architecture].classes[head].name,
        facts={"objective": config.objective, **facts, "text": ", ".join(map(format_source, sources)), **initial},
        metrics=metrics,
        pipeline_tag="fill-mask" if head == "masked-lm" else None,
    )


def format_source(source: str) -> str:
    """Format a data set or model of the hub by its address, a file or folder, whose path is absolute, by its name alone."""
    return PurePath(source).name if PurePath(source).is_absolute() else source
