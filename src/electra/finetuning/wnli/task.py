"""WNLI by candidate antecedents (Appendix B): the discriminator scores each candidate in the place of the pronoun.

The discriminator reads the premise with the pronoun replaced by a candidate, and computes whether the candidate's tokens are
original or replaced. It is fine-tuned with the loss of pre-training on these tokens: those of the correct antecedent are
original, those of wrong ones replaced. A false hypothesis excludes only one antecedent, but can be trained on in this way; the
margin loss of Liu et al. (2019) needs the correct one. Without fine-tuning, the model predicts zero-shot.

Shapes: B substitutions, L tokens, H hidden size, N pairs of a split.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from electra.errors import DataError, UsageError
from electra.finetuning.batching import IGNORED, EncodedExamples, LabeledBatch
from electra.finetuning.classification.task import LabeledTexts
from electra.finetuning.recipe import TEXTS
from electra.finetuning.task import Outputs, Prediction
from electra.finetuning.wnli.schemas import Schema, find_candidates, find_schema
from electra.model.checkpoints import Pretrained
from electra.model.encoder import EncoderConfig
from electra.model.heads import ReplacedTokenHead
from electra.text.tokenizer import Tokenizer

ORIGINAL, REPLACED = 0, 1


@dataclass(frozen=True)
class Pair:
    """A row of WNLI."""

    premise: str
    hypothesis: str
    label: int | None
    """1: entailed, 0: not entailed; None: unknown."""
    place: str
    """Split and number of the row, from 1, for messages."""


@dataclass(frozen=True)
class Substitution:
    """A premise in which a candidate replaces the pronoun."""

    pair: int
    """Index of the pair in its split."""
    input_ids: list[int]
    positions: range
    """Positions of the candidate's tokens in `input_ids`."""
    target: int | None
    """ORIGINAL or REPLACED; None if unknown."""


def read_pairs(texts: LabeledTexts, split: str) -> list[Pair]:
    """Convert a split of GLUE's task to pairs."""
    labels = [None] * len(texts) if texts.labels is None else texts.labels.tolist()
    rows = zip(texts.first, texts.second or (), labels, strict=True)
    return [Pair(*row, f"wnli: row {number} of {split}") for number, row in enumerate(rows, 1)]


