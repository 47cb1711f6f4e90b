"""WNLI by candidate antecedents (Appendix B): the one that, in place of the pronoun, is least classified as replaced.

The discriminator reads the premise with the pronoun replaced by a candidate and scores the candidate's tokens. It is
fine-tuned so that the tokens of the correct antecedent are original and those of wrong ones are replaced: the loss is
that of pre-training, on these tokens alone. So false hypotheses, which only exclude one antecedent, are training data
too; the margin loss of Liu et al. (2019) cannot use them. Before fine-tuning, the same model predicts zero-shot.

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
from electra.finetuning.batching import IGNORED, EncodedExamples, LabeledBatch
from electra.finetuning.classification.glue import build_glue_task, data_folders
from electra.finetuning.classification.task import LabeledTexts
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.recipe import TEXTS
from electra.finetuning.task import HuggingFaceHead, Outputs, Record, TaskSpec
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
    """1: entailed; None where it is unknown."""
    place: str
    """For messages."""


@dataclass(frozen=True)
class Substitution:
    """A premise with a candidate in the pronoun's place."""

    pair: int
    input_ids: list[int]
    span: range
    """Positions of the candidate's tokens in `input_ids`."""
    target: int | None
    """ORIGINAL or REPLACED; None where it is unknown."""


def read_pairs(texts: LabeledTexts, split: str) -> list[Pair]:
    """The rows of a split of GLUE's task."""
    labels = [None] * len(texts) if texts.labels is None else texts.labels.tolist()
    rows = zip(texts.first, texts.second or (), labels, strict=True)
    return [Pair(*row, f"wnli: row {number} of {split}") for number, row in enumerate(rows, 1)]


class WnliHead(ReplacedTokenHead):
    """The head of the discriminator, so that a fine-tuned model is still an `ElectraForPreTraining`."""

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
        # In dev, the rivals of a false pair have no target.
        return (losses * counted).sum(1) / counted.sum(1).clamp(min=1)

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """`replaced` [B, L]: the logit of every token, positive for "replaced"."""
        return {"replaced": self(hidden)}


def load_pretrained_head(pretrained: Pretrained) -> dict[str, Tensor]:
    """The weights of a discriminator's head, for `WnliCandidates`. Raises ModelError where the model has none."""
    state = pretrained.state("replaced-token")
    return {name.removeprefix("head."): weight for name, weight in state.items() if name.startswith("head.")}


