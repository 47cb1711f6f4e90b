"""From text to an encoder: tokenizer, prepare, pretrain, evaluate."""

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from electra.config.hints import check_local
from electra.config.parser import Parser, flat, load
from electra.data.manifest import Manifest
from electra.errors import UsageError
from electra.external import output_path
from electra.presets import PRESETS
from electra.pretraining.config import PretrainConfig, build, options
from electra.pretraining.unused_options import without_effect
from electra.pretraining.warm_start import read_initial_sizes
from electra.storage import PathLike, owner_only
from electra.train.schedule import Budget

log = logging.getLogger(__name__)


def tokenizer(
    text: Iterable[PathLike] | PathLike,
    *,
    out: PathLike,
    vocab_size: int = 30_522,
    cased: bool = False,
    keep_accents: bool = False,
    documents: Literal["blank-line", "file", "line"] = "blank-line",
    text_field: str = "text",
    encoding_errors: Literal["strict", "replace"] = "strict",
    private: bool = False,
) -> Path:
    """Train a WordPiece vocabulary, the kind that BERT and ELECTRA use. What stands in `out` already is never replaced.

    Args:
        text: Files, folders, hf://owner/name, or builtin.
        out: Directory for tokenizer.json, tokenizer_config.json and vocab.txt.
        vocab_size: Entries of the vocabulary, special tokens included.
        cased: Keep capital letters.
        keep_accents: Keep accents although letters become small.
        documents: What ends a document in a .txt file.
        text_field: Field of .jsonl, .parquet and hub data sets that holds the text.
        encoding_errors: Stop at bytes that are not UTF-8, or replace them.
        private: Files are for their owner alone: directories have mode 0700, files 0600. The umask of the process is changed
            meanwhile.

    Returns:
        The directory.
    """
    from electra.data.pipeline import open_corpus, save_trained_tokenizer

    check_local({"--out": out})
    directory = output_path(out)
    corpus = open_corpus(sources(text), documents, text_field, encoding_errors)
    with owner_only(private):
        save_trained_tokenizer(directory, corpus, vocab_size, cased, keep_accents)
    return directory


def prepare(
    text: Iterable[PathLike] | PathLike,
    *,
    tokenizer: PathLike,
    out: PathLike,
    seq_len: int = 128,
    workers: int | None = None,
    seed: int = 0,
    documents: Literal["blank-line", "file", "line"] = "blank-line",
    text_field: str = "text",
    encoding_errors: Literal["strict", "replace"] = "strict",
    private: bool = False,
) -> Path:
    """Turn text into shards of examples that training maps into memory. Interrupted, the same call goes on.

    Args:
        text: Files, folders, hf://owner/name, or builtin.
        tokenizer: Tokenizer directory or vocab.txt.
        out: Directory for the shards.
        seq_len: Tokens of the longest example.
        workers: Processes; by default one a core. The result does not depend on it.
        seed: Decides segment lengths and which documents are held out.
        documents: What ends a document in a .txt file.
        text_field: Field of .jsonl, .parquet and hub data sets that holds the text.
        encoding_errors: Stop at bytes that are not UTF-8, or replace them.
        private: Files are for their owner alone: directories have mode 0700, files 0600. The umask of the process is changed
            meanwhile.

    Returns:
        The directory.
    """
    from electra.data.pipeline import log_corpus, open_corpus, prepare_with_progress
    from electra.text.tokenizer import load_tokenizer

    check_local({"--tokenizer": tokenizer, "--out": out})
    directory = output_path(out)
    corpus = open_corpus(sources(text), documents, text_field, encoding_errors)
    known = load_tokenizer(Path(tokenizer))
    log_corpus(corpus)
    with owner_only(private):
        prepare_with_progress(corpus, known, directory, seq_len=seq_len, workers=workers, seed=seed)
    log.info(f"prepared data in {out} (electra pretrain --data {out} --out RUN)")
    return directory


def pretrain(
    text: Iterable[PathLike] | PathLike = (),
    *,
    out: PathLike,
    preset: str | None = None,
    config: PathLike | None = None,
    private: bool = False,
    **others: Any,
) -> dict[str, Any]:
    """Pre-train an encoder, from text to a scored Hugging Face checkpoint. Run again with the same `out`, it resumes.

    Args:
        text: Files, folders, hf://owner/name, or builtin.
        out: Run directory.
        preset: Sizes and hyperparameters to start from: tiny, small, small++, base, base++, large, bert-small, bert-base or
            bert-large (default: small).
        config: Config file; it overrides the preset, and options override it.
        private: Files are for their owner alone: directories have mode 0700, files 0600. The umask of the process is changed
            meanwhile.
        others: Fields of `electra.pretraining.config.PretrainConfig`; nested ones as dictionaries or by dotted names, as
            in `optimizer={"learning_rate": 1e-4}` or `**{"optimizer.learning_rate": 1e-4}`.

    Returns:
        The run's summary: steps, seconds, FLOPs, held-out metrics, findings.
    """
    from electra.pretraining.run import pretrain as run

    given = others | ({"text": list(sources(text))} if text else {}) | ({"preset": preset} if preset else {})
    directory = output_path(out)
    parser = pretrain_parser(given, config, directory)
    built = build(parser, parser.take(settle_budget(given)))
    warn_of_idle(flat(given), built)
    tell_settings(built)
    with owner_only(private):
        return run(built, directory)


