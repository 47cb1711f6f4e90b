"""Contrastive training of sentence vectors, and their scores."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import nn

from electra.config.checks import check_choice
from electra.errors import UsageError
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.classification.baselines import WORDS
from electra.finetuning.classification.metrics import compute_scores
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.embedding.data import (
    TextGroups,
    hold_out_groups,
    read_similarities,
    read_training_texts,
    require_negatives,
)
from electra.finetuning.embedding.heads import EmbeddingHead
from electra.finetuning.embedding.inference import SavedEmbedding, encode_texts, stack_vectors
from electra.finetuning.embedding.sentence_transformers import POOLING_MODES, write_modules
from electra.finetuning.recipe import VECTORS
from electra.finetuning.splits import get_split_files
from electra.finetuning.task import HuggingFaceHead, Outputs, Prediction, TaskSpec
from electra.model.checkpoints import Pretrained
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

CORRELATIONS = ("spearman", "pearson")
RANKED_AT_A_TIME = 256
"""Anchors whose similarities to all candidates are in memory at a time."""


@dataclass(frozen=True)
class SentenceVectors:
    """Sentence vectors; implements `task.Task`.

    The scored split is `dev`, a file with similarities or groups of texts held out from the training ones, or `held_out`,
    single texts that were held out.
    """

    name: str
    splits: Mapping[str, TextGroups]
    """`train` and the scored split."""
    tokenizer: Tokenizer
    max_length: int
    pooling: str
    temperature: float
    predicted_splits: tuple[str, ...] = ()
    """See `task.Task`."""

    @property
    def scored_splits(self) -> tuple[str, ...]:
        """See `task.Task`."""
        return tuple(split for split in self.splits if split != "train")

    @property
    def main_metric(self) -> str:
        """See `task.Task`."""
        scored = self.splits[self.scored_splits[0]]
        if scored.scores is not None:
            return CORRELATIONS[0]
        return "cosine_distance" if scored.size == 1 else "accuracy"

    def build_head(self, encoder: EncoderConfig) -> nn.Module:
        """See `task.Task`."""
        return EmbeddingHead(encoder.hidden_size, self.pooling, self.temperature)

    def encode(self, split: str) -> EncodedExamples:
        """See `task.Task`. A single text to train on is encoded twice; dropout makes its vectors differ.

        Raises:
            DataError: a text is empty.
        """
        groups = self.splits[split]
        texts = [text for group in groups.texts for text in group]
        places = [place for place in groups.places for _ in range(groups.size)]
        encoded = encode_texts(self.tokenizer, texts, places, self.max_length)
        encoded = replace(encoded, counts={**encoded.counts, **groups.counts}, group_size=groups.size)
        if split != "train" or groups.size > 1:
            return encoded
        input_ids = [ids for ids in encoded.input_ids for _ in range(2)]
        segment_a = [length for length in encoded.segment_a for _ in range(2)]
        return replace(encoded, input_ids=input_ids, segment_a=segment_a, group_size=2)

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """See `task.Task`.

        Returns:
            Correlations of the cosine similarities with those of the file; else `accuracy`, how often the positive of an
            anchor is the most similar one of all held-out candidates; else `cosine_distance`, the mean one of two texts.
        """
        vectors, groups = stack_vectors(outputs), self.splits[split]
        if groups.scores is not None:
            return compute_scores(CORRELATIONS, compute_similarities(vectors), groups.scores)
        if groups.size == 1:
            return {"cosine_distance": 100 * compute_mean_distance(vectors[:, 0])}
        return {"accuracy": 100 * compute_accuracy(vectors)}

    def format_predictions(self, split: str, outputs: Outputs) -> list[Prediction]:
        """See `task.Task`: the cosine similarity of the first two texts; none for single texts."""
        if self.splits[split].size == 1:
            return []
        similarities = compute_similarities(stack_vectors(outputs)).tolist()
        return [{"id": str(i), "similarity": similarity} for i, similarity in enumerate(similarities)]

    def get_logits(self, split: str, outputs: Outputs) -> None:
        """See `task.Task`."""
        return None

    def get_settings(self) -> Mapping[str, Any]:
        """See `task.Task`."""
        return asdict(SavedEmbedding(self.name, self.max_length, self.pooling))


def compute_similarities(vectors: Float[np.ndarray, "N G H"]) -> Float[np.ndarray, " N"]:
    """Compute the cosine similarity of the first two texts of each group, whose vectors have norm 1."""
    first, second = vectors[:, 0].astype(np.float64), vectors[:, 1].astype(np.float64)
    return (first * second).sum(1)


def compute_accuracy(vectors: Float[np.ndarray, "N G H"]) -> float:
    """Compute the share of anchors to which no second or third text of any group is more similar than their positive."""
    anchors, candidates = vectors[:, 0], vectors[:, 1:].reshape(-1, vectors.shape[2])
    positives, correct = np.arange(len(anchors)) * (vectors.shape[1] - 1), 0
    for start in range(0, len(anchors), RANKED_AT_A_TIME):
        similarity = anchors[start : start + RANKED_AT_A_TIME] @ candidates.T
        own = similarity[np.arange(len(similarity)), positives[start : start + RANKED_AT_A_TIME]]
        correct += int((own >= similarity.max(1)).sum())
    return correct / len(anchors)


def compute_mean_distance(vectors: Float[np.ndarray, "N H"]) -> float:
    """Compute the mean of 1 - cosine similarity over all pairs of different vectors, which have norm 1."""
    number, total = len(vectors), vectors.astype(np.float64).sum(0)
    return float(1 - (total @ total - number) / (number * (number - 1)))


def score_tf_idf(task: SentenceVectors, split: str) -> dict[str, dict[str, float]]:
    """Compute the correlations of the cosine similarity of TF-IDF, fitted to the training texts, if the split has scores."""
    groups = task.splits[split]
    if groups.scores is None:
        return {}
    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=WORDS)
    try:
        vectorizer.fit(text for texts in task.splits["train"].texts for text in texts)
    except ValueError:  # an empty vocabulary
        return {}
    first, second = (vectorizer.transform([texts[i] for texts in groups.texts]) for i in (0, 1))
    similarities = np.asarray(first.multiply(second).sum(1)).ravel()
    return {"TF-IDF": compute_scores(CORRELATIONS, similarities, groups.scores)}


def build_embedding_task(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> SentenceVectors:
    """Build the task over the texts of --train and the similarities of --dev.

    Raises:
        UsageError: an option is missing, contradicts another one, or leaves nothing to contrast.
        DataError: a file is missing or malformed, or there is nothing to contrast.
    """
    pooling = config.pooling or VECTORS.pooling or ""
    check_choice("--pooling", pooling, POOLING_MODES)
    files = get_split_files(config, ": lines of text, or a table")
    train = read_training_texts(config, files["train"])
    require_negatives(train, files["train"])
    if config.batch_size == 1 and train.size < 3:
        raise UsageError("no-negatives", "--batch-size 1: the other texts of a batch are the negatives; give 2 or more")
    if train.size == 1 and math.isclose(config.dropout, 0):
        raise UsageError("no-dropout", "--dropout 0: single texts are trained on by two passes with different dropout")
    if "dev" in files:
        splits = {"train": train, "dev": read_similarities(files["dev"], config.embedding.scored)}
    else:
        train, held_out = hold_out_groups(train, config)
        require_negatives(train, files["train"])
        splits = {"train": train, "held_out" if held_out.size == 1 else "dev": held_out}
    return SentenceVectors(config.task, splits, tokenizer, max_length, pooling, config.embedding.temperature)


EMBEDDING = TaskSpec(
    build=build_embedding_task,
    recipe=VECTORS,
    options=frozenset({"train", "dev", "text", "text_pair", "label", "skip_bad_rows", "pooling", "embedding"}),
    saved=SavedEmbedding,
    predict_options=frozenset({"text"}),
    score_baselines=score_tf_idf,
    export=lambda head, settings: HuggingFaceHead("none", {}),
    write_more=write_modules,
)
