"""Check the content of prepared data against the manifest: correct checksums do not prove that `prepare` wrote the files."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from electra.data.manifest import Settings, ShardEntry
from electra.errors import DataError
from electra.external import format_count, one_line

MIN_TOKENS = 3
"""Minimum tokens of an example: `[CLS] a [SEP]`."""


def check_shard(path: Path, entry: ShardEntry, settings: Settings) -> None:
    """Raise a DataError unless the content of a shard matches its entry and the settings.

    This uses a separate memory map, so that its memory is released.
    """
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file.read_buffer()) as reader:
            expected = [
                ("input_ids", (pa.large_list(pa.uint16()), pa.large_list(pa.uint32()))),
                ("segment_a", (pa.int32(),)),
            ]
            batch = reader.get_batch(0) if reader.num_record_batches == 1 else None
            if batch is None or batch.schema.names != [name for name, _ in expected]:
                raise DataError("wrong-columns", f"{path}: expected one batch of the columns input_ids and segment_a")
            batch.validate(full=True)
            for name, types in expected:
                if batch.schema.field(name).type not in types or batch.column(name).null_count:
                    raise DataError(
                        "wrong-type",
                        f"{path}: {name} is {batch.schema.field(name).type}, expected {types[0]} without nulls",
                    )
        ids, lengths, segment_a = get_arrays(batch)
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise DataError("not-shard", f"{path}: not a shard ({one_line(error)})") from error
    if (len(segment_a), len(ids)) != (entry.examples, entry.tokens):
        raise DataError(
            "wrong-size",
            f"{path}: {len(segment_a):,} examples of {len(ids):,} tokens, expected {entry.examples:,} of {entry.tokens:,}",
        )
    if len(ids) and ids.max() >= settings.vocab_size:
        raise DataError(
            "token-outside-vocabulary",
            f"{path}: token {ids.max()}, but the vocabulary has {settings.vocab_size:,} tokens",
        )
    if len(lengths) and not (lengths.min() >= MIN_TOKENS and lengths.max() <= settings.seq_len):
        raise DataError(
            "wrong-length",
            f"{path}: examples of {lengths.min()} to {lengths.max()} tokens, expected {MIN_TOKENS} to {settings.seq_len:,}",
        )
    if not ((segment_a >= 1) & (segment_a <= lengths)).all():
        raise DataError("wrong-segment", f"{path}: a segment_a that is longer than its example or less than 1")


def check_sources(path: Path, entry: ShardEntry, settings: Settings) -> None:
    """Raise a DataError unless the sources in the entry of a shard, if there are any, exist and have all of its examples."""
    if entry.sources is None:
        return
    known, counted = len(settings.names or []), sum(number for _, number in entry.sources)
    if counted != entry.examples or any(source >= known for source, _ in entry.sources):
        raise DataError(
            "wrong-sources",
            f"{path}: the sources of {entry.name} are not those of its {format_count(entry.examples, 'example')}; "
            "it was changed: delete it and run electra prepare as before",
        )


def get_arrays(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return token ids, lengths and `segment_a` of a validated batch."""
    column = batch.column("input_ids")
    offsets, segment_a = np.from_dlpack(column.offsets), np.from_dlpack(batch.column("segment_a"))
    if offsets[0] != 0 or offsets[-1] != len(column.values):
        raise ValueError("the offsets do not cover the tokens")
    return np.from_dlpack(column.values), np.diff(offsets), segment_a


def read_counts(path: Path, data: pa.Buffer, vocab_size: int) -> Int64[np.ndarray, " V"]:
    """Parse `unigrams.npy`. Raises DataError if it is not an array of `vocab_size` counts."""
    file = io.BytesIO(memoryview(data))
    try:
        # Check the header first: it determines how much memory np.load allocates.
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if shape != (vocab_size,) or dtype != np.dtype(np.int64):
            raise DataError(
                "wrong-counts", f"{path}: counts of shape {shape} and type {dtype}, expected {(vocab_size,)} and int64"
            )
        file.seek(0)
        counts = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError("not-array", f"{path}: not an array of counts ({one_line(error)})") from error
    if (counts < 0).any():
        raise DataError("negative-count", f"{path}: a count is negative")
    return counts
