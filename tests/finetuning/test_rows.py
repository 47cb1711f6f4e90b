"""Tables: what is read, and what each kind of broken file says."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from electra.errors import DataError
from electra.finetuning.rows import read_rows


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_four_formats_give_the_same_rows(tmp_path: Path) -> None:
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
        rows = read_rows(file)
        assert rows.names == ["text", "label"]
        assert rows.column("text") == ["one, two", 'say "hi"'], file
        assert rows.column(-1) == ["x", "y"]


def test_a_quoted_cell_may_hold_newlines_and_lines_are_still_counted(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path / "a.csv", 'text,label\n"one\ntwo",x\nthree,y\n'))
    assert rows.column("text") == ["one\ntwo", "three"]
    assert rows.place(1) == f"{tmp_path}/a.csv:4"


def test_a_lone_quote_in_a_tab_separated_file_is_a_quote(tmp_path: Path) -> None:
    assert read_rows(write(tmp_path / "a.tsv", 't\tl\n"lone\tx\nsecond\ty\n')).column("t") == ['"lone', "second"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\na,b\na,b,c\n", r"a\.csv:3: 3 columns where the first line has 2.*--skip-bad-rows"),
        ("a.tsv", "text\tlabel\na\n", r"a\.tsv:2: 1 columns where the first line has 2"),
        ("a.jsonl", '{"a": 1}\n{"b": 1}\n', r"a\.jsonl:2: no 'a'"),
        ("a.jsonl", '{"a": 1}\n[1]\n', r"a\.jsonl:2: not a JSON object"),
        ("a.jsonl", "{\n", r"a\.jsonl:1: not a JSON object"),
        ("a.csv", "", r"a\.csv: empty"),
        ("a.csv", "text,label\n", r"a\.csv: no rows"),
        ("a.csv", b"text,label\n\xff,b\n", r"a\.csv: not UTF-8"),
        ("a.csv", 'text,label\n"a,b\n', r"a\.csv: cannot be read"),
        ("a.parquet", "no", r"a\.parquet: cannot be read"),
        ("a.xls", "no", r"a\.xls: not a table that can be read; there are"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_rows(write(tmp_path / name, content))


def test_bad_rows_are_skipped_only_when_asked_and_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "text,label\na,b\na,b,c\nd,e\n")
    rows = read_rows(file, skip_bad=True)
    assert (len(rows), rows.skipped, rows.lines) == (2, 1, [2, 4])


def test_missing_file_and_column(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nosuch\.csv: no such file"):
        read_rows(tmp_path / "nosuch.csv")
    rows = read_rows(write(tmp_path / "a.csv", "text,label\na,b\n"))
    with pytest.raises(DataError, match=r"no column 'lable'; there are text, label"):
        rows.column("lable")
