import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electra.data import chunks
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


def test_by_default_all_cores_are_used(
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
    with pytest.raises(DataError, match="not finished"):
        PreparedData.open(out)
    # A shard without the record of its chunk was being written when the others were stopped; it is made anew.
    done = {Path(name).stem for name in left if name.startswith("chunks/")}
    found = [name for name in left if "/" in name and Path(name).stem in done]
    assert len(found) > len(done), "records and shards"
    before = {name: (out / name).stat().st_mtime_ns for name in found}
    seen: list[PrepareProgress] = []
    prepare(corpus, tokenizer, out, seq_len=32, workers=1, on_progress=seen.append)
    assert content(out) == content(whole)
    assert seen[-1].found_chunks == sum(name.startswith("chunks/") for name in left)
    assert all((out / name).stat().st_mtime_ns == time for name, time in before.items()), "not done again"


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
    """pyarrow imports it, half a second and 50 MB in every process, to hand over an array it has no need for."""
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
    """A broken file stops the preparation: what comes before the place stands, what comes after is new."""
    whole, out, second = tmp_path / "whole", tmp_path / "out", tmp_path / "second.txt"
    corpus = Corpus((str(text), str(second)))
    second.write_bytes(b"ban ben\nbin \xff bon")
    with pytest.raises(TextError, match=rf"^{second}: not UTF-8 at byte offset 12"):
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
    other = Path(f"{text}.txt")
    other.write_bytes(text.read_bytes())
    corpus = Corpus((str(text),))
    try:
        prepare(corpus, tokenizer, out, seq_len=32, workers=1, on_progress=None if finished else stop_after(1))
    except KeyboardInterrupt:
        assert not finished
    before = content(out)
    cases: list[tuple[Corpus, Tokenizer, dict[str, Any], str]] = [
        (corpus, tokenizer, {"seq_len": 64}, "seq_len 32, now 64"),
        (corpus, tokenizer, {"seed": 5}, "seed 0, now 5"),
        (corpus, tokenizer, {"heldout": 0.2, "seed": 1}, "seed 0, now 1; heldout 0.01, now 0.2"),
        (corpus, OTHER_TOKENIZER, {}, r"tokenizer \w{12}, now \w{12}; vocab_size 60, now 6"),
        (replace(corpus, documents="line"), tokenizer, {}, "documents blank-line, now line"),
        (replace(corpus, text_field="body"), tokenizer, {}, "text_field text, now body"),
        (Corpus((str(other),)), tokenizer, {}, f"1 file, now 1, such as {text}"),
        (Corpus((str(text), str(other))), tokenizer, {}, f"1 file, now 2, such as {other}"),
        (Corpus((str(other), str(text))), tokenizer, {}, f"1 file, now 2, such as {other}"),
    ]
    for of_corpus, of_tokenizer, options, named in cases:
        message = rf"^{out}: (contains data prepared with other settings|prepared from other text): {named}; .*choose another --out"
        with pytest.raises(DataError, match=message):
            prepare(of_corpus, of_tokenizer, out, workers=1, **({"seq_len": 32} | options))
        assert content(out) == before


def test_text_of_another_size_is_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    prepare(Corpus((str(text),)), tokenizer, out, workers=1)
    size = text.stat().st_size
    text.write_bytes(text.read_bytes() + b" ban")
    said = rf"other text: {text} had {size:,} bytes and has {size + 4:,} now; restore the original text to resume"
    with pytest.raises(DataError, match=said):
        prepare(Corpus((str(text),)), tokenizer, out, workers=1)


def test_sources_in_another_order_are_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    other = text.with_name("other.txt")
    other.write_text("ban ben bin")
    prepare(Corpus((str(text), str(other))), tokenizer, out, workers=1)
    with pytest.raises(DataError, match=r"other text: 2 files, now 2, in another order; restore"):
        prepare(Corpus((str(other), str(text))), tokenizer, out, workers=1)


def test_directories_with_other_files_are_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    corpus = Corpus((str(text),))
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(
        DataError, match=rf"^{out}: contains other files \(such as thesis.tex\); .*choose a new or empty one"
    ):
        prepare(corpus, tokenizer, out, workers=1)
    assert content(out) == {"thesis.tex": b"years of work"}
    (out / "settings.json").write_text('{"theme": "dark"}')
    with pytest.raises(DataError, match=rf"^{out}/settings.json: not written by electra prepare"):
        prepare(corpus, tokenizer, out, workers=1)
    with pytest.raises(DataError, match=rf"^{text}: a file; prepared data needs a separate directory"):
        prepare(corpus, tokenizer, text, workers=1)


def test_settings_out_of_range_are_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    corpus = Corpus((str(text),))
    for options, message in (
        ({"seq_len": 4}, "^--seq-len 4: at least 5 tokens"),
        ({"workers": 0}, "^--workers 0: at least 1"),
        ({"heldout": 0.0}, "^heldout=0.0: a share"),
        ({"heldout": 1.0}, "^heldout=1.0: a share"),
    ):
        with pytest.raises(UsageError, match=message):
            prepare(corpus, tokenizer, out, **options)
    assert not out.exists()
    assert len(prepare(corpus, tokenizer, out, workers=1, seq_len=5).train) > 1000


@pytest.mark.parametrize("empty", ["", "\n\n \n\t\n"])
def test_empty_text_is_rejected(text: Path, out: Path, tokenizer: Tokenizer, empty: str) -> None:
    text.write_text(empty)
    with pytest.raises(TextError, match=rf"^{text}: no text in it"):
        prepare(Corpus((str(text),)), tokenizer, out)
    assert not out.exists()


def test_text_without_tokens_is_rejected(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    text.write_text("\x01\x02\n\x01\n\n\x07\n")
    with pytest.raises(TextError, match=rf"^{text}: the text has no tokens to train on"):
        prepare(Corpus((str(text),)), tokenizer, out)
    assert not out.exists()


def test_missing_text_is_rejected(tmp_path: Path, out: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(TextError, match=rf"^{tmp_path}/no.txt: .*No such file"):
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
        with pytest.raises(
            StorageError, match=rf"^{out}/train/00003.arrow: cannot be written: No space left on device"
        ):
            prepare(corpus, tokenizer, out, workers=1)
    left = content(out)
    assert not [name for name in left if "partial" in name or "00003" in name or name == "manifest.json"]
    assert left["train/00002.arrow"] == content(whole)["train/00002.arrow"]
    prepare(corpus, tokenizer, out, workers=1)
    assert content(out) == content(whole)


def test_directory_that_cannot_be_written_is_reported(text: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(StorageError, match=rf"^{text}/out: cannot be written: {text} is not a directory"):
        prepare(Corpus((str(text),)), tokenizer, text / "out", workers=1)


@pytest.mark.slow
def test_errors_of_workers_keep_their_type(text: Path, out: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare(Corpus((str(text),)), tokenizer, out, workers=1, on_progress=stop_after(1))
    shard = out / "train" / "00005.arrow"
    shard.mkdir()
    with pytest.raises(StorageError, match=rf"^{shard}: cannot be written: Is a directory"):
        prepare(Corpus((str(text),)), tokenizer, out, workers=2)
