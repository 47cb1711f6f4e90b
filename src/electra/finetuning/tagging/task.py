"""Tagging: a tag for every word of a sentence, from the hidden state of its first token.

The tags are chunks, entities, parts of speech, or those of a file of the user.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support
from torch import nn

from electra.config.checks import check_number
from electra.errors import DataError, UsageError
from electra.finetuning.batching import IGNORED, EncodedExamples
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.recipe import TAGS
from electra.finetuning.splits import get_split_files, hold_out
from electra.finetuning.tagging.data import Sentence, find_splits, read_sentences
from electra.finetuning.tagging.heads import TaggingHead
from electra.finetuning.tagging.inference import HEAD_KIND, SavedTagging, export_head, from_hugging_face
from electra.finetuning.tagging.schemes import PLAIN, convert_to_bio2, find_scheme, marks_spans, repair_bio
from electra.finetuning.tagging.windows import Window, build_windows, decode_windows, encode_windows
from electra.finetuning.task import Outputs, Prediction, TaskSpec
from electra.finetuning.training.class_weights import compute_chance_loss, resolve_class_weights
from electra.model.checkpoints import Pretrained
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class Tagging:
    """A tag for every word; implements `task.Task`. The examples are windows, of which a long sentence has several.

    Tags that mark spans are converted to BIO2 from the scheme of the corpus, `scheme`, and predicted in BIO2. The labels are
    the tags of train; for spans, B-X and I-X of each type X in train. All splits are checked here, before training.

    Args:
        name: Name of the task.
        splits: Sentences of "train", "dev" and "test".
        tokenizer: Tokenizer of the model.
        spans: Whether the tags mark spans; None: inferred from the tags.
        max_length: Maximum tokens of a window, [CLS] and [SEP] included.
        labels: Labels in the order of the logits; None: those of train.
        class_weights: As in `training.class_weights.resolve_class_weights`; balanced ones count the words of train.

    Raises:
        UsageError: `max_length` is less than 4.
        DataError: train or dev has no tags, the tags follow no scheme, or a tag of dev or test is not a label.
    """

    def __init__(
        self,
        name: str,
        splits: Mapping[str, Sequence[Sentence]],
        tokenizer: Tokenizer,
        *,
        spans: bool | None = None,
        max_length: int = TAGS.max_length,
        labels: Sequence[str] | None = None,
        class_weights: Sequence[str] = (),
    ) -> None:
        check_number("--max-length", max_length, at_least=4)
        self.name = name
        self.max_length = max_length
        self._tokenizer = tokenizer
        self._splits = splits
        self.get_windows = cache(self._build_windows)
        for split in splits.keys() & {"train", "dev"}:
            check_tagged(splits[split], split)
        tagged = [sentence for split in splits.values() for sentence in split if sentence.tags is not None]
        known = set(labels or ()) | {tag for sentence in tagged for tag in sentence.tags or ()}
        spans = marks_spans(known) if spans is None else spans
        self.scheme = find_scheme(tagged) if spans else PLAIN
        self.scored_splits = tuple(split for split in ("dev", "test") if has_tags(splits.get(split, ())))
        self.predicted_splits = tuple(
            split for split in ("test",) if split in splits and split not in self.scored_splits
        )
        self.main_metric = "f1" if spans else "accuracy"
        if labels is None:
            labels = build_label_set([self._get_gold_tags(sentence) for sentence in splits.get("train", ())], spans)
        self.labels = tuple(labels)
        self._label_ids = {label: i for i, label in enumerate(self.labels)}
        self._check_labels(tagged)
        tags = [self._label_ids[tag] for each in splits.get("train", ()) for tag in self._get_gold_tags(each)]
        self.class_weights = resolve_class_weights(class_weights, self.labels, np.array(tags))

    def build_head(self, encoder: EncoderConfig) -> nn.Module:
        """See `task.Task`.

        Raises:
            UsageError: there are no labels, or the encoder has fewer positions than `max_length`.
        """
        if not self.labels:
            raise UsageError("no-labels", f"{self.name}: no labels are known; give a train file")
        if self.max_length > encoder.max_positions:
            raise UsageError(
                "longer-than-model",
                f"max_length {self.max_length} is more than the {encoder.max_positions} positions of the model",
            )
        return TaggingHead(encoder.hidden_size, len(self.labels), self.class_weights)

    def encode(self, split: str) -> EncodedExamples:
        """Return the windows of a split; the target "tags" is a label index at the first token of each scored word.

        Raises:
            DataError: there is no such split.
        """
        windows = self.get_windows(split)
        targets = {} if split == "test" else {"tags": [self._build_targets(split, window) for window in windows]}
        return encode_windows(windows, targets)

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Compute the accuracy over all words, and for tags that mark spans also precision, recall and F1, in percent.

        A span is correct if its words and its type are. The averages are over the spans of all types (micro), as computed by
        conlleval and seqeval.

        Raises:
            DataError: the split is missing or has no tags.
        """
        return self._score_tags(split, self.decode_tags(split, outputs))

    def compute_chance_loss(self) -> float:
        """Compute the training loss of the best constant probabilities of the tags; each window counts the same."""
        shares, windows = np.zeros(len(self.labels)), self.get_windows("train")
        for window in windows:
            targets = [target for target in self._build_targets("train", window) if target != IGNORED]
            shares += np.bincount(targets, minlength=len(self.labels)) / max(len(targets), 1)
        return compute_chance_loss(shares / len(windows), self.class_weights)

    def score_baselines(self, split: str) -> dict[str, dict[str, float]]:
        """Score each word's most frequent tag in train, for an unknown word the most frequent tag of all."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for sentence in self._get_sentences("train"):
            for word, tag in zip(sentence.words, self._get_gold_tags(sentence), strict=True):
                counts[word][tag] += 1
        best = {word: each.most_common(1)[0][0] for word, each in counts.items()}
        most_frequent = sum(counts.values(), Counter()).most_common(1)[0][0]
        predicted = [
            [best.get(word, most_frequent) for word in sentence.words] for sentence in self._get_sentences(split)
        ]
        return {"most frequent tag of a word": self._score_tags(split, [self._repair(tags) for tags in predicted])}

    def _repair(self, tags: list[str]) -> list[str]:
        """Make tags that mark spans valid."""
        return tags if self.scheme == PLAIN else list(repair_bio(tags))

    def _score_tags(self, split: str, predicted: list[list[str]]) -> dict[str, float]:
        check_tagged(self._get_sentences(split), split)
        gold = [list(self._get_gold_tags(sentence)) for sentence in self._get_sentences(split)]
        pairs = [pair for tags in zip(gold, predicted, strict=True) for pair in zip(*tags, strict=True)]
        scores = {"accuracy": 100 * sum(target == tag for target, tag in pairs) / len(pairs)}
        if self.scheme != PLAIN:
            averages = precision_recall_fscore_support(gold, predicted, average="micro", zero_division=0)[:3]
            scores |= {
                name: 100 * float(value) for name, value in zip(("precision", "recall", "f1"), averages, strict=True)
            }
        return scores

    def format_predictions(self, split: str, outputs: Outputs) -> list[Prediction]:
        """Format the words and the predicted tags of every sentence."""
        tagged = zip(self._get_sentences(split), self.decode_tags(split, outputs), strict=True)
        return [
            {"id": sentence.id or str(number), "words": list(sentence.words), "tags": tags}
            for number, (sentence, tags) in enumerate(tagged)
        ]

    def decode_tags(self, split: str, outputs: Outputs) -> list[list[str]]:
        """Decode a tag for every word of every sentence; tags that mark spans are made valid by `repair_bio`."""
        decoded = decode_windows(self._get_sentences(split), self.get_windows(split), outputs, self.labels)
        return [self._repair(tags) for tags in decoded]

    def get_logits(self, split: str, outputs: Outputs) -> None:
        """Return None: there are no ensembles."""

    def get_settings(self) -> Mapping[str, Any]:
        """See `task.Task`."""
        return asdict(SavedTagging(self.name, list(self.labels), self.max_length, self.scheme))

    def _get_sentences(self, split: str) -> Sequence[Sentence]:
        if split not in self._splits:
            raise DataError(
                "missing-split", f"{self.name}: there is no {split} split; it has {', '.join(self._splits) or 'none'}"
            )
        return self._splits[split]

    def _build_windows(self, split: str) -> list[Window]:
        return build_windows(self._get_sentences(split), self._tokenizer, self.max_length)

    def _get_gold_tags(self, sentence: Sentence) -> tuple[str, ...]:
        """Return the tags of a sentence, in BIO2 if they mark spans."""
        tags = sentence.tags or ()
        return tags if self.scheme == PLAIN else convert_to_bio2(tags, self.scheme)

    def _build_targets(self, split: str, window: Window) -> list[int]:
        """Return the label index at the first token of each scored word, IGNORED at other tokens."""
        gold = self._get_gold_tags(self._get_sentences(split)[window.sentence])
        targets = [IGNORED] * len(window.input_ids)
        for word, position in window.scored_words.items():
            targets[position] = self._label_ids[gold[word]]
        return targets

    def _check_labels(self, sentences: Sequence[Sentence]) -> None:
        """Raise a `DataError` if a tag is not a label."""
        for sentence in sentences:
            for word, tag in zip(sentence.words, self._get_gold_tags(sentence), strict=True):
                if tag not in self._label_ids:
                    raise DataError(
                        "unknown-label",
                        f"{sentence.place}: {word!r} is tagged {tag}, which train does not have; "
                        f"its labels are {', '.join(self.labels) or 'none'}",
                    )


def has_tags(sentences: Sequence[Sentence]) -> bool:
    """Whether there are any sentences and all of them have tags."""
    return bool(sentences) and all(sentence.tags is not None for sentence in sentences)


def check_tagged(sentences: Sequence[Sentence], split: str) -> None:
    """Check that all sentences of a split have tags.

    Raises:
        DataError: a sentence has none.
    """
    for sentence in sentences:
        if sentence.tags is None:
            raise DataError("no-labels", f"{sentence.place}: a sentence of {split} without tags")


def build_label_set(tagged: Sequence[Sequence[str]], spans: bool) -> list[str]:
    """Return all tags in alphabetical order; for spans "O", then B-X and I-X of each type X.

    Both tags of a type are labels even if train has one alone: in CoNLL-2000, I-LST is in test only.
    """
    tags = {tag for sentence in tagged for tag in sentence}
    if not spans:
        return sorted(tags)
    kinds = sorted({tag[2:] for tag in tags} - {""})
    return ["O", *(f"{letter}-{kind}" for kind in kinds for letter in "BI")] if tags else []


def build_tagging_spec(spans: bool | None, options: frozenset[str]) -> TaskSpec:
    """Build the `TaskSpec` of a tagging task; `spans` as in `Tagging`."""

    def build(config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int) -> Tagging:
        return build_tagging(config, tokenizer, spans, max_length)

    return TaskSpec(
        build=build,
        recipe=TAGS,
        options=options,
        saved=SavedTagging,
        predict_options=frozenset({"form"}),
        score_baselines=lambda task, split: task.score_baselines(split),
        compute_chance_loss=Tagging.compute_chance_loss,
        head=HEAD_KIND,
        export=export_head,
        from_hugging_face=from_hugging_face,
    )


OWN_FILES = frozenset({"train", "dev", "test", "class_weights"})
CHUNKS = ENTITIES = build_tagging_spec(True, OWN_FILES | {"data"})
PARTS_OF_SPEECH = build_tagging_spec(False, OWN_FILES | {"data"})
OWN_TAGS = build_tagging_spec(None, OWN_FILES)


def build_tagging(config: FinetuneConfig, tokenizer: Tokenizer, spans: bool | None, max_length: int) -> Tagging:
    """Build the task over the files in --data, or over those of --train, --dev and --test.

    Without dev and test, dev is held out from train.

    Raises:
        UsageError: --data and --train are missing.
        DataError: there is no training file, or a file is malformed.
    """
    hint = ", or --data FOLDER"
    paths = get_split_files(config, hint) if config.data is None else find_splits(Path(config.data))
    if "train" not in paths:
        raise DataError("missing", f"{config.data}: there is no training file")
    splits = {split: read_sentences(path) for split, path in paths.items()}
    if not splits.keys() & {"dev", "test"}:
        places = [sentence.place for sentence in splits["train"]]
        splits["train"], splits["dev"] = hold_out(splits["train"], places, config, "sentences")
    task = Tagging(
        config.task, splits, tokenizer, spans=spans, max_length=max_length, class_weights=config.class_weights
    )
    log.info(f"{len(task.labels)} labels, {task.scheme} (found in {paths['train']})", extra={"code": "labels"})
    if task.scored_splits == ("test",):
        log.info("there is no dev file, so the scores are those of the test file", extra={"code": "scored-on-test"})
    return task
