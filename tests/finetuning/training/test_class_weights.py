"""Class weights: scikit-learn's formula, torch's weighted cross-entropy, the loss of a constant prediction, wrong weights."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from sklearn.utils.class_weight import compute_sample_weight
from support.errors import fails, notices, raises
from support.toy_tasks import finetune_settings, save_model, write_conll, write_jsonl

from electra.data.batch import Batch
from electra.errors import UsageError
from electra.finetuning.batching import IGNORED, LabeledBatch
from electra.finetuning.classification.heads import TextClassificationHead
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.run import finetune
from electra.finetuning.tagging.heads import TaggingHead
from electra.finetuning.training.class_weights import compute_chance_loss, resolve_class_weights

INPUTS = Batch(torch.zeros(6, 4, dtype=torch.long), torch.zeros(6, 4, dtype=torch.long), torch.full((6,), 4), None)
WEIGHTS = (0.5, 2.0, 3.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


def write_table(path: Path, ones: int, zeros: int) -> Path:
    rows = [{"text": "the cat is good", "label": "yes"}] * ones + [{"text": "the cat is bad", "label": "no"}] * zeros
    return write_jsonl(path, rows)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    targets = np.array([0] * 7 + [1] * 2 + [3])
    weights = resolve_class_weights(("balanced",), ("a", "b", "c", "d"), targets)
    assert weights is not None
    np.testing.assert_allclose(np.array(weights)[targets], compute_sample_weight("balanced", targets))
    assert weights[2] == 1.0, "no target has this class"
    assert np.mean(np.array(weights)[targets]) == pytest.approx(1.0)


def test_classification_loss_is_the_weighted_cross_entropy_of_torch() -> None:
    torch.manual_seed(0)
    head = TextClassificationHead("classification", 8, 3, 0.0, class_weights=WEIGHTS)
    hidden, labels = torch.randn(6, 1, 8), torch.tensor([0, 1, 2, 0, 1, 1])
    losses = head.loss(hidden, LabeledBatch(INPUTS, {"label": labels}))
    weight = torch.tensor(WEIGHTS)
    expected = F.cross_entropy(head(hidden, INPUTS), labels, weight)  # torch divides by the sum of the weights
    torch.testing.assert_close(losses.sum() / weight[labels].sum(), expected)
    assert "class_weights" not in head.state_dict()


def test_tagging_loss_is_the_weighted_cross_entropy_of_torch() -> None:
    torch.manual_seed(0)
    head, hidden = TaggingHead(8, 3, WEIGHTS), torch.randn(6, 4, 8)
    tags = torch.randint(0, 3, (6, 4))
    tags[:, 0] = IGNORED
    losses = head.loss(hidden, LabeledBatch(INPUTS, {"tags": tags}))
    weight = torch.tensor(WEIGHTS)
    expected = F.cross_entropy(head.output(hidden).flatten(0, 1), tags.flatten(), weight, ignore_index=IGNORED)
    torch.testing.assert_close(3 * losses.sum() / weight[tags[:, 1:]].sum(), expected)  # three words in each window


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_chance_loss_is_the_minimum_over_constant_predictions(weights: tuple[float, ...] | None) -> None:
    shares = np.array([0.5, 0.2, 0.3])
    targets = torch.tensor([0] * 5 + [1] * 2 + [2] * 3)
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)

    def loss(logits: np.ndarray) -> float:
        return float(F.cross_entropy(torch.tensor(logits).expand(10, 3), targets, weight, reduction="none").mean())

    assert compute_chance_loss(shares, weights) == pytest.approx(minimize(loss, np.zeros(3)).fun, rel=1e-6)


@pytest.mark.slow
def test_option_changes_the_training(model, tmp_path: Path, caplog) -> None:
    """With a rate near 0 the first loss is the weighted mean; balanced weights of equal classes are 1."""
    train = write_table(tmp_path / "train.jsonl", 24, 8)
    given = {"train": str(train), "dev": str(train), "text": "text", "label": "label", "baseline": "none"}
    still = finetune_settings(model, "table", **given, epochs=1.0, learning_rate=1e-12, dropout=0.0)
    losses = {}
    for name, weights in {"none": (), "balanced": ("balanced",), "numbers": ("2", "4"), "doubled": ("4", "8")}.items():
        finetune(FinetuneConfig(**{**vars(still), "class_weights": weights}), tmp_path / name)
        losses[name] = json.loads((tmp_path / name / "seed-0/results.json").read_text())["training_loss"] or 0.0
        rows = (tmp_path / name / "seed-0/metrics.jsonl").read_text().splitlines()
        assert losses[name] == pytest.approx(json.loads(rows[-1])["loss"])
    assert losses["doubled"] == pytest.approx(2 * losses["numbers"], rel=1e-5)
    assert losses["balanced"] != pytest.approx(losses["none"], rel=1e-3)
    messages = notices(caplog, "class-weights")
    assert "no 2, yes 0.667" in messages[0]


@pytest.mark.slow
def test_tagging_with_balanced_weights(model, tmp_path: Path) -> None:
    train = write_conll(tmp_path / "train.conll", 30, 0)
    config = finetune_settings(model, "tagging", train=str(train), class_weights=("balanced",), epochs=4.0)
    assert finetune(config, tmp_path / "out")["metrics"]["dev"]["f1"]["median"] > 90


@pytest.mark.parametrize(
    ("weights", "code", "values"),
    [
        (["0", "1"], "out-of-range", ("above 0", "0")),
        (["nan", "1"], "out-of-range", ("nan",)),
        (["inf", "1"], "out-of-range", ("inf",)),
        (["1", "2", "3"], "wrong-count", ("3 numbers", "2 classes", "no, yes")),
        (["heavy"], "wrong-type", ("balanced", "heavy")),
        (["balanced", "1"], "wrong-type", ("balanced",)),
    ],
)
def test_wrong_weights(model, tmp_path: Path, weights: list[str], code: str, values: tuple[str, ...]) -> None:
    train = write_table(tmp_path / "train.jsonl", 8, 8)
    words = [
        "finetune",
        "table",
        "--model",
        model,
        "--train",
        train,
        "--text=text",
        "--label=label",
        "--out",
        tmp_path / "o",
    ]
    fails([*words, "--class-weights", *weights], code, "--class-weights", *values)
    assert not (tmp_path / "o").exists()


def test_numbers_have_no_classes(model, tmp_path: Path) -> None:
    train = write_jsonl(tmp_path / "train.jsonl", [{"t": "the cat", "y": i / 7} for i in range(12)])
    given = {"train": str(train), "text": "t", "label": "y", "class_weights": ("balanced",)}
    with raises(UsageError, "meaningless-option", "--class-weights", "regression"):
        finetune(finetune_settings(model, "table", **given), tmp_path / "out")
