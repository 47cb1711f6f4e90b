"""Text as the common data pipelines and public corpora store it, and data sets that Hugging Face datasets saved."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from support.errors import notices, raises

from electra.errors import TextError
from electra.text import fields
from electra.text.corpus import Corpus

TEXTS = ["First line: größer.\nSecond line.", "Another document.", "中文"]
LINES = [["First line: größer.", "Second line."], ["Another document."], ["中文"]]

METADATA = {"id": "x-1", "source": "web"}
CORPORA: dict[str, tuple[str, Callable[[bytes], bytes], Callable[[str], dict[str, Any]]]] = {
    "C4": ("en/c4-train.00000-of-01024.json.gz", gzip.compress, lambda t: {"text": t, "timestamp": "2019", "url": "u"}),
    "Dolma": (
        "cc/cc-0000.json.gz",
        gzip.compress,
        lambda t: {**METADATA, "text": t, "metadata": {"text": 1, "content": [2]}},
    ),
    "datatrove": (
        "output/00000.jsonl.gz",
        gzip.compress,
        lambda t: {"text": t, "id": "x", "metadata": {"dump": "d", "score": 0.5}},
    ),
    "RedPajama": ("arxiv/arxiv_1.jsonl", bytes, lambda t: {"text": t, "meta": {"url": "u", "content": None}}),
    "RedPajama 2": (
        "documents/2018/0000/en_head.json.gz",
        gzip.compress,
        lambda t: {"url": "u", "digest": "d", "raw_content": t},
    ),
    "the Pile": ("00.jsonl.zst", zstandard.compress, lambda t: {"text": t, "meta": {"pile_set_name": "Github"}}),
    "content": ("data/part.json.zst", zstandard.compress, lambda t: {"content": t, "size": 1, "meta": {"text": "no"}}),
}


@pytest.fixture(autouse=True)
def _nothing_logged() -> None:
    fields._log_field.cache_clear()


def documents(*sources: object, **options: str) -> list[list[str]]:
    return [piece.lines for piece in Corpus(tuple(map(str, sources)), **options)]


def write_jsonl(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("name", CORPORA)
def test_public_corpora_are_read_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    place, compress, build = CORPORA[name]
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compress("".join(json.dumps(build(text)) + "\n" for text in TEXTS).encode()))
    (tmp_path / "config.json").write_text("{}\n\n{")  # not read
    assert documents(tmp_path) == LINES
    assert documents(tmp_path) == LINES
    field = next(key for key, value in build("the text").items() if value == "the text")
    messages = notices(caplog, "text-field")
    assert len(messages) == (field != "text"), "once, though the file is read twice"
    assert all(repr(field) in message and str(path.parent) in message for message in messages)


def test_plain_json_is_no_text_format(tmp_path: Path) -> None:
    with raises(TextError, "unknown-format", tmp_path / "a.json", ".json (", "compressed"):
        Corpus((str(write_jsonl(tmp_path / "a.json", {"text": "a"})),)).check()


@pytest.mark.parametrize(
    "records",
    [
        [{"content": "a", "raw_content": "b"}],
        [{"body": "a"}],
        [{"content": "a"}, {"raw_content": "b"}],
        [{"text": "a"}, {"content": "b"}],
    ],
)
def test_a_field_is_chosen_only_if_it_is_the_only_one(tmp_path: Path, records: list[dict[str, str]]) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", *records)
    with raises(TextError, "missing-column", f"{path}:{len(records)}", "--text-field"):
        documents(path)


def test_a_given_field_is_not_replaced(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", {"content": "a"})
    with raises(TextError, "missing-column", path, "'body'"):
        documents(path, text_field="body")
    assert documents(path, text_field="content") == [["a"]]


def test_columns_are_chosen_as_fields_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table({"url": ["u"] * 3, "raw_content": TEXTS})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    pq.write_table(table, tmp_path / "b.parquet")
    assert documents(tmp_path) == LINES * 2
    assert len(notices(caplog, "text-field")) == 1


def write_arrow(path: Path, table: pa.Table, is_stream: bool, rows: int = 100) -> Path:
    with (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_arrow_files_and_streams_are_read(tmp_path: Path, is_stream: bool, suffix: str) -> None:
    texts = [f"Document {number}." for number in range(1000)]
    path = write_arrow(tmp_path / "a.arrow", pa.table({"n": range(1000), "text": texts}), is_stream, rows=300)
    if suffix:
        compress = {".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
        path = path.rename(tmp_path / f"a.arrow{suffix}")
        path.write_bytes(compress(path.read_bytes()))
    assert documents(path) == [[text] for text in texts]
    assert [*Corpus((str(path),))][-1].bytes_read == path.stat().st_size


def test_invalid_arrow_files_are_rejected(tmp_path: Path) -> None:
    good = write_arrow(tmp_path / "good.arrow", pa.table({"text": TEXTS}), True).read_bytes()
    offsets = write_arrow(tmp_path / "x.arrow", pa.table({"text": ["seven b"]}), True).read_bytes()
    before, after = offsets.rsplit(b"\0\0\0\0\7\0\0\0", 1)  # the last place is that of the data
    bad_offsets = before + b"\0\0\0\0\xff\xff\0\0" + after
    invalid = pa.Array.from_buffers(pa.utf8(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    for content, code in (
        (b"", "damaged"),
        (b"text, not Arrow", "damaged"),
        (good[: len(good) // 2], "damaged"),
        (b"ARROW1" + good, "damaged"),
        (bad_offsets, "damaged"),
        (write_arrow(tmp_path / "x.arrow", pa.table({"text": invalid}), True).read_bytes(), "damaged"),
        (write_arrow(tmp_path / "x.arrow", pa.table({"text": [1]}), True).read_bytes(), "wrong-type"),
        (write_arrow(tmp_path / "x.arrow", pa.table({"text": ["a", None]}), True).read_bytes(), "wrong-type"),
        (write_arrow(tmp_path / "x.arrow", pa.table({"body": ["a"]}), True).read_bytes(), "missing-column"),
    ):
        path = tmp_path / "bad.arrow"
        path.write_bytes(content)
        with raises(TextError, code, path):
            documents(path)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    datasets = pytest.importorskip("datasets")
    rows = {"text": [f"{number}" for number in range(50)], "n": list(range(50))}
    dataset = datasets.Dataset.from_dict(rows)
    dataset.save_to_disk(tmp_path / "saved", num_shards=3)
    return tmp_path / "saved"


def test_saved_data_sets_are_read(saved: Path) -> None:
    """The files are those of the data set, in its order, without the cached results of `map`."""
    import datasets

    datasets.load_from_disk(saved).map(lambda row: {"text": "cached " + row["text"]})
    assert list(saved.glob("cache-*.arrow"))
    assert documents(saved) == [[text] for text in datasets.load_from_disk(saved)["text"]]
    assert Corpus((str(saved),)).skipped() == ()


def test_splits_of_saved_data_sets_are_named(saved: Path, tmp_path: Path) -> None:
    import datasets

    dataset = datasets.load_from_disk(saved)
    datasets.DatasetDict({"test": dataset.select(range(5)), "train": dataset}).save_to_disk(tmp_path / "splits")
    with raises(TextError, "several-splits", tmp_path / "splits", "test, train", tmp_path / "splits/train"):
        documents(tmp_path / "splits")
    assert len(documents(tmp_path / "splits/train")) == 50
    datasets.DatasetDict({"train": dataset}).save_to_disk(tmp_path / "one")
    assert len(documents(tmp_path / "one")) == 50


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("{", "not-json"),
        ("{}", "missing-field"),
        ('{"_data_files": [{"filename": "absent.arrow"}]}', "missing"),
        ('{"_data_files": [{"filename": "../outside.arrow"}]}', "missing"),
    ],
)
def test_wrong_states_of_saved_data_sets_are_rejected(saved: Path, state: str, code: str) -> None:
    write_arrow(saved.parent / "outside.arrow", pa.table({"text": ["outside"]}), True)
    (saved / "state.json").write_text(state)
    with raises(TextError, code, saved):
        documents(saved)
