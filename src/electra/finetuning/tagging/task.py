"""Tagging: a tag for every word of a sentence, from the hidden state of its first token (chunks, entities, parts of speech,
or one's own tags).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from seqeval.metrics.sequence_labeling import precision_recall_fscore_support
from torch import nn

from electra.errors import DataError, UsageError
from electra.finetuning.batching import IGNORED, EncodedExamples
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.recipe import TAGS
from electra.finetuning.splits import get_files, hold_out
from electra.finetuning.tagging.data import Sentence, find_splits, read_sentences
from electra.finetuning.tagging.heads import TaggingHead
from electra.finetuning.tagging.inference import HEAD, SavedTagging, export_head, from_hugging_face
from electra.finetuning.tagging.schemes import PLAIN, find_scheme, marks_spans, repair_bio, to_bio2
from electra.finetuning.tagging.windows import Window, decode_windows, encode_windows, split_into_windows
from electra.finetuning.task import Outputs, Record, TaskSpec
from electra.model.checkpoints import Pretrained
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class Tagging:
    """A tag for every word; implements `task.Task`. All splits are checked at once, so that an error in dev is found early.

    Tags that mark spans are converted to BIO2 from any scheme (`scheme`), and predicted in it. The labels are those of
    train; for spans, B-X and I-X of each type X there.

    Args:
        name: The name of the task.
        splits: The sentences of "train", "dev" and "test".
        tokenizer: The tokenizer of the model.
        spans: Whether the tags mark spans; None: inferred from the tags.
        max_length: Tokens of a window, [CLS] and [SEP] included; a longer sentence has several windows.
        labels: The labels, where there is no train split.

    Raises:
        DataError: train or dev without tags, tags that break every scheme, a tag of dev or test that is no label.
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
    ) -> None:
        if max_length < 4:
            raise UsageError("out-of-range", f"max_length is {max_length}; a window has at least 4 tokens")
        self.name = name
        self.max_length = max_length
        self._tokenizer = tokenizer
        self._splits = splits
        self._windows = cache(self._split_windows)
        for split in splits.keys() & {"train", "dev"}:
            check_tagged(splits[split], split)
        tagged = [sentence for split in splits.values() for sentence in split if sentence.tags is not None]
        known = set(labels or ()) | {tag for sentence in tagged for tag in sentence.tags or ()}
        spans = marks_spans(known) if spans is None else spans
        self.scheme = find_scheme(tagged) if spans else PLAIN
        self.scored = tuple(split for split in ("dev", "test") if has_tags(splits.get(split, ())))
        self.predicted = tuple(split for split in ("test",) if split in splits and split not in self.scored)
        self.main_metric = "f1" if spans else "accuracy"
        if labels is None:
            labels = build_label_set([self._gold(sentence) for sentence in splits.get("train", ())], spans)
        self.labels = tuple(labels)
        self._label_ids = {label: i for i, label in enumerate(self.labels)}
        self._check_labels(tagged)

    def head(self, encoder: EncoderConfig) -> nn.Module:
        """A fresh `TaggingHead`.

        Raises:
            UsageError: no labels are known, or the encoder has fewer positions than a window.
        """
        if not self.labels:
            raise UsageError("no-labels", f"{self.name}: no labels are known; give a train file")
        if self.max_length > encoder.max_positions:
            raise UsageError(
                "longer-than-model",
                f"max_length {self.max_length} is more than the {encoder.max_positions} positions of the model",
            )
        return TaggingHead(encoder.hidden_size, len(self.labels))

    def encode(self, split: str) -> EncodedExamples:
        """The windows of a split; target "tags" at the first token of each word that is scored there.

        Raises:
            DataError: there is no such split.
        """
        windows = self._windows(split)
        targets = {} if split == "test" else {"tags": [self._targets(split, window) for window in windows]}
        return encode_windows(windows, targets)

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Accuracy over all words in percent; where tags mark spans, also precision, recall and F1 of whole spans.

        A span counts if its words and its type are right; the three are over spans of all types together (micro), as
        conlleval and seqeval compute them.

        Raises:
            DataError: the split has no tags.
        """
        check_tagged(self._sentences(split), split)
        gold = [list(self._gold(sentence)) for sentence in self._sentences(split)]
        predicted = self.tags(split, outputs)
        pairs = [pair for truth, guess in zip(gold, predicted, strict=True) for pair in zip(truth, guess, strict=True)]
        scores = {"accuracy": 100 * sum(truth == guess for truth, guess in pairs) / len(pairs)}
        if self.scheme != PLAIN:
            figures = precision_recall_fscore_support(gold, predicted, average="micro", zero_division=0)[:3]
            scores |= {
                name: 100 * float(value) for name, value in zip(("precision", "recall", "f1"), figures, strict=True)
            }
        return scores

    def predictions(self, split: str, outputs: Outputs) -> list[Record]:
        """The words of every sentence and their tags."""
        found = zip(self._sentences(split), self.tags(split, outputs), strict=True)
        return [
            {"id": sentence.id or str(number), "words": list(sentence.words), "tags": tags}
            for number, (sentence, tags) in enumerate(found)
        ]

    def tags(self, split: str, outputs: Outputs) -> list[list[str]]:
        """A tag for every word of every sentence, made valid BIO2 by `repair_bio` where tags mark spans."""
        found = decode_windows(self._sentences(split), self._windows(split), outputs, self.labels)
        return found if self.scheme == PLAIN else [list(repair_bio(tags)) for tags in found]

    def logits(self, split: str, outputs: Outputs) -> None:
        """None: runs are not averaged."""

    def settings(self) -> Mapping[str, Any]:
        """See `task.Task`."""
        return asdict(SavedTagging(self.name, list(self.labels), self.max_length, self.scheme))

    def _sentences(self, split: str) -> Sequence[Sentence]:
        if split not in self._splits:
            raise DataError(
                "missing-split", f"{self.name}: there is no {split} split; it has {', '.join(self._splits) or 'none'}"
            )
        return self._splits[split]

    def _split_windows(self, split: str) -> list[Window]:
        return split_into_windows(self._sentences(split), self._tokenizer, self.max_length)

    def _gold(self, sentence: Sentence) -> tuple[str, ...]:
        tags = sentence.tags or ()
        return tags if self.scheme == PLAIN else to_bio2(tags, self.scheme)

    def _targets(self, split: str, window: Window) -> list[int]:
        gold = self._gold(self._sentences(split)[window.sentence])
        targets = [IGNORED] * len(window.input_ids)
        for word, position in window.scored.items():
            targets[position] = self._label_ids[gold[word]]
        return targets

    def _check_labels(self, sentences: Sequence[Sentence]) -> None:
        for sentence in sentences:
            for word, tag in zip(sentence.words, self._gold(sentence), strict=True):
                if tag not in self._label_ids:
                    raise DataError(
                        "unknown-label",
                        f"{sentence.place}: {word!r} is tagged {tag}, which train does not have; "
                        f"its labels are {', '.join(self.labels) or 'none'}",
                    )


def has_tags(sentences: Sequence[Sentence]) -> bool:
    """Whether there are sentences, and all have tags."""
    return bool(sentences) and all(sentence.tags is not None for sentence in sentences)


def check_tagged(sentences: Sequence[Sentence], split: str) -> None:
    """Raise DataError where a sentence has no tags."""
    for sentence in sentences:
        if sentence.tags is None:
            raise DataError("no-labels", f"{sentence.place}: a sentence of {split} without tags")


def build_label_set(tagged: Sequence[Sequence[str]], spans: bool) -> list[str]:
    """Every tag in alphabetical order; for spans "O" first, then B-X and I-X of each type.

    Both of each type: CoNLL-2000 has an I-LST in test alone.
    """
    tags = {tag for sentence in tagged for tag in sentence}
    if not spans:
        return sorted(tags)
    kinds = sorted({tag[2:] for tag in tags} - {""})
    return ["O", *(f"{letter}-{kind}" for kind in kinds for letter in "BI")] if tags else []


def tagging_spec(spans: bool | None, options: frozenset[str]) -> TaskSpec:
    """The spec of a tagging task; `spans` as in `Tagging`."""

    def build(config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int) -> Tagging:
        return build_tagging(config, tokenizer, spans, max_length)

    return TaskSpec(
        build=build,
        recipe=TAGS,
        options=options,
        saved=SavedTagging,
        predict_options=frozenset({"form"}),
        head=HEAD,
        export=export_head,
        from_hugging_face=from_hugging_face,
    )


OWN_FILES = frozenset({"train", "dev", "test"})
CHUNKS = ENTITIES = tagging_spec(True, OWN_FILES | {"data"})
PARTS_OF_SPEECH = tagging_spec(False, OWN_FILES | {"data"})
OWN_TAGS = tagging_spec(None, OWN_FILES)


def build_tagging(config: FinetuneConfig, tokenizer: Tokenizer, spans: bool | None, max_length: int) -> Tagging:
    """The task over the files in --data, or over those of --train, --dev and --test.

    Raises:
        DataError: there is no training file, or a file is broken.
    """
    hint = ", or --data FOLDER"
    paths = get_files(config, hint) if config.data is None else find_splits(Path(config.data))
    if "train" not in paths:
        raise DataError("missing", f"{config.data}: there is no training file")
    splits = {split: read_sentences(path) for split, path in paths.items()}
    if not splits.keys() & {"dev", "test"}:
        places = [sentence.place for sentence in splits["train"]]
        splits["train"], splits["dev"] = hold_out(splits["train"], places, config, "sentences")
    task = Tagging(config.task, splits, tokenizer, spans=spans, max_length=max_length)
    log.info(f"{len(task.labels)} labels, {task.scheme} (found in {paths['train']})", extra={"code": "labels"})
    if task.scored == ("test",):
        log.info("there is no dev file, so the scores are those of the test file", extra={"code": "scored-on-test"})
    return task
