"""The text and the tasks of a study: prepared once for all runs, and seen to be whole before the first one begins."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from electra.data.loader import LengthWarmup
from electra.data.manifest import MANIFEST, Manifest, is_prepared
from electra.data.pipeline import prepare_with_progress, save_trained_tokenizer
from electra.errors import DataError, TextError, UsageError
from electra.finetuning.benchmark.grid import COLUMNS
from electra.finetuning.classification.glue import load_glue_task
from electra.finetuning.classification.task import TextClassification
from electra.studies.scales import Scale
from electra.text.corpus import Corpus
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer, load_tokenizer

log = logging.getLogger(__name__)


def check_text(data: str, out: Path) -> Corpus | None:
    """Text that can be read; None where it is not needed any more, because a study has prepared all of it.

    Raises:
        TextError: it cannot be read.
    """
    corpus = Corpus((data,))
    try:
        corpus.check()
    except TextError as error:
        if not (out / "data" / MANIFEST).exists():
            raise
        log.warning(f"{error}; all of the text is already prepared in {out / 'data'}, which is used")
        return None
    return corpus


def fit_scale_to_data(scale: Scale, data: str, out: Path) -> Scale:
    """The scale with the sequence length and the vocabulary of prepared data; for text, as it is.

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
    if warmup.length >= length:  # as short as it is, all of it
        warmup = LengthWarmup()
    return replace(scale, config=replace(config, model=model, seq_len=length, length_warmup=warmup))


def prepare_shared_data(scale: Scale, data: str, out: Path) -> str:
    """The directory of prepared data; text is prepared under `out`, with a vocabulary of its own, or found there."""
    if is_prepared(data):
        return str(Path(data).absolute())
    if (corpus := check_text(data, out)) is None:
        return str((out / "data").absolute())
    config, made = scale.config, out / "tokenizer"
    if not (made / "tokenizer.json").exists():
        save_trained_tokenizer(made, corpus, config.model.vocab_size, config.cased, config.keep_accents)
    prepare_with_progress(corpus, load_tokenizer(made), out / "data", seq_len=config.seq_len, workers=None, seed=0)
    return str((out / "data").absolute())


def check_tasks(names: Sequence[str], glue: str) -> dict[str, TextClassification]:
    """The tasks by name, after seeing that their examples are there.

    Raises:
        UsageError: no such task.
        DataError: a file of a task is missing or broken.
    """
    nothing = Tokenizer(SPECIAL_TOKENS, Normalization())  # reading needs none
    tasks = {}
    for name in names:
        if name not in COLUMNS:
            raise UsageError(f"studies are not scored on {name!r}, but on {', '.join(COLUMNS)}")
        task = tasks[name] = load_glue_task(name, glue, nothing)
        for split in ("train", "dev"):
            try:
                task.read(split)
            except DataError as error:
                raise DataError(f"{error} (give --glue FOLDER, or choose tasks with --tasks)") from None
    return tasks
