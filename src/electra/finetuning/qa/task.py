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
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.qa.answers import QuestionPrediction, answer_questions
from electra.finetuning.qa.chunks import Chunks, chunk_questions
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.data import Question, check_answered, read_mrqa, read_squad
from electra.finetuning.qa.heads import build_span_head
from electra.finetuning.qa.inference import (
    HEAD,
    WITH_IMPOSSIBLE,
    SavedQuestionAnswering,
    export_head,
    from_hugging_face,
)
from electra.finetuning.qa.scoring import compute_best_threshold_metrics, compute_squad1_metrics, compute_squad2_metrics
from electra.finetuning.recipe import QUESTIONS
from electra.finetuning.splits import get_files, hold_out
from electra.finetuning.task import Outputs, Record, TaskSpec
from electra.model.checkpoints import Pretrained
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class QuestionAnswering:
    """Answers are spans of a context; in squad2 a question may have none; implements `task.Task`.

    `chunks(split)`, computed once, are its questions as token ids.
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
        self._with_impossible = name == WITH_IMPOSSIBLE
        self._best_threshold: float | None = None
        self.chunks = cache(self._build_chunks)

    def head(self, encoder: EncoderConfig) -> nn.Module:
        """The head that the configuration names.

        Raises:
            UsageError: chunks are longer than the encoder's positions.
        """
        if self._config.max_length > encoder.max_positions:
            raise UsageError(
                "longer-than-model",
                f"--max-length {self._config.max_length} is more than the {encoder.max_positions} positions of "
                "the model; lower it",
            )
        return build_span_head(encoder.hidden_size, self._config)

    def encode(self, split: str) -> EncodedExamples:
        """The chunks of "train", "dev" or "test" (which may lack answers).

        Raises:
            DataError: the split is missing or broken, or has questions that the task cannot have.
        """
        return self.chunks(split).examples

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Exact match and F1; in squad2 also for both kinds of questions, and with the best thresholds."""
        questions = self.chunks(split).questions
        predictions = self._predict(split, outputs)
        answers = [self._answer(each) for each in predictions]
        if not self._with_impossible:
            return compute_squad1_metrics(questions, answers)
        odds = np.array([each.null_odds for each in predictions])
        best = compute_best_threshold_metrics(questions, [each.best for each in predictions], odds)
        self._best_threshold = best["best_f1_threshold"]
        return compute_squad2_metrics(questions, answers) | best

    def predictions(self, split: str, outputs: Outputs) -> list[Record]:
        """For each question the answer, the null odds and the n best answers."""
        threshold = self._config.threshold if self._with_impossible else None
        return [each.record(threshold) for each in self._predict(split, outputs)]

    def logits(self, split: str, outputs: Outputs) -> None:
        """None: runs are not averaged."""

    def settings(self) -> Mapping[str, Any]:
        """See `task.Task`; the null threshold is the best one where answers were last scored."""
        return asdict(SavedQuestionAnswering(self.name, self._config, self._best_threshold))

    def _build_chunks(self, split: str) -> Chunks:
        if split not in self._splits:
            raise DataError("missing-split", f"{self.name}: there is no {split} split")
        chunks = chunk_questions(self._splits[split], self._tokenizer, self._config)
        if chunks.truncated_questions:
            log.warning(
                f"{self.name}: {chunks.truncated_questions:,} of {len(chunks.questions):,} {split} questions are longer than "
                f"{self._config.max_query_length} tokens and lose their ends (--span.max-query-length, by default at most a "
                "quarter of --max-length)",
                extra={"code": "truncated"},
            )
        counts = {"questions": len(chunks.questions), "questions_cut": chunks.truncated_questions}
        return replace(chunks, examples=replace(chunks.examples, counts=counts))

    def _predict(self, split: str, outputs: Outputs) -> list[QuestionPrediction]:
        return answer_questions(self.chunks(split), outputs, self._config)

    def _answer(self, prediction: QuestionPrediction) -> str:
        return prediction.answer(self._config.threshold) if self._with_impossible else prediction.best


def read_questions(name: str, path: Path, *, answered: bool) -> list[Question]:
    """The questions of a file of the task `name`; `answered`: training and scores need their answers.

    Raises:
        DataError: a broken file, or questions that the task cannot have.
    """
    questions = read_mrqa(path) if name == "mrqa" else read_squad(path)
    if answered:
        check_answered(questions, path)
    impossible = next((each.id for each in questions if each.impossible), None)
    if name != WITH_IMPOSSIBLE and impossible is not None:
        raise DataError(
            "impossible-question",
            f"{path}: question {impossible!r} has no answer, which {name} does not have: use {WITH_IMPOSSIBLE}",
        )
    return questions


def find_files(name: str, folder: Path) -> dict[str, Path]:
    """The files of "train", "dev" and "test" in a folder: named as in the data set, or train.json and so on.

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
        raise DataError(
            "missing", f"{folder}: none of {', '.join(each.format(split='train') for each in names)} is here"
        )
    return found


def build_question_answering(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> QuestionAnswering:
    """The task over the files in --data, or over those of --train, --dev and --test."""
    hint = ", or --data FOLDER"
    paths = get_files(config, hint) if config.data is None else find_files(config.task, Path(config.data))
    splits = {split: read_questions(config.task, path, answered=split != "test") for split, path in paths.items()}
    if "dev" not in splits:
        contexts = [question.context for question in splits["train"]]
        splits["train"], splits["dev"] = hold_out(splits["train"], contexts, config, "questions")
    return QuestionAnswering(config.task, splits, tokenizer, fit_to_length(config.span, max_length))


def fit_to_length(span: SpanConfig, max_length: int) -> SpanConfig:
    """Span options for chunks of `max_length` tokens.

    The original code's stride of 128 and question length of 64 are for chunks of 512. In shorter chunks their defaults
    are at most a quarter of the length.
    """
    defaults = SpanConfig()
    shorter = {
        name: min(getattr(defaults, name), max_length // 4)
        for name in ("doc_stride", "max_query_length")
        if getattr(span, name) == getattr(defaults, name)
    }
    return replace(span, max_length=max_length, **shorter)


SQUAD1 = MRQA = TaskSpec(
    build=build_question_answering,
    recipe=QUESTIONS,
    options=frozenset({"data", "train", "dev", "test", "span"}),
    saved=SavedQuestionAnswering,
    predict_options=frozenset({"null_threshold"}),
    head=HEAD,
    export=export_head,
    export_hint="--span.head plain has one",
)
SQUAD2 = replace(SQUAD1, from_hugging_face=from_hugging_face)