class WnliCandidates:
    """The task over the pairs of each split; implements `task.Task`. Its examples are substitutions, one or more per pair.

    The first of a pair is the antecedent that its hypothesis names, the others are rivals found by rule
    (`schemas`). A true hypothesis makes its antecedent original and the rivals replaced; of a false one only its
    own antecedent is trained, as replaced, so train has no rivals there. A hypothesis is entailed if its antecedent's
    score, the mean logit of "original" over its tokens, is the highest; without rivals, if it is positive. A pair
    whose pronoun is not found counts as not entailed.

    `head_weights` are those of `load_pretrained_head`; without them, zero-shot predictions have no meaning.

    Raises:
        DataError: train or dev without labels, or a premise of more than `max_length` tokens.
    """

    name = "wnli-candidates"
    main_metric = "accuracy"
    scored = ("dev",)

    def __init__(
        self,
        splits: Mapping[str, Sequence[Pair]],
        tokenizer: Tokenizer,
        head_weights: Mapping[str, Tensor] | None = None,
        max_length: int = TEXTS.max_length,
    ) -> None:
        self.predicted = tuple(split for split in splits if split == "test")
        self._splits = splits
        self._tokenizer = tokenizer
        self._head_weights = head_weights
        self._max_length = max_length
        self._schemas = cache(self._find_schemas)
        self._substitutions = cache(self._build_substitutions)
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
                "longer-than-model",
                f"max_length {self._max_length} is more than the {encoder.max_positions} positions of the model",
            )
        return WnliHead(encoder.hidden_size, self._head_weights)

    def encode(self, split: str) -> EncodedExamples:
        """The substitutions of a split; target "replaced" at the candidate's tokens.

        Raises:
            DataError: there is no such split.
        """
        rows = self._substitutions(split)
        input_ids = [row.input_ids for row in rows]
        targets = {} if split == "test" else {"replaced": [build_token_targets(row) for row in rows]}
        return EncodedExamples(input_ids, [len(ids) for ids in input_ids], targets)

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

    def predictions(self, split: str, outputs: Outputs) -> list[Record]:
        """The label of every pair, its antecedent, and the scores of that and of the best rival (None: there is none)."""
        scores: list[list[float]] = [[] for _ in self._pairs(split)]
        for row, output in zip(self._substitutions(split), outputs, strict=True):
            scores[row.pair].append(-float(output["replaced"][row.span.start : row.span.stop].mean()))
        labels = [label_pair(schema, own) for schema, own in zip(self._schemas(split), scores, strict=True)]
        return [{"id": str(number), **each} for number, each in enumerate(labels)]

    def logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N 2"]:
        """For every pair 0, and the difference of its antecedent's score and the score that entailment must exceed."""
        margins = [
            -np.inf if row["score"] is None else row["score"] - (row["rival"] or 0.0)
            for row in self.predictions(split, outputs)
        ]
        return np.stack([np.zeros(len(margins)), margins], axis=1)

    def settings(self) -> Mapping[str, Any]:
        """See `task.Task`."""
        return {"task": self.name, "max_length": self._max_length}

    def _pairs(self, split: str) -> Sequence[Pair]:
        if split not in self._splits:
            raise DataError(
                "missing-split", f"{self.name}: there is no {split} split; it has {', '.join(self._splits) or 'none'}"
            )
        return self._splits[split]

    def _find_schemas(self, split: str) -> list[Schema | None]:
        return [find_schema(pair.premise, pair.hypothesis) for pair in self._pairs(split)]

    def _build_substitutions(self, split: str) -> list[Substitution]:
        rows = []
        for number, (pair, schema) in enumerate(zip(self._pairs(split), self._schemas(split), strict=True)):
            if schema is None:
                continue
            own = None if pair.label is None else ORIGINAL if pair.label else REPLACED
            rivals = [] if split == "train" and not pair.label else find_candidates(schema)
            targets = [(schema.antecedent, own), *((phrase, REPLACED if pair.label else None) for phrase in rivals)]
            substitutions = [self._substitute(number, schema, phrase, target) for phrase, target in targets]
            longest = max(len(row.input_ids) for row in substitutions)
            if longest > self._max_length:
                raise DataError(
                    "too-long", f"{pair.place}: {longest} tokens, more than max_length {self._max_length}; raise it"
                )
            rows += substitutions
        return rows

    def _substitute(self, number: int, schema: Schema, phrase: str, target: int | None) -> Substitution:
        pieces = [schema.premise[: schema.start], schema.substitute(phrase), schema.premise[schema.end :]]
        before, middle, after = self._tokenizer.encode_lines(pieces)
        ids = [self._tokenizer.cls_id, *before, *middle, *after, self._tokenizer.sep_id]
        return Substitution(number, ids, range(1 + len(before), 1 + len(before) + len(middle)), target)


def label_pair(schema: Schema | None, scores: Sequence[float]) -> dict[str, Any]:
    """The label by the scores of a pair's substitutions, its own antecedent's first; empty without a schema."""
    if schema is None:
        return {"label": 0, "antecedent": None, "score": None, "rival": None}
    rival = max(scores[1:], default=None)
    entailed = scores[0] > (0.0 if rival is None else rival)
    return {"label": int(entailed), "antecedent": schema.antecedent, "score": scores[0], "rival": rival}


def build_token_targets(row: Substitution) -> list[int]:
    """The target at the candidate's tokens; all ignored where it is unknown."""
    return [row.target if row.target is not None and i in row.span else IGNORED for i in range(len(row.input_ids))]


def check_labeled(pairs: Sequence[Pair], split: str) -> None:
    """Raise DataError where a pair has no label."""
    for pair in pairs:
        if pair.label is None:
            raise DataError("missing-label", f"{pair.place}: a pair of {split} without a label")


def build_candidates(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> WnliCandidates:
    """The task over GLUE's WNLI, whose head starts from that of the discriminator."""
    texts = build_glue_task("wnli", config, tokenizer, max_length)
    splits = {split: read_pairs(texts.read(split), split) for split in ("train", *texts.scored, *texts.predicted)}
    weights = None if config.from_scratch else load_pretrained_head(pretrained)
    return WnliCandidates(splits, tokenizer, weights, max_length)


WNLI_CANDIDATES = TaskSpec(
    build=build_candidates,
    options=frozenset({"data", "skip_bad_rows"}),
    reads_hub=True,
    data_folders=lambda data: data_folders("wnli", data),
    head="replaced-token",
    export=lambda head, settings: HuggingFaceHead("replaced-token", head.state_dict()),
)
