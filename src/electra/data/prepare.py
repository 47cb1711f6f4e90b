"""Prepare a corpus: tokenize it and cut it into examples on all cores, chunk by chunk.

Chunk j becomes shard j of each split and `chunks/j.json`, which records the text and its shards. So an interrupted
preparation keeps its finished chunks, and the result does not depend on the number of workers.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from electra.config.checks import check_number
from electra.data.chunks import Chunk, read_chunks
from electra.data.deduplication import (
    THRESHOLD,
    Method,
    check_deduplication,
    describe_duplicates,
    drop_documents,
    find_duplicates,
)
from electra.data.directory import (
    is_finished,
    list_changed_files,
    remove_all,
    remove_leftovers,
    remove_partial,
    save_stamps,
    write_settings,
)
from electra.data.examples import MIN_SEQ_LEN
from electra.data.manifest import MANIFEST, SETTINGS, Manifest, Settings, SourceDuplicates, save_json
from electra.data.shards import PreparedData, write_unigrams
from electra.data.tokenization import ChunkRecord, ChunkWriter, format_record_name, is_made_of, load_finished_record
from electra.errors import DataError, StorageError, TextError
from electra.runtime.workers import available_cores, map_unordered
from electra.storage import LOCK, lock_output
from electra.text.cached_encoder import LineEncoder
from electra.text.corpus import Corpus
from electra.text.coverage import Coverage
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


HELDOUT = 0.01
"""Share of held-out documents."""
MAX_SEQ_LEN, MAX_WORKERS = 10**7, 4096


@dataclass(frozen=True)
class PrepareProgress:
    """Finished work, including that of interrupted earlier calls."""

    bytes_read: int
    """Bytes of the corpus on disk."""
    total_bytes: int | None
    """None if unknown."""
    documents: int
    examples: int
    tokens: int
    chunks: int
    found_chunks: int
    """Chunks that an earlier call had finished."""
    searching: bool = False
    """Whether duplicates are searched for, before the work counted above."""


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    out: Path,
    *,
    seq_len: int = 128,
    workers: int | None = None,
    seed: int = 0,
    heldout: float = HELDOUT,
    deduplicate: Method = "none",
    dedup_threshold: float = THRESHOLD,
    on_progress: Callable[[PrepareProgress], None] | None = None,
) -> PreparedData:
    """Prepare a corpus in the directory `out`, resume preparation there, or open finished data.

    `workers` processes are used, by default one per core; each takes about 200 MB of memory, independent of the size of the
    corpus. `heldout` is the share of held-out documents; there is always at least one, or the end of one (see `read_chunks`).
    Deduplication reads the text once before, and takes memory for each document (`electra.data.deduplication`).

    Raises:
        UsageError: a setting is out of range.
        TextError: the corpus cannot be read or has no text. Finished chunks are kept, so that preparation can resume.
        DataError: `out` contains other files, or data of other settings or text; a worker was killed.
        RunError: another process is writing `out`.
        StorageError: the disk is full, or writing is not allowed.
    """
    check_usage(seq_len, workers, heldout)
    check_deduplication(deduplicate, dedup_threshold)
    if workers is None:
        workers = available_cores()
    out = Path(out)
    corpus.check()
    settings = Settings(
        sources=corpus.describe(),
        documents=corpus.documents,
        text_field=corpus.text_field,
        tokenizer=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        seq_len=seq_len,
        seed=seed,
        heldout=heldout,
        names=list(corpus.sources),
        deduplicate=deduplicate,
        dedup_threshold=dedup_threshold if deduplicate == "minhash" else None,
    )
    if is_finished(out, settings):
        return _open_finished(corpus, out, settings)
    with lock_output(out, out / LOCK):
        if is_finished(out, settings):  # by another process, before it released the lock
            return _open_finished(corpus, out, settings)
        return _prepare(corpus, tokenizer, out, settings, workers, on_progress or (lambda progress: None))


def _open_finished(corpus: Corpus, out: Path, settings: Settings) -> PreparedData:
    """Open finished data after checking that it was prepared from this text.

    Files with the same size and stamp are considered unchanged. If a stamp differs, the text is read again and compared with
    the checksums of its chunks, which is reliable and much faster than preparing it.

    Raises:
        DataError: the text has changed.
    """
    stamps = corpus.stamps()
    if files := list_changed_files(out, stamps):
        log.info(
            f"{files[0]} may have changed since {out} was prepared (it is read again and compared)",
            extra={"code": "text-may-have-changed"},
        )
        if not is_made_of(out, read_kept_chunks(corpus, settings)[0]):
            changed = files[0] if len(files) == 1 else f"one of {len(files):,} files (such as {files[0]})"
            raise DataError(
                "other-content",
                f"{out}: prepared from other text: {changed} has the same size but other content; "
                "restore the original text to continue, or choose another --out for the new text",
            )
        with suppress(StorageError):  # for example data of another user: the text is read again next time
            save_stamps(out, stamps)
    return PreparedData.open(out)


def _prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    out: Path,
    settings: Settings,
    workers: int,
    on_progress: Callable[[PrepareProgress], None],
) -> PreparedData:
    """Prepare all chunks that are not finished."""
    searched = PrepareProgress(0, corpus.total_bytes(), 0, 0, 0, 0, 0, searching=True)
    chunks, duplicates = read_kept_chunks(
        corpus, settings, lambda bytes_read: on_progress(replace(searched, bytes_read=bytes_read))
    )
    first = next(chunks, None)  # before anything is written
    if first is None:
        raise TextError("no-text", f"{', '.join(corpus.sources)}: no text in it, only empty lines or nothing at all")
    if (out / SETTINGS).exists() and (files := list_changed_files(out, corpus.stamps())):
        log.warning(
            f"{files[0]} may have changed since preparation started: parts of the text that differ are prepared again",
            extra={"code": "text-may-have-changed-meanwhile"},
        )
    write_settings(out, settings, corpus.stamps(), tokenizer)
    try:
        records = _write_chunks(
            chain([first], chunks),
            ChunkWriter(out, LineEncoder(tokenizer), settings.seq_len, settings.seed),
            workers,
            corpus.total_bytes(),
            on_progress,
        )
        if not any(record.train for record in records):
            remove_all(out)
            raise TextError("no-tokens", f"{', '.join(corpus.sources)}: the text has no tokens to train on")
        return _finish(out, settings, tokenizer, records, duplicates)
    finally:
        remove_partial(out)


def read_kept_chunks(
    corpus: Corpus, settings: Settings, on_progress: Callable[[int], None] = lambda bytes_read: None
) -> tuple[Iterator[Chunk], list[SourceDuplicates] | None]:
    """Read the chunks of the documents that are not duplicates; return also the counts of these by source.

    Without deduplication, these are all documents, and None.
    """
    if settings.deduplicate == "none":
        return read_chunks(corpus, settings.seed, settings.heldout), None
    names, threshold = list(corpus.sources), settings.dedup_threshold or THRESHOLD
    duplicates, counts = find_duplicates(corpus, settings.deduplicate, threshold, names, on_progress)
    log.info(describe_duplicates(counts, names), extra={"code": "duplicates"})
    return read_chunks(drop_documents(corpus, duplicates), settings.seed, settings.heldout), counts


def check_usage(seq_len: int, workers: int | None, heldout: float = HELDOUT) -> None:
    """Raise a UsageError for a setting out of range; a run calls this before it trains a tokenizer."""
    check_number("--seq-len", seq_len, at_least=MIN_SEQ_LEN, at_most=MAX_SEQ_LEN)
    check_number("--workers", workers, at_least=1, at_most=MAX_WORKERS)
    check_number("heldout", heldout, above=0, below=1)


def _write_chunks(
    chunks: Iterator[Chunk],
    writer: ChunkWriter,
    workers: int,
    total_bytes: int | None,
    on_progress: Callable[[PrepareProgress], None],
) -> list[ChunkRecord]:
    """Write the unfinished chunks; return the records of all chunks in order."""
    progress = PrepareProgress(0, total_bytes, 0, 0, 0, 0, 0)
    records: list[ChunkRecord] = []
    bytes_read: dict[int, int] = {}

    def report_chunk(record: ChunkRecord, found: bool) -> None:
        nonlocal progress
        records.append(record)
        entries = [entry for entry in (record.train, record.heldout) if entry]
        progress = PrepareProgress(
            max(progress.bytes_read, bytes_read.pop(record.number)),
            total_bytes,
            progress.documents + record.documents,
            progress.examples + sum(entry.examples for entry in entries),
            progress.tokens + sum(entry.tokens for entry in entries),
            progress.chunks + 1,
            progress.found_chunks + found,
        )
        on_progress(progress)

    def find_unfinished() -> Iterator[Chunk]:
        for chunk in chunks:
            bytes_read[chunk.number] = chunk.bytes_read
            if record := load_finished_record(writer.directory, chunk):
                report_chunk(record, found=True)
            else:
                yield chunk

    with closing(map_unordered(writer, find_unfinished(), workers)) as written:
        for record in written:
            report_chunk(record, found=False)
    return sorted(records, key=lambda record: record.number)


def _finish(
    out: Path,
    settings: Settings,
    tokenizer: Tokenizer,
    records: list[ChunkRecord],
    duplicates: list[SourceDuplicates] | None,
) -> PreparedData:
    train = [record.train for record in records if record.train]
    heldout = [record.heldout for record in records if record.heldout]
    remove_leftovers(
        out, {entry.name for entry in train + heldout} | {format_record_name(record.number) for record in records}
    )
    manifest = Manifest(
        settings=settings,
        documents=sum(record.documents for record in records),
        heldout_from="end" if any(record.cuts_end for record in records) else "documents",
        train=train,
        heldout=heldout,
        unigrams=write_unigrams(out, train, settings.vocab_size, (tokenizer.cls_id, tokenizer.sep_id)),
        coverage=sum((record.coverage for record in records if record.coverage), Coverage()),
        duplicates=duplicates,
    )
    save_json(out / MANIFEST, manifest)
    return PreparedData.open(out)
