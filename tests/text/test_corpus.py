"""All file formats give the same documents; invalid files raise errors that name file and line."""

import errno
import gzip
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from support.errors import notices, raises

from electra import storage
from electra.cli import main
from electra.errors import StorageError, TextError, UsageError
from electra.text import files, formats
from electra.text.corpus import Corpus
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer

DOCUMENTS = [
    ["Erste Zeile: größer, 中文.", "Second line."],
    ["Another document."],
    ["line\x0cwith\u2028odd\x85ends", "last"],
]
LONG_WINDOW = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)


def documents(*sources: object, **options: str) -> list[list[str]]:
    """Read complete documents, joined from their pieces."""
    found: list[list[str]] = []
    new = True
    for piece in Corpus(tuple(map(str, sources)), **options):
        assert piece.lines
        if new:
            found.append([])
        found[-1].extend(piece.lines)
        new = piece.ends_document
    assert new
    return found


def as_txt() -> bytes:
    return "\n\n".join("\n".join(lines) for lines in DOCUMENTS).encode()


def as_jsonl() -> bytes:
    return "".join(json.dumps({"id": 1, "text": "\n".join(lines)}) + "\n" for lines in DOCUMENTS).encode()


def as_parquet(texts: list[str | None] | None = None, field: str = "text") -> bytes:
    sink = pa.BufferOutputStream()
    texts = ["\n".join(lines) for lines in DOCUMENTS] if texts is None else texts
    pq.write_table(pa.table({"id": list(range(len(texts))), field: texts}), sink)
    return sink.getvalue().to_pybytes()


def long_window(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(compression_params=LONG_WINDOW).compressobj()
    return compressor.compress(data) + compressor.flush()


COMPRESSORS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".GZ": lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]),  # several members
    ".ZST": lambda data: zstandard.compress(data[:40]) + long_window(data[40:]),  # several frames
}


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize(("ending", "make"), [(".txt", as_txt), (".jsonl", as_jsonl), (".parquet", as_parquet)])
def test_all_formats_are_read(tmp_path: Path, ending: str, make, compression: str) -> None:
    path = tmp_path / f"a.b{ending}{compression}"
    path.write_bytes(COMPRESSORS[compression](make()))
    corpus = Corpus((str(path),))
    corpus.check()
    assert documents(path) == DOCUMENTS
    assert [*corpus][-1].bytes_read == corpus.total_bytes() == path.stat().st_size
    assert corpus.describe() == [(str(path), path.stat().st_size)]


def test_documents_option_sets_the_end_of_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf\r\n  one \r\ntwo\r\n \t\r\n\r\nthree")
    assert documents(path) == [["one", "two"], ["three"]]
    assert documents(path, documents="file") == [["one", "two", "three"]]
    assert documents(path, documents="line") == [["one"], ["two"], ["three"]]
    (tmp_path / "b.txt").write_bytes(b"four")
    assert documents(tmp_path, documents="file") == [["one", "two", "three"], ["four"]]


@pytest.mark.parametrize("block_bytes", [3, 4, 7, 1 << 20])
def test_block_size_does_not_change_lines(tmp_path: Path, monkeypatch, block_bytes: int) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(files.BYTE_ORDER_MARK + as_txt())
    monkeypatch.setattr(files, "BLOCK_BYTES", block_bytes)
    assert documents(path) == DOCUMENTS
    blocks = list(files.read_line_blocks(path))
    assert blocks[-1].offset + len(blocks[-1].data) == path.stat().st_size
    assert blocks[-1].first_line + blocks[-1].data.count(b"\n") == 1 + as_txt().count(b"\n")


def test_empty_and_blank_files_have_no_documents(tmp_path: Path) -> None:
    for name in ("a.txt", "b.jsonl", "c.txt.gz", "d.txt.zst"):
        (tmp_path / name).touch()
    (tmp_path / "e.txt").write_text(" \n\n\t\n")
    (tmp_path / "f.jsonl").write_text('{"text": ""}\n\n{"text": " \\n "}\n')
    (tmp_path / "g.parquet").write_bytes(as_parquet([" "]))
    assert documents(tmp_path) == []


