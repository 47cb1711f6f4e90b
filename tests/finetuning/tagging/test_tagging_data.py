"""Tagged sentences from files; errors that name file and line."""

import errno
import gzip
import json
import os
from pathlib import Path

import pytest
from support.errors import raises
from support.places import DATA

from electra.errors import DataError
from electra.finetuning.tagging.data import Sentence, find_splits, read_conll, read_sentences, read_tagging_jsonl

CONLL_2000 = DATA / "chunk"

COLUMNS = """-DOCSTART- -X- O

EU NNP B-ORG
rejects VBZ O

# # O
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", COLUMNS)
    assert read_sentences(path) == [
        Sentence(("EU", "rejects"), ("B-ORG", "O"), f"{path}:3"),
        Sentence(("#",), ("O",), f"{path}:6"),
    ]
    assert next(read_conll(path, tag_column=1)).tags == ("NNP", "VBZ")
    assert next(read_conll(path, tag_column=0, word_column=2)) == Sentence(
        ("B-ORG", "O"), ("EU", "rejects"), f"{path}:3"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("EU NNP B-ORG\r\nrejects VBZ O\r\n\r\n# # O", [("EU", "rejects"), ("#",)]),
        ("\ufeffEU  NNP   B-ORG\n\n \t\n\n# # O\n\n\n", [("EU",), ("#",)]),
        ("1 000\tCD\tO\n\u00a0\t_\tO\n", [("1 000", "\u00a0")]),
        ("a\x0cb X O\nc\u2028d X O\n", [("a\x0cb", "c\u2028d")]),
        ("-DOCSTART- O\nEU O\n-DOCSTART- O\n# O\n", [("EU",), ("#",)]),
    ],
)
def test_line_ends_and_columns(tmp_path: Path, text: str, words: list[tuple[str, ...]]) -> None:
    assert [sentence.words for sentence in read_conll(write(tmp_path, "a.conll", text))] == words


def test_words_without_tags(tmp_path: Path) -> None:
    columns = read_sentences(write(tmp_path, "a.txt", "EU\nrejects\n\nhere\n"))
    records = read_sentences(write(tmp_path, "a.jsonl", '{"words": ["EU", "rejects"]}\n{"words": ["here"]}\n'))
    for sentences in (columns, records):
        assert [(sentence.words, sentence.tags) for sentence in sentences] == [
            (("EU", "rejects"), None),
            (("here",), None),
        ]


def test_records(tmp_path: Path) -> None:
    text = '{"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]}\n\n{"words": ["a"], "tags": ["O"], "id": 3}'
    path = write(tmp_path, "a.jsonl", text)
    expected = [Sentence(("EU", "rejects"), ("B-ORG", "O"), f"{path}:1"), Sentence(("a",), ("O",), f"{path}:3", "3")]
    assert read_sentences(path) == expected
    renamed = write(tmp_path, "b.jsonl", json.dumps({"tokens": ["a"], "pos": ["X"]}))
    assert list(read_tagging_jsonl(renamed, words="tokens", tags="pos")) == [Sentence(("a",), ("X",), f"{renamed}:1")]


def test_compressed_file_has_the_same_sentences(tmp_path: Path) -> None:
    plain = read_sentences(write(tmp_path, "a.iob2", COLUMNS))
    packed = read_sentences(write(tmp_path, "a.iob2.gz", gzip.compress(COLUMNS.encode())))
    assert [(s.words, s.tags) for s in packed] == [(s.words, s.tags) for s in plain]


BAD: dict[str, tuple[str, str | bytes, str, list]] = {
    "too few columns": ("a.txt", COLUMNS + "here O\n", "wrong-columns", ["a.txt:7", 2, 3]),
    "too many columns": ("a.txt", "a O\nb c O\n", "wrong-columns", ["a.txt:2", 3, 2, 1]),
    "empty column": ("a.tsv", "a\tX\tO\nb\t\tO\n", "empty-column", ["a.tsv:2", 1]),
    "empty": ("a.txt", "", "no-rows", ["a.txt"]),
    "blank": ("a.txt", "\n -DOCSTART- O\n\n", "no-rows", ["a.txt"]),
    "not UTF-8": ("a.txt", b"fine O\ncaf\xe9 O\n", "not-utf8", ["a.txt:2", 4, "0xe9"]),
    "unknown suffix": ("a.xml", "<a/>", "unknown-format", ["a.xml", ".xml"]),
    "truncated gzip": ("a.txt.gz", gzip.compress(COLUMNS.encode() * 99)[:-9], "damaged", ["a.txt.gz"]),
    "not JSON": ("a.jsonl", '{"words": ["a"]}\n{"words"\n', "not-json", ["a.jsonl:2"]),
    "no object": ("a.jsonl", '["a"]\n', "wrong-type", ["a.jsonl:1"]),
    "no field": ("a.jsonl", '{"w": ["a"]}\n', "missing-field", ["a.jsonl:1", "'words'"]),
    "no words": ("a.jsonl", '{"words": []}\n', "no-words", ["a.jsonl:1", "'words'"]),
    "empty word": ("a.jsonl", '{"words": ["a", ""]}\n', "empty-word", ["a.jsonl:1", "'words'"]),
    "string": ("a.jsonl", '{"words": "a b"}\n', "wrong-type", ["a.jsonl:1", "'words'"]),
    "numbers": ("a.jsonl", '{"words": ["a"], "tags": [0]}\n', "wrong-type", ["a.jsonl:1", "'tags'"]),
    "fewer tags than words": ("a.jsonl", '{"words": ["a", "b"], "tags": ["O"]}\n', "uneven-tags", ["a.jsonl:1", 2, 1]),
}
"""Case -> name and content of a file, code of the error, values in its message."""


@pytest.mark.parametrize("case", BAD)
def test_invalid_files_are_rejected(tmp_path: Path, case: str) -> None:
    name, content, code, values = BAD[case]
    with raises(DataError, code, *values):
        read_sentences(write(tmp_path, name, content))


def test_missing_file(tmp_path: Path) -> None:
    with raises(DataError, "missing", "a.txt", os.strerror(errno.ENOENT)):
        read_sentences(tmp_path / "a.txt")


def test_missing_column(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", COLUMNS)
    with raises(DataError, "missing-column", "a.txt:3", 3):
        next(read_conll(path, tag_column=3))


def test_splits_of_a_folder(tmp_path: Path) -> None:
    with raises(DataError, "no-files", tmp_path, ".conll"):
        find_splits(tmp_path)
    paths = {
        split: write(tmp_path, name, COLUMNS) for split, name in [("train", "train.conll.gz"), ("dev", "valid.txt")]
    }
    write(tmp_path, "train.log", "not data")
    assert find_splits(tmp_path) == paths
    write(tmp_path, "dev.txt", COLUMNS)
    with raises(DataError, "ambiguous-files", "dev.txt", "valid.txt", "dev"):
        find_splits(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not CONLL_2000.is_dir(), reason=f"CoNLL-2000 is not at {CONLL_2000}")
def test_conll_2000_is_read_losslessly() -> None:
    path = find_splits(CONLL_2000)["test"]
    chunks, parts = read_sentences(path), list(read_conll(path, tag_column=1))
    assert len(chunks) == 2012
    lines = [
        "".join(f"{word} {pos} {tag}\n" for word, pos, tag in zip(a.words, b.tags or (), a.tags or (), strict=True))
        for a, b in zip(chunks, parts, strict=True)
    ]
    assert "\n".join(lines) + "\n" == path.read_text()
