"""Output files of inference by suffix, written while the rows are computed: memory does not depend on their number."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from electra.config.checks import join_choices
from electra.errors import UsageError
from electra.finetuning.task import Prediction
from electra.storage import convert_os_errors, lock_output, restrict_permissions

GROUP_ROWS = 4096
"""Rows of a row group of a Parquet file, which are in memory at a time."""

Writer = Callable[[Path], AbstractContextManager[Callable[[Prediction], None]]]
"""Opens a new file and returns a function that writes a row; the file is complete when the context ends without an error."""


@contextmanager
def open_json_lines(path: Path) -> Iterator[Callable[[Prediction], None]]:
    """Write a JSON object per row."""
    with path.open("w", encoding="utf-8") as file:
        yield lambda row: write_json_line(file.write, row)


def write_json_line(write: Callable[[str], object], row: Prediction) -> None:
    """Write a row as a JSON line."""
    write(json.dumps(row, ensure_ascii=False) + "\n")


@contextmanager
def open_npy(path: Path) -> Iterator[Callable[[Prediction], None]]:
    """Write the vectors as a float32 array [N, H], without the ids.

    The header is written again at the end, when N is known; NumPy pads it so that any N fits.
    """
    shape = [0, 0]

    def write_header() -> None:
        file.seek(0)
        header = {"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(file, header)

    def write(row: Prediction) -> None:
        if not shape[0]:
            shape[1] = len(row["vector"])
            write_header()
        shape[0] += 1
        file.write(np.asarray(row["vector"], "<f4").tobytes())

    with path.open("wb") as file:
        write_header()
        yield write
        write_header()


@contextmanager
def open_parquet(path: Path) -> Iterator[Callable[[Prediction], None]]:
    """Write the columns `id` (string) and `vector` (list of float32)."""
    schema = pa.schema([("id", pa.string()), ("vector", pa.list_(pa.float32()))])
    rows: list[Prediction] = []

    def write(row: Prediction) -> None:
        rows.append(row)
        if len(rows) == GROUP_ROWS:
            flush()

    def flush() -> None:
        file.write_table(pa.Table.from_pylist(rows, schema))
        rows.clear()

    with pq.ParquetWriter(path, schema) as file:
        yield write
        if rows:
            flush()


VECTOR_WRITERS: dict[str, Writer] = {".jsonl": open_json_lines, ".npy": open_npy, ".parquet": open_parquet}
"""Suffix of a file of vectors -> its writer."""


def find_vector_writer(out: Path) -> Writer:
    """Return the writer for the suffix of a file.

    Raises:
        UsageError: it is none of VECTOR_WRITERS.
    """
    if (writer := VECTOR_WRITERS.get(out.suffix.lower())) is None:
        raise UsageError("unknown-format", f"--out {out}: expected a name that ends in {join_choices(VECTOR_WRITERS)}")
    return writer


def write_rows(rows: Iterable[Prediction], out: Path, private: bool, writer: Writer) -> Iterator[Prediction]:
    """Yield the rows and write each to a locked partial file, which is renamed to `out` when it is complete."""
    partial_file = out.with_name(f".{out.name}.partial")
    with ExitStack() as opened, convert_os_errors(out):
        # Not during the loop, where the code of the caller runs between rows.
        with restrict_permissions(private):
            opened.enter_context(lock_output(out, out.with_name(f".{out.name}.lock")))
            opened.callback(partial_file.unlink, missing_ok=True)
            file = opened.enter_context(ExitStack())
            write = file.enter_context(writer(partial_file))
        for row in rows:
            write(row)
            yield row
        file.close()
        partial_file.replace(out)
