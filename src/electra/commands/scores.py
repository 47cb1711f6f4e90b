"""Scores of sentences: score."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from electra.commands.masked_lm import read_standard_input
from electra.config.checks import check_local
from electra.errors import DataError, UsageError
from electra.external import shorten
from electra.storage import PathLike

if TYPE_CHECKING:
    from electra.pretraining.evaluation.sentence_scores import Scorer
    from electra.runtime.setup import Runtime

Device = Literal["auto", "cpu", "cuda"]


def score(
    text: Iterable[Any] | str = (),
    *,
    model: PathLike,
    input: PathLike | None = None,
    text_field: str = "text",
    pair_field: str | None = None,
    methods: Iterable[str] | str = (),
    mask_fraction: float | None = None,
    device: Device = "auto",
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """Score sentences by a pre-trained model: how probable it finds their tokens, in float32.

    The methods are discriminator: sum of log P(original) over the tokens of the untouched sentence; masked-lm: sum of log p
    of each token while this one is masked (pseudo-log-likelihood), by a generator or a masked language model; both: the sum
    of log D p_G / (a (1 - D) + p_G), which joins generator and discriminator (Appendix G of the paper). Only scores of one
    method and one model can be compared.

    Args:
        text: Sentences, or two with a tab between to compare; "-" is the standard input, one per line.
        model: Finished run, a folder with discriminator/ and generator/, a Hugging Face directory of either network, or of
            any masked language model (BERT, RoBERTa, ModernBERT and so on), which needs the package transformers;
            or such a model of the hub, as owner/name or owner/name@revision.
        input: File of sentences: .txt with one per line (a tab between two), or .jsonl.
        text_field: Field of .jsonl records that holds the sentence.
        pair_field: Field of .jsonl records that holds a second sentence, to compare with the first.
        methods: discriminator, masked-lm, both; by default all that the model has.
        mask_fraction: For both: share of masked tokens in pre-training; by default that of the run's configuration.
        device: auto uses a GPU if there is one.
        threads: CPU threads; by default PyTorch's choice.

    Returns:
        A dictionary for each sentence: `text`, `tokens`, and for each method `total` and `mean` (per token), in nats. For a
        pair these are lists of two, and each method has `preferred`: the index of the sentence with the higher total, or
        None for a tie.

    Raises:
        DataError: `input` cannot be read, has no sentences, or a line is neither a sentence nor two.
        ModelError: `model` is no pre-trained model.
        TokenizerError: the tokenizer of `model` is missing, damaged or does not match it.
        UsageError: no sentence is given, one is empty or too long for the model, the model has no network for a method, or
            transformers is needed and not installed.
    """
    from electra.pretraining.evaluation.sentence_scores import score_sentences
    from electra.text.hub import locate_model

    check_local({"--model": model, "--input": input})
    given = [text] if isinstance(text, str) else list(text)
    if bool(given) == (input is not None):
        code = "conflicting-options" if given else "no-text"
        raise UsageError(code, "give either sentences (- for the standard input) or a file with --input")
    if input is None and (text_field != "text" or pair_field):
        raise UsageError("meaningless-option", "--text-field and --pair-field apply to an --input file of JSON lines")
    places: dict[str, str] = {}
    if input is None:
        items = split_pairs(given)
    else:
        found = read_items(Path(input), text_field, pair_field)
        items = [item for _, item in found]
        places = {sentence: place for place, item in reversed(found) for sentence in item}
    sentences = [sentence for item in items for sentence in item]
    selected = [methods] if isinstance(methods, str) else list(methods)
    path = locate_model(os.fspath(model))
    with open_scorer(path, selected, mask_fraction, device, threads) as (
        scorer,
        names,
        runtime,
        progress,
    ):
        scores = score_sentences(scorer, sentences, names, runtime, progress, places)
    rows, start = [], 0
    for item in items:
        rows.append(build_row(item, {name: each[start : start + len(item)] for name, each in scores.items()}))
        start += len(item)
    return rows


@contextmanager
def open_scorer(
    model: Path, methods: Sequence[str], mask_fraction: float | None, device: Device, threads: int | None
) -> Iterator[tuple["Scorer", tuple[str, ...], "Runtime", Callable[[int, str], None]]]:
    """Load a model for scoring and show a progress bar; yield also the names of the methods, by default all."""
    from electra.console import reading_progress
    from electra.pretraining.evaluation.sentence_scores import check_methods, load_scorer
    from electra.runtime.setup import RuntimeConfig, start_runtime

    with start_runtime(RuntimeConfig(device, "float32", threads)) as runtime:
        scorer = load_scorer(model, mask_fraction)
        selected = check_methods(scorer, methods, mask_fraction, str(model))
        with reading_progress("scoring", 100) as progress:
            yield scorer, selected, runtime, progress


def build_row(item: Sequence[str], scores: dict[str, Any]) -> dict[str, Any]:
    """Convert the scores of a sentence, or of two, to a record."""
    tokens = [each.tokens for each in next(iter(scores.values()))]
    if len(item) == 1:
        values = {name: {"total": each.total, "mean": each.mean} for name, (each,) in scores.items()}
        return {"text": item[0], "tokens": tokens[0], **values}
    row: dict[str, Any] = {"text": list(item), "tokens": tokens}
    for name, (first, second) in scores.items():
        row[name] = {
            "total": [first.total, second.total],
            "mean": [first.mean, second.mean],
            "preferred": None if first.total == second.total else int(second.total > first.total),
        }
    return row


def split_pairs(given: Sequence[Any]) -> list[tuple[str, ...]]:
    """Convert arguments to sentences and pairs of them.

    Raises:
        UsageError: an argument is neither a sentence nor two.
    """
    lines = [line for each in given for line in (read_standard_input() if each == "-" else [each])]
    if not lines:
        raise UsageError("no-text", "standard input: no sentences")
    items = []
    for line in lines:
        item = tuple(line.split("\t")) if isinstance(line, str) else line
        is_series = isinstance(item, list | tuple) and len(item) in (1, 2)
        if not is_series or not all(isinstance(each, str) for each in item):
            raise UsageError("wrong-type", f"{shorten(str(line))}: expected a sentence, or two with a tab between")
        items.append(tuple(item))
    return items


def read_items(path: Path, text_field: str, pair_field: str | None) -> list[tuple[str, tuple[str, ...]]]:
    """Read sentences and pairs of them from a file, with their places; blank lines are skipped.

    Raises:
        DataError: the file cannot be read, has no sentences, or a line is neither a sentence nor two.
    """
    items = []
    for place, item in iterate_items(path, text_field, pair_field):
        if not all(sentence.strip() for sentence in item):
            raise DataError("no-tokens", f"{place}: a sentence is empty")
        items.append((place, item))
    if not items:
        raise DataError("no-rows", f"{path}: no sentences")
    return items


def iterate_items(path: Path, text_field: str, pair_field: str | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the place and the sentences of each line that is not blank."""
    from electra.text.files import split_compression
    from electra.text.lines import read_json_records, read_numbered_lines

    suffix = Path(split_compression(path)[0]).suffix.lower()
    if suffix not in (".txt", ".tsv", ".jsonl"):
        raise DataError("unknown-format", f"{path}: expected .txt, .tsv or .jsonl (standard input: electra score -)")
    if suffix == ".jsonl":
        names = [text_field, *([pair_field] if pair_field else [])]
        for number, record in read_json_records(path):
            values = [record.get(name) for name in names]
            for name, value in zip(names, values, strict=True):
                if not isinstance(value, str):
                    raise DataError("missing-field", f"{path}:{number}: {name!r} is missing or not a text")
            yield f"{path}:{number}", tuple(str(value) for value in values)
        return
    if text_field != "text" or pair_field:
        raise UsageError("meaningless-option", f"--text-field and --pair-field apply to .jsonl files, not to {path}")
    for number, line in read_numbered_lines(path):
        item = tuple(line.split("\t"))
        if len(item) > 2:
            raise DataError("wrong-columns", f"{path}:{number}: {len(item)} columns, expected a sentence, or two")
        if line.strip():
            yield f"{path}:{number}", item
