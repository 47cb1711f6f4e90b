"""Prediction with a fine-tuned model for a stream of inputs."""

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from electra.config.checks import check_local
from electra.errors import UsageError
from electra.execution import enable_kernels
from electra.external import check_output_file
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.preparation import VOCABULARY_ADVICE
from electra.finetuning.readers.inputs import STANDARD_INPUT
from electra.finetuning.task import Outputs, Record, Values
from electra.inference.config import PredictConfig
from electra.inference.finetuned import Finetuned, load_finetuned
from electra.model.cpu.library import kernels_compiled
from electra.runtime.setup import Runtime, start_runtime
from electra.storage import check_writable, convert_os_errors, lock_output, restrict_permissions
from electra.text.coverage import CoverageMonitor

log = logging.getLogger(__name__)

FILE_ROWS = 512
"""Inputs of a file that are sorted by length and predicted at a time."""
STREAM_ROWS = 16
"""The same for standard input, so that a slow writer gets predictions early."""
INPUT_CHARS = 1 << 20
"""Maximum characters of the inputs predicted at a time, except for a single longer one (up to MAX_LINE_BYTES), so that memory
does not grow with the length of the inputs."""
BATCH_SIZE = 32


@dataclass(frozen=True)
class Predictor:
    """A fine-tuned model in memory, on the device of `runtime`; `electra.load` returns one."""

    finetuned: Finetuned
    config: PredictConfig
    runtime: Runtime

    def __post_init__(self) -> None:
        for field in fields(PredictConfig):
            given = field.default is None and getattr(self.config, field.name) is not None
            if given and field.name not in self.finetuned.spec.predict_options:
                raise UsageError(
                    "meaningless-option",
                    f"--{field.name.replace('_', '-')} has no meaning for a model of the task {self.finetuned.name}",
                )
        if self.runtime.kernels and kernels_compiled():  # compiling takes longer than predicting a few lines
            enable_kernels(self.finetuned.model, self.runtime)
        self.finetuned.model.to(self.runtime.device)

    def predict(
        self, input: os.PathLike[str] | Values, *, out: str | os.PathLike[str] | None = None, private: bool = False
    ) -> Iterator[Record]:
        """Yield a prediction for each input in order, with an `id`: that of the input, or its index.

        A sequence is read completely before this returns. From a file or an iterator, only the first batch of inputs is read
        before, and the rest as the returned iterator advances. Logs a warning if the vocabulary does not fit the inputs, and
        the share of [UNK] at the end of a file.

        Args:
            input: Texts, or a file; see `electra.predict`.
            out: File for the predictions as JSON lines. It is written as the iterator advances, and appears when it ends.
            private: Create the file with mode 0600 and its new directories with mode 0700.

        Raises:
            DataError: the model cannot read an input; the message names the place.
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
            records = self._predict_file(os.fspath(input))
        else:
            inputs = self.finetuned.task.read_values(input, self.config)
            inputs = iter(list(inputs)) if isinstance(input, Sized) else inputs
            records = predict_stream(inputs, FILE_ROWS, partial(self._predict_inputs, self.finetuned))
        return records if out is None else write_records(records, check_output_file(out), private)

    def _predict_file(self, file: str) -> Iterator[Record]:
        """Yield predictions for a file, then log the share of [UNK]."""
        coverage = CoverageMonitor(self.finetuned.tokenizer, "input", VOCABULARY_ADVICE)
        finetuned = replace(self.finetuned, coverage=coverage)
        inputs = finetuned.task.read_file(file, self.config)
        rows = STREAM_ROWS if file == STANDARD_INPUT else FILE_ROWS
        return report_at_end(predict_stream(inputs, rows, partial(self._predict_inputs, finetuned)), coverage)

    def _predict_inputs(self, finetuned: Finetuned, inputs: list[Any]) -> list[Record]:
        """Predict some inputs."""

        def compute(examples: EncodedExamples) -> Outputs:
            finetuned.coverage.add(examples.input_ids)
            return finetuned.model.outputs(examples, self.runtime, BATCH_SIZE, finetuned.tokenizer.pad_id)

        return finetuned.task.predict(inputs, finetuned.tokenizer, compute, self.config)


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
        ModelError: the model cannot predict.
        UsageError: an option does not apply to the model.
    """
    with start_runtime(config.runtime) as runtime:  # only its device and precision are used after that
        return Predictor(load_finetuned(model), config, runtime)


def report_at_end(records: Iterator[Record], coverage: CoverageMonitor) -> Iterator[Record]:
    """Yield the records, then log the share of [UNK] in their inputs."""
    yield from records
    coverage.finish()


def predict_stream(inputs: Iterable[Any], rows: int, predict: Callable[[list[Any]], list[Record]]) -> Iterator[Record]:
    """Yield the results of `predict` on `rows` inputs at a time; the first batch is read before this returns."""
    batches = split_batches(inputs, rows)
    first = next(batches, [])
    return (record for batch in chain([first], batches) if batch for record in predict(batch))


def split_batches(inputs: Iterable[Any], rows: int) -> Iterator[list[Any]]:
    """Yield lists of `rows` inputs, or fewer if they reach INPUT_CHARS characters."""
    batch: list[Any] = []
    size = 0
    for each in inputs:
        batch.append(each)
        size += count_chars(each)
        if len(batch) == rows or size >= INPUT_CHARS:
            yield batch
            batch, size = [], 0
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


def write_records(records: Iterable[Record], out: Path, private: bool) -> Iterator[Record]:
    """Yield the records and write each to a locked file, which appears when it is complete."""
    partial_file = out.with_name(f".{out.name}.partial")
    with ExitStack() as opened, convert_os_errors(out):
        with restrict_permissions(private):  # not while the caller runs between two records
            opened.enter_context(lock_output(out, out.with_name(f".{out.name}.lock")))
            opened.callback(partial_file.unlink, missing_ok=True)
            file = opened.enter_context(partial_file.open("w", encoding="utf-8"))
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            yield record
        file.close()
        partial_file.replace(out)
