"""Tables: formats, and the error for each kind of broken file."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "text,label\na,b\na,b,c\n",
            r"a\.csv:3: 3 columns where the first line has 2; correct the file: rows may be left out of a training file only",
        ),
        ("a.tsv", "text\tlabel\na\n", r"a\.tsv:2: 1 columns where the first line has 2"),
        ("a.jsonl", '{"a": 1}\n[1]\n', r"a\.jsonl:2: not a JSON object"),
        ("a.jsonl", "{\n", r"a\.jsonl:1: not JSON"),
        ("a.jsonl", "[" * 100_000, r"a\.jsonl:1: not JSON"),
        ("a.csv", "", r"a\.csv: empty"),
        ("a.tsv", "text\tlabel\na\tb\n\nc\td\n", r"a\.tsv:3: 0 columns where the first line has 2"),
        ("a.csv", "text,label\na,b\n\nc,d\n", r"a\.csv:3: 0 columns where the first line has 2"),
        ("a.csv", "text,label\n", r"a\.csv: no rows"),
        ("a.csv", b"text,label\n\xff,b\n", r"a\.csv:2: not UTF-8 at byte 1 of the line"),
        ("a.csv", 'text,label\n"a,b\n', r"a\.csv:2: not comma-separated values"),
        ("a.parquet", "no", r"a\.parquet: cannot be read"),
        ("a.xls", "no", r"a\.xls: not a table that can be read; there are"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(write(tmp_path / name, content))


def test_blank_lines_at_the_end_and_compressed_files(tmp_path: Path) -> None:
    content = "text\tlabel\na\tb\n\n\n"
    assert len(read_table(write(tmp_path / "a.tsv", content))) == 1
    assert len(read_table(write(tmp_path / "a.TSV.gz", gzip.compress(content.encode())))) == 1


def test_missing_key_is_an_empty_cell(tmp_path: Path) -> None:
    rows = read_table(write(tmp_path / "a.jsonl", '{"a": "x"}\n{"b": "y", "a": "z"}\n'))
    assert rows.get_column("a") == ["x", "z"]
    with pytest.raises(DataError, match=r"a\.jsonl:1: 'b' is missing"):
        rows.get_texts("b")


def test_skip_bad_rows(tmp_path: Path, capsys) -> None:
    file = write(tmp_path / "a.csv", "text,label\na,b\na,b,c\nd,e\n")
    with pytest.raises(
        DataError, match=r"a\.csv:3: 3 columns .*correct the file, or leave such rows out with --skip-bad-rows"
    ):
        read_table(file, skip_bad=False)
    rows = read_table(file, skip_bad=True)
    assert (len(rows), rows.skipped, rows.lines) == (2, 1, [2, 4])
    assert "1 rows with another number of columns are left out" in capsys.readouterr().out


def test_missing_file_and_column(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nosuch\.csv: no such file"):
        read_table(tmp_path / "nosuch.csv")
    rows = read_table(write(tmp_path / "a.csv", "text,label\na,b\n"))
    with pytest.raises(DataError, match=r"no column 'lable'; there are text, label"):
        rows.get_column("lable")
