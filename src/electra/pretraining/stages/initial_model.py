"""The networks that a run starts from: of a directory, of the Hugging Face hub, or of a TensorFlow checkpoint."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from electra.model.checkpoints import (
    Pretrained,
    find_pretraining_heads,
    load_pretrained,
    read_pretrained_length,
)
from electra.model.encoder import EncoderConfig
from electra.model.hf_config import load_config
from electra.model.tensorflow.bundle import find_tensorflow_checkpoint
from electra.model.tensorflow.networks import TensorFlowNetwork, find_networks
from electra.pretraining.stages.initial_sizes import check_exists, find_generator_directory, find_main_directory
from electra.text.hub import locate_model
from electra.text.tokenizer import FILES


@dataclass(frozen=True)
class InitialNetwork:
    """A pre-trained network, of which only the sizes have been read."""

    place: Path
    """Its directory, or the name of its checkpoint; messages name it."""
    config: EncoderConfig
    find_heads: Callable[[Collection[str]], set[str]]
    """Find its kinds of heads, of those given."""
    load: Callable[[], Pretrained]
    tokenizer: Path
    """Where its tokenizer is, if it has one."""
    length: int | None = None
    """Longest sequence of its training; None if not known."""

    @property
    def has_tokenizer(self) -> bool:
        """Whether there is a tokenizer beside it."""
        return self.tokenizer.is_file() or any((self.tokenizer / name).exists() for name in FILES)

    @property
    def is_generator(self) -> bool:
        """Whether it is beside the discriminator that it belongs to."""
        return self.place.name == "generator" and find_main_directory(self.place.parent) != self.place.parent


@dataclass(frozen=True)
class InitialModel:
    """What `--init` names, with the generator of `--init-generator` if there is one."""

    main: InitialNetwork
    """The discriminator or main encoder."""
    generator: InitialNetwork | None
    own_generator: bool = False
    """Whether the generator is that of `--init-generator`."""


def find_initial_model(init: str, init_generator: str | None = None, num_heads: int | None = None) -> InitialModel:
    """Find the networks of `--init` and `--init-generator`; downloads models of the hub.

    `num_heads` is that of the main network in a TensorFlow checkpoint, whose variables do not tell it.

    Raises:
        ModelError: no such model, its sizes cannot be read, or it is not on the hub.
        UsageError: an extra is missing, or the number of heads is.
    """
    main, generator = find_networks_at(init, num_heads)
    if init_generator is None:
        return InitialModel(main, generator)
    first, second = find_networks_at(init_generator)
    return InitialModel(main, second or first, own_generator=True)


def find_networks_at(name: str, num_heads: int | None = None) -> tuple[InitialNetwork, InitialNetwork | None]:
    """Find the main network that a name stands for, and its generator if there is one."""
    path = locate_model(name)
    if (prefix := find_tensorflow_checkpoint(path)) is not None:
        networks = find_networks(prefix, num_heads)
        generator = networks.get("generator")
        main = next(iter(networks.values()))
        return describe_variables(main), None if generator is None else describe_variables(generator)
    check_exists(path)
    directory = find_generator_directory(path)
    main_network = describe_directory(find_main_directory(path))
    return main_network, None if directory is None else describe_directory(directory)


def describe_directory(directory: Path) -> InitialNetwork:
    """Read the sizes of a Hugging Face directory."""
    return InitialNetwork(
        directory,
        load_config(directory),
        partial(find_pretraining_heads, directory),
        partial(load_pretrained, directory),
        directory,
        read_pretrained_length(directory),
    )


def describe_variables(network: TensorFlowNetwork) -> InitialNetwork:
    """Describe a network of a TensorFlow checkpoint."""
    prefix = network.bundle.prefix
    return InitialNetwork(
        prefix,
        network.config,
        lambda kinds: {network.head} & set(kinds),
        network.load,
        prefix.with_name("vocab.txt"),
    )
