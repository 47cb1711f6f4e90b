"""From a configuration to its task."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from electra.errors import DataError, UsageError
from electra.finetuning.classification.glue import GLUE, glue_task
from electra.finetuning.classification.table import check_columns, table_task
from electra.finetuning.classification.task import SentenceTask
from electra.finetuning.classification.wnli import Wnli, pairs_of, pretrained_head
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.task import QuestionAnswering, find_questions, read_questions
from electra.finetuning.tagging.data import find_splits, read_sentences
from electra.finetuning.tagging.task import Tagging, TaggingConfig
from electra.finetuning.task import Task
from electra.model.checkpoints import Pretrained
from electra.seeding import Stream, numpy_generator
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


SPANS = ("squad1", "squad2", "mrqa")
TAGGING = ("chunk", "ner", "pos", "tagging")

EPOCHS = {name: task.epochs for name, task in GLUE.items()} | dict.fromkeys(SPANS, 2.0)
"""Table 7; every other task has 3."""

MAX_LENGTHS = dict.fromkeys(SPANS, 512) | dict.fromkeys(TAGGING, 256)
"""Tokens of an example, as in the original code; every other task has 128."""

Item = TypeVar("Item")


def build_task(config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained) -> Task:
    """The task of a configuration, over its data, for a model that starts from `pretrained`.

    Raises:
        UsageError: an option that the task needs is missing.
        DataError: the data is missing or broken.
    """
    limit = pretrained.config.max_positions
    if config.max_length is not None and config.max_length > limit:
        raise UsageError(f"--max-length {config.max_length} is more than the {limit} positions of the model")
    max_length = config.max_length or min(MAX_LENGTHS.get(config.task, 128), limit)
    if config.task in SPANS:
        return spans_over(config, tokenizer, max_length)
    if config.task in TAGGING:
        return tags_over(config, tokenizer, max_length)
    if config.task == "table":
        return table_over(config, tokenizer, max_length)
    if config.task == "wnli" and config.wnli_candidates:
        return candidates_over(config, tokenizer, max_length, pretrained)
    return glue_over(config, tokenizer, max_length)


def candidates_over(config: FinetuneConfig, tokenizer: Tokenizer, max_length: int, pretrained: Pretrained) -> Wnli:
    """WNLI by candidate antecedents, which the discriminator's own head scores (Appendix B)."""
    pairs = glue_over(config, tokenizer, max_length)
    splits = {split: pairs_of(pairs.read(split), split) for split in ("train", *pairs.scored, *pairs.predicted)}
    return Wnli(splits, tokenizer, None if config.from_scratch else pretrained_head(pretrained), max_length)


def glue_over(config: FinetuneConfig, tokenizer: Tokenizer, max_length: int) -> SentenceTask:
    """A task of GLUE; AX is MNLI with its diagnostic split as what is predicted."""
    if config.data is None:
        raise UsageError(f"{config.task} needs --data: a folder in GLUE's layout, or hf://nyu-mll/glue")
    name = "mnli" if config.task == "ax" else config.task
    task = glue_task(name, config.data, tokenizer, skip_bad_rows=config.skip_bad_rows)
    swap = task.swap_pairs if config.swap_pairs is None else config.swap_pairs
    if swap and not GLUE[name].symmetric:
        raise UsageError(f"--swap-pairs: in {name} the order of a pair has a meaning")
    if name == "mnli" and "dev_mismatched" not in task.scored:
        log.warning(f"{config.data}: no MNLI/dev_mismatched.tsv here, so MNLI is scored on the matched dev file alone")
    if config.task == "ax":
        task = replace(task, predicted=("diagnostic",))
    return replace(task, max_length=max_length, dropout=config.dropout, swap_pairs=swap)


def table_over(config: FinetuneConfig, tokenizer: Tokenizer, max_length: int) -> SentenceTask:
    """One's own table."""
    columns = check_columns(config.text, config.text_pair, config.label)
    task = table_task(
        files_of(config),
        columns,
        tokenizer,
        kind=config.kind,
        dev_share=config.dev_share,
        split_seed=config.split_seed,
        skip_bad_rows=config.skip_bad_rows,
    )
    return replace(task, max_length=max_length, dropout=config.dropout, swap_pairs=bool(config.swap_pairs))


def spans_over(config: FinetuneConfig, tokenizer: Tokenizer, max_length: int) -> QuestionAnswering:
    """SQuAD, MRQA, or one's own questions in their form."""
    paths = files_of(config) if config.data is None else find_questions(config.task, Path(config.data))
    splits = {split: read_questions(config.task, path, answered=split != "test") for split, path in paths.items()}
    if "dev" not in splits:
        contexts = [question.context for question in splits["train"]]
        splits["train"], splits["dev"] = hold_out(splits["train"], contexts, config, "questions")
    return QuestionAnswering(config.task, splits, tokenizer, fitted(config.span, max_length))


def fitted(span: SpanConfig, max_length: int) -> SpanConfig:
    """Span options for chunks of `max_length` tokens.

    The original code's 128 and 64 are for chunks of 512; in shorter ones, unless they say otherwise, a quarter is left to the
    question and the next chunk begins a quarter on.
    """
    usual = SpanConfig()
    of_a_quarter = {
        name: min(getattr(usual, name), max_length // 4)
        for name in ("doc_stride", "max_query_length")
        if getattr(span, name) == getattr(usual, name)
    }
    return replace(span, max_length=max_length, **of_a_quarter)


def tags_over(config: FinetuneConfig, tokenizer: Tokenizer, max_length: int) -> Tagging:
    """CoNLL columns, or one's own words and tags."""
    paths = files_of(config) if config.data is None else find_splits(Path(config.data))
    if "train" not in paths:
        raise DataError(f"{config.data}: there is no training file")
    splits = {split: read_sentences(path) for split, path in paths.items()}
    if not splits.keys() & {"dev", "test"}:
        places = [sentence.place for sentence in splits["train"]]
        splits["train"], splits["dev"] = hold_out(splits["train"], places, config, "sentences")
    task = Tagging(config.task, splits, tokenizer, TaggingConfig(max_length))
    log.info(f"{len(task.labels)} labels, {task.scheme} (found in {paths['train']})")
    if task.scored == ("test",):
        log.info("there is no dev file, so the scores are those of the test file")
    return task


def files_of(config: FinetuneConfig) -> dict[str, Path]:
    """The files that were named one by one.

    Raises:
        UsageError: no training file was.
    """
    named = {"train": config.train, "dev": config.dev, "test": config.test}
    if config.train is None:
        raise UsageError(f"{config.task} needs --train FILE" + ("" if config.task == "table" else ", or --data FOLDER"))
    return {split: Path(path) for split, path in named.items() if path is not None}


def hold_out(
    items: Sequence[Item], groups: Sequence[str], config: FinetuneConfig, what: str
) -> tuple[list[Item], list[Item]]:
    """Training items, and a share of them held out as dev; what is of one group stays together.

    Raises:
        DataError: there are too few groups.
    """
    names = list(dict.fromkeys(groups))
    number = max(1, round(config.dev_share * len(names)))
    if number >= len(names):
        raise DataError(f"{config.train or config.data}: too few {what} to hold some out; give --dev")
    order = numpy_generator(Stream.DEV_SPLIT, config.split_seed).permutation(len(names))
    chosen = {names[i] for i in order[:number]}
    kept = [item for item, group in zip(items, groups, strict=True) if group not in chosen]
    held = [item for item, group in zip(items, groups, strict=True) if group in chosen]
    log.info(f"{len(held):,} of {len(items):,} {what} are held out as dev (no --dev was given)")
    return kept, held