@pytest.mark.parametrize(
    ("ending", "mode"), [("txt", "blank-line"), ("txt", "file"), ("jsonl", "blank-line"), ("parquet", "file")]
)
def test_long_document_is_split_into_pieces(tmp_path: Path, monkeypatch, ending: str, mode: str) -> None:
    monkeypatch.setattr(formats, "PIECE_CHARS", 100)
    lines = [f"line {number}" for number in range(100)]
    text = "\n".join(lines)
    path = tmp_path / f"a.{ending}"
    path.write_bytes(
        {"txt": text.encode(), "jsonl": json.dumps({"text": text}).encode(), "parquet": as_parquet([text])}[ending]
    )
    pieces = list(Corpus((str(path),), documents=mode))
    assert [line for piece in pieces for line in piece.lines] == lines
    assert [piece.ends_document for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(100 <= sum(map(len, piece.lines)) < 110 for piece in pieces[:-1])


def test_folders_are_read_in_order_and_each_file_once(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/.hidden.txt", ".git/x.txt", "c.jsonl.gz", "notes.md", "d.txt.bz2"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(json.dumps({"text": name}).encode()) if name.endswith(".gz") else name.encode())
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "e.txt").symlink_to(tmp_path / "b.txt")
    assert documents(tmp_path) == [["a/z.txt"], ["b.txt"], ["c.jsonl.gz"]]
    assert documents(tmp_path / "c.jsonl.gz", tmp_path, tmp_path / "a/../b.txt") == [
        ["c.jsonl.gz"],
        ["a/z.txt"],
        ["b.txt"],
    ]
    assert [path.name for path in Corpus((str(tmp_path),)).skipped()] == ["d.txt.bz2", "notes.md"]


def test_progress_covers_all_files(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_bytes(b"text\n\n" * 10)
    corpus = Corpus((str(tmp_path),))
    reached = [piece.bytes_read for piece in corpus]
    assert reached == sorted(reached)
    assert reached[-1] == corpus.total_bytes() == 180


def test_encoding_errors_replace(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 and more\n")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "half \\ud83d gone, \\ud83d\\ude00 kept"}\n{"text": "caf\xe9"}')
    expected = [["caf\ufffd and more"], ["half \ufffd gone, 😀 kept"], ["caf\ufffd"]]
    assert documents(tmp_path, encoding_errors="replace") == expected


def test_text_field(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": 1, "body": "from JSON"}')
    (tmp_path / "b.parquet").write_bytes(as_parquet(["from Parquet"], "body"))
    assert documents(tmp_path, text_field="body") == [["from JSON"], ["from Parquet"]]


TEXT = "\n".join(f"A line of text with its number, {number}." for number in range(100_000)).encode()
CUT_GZIP, CUT_ZSTD = gzip.compress(TEXT)[:-9], zstandard.compress(TEXT)[:-9]
TRUNCATED = "Truncated"  # in the message of pyarrow
BAD_FILES: dict[str, tuple[bytes, str, list[object]]] = {
    "latin.txt": (b"caf\xc3\xa9\ncaf\xe9\n", "not-utf8", [9, "0xe9"]),
    "bom.txt": (b"\xef\xbb\xbfcaf\xe9\n", "not-utf8", [6, "0xe9"]),
    "far.txt.gz": (gzip.compress(TEXT + b"\xff"), "not-utf8", [len(TEXT), "0xff"]),
    "cut.txt.gz": (CUT_GZIP, "damaged", ["gzip", f"{len(CUT_GZIP):,}", TRUNCATED]),
    "cut.txt.zst": (CUT_ZSTD, "damaged", ["zstd", f"{len(CUT_ZSTD):,}", TRUNCATED]),
    "cut.parquet.zst": (zstandard.compress(as_parquet())[:-9], "damaged", ["zstd", TRUNCATED]),
    "plain.txt.gz": (TEXT, "damaged", ["gzip", 0, f"{len(TEXT):,}"]),
    "plain.txt.zst": (TEXT, "damaged", ["zstd", 0, f"{len(TEXT):,}"]),
    "second.txt.gz": (gzip.compress(TEXT) + gzip.compress(b"x")[:-3], "damaged", ["gzip", TRUNCATED]),
    "syntax.jsonl": (b'{"text": "a"}\n\n{"text": \n', "not-json", ["syntax.jsonl:3", 10]),
    "deep.jsonl": (b"[" * 100_000, "too-deep", ["deep.jsonl:1"]),
    "array.jsonl": (b'[{"text": "a"}]', "wrong-type", ["array.jsonl:1", " array", '{"text": ']),
    "field.jsonl": (
        b'{"body": "a", "id": 1}',
        "missing-column",
        ["field.jsonl:1", "'text'", "'body', 'id'", "--text-field"],
    ),
    "none.jsonl": (b"{}", "missing-column", ["none.jsonl:1", "'text'"]),
    "number.jsonl": (b'{"text": "a"}\n{"text": 5}', "wrong-type", ["number.jsonl:2", "'text'", " int"]),
    "null.jsonl": (b'{"text": null}', "wrong-type", ["null.jsonl:1", "'text'", " null"]),
    "half.jsonl": (b'{"text": "\\ud800"}', "half-surrogate", ["half.jsonl:1", "'text'"]),
    "latin.jsonl": (b'{"text": "caf\xe9"}', "not-utf8", [13, "0xe9"]),
    "text.parquet": (TEXT, "damaged", ["Parquet"]),
    "cut.parquet": (as_parquet()[:-20], "damaged", ["Parquet"]),
    "field.parquet": (
        as_parquet(field="body"),
        "missing-column",
        ["'text'", "'id', 'body'", "--text-field"],
    ),
    "null.parquet": (as_parquet(["a", None]), "wrong-type", ["null.parquet: row 2", "'text'", " null"]),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_invalid_files_are_rejected(tmp_path: Path, name: str) -> None:
    content, code, values = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    with raises(TextError, code, path, *values):
        list(Corpus((str(path),)))


def test_parquet_column_of_another_type_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(as_parquet())
    with raises(TextError, "wrong-type", path, "'id'", "int64"):
        list(Corpus((str(path),), text_field="id"))
    pq.write_table(pa.table({"text": pa.array(["x", "y", "x"]).dictionary_encode()}), path)
    assert documents(path) == [["x"], ["y"], ["x"]]
    invalid = pa.Array.from_buffers(pa.utf8(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    pq.write_table(pa.table({"text": invalid}), path)
    with raises(TextError, "not-utf8", path, "row 0"):
        list(Corpus((str(path),)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["long.txt", "long.txt.zst", "long.txt.gz", "long.jsonl"])
def test_line_of_50_mb_is_rejected_before_it_is_in_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    line = b"short\n" + b"x" * 50_000_000
    path.write_bytes(
        {".zst": zstandard.compress, ".gz": lambda data: gzip.compress(data, 1)}.get(path.suffix, bytes)(line)
    )
    if name == "long.jsonl":
        path.write_bytes(b'{"text": "short"}\n' + b"x" * 50_000_000)
    tracemalloc.start()
    try:
        with raises(TextError, "too-long", f"{name}:2", "10,000,000"):
            list(Corpus((str(path),)))
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_line_of_maximum_length_is_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(files, "BLOCK_BYTES", 30)
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 100 + b"\n" + b"y" * 100)
    assert documents(path) == [["x" * 100, "y" * 100]]
    path.write_bytes(b"x" * 101 + b"\n")
    with raises(TextError, "too-long", "a.txt:1"):
        documents(path)


def test_missing_sources_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    (tmp_path / "empty").mkdir()
    for source, code, values in (
        ("absent.txt", "missing", [os.strerror(errno.ENOENT)]),
        ("notes.md", "unknown-format", [".txt ", ".jsonl "]),
        ("empty", "no-text", [0]),
        ("", "no-text", [1]),
    ):
        with raises(TextError, code, tmp_path / source, *values):
            Corpus((str(tmp_path / source),)).check()
    with raises(UsageError, "no-text"):
        Corpus(())


UNKNOWN_OPTION = """
import sys
from electra.errors import UsageError
from electra.text.corpus import Corpus
try:
    Corpus(("a.txt",), **{sys.argv[1]: sys.argv[2]})
except UsageError as error:
    print(error.code, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [("documents", "page", "blank-line, file, line"), ("encoding_errors", "ignore", "strict, replace")],
)
def test_unknown_options_are_rejected(option: str, value: str, choices: str) -> None:
    # In another process: in this one, the type checker of the tests would raise its error first.
    command = [sys.executable, "-c", UNKNOWN_OPTION, option, value]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    assert line.startswith("unknown-choice ")
    assert f"{option}='{value}'" in line
    assert choices in line


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[None]:
    """Run the test without the privileges of root, which can read every file."""
    if os.geteuid() != 0:
        yield
        return
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_missing_permission_is_reported(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for name in ("a.txt", "b.parquet", "c.txt.gz"):
        (tmp_path / name).write_bytes(as_parquet())
        (tmp_path / name).chmod(0)
    (tmp_path / "closed").mkdir(mode=0)
    request.getfixturevalue("unprivileged")
    for name in ("a.txt", "b.parquet", "c.txt.gz", "closed"):
        for use in (Corpus.check, list):
            with raises(TextError, "unreadable", tmp_path / name, os.strerror(errno.EACCES)):
                use(Corpus((str(tmp_path / name),)))
    with raises(StorageError, "no-permission", tmp_path / "vocab", os.strerror(errno.EACCES)):
        storage.write_atomically(tmp_path / "vocab", b"")


def test_failed_write_leaves_no_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "file"
    storage.write_atomically(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage.os, "fsync", full)
    with raises(StorageError, "disk-full", path, os.strerror(errno.ENOSPC)):
        storage.write_atomically(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


@pytest.fixture
def hub_folder(tmp_path: Path, monkeypatch) -> Path:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_bytes(as_jsonl())
    (folder / "test.jsonl").write_text('{"id": 1, "text": "of the test split"}\n')
    return folder


def test_hub_data_sets_are_read(hub_folder: Path) -> None:
    corpus = Corpus((f"hf://{hub_folder}",))
    corpus.check()
    assert documents(f"hf://{hub_folder}") == DOCUMENTS
    assert documents(f"hf://{hub_folder}@test") == [["of the test split"]]
    assert documents(f"hf://{hub_folder}:default@test") == [["of the test split"]]
    assert corpus.total_bytes() is None
    assert corpus.describe() == [(f"hf://{hub_folder}", None)]


def test_invalid_hub_data_sets_are_rejected(hub_folder: Path, monkeypatch) -> None:
    for source, error, code, values in (
        (f"{hub_folder}@dev", TextError, "unreadable", [" dev"]),
        (f"{hub_folder}/absent", TextError, "unreadable", []),
        ("owner/absent", TextError, "unreadable", []),
        ("a:b:c", UsageError, "bad-address", ["hf://owner/name"]),
    ):
        with raises(error, code, f"hf://{source}", *values):
            Corpus((f"hf://{source}",)).check()
    with raises(TextError, "missing-column", "'body'", "'id', 'text'", "--text-field"):
        Corpus((f"hf://{hub_folder}",), text_field="body").check()
    with raises(TextError, "wrong-type", "row 1", "'id'", "int"):
        list(Corpus((f"hf://{hub_folder}",), text_field="id"))
    with (hub_folder / "train.jsonl").open("a") as file:
        file.write('{"id": 1, "text": \n')
    with raises(TextError, "unreadable", f"hf://{hub_folder}"):
        list(Corpus((f"hf://{hub_folder}",)))


def test_hub_needs_the_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with raises(UsageError, "missing-extra", "hf://owner/name", "pip install 'electra[hub]'"):
        Corpus(("hf://owner/name",)).check()


MEASURE = """
import resource, sys
from electra.text.corpus import Corpus
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
chars = sum(len(line) for piece in Corpus((sys.argv[1],), documents="file") for line in piece.lines)
print(chars, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """A file with one document of 100 MB needs less than 60 MB, and little more than one of 10 MB."""
    grown = []
    for copies in (2, 20):
        path = tmp_path / f"{copies}.txt.gz"
        path.write_bytes(gzip.compress(TEXT + b"\n", 1) * copies)
        done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
        chars, kilobytes = map(int, done.stdout.split())
        assert chars == copies * (len(TEXT) - TEXT.count(b"\n"))
        grown.append(kilobytes)
    assert grown[1] < 60_000
    assert grown[1] - grown[0] < 15_000


def test_readers_are_complete() -> None:
    """Every format has a description, and the messages list all of them."""
    for suffix, reader in formats.READERS.items():
        assert suffix.startswith(".")
        assert suffix == suffix.lower()
        assert suffix not in files.COMPRESSIONS
        assert reader.description
        assert f"{suffix} ({reader.description})" in formats.describe_formats()
        for compression in files.COMPRESSIONS:
            is_read = compression or not reader.only_compressed
            assert formats.find_reader(Path(f"corpus{suffix.upper()}{compression}")) is (reader if is_read else None)


def read_bars(path: Path, options: formats.ReadOptions) -> Iterator[formats.Piece]:
    """Read a format that only this test has: documents separated by bars."""
    for block in files.read_line_blocks(path):
        for text in block.data.decode("utf-8", options.encoding_errors).split("|"):
            yield from formats.split_document(text, block.bytes_read)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_text_format_can_be_added_outside_the_package(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compress: Callable[[bytes], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(formats.READERS, ".bars", formats.Reader(read_bars, "documents separated by bars"))
    path = tmp_path / ("a.bars" if compress is bytes else "a.bars.gz")
    path.write_bytes(compress(b"one two|three one two|two two three"))
    assert documents(path) == [["one two"], ["three one two"], ["two two three"]]
    assert documents(tmp_path) == documents(path)
    Tokenizer((*SPECIAL_TOKENS, "one", "two", "three"), Normalization()).save(tmp_path / "tokenizer")
    words = ["prepare", str(path), "--tokenizer", str(tmp_path / "tokenizer"), "--out", str(tmp_path / "data")]
    main([*words, "--workers", "1"])
    (examples,) = notices(caplog, "examples")
    assert examples.startswith("3 ")
