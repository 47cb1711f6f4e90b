import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.errors import raises

from electra.data import chunks
from electra.data.manifest import Settings
from electra.data.prepare import PrepareProgress, prepare
from electra.data.shards import PreparedData
from electra.errors import DataError, StorageError, TextError, UsageError
from electra.text.corpus import Corpus
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer, load_tokenizer


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 20_000)  # the fixture's 300 documents are 8 chunks


@pytest.fixture
def text(tmp_path: Path, documents: list[list[str]]) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(lines) for lines in documents))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def stop_after(number: int) -> Callable[[PrepareProgress], None]:
    def stop(progress: PrepareProgress) -> None:
        if progress.chunks == number:
            raise KeyboardInterrupt

    return stop


def words(data: PreparedData, tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """The words of the training and of the held-out examples, in order."""
    train, heldout = (
        [token for i in range(len(split)) for token in tokenizer.tokens(split[i].ids.tolist())]
        for split in (data.train, data.heldout)
    )
    return tuple([token for token in tokens if token not in SPECIAL_TOKENS] for tokens in (train, heldout))


def test_all_text_is_prepared_and_each_document_is_in_one_split(
    text: Path, out: Path, tokenizer: Tokenizer, documents: list[list[str]]
) -> None:
    data = prepare(Corpus((str(text),)), tokenizer, out, seq_len=32, workers=1, heldout=0.1)
    train, heldout = words(data, tokenizer)
    expected: dict[bool, list[str]] = {True: [], False: []}
    beginnings = {tuple(heldout[i : i + 12]) for i in range(len(heldout))}
    held_documents = 0
    for lines in documents:
        held = tuple(lines[0].split()[:12]) in beginnings
        held_documents += held
        expected[held] += " ".join(lines).split()
    assert (train, heldout) == (expected[False], expected[True])
    assert 10 < held_documents < 60
    assert data.manifest.documents == 300
    assert data.manifest.heldout_from == "documents"
    assert data.train.lengths(range(len(data.train))).max() == 32
    counts = np.bincount([tokenizer.vocabulary.index(word) for word in train], minlength=tokenizer.vocab_size)
    assert data.unigrams.tolist() == counts.tolist()


def test_examples_are_well_formed(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    data = prepare(Corpus((str(text),)), tokenizer, out, seq_len=64, workers=1)
    pairs = 0
    for i in range(len(data.train)):
        ids, segment_a = data.train[i]
        assert ids[0] == tokenizer.cls_id
        separators = np.flatnonzero(ids == tokenizer.sep_id)
        assert separators[0] == segment_a - 1
        assert separators[-1] == len(ids) - 1
        pairs += len(separators) == 2
    assert 0.3 < pairs / len(data.train) < 0.95
    assert data.train[0].ids.dtype == np.uint16


def test_a_copy_of_the_tokenizer_is_saved(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    data = prepare(Corpus((str(text),)), tokenizer, out, workers=1)
    assert load_tokenizer(data.tokenizer_path) == tokenizer
    data.check_tokenizer(tokenizer.fingerprint, tokenizer.vocab_size)


@pytest.mark.slow
def test_number_of_workers_does_not_change_the_data(text: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    for workers in (1, 3):
        prepare(Corpus((str(text),)), tokenizer, tmp_path / str(workers), seq_len=32, workers=workers)
    prepare(Corpus((str(text),)), tokenizer, tmp_path / "seed", seq_len=32, workers=1, seed=1)
    assert len(list((tmp_path / "1" / "train").iterdir())) == 8
    assert content(tmp_path / "1") == content(tmp_path / "3")
    assert content(tmp_path / "1")["train/00004.arrow"] != content(tmp_path / "seed")["train/00004.arrow"]


def test_all_cores_are_used_by_default(
    text: Path, out: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def recording(function: Callable[[Any], Any], items: Iterable[Any], workers: int) -> Iterator[Any]:
        asked.append(workers)
        yield from map(function, items)

    monkeypatch.setattr("electra.data.prepare.map_unordered", recording)
    prepare(Corpus((str(text),)), tokenizer, out)
    assert asked == [len(os.sched_getaffinity(0))]


def test_progress_is_reported(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    seen: list[PrepareProgress] = []
    data = prepare(Corpus((str(text),)), tokenizer, out, workers=1, on_progress=seen.append)
    assert [progress.chunks for progress in seen] == list(range(1, 9))
    last = seen[-1]
    assert last.bytes_read == last.total_bytes == text.stat().st_size
    assert (last.documents, last.found_chunks) == (300, 0)
    assert last.examples == len(data.train) + len(data.heldout)
    assert last.tokens == data.train.tokens + data.heldout.tokens


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_preparation_resumes(text: Path, tmp_path: Path, tokenizer: Tokenizer, workers: int) -> None:
    corpus, whole, out = Corpus((str(text),)), tmp_path / "whole", tmp_path / "out"
    prepare(corpus, tokenizer, whole, seq_len=32, workers=1)
    with pytest.raises(KeyboardInterrupt):
        prepare(corpus, tokenizer, out, seq_len=32, workers=workers, on_progress=stop_after(4))
    left = content(out)
    assert sum(name.startswith("chunks/") for name in left) >= 4
    assert "manifest.json" not in left
    assert not [name for name in left if name.endswith(".partial")]
    with raises(DataError, "unfinished", out):
        PreparedData.open(out)
    # A shard without a record of its chunk was being written when preparation stopped; it is written again.
    done = {Path(name).stem for name in left if name.startswith("chunks/")}
    found = [name for name in left if "/" in name and Path(name).stem in done]
    assert len(found) > len(done), "records and shards"
    before = {name: (out / name).stat().st_mtime_ns for name in found}
    seen: list[PrepareProgress] = []
    prepare(corpus, tokenizer, out, seq_len=32, workers=1, on_progress=seen.append)
    assert content(out) == content(whole)
    assert seen[-1].found_chunks == sum(name.startswith("chunks/") for name in left)
    assert all((out / name).stat().st_mtime_ns == time for name, time in before.items()), "they are not written again"


@pytest.mark.slow
def test_killed_preparation_resumes(text: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    tokenizer.save(tmp_path / "tokenizer")
    code = f"""
import os, signal
from pathlib import Path
from electra.data import chunks
from electra.data.prepare import prepare
from electra.text.corpus import Corpus
from electra.text.tokenizer import load_tokenizer
chunks.CHUNK_CHARS = 20_000
def kill(progress):
    if progress.chunks == 3:
        os.kill(os.getpid(), signal.SIGKILL)
prepare(Corpus(({str(text)!r},)), load_tokenizer({str(tmp_path / "tokenizer")!r}), Path({str(out)!r}),
        workers=2, on_progress=kill)
"""
    killed = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (out / "train" / ".00008.arrow.123.partial").write_bytes(b"half a sha")
    for directory in (out, whole):
        prepare(Corpus((str(text),)), tokenizer, directory, workers=1)
    assert content(out) == content(whole)


@pytest.mark.slow
def test_pandas_is_not_imported(tmp_path: Path, text: Path, out: Path, tokenizer: Tokenizer) -> None:
    """Some conversions of pyarrow import it, which costs half a second and 50 MB in every process."""
    tokenizer.save(tmp_path / "tokenizer")
    code = f"""
import sys
from pathlib import Path
from electra.data.prepare import prepare
from electra.text.corpus import Corpus
from electra.text.tokenizer import load_tokenizer
data = prepare(Corpus(({str(text)!r},)), load_tokenizer({str(tmp_path / "tokenizer")!r}), Path({str(out)!r}), workers=1)
assert data.train[0].ids.sum() > 0
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.slow
def test_only_damaged_chunks_are_prepared_again(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    corpus = Corpus((str(text),))
    prepare(corpus, tokenizer, out, workers=1, heldout=0.2)
    whole = content(out)
    for name in ("train/00002.arrow", "heldout/00002.arrow", "chunks/00002.json"):
        for damaged in (whole[name][:-9], whole[name][:-9] + b"123456789", None):
            (out / name).unlink() if damaged is None else (out / name).write_bytes(damaged)
            (out / "manifest.json").unlink()
            seen: list[PrepareProgress] = []
            prepare(corpus, tokenizer, out, workers=1, heldout=0.2, on_progress=seen.append)
            assert content(out) == whole
            assert (seen[-1].chunks, seen[-1].found_chunks) == (8, 7), (name, damaged)


def test_repaired_text_is_prepared_again(text: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """An invalid file stops preparation; chunks before the invalid place are reused after the file is repaired."""
    whole, out, second = tmp_path / "whole", tmp_path / "out", tmp_path / "second.txt"
    corpus = Corpus((str(text), str(second)))
    second.write_bytes(b"ban ben\nbin \xff bon")
    with raises(TextError, "not-utf8", second, 12):
        prepare(corpus, tokenizer, out, workers=1)
    left = content(out)
    assert not [name for name in left if name.endswith(".partial")]
    second.write_text("ban ben\nbin bun bon")
    seen: list[PrepareProgress] = []
    prepare(replace(corpus), tokenizer, out, workers=1, on_progress=seen.append)
    prepare(replace(corpus), tokenizer, whole, workers=1)
    assert content(out) == content(whole)
    assert seen[-1].found_chunks == sum(name.startswith("chunks/") for name in left) == 6


def test_chunks_of_removed_text_are_deleted(text: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare(Corpus((str(text),)), tokenizer, out, workers=1, on_progress=stop_after(8))
    text.write_bytes(text.read_bytes()[: text.stat().st_size // 2])
    for directory in (out, whole):
        prepare(Corpus((str(text),)), tokenizer, directory, workers=1)
    assert content(out) == content(whole)


def test_finished_data_is_opened(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    first = prepare(Corpus((str(text),)), tokenizer, out, workers=1)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    calls: list[PrepareProgress] = []
    again = prepare(Corpus((str(text),)), tokenizer, out, workers=1, on_progress=calls.append)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == times
    assert again.manifest == first.manifest
    assert calls == []


OTHER_TOKENIZER = Tokenizer((*SPECIAL_TOKENS, "a"), Normalization())


@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_in_the_same_directory_are_rejected(
    text: Path, out: Path, tokenizer: Tokenizer, finished: bool
) -> None:
    other = text.with_name("texts.txt")
    other.write_bytes(text.read_bytes())
    corpus = Corpus((str(text),))
    try:
        prepare(corpus, tokenizer, out, seq_len=32, workers=1, on_progress=None if finished else stop_after(1))
    except KeyboardInterrupt:
        assert not finished
    before = content(out)
    fingerprints = tokenizer.fingerprint[:12], OTHER_TOKENIZER.fingerprint[:12]
    cases: list[tuple[Corpus, Tokenizer, dict[str, Any], dict[str, tuple[Any, Any]]]] = [
        (corpus, tokenizer, {"seq_len": 64}, {"seq_len": (32, 64)}),
        (corpus, tokenizer, {"seed": 5}, {"seed": (0, 5)}),
        (corpus, tokenizer, {"heldout": 0.2, "seed": 1}, {"seed": (0, 1), "heldout": (0.01, 0.2)}),
        (corpus, OTHER_TOKENIZER, {}, {"tokenizer": fingerprints, "vocab_size": (60, 6)}),
        (replace(corpus, documents="line"), tokenizer, {}, {"documents": ("blank-line", "line")}),
        (replace(corpus, text_field="body"), tokenizer, {}, {"text_field": ("text", "body")}),
    ]
    for of_corpus, of_tokenizer, options, differing in cases:
        values = [value for name, (old, new) in differing.items() for value in (f" {name} {old}", new)]
        with raises(DataError, "other-settings", out, "--out", *values) as raised:
            prepare(of_corpus, of_tokenizer, out, workers=1, **({"seq_len": 32} | options))
        named = {field.name for field in fields(Settings) if f" {field.name} " in str(raised.value)}
        assert named == differing.keys()
        assert content(out) == before
    for sources, number, difference in (((other,), 1, text), ((text, other), 2, other), ((other, text), 2, other)):
        with raises(DataError, "other-text", out, "--out", 1, number, difference) as raised:
            prepare(Corpus(tuple(map(str, sources))), tokenizer, out, workers=1, seq_len=32)
        assert str(text if difference == other else other) not in str(raised.value)
        assert content(out) == before


def test_text_of_another_size_is_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    prepare(Corpus((str(text),)), tokenizer, out, workers=1)
    size = text.stat().st_size
    text.write_bytes(text.read_bytes() + b" ban")
    with raises(DataError, "other-text", text, f"{size:,}", f"{size + 4:,}"):
        prepare(Corpus((str(text),)), tokenizer, out, workers=1)


def test_sources_in_another_order_are_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    other = text.with_name("other.txt")
    other.write_text("ban ben bin")
    prepare(Corpus((str(text), str(other))), tokenizer, out, workers=1)
    with raises(DataError, "other-order", out, 2):
        prepare(Corpus((str(other), str(text))), tokenizer, out, workers=1)


def test_directories_with_other_files_are_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    corpus = Corpus((str(text),))
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with raises(DataError, "other-files", out, "thesis.tex"):
        prepare(corpus, tokenizer, out, workers=1)
    assert content(out) == {"thesis.tex": b"years of work"}
    (out / "settings.json").write_text('{"theme": "dark"}')
    with raises(DataError, "not-prepared", out / "settings.json"):
        prepare(corpus, tokenizer, out, workers=1)
    with raises(DataError, "not-directory", text):
        prepare(corpus, tokenizer, text, workers=1)


def test_settings_out_of_range_are_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    corpus = Corpus((str(text),))
    for options, values in (
        ({"seq_len": 4}, ["--seq-len is 4", 5]),
        ({"workers": 0}, ["--workers is 0", 1]),
        ({"heldout": 0.0}, ["heldout is 0.0", 0]),
        ({"heldout": 1.0}, ["heldout is 1.0", 1]),
    ):
        with raises(UsageError, "out-of-range", *values):
            prepare(corpus, tokenizer, out, **options)
    assert not out.exists()
    assert len(prepare(corpus, tokenizer, out, workers=1, seq_len=5).train) > 1000


@pytest.mark.parametrize("empty", ["", "\n\n \n\t\n"])
def test_empty_text_is_rejected(text: Path, out: Path, tokenizer: Tokenizer, empty: str) -> None:
    text.write_text(empty)
    with raises(TextError, "no-text", text):
        prepare(Corpus((str(text),)), tokenizer, out)
    assert not out.exists()


def test_text_without_tokens_is_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    text.write_text("\x01\x02\n\x01\n\n\x07\n")
    with raises(TextError, "no-tokens", text):
        prepare(Corpus((str(text),)), tokenizer, out)
    assert not out.exists()


def test_missing_text_is_rejected(tmp_path: Path, out: Path, tokenizer: Tokenizer) -> None:
    with raises(TextError, "missing", tmp_path / "no.txt", os.strerror(errno.ENOENT)):
        prepare(Corpus((str(tmp_path / "no.txt"),)), tokenizer, out)
    assert not out.exists()


def test_single_document_is_split(text: Path, out: Path, tokenizer: Tokenizer, documents: list[list[str]]) -> None:
    data = prepare(Corpus((str(text),), documents="file"), tokenizer, out, seq_len=32, workers=1)
    assert data.manifest.heldout_from == "end"
    assert data.manifest.documents == 1
    train, heldout = words(data, tokenizer)
    assert train + heldout == " ".join(line for lines in documents for line in lines).split()
    assert 0.02 < len(heldout) / len(train) < 0.06


def test_full_disk_is_reported(
    text: Path, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, out, whole = Corpus((str(text),)), tmp_path / "out", tmp_path / "whole"
    prepare(corpus, tokenizer, whole, workers=1)
    move = os.replace

    def full(source: Path, target: Path) -> None:
        if target == out / "train" / "00003.arrow":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        move(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with raises(StorageError, "disk-full", out / "train/00003.arrow", os.strerror(errno.ENOSPC)):
            prepare(corpus, tokenizer, out, workers=1)
    left = content(out)
    assert not [name for name in left if "partial" in name or "00003" in name or name == "manifest.json"]
    assert left["train/00002.arrow"] == content(whole)["train/00002.arrow"]
    prepare(corpus, tokenizer, out, workers=1)
    assert content(out) == content(whole)


def test_directory_that_cannot_be_written_is_reported(text: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    with raises(StorageError, "not-directory", text / "out", f" {text} "):
        prepare(Corpus((str(text),)), tokenizer, text / "out", workers=1)


@pytest.mark.slow
def test_errors_of_workers_keep_their_type(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare(Corpus((str(text),)), tokenizer, out, workers=1, on_progress=stop_after(1))
    shard = out / "train" / "00005.arrow"
    shard.mkdir()
    with raises(StorageError, "unwritable", shard, os.strerror(errno.EISDIR)):
        prepare(Corpus((str(text),)), tokenizer, out, workers=2)
