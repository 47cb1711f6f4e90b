"""Inputs of a pre-training run: prepared data and tokenizer, made from text if they do not exist yet."""

import logging
from pathlib import Path

from electra.data.manifest import MANIFEST
from electra.data.pipeline import (
    log_corpus,
    log_coverage,
    open_corpus,
    prepare_with_progress,
    train_tokenizer_with_progress,
)
from electra.data.shards import PreparedData
from electra.data.sources import check_sources
from electra.errors import DataError, TextError, UsageError
from electra.external import format_count
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.stages.warm_start import find_run_model
from electra.text.corpus import Corpus
from electra.text.tokenizer import Tokenizer, load_named_tokenizer, load_tokenizer

log = logging.getLogger(__name__)


FEW_TOKENS = 20_000
"""With fewer held-out tokens, sampling error changes the third digit of an accuracy, and the recall of rare replacements
much more."""


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
        given = f"; got the text {' '.join(config.text)} and --data {config.data}" if config.text else ""
        raise UsageError(
            "text-and-data" if config.text else "no-text",
            f"give either text to train on (files, folders, hf://owner/name or builtin) or --data DIR{given}",
        )
    if config.text:
        check_sources(config.weights, config.mix_temperature, config.text)  # before hours of preparation
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
        log.warning(f"{error}; using the text prepared in {directory.data}", extra={"code": "source-unreadable"})
        return require_enough_data(data, config), tokenizer
    log_corpus(corpus)
    tokenizer = load_or_train_tokenizer(config, corpus, directory)
    data = prepare_with_progress(
        corpus,
        tokenizer,
        directory.data,
        seq_len=config.seq_len,
        workers=config.workers,
        seed=config.seed,
        deduplicate=config.deduplicate,
        dedup_threshold=config.dedup_threshold,
    )
    return require_enough_data(data, config), tokenizer


def require_enough_data(data: PreparedData, config: PretrainConfig) -> PreparedData:
    """Check the size of the data and return it.

    Raises:
        UsageError: fewer training examples than one batch.
        DataError: no held-out example, so the run could not be evaluated.
    """
    if len(data.train) < config.training.batch_size:
        raise UsageError(
            "too-little-text",
            f"{', '.join(config.text) or config.data}: too little text: "
            f"{format_count(len(data.train), 'training example')} of up to {config.seq_len} tokens, "
            f"less than one batch of {config.training.batch_size:,}; "
            "add text, or lower --training.batch-size or --seq-len",
        )
    if not len(data.heldout):
        raise DataError("no-heldout-text", f"{data.path}: too little text to hold any out for evaluation; add text")
    if data.heldout.tokens < FEW_TOKENS:
        log.warning(
            f"only {data.heldout.tokens:,} held-out tokens: the held-out metrics will be imprecise; add text",
            extra={"code": "few-heldout-tokens"},
        )
    return data


def open_data(config: PretrainConfig, path: Path) -> tuple[PreparedData, Tokenizer]:
    """Open data written by `electra prepare`, with its tokenizer (or `config.tokenizer`, which must be equal)."""
    data = PreparedData.open(path)
    tokenizer = load_named_tokenizer(config.tokenizer) if config.tokenizer else load_tokenizer(data.tokenizer_path)
    data.check_tokenizer(tokenizer.fingerprint, tokenizer.vocab_size)
    if data.manifest.seq_len > config.model.max_positions:
        raise UsageError(
            "longer-than-model",
            f"{path}: prepared with sequences of {data.manifest.seq_len} tokens, the model has "
            f"{config.model.max_positions} positions; raise --model.max-positions or prepare again with a smaller --seq-len",
        )
    if data.manifest.seq_len != config.seq_len:
        raise UsageError(
            "other-settings",
            f"--seq-len is {config.seq_len}, but {path} was prepared with sequences of {data.manifest.seq_len} tokens; "
            "leave --seq-len out, or prepare the text again",
        )
    log.info(
        f"data of {path}: {format_count(data.manifest.documents, 'document')}, {len(data.train):,} examples "
        f"(prepared with sequence length {data.manifest.seq_len})",
        extra={"code": "data"},
    )
    log_coverage(data, str(path))
    return data, tokenizer


def load_or_train_tokenizer(config: PretrainConfig, corpus: Corpus, directory: RunDirectory) -> Tokenizer:
    """Load the tokenizer of --tokenizer, else of --init, else of this run; if there is none, train one."""
    given: str | Path | None = config.tokenizer
    if config.tokenizer is not None:
        tokenizer = load_named_tokenizer(config.tokenizer)
    elif (initial := find_run_model(config)) is not None:
        given, tokenizer = initial.main.tokenizer, load_tokenizer(initial.main.tokenizer)
    if given is not None:
        log.info(
            f"tokenizer {given}, {tokenizer.vocab_size:,} tokens" + ("" if config.tokenizer else " (from --init)"),
            extra={"code": "tokenizer"},
        )
        tokenizer.save(directory.tokenizer)
        return tokenizer
    if (directory.tokenizer / "tokenizer.json").exists():
        log.info("reusing the tokenizer trained for this run", extra={"code": "reused-tokenizer"})
        return load_tokenizer(directory.tokenizer)
    tokenizer = train_tokenizer_with_progress(corpus, config.tokenizer_config)
    tokenizer.save(directory.tokenizer)
    return tokenizer
