"""Multiple choice: which of a fixed number of endings is the right one for a context, as in SWAG."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

from electra.errors import DataError
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.classification.baselines import MAX_EXAMPLES, PENALTY, build_features
from electra.finetuning.classification.metrics import compute_scores
from electra.finetuning.classification.task import LabeledTexts
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.multiple_choice.data import Question, check_choices, read_questions
from electra.finetuning.multiple_choice.heads import MultipleChoiceHead
from electra.finetuning.multiple_choice.inference import (
    HEAD_KIND,
    SavedMultipleChoice,
    encode_questions,
    export_head,
    format_predictions,
    from_hugging_face,
    get_columns,
)
from electra.finetuning.splits import get_split_files, hold_out
from electra.finetuning.task import Outputs, Prediction, TaskSpec
from electra.finetuning.training.class_weights import compute_chance_loss
from electra.model.checkpoints import Pretrained
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

LABEL = "label"
"""Column of the index of the right ending, unless --label names another."""


class MultipleChoice:
    """Multiple choice over the questions of each split; implements `task.Task`. All questions have as many endings."""

    name = "multiple-choice"
    main_metric = "accuracy"
    scored_splits = ("dev",)

    def __init__(
        self,
        splits: Mapping[str, Sequence[Question]],
        tokenizer: Tokenizer,
        max_length: int,
        dropout: float,
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self.splits = splits
        self.predicted_splits = ("test",) if "test" in splits else ()
        self._tokenizer, self._max_length, self._dropout, self._columns = tokenizer, max_length, dropout, columns

    def build_head(self, encoder: EncoderConfig) -> nn.Module:
        """See `task.Task`."""
        return MultipleChoiceHead(encoder.hidden_size, self._dropout)

    def encode(self, split: str) -> EncodedExamples:
        """See `task.Task`."""
        return encode_questions(self.splits[split], self._tokenizer, self._max_length, f"in {split}")

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Compute the accuracy in percent."""
        return self.score_choices(split, self.get_logits(split, outputs).argmax(1))

    def score_choices(self, split: str, choices: np.ndarray) -> dict[str, float]:
        """Compute the accuracy of choices [N], in percent."""
        return compute_scores(("accuracy",), choices, self.get_answers(split))

    def get_answers(self, split: str) -> np.ndarray:
        """Return the indices of the right endings [N] of a labeled split."""
        return np.array([question.answer for question in self.splits[split]], dtype=np.int64)

    def compute_chance_loss(self) -> float:
        """Compute the training loss of the best constant probabilities of the indices."""
        answers = self.get_answers("train")
        return compute_chance_loss(np.bincount(answers) / len(answers), None)

    def format_predictions(self, split: str, outputs: Outputs) -> list[Prediction]:
        """See `task.Task`; the probabilities are in the order of the endings."""
        return format_predictions(self.splits[split], outputs)

    def get_logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N C"]:
        """See `task.Task`."""
        return np.stack([output["logits"] for output in outputs])

    def get_settings(self) -> Mapping[str, Any]:
        """See `task.Task`."""
        columns = list(self._columns) if self._columns else None
        choices = len(self.splits["train"][0].endings)
        return asdict(SavedMultipleChoice(self.name, self._max_length, choices, columns))


def build_multiple_choice(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> MultipleChoice:
    """Build the task over the files of --train, --dev and --test. Without dev, it is held out from train, by contexts.

    Raises:
        UsageError: --train is missing.
        DataError: a file is missing or malformed, or has questions with another number of endings.
    """
    columns = get_columns(config.text, config.text_pair)
    splits: dict[str, list[Question]] = {}
    for split, path in get_split_files(config).items():
        label = None if split == "test" else config.label or LABEL
        choices = len(splits["train"][0].endings) if splits else None
        splits[split] = list(check_choices(read_questions(str(path), columns, label), choices))
        if not splits[split]:
            raise DataError("no-rows", f"{path}: no rows")
    if "dev" not in splits:
        contexts = [question.context for question in splits["train"]]
        splits["train"], splits["dev"] = hold_out(splits["train"], contexts, config, "questions")
    return MultipleChoice(splits, tokenizer, max_length, config.dropout, columns)


def score_baselines(task: MultipleChoice, split: str) -> dict[str, dict[str, float]]:
    """Score the most frequent index, and a linear model that says of each choice whether it is the right one.

    The linear model is logistic regression on TF-IDF of context and ending (see `build_features`); its highest value is the
    choice. It shows what the words of the endings alone give away.
    """
    train, scored = task.splits["train"], task.splits[split]
    size = len(train[0].endings)
    rows = np.zeros((len(train), 1)), np.zeros((len(scored), 1))
    constant = DummyClassifier().fit(rows[0], task.get_answers("train")).predict(rows[1])
    scores = {"most frequent index": task.score_choices(split, constant)}
    chosen = np.random.default_rng(0).permutation(len(train))[: MAX_EXAMPLES // size]
    used = (chosen[:, None] * size + np.arange(size)).flatten()
    features = build_features(list_choices(train), used, list_choices(scored))
    if features is not None:
        answers = task.get_answers("train")[chosen]
        right = (np.arange(size) == answers[:, None]).flatten()
        linear = LogisticRegression(C=1 / PENALTY, max_iter=300).fit(features[0], right)
        values = linear.decision_function(features[1]).reshape(-1, size)
        scores["TF-IDF, logistic regression"] = task.score_choices(split, values.argmax(1))
    return scores


def list_choices(questions: Sequence[Question]) -> LabeledTexts:
    """List every choice as a pair of texts, the choices of a question one after the other."""
    contexts = [question.context for question in questions for _ in question.endings]
    return LabeledTexts(contexts, [ending for question in questions for ending in question.endings], None)


MULTIPLE_CHOICE = TaskSpec(
    build=build_multiple_choice,
    options=frozenset({"train", "dev", "test", "text", "text_pair", "label"}),
    saved=SavedMultipleChoice,
    predict_options=frozenset({"text", "text_pair"}),
    score_baselines=score_baselines,
    compute_chance_loss=MultipleChoice.compute_chance_loss,
    head=HEAD_KIND,
    export=export_head,
    from_hugging_face=from_hugging_face,
)
