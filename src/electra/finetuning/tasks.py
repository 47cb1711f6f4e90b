"""From a configuration to its task."""

from dataclasses import replace
from pathlib import Path

from electra.errors import UsageError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.glue import GLUE, glue_task
from electra.finetuning.sentences import SentenceTask
from electra.finetuning.table import check_columns, table_task
from electra.finetuning.task import Task
from electra.text.tokenizer import Tokenizer

EPOCHS = {name: task.epochs for name, task in GLUE.items()} | {"squad1": 2.0, "squad2": 2.0, "mrqa": 2.0}
"""Table 7; every other task has 3."""

MAX_LENGTHS = {"squad1": 512, "squad2": 512, "mrqa": 512, "chunk": 256, "ner": 256, "pos": 256, "tagging": 256}
"""Tokens of an example, as in the original code; every other task has 128."""


def build_task(config: FinetuneConfig, tokenizer: Tokenizer, max_positions: int) -> Task:
    """The task of a configuration, over its data.

    Raises:
        UsageError: an option that the task needs is missing.
        DataError: the data is missing or broken.
    """
    max_length = min(config.max_length or MAX_LENGTHS.get(config.task, 128), max_positions)
    if config.task in GLUE or config.task == "ax":
        return glue_over(config, tokenizer, max_length)
    if config.task == "table":
        return table_over(config, tokenizer, max_length)
    raise UsageError(f"--task {config.task} is not there yet")


def glue_over(config: FinetuneConfig, tokenizer: Tokenizer, max_length: int) -> SentenceTask:
    """A task of GLUE; AX is MNLI with its diagnostic split as what is predicted."""
    if config.data is None:
        raise UsageError(f"{config.task} needs --data: a folder in GLUE's layout, or hf://nyu-mll/glue")
    name = "mnli" if config.task == "ax" else config.task
    task = glue_task(name, config.data, tokenizer, skip_bad_rows=config.skip_bad_rows)
    swap = task.swap_pairs if config.swap_pairs is None else config.swap_pairs
    if swap and not GLUE[name].symmetric:
        raise UsageError(f"--swap-pairs: in {name} the order of a pair has a meaning")
    if config.task == "ax":
        task = replace(task, predicted=("diagnostic",))
    return replace(task, max_length=max_length, dropout=config.dropout, swap_pairs=swap)


def table_over(config: FinetuneConfig, tokenizer: Tokenizer, max_length: int) -> SentenceTask:
    """One's own table."""
    text, label = check_columns(config.text, config.label)
    if config.train is None:
        raise UsageError("a table needs --train, a .csv, .tsv, .jsonl or .parquet file")
    task = table_task(
        Path(config.train),
        (config.dev and Path(config.dev)) or None,
        (config.test and Path(config.test)) or None,
        (text, config.text_pair, label),
        tokenizer,
        dev_share=config.dev_share,
        seed=config.seed,
        skip_bad_rows=config.skip_bad_rows,
    )
    return replace(task, max_length=max_length, dropout=config.dropout, swap_pairs=bool(config.swap_pairs))
