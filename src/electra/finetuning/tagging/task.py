"""Tagging: a tag for every word of a sentence, from the hidden state of its first piece (chunks, entities, parts of
speech, or one's own).

Shapes: B sentences (or windows of them), L tokens, H hidden size, K labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support
from torch import Tensor, nn

from electra.errors import DataError, UsageError
from electra.finetuning.batching import IGNORED, Features, LabeledBatch
from electra.finetuning.tagging.data import Sentence
from electra.finetuning.tagging.schemes import PLAIN, find_scheme, legal_bio, marks_spans, to_bio2
from electra.finetuning.tagging.windows import Window, windows_of
from electra.finetuning.task import Outputs
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

SPANS = {"chunk": True, "ner": True, "pos": False, "tagging": None}
"""Whether the tags of a task mark spans; None: the tags show it."""


@dataclass(frozen=True)
class TaggingConfig:
    """How sentences are read."""

    max_length: int = 256
    """Tokens of a window, [CLS] and [SEP] included (256 as in the original code); a longer sentence has several."""

    def __post_init__(self) -> None:
        if self.max_length < 4:
            raise UsageError(f"max_length is {self.max_length}; a window takes at least 4 tokens")


class TaggingHead(nn.Module):
    """One linear layer on every token, without dropout, as in the original code."""

    only_cls = False

    def __init__(self, hidden_size: int, num_labels: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden_size, num_labels)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def loss(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Mean cross-entropy over the scored words of each example.

        The original code takes their sum, of which the clipping at norm 1.0 leaves nothing but the direction; with
        the mean, the loss does not depend on the lengths of the sentences, and clipping is the exception.
        """
        targets = batch.targets["tags"]
        losses = F.cross_entropy(self.output(hidden).transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
        # A window in the middle of a long sentence may have no word to score.
        return losses.sum(1) / (targets != IGNORED).sum(1).clamp(min=1)

    def predict(self, hidden: Float[Tensor, "B L H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """`logits` [B, L, K]; only those at first pieces mean something."""
        return {"logits": self.output(hidden)}


class Tagging:
    """A `Task` whose splits are read and checked at once, so that an error in dev does not wait for the end of training.

    Tags that mark spans are learnt and written as BIO2, whatever scheme they come in; `scheme` says which one that is.
    The labels are those of train, for spans B-X and I-X of each type X there; `labels` gives them where there is
    no train, out of the `settings` of a trained model.

    Raises:
        DataError: train or dev without tags, tags that break every scheme, a tag of dev or test that is no label.
    """

    def __init__(
        self,
        name: str,
        splits: Mapping[str, Sequence[Sentence]],
        tokenizer: Tokenizer,
        config: TaggingConfig | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        if name not in SPANS:
            raise UsageError(f"{name!r} is not a tagging task; there are {', '.join(SPANS)}")
        self.name = name
        self.config = config or TaggingConfig()
        self._tokenizer = tokenizer
        self._splits = splits
        self._windows = cache(self._windows_of)
        for split in splits.keys() & {"train", "dev"}:
            check_tagged(splits[split], split)
        tagged = [sentence for split in splits.values() for sentence in split if sentence.tags is not None]
        known = set(labels or ()) | {tag for sentence in tagged for tag in sentence.tags or ()}
        spans = marks_spans(known) if SPANS[name] is None else SPANS[name]
        self.scheme = find_scheme(tagged) if spans else PLAIN
        self.scored = tuple(split for split in ("dev", "test") if has_tags(splits.get(split, ())))
        self.predicted = tuple(split for split in ("test",) if split in splits and split not in self.scored)
        self.main_metric = "f1" if spans else "accuracy"
        if labels is None:
            labels = label_set([self._gold(sentence) for sentence in splits.get("train", ())], bool(spans))
        self.labels = tuple(labels)
        self._label_ids = {label: i for i, label in enumerate(self.labels)}
        self._check_labels(tagged)

    def head(self, encoder: EncoderConfig) -> nn.Module:
        """A fresh `TaggingHead`.

        Raises:
            UsageError: no labels are known, or the encoder has fewer positions than a window.
        """
        if not self.labels:
            raise UsageError(f"{self.name}: no labels are known; give a train file")
        if self.config.max_length > encoder.max_positions:
            raise UsageError(
                f"max_length {self.config.max_length} is more than the {encoder.max_positions} positions of the model"
            )
        return TaggingHead(encoder.hidden_size, len(self.labels))

    def features(self, split: str) -> Features:
        """The windows of a split; target "tags" at the first piece of each word that is scored there.

        Raises:
            DataError: there is no such split.
        """
        windows = self._windows(split)
        ids = [window.ids for window in windows]
        targets = {} if split == "test" else {"tags": [self._targets(split, window) for window in windows]}
        return Features(ids, [len(sequence) for sequence in ids], targets)

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Accuracy over all words in percent; where tags mark spans, also precision, recall and F1 of whole spans.

        A span counts if its words and its type are right; the three are over spans of all types together (micro), as
        conlleval and seqeval give them.

        Raises:
            DataError: the split has no tags.
        """
        check_tagged(self._sentences(split), split)
        gold = [list(self._gold(sentence)) for sentence in self._sentences(split)]
        found = self.tags(split, outputs)
        pairs = [pair for truth, guess in zip(gold, found, strict=True) for pair in zip(truth, guess, strict=True)]
        scores = {"accuracy": 100 * sum(truth == guess for truth, guess in pairs) / len(pairs)}
        if self.scheme != PLAIN:
            figures = precision_recall_fscore_support(gold, found, average="micro", zero_division=0)[:3]
            scores |= {
                name: 100 * float(value) for name, value in zip(("precision", "recall", "f1"), figures, strict=True)
            }
        return scores

    def predictions(self, split: str, outputs: Outputs) -> list[dict[str, Any]]:
        """The words of every sentence and their tags."""
        found = zip(self._sentences(split), self.tags(split, outputs), strict=True)
        return [
            {"id": sentence.id or str(number), "words": list(sentence.words), "tags": tags}
            for number, (sentence, tags) in enumerate(found)
        ]

    def tags(self, split: str, outputs: Outputs) -> list[list[str]]:
        """A tag for every word of every sentence, made legal BIO2 by `legal_bio` where tags mark spans."""
        found = [["O"] * len(sentence.words) for sentence in self._sentences(split)]
        for window, output in zip(self._windows(split), outputs, strict=True):
            best = np.asarray(output["logits"]).argmax(-1)
            for word, position in window.scored.items():
                found[window.sentence][word] = self.labels[best[position]]
        return found if self.scheme == PLAIN else [list(legal_bio(tags)) for tags in found]

    def logits(self, split: str, outputs: Outputs) -> None:
        """None: runs are not averaged."""

    def settings(self) -> Mapping[str, Any]:
        """The labels in the order of the logits, the scheme of the data, and the longest window."""
        return {"labels": list(self.labels), "scheme": self.scheme, "max_length": self.config.max_length}

    def _sentences(self, split: str) -> Sequence[Sentence]:
        if split not in self._splits:
            raise DataError(f"{self.name}: there is no {split} split; it has {', '.join(self._splits) or 'none'}")
        return self._splits[split]

    def _windows_of(self, split: str) -> list[Window]:
        return windows_of(self._sentences(split), self._tokenizer, self.config.max_length)

    def _gold(self, sentence: Sentence) -> tuple[str, ...]:
        tags = sentence.tags or ()
        return tags if self.scheme == PLAIN else to_bio2(tags, self.scheme)

    def _targets(self, split: str, window: Window) -> list[int]:
        gold = self._gold(self._sentences(split)[window.sentence])
        targets = [IGNORED] * len(window.ids)
        for word, position in window.scored.items():
            targets[position] = self._label_ids[gold[word]]
        return targets

    def _check_labels(self, sentences: Sequence[Sentence]) -> None:
        for sentence in sentences:
            for word, tag in zip(sentence.words, self._gold(sentence), strict=True):
                if tag not in self._label_ids:
                    raise DataError(
                        f"{sentence.place}: {word!r} is tagged {tag}, which train does not have; "
                        f"its labels are {', '.join(self.labels) or 'none'}"
                    )


def has_tags(sentences: Sequence[Sentence]) -> bool:
    """Is there a sentence, and does every one have tags?"""
    return bool(sentences) and all(sentence.tags is not None for sentence in sentences)


def check_tagged(sentences: Sequence[Sentence], split: str) -> None:
    """Every sentence has tags."""
    for sentence in sentences:
        if sentence.tags is None:
            raise DataError(f"{sentence.place}: a sentence of {split} without tags")


def label_set(tagged: Sequence[Sequence[str]], spans: bool) -> list[str]:
    """Every tag in alphabetical order; for spans "O" first, then B-X and I-X of each type.

    Both of each type: CoNLL-2000 has an I-LST in test alone.
    """
    tags = {tag for sentence in tagged for tag in sentence}
    if not spans:
        return sorted(tags)
    kinds = sorted({tag[2:] for tag in tags} - {""})
    return ["O", *(f"{letter}-{kind}" for kind in kinds for letter in "BI")] if tags else []
