"""WNLI by the trick of the paper's Appendix B: which antecedent, put in the pronoun's place, looks least replaced?

The discriminator reads the premise with the pronoun replaced by a candidate and scores the candidate's tokens. It is
fine-tuned so that the correct antecedent's tokens score as original and those of wrong ones as replaced: the loss is
that of pre-training, on these tokens alone. So wrong hypotheses teach too, of which one only knows what the pronoun is
not; the margin loss of Liu et al. (2019) has no use for them. Untrained, the same model predicts zero-shot.

Shapes: B substituted premises, L tokens, H hidden size.
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
from electra.finetuning.batching import IGNORED, Features, LabeledBatch
from electra.finetuning.classification.task import Sentences
from electra.finetuning.classification.wnli_schemas import Schema, candidates, find_schema
from electra.finetuning.task import Outputs
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
    """1: the hypothesis follows; None where it is not known."""
    place: str
    """For messages."""


@dataclass(frozen=True)
class Substitution:
    """A premise with a candidate in the pronoun's place."""

    pair: int
    ids: list[int]
    span: range
    """Positions of the candidate's tokens in `ids`."""
    target: int | None
    """ORIGINAL or REPLACED; None where it is not known."""


def pairs_of(sentences: Sentences, split: str) -> list[Pair]:
    """The rows of a split of the task as GLUE has it."""
    labels = [None] * len(sentences) if sentences.labels is None else sentences.labels.tolist()
    rows = zip(sentences.first, sentences.second or (), labels, strict=True)
    return [Pair(*row, f"wnli: row {number} of {split}") for number, row in enumerate(rows, 1)]


