"""Text and tasks of a study: prepared once for all runs and checked before the first one starts."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from electra.data.loader import LengthWarmup
from electra.data.manifest import MANIFEST, Manifest, is_prepared
from electra.data.pipeline import prepare_with_progress, save_trained_tokenizer
from electra.errors import DataError, TextError, UsageError
from electra.finetuning.benchmark.score_table import COLUMNS
from electra.finetuning.classification.glue import load_glue_task
from electra.finetuning.classification.task import TextClassification
from electra.studies.scales import Scale
from electra.text.corpus import Corpus
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer, load_tokenizer

log = logging.getLogger(__name__)


def check_text(data: str, out: Path) -> Corpus | None:
    """Return readable text; None if it cannot be read but is already prepared in `out`.

    Raises:
        TextError: the text cannot be read and is not prepared.
    """
    corpus = Corpus((data,))
    try:
        corpus.check()
    except TextError as error:
        if not (out / "data" / MANIFEST).exists():
            raise
        log.warning(f"{error}; using the text prepared in {out / 'data'}", extra={"code": "source-unreadable"})
        return None
    return corpus


def fit_scale_to_data(scale: Scale, data: str, out: Path) -> Scale:
    """Return the scale with the sequence length and vocabulary of prepared data; unchanged for text.

    Raises:
        DataError: the data is not finished or damaged.
        TextError: the text cannot be read.
    """
    if not is_prepared(data):
        check_text(data, out)
        return scale
    manifest = Manifest.load(Path(data))
    config = scale.config
    model = replace(config.model, vocab_size=manifest.vocab_size)
    length, warmup = manifest.seq_len, config.length_warmup
    if warmup.length >= length:  # all sequences are as short as those of the warm-up
        warmup = LengthWarmup()
    return replace(scale, config=replace(config, model=model, seq_len=length, length_warmup=warmup))


def prepare_shared_data(scale: Scale, data: str, out: Path) -> str:
    """Return the directory of prepared data; prepare text under `out`, with its own vocabulary, if not done yet."""
    if is_prepared(data):
        return str(Path(data).absolute())
    if (corpus := check_text(data, out)) is None:
        return str((out / "data").absolute())
    config, tokenizer = scale.config, out / "tokenizer"
    if not (tokenizer / "tokenizer.json").exists():
        save_trained_tokenizer(tokenizer, corpus, config.tokenizer_config)
    prepare_with_progress(corpus, load_tokenizer(tokenizer), out / "data", seq_len=config.seq_len, workers=None, seed=0)
    return str((out / "data").absolute())


def check_tasks(names: Sequence[str], glue: str) -> dict[str, TextClassification]:
    """Load the tasks by name and check that their examples can be read.

    Raises:
        UsageError: no such task.
        DataError: a file of a task is missing or broken.
    """
    empty = Tokenizer(SPECIAL_TOKENS, Normalization())  # reading needs no vocabulary
    tasks = {}
    for name in names:
        if name not in COLUMNS:
            raise UsageError("unknown-task", f"--tasks: no task {name!r}; it must be one of {', '.join(COLUMNS)}")
        task = tasks[name] = load_glue_task(name, glue, empty)
        for split in ("train", "dev"):
            try:
                task.read(split)
            except DataError as error:
                raise DataError(
                    error.code, f"{error} (give --glue FOLDER, or select other tasks with --tasks)"
                ) from None
    return tasks
