"""A linear probe of every word's tag: what a frozen encoder knows of words in their context.

Sentence tasks ask little of a weak encoder that its embeddings do not know. Which kind of phrase a word begins or goes on
with (CoNLL-2000) is told by its neighbors, the first that a network learns of.
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
from electra.finetuning.tagging.windows import split_into_windows
from electra.model.encoder import Encoder
from electra.runtime.setup import Runtime, RuntimeConfig, start_runtime
from electra.studies.probing.probe import FOLDS, PENALTIES, ROWS, frozen_encoder, sample_indices
from electra.text.tokenizer import Tokenizer

SENTENCES = 1_000
"""Of each split at most, some 24,000 words: five times as many for training change nothing that shows (docs/research/log)."""


@dataclass(frozen=True)
class TagProbeScores:
    """Share of the words of the scored split whose tag is found, in percent."""

    layers: tuple[float, ...]
    """Of the embeddings, which know a word's first token and its place, and of each layer."""
    layer: int
    """The one that is best in cross-validation on the training sentences; 0 are the embeddings."""
    folder: str
    split: str
    """The split that is scored: dev, or test where there is no dev."""


def probe_tags(model: Path, folder: str, *, max_length: int, device: RuntimeConfig) -> TagProbeScores:
    """Fit a ridge classifier to the hidden states of words, each where its first token stands.

    Args:
        model: Hugging Face ELECTRA directory.
        folder: Files train and dev or test, as `electra finetune tagging` reads them.
        max_length: Tokens of a window; a longer sentence is read in several, as in fine-tuning.
        device: Where to encode.

    Raises:
        DataError, ModelError: a file is missing or broken.
    """
    known, split, unknown = tagged_splits(folder)
    encoder, tokenizer = frozen_encoder(model)
    with start_runtime(device) as runtime:
        encoder.to(runtime.device)
        states, tags, groups = word_states(encoder, tokenizer, known, max_length, runtime)
        asked, expected, _ = word_states(encoder, tokenizer, unknown, max_length, runtime)
    scores, validated = [], []
    for of_known, of_unknown in zip(states, asked, strict=True):
        # In float64: the numbers of a LayerNorm depend on each other, which float32 takes for a singular matrix.
        fitted = search().fit(of_known.astype(np.float64), tags, groups=groups)
        scores.append(100 * float(fitted.score(of_unknown.astype(np.float64), expected)))
        validated.append(fitted.best_score_)
    return TagProbeScores(tuple(scores), int(np.argmax(validated)), folder, split)


def tagged_splits(folder: str) -> tuple[list[Sentence], str, list[Sentence]]:
    """The sentences to train on; the split to score, dev, or test where there is no dev, and its sentences.

    Of both at most SENTENCES, always the same ones.

    Raises:
        DataError: a file is missing or broken, a sentence has no tags, or there are too few.
    """
    found = find_splits(Path(folder))
    scored = next((split for split in ("dev", "test") if split in found), None)
    if "train" not in found or scored is None:
        raise DataError(f"{folder}: a probe of tags needs train, and dev or test; there is {' and '.join(found)}")
    splits = {split: read_sentences(found[split]) for split in ("train", scored)}
    for sentence in chain.from_iterable(splits.values()):
        if sentence.tags is None:
            raise DataError(f"{sentence.place}: no tags; a probe of tags needs a column or a field of them")
    if len(splits["train"]) < FOLDS:
        raise DataError(f"{found['train']}: only {len(splits['train'])} sentences; cross-validation needs {FOLDS}")
    known, unknown = ([each[i] for i in sample_indices(len(each), SENTENCES)] for each in splits.values())
    return known, scored, unknown


@torch.inference_mode()
def word_states(
    encoder: Encoder, tokenizer: Tokenizer, sentences: Sequence[Sentence], max_length: int, runtime: Runtime
) -> tuple[list[Float[np.ndarray, "W H"]], list[str], list[int]]:
    """For the embeddings and for each layer the states of all words; their tags, and the numbers of their sentences."""
    windows = sorted(split_into_windows(sentences, tokenizer, max_length), key=lambda window: len(window.input_ids))
    words = [(window.sentence, word) for window in windows for word in window.scored]
    states = [np.empty((len(words), encoder.config.hidden_size), np.float32) for _ in range(len(encoder.layers) + 1)]
    done = 0
    for start in range(0, len(windows), ROWS):
        some = windows[start : start + ROWS]
        batch = pad_batch([each.input_ids for each in some], [len(each.input_ids) for each in some], tokenizer.pad_id)
        batch = batch.to(runtime.device)
        rows = np.repeat(np.arange(len(some)), [len(each.scored) for each in some])
        positions = [position for each in some for position in each.scored.values()]
        with runtime.autocast():
            of_batch = encoder.hidden_states(batch.input_ids, batch.token_type_ids, batch.attention_mask)
            for layer, hidden in zip(states, of_batch, strict=True):
                layer[done : done + len(rows)] = hidden[rows, positions].float().cpu()
        done += len(rows)
    tags = [(sentences[sentence].tags or ())[word] for sentence, word in words]
    return states, tags, [sentence for sentence, _ in words]


def search() -> GridSearchCV:
    """Ridge classification of standardized states; the penalty is found in cross-validation, sentences kept whole."""
    model = make_pipeline(StandardScaler(), RidgeClassifier())
    return GridSearchCV(model, {"ridgeclassifier__alpha": list(PENALTIES)}, cv=GroupKFold(FOLDS))