class WnliHead(ReplacedTokenHead):
    """The discriminator's own head, so that a trained model is still an `ElectraForPreTraining`."""

    only_cls = False

    def __init__(self, hidden_size: int, weights: Mapping[str, Tensor] | None) -> None:
        super().__init__(hidden_size)
        for layer in (self.dense, self.score):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        if weights is not None:
            self.load_state_dict(weights)

    def loss(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Mean over the candidate's tokens of the cross-entropy of "original" or "replaced"."""
        targets = batch.targets["replaced"]
        counted = (targets != IGNORED).float()
        losses = F.binary_cross_entropy_with_logits(self(hidden), targets.clamp(min=0).float(), reduction="none")
        # In dev, what is not known of a false pair's rivals has no target at all.
        return (losses * counted).sum(1) / counted.sum(1).clamp(min=1)

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """`replaced` [B, L]: the logit of every token; positive says "replaced"."""
        return {"replaced": self(hidden)}


def pretrained_head(pretrained: Pretrained) -> dict[str, Tensor]:
    """The weights of a discriminator's head, for `Wnli`. Raises ModelError where the model has none."""
    state = pretrained.state("ElectraForPreTraining")
    return {name.removeprefix("head."): weight for name, weight in state.items() if name.startswith("head.")}


class Wnli:
    """A `Task` over the pairs of each split; its features are substitutions, one or several for each pair.

    The first of a pair is the antecedent that its hypothesis names, the others are rivals found by rule
    (`wnli_schemas`). A true hypothesis makes its antecedent original and the rivals replaced; of a false one only its
    own antecedent is trained, as replaced, so train has no rivals there. A hypothesis follows if its antecedent's
    score, the mean logit of "original" over its tokens, is the highest; without rivals, if it is positive. A pair
    whose pronoun is not found counts as not following.

    `head_weights` are `pretrained_head`'s: from fresh ones, nothing can be said zero-shot.

    Raises:
        DataError: train or dev without labels, or a premise of more than `max_length` tokens.
    """

    name = "wnli"
    main_metric = "accuracy"
    scored = ("dev",)

    def __init__(
        self,
        splits: Mapping[str, Sequence[Pair]],
        tokenizer: Tokenizer,
        head_weights: Mapping[str, Tensor] | None = None,
        max_length: int = 256,
    ) -> None:
        self.predicted = tuple(split for split in splits if split == "test")
        self._splits = splits
        self._tokenizer = tokenizer
        self._head_weights = head_weights
        self._max_length = max_length
        self._schemas = cache(self._schemas_of)
        self._substitutions = cache(self._substitutions_of)
        for split in splits.keys() & {"train", "dev"}:
            check_labeled(splits[split], split)
        for split in splits:
            self._substitutions(split)

    def head(self, encoder: EncoderConfig) -> nn.Module:
        """A `WnliHead` with the pre-trained weights, or a fresh one where there are none.

        Raises:
            UsageError: the encoder has fewer positions than `max_length`.
        """
        if self._max_length > encoder.max_positions:
            raise UsageError(
                f"max_length {self._max_length} is more than the {encoder.max_positions} positions of the model"
            )
        return WnliHead(encoder.hidden_size, self._head_weights)

    def features(self, split: str) -> Features:
        """The substitutions of a split; target "replaced" at the candidate's tokens.

        Raises:
            DataError: there is no such split.
        """
        rows = self._substitutions(split)
        ids = [row.ids for row in rows]
        targets = {} if split == "test" else {"replaced": [token_targets(row) for row in rows]}
        return Features(ids, [len(sequence) for sequence in ids], targets)

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Accuracy over all pairs in percent, and the share of pairs in which the pronoun was found.

        Raises:
            DataError: the split has no labels.
        """
        check_labeled(self._pairs(split), split)
        rows = self.predictions(split, outputs)
        right = [row["label"] == pair.label for row, pair in zip(rows, self._pairs(split), strict=True)]
        found = [row["antecedent"] is not None for row in rows]
        return {"accuracy": 100 * sum(right) / len(rows), "pronoun_found": 100 * sum(found) / len(rows)}

    def predictions(self, split: str, outputs: Outputs) -> list[dict[str, Any]]:
        """For every pair its label, the antecedent it is about, its score and the best rival's (None: there is none)."""
        scores: list[list[float]] = [[] for _ in self._pairs(split)]
        for row, output in zip(self._substitutions(split), outputs, strict=True):
            scores[row.pair].append(-float(output["replaced"][row.span.start : row.span.stop].mean()))
        verdicts = [verdict(schema, mine) for schema, mine in zip(self._schemas(split), scores, strict=True)]
        return [{"id": str(number), **each} for number, each in enumerate(verdicts)]

    def logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N 2"]:
        """Of every pair 0, and how far its antecedent's score lies above what it must exceed to follow."""
        margins = [
            -np.inf if row["score"] is None else row["score"] - (row["rival"] or 0.0)
            for row in self.predictions(split, outputs)
        ]
        return np.stack([np.zeros(len(margins)), margins], axis=1)

    def settings(self) -> Mapping[str, Any]:
        """The longest premise that is read."""
        return {"max_length": self._max_length}

    def _pairs(self, split: str) -> Sequence[Pair]:
        if split not in self._splits:
            raise DataError(f"wnli: there is no {split} split; it has {', '.join(self._splits) or 'none'}")
        return self._splits[split]

    def _schemas_of(self, split: str) -> list[Schema | None]:
        return [find_schema(pair.premise, pair.hypothesis) for pair in self._pairs(split)]

    def _substitutions_of(self, split: str) -> list[Substitution]:
        rows = []
        for number, (pair, schema) in enumerate(zip(self._pairs(split), self._schemas(split), strict=True)):
            if schema is None:
                continue
            own = None if pair.label is None else ORIGINAL if pair.label else REPLACED
            rivals = [] if split == "train" and not pair.label else candidates(schema)
            targets = [(schema.antecedent, own), *((phrase, REPLACED if pair.label else None) for phrase in rivals)]
            mine = [self._substitution(number, schema, phrase, target) for phrase, target in targets]
            longest = max(len(row.ids) for row in mine)
            if longest > self._max_length:
                raise DataError(f"{pair.place}: {longest} tokens, more than max_length {self._max_length}; raise it")
            rows += mine
        return rows

    def _substitution(self, number: int, schema: Schema, phrase: str, target: int | None) -> Substitution:
        pieces = [schema.premise[: schema.start], schema.substitute(phrase), schema.premise[schema.end :]]
        before, middle, after = self._tokenizer.encode_lines(pieces)
        ids = [self._tokenizer.cls_id, *before, *middle, *after, self._tokenizer.sep_id]
        return Substitution(number, ids, range(1 + len(before), 1 + len(before) + len(middle)), target)


def verdict(schema: Schema | None, scores: Sequence[float]) -> dict[str, Any]:
    """What the scores of a pair's substitutions say, its own antecedent's first; there are none without a schema."""
    if schema is None:
        return {"label": 0, "antecedent": None, "score": None, "rival": None}
    rival = max(scores[1:], default=None)
    follows = scores[0] > (0.0 if rival is None else rival)
    return {"label": int(follows), "antecedent": schema.antecedent, "score": scores[0], "rival": rival}


def token_targets(row: Substitution) -> list[int]:
    """The target at the candidate's tokens; all ignored where it is not known."""
    return [row.target if row.target is not None and i in row.span else IGNORED for i in range(len(row.ids))]


def check_labeled(pairs: Sequence[Pair], split: str) -> None:
    """Every pair has a label."""
    for pair in pairs:
        if pair.label is None:
            raise DataError(f"{pair.place}: a pair of {split} without a label")
