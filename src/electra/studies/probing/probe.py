"""A linear probe of a frozen encoder: what its hidden states hold, without the luck of fine-tuning on little data."""

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
"""L2 penalties; the middle one serves where layers are compared."""
FOLDS = 3
ROWS = 64
SUBSET_SEED = 20_200_326
"""Decides which training examples are taken; not the run's seed, so that runs can be compared."""


@dataclass(frozen=True)
class ProbeScores:
    """The task's main metric on dev, in percent."""

    last: float
    """Of the last layer."""
    best: float
    """Of the layer that is best in cross-validation on the training examples."""
    layer: int
    """That layer; 0 are the embeddings."""


def probe(model: Path, glue: str, task: str, *, max_length: int, most: int, device: RuntimeConfig) -> ProbeScores:
    """Fit linear models to mean-pooled hidden states of `task`'s training examples, score them on dev.

    The last layer of a network is shaped by what it was trained to say: a masked language model's must know the
    token, a discriminator's need not. So the best layer, chosen without dev, stands beside it.

    A pair is encoded one sentence at a time, as (u, v, |u - v|, u * v). A frozen encoder was never taught to
    compare two segments, and one sentence at a time fits the lengths that it was trained on.

    Args:
        model: Hugging Face ELECTRA directory.
        glue: Folder in GLUE's layout, or hf://nyu-mll/glue.
        task: A task of GLUE.
        max_length: Tokens of a sentence; positions that pre-training never saw mean nothing, so the rest is cut.
        most: Training examples at most.
        device: Where to encode.

    Raises:
        DataError, ModelError: a file is missing or broken.
    """
    encoder, tokenizer = frozen_encoder(model)
    over = load_glue_task(task, glue, tokenizer)
    train, dev = subset(over.read("train"), most), over.read("dev")
    targets = dev.labels
    assert targets is not None
    with start_runtime(device) as runtime:
        encoder.to(runtime.device)
        known, unknown = (features(encoder, tokenizer, each, max_length, runtime) for each in (train, dev))

    def score(layer: int) -> float:
        predicted = search(over, PENALTIES).fit(known[layer], train.labels).predict(unknown[layer])
        return 100 * METRICS[over.main_metric](predicted, targets)

    middle = PENALTIES[len(PENALTIES) // 2]
    validated = [search(over, (middle,)).fit(each, train.labels).best_score_ for each in known]
    best = int(np.argmax(validated))
    last = score(len(known) - 1)
    return ProbeScores(last, last if best == len(known) - 1 else score(best), best)


def frozen_encoder(model: Path) -> tuple[Encoder, Tokenizer]:
    """The encoder of a Hugging Face directory, without dropout, and its tokenizer."""
    tokenizer, pretrained = load_tokenizer(model), load_pretrained(model)
    encoder = Encoder(pretrained.config)
    state = pretrained.state("ElectraModel")
    encoder.load_state_dict({name.removeprefix("encoder."): tensor for name, tensor in state.items()})
    return encoder.eval(), tokenizer


def sample_indices(number: int, most: int) -> Int64[np.ndarray, " M"]:
    """At most so many of a number of rows, in their order, always the same ones."""
    return np.sort(np.random.Generator(np.random.PCG64(SUBSET_SEED)).permutation(number)[:most])


def subset(sentences: LabeledTexts, most: int) -> LabeledTexts:
    """At most so many examples, always the same ones."""
    if len(sentences) <= most:
        return sentences
    assert sentences.labels is not None
    rows = sample_indices(len(sentences), most)
    second = sentences.second and [sentences.second[i] for i in rows]
    return replace(sentences, first=[sentences.first[i] for i in rows], second=second, labels=sentences.labels[rows])


def features(
    encoder: Encoder, tokenizer: Tokenizer, sentences: LabeledTexts, max_length: int, runtime: Runtime
) -> list[Float[np.ndarray, "N F"]]:
    """The features of every example, for the embeddings and for each layer."""
    first = mean_states(encoder, tokenizer, sentences.first, max_length, runtime)
    if sentences.second is None:
        return list(first)
    second = mean_states(encoder, tokenizer, sentences.second, max_length, runtime)
    return [np.concatenate([u, v, np.abs(u - v), u * v], axis=1) for u, v in zip(first, second, strict=True)]


@torch.inference_mode()
def mean_states(
    encoder: Encoder, tokenizer: Tokenizer, texts: list[str], max_length: int, runtime: Runtime
) -> Float[np.ndarray, "K N H"]:
    """Hidden states after the embeddings and each layer, as means over the tokens of each `[CLS] text [SEP]`."""
    ids, segment_a, _ = encode_pairs(tokenizer, texts, None, max_length)
    order = np.argsort([len(row) for row in ids], kind="stable")
    means = np.empty((len(encoder.layers) + 1, len(ids), encoder.config.hidden_size), dtype=np.float32)
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        batch = pad_batch([ids[i] for i in rows], [segment_a[i] for i in rows], tokenizer.pad_id).to(runtime.device)
        real = torch.arange(batch.input_ids.shape[1], device=runtime.device) < batch.lengths[:, None]
        with runtime.autocast():
            states = encoder.hidden_states(batch.input_ids, batch.token_type_ids, batch.attention_mask)
            for depth, hidden in enumerate(states):
                mean = (hidden.float() * real[..., None]).sum(1) / batch.lengths[:, None]
                means[depth, rows] = mean.cpu().numpy()
    return means


def search(task: TextClassification, penalties: tuple[float, ...]) -> GridSearchCV:
    """Logistic or ridge regression on standardized features; cross-validation by the task's metric finds the penalty.

    Matthews correlation is 0 for whoever always says the majority, so there both classes weigh the same.
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
