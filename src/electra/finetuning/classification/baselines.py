"""Baselines of text classification without a neural network: a constant, and a linear model of TF-IDF."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputClassifier

from electra.finetuning.classification.metrics import compute_scores
from electra.finetuning.classification.task import LabeledTexts, TextClassification

MAX_EXAMPLES = 100_000
"""Largest number of training examples of the linear model; more take minutes."""
WORDS = r"(?u)[^\W_]+|[^\w\s]"
"""Words of any length, and punctuation."""
PENALTY = 0.1
"""L2 penalty of the linear models; the features of a text have norm 1."""


def score_baselines(task: TextClassification, split: str) -> dict[str, dict[str, float]]:
    """Fit the baselines to the training examples, and compute the task's metrics on a split.

    The linear model is logistic regression, or ridge regression for numbers, on TF-IDF of words and pairs of words. A pair of
    texts has the features of each, their absolute difference and their product.

    Returns:
        Name -> metrics in percent. There is no linear model if the training texts have no words.
    """
    train, scored = task.read("train"), task.read(split)
    assert train.labels is not None
    assert scored.labels is not None
    constant_name, constant, linear_name, linear = build_models(task.kind)
    no_features = np.zeros((len(train), 1)), np.zeros((len(scored), 1))
    predicted = {constant_name: constant.fit(no_features[0], train.labels).predict(no_features[1])}
    rows = np.random.default_rng(0).permutation(len(train))[:MAX_EXAMPLES]
    if any(np.ptp(train.labels[rows], axis=0).flatten()) and (features := build_features(train, rows, scored)):
        predicted[linear_name] = linear.fit(features[0], train.labels[rows]).predict(features[1])
    return {name: compute_scores(task.metrics, each, scored.labels) for name, each in predicted.items()}


def build_models(kind: str) -> tuple[str, Any, str, Any]:
    """Build the constant and the linear model for a kind of label, with their names."""
    if kind == "regression":
        return "mean", DummyRegressor(), "TF-IDF, ridge regression", Ridge(alpha=1.0)
    constant, linear = DummyClassifier(), LogisticRegression(C=1 / PENALTY, max_iter=300)
    if kind == "multilabel":
        constant, linear = MultiOutputClassifier(constant), MultiOutputClassifier(linear)
    return "majority class", constant, "TF-IDF, logistic regression", linear


def build_features(train: LabeledTexts, rows: np.ndarray, scored: LabeledTexts) -> tuple[csr_matrix, csr_matrix] | None:
    """Compute the features of the training examples `rows` and of the scored ones; None if the texts have no words."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=WORDS)
    first = [train.first[i] for i in rows]
    second = None if train.second is None else [train.second[i] for i in rows]
    try:
        vectorizer.fit(first + (second or []))
    except ValueError:  # an empty vocabulary
        return None

    def transform(one: list[str], other: list[str] | None) -> csr_matrix:
        u = vectorizer.transform(one)
        if other is None:
            return u
        v = vectorizer.transform(other)
        return csr_matrix(hstack([u, v, abs(u - v), u.multiply(v)]))

    return transform(first, second), transform(scored.first, scored.second)
