"""Deduplication: what is dropped equals a comparison of all pairs of documents, and the report counts it."""

import builtins
import importlib.util
import json
import random
import re
import subprocess
import sys
import unicodedata
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from support.errors import fails, notices, raises

from electra.cli import main
from electra.data import chunks, deduplication
from electra.data.deduplication import NUM_HASHES, choose_bands, drop_documents, find_duplicates
from electra.data.manifest import Manifest
from electra.data.prepare import prepare
from electra.errors import DataError, UsageError
from electra.text import formats
from electra.text.corpus import Corpus, Piece
from electra.text.tokenizer import Tokenizer

WORDS = [first + second + "n" for first in "bdfgklmprst" for second in "aeiou"]


def pieces(*documents: str, source: int = 0) -> list[Piece]:
    return [Piece(document.split("\n"), True, number, source) for number, document in enumerate(documents, 1)]


def find(method: str, *documents: str, threshold: float = 0.8) -> list[int]:
    """The numbers of the duplicates."""
    found, _ = find_duplicates(pieces(*documents), method, threshold, ["a"])
    return np.flatnonzero(found).tolist()


def similarity(first: str, second: str) -> float:
    """Exact Jaccard similarity of the sets of five consecutive words."""
    sets = []
    for document in (first, second):
        words = document.split()
        sets.append({tuple(words[i : i + 5]) for i in range(max(len(words) - 4, 1))})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def vary(words: list[str], changes: int, rng: random.Random) -> str:
    """Replace some words by a new one."""
    words = list(words)
    for place in rng.sample(range(len(words)), changes):
        words[place] = "changed"
    return " ".join(words)


@pytest.fixture
def near() -> list[str]:
    """300 documents in groups of three: an original, a near duplicate (similarity 0.9 or more) and another (below 0.6)."""
    rng, found = random.Random(1), []
    for _ in range(100):
        words = rng.choices(WORDS, k=300)
        found += [" ".join(words), vary(words, 2, rng), vary(words, 25, rng)]
    return found


def test_exact_duplicates_are_equal_after_normalization() -> None:
    documents = [
        "One  two\nthree",
        "another",
        "one two three",
        "ONE TWO\nTHREE",
        "ｏｎｅ two\tthree",
        "one two",
        "another",
        "onetwo three",
    ]
    seen: set[str] = set()
    expected = []
    for number, document in enumerate(documents):
        normal = " ".join(unicodedata.normalize("NFKC", document).casefold().split())
        expected += [number] * (normal in seen)
        seen.add(normal)
    assert find("exact", *documents) == expected == [2, 3, 4, 6]


def test_exact_duplicates_among_many_documents() -> None:
    rng = random.Random(0)
    documents = [f"document {rng.randint(0, 3000)}" for _ in range(5000)]
    first = {document: number for number, document in reversed(list(enumerate(documents)))}
    assert find("exact", *documents) == [i for i, document in enumerate(documents) if first[document] != i]
    assert find("exact") == []


def test_near_duplicates_are_those_of_a_comparison_of_all_pairs(near: list[str]) -> None:
    pytest.importorskip("rensa")
    expected = []
    for number, document in enumerate(near):
        earlier = [similarity(document, other) for other in near[number - number % 3 : number]]
        if earlier:
            assert max(earlier) > 0.9 or max(earlier) < 0.6, (
                "the test has no pair that the error of the estimate decides"
            )
        expected += [number] * (max(earlier, default=0) > 0.8)
    assert find("minhash", *near) == expected
    assert len(expected) == 100


def test_the_threshold_decides(near: list[str]) -> None:
    pytest.importorskip("rensa")
    lowest = max(
        similarity(near[i], near[j])
        for group in range(0, 300, 3)
        for i, j in combinations(range(group, group + 3), 2)
        if j % 3 == 2
    )
    assert lowest < 0.75
    assert len(find("minhash", *near, threshold=0.2)) == 200
    assert find("minhash", *near, threshold=1.0) == []
    assert find("minhash", near[0], near[0], threshold=1.0) == [1]


