"""Prediction with a fine-tuned model for a stream of inputs."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from electra.config.checks import check_local
from electra.errors import UsageError
from electra.external import check_output_file
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.preparation import VOCABULARY_ADVICE
from electra.finetuning.readers.inputs import STANDARD_INPUT
from electra.finetuning.task import Outputs, Prediction, Values
from electra.inference.config import PredictConfig
from electra.inference.engines import ENGINES
from electra.inference.finetuned import LoadedModel
from electra.inference.output import open_json_lines, write_rows
from electra.runtime.setup import Runtime, start_runtime
from electra.storage import check_writable
from electra.text.coverage import CoverageMonitor

log = logging.getLogger(__name__)

FILE_INPUTS = 512
"""Inputs of a file that are sorted by length and predicted at a time."""
STREAM_INPUTS = 16
"""Inputs of standard input that are predicted at a time; few, because they can arrive slowly."""
INPUT_CHARS = 1 << 20
"""Characters of the inputs predicted at a time, to bound the memory; a single input can be longer (up to MAX_LINE_BYTES)."""
BATCH_SIZE = 32


@dataclass(frozen=True)
class Predictor:
    """A fine-tuned model in memory, prepared by an engine for `runtime`; `electra.load` returns one.

    Raises:
        UsageError: an option has no meaning for the task of the model.
    """

    loaded: LoadedModel
    config: PredictConfig
    runtime: Runtime

    def __post_init__(self) -> None:
        for field in fields(PredictConfig):
            is_given = field.default is None and getattr(self.config, field.name) is not None
            if is_given and field.name not in self.loaded.spec.predict_options:
                raise UsageError(
                    "meaningless-option",
                    f"--{field.name.replace('_', '-')} has no meaning for a model of the task {self.loaded.name}",
                )

    def predict(
        self, input: os.PathLike[str] | Values, *, out: str | os.PathLike[str] | None = None, private: bool = False
    ) -> Iterator[Prediction]:
        """Yield a prediction for each input in order, with an `id`: that of the input, or its number from 0.

        A sequence is read completely before this returns. Of a file or an iterator, the first batch is read before this
        returns, the rest as the returned iterator advances. Logs a warning if the vocabulary does not fit the inputs, and
        the share of [UNK] at the end of a file.

        Args:
            input: Inputs, or a file; see `electra.predict`.
            out: File for the predictions as JSON lines. It is written as the iterator advances, and appears when it ends.
            private: Create the file with mode 0600 and its new directories with mode 0700.

        Raises:
            DataError: an input cannot be read; the message names file and line, or the number of the input.
            UsageError: `input` or `out` is an address of the Hugging Face hub, or `out` is blank.
            RunError: another process writes `out`.
            StorageError: `out` cannot be written.
        """
        check_paths(input, out)
        if out is not None:
            check_writable(check_output_file(out).parent)
        if isinstance(input, str) and os.path.isfile(input):
            log.warning(
                f"{input!r} is read as a text; to read the file of this name, pass pathlib.Path({input!r})",
                extra={"code": "string-as-text"},
            )
        if isinstance(input, os.PathLike):
            predictions = self._predict_file(os.fspath(input))
        else:
            inputs = self.loaded.task.read_values(input, self.config)
            inputs = iter(list(inputs)) if isinstance(input, Sized) else inputs
            predictions = predict_stream(inputs, FILE_INPUTS, partial(self._predict_inputs, self.loaded))
        if out is None:
            return predictions
        return write_rows(predictions, check_output_file(out), private, open_json_lines)

    def _predict_file(self, file: str) -> Iterator[Prediction]:
        """Yield predictions for a file, then log the share of [UNK]."""
        coverage = CoverageMonitor(self.loaded.tokenizer, "input", VOCABULARY_ADVICE)
        loaded = replace(self.loaded, coverage=coverage)
        inputs = loaded.task.read_file(file, self.config)
        size = STREAM_INPUTS if file == STANDARD_INPUT else FILE_INPUTS
        return report_at_end(predict_stream(inputs, size, partial(self._predict_inputs, loaded)), coverage)

    def _predict_inputs(self, loaded: LoadedModel, inputs: list[Any]) -> list[Prediction]:
        """Predict a batch of inputs, and count their tokens and [UNK] in `loaded.coverage`."""

        def compute(examples: EncodedExamples) -> Outputs:
            loaded.coverage.add(examples.input_ids)
            return loaded.model.compute_outputs(examples, self.runtime, BATCH_SIZE, loaded.tokenizer.pad_id)

        return loaded.task.predict(inputs, loaded.tokenizer, compute, self.config)


def check_paths(input: os.PathLike[str] | Values, out: str | os.PathLike[str] | None) -> None:
    """Check that neither path is an address of the Hugging Face hub, and that `out` is not blank.

    Raises:
        UsageError: a path is such an address, or `out` is blank.
    """
    check_local({"--input": input if isinstance(input, os.PathLike) else None, "--out": out})
    if out is not None:
        check_output_file(out)


def load_predictor(model: str, config: PredictConfig) -> Predictor:
    """Load a model for prediction.

    Raises:
        ModelError: the model is not fine-tuned, is damaged, or cannot predict new inputs.
        UsageError: an option has no meaning for the task of the model.
    """
    with start_runtime(config.runtime) as runtime:  # only its device and precision are used after that
        return Predictor(ENGINES[config.runtime.engine](model, runtime), config, runtime)


def report_at_end(predictions: Iterator[Prediction], coverage: CoverageMonitor) -> Iterator[Prediction]:
    """Yield the predictions, then log the share of [UNK] in their inputs."""
    yield from predictions
    coverage.finish()


def predict_stream(
    inputs: Iterable[Any], size: int, predict: Callable[[list[Any]], list[Prediction]]
) -> Iterator[Prediction]:
    """Yield the predictions of `predict` for `size` inputs at a time; the first batch is read before this returns."""
    batches = split_batches(inputs, size)
    first = next(batches, [])
    return (prediction for batch in chain([first], batches) if batch for prediction in predict(batch))


def split_batches(inputs: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of `size` inputs, or fewer if they reach INPUT_CHARS characters."""
    batch: list[Any] = []
    chars = 0
    for value in inputs:
        batch.append(value)
        chars += count_chars(value)
        if len(batch) == size or chars >= INPUT_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def count_chars(value: Any) -> int:
    """Count the characters of all strings in an input, plus one per string, so that empty ones count."""
    if isinstance(value, str):
        return len(value) + 1
    if is_dataclass(value):
        return sum(count_chars(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return sum(map(count_chars, value.values()))
    return sum(map(count_chars, value)) if isinstance(value, list | tuple) else 0
