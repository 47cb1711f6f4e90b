"""A linear probe of word tags: what a frozen encoder represents of words in context.

With a weak encoder, sentence tasks depend on little more than its embeddings. A word's chunk tag (CoNLL-2000) depends on its
neighbors, the first context that a network learns to use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from electra.data.loader import pad_batch
from electra.errors import DataError
from electra.finetuning.tagging.data import Sentence, find_splits, read_sentences
from electra.finetuning.tagging.windows import build_windows
from electra.model.encoder import Encoder
from electra.runtime.setup import Runtime, RuntimeConfig, start_runtime
from electra.studies.probing.probe import BATCH_SIZE, FOLDS, PENALTIES, load_frozen_encoder, sample_indices
from electra.text.tokenizer import Tokenizer

MAX_SENTENCES = 1_000
"""Maximum per split, some 24,000 words: five times as many for training make no visible difference (docs/research/log)."""


@dataclass(frozen=True)
class TagProbeScores:
    """Accuracy over the words of the scored split, in percent."""

    layers: tuple[float, ...]
    """Score of the embeddings, which depend on a word's first token and its position, and of each layer."""
    layer: int
    """The layer that is best in cross-validation on the training sentences; 0 are the embeddings."""
    split: str
    """The scored split: dev, or test if there is no dev."""


def probe_tags(model: Path, folder: str, *, max_length: int, device: RuntimeConfig) -> TagProbeScores:
    """Fit a ridge classifier to the hidden states of words, each at its first token.

    Args:
        model: Hugging Face ELECTRA directory.
        folder: Files train and dev or test, as `electra finetune tagging` reads them.
        max_length: Tokens of a window; a longer sentence is split into several windows, as in fine-tuning.
        device: Device of the encoder.

    Raises:
        DataError, ModelError: a file is missing or broken.
    """
    train, split, scored = read_tagged_splits(folder)
    encoder, tokenizer = load_frozen_encoder(model)
    with start_runtime(device) as runtime:
        encoder.to(runtime.device)
        train_states, train_tags, groups = compute_word_states(encoder, tokenizer, train, max_length, runtime)
        scored_states, scored_tags, _ = compute_word_states(encoder, tokenizer, scored, max_length, runtime)
    scores, validation_scores = [], []
    for train_x, scored_x in zip(train_states, scored_states, strict=True):
        # In float64: outputs of a LayerNorm are linearly dependent, so in float32 the matrix is numerically singular.
        fitted = build_search().fit(train_x.astype(np.float64), train_tags, groups=groups)
        scores.append(100 * float(fitted.score(scored_x.astype(np.float64), scored_tags)))
        validation_scores.append(fitted.best_score_)
    return TagProbeScores(tuple(scores), int(np.argmax(validation_scores)), split)


def read_tagged_splits(folder: str) -> tuple[list[Sentence], str, list[Sentence]]:
    """Return the training sentences, the name of the split to score (dev, or test if there is no dev), and its sentences.

    Of both splits at most MAX_SENTENCES, selected with a fixed seed.

    Raises:
        DataError: a file is missing or broken, a sentence has no tags, or there are too few.
    """
    found = find_splits(Path(folder))
    scored = next((split for split in ("dev", "test") if split in found), None)
    if "train" not in found or scored is None:
        raise DataError(
            "missing-split", f"{folder}: the tag probe needs train, and dev or test; found {' and '.join(found)}"
        )
    splits = {split: read_sentences(found[split]) for split in ("train", scored)}
    for sentence in chain.from_iterable(splits.values()):
        if sentence.tags is None:
            raise DataError("no-labels", f"{sentence.place}: no tags; the tag probe needs a column or a field of tags")
    if len(splits["train"]) < FOLDS:
        raise DataError(
            "too-few-rows", f"{found['train']}: only {len(splits['train'])} sentences; cross-validation needs {FOLDS}"
        )
    train, heldout = ([each[i] for i in sample_indices(len(each), MAX_SENTENCES)] for each in splits.values())
    return train, scored, heldout


@torch.inference_mode()
def compute_word_states(
    encoder: Encoder, tokenizer: Tokenizer, sentences: Sequence[Sentence], max_length: int, runtime: Runtime
) -> tuple[list[Float[np.ndarray, "W H"]], list[str], list[int]]:
    """Return the states of all words by layer, embeddings first, with the words' tags and sentence indices."""
    windows = sorted(build_windows(sentences, tokenizer, max_length), key=lambda window: len(window.input_ids))
    words = [(window.sentence, word) for window in windows for word in window.scored_words]
    states = [np.empty((len(words), encoder.config.hidden_size), np.float32) for _ in range(len(encoder.layers) + 1)]
    done = 0
    for start in range(0, len(windows), BATCH_SIZE):
        chunk = windows[start : start + BATCH_SIZE]
        batch = pad_batch([each.input_ids for each in chunk], [len(each.input_ids) for each in chunk], tokenizer.pad_id)
        batch = batch.to(runtime.device)
        rows = np.repeat(np.arange(len(chunk)), [len(each.scored_words) for each in chunk])
        positions = [position for each in chunk for position in each.scored_words.values()]
        with runtime.autocast():
            batch_states = encoder.hidden_states(batch.input_ids, batch.token_type_ids, batch.attention_mask)
            for layer, hidden in zip(states, batch_states, strict=True):
                layer[done : done + len(rows)] = hidden[rows, positions].float().cpu()
        done += len(rows)
    tags = [(sentences[sentence].tags or ())[word] for sentence, word in words]
    return states, tags, [sentence for sentence, _ in words]


def build_search() -> GridSearchCV:
    """Build ridge classification of standardized states, with the penalty from cross-validation grouped by sentence."""
    model = make_pipeline(StandardScaler(), RidgeClassifier())
    return GridSearchCV(model, {"ridgeclassifier__alpha": list(PENALTIES)}, cv=GroupKFold(FOLDS))
