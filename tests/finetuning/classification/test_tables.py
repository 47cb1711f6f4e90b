"""Tables: their formats, and an error for each kind of broken file."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.errors import check_message, notices, raises

from electra.errors import DataError
from electra.finetuning.readers.tables import read_table


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_four_formats_have_the_same_rows(tmp_path: Path) -> None:
    table = pa.table({"text": ["one, two", 'say "hi"'], "label": ["x", "y"]})
    pq.write_table(table, tmp_path / "a.parquet")
    files = [
        write(tmp_path / "a.csv", 'text,label\n"one, two",x\n"say ""hi""",y\n'),
        write(tmp_path / "a.tsv", '\ufefftext\tlabel\r\none, two\tx\r\nsay "hi"\ty'),
        write(
            tmp_path / "a.jsonl",
            '{"text": "one, two", "label": "x"}\n\n{"label": "y", "text": "say \\"hi\\"", "more": 1}\n',
        ),
        tmp_path / "a.parquet",
    ]
    for file in files:
        rows = read_table(file)
        assert rows.names[:2] == ["text", "label"]
        assert rows.get_column("text") == ["one, two", 'say "hi"'], file
        assert rows.get_column("label") == ["x", "y"]


def test_lines_are_counted_in_quoted_cells(tmp_path: Path) -> None:
    rows = read_table(write(tmp_path / "a.csv", 'text,label\n"one\ntwo",x\nthree,y\n'))
    assert rows.get_column("text") == ["one\ntwo", "three"]
    assert rows.format_place(1) == f"{tmp_path}/a.csv:4"


def test_quotes_in_tab_separated_files_are_text(tmp_path: Path) -> None:
    assert read_table(write(tmp_path / "a.tsv", 't\tl\n"lone\tx\nsecond\ty\n')).get_column("t") == ['"lone', "second"]


@pytest.mark.parametrize(
    ("name", "content", "code", "values"),
    [
        ("a.tsv", "text\tlabel\na\n", "bad-row", ["a.tsv:2", 1, 2]),
        ("a.jsonl", '{"a": 1}\n[1]\n', "wrong-type", ["a.jsonl:2"]),
        ("a.jsonl", "{\n", "not-json", ["a.jsonl:1"]),
        ("a.jsonl", "[" * 100_000, "too-deep", ["a.jsonl:1"]),
        ("a.csv", "", "empty", ["a.csv"]),
        ("a.tsv", "text\tlabel\na\tb\n\nc\td\n", "bad-row", ["a.tsv:3", 0, 2]),
        ("a.csv", "text,label\na,b\n\nc,d\n", "bad-row", ["a.csv:3", 0, 2]),
        ("a.csv", "text,label\n", "no-rows", ["a.csv"]),
        ("a.csv", b"text,label\n\xff,b\n", "not-utf8", ["a.csv:2", 1]),
        ("a.csv", 'text,label\n"a,b\n', "not-csv", ["a.csv:2"]),
        ("a.parquet", "no", "unreadable", ["a.parquet"]),
        ("a.xls", "no", "unknown-format", ["a.xls", ".csv"]),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: str | bytes, code: str, values: list) -> None:
    with raises(DataError, code, *values):
        read_table(write(tmp_path / name, content))


def test_bad_row_of_a_file_that_must_keep_all_rows(tmp_path: Path) -> None:
    """Without `skip_bad`, as for files that are scored or predicted, the message does not suggest leaving rows out."""
    with raises(DataError, "bad-row", "a.csv:3", 3, 2) as caught:
        read_table(write(tmp_path / "a.csv", "text,label\na,b\na,b,c\n"))
    assert "--skip-bad-rows" not in str(caught.value)


def test_blank_lines_at_the_end_and_compressed_files(tmp_path: Path) -> None:
    content = "text\tlabel\na\tb\n\n\n"
    assert len(read_table(write(tmp_path / "a.tsv", content))) == 1
    assert len(read_table(write(tmp_path / "a.TSV.gz", gzip.compress(content.encode())))) == 1


def test_missing_key_is_an_empty_cell(tmp_path: Path) -> None:
    rows = read_table(write(tmp_path / "a.jsonl", '{"a": "x"}\n{"b": "y", "a": "z"}\n'))
    assert rows.get_column("a") == ["x", "z"]
    with raises(DataError, "missing-field", "a.jsonl:1", "'b'"):
        rows.get_texts("b")


def test_skip_bad_rows(tmp_path: Path, caplog) -> None:
    file = write(tmp_path / "a.csv", "text,label\na,b\na,b,c\nd,e\n")
    with raises(DataError, "bad-row", "a.csv:3", 3, 2, "--skip-bad-rows"):
        read_table(file, skip_bad=False)
    rows = read_table(file, skip_bad=True)
    assert (len(rows), rows.skipped, rows.lines) == (2, 1, [2, 4])
    [message] = notices(caplog, "skipped-rows")
    check_message(message, "a.csv", 1)


def test_missing_file_and_column(tmp_path: Path) -> None:
    with raises(DataError, "missing", "nosuch.csv"):
        read_table(tmp_path / "nosuch.csv")
    rows = read_table(write(tmp_path / "a.csv", "text,label\na,b\n"))
    with raises(DataError, "missing-column", "'lable'", "text, label"):
        rows.get_column("lable")
