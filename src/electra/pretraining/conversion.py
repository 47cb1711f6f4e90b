"""Conversion of TensorFlow checkpoints of the original code to Hugging Face directories."""

import logging
import shutil
from pathlib import Path

from electra.errors import ModelError, UsageError
from electra.external import format_count
from electra.model.architecture import ARCHITECTURES
from electra.model.checkpoints import save_pretrained
from electra.model.model_card import ModelCard, write_model_card
from electra.model.tensorflow.bundle import find_tensorflow_checkpoint
from electra.model.tensorflow.networks import TensorFlowNetwork, find_networks
from electra.pretraining.reporting.model_card import DESCRIPTIONS
from electra.storage import check_writable, convert_os_errors, holds_files
from electra.text.tokenizer import Tokenizer, load_named_tokenizer, load_tokenizer

log = logging.getLogger(__name__)


def convert_checkpoint(checkpoint: Path, out: Path, tokenizer: str | None, num_heads: int | None) -> dict[str, Path]:
    """Write the networks of a checkpoint as directories in `out`; return name -> directory.

    Raises:
        ModelError: not a checkpoint of an ELECTRA, it is damaged, or it has fewer embeddings than the tokenizer has tokens.
        TokenizerError: the tokenizer is missing or malformed.
        UsageError: `out` is not empty, there is no tokenizer, the number of heads is needed, or an extra is not installed.
        StorageError: `out` cannot be written.
    """
    prefix = find_tensorflow_checkpoint(checkpoint)
    if prefix is None:
        raise ModelError(
            "not-checkpoint",
            f"{checkpoint}: not a TensorFlow checkpoint; name one without its ending, as in model.ckpt-1000000 for "
            "model.ckpt-1000000.index, or its folder",
        )
    if holds_files(out):
        raise UsageError("not-empty", f"--out {out}: not empty, and nothing is overwritten; choose another directory")
    check_writable(out)
    networks = find_networks(prefix, num_heads)
    words = load_vocabulary(prefix, tokenizer)
    check_vocabulary(prefix, words, networks)
    states = {name: network.load_state() for name, network in networks.items()}  # all are read before one is written
    for name, network in networks.items():
        config, temporary = network.config, out / f".writing-{name}"
        with convert_os_errors(out / name):
            shutil.rmtree(temporary, ignore_errors=True)
            save_pretrained(temporary, states[name], config, network.head, words.pad_id)
            words.save(temporary, config.max_positions)
            write_model_card(temporary, build_model_card(name, network))
            temporary.rename(out / name)
        heads = format_count(config.num_heads, "head") + " (of 64 values; others by --heads)" * (num_heads is None)
        log.info(
            f"{out / name}: {config.num_layers} layers of {config.hidden_size}, {heads}, embeddings of "
            f"{config.embedding_size}, {config.vocab_size:,} tokens, {config.max_positions} positions",
            extra={"code": "converted"},
        )
    return {name: out / name for name in networks}


def load_vocabulary(prefix: Path, tokenizer: str | None) -> Tokenizer:
    """Load the given tokenizer, or the vocab.txt beside the checkpoint.

    Raises:
        UsageError: there is neither.
    """
    if tokenizer is not None:
        return load_named_tokenizer(tokenizer)
    beside = prefix.with_name("vocab.txt")
    if not beside.exists():
        raise UsageError(
            "no-tokenizer",
            f"{prefix}: no vocab.txt beside it; name the vocabulary of its training: --tokenizer vocab.txt",
        )
    return load_tokenizer(beside)


def check_vocabulary(prefix: Path, tokenizer: Tokenizer, networks: dict[str, TensorFlowNetwork]) -> None:
    """Check that every token has an embedding. Embeddings without a token are padding, which the log says."""
    size = min(network.config.vocab_size for network in networks.values())
    if tokenizer.vocab_size > size:
        raise ModelError(
            "vocabulary-over-embeddings",
            f"{prefix}: the tokenizer has {tokenizer.vocab_size:,} tokens, but the model has embeddings of {size:,}; name the "
            "tokenizer of its training with --tokenizer",
        )
    if tokenizer.vocab_size < size:
        log.warning(
            f"{prefix}: the tokenizer has {tokenizer.vocab_size:,} tokens, the model embeddings of {size:,}; unless the "
            "others are padding, it is the tokenizer of another model",
            extra={"code": "padded-vocabulary"},
        )


def build_model_card(name: str, network: TensorFlowNetwork) -> ModelCard:
    """Build the model card of a converted network."""
    config = network.config
    return ModelCard(
        title=f"ELECTRA {name.replace('_', ' ')}",
        description=DESCRIPTIONS[name],
        architecture=ARCHITECTURES[config.architecture].classes[network.head].name,
        facts={
            "converted from": f"the TensorFlow checkpoint {network.bundle.prefix.name}",
            "size": f"{config.num_layers} layers of {config.hidden_size}",
        },
        metrics={},
        pipeline_tag="fill-mask" if network.head == "masked-lm" else None,
    )
