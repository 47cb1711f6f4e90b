"""The tasks of question answering: SQuAD 1.1 and 2.0, and the data sets of MRQA 2019."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from electra.errors import DataError, UsageError
from electra.finetuning.batching import Features
from electra.finetuning.qa.answers import AnsweredQuestion, answer_questions
from electra.finetuning.qa.chunks import Chunks, chunk_questions
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.data import Question, check_answered, read_mrqa, read_squad
from electra.finetuning.qa.heads import JointSpanHead, PlainSpanHead
from electra.finetuning.qa.scoring import best_threshold_metrics, squad1_metrics, squad2_metrics
from electra.finetuning.task import Outputs
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class QuestionAnswering:
    """A `Task` whose answers are spans of a context; in squad2 a question may have none.

    `chunks(split)`, made once, are its questions as the network reads them, with the number of truncated ones.
    """

    main_metric = "f1"
    scored = ("dev",)

    def __init__(
        self, name: str, splits: Mapping[str, Sequence[Question]], tokenizer: Tokenizer, config: SpanConfig
    ) -> None:
        self.name = name
        self.predicted = tuple(split for split in splits if split == "test")
        self._splits = splits
        self._tokenizer = tokenizer
        self._config = config
        self._best_threshold: float | None = None
        self.chunks = cache(self._chunks_of)

    def head(self, encoder: EncoderConfig) -> nn.Module:
        """The head that the configuration names.

        Raises:
            UsageError: chunks are longer than the encoder's positions.
        """
        if self._config.max_length > encoder.max_positions:
            raise UsageError(
                f"--max-length {self._config.max_length} is more than the {encoder.max_positions} positions of "
                "the model; lower it"
            )
        if self._config.head == "joint":
            return JointSpanHead(encoder.hidden_size, self._config)
        return PlainSpanHead(encoder.hidden_size)

    def features(self, split: str) -> Features:
        """The chunks of "train", "dev" or "test" (which may lack answers).

        Raises:
            DataError: the split is missing or broken, or has questions that the task cannot have.
        """
        return self.chunks(split).features

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Exact match and F1; in squad2 also of both kinds of questions, and with the best thresholds."""
        questions = self.chunks(split).questions
        answered = self._answered(split, outputs)
        answers = [self._answer(each) for each in answered]
        if self.name != "squad2":
            return squad1_metrics(questions, answers)
        odds = np.array([each.null_odds for each in answered])
        best = best_threshold_metrics(questions, [each.best for each in answered], odds)
        self._best_threshold = best["best_f1_threshold"]
        return squad2_metrics(questions, answers) | best

    def predictions(self, split: str, outputs: Outputs) -> list[dict[str, Any]]:
        """Of each question the answer, the null odds and the n best answers."""
        threshold = self._config.threshold if self.name == "squad2" else None
        return [each.record(threshold) for each in self._answered(split, outputs)]

    def logits(self, split: str, outputs: Outputs) -> None:
        """None: runs are not averaged."""

    def settings(self) -> Mapping[str, Any]:
        """The span options, and the null threshold that was best where answers were last scored."""
        return {"span": asdict(self._config), "best_null_threshold": self._best_threshold}

    def _chunks_of(self, split: str) -> Chunks:
        if split not in self._splits:
            raise DataError(f"{self.name}: there is no {split} split")
        chunks = chunk_questions(self._splits[split], self._tokenizer, self._config)
        if chunks.truncated_questions:
            log.warning(
                f"{self.name}: {chunks.truncated_questions:,} of {len(chunks.questions):,} {split} questions are longer than "
                f"{self._config.max_query_length} tokens and lose their ends (--span.max-query-length, by default at most a "
                "quarter of --max-length)"
            )
        notes = {"questions": len(chunks.questions), "questions_cut": chunks.truncated_questions}
        return replace(chunks, features=replace(chunks.features, notes=notes))

    def _answered(self, split: str, outputs: Outputs) -> list[AnsweredQuestion]:
        return answer_questions(self.chunks(split), outputs, self._config)

    def _answer(self, answered: AnsweredQuestion) -> str:
        return answered.answer(self._config.threshold) if self.name == "squad2" else answered.best


def read_questions(name: str, path: Path, *, answered: bool) -> list[Question]:
    """The questions of a file of the task `name`; `answered`: they must have the answers that training and scores need.

    Raises:
        DataError: a broken file, or questions that the task cannot have.
    """
    questions = read_mrqa(path) if name == "mrqa" else read_squad(path)
    if answered:
        check_answered(questions, path)
    impossible = next((each.id for each in questions if each.impossible), None)
    if name != "squad2" and impossible is not None:
        raise DataError(f"{path}: question {impossible!r} has no answer, which {name} does not know: use squad2")
    return questions


def find_questions(name: str, folder: Path) -> dict[str, Path]:
    """The files of "train", "dev" and "test" in a folder: as the data set is handed out, or simply train.json and so on.

    Raises:
        DataError: there is no training file.
    """
    version = {"squad1": "-v1.1", "squad2": "-v2.0"}.get(name, "")
    suffix = ".jsonl" if name == "mrqa" else ".json"
    names = [f"{{split}}{middle}{suffix}{end}" for middle in dict.fromkeys([version, ""]) for end in ("", ".gz")]
    found = {
        split: folder / each.format(split=split)
        for split in ("train", "dev", "test")
        for each in reversed(names)
        if (folder / each.format(split=split)).exists()
    }
    if "train" not in found:
        raise DataError(f"{folder}: none of {', '.join(each.format(split='train') for each in names)} is here")
    return found
