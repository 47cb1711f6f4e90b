"""The tasks of question answering: SQuAD 1.1 and 2.0, and the data sets of the MRQA 2019 shared task."""

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
from electra.finetuning.qa.config import SpanConfig, fit_to_length
from electra.finetuning.qa.data import Question, check_answered, read_mrqa, read_squad
from electra.finetuning.qa.heads import build_span_head
from electra.finetuning.qa.inference import (
    HEAD_KIND,
    WITH_IMPOSSIBLE,
    SavedQuestionAnswering,
    export_head,
    from_hugging_face,
)
from electra.finetuning.qa.scoring import compute_best_threshold_metrics, compute_squad1_metrics, compute_squad2_metrics
from electra.finetuning.qa.windows import Windows, build_windows
from electra.finetuning.recipe import QUESTIONS
from electra.finetuning.splits import get_split_files, hold_out
from electra.finetuning.task import Outputs, Prediction, TaskSpec
from electra.model.checkpoints import Pretrained
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class QuestionAnswering:
    """Extractive question answering: answers are spans of a context, in squad2 possibly none; implements `task.Task`.

    The examples are the windows of the questions; `get_windows(split)` builds them once.

    Args:
        name: "squad1", "squad2" or "mrqa".
        splits: Questions of "train", "dev" and "test".
        tokenizer: Tokenizer of the model.
        config: Options of windows, head and answers.
    """

    main_metric = "f1"
    scored_splits = ("dev",)

    def __init__(
        self, name: str, splits: Mapping[str, Sequence[Question]], tokenizer: Tokenizer, config: SpanConfig
    ) -> None:
        self.name = name
        self.predicted_splits = tuple(split for split in splits if split == "test")
        self._splits = splits
        self._tokenizer = tokenizer
        self._config = config
        self._with_impossible = name == WITH_IMPOSSIBLE
        self._best_threshold: float | None = None
        self.get_windows = cache(self._build_windows)

    def build_head(self, encoder: EncoderConfig) -> nn.Module:
        """See `task.Task`.

        Raises:
            UsageError: windows have more tokens than the encoder has positions.
        """
        if self._config.max_length > encoder.max_positions:
            raise UsageError(
                "longer-than-model",
                f"--max-length {self._config.max_length} is more than the {encoder.max_positions} positions of "
                "the model; lower it",
            )
        return build_span_head(encoder.hidden_size, self._config)

    def encode(self, split: str) -> EncodedExamples:
        """Return the windows of "train", "dev" or "test" (which may have no answers).

        Raises:
            DataError: the split is missing.
        """
        return self.get_windows(split).examples

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Compute exact match and F1; in squad2 also by kind of question, and with the best thresholds."""
        questions = self.get_windows(split).questions
        predictions = self._predict(split, outputs)
        answers = [self._select_answer(prediction) for prediction in predictions]
        if not self._with_impossible:
            return compute_squad1_metrics(questions, answers)
        odds = np.array([prediction.null_odds for prediction in predictions])
        best = compute_best_threshold_metrics(questions, [prediction.best_text for prediction in predictions], odds)
        self._best_threshold = best["best_f1_threshold"]
        return compute_squad2_metrics(questions, answers) | best

    def format_predictions(self, split: str, outputs: Outputs) -> list[Prediction]:
        """Format the answer, the null odds and the n best answers of each question."""
        threshold = self._config.threshold if self._with_impossible else None
        return [prediction.to_record(threshold) for prediction in self._predict(split, outputs)]

    def get_logits(self, split: str, outputs: Outputs) -> None:
        """Return None: there are no ensembles."""

    def get_settings(self) -> Mapping[str, Any]:
        """See `task.Task`; the null threshold is the best one of the last call of `score`."""
        return asdict(SavedQuestionAnswering(self.name, self._config, self._best_threshold))

    def _build_windows(self, split: str) -> Windows:
        """Build the windows of a split, with a warning if questions are truncated."""
        if split not in self._splits:
            raise DataError("missing-split", f"{self.name}: there is no {split} split")
        windows = build_windows(self._splits[split], self._tokenizer, self._config)
        if windows.truncated_questions:
            log.warning(
                f"{self.name}: {windows.truncated_questions:,} of {len(windows.questions):,} {split} questions are longer "
                f"than {self._config.max_query_length} tokens and lose their ends (--span.max-query-length, by default at "
                "most a quarter of --max-length)",
                extra={"code": "truncated"},
            )
        counts = {"questions": len(windows.questions), "questions_cut": windows.truncated_questions}
        return replace(windows, examples=replace(windows.examples, counts=counts))

    def _predict(self, split: str, outputs: Outputs) -> list[QuestionPrediction]:
        return answer_questions(self.get_windows(split), outputs, self._config)

    def _select_answer(self, prediction: QuestionPrediction) -> str:
        return prediction.select_answer(self._config.threshold) if self._with_impossible else prediction.best_text


def read_questions(name: str, path: Path, *, answered: bool) -> list[Question]:
    """Read the questions of a file of the task `name`; with `answered`, every question must have a training target.

    Raises:
        DataError: the file is malformed, a question has no answer, or is impossible in another task than squad2.
    """
    questions = read_mrqa(path) if name == "mrqa" else read_squad(path)
    if answered:
        check_answered(questions, path)
    impossible = next((question.id for question in questions if question.impossible), None)
    if name != WITH_IMPOSSIBLE and impossible is not None:
        raise DataError(
            "impossible-question",
            f"{path}: question {impossible!r} has no answer, which {name} does not have: use {WITH_IMPOSSIBLE}",
        )
    return questions


def find_files(name: str, folder: Path) -> dict[str, Path]:
    """Find the files of "train", "dev" and "test" in a folder: split -> path.

    They are named as in the data set (train-v2.0.json for squad2), or train.json; .jsonl for mrqa; they can end in .gz.

    Raises:
        DataError: there is no training file.
    """
    version = {"squad1": "-v1.1", "squad2": "-v2.0"}.get(name, "")
    suffix = ".jsonl" if name == "mrqa" else ".json"
    patterns = [f"{{split}}{middle}{suffix}{end}" for middle in dict.fromkeys([version, ""]) for end in ("", ".gz")]
    found = {
        split: folder / pattern.format(split=split)
        for split in ("train", "dev", "test")
        for pattern in reversed(patterns)
        if (folder / pattern.format(split=split)).exists()
    }
    if "train" not in found:
        raise DataError(
            "missing", f"{folder}: none of {', '.join(pattern.format(split='train') for pattern in patterns)} is here"
        )
    return found


def build_question_answering(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> QuestionAnswering:
    """Build the task over the files in --data, or over those of --train, --dev and --test; dev is held out if missing.

    Raises:
        UsageError: --data and --train are missing.
        DataError: a file is missing or malformed, or has questions that the task cannot have.
    """
    hint = ", or --data FOLDER"
    paths = get_split_files(config, hint) if config.data is None else find_files(config.task, Path(config.data))
    splits = {split: read_questions(config.task, path, answered=split != "test") for split, path in paths.items()}
    if "dev" not in splits:
        contexts = [question.context for question in splits["train"]]
        splits["train"], splits["dev"] = hold_out(splits["train"], contexts, config, "questions")
    return QuestionAnswering(config.task, splits, tokenizer, fit_to_length(config.span, max_length))


SQUAD1 = MRQA = TaskSpec(
    build=build_question_answering,
    recipe=QUESTIONS,
    options=frozenset({"data", "train", "dev", "test", "span"}),
    saved=SavedQuestionAnswering,
    predict_options=frozenset({"null_threshold"}),
    head=HEAD_KIND,
    export=export_head,
    export_hint="--span.head plain has one",
)
SQUAD2 = replace(SQUAD1, from_hugging_face=from_hugging_face)