def warn_of_idle(names: Iterable[str], config: PretrainConfig) -> None:
    """Say which of the options that were given change nothing."""
    for line in without_effect(names, config):
        log.warning(line)


def tell_settings(config: PretrainConfig) -> None:
    """Say in what a run differs from its preset, so that the logs of two runs can be told apart."""
    theirs, ours = (flat(asdict(each)) for each in (PRESETS[config.preset](), config))
    where_from = ("preset", "text", "data", "tokenizer")
    changed = [f"{name} {value}" for name, value in ours.items() if value != theirs[name] and name not in where_from]
    log.info(f"preset {config.preset} ({', '.join(changed) or 'as it is'})")


def sources(text: Iterable[PathLike] | PathLike) -> tuple[str, ...]:
    """One source or several; a string is one, not its letters."""
    return tuple(os.fspath(each) for each in ([text] if isinstance(text, str | os.PathLike) else text))


def evaluate(
    run: PathLike,
    *,
    data: PathLike | None = None,
    as_mlm: bool = False,
    bert: PathLike | None = None,
    examples: int | None = None,
    candidates: int | None = None,
) -> dict[str, float]:
    """The held-out metrics of a run, from its newest checkpoint.

    Args:
        run: Run directory, finished or not (with as_mlm, a finished one).
        data: Directory that `electra prepare` wrote, to score its held-out documents; by default the run's own.
        as_mlm: Score an ELECTRA as a masked language model (Appendix G) instead, one token of each example masked: by its
            generator and discriminator together, by the generator alone, and how often the right token is a candidate.
        bert: With as_mlm, a masked language model to score beside it: a run of objective mlm.
        examples: With as_mlm, the number of held-out examples; by default 1,000.
        candidates: With as_mlm, how many of the generator's best tokens the discriminator judges; by default 100.

    Returns:
        The metrics by name.
    """
    from electra.pretraining.evaluation.mlm_accuracy import evaluate_as_mlm
    from electra.pretraining.export import evaluate_run

    check_local({"RUN": run, "--data": data, "--bert": bert})
    data_directory = Path(data) if data else None
    if as_mlm:
        numbers = (1_000 if examples is None else examples, 100 if candidates is None else candidates)
        return evaluate_as_mlm(Path(run), data_directory, Path(bert) if bert else None, *numbers)
    for name, value in (("bert", bert), ("examples", examples), ("candidates", candidates)):
        if value is not None:
            raise UsageError(f"--{name} has a meaning with --as-mlm only")
    return evaluate_run(Path(run), data_directory)


def pretrain_parser(given: Mapping[str, Any], file: PathLike | None, out: Path) -> Parser:
    """The options of `pretrain`, with the values of the preset, then of the config file, as defaults.

    Where neither a file nor anything to train on is given and `out` is a run already, its own configuration is the file.
    The sequence length of prepared data, and the sizes of a model that is continued, come before the preset's.

    Raises:
        UsageError: there is no such preset, or the file has a wrong name or value.
        DataError: no prepared data where it is said to be.
        ModelError: the directory of the model to continue holds none.
    """
    check_local({"--config": file, "--data": given.get("data"), "--init": given.get("init")})
    path = Path(file) if file else None
    own = out / "config.yaml"
    if path is None and own.exists() and not given.get("text") and not given.get("data"):
        path = own
    from_file = settle_budget(load(path)) if path else {}
    preset = given.get("preset") or from_file.get("preset") or "small"
    if preset not in PRESETS:
        raise UsageError(f"there is no preset {preset!r}; there are {', '.join(PRESETS)}")
    usage = "%(prog)s [TEXT ...] --out RUN [--preset PRESET] [options]"
    parser = options(PRESETS[preset](), prog="electra pretrain", description=PRETRAIN_HELP, usage=usage)
    parser.describe("preset", f"One of {', '.join(PRESETS)}. The defaults shown here are those of {preset}.")
    init = given.get("init") or from_file.get("init")
    if init and Path(init).exists():  # if it does not, other options may be wrong too; `check_init` comes after them
        parser.set_defaults(read_initial_sizes(Path(init)))
    data = given.get("data") or from_file.get("data")
    if data and "seq_len" not in from_file:
        parser.set_defaults({"seq_len": Manifest.load(Path(data)).seq_len})
    if path is not None:
        try:
            values = parser.take_plain(from_file | {"preset": preset})
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        parser.set_defaults(vars(values.as_flat()))
    return parser


PRETRAIN_HELP = (
    "Pre-train an encoder, from text to a scored Hugging Face checkpoint. Run again with the same --out, it resumes. "
    "Precedence: preset, then --config file, then options."
)


def settle_budget(given: Mapping[str, Any]) -> dict[str, Any]:
    """Steps, hours or FLOPs: whoever names one of them means not those of the preset or file."""
    named = [name for name in BUDGETS if given.get(name) is not None]
    return dict.fromkeys(BUDGETS if named else ()) | dict(given)


BUDGETS = [field.name for field in fields(Budget)]