def test_short_and_empty_documents() -> None:
    pytest.importorskip("rensa")
    assert find("minhash", "two words", "two words", "Two, words!", "other words", "***", "***") == [1, 2]
    chinese = "我们在这里写一个很长的句子来测试去重功能是否正确"
    assert find("minhash", chinese, chinese + "吗", "这是完全不同的一个句子而且也很长所以不会被删除掉") == [1], (
        "each character is a word"
    )


@pytest.mark.parametrize("method", ["exact", "minhash"])
def test_pieces_of_a_long_document_are_one_document(method: str) -> None:
    pytest.importorskip("rensa")
    lines = [f"line {number} of a long document with words" for number in range(300)]
    whole = [Piece(lines, True, 1)]
    parts = [Piece(lines[i : i + 7], i + 7 >= 300, 2) for i in range(0, 300, 7)]
    found, (count,) = find_duplicates([*whole, *parts], method, 0.99, ["a"])
    assert found.tolist() == [False, True]
    assert (count.bytes, count.dropped_bytes) == (2 * sum(map(len, lines)), sum(map(len, lines)))
    assert list(drop_documents([*parts, *whole], found)) == parts


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0])
def test_bands_give_recall_at_the_threshold(threshold: float) -> None:
    bands = choose_bands(threshold)
    rows = NUM_HASHES // bands
    assert 1 - (1 - threshold**rows) ** bands >= 0.99
    assert bands == 1 or 1 - (1 - threshold ** (2 * rows)) ** (bands // 2) < 0.99, "fewer bands would not be enough"


@pytest.fixture
def corpus(tmp_path: Path, documents: list[list[str]]) -> Corpus:
    """Two sources: 100 documents of which the last 20 repeat, and 100 of which 50 are in the first."""
    (tmp_path / "text").mkdir()
    for name, chosen in (("a.txt", documents[:80] + documents[:20]), ("b.txt", documents[30:130])):
        (tmp_path / "text" / name).write_text("\n\n".join("\n".join(lines) for lines in chosen))
    return Corpus((str(tmp_path / "text/a.txt"), str(tmp_path / "text/b.txt")))


@pytest.mark.parametrize("method", ["exact", "minhash"])
def test_prepared_data_has_each_document_once(
    method: str, corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer, documents: list[list[str]], monkeypatch, caplog
) -> None:
    """It equals data prepared from the documents without duplicates, so none is held out and trained on."""
    pytest.importorskip("rensa")
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 5_000)
    options = {"seq_len": 32, "workers": 1, "heldout": 0.2}
    data = prepare(corpus, tokenizer, tmp_path / "data", deduplicate=method, **options)
    (tmp_path / "unique.txt").write_text("\n\n".join("\n".join(lines) for lines in documents[:130]))
    unique = prepare(Corpus((str(tmp_path / "unique.txt"),)), tokenizer, tmp_path / "unique", **options)
    assert data.manifest.fingerprint == unique.manifest.fingerprint
    assert data.manifest.documents == 130
    sizes = [len("".join(lines)) for lines in documents]
    counts = data.manifest.duplicates
    assert counts is not None
    assert [(each.documents, each.dropped_documents) for each in counts] == [(100, 20), (100, 50)]
    assert [each.dropped_bytes for each in counts] == [sum(sizes[:20]), sum(sizes[30:80])]
    assert [each.bytes for each in counts] == [sum(sizes[:80]) + sum(sizes[:20]), sum(sizes[30:130])]
    (message,) = notices(caplog, "duplicates")
    assert "70 of 200 documents" in message
    assert "20 of 100" in message
    assert "50 of 100" in message
    assert Manifest.load(tmp_path / "data") == data.manifest
    assert unique.manifest.duplicates is None


