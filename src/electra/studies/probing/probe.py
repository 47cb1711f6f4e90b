"""A linear probe of a frozen encoder: a score without the variance of fine-tuning on little data."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from electra.data.loader import pad_batch
from electra.finetuning.classification.glue import load_glue_task
from electra.finetuning.classification.inference import encode_pairs
from electra.finetuning.classification.metrics import METRICS
from electra.finetuning.classification.task import LabeledTexts, TextClassification
from electra.model.checkpoints import load_pretrained
from electra.model.encoder import Encoder
from electra.runtime.setup import Runtime, RuntimeConfig, start_runtime
from electra.text.tokenizer import Tokenizer, load_tokenizer

PENALTIES = (1.0, 10.0, 100.0, 1000.0, 10000.0)
"""L2 penalties; the comparison of layers uses the middle one."""
FOLDS = 3
BATCH_SIZE = 64
SUBSET_SEED = 20_200_326
"""Seed of the subset of training examples; not the run's seed, so runs can be compared."""


@dataclass(frozen=True)
class ProbeScores:
    """The task's main metric on dev, in percent."""

    last: float
    """Score of the last layer."""
    best: float
    """Score of the layer that is best in cross-validation on the training examples."""
    layer: int
    """The best layer; 0 are the embeddings."""


def probe(
    model: Path, glue: str, task: str, *, max_length: int, max_examples: int, device: RuntimeConfig
) -> ProbeScores:
    """Fit linear models to mean-pooled hidden states of `task`'s training examples, and score them on dev.

    The last layer depends on the training objective: a masked language model's has to encode the token, a discriminator's
    does not. Therefore the best layer, chosen without dev, is reported too.

    A pair is encoded one sentence at a time, as (u, v, |u - v|, u * v). A frozen encoder was not trained to compare two
    segments, and single sentences have lengths that it was trained on.

    Args:
        model: Hugging Face ELECTRA directory.
        glue: Folder in GLUE's layout, or hf://nyu-mll/glue.
        task: A task of GLUE.
        max_length: Tokens of a sentence; the rest is cut, because positions that pre-training never read are untrained.
        max_examples: Maximum number of training examples.
        device: Device of the encoder.

    Raises:
        DataError, ModelError: a file is missing or broken.
    """
    encoder, tokenizer = load_frozen_encoder(model)
    glue_task = load_glue_task(task, glue, tokenizer)
    train, dev = select_subset(glue_task.read("train"), max_examples), glue_task.read("dev")
    targets = dev.labels
    assert targets is not None
    with start_runtime(device) as runtime:
        encoder.to(runtime.device)
        train_x, dev_x = (compute_features(encoder, tokenizer, each, max_length, runtime) for each in (train, dev))

    def score(layer: int) -> float:
        predicted = build_search(glue_task, PENALTIES).fit(train_x[layer], train.labels).predict(dev_x[layer])
        return 100 * METRICS[glue_task.main_metric](predicted, targets)

    middle = PENALTIES[len(PENALTIES) // 2]
    validation_scores = [build_search(glue_task, (middle,)).fit(each, train.labels).best_score_ for each in train_x]
    best = int(np.argmax(validation_scores))
    last = score(len(train_x) - 1)
    return ProbeScores(last, last if best == len(train_x) - 1 else score(best), best)


def load_frozen_encoder(model: Path) -> tuple[Encoder, Tokenizer]:
    """Load the encoder of a Hugging Face directory, in evaluation mode, and its tokenizer."""
    tokenizer, pretrained = load_tokenizer(model), load_pretrained(model)
    encoder = Encoder(pretrained.config)
    state = pretrained.state("none")
    encoder.load_state_dict({name.removeprefix("encoder."): tensor for name, tensor in state.items()})
    return encoder.eval(), tokenizer


def sample_indices(number: int, maximum: int) -> Int64[np.ndarray, " M"]:
    """Sample at most `maximum` of `number` indices, sorted, with a fixed seed."""
    return np.sort(np.random.Generator(np.random.PCG64(SUBSET_SEED)).permutation(number)[:maximum])


def select_subset(sentences: LabeledTexts, maximum: int) -> LabeledTexts:
    """Select at most `maximum` examples with a fixed seed."""
    if len(sentences) <= maximum:
        return sentences
    assert sentences.labels is not None
    rows = sample_indices(len(sentences), maximum)
    second = sentences.second and [sentences.second[i] for i in rows]
    return replace(sentences, first=[sentences.first[i] for i in rows], second=second, labels=sentences.labels[rows])


def compute_features(
    encoder: Encoder, tokenizer: Tokenizer, sentences: LabeledTexts, max_length: int, runtime: Runtime
) -> list[Float[np.ndarray, "N F"]]:
    """Compute the features of all examples, for the embeddings and each layer."""
    first = compute_mean_states(encoder, tokenizer, sentences.first, max_length, runtime)
    if sentences.second is None:
        return list(first)
    second = compute_mean_states(encoder, tokenizer, sentences.second, max_length, runtime)
    return [np.concatenate([u, v, np.abs(u - v), u * v], axis=1) for u, v in zip(first, second, strict=True)]


@torch.inference_mode()
def compute_mean_states(
    encoder: Encoder, tokenizer: Tokenizer, texts: list[str], max_length: int, runtime: Runtime
) -> Float[np.ndarray, "K N H"]:
    """Compute hidden states after the embeddings and each layer, as means over the tokens of each `[CLS] text [SEP]`."""
    ids, segment_a, _ = encode_pairs(tokenizer, texts, None, max_length)
    order = np.argsort([len(row) for row in ids], kind="stable")
    means = np.empty((len(encoder.layers) + 1, len(ids), encoder.config.hidden_size), dtype=np.float32)
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        batch = pad_batch([ids[i] for i in rows], [segment_a[i] for i in rows], tokenizer.pad_id).to(runtime.device)
        real = torch.arange(batch.input_ids.shape[1], device=runtime.device) < batch.lengths[:, None]
        with runtime.autocast():
            states = encoder.hidden_states(batch.input_ids, batch.token_type_ids, batch.attention_mask)
            for depth, hidden in enumerate(states):
                mean = (hidden.float() * real[..., None]).sum(1) / batch.lengths[:, None]
                means[depth, rows] = mean.cpu().numpy()
    return means


def build_search(task: TextClassification, penalties: tuple[float, ...]) -> GridSearchCV:
    """Build logistic or ridge regression on standardized features, with cross-validation of the penalty by the task's metric.

    For Matthews correlation, which is 0 for a model that always predicts the majority class, classes have equal weights.
    """
    metric = METRICS[task.main_metric]
    scorer = make_scorer(lambda targets, predicted: metric(predicted, targets))
    weights = "balanced" if task.main_metric == "matthews" else None
    if task.labels:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500, tol=1e-3, class_weight=weights))
        grid = {"logisticregression__C": [1 / penalty for penalty in penalties]}
    else:
        model, grid = make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": list(penalties)}
    return GridSearchCV(model, grid, scoring=scorer, cv=FOLDS)
