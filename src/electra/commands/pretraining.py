"""The commands of pre-training: tokenizer, prepare, pretrain."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from electra.config.checks import check_local
from electra.config.files import flatten, format_value
from electra.config.resolve import check_options, flat_fields, read_config, resolve
from electra.data.manifest import Manifest
from electra.errors import ModelError
from electra.external import check_output_path
from electra.presets import get_preset
from electra.pretraining.config import BUDGETS, PretrainConfig
from electra.pretraining.stages.initial_model import find_initial_model
from electra.pretraining.stages.initial_sizes import convert_to_options
from electra.pretraining.stages.stem import read_stem_options
from electra.pretraining.unused_options import find_unused_options
from electra.storage import PathLike, restrict_permissions
from electra.train.callbacks import Callback

log = logging.getLogger(__name__)


def tokenizer(
    text: Iterable[PathLike] | PathLike,
    *,
    out: PathLike,
    model: Literal["wordpiece", "bpe", "unigram"] = "wordpiece",
    vocab_size: int = 30_522,
    multiple_of: int = 1,
    reserved: int = 0,
    cased: bool = False,
    keep_accents: bool = False,
    byte_fallback: bool = False,
    pretokenized: bool = False,
    documents: Literal["blank-line", "file", "line"] = "blank-line",
    text_field: str = "text",
    encoding_errors: Literal["strict", "replace"] = "strict",
    private: bool = False,
) -> Path:
    """Train a tokenizer, by default a WordPiece, as BERT and ELECTRA have. An existing one in `out` is never replaced.

    Args:
        text: Files, folders, hf://owner/name, or builtin.
        out: Directory for tokenizer.json, tokenizer_config.json and, with a WordPiece, vocab.txt.
        model: WordPiece; byte-level BPE, which has no unknown characters; or Unigram, also for text without spaces.
        vocab_size: Number of tokens, special and reserved ones included.
        multiple_of: The size is rounded up to a multiple of this, except 30,522, the paper's; if the text has too few words,
            the smaller size is. Tokens without a use fill it.
        reserved: Number of tokens without a use, [unused0] and so on, for special tokens of your own.
        cased: Keep capital letters.
        keep_accents: Keep accents in an uncased vocabulary.
        byte_fallback: With unigram, split unknown characters into bytes.
        pretokenized: The words of the text are separated by spaces; do not split them at punctuation or Chinese characters.
        documents: Separator of documents in a .txt file.
        text_field: Field of records, tables and hub data sets that holds the text.
        encoding_errors: Stop at bytes that are not UTF-8 (strict), or replace them.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.

    Returns:
        The directory.

    Raises:
        TextError: the text is missing, cannot be read, or is too little for a vocabulary of this size.
        TokenizerError: `out` contains another tokenizer or other files.
        UsageError: an option has a wrong value.
        RunError: another process writes to `out`.
        StorageError: `out` cannot be written.
    """
    from electra.data.pipeline import open_corpus, save_trained_tokenizer
    from electra.text.subwords.training import TokenizerConfig

    check_local({"--out": out})
    directory = check_output_path(out)
    config = TokenizerConfig(vocab_size, model, cased, keep_accents, byte_fallback, pretokenized, multiple_of, reserved)
    corpus = open_corpus(list_sources(text), documents, text_field, encoding_errors)
    with restrict_permissions(private):
        save_trained_tokenizer(directory, corpus, config)
    return directory


def prepare(
    text: Iterable[PathLike] | PathLike,
    *,
    tokenizer: PathLike,
    out: PathLike,
    seq_len: int = 128,
    workers: int | None = None,
    seed: int = 0,
    deduplicate: Literal["none", "exact", "minhash"] = "none",
    dedup_threshold: float = 0.8,
    documents: Literal["blank-line", "file", "line"] = "blank-line",
    text_field: str = "text",
    encoding_errors: Literal["strict", "replace"] = "strict",
    private: bool = False,
) -> Path:
    """Tokenize text into shards of examples, which training maps into memory. An interrupted call can be repeated.

    Args:
        text: Files, folders, hf://owner/name, or builtin.
        tokenizer: Tokenizer directory, tokenizer.json, vocab.txt, or owner/name or owner/name@revision of the hub.
        out: Directory for the shards.
        seq_len: Maximum tokens of an example.
        workers: Number of processes; by default one per core. The result does not depend on it.
        seed: Seed of segment lengths and of the choice of held-out documents.
        deduplicate: Drop documents that equal an earlier one (exact), or are similar to one (minhash, needs the extra dedup).
        dedup_threshold: Jaccard similarity from which minhash drops a document.
        documents: Separator of documents in a .txt file.
        text_field: Field of records, tables and hub data sets that holds the text.
        encoding_errors: Stop at bytes that are not UTF-8 (strict), or replace them.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.

    Returns:
        The directory.

    Raises:
        TextError: the text is missing or cannot be read.
        TokenizerError: the tokenizer is missing or malformed.
        DataError: `out` has other data.
        UsageError: an option has a wrong value.
        RunError: another process writes to `out`.
        StorageError: `out` cannot be written.
    """
    from electra.data.deduplication import check_deduplication
    from electra.data.pipeline import log_corpus, open_corpus, prepare_with_progress
    from electra.text.tokenizer import load_named_tokenizer

    check_local({"--tokenizer": tokenizer, "--out": out})
    directory = check_output_path(out)
    check_deduplication(deduplicate, dedup_threshold)
    corpus = open_corpus(list_sources(text), documents, text_field, encoding_errors)
    loaded_tokenizer = load_named_tokenizer(os.fspath(tokenizer))
    log_corpus(corpus)
    with restrict_permissions(private):
        prepare_with_progress(
            corpus,
            loaded_tokenizer,
            directory,
            seq_len=seq_len,
            workers=workers,
            seed=seed,
            deduplicate=deduplicate,
            dedup_threshold=dedup_threshold,
        )
    log.info(f"prepared data in {out} (electra pretrain --data {out} --out RUN)", extra={"code": "prepared"})
    return directory


def pretrain(
    text: Iterable[PathLike] | PathLike = (),
    *,
    out: PathLike,
    preset: str | None = None,
    config: PathLike | None = None,
    private: bool = False,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> dict[str, Any]:
    """Pre-train an encoder, from text to a scored Hugging Face checkpoint. Called again with the same `out`, it resumes.

    Values come from the preset, then from the config file, then from the options; later ones override earlier ones.

    Args:
        text: Files, folders, hf://owner/name, or builtin.
        out: Run directory.
        preset: Sizes and hyperparameters to start from; by default small.
        config: Config file.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.
        callbacks: From Python, objects of subclasses of `electra.Callback`, called in the training.
        options: Fields of `electra.pretraining.config.PretrainConfig`; nested ones as dictionaries or by dotted names, as
            in `optimizer={"learning_rate": 1e-4}` or `**{"optimizer.learning_rate": 1e-4}`.

    Returns:
        The summary of the run: steps, seconds, FLOPs, held-out metrics, findings; and `samples`, held-out sentences with the
        discriminator's probabilities, if this call finished the run. Empty in all processes but the main one.

    Raises:
        UsageError: an option is missing or unknown, has a wrong value, or contradicts another one.
        DeviceError: this machine has no GPU, too little memory or no compiler for the options.
        TextError: text is missing or cannot be read.
        TokenizerError: `tokenizer` is missing, malformed, or differs from that of `data` or `init`.
        DataError: `data` is not prepared data, is damaged, or is too small for a batch.
        ModelError: `init` is not a model, or does not match the configuration.
        RunError: `out` belongs to another process or configuration, or its files are damaged.
        StorageError: `out` cannot be written, or the disk is full.
        DivergedError: the gradients are not finite.
        SystemExit: a signal stopped the run after a checkpoint was saved.
    """
    from electra.pretraining.run import pretrain as run

    directory = check_output_path(out)
    overrides = (
        flatten(options) | ({"text": list_sources(text)} if text else {}) | ({"preset": preset} if preset else {})
    )
    resolved = resolve_pretraining(overrides, config, directory)
    for line in find_unused_options(overrides, resolved):
        log.warning(line, extra={"code": "unused-option"})
    log_preset(resolved)
    with restrict_permissions(private):
        return run(resolved, directory, callbacks)


def resolve_pretraining(overrides: Mapping[str, Any], config: PathLike | None, out: Path) -> PretrainConfig:
    """Resolve the configuration of a pre-training run: preset, config file, overrides.

    The sequence length of prepared data and the sizes of the model in `init` override those of the preset. Without `config`,
    text and data, the configuration saved in `out` is the config file, so that `out` alone resumes a run. Without it, options
    of the run in `stem` are read before the config file.

    Args:
        overrides: Given options by name.
        config: Config file.
        out: Run directory.

    Raises:
        UsageError: no such preset or option, or a wrong value.
        DataError: `data` is not prepared data.
        ModelError: `init` is not a model.
        RunError: `stem` is not a run.
    """
    named = {"--init-generator": overrides.get("init_generator")}
    check_local(
        {"--config": config, **named, **{f"--{name}": overrides.get(name) for name in ("data", "init", "stem")}}
    )
    path, saved = Path(config) if config else None, out / "config.yaml"
    if path is None and saved.exists() and not overrides.get("text") and not overrides.get("data"):
        path = saved
    file = read_config(path, PretrainConfig, "pretrain") if path else {}
    given = check_options(PretrainConfig, overrides, "pretrain")
    if (stem := given.get("stem") or file.get("stem")) and path != saved:
        file = read_stem_options(Path(stem)) | file
    preset = get_preset(given.get("preset") or file.get("preset") or "small")
    derived = {} if path == saved else read_derived_options(file | given)
    layer = derived | file | {"preset": preset.preset}
    return resolve(preset, layer, given, alternatives=BUDGETS, command="pretrain")


def read_derived_options(named: Mapping[str, Any]) -> dict[str, Any]:
    """Read the options that follow from the initial model, the prepared data and the sequence length among the named ones.

    A sequence length that is named, or that of the data, may be larger than the positions of the initial model.
    """
    data = named.get("data")
    derived: dict[str, Any] = {"seq_len": Manifest.load(Path(data)).seq_len} if data else {}
    if (init := named.get("init")) is None:
        return derived
    try:
        model = find_initial_model(init, named.get("init_generator"), named.get("model.num_heads"))
    except ModelError as error:
        if error.code == "missing":  # raised again when the run starts, after conflicts between the options
            return derived
        raise
    sizes = convert_to_options(model.main.config, None if model.generator is None else model.generator.config)
    if "model.max_positions" in sizes:
        lengths = (sizes["model.max_positions"], derived.get("seq_len", 0), named.get("seq_len") or 0)
        sizes["model.max_positions"] = max(lengths)
    return {**sizes, **derived}


def log_preset(config: PretrainConfig) -> None:
    """Log the preset and the options that differ from it, so that the logs of two runs can be told apart."""
    preset, values = flat_fields(get_preset(config.preset)), flat_fields(config)
    inputs = ("preset", "text", "data", "tokenizer")
    changed = [name for name, value in values.items() if value != preset[name] and name not in inputs]
    shown = ", ".join(f"{name} {format_value(values[name])}" for name in changed)
    log.info(f"preset {config.preset} ({shown or 'unchanged'})", extra={"code": "preset"})


def list_sources(text: Iterable[PathLike] | PathLike) -> tuple[str, ...]:
    """Return the sources of text as strings; a single string or path is one source."""
    return tuple(os.fspath(source) for source in ([text] if isinstance(text, str | os.PathLike) else text))
