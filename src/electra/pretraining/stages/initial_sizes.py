"""Sizes of the networks in an initial checkpoint: as options of a run, and compared with a run's own."""

from pathlib import Path
from typing import Any

from electra.errors import ModelError
from electra.model.architecture import ARCHITECTURES
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.spec import list_main_directories

# Fields that the shapes of the weights depend on, except vocab_size, which follows from the tokenizer.
SIZES = (
    "architecture",
    "embedding_size",
    "hidden_size",
    "num_layers",
    "num_heads",
    "ffn_size",
    "max_positions",
    "type_vocab_size",
)
MULTIPLIERS = {
    "hidden_size": "--generator.size",
    "num_layers": "--generator.depth",
    "num_heads": "--generator.heads",
    "ffn_size": "--generator.ffn",
}


def list_sizes(config: EncoderConfig) -> list[str]:
    """List the fields of `SIZES` that the architecture of a checkpoint has in `config.json`."""
    names = {"architecture", *ARCHITECTURES[config.architecture].config_names}
    return [name for name in SIZES if name in names]


def find_main_directory(init: Path) -> Path:
    """Return the directory of the discriminator or main encoder: a subdirectory of `init`, or `init` itself."""
    for name in list_main_directories():
        if (init / name / "config.json").exists():
            return init / name
    return init


def find_generator_directory(init: Path) -> Path | None:
    """Return the generator's directory if `init` has one."""
    return init / "generator" if (init / "generator" / "config.json").exists() else None


def check_exists(model: Path) -> None:
    """Raise a `ModelError` if there is no such file or directory."""
    if not model.exists():
        raise ModelError(
            "missing",
            f"{model}: no such file or directory; a model of the Hugging Face hub is named owner/name or owner/name@revision",
        )


def convert_to_options(main: EncoderConfig, generator: EncoderConfig | None) -> dict[str, Any]:
    """Convert the sizes of a discriminator or main encoder, and of its generator, to options by dotted name."""
    sizes: dict[str, Any] = {f"model.{name}": getattr(main, name) for name in list_sizes(main)}
    if generator is None:
        return sizes
    size = generator.hidden_size / main.hidden_size
    sizes |= {"generator.size": size, "generator.depth": generator.num_layers / main.num_layers}
    for name, option in (("num_heads", "heads"), ("ffn_size", "ffn")):
        ours, theirs = getattr(generator, name), getattr(main, name)
        if name in list_sizes(main) and ours != max(1, round(theirs * size)):
            sizes[f"generator.{option}"] = ours / theirs
    if generator.embedding_size != main.embedding_size:  # shared embeddings have equal sizes
        sizes["generator.tying"] = "none"
    return sizes


def find_other_sizes(checkpoint: EncoderConfig, model: EncoderConfig) -> dict[str, Any]:
    """Find the sizes of a checkpoint that differ from those of a model, which may have more positions."""
    sizes = {name: getattr(checkpoint, name) for name in list_sizes(checkpoint)}
    different = {name: size for name, size in sizes.items() if size != getattr(model, name)}
    if different.get("max_positions", model.max_positions) < model.max_positions:
        del different["max_positions"]
    return different


def check_sizes(
    directory: Path, checkpoint: EncoderConfig, model: EncoderConfig, relative_to: EncoderConfig | None = None
) -> None:
    """Raise a `ModelError` that names the sizes that differ between checkpoint and model, and options with equal sizes.

    The options of a generator are multipliers of the sizes `relative_to`.
    """
    wrong = find_other_sizes(checkpoint, model)
    if not wrong:
        return
    found = ", ".join(f"{name} {value} (the model has {getattr(model, name)})" for name, value in wrong.items())
    if relative_to is None:
        advice = [f"--model.{name.replace('_', '-')} {value}" for name, value in wrong.items()]
    else:
        multiples = {name: value / getattr(relative_to, name) for name, value in wrong.items() if name in MULTIPLIERS}
        advice = [f"{MULTIPLIERS[name]} {multiple:g}" for name, multiple in multiples.items()]
    hint = f"; try {' '.join(advice)}, or leave such options out to use the checkpoint's sizes" if advice else ""
    raise ModelError("other-sizes", f"{directory}: other sizes: {found}{hint}")
