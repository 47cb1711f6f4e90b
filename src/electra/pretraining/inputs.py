"""Inputs of a pre-training run: its prepared data and tokenizer, made from text where they do not exist yet."""

import logging
from pathlib import Path

from electra.console import format_count
from electra.data.manifest import MANIFEST
from electra.data.pipeline import (
    log_corpus,
    log_coverage,
    open_corpus,
    prepare_with_progress,
    train_tokenizer_with_progress,
)
from electra.data.shards import PreparedData
from electra.errors import DataError, TextError, UsageError
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.warm_start import discriminator_directory
from electra.text.corpus import Corpus
from electra.text.tokenizer import Tokenizer, load_tokenizer

log = logging.getLogger(__name__)


FEW_TOKENS = 20_000
"""Held-out tokens below which sampling error moves the third digit of an accuracy, and much more the recall of rare
replacements."""


def load_inputs(config: PretrainConfig, directory: RunDirectory) -> tuple[PreparedData, Tokenizer]:
    """Load prepared data and its tokenizer, or make them from text; copy the tokenizer into the run directory.

    Raises:
        UsageError: neither text nor data is given, or both; the data's sequence length does not fit the model or --seq-len.
        TextError: the text cannot be read.
        TokenizerError: the tokenizer is missing, broken or not that of the data.
        DataError: the data is missing, damaged, or too little to hold any out.
        StorageError: the run directory cannot be written.
    """
    if bool(config.text) == (config.data is not None):
        both = f"; given are the text {' '.join(config.text)} and --data {config.data}" if config.text else ""
        raise UsageError(
            f"say what to train on: text (files, folders, hf://owner/name or builtin), or --data DIR, not both{both}"
        )
    if config.data is not None:
        data, tokenizer = open_data(config, Path(config.data))
        tokenizer.save(directory.tokenizer)
        return require_enough_data(data, config), tokenizer
    try:
        corpus = open_corpus(config.text, config.documents, config.text_field, config.encoding_errors)
    except TextError as error:
        if not (directory.data / MANIFEST).exists():
            raise
        data = PreparedData.open(directory.data)
        tokenizer = load_tokenizer(directory.tokenizer)
        data.check_tokenizer(tokenizer.fingerprint, tokenizer.vocab_size)
        log.warning(f"{error}; all of the text is already prepared in {directory.data}, which is used")
        return require_enough_data(data, config), tokenizer
    log_corpus(corpus)
    tokenizer = load_or_train_tokenizer(config, corpus, directory)
    data = prepare_with_progress(
        corpus, tokenizer, directory.data, seq_len=config.seq_len, workers=config.workers, seed=config.seed
    )
    return require_enough_data(data, config), tokenizer


def require_enough_data(data: PreparedData, config: PretrainConfig) -> PreparedData:
    """Return the data after checking its size.

    Raises:
        UsageError: fewer training examples than one batch.
        DataError: no held-out example, so that the run could not be evaluated.
    """
    if len(data.train) < config.training.batch_size:
        raise UsageError(
            f"{', '.join(config.text) or config.data}: too little text: "
            f"{format_count(len(data.train), 'training example')} of up to {config.seq_len} tokens, "
            f"less than one batch of {config.training.batch_size:,}; "
            "add text, or lower --training.batch-size or --seq-len"
        )
    if not len(data.heldout):
        raise DataError(f"{data.path}: too little text to hold any out for evaluation; add text")
    if data.heldout.tokens < FEW_TOKENS:
        log.warning(
            f"only {data.heldout.tokens:,} tokens are held out: the held-out figures will be rough; more text helps"
        )
    return data


def open_data(config: PretrainConfig, path: Path) -> tuple[PreparedData, Tokenizer]:
    """Open data that `electra prepare` wrote, with its tokenizer (or `config.tokenizer`, which has to be the same)."""
    data = PreparedData.open(path)
    tokenizer = load_tokenizer(config.tokenizer or data.tokenizer_path)
    data.check_tokenizer(tokenizer.fingerprint, tokenizer.vocab_size)
    if data.manifest.seq_len > config.model.max_positions:
        raise UsageError(
            f"{path}: prepared with sequences of {data.manifest.seq_len}, the model has {config.model.max_positions} "
            "positions; raise --model.max-positions or prepare again with a smaller --seq-len"
        )
    if data.manifest.seq_len != config.seq_len:
        raise UsageError(
            f"--seq-len is {config.seq_len}, but {path} was prepared with sequences of {data.manifest.seq_len}; "
            "leave --seq-len out, or prepare the text again"
        )
    log.info(
        f"data of {path}: {format_count(data.manifest.documents, 'document')}, {len(data.train):,} examples "
        f"(sequence length {data.manifest.seq_len}, that of the prepared data)"
    )
    log_coverage(data, str(path))
    return data, tokenizer


def load_or_train_tokenizer(config: PretrainConfig, corpus: Corpus, directory: RunDirectory) -> Tokenizer:
    """Load the tokenizer of --tokenizer, of --init or of this run, in this order; otherwise train one."""
    given = config.tokenizer or (str(discriminator_directory(Path(config.init))) if config.init else None)
    if given is not None:
        tokenizer = load_tokenizer(given)
        log.info(
            f"tokenizer {given}, {tokenizer.vocab_size:,} tokens" + ("" if config.tokenizer else " (that of --init)")
        )
        tokenizer.save(directory.tokenizer)
        return tokenizer
    if (directory.tokenizer / "tokenizer.json").exists():
        log.info("reusing the tokenizer trained for this run")
        return load_tokenizer(directory.tokenizer)
    tokenizer = train_tokenizer_with_progress(corpus, config.model.vocab_size, config.cased, config.keep_accents)
    tokenizer.save(directory.tokenizer)
    return tokenizer