@pytest.mark.slow
def test_neither_workers_nor_interruptions_change_the_result(
    corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer, monkeypatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 5_000)
    options = {"seq_len": 32, "heldout": 0.2, "deduplicate": "exact"}
    first = prepare(corpus, tokenizer, tmp_path / "1", workers=1, **options)
    assert prepare(corpus, tokenizer, tmp_path / "2", workers=2, **options).manifest == first.manifest

    def stop(progress) -> None:
        if progress.chunks == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(corpus, tokenizer, tmp_path / "3", workers=1, on_progress=stop, **options)
    assert prepare(corpus, tokenizer, tmp_path / "3", workers=1, **options).manifest == first.manifest
    path = Path(corpus.sources[0])
    path.touch()  # it is compared with the data, without its duplicates
    assert prepare(Corpus(corpus.sources), tokenizer, tmp_path / "3", workers=1, **options).manifest == first.manifest
    with raises(DataError, "other-settings", "deduplicate exact, now none"):
        prepare(Corpus(corpus.sources), tokenizer, tmp_path / "3", seq_len=32, heldout=0.2, workers=1)
    text = path.read_text()
    path.write_text(text[:-3] + "xyz")
    with raises(DataError, "other-content", path):
        prepare(Corpus(corpus.sources), tokenizer, tmp_path / "3", workers=1, **options)


def test_documents_longer_than_a_piece_are_dropped(
    tmp_path: Path, tokenizer: Tokenizer, documents: list[list[str]], monkeypatch
) -> None:
    monkeypatch.setattr(formats, "PIECE_CHARS", 100)
    text = ["\n".join(lines) for lines in documents[:20]]
    (tmp_path / "a.txt").write_text("\n\n".join([*text, *text]))
    data = prepare(Corpus((str(tmp_path / "a.txt"),)), tokenizer, tmp_path / "data", workers=1, deduplicate="exact")
    assert data.manifest.documents == 20


def test_command_line_reports_what_is_dropped(corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer, caplog) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    words = [
        "prepare",
        *corpus.sources,
        "--tokenizer",
        str(tmp_path / "tokenizer"),
        "--out",
        str(tmp_path / "data"),
        "--workers",
        "1",
    ]
    for options, code in (
        (["--deduplicate", "fuzzy"], "unknown-choice"),
        (["--deduplicate", "minhash", "--dedup-threshold", "1.5"], "out-of-range"),
        (["--deduplicate", "minhash", "--dedup-threshold", "nan"], "not-finite"),
        (["--deduplicate", "minhash", "--dedup-threshold", "0"], "out-of-range"),
    ):
        fails([*words, *options], code, options[-2])
        assert not (tmp_path / "data").exists()
    main([*words, "--deduplicate", "exact"])
    assert re.search(
        r"70 of 200 .*\(\d+\.\d%\).*a\.txt: 20 of 100 .*b\.txt: 50 of 100", notices(caplog, "duplicates")[0]
    )
    assert len(json.loads((tmp_path / "data/manifest.json").read_text())["duplicates"]) == 2


def test_missing_extra_is_reported_before_text_is_read(
    corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer, monkeypatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "rensa" else find_spec(name))
    with raises(UsageError, "missing-extra", "--deduplicate minhash", "pip install 'electra[dedup]'"):
        prepare(corpus, tokenizer, tmp_path / "data", deduplicate="minhash")
    original = builtins.__import__

    def refuse(name: str, *arguments):
        assert name != "rensa"
        return original(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert find("exact", "a", "a") == [1], "which needs no extra"
    assert deduplication.NUM_HASHES == 128


MEMORY = """
import re, sys
from electra.data.deduplication import find_duplicates
from electra.text.corpus import Piece

def generate(number):
    return (Piece([f"document {i} has {i * i} words and {i * i * i} letters, as {i + 7} others"], True, i) for i in range(number))

def peak():
    # Not ru_maxrss, which begins at that of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024

method, number = sys.argv[1], int(sys.argv[2])
find_duplicates(generate(1000), method, 0.8, ["a"])
before = peak()
found, _ = find_duplicates(generate(number), method, 0.8, ["a"])
print((peak() - before) / number)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("method", "number", "limit"), [("exact", 300_000, 100), ("minhash", 30_000, 6_000)])
def test_memory_for_each_document(method: str, number: int, limit: int) -> None:
    pytest.importorskip("rensa")
    command = [sys.executable, "-c", MEMORY, method, str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert limit / 10 < float(done.stdout) < limit
