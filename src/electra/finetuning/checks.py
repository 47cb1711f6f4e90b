"""What is reported of a task's data and head before training begins."""

import logging
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from electra.console import format_count
from electra.finetuning.batching import Features
from electra.finetuning.export import stock_head
from electra.finetuning.qa.heads import JointSpanHead
from electra.finetuning.task import Task
from electra.model.checkpoints import read_pretrained_length
from electra.text.coverage import Coverage, CoverageCounter, report_coverage
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


OTHER_MODEL = "take a model that was pre-trained on text of this language"
FEW_SCORED = 50
"""Scored examples below which one of them moves an accuracy by more than 2 %."""


def report_vocabulary(name: str, features: Mapping[str, Features], tokenizer: Tokenizer) -> None:
    """Print how well the vocabulary spells the texts of all splits, or a warning for each split that it does not fit."""
    counter = CoverageCounter(tokenizer)
    by_split = {split: counter.count_rows(each.ids) for split, each in features.items()}
    poor = {f"{name} {split}": coverage for split, coverage in by_split.items() if coverage.is_poor}
    for text, coverage in (poor or {name: sum(by_split.values(), Coverage())}).items():
        report_coverage(coverage, text, OTHER_MODEL)


def warn_of_few_scored(task: Task, features: Mapping[str, Features]) -> None:
    """Warn of scored splits that are so small that their scores mean little."""
    for split in task.scored:
        number = features[split].notes.get("questions", len(features[split]))
        if number < FEW_SCORED:
            log.warning(
                f"{task.name}: only {format_count(number, 'example')} in {split}: each moves an accuracy by "
                f"{1 / number:.0%}, so scores are rough; more examples help (a larger --dev file, or --dev-share)"
            )


def warn_of_untrained_positions(directory: Path, task: Task, features: Mapping[str, Features]) -> None:
    """Warn where examples are longer than the sequences that the encoder in `directory` was pre-trained on."""
    length = read_pretrained_length(directory)
    if length is None:
        return
    longer = {split: sum(len(ids) > length for ids in each.ids) for split, each in features.items()}
    if any(longer.values()):
        shares = ", ".join(f"{number:,} of {len(features[split]):,} in {split}" for split, number in longer.items())
        log.warning(
            f"{task.name}: examples longer than the {length} tokens of the sequences that {directory} was pre-trained on: "
            f"{shares}; its later positions were never trained in pre-training. Use --max-length {length}, or a model "
            "pre-trained with a larger --seq-len"
        )


def report_head(head: nn.Module, task: Task) -> None:
    """Report before training that no stock class of Hugging Face reads the fine-tuned model, where none does."""
    if stock_head(head, task)[0] != "ElectraModel":
        return
    advice = (
        "--span.head plain has one" if isinstance(head, JointSpanHead) else "more labels than half of the hidden size"
    )
    log.info(f"{task.name}: Hugging Face has no stock class for this head; electra predict reads the model ({advice})")