class WnliHead(ReplacedTokenHead):
    """The discriminator's head, so that a fine-tuned model is an `ElectraForPreTraining`.

    Args:
        hidden_size: Hidden size of the encoder.
        weights: See `load_pretrained_head`; None: random weights.
    """

    only_cls = False

    def __init__(self, hidden_size: int, weights: Mapping[str, Tensor] | None) -> None:
        super().__init__(hidden_size)
        for layer in (self.dense, self.score):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        if weights is not None:
            self.load_state_dict(weights)

    def loss(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Compute the mean binary cross-entropy of the candidate's tokens; 0 if the target of the candidate is unknown."""
        targets = batch.targets["replaced"]
        has_target = (targets != IGNORED).float()
        losses = F.binary_cross_entropy_with_logits(self(hidden), targets.clamp(min=0).float(), reduction="none")
        # In dev, the other candidates of a false pair have no target.
        return (losses * has_target).sum(1) / has_target.sum(1).clamp(min=1)

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute `replaced` [B, L]: the logit of each token, positive for "replaced"."""
        return {"replaced": self(hidden)}


def load_pretrained_head(pretrained: Pretrained) -> dict[str, Tensor]:
    """Return the weights of a discriminator's head by name, without the prefix `head.`.

    Raises:
        ModelError: the model has no discriminator head.
    """
    state = pretrained.state("replaced-token")
    return {name.removeprefix("head."): weight for name, weight in state.items() if name.startswith("head.")}


class WnliCandidates:
    """WNLI by candidate antecedents; implements `task.Task`. The examples are substitutions, one or more per pair.

    The first substitution of a pair has the antecedent of its hypothesis, the others have other candidates, which are found by
    rules (see `schemas`). For a true hypothesis, the target of its antecedent is "original", that of the other candidates
    "replaced". For a false one, the target of its antecedent is "replaced" and that of the others unknown, so that train does
    not have them.

    The score of a candidate is the mean logit of "original" over its tokens. A hypothesis is predicted to be entailed if its
    antecedent has the highest score or, without other candidates, a positive one. A pair in which the pronoun is not found is
    predicted as not entailed.

    Args:
        splits: Pairs of "train", "dev" and "test".
        tokenizer: Tokenizer of the model.
        head_weights: See `load_pretrained_head`; None: the head has random weights, and zero-shot predictions have no meaning.
        max_length: Maximum tokens of a substitution.

    Raises:
        DataError: train or dev has no labels, or a substitution has more than `max_length` tokens.
    """

    name = "wnli-candidates"
    main_metric = "accuracy"
    scored_splits = ("dev",)

    def __init__(
        self,
        splits: Mapping[str, Sequence[Pair]],
        tokenizer: Tokenizer,
        head_weights: Mapping[str, Tensor] | None = None,
        max_length: int = TEXTS.max_length,
    ) -> None:
        self.predicted_splits = tuple(split for split in splits if split == "test")
        self._splits = splits
        self.tokenizer = tokenizer
        self._head_weights = head_weights
        self._max_length = max_length
        self._get_schemas = cache(self._find_schemas)
        self._get_substitutions = cache(self._build_substitutions)
        for split in splits.keys() & {"train", "dev"}:
            check_labeled(splits[split], split)
        for split in splits:
            self._get_substitutions(split)  # finds errors before training

    def build_head(self, encoder: EncoderConfig) -> nn.Module:
        """See `task.Task`; the head has the pre-trained weights, if there are any.

        Raises:
            UsageError: the encoder has fewer positions than `max_length`.
        """
        if self._max_length > encoder.max_positions:
            raise UsageError(
                "longer-than-model",
                f"max_length {self._max_length} is more than the {encoder.max_positions} positions of the model",
            )
        return WnliHead(encoder.hidden_size, self._head_weights)

    def encode(self, split: str) -> EncodedExamples:
        """Return the substitutions of a split; the target "replaced" is 0 or 1 at the candidate's tokens.

        Raises:
            DataError: there is no such split.
        """
        substitutions = self._get_substitutions(split)
        input_ids = [substitution.input_ids for substitution in substitutions]
        targets = {} if split == "test" else {"replaced": [build_token_targets(each) for each in substitutions]}
        return EncodedExamples(input_ids, [len(ids) for ids in input_ids], targets)

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Compute the accuracy over all pairs, and the share of pairs in which the pronoun was found, in percent.

        Raises:
            DataError: the split is missing or has no labels.
        """
        check_labeled(self.get_pairs(split), split)
        predictions, pairs = self.format_predictions(split, outputs), self.get_pairs(split)
        correct = sum(prediction["label"] == pair.label for prediction, pair in zip(predictions, pairs, strict=True))
        found = sum(prediction["antecedent"] is not None for prediction in predictions)
        return {"accuracy": 100 * correct / len(pairs), "pronoun_found": 100 * found / len(pairs)}

    def format_predictions(self, split: str, outputs: Outputs) -> list[Prediction]:
        """Format the label of every pair with the scores that it follows from; see `label_pair`."""
        scores: list[list[float]] = [[] for _ in self.get_pairs(split)]
        for substitution, output in zip(self._get_substitutions(split), outputs, strict=True):
            positions = substitution.positions
            scores[substitution.pair].append(-float(output["replaced"][positions.start : positions.stop].mean()))
        labels = [label_pair(*each) for each in zip(self._get_schemas(split), scores, strict=True)]
        return [{"id": str(number), **label} for number, label in enumerate(labels)]

    def get_logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N 2"]:
        """Return for every pair 0 and the score of its antecedent minus the one that it must exceed for entailment."""
        margins = [
            -np.inf if prediction["score"] is None else prediction["score"] - (prediction["rival"] or 0.0)
            for prediction in self.format_predictions(split, outputs)
        ]
        return np.stack([np.zeros(len(margins)), margins], axis=1)

    def get_settings(self) -> Mapping[str, Any]:
        """See `task.Task`."""
        return {"task": self.name, "max_length": self._max_length}

    def get_pairs(self, split: str) -> Sequence[Pair]:
        """Return the pairs of a split."""
        if split not in self._splits:
            raise DataError(
                "missing-split", f"{self.name}: there is no {split} split; it has {', '.join(self._splits) or 'none'}"
            )
        return self._splits[split]

    def _find_schemas(self, split: str) -> list[Schema | None]:
        return [find_schema(pair.premise, pair.hypothesis) for pair in self.get_pairs(split)]

    def _build_substitutions(self, split: str) -> list[Substitution]:
        substitutions = []
        for number, (pair, schema) in enumerate(zip(self.get_pairs(split), self._get_schemas(split), strict=True)):
            if schema is None:
                continue
            target = None if pair.label is None else ORIGINAL if pair.label else REPLACED
            others = [] if split == "train" and not pair.label else find_candidates(schema)
            targets = [(schema.antecedent, target), *((phrase, REPLACED if pair.label else None) for phrase in others)]
            of_pair = [self._substitute(number, schema, phrase, target) for phrase, target in targets]
            longest = max(len(substitution.input_ids) for substitution in of_pair)
            if longest > self._max_length:
                raise DataError(
                    "too-long", f"{pair.place}: {longest} tokens, more than max_length {self._max_length}; raise it"
                )
            substitutions += of_pair
        return substitutions

    def _substitute(self, number: int, schema: Schema, phrase: str, target: int | None) -> Substitution:
        pieces = [schema.premise[: schema.start], schema.format_replacement(phrase), schema.premise[schema.end :]]
        before, middle, after = self.tokenizer.encode_lines(pieces)
        ids = [self.tokenizer.cls_id, *before, *middle, *after, self.tokenizer.sep_id]
        return Substitution(number, ids, range(1 + len(before), 1 + len(before) + len(middle)), target)


def label_pair(schema: Schema | None, scores: Sequence[float]) -> dict[str, Any]:
    """Predict the label of a pair from its schema and the scores of its substitutions, that of its antecedent first.

    Returns:
        `label`: 1 (entailed) or 0; `antecedent`, `score` and `rival`: the antecedent, its score, and the best score of the
        other candidates; None if there is none.
    """
    if schema is None:
        return {"label": 0, "antecedent": None, "score": None, "rival": None}
    rival = max(scores[1:], default=None)
    entailed = scores[0] > (0.0 if rival is None else rival)
    return {"label": int(entailed), "antecedent": schema.antecedent, "score": scores[0], "rival": rival}


def build_token_targets(substitution: Substitution) -> list[int]:
    """Return the target of each token: that of the candidate at its tokens, IGNORED elsewhere and if it is unknown."""
    target = IGNORED if substitution.target is None else substitution.target
    return [target if i in substitution.positions else IGNORED for i in range(len(substitution.input_ids))]


def check_labeled(pairs: Sequence[Pair], split: str) -> None:
    """Check that all pairs of a split have labels.

    Raises:
        DataError: a pair has none.
    """
    for pair in pairs:
        if pair.label is None:
            raise DataError("missing-label", f"{pair.place}: a pair of {split} without a label")
