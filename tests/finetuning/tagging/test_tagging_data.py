"""Tagged sentences from files; errors in one line with file and line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.places import DATA

from electra.errors import DataError
from electra.finetuning.tagging.data import Sentence, find_splits, read_conll, read_sentences, read_tagging_jsonl

CONLL_2000 = DATA / "chunk"

COLUMNS = """-DOCSTART- -X- O

EU NNP B-ORG
rejects VBZ O

# # O
"""


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", COLUMNS)
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
    assert [sentence.words for sentence in read_conll(written(tmp_path, "a.conll", text))] == words


def test_words_without_tags(tmp_path: Path) -> None:
    columns = read_sentences(written(tmp_path, "a.txt", "EU\nrejects\n\nhere\n"))
    records = read_sentences(written(tmp_path, "a.jsonl", '{"words": ["EU", "rejects"]}\n{"words": ["here"]}\n'))
    for sentences in (columns, records):
        assert [(sentence.words, sentence.tags) for sentence in sentences] == [
            (("EU", "rejects"), None),
            (("here",), None),
        ]


def test_records(tmp_path: Path) -> None:
    text = '{"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]}\n\n{"words": ["a"], "tags": ["O"], "id": 3}'
    path = written(tmp_path, "a.jsonl", text)
    expected = [Sentence(("EU", "rejects"), ("B-ORG", "O"), f"{path}:1"), Sentence(("a",), ("O",), f"{path}:3", "3")]
    assert read_sentences(path) == expected
    renamed = written(tmp_path, "b.jsonl", json.dumps({"tokens": ["a"], "pos": ["X"]}))
    assert list(read_tagging_jsonl(renamed, words="tokens", tags="pos")) == [Sentence(("a",), ("X",), f"{renamed}:1")]


def test_compressed(tmp_path: Path) -> None:
    plain = read_sentences(written(tmp_path, "a.iob2", COLUMNS))
    packed = read_sentences(written(tmp_path, "a.iob2.gz", gzip.compress(COLUMNS.encode())))
    assert [(s.words, s.tags) for s in packed] == [(s.words, s.tags) for s in plain]


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "too few columns": (
        lambda d: written(d, "a.txt", COLUMNS + "here O\n"),
        "a.txt:7: 2 columns, 3 expected as in line 3",
    ),
    "too many columns": (lambda d: written(d, "a.txt", "a O\nb c O\n"), "a.txt:2: 3 columns, 2 expected as in line 1"),
    "an empty column": (lambda d: written(d, "a.tsv", "a\tX\tO\nb\t\tO\n"), "a.tsv:2: column 1 is empty"),
    "empty": (lambda d: written(d, "a.txt", ""), "a.txt: no sentences"),
    "blank": (lambda d: written(d, "a.txt", "\n -DOCSTART- O\n\n"), "a.txt: no sentences"),
    "not UTF-8": (
        lambda d: written(d, "a.txt", b"fine O\ncaf\xe9 O\n"),
        "a.txt:2: not UTF-8 at byte 4 of the line (0xe9)",
    ),
    "absent": (lambda d: d / "a.txt", "a.txt: cannot be read: No such file"),
    "another kind": (lambda d: written(d, "a.xml", "<a/>"), "a.xml: .xml is not a known kind of tagged text"),
    "cut gzip": (lambda d: written(d, "a.txt.gz", gzip.compress(COLUMNS.encode() * 99)[:-9]), "a.txt.gz: "),
    "no JSON": (lambda d: written(d, "a.jsonl", '{"words": ["a"]}\n{"words"\n'), "a.jsonl:2: not JSON"),
    "no object": (lambda d: written(d, "a.jsonl", '["a"]\n'), "a.jsonl:1: not a JSON object"),
    "no field": (lambda d: written(d, "a.jsonl", '{"w": ["a"]}\n'), "a.jsonl:1: not a record with a field 'words'"),
    "no words": (lambda d: written(d, "a.jsonl", '{"words": []}\n'), "a.jsonl:1: 'words' has no words"),
    "an empty word": (
        lambda d: written(d, "a.jsonl", '{"words": ["a", ""]}\n'),
        "a.jsonl:1: 'words' has an empty word",
    ),
    "a string": (lambda d: written(d, "a.jsonl", '{"words": "a b"}\n'), "a.jsonl:1: 'words' must be a list of strings"),
    "numbers": (
        lambda d: written(d, "a.jsonl", '{"words": ["a"], "tags": [0]}\n'),
        "a.jsonl:1: 'tags' must be a list of strings",
    ),
    "words and tags of different number": (
        lambda d: written(d, "a.jsonl", '{"words": ["a", "b"], "tags": ["O"]}\n'),
        "a.jsonl:1: 2 words and 1 tags; every word has one tag",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_files_are_rejected(tmp_path: Path, case: str) -> None:
    make, message = BAD[case]
    with pytest.raises(DataError) as caught:
        read_sentences(make(tmp_path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_column(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", COLUMNS)
    with pytest.raises(DataError, match="a.txt:3: no column 3; there are 3 columns, from 0"):
        next(read_conll(path, tag_column=3))


def test_splits_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no train, dev or test with one of the suffixes"):
        find_splits(tmp_path)
    paths = {
        split: written(tmp_path, name, COLUMNS) for split, name in [("train", "train.conll.gz"), ("dev", "valid.txt")]
    }
    written(tmp_path, "train.log", "not data")
    assert find_splits(tmp_path) == paths
    written(tmp_path, "dev.txt", COLUMNS)
    with pytest.raises(DataError, match="both dev.txt and valid.txt could be dev; keep one"):
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
