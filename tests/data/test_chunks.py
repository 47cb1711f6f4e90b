from collections.abc import Iterator

import pytest

from electra.data import chunks
from electra.data.chunks import Chunk, read_chunks
from electra.text.corpus import Piece


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 1000)


def pieces(documents: list[list[str]], piece_lines: int = 100) -> Iterator[Piece]:
    read = 0
    for lines in documents:
        for start in range(0, len(lines), piece_lines):
            part = lines[start : start + piece_lines]
            read += sum(map(len, part))
            yield Piece(part, start + piece_lines >= len(lines), read)


def splits(chunks: list[Chunk]) -> tuple[list[str], list[str]]:
    """The lines of training and of held-out documents."""
    lines: dict[bool, list[str]] = {False: [], True: []}
    for chunk in chunks:
        for document in chunk.documents:
            lines[document.heldout] += document.lines
    return lines[False], lines[True]


def test_chunks_contain_all_documents_completely(documents: list[list[str]]) -> None:
    read = list(read_chunks(pieces(documents), 0, 0.1))
    assert [chunk.number for chunk in read] == list(range(len(read)))
    assert len(read) > 30
    assert [document.lines for chunk in read for document in chunk.documents] == documents
    assert sum(chunk.started for chunk in read) == len(documents)
    for chunk in read[:-1]:
        sizes = [sum(map(len, document.lines)) for document in chunk.documents]
        assert chunk.chars == sum(sizes) >= 1000 > sum(sizes[:-1]), "ends with the document that reaches the limit"
    assert read[-1].bytes_read == sum(len(line) for lines in documents for line in lines)


def test_long_document_is_split_between_pieces() -> None:
    long = [f"{i:0100}" for i in range(75)]
    read = list(read_chunks(pieces([["short"], long, ["after"]], piece_lines=5), 0, 0.5))
    assert [line for chunk in read for document in chunk.documents for line in document.lines] == [
        "short",
        *long,
        "after",
    ]
    assert [chunk.started for chunk in read] == [2, 0, 0, 0, 1]
    assert max(chunk.chars for chunk in read) < 2000 + 5 * 100
    assert splits(read)[1] == ["after"], "split documents are not held out"


@pytest.mark.parametrize("heldout", [0.01, 0.2, 0.9])
def test_share_of_held_out_documents(documents: list[list[str]], heldout: float) -> None:
    number = share = 0
    for seed in range(10):
        for chunk in read_chunks(pieces(documents), seed, heldout):
            share += sum(document.heldout for document in chunk.documents)
            number += len(chunk.documents)
    assert share / number == pytest.approx(heldout, abs=0.03)


def test_another_seed_holds_out_other_documents(documents: list[list[str]]) -> None:
    def held(seed: int) -> list[str]:
        return splits(list(read_chunks(pieces(documents), seed, 0.1)))[1]

    assert held(1) == held(1) != held(2)


@pytest.mark.parametrize("heldout", [1e-9, 0.999])
@pytest.mark.parametrize("number", [2, 3, 10])
def test_neither_split_is_ever_empty(number: int, heldout: float) -> None:
    for size in (10, 700, 1500, 5000):  # characters of a document; a chunk has 1000
        documents = [[f"{i:0{min(size, 100)}}" for i in range(max(size // 100, 1))] for _ in range(number)]
        train, held = splits(list(read_chunks(pieces(documents, piece_lines=3), 0, heldout)))
        assert train, (number, size)
        assert held, (number, size)


def test_document_of_median_size_is_held_out_if_the_hash_selects_none() -> None:
    documents = [["first"], ["x" * 90], ["tiny"], ["y" * 30], ["z" * 400]]
    read = list(read_chunks(pieces(documents), 0, 1e-9))
    assert splits(read)[1] == ["x" * 90]
    assert not any(chunk.cuts_end for chunk in read)


@pytest.mark.parametrize("number", [20, 700])
def test_last_lines_of_a_single_document_are_held_out(number: int) -> None:
    lines = [f"line {i:05}" for i in range(number)]
    read = list(read_chunks(pieces([lines], piece_lines=50), 0, 0.01))
    train, held = splits(read)
    assert train + held == lines
    assert 0.02 * number <= len(held) <= 0.05 * number
    assert [chunk.cuts_end for chunk in read] == [False] * (len(read) - 1) + [True]
    assert sum(chunk.started for chunk in read) == 1


@pytest.mark.parametrize("title", [[], ["The title"]])
def test_last_words_of_a_single_line_are_held_out(title: list[str]) -> None:
    line = " ".join(f"word{i:02}" for i in range(100))
    train, held = splits(list(read_chunks(pieces([[*title, line]]), 0, 0.01)))
    assert "".join(train[len(title) :] + held) == line
    assert held[0].split() == [f"word{i:02}" for i in range(100 - len(held[0].split()), 100)]
    assert 4 <= len(held[0].split()) <= 7


def test_empty_corpus_has_no_chunks() -> None:
    assert list(read_chunks(iter([]), 0, 0.01)) == []


def test_digest_depends_on_everything_in_the_shards() -> None:
    def digest(*documents: list[str], seed: int = 0) -> str:
        return next(read_chunks(pieces(list(documents)), seed, 0.5)).digest()

    assert digest(["a", "b"], ["c"]) == digest(["a", "b"], ["c"])
    others = [
        digest(["a", "b"], ["d"]),
        digest(["a"], ["b"], ["c"]),
        digest(["a", "b", "c"]),
        digest(["a b"], ["c"]),
    ]
    assert len({digest(["a", "b"], ["c"]), *others}) == 5
    many = [[f"{i}"] for i in range(50)]
    assert digest(*many) != digest(*many, seed=1), "it depends on which documents are held out"
