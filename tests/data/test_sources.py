"""Sources of examples: their record in prepared data, and training sequences that mix them by weight."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.errors import raises

from electra.data import sources as sources_module
from electra.data.loader import BatchLoader, BatchWarmup
from electra.data.manifest import MANIFEST, Manifest
from electra.data.prepare import prepare
from electra.data.shards import PreparedData
from electra.data.sources import (
    Mixture,
    SourceRows,
    build_mixture,
    check_mixing,
    label_sources,
    list_source_rows,
    match_weights,
)
from electra.errors import DataError, UsageError
from electra.text.corpus import Corpus
from electra.text.tokenizer import Tokenizer

SIZES = (70, 7, 300)


def spread_sources(sizes: tuple[int, ...] = SIZES) -> list[SourceRows]:
    """Rows of sources whose examples lie in two runs each: first half of each source, then second halves."""
    starts = np.cumsum([0, *(size // 2 for size in sizes), *(size - size // 2 for size in sizes)])
    return [
        SourceRows([(int(starts[i]), size // 2), (int(starts[len(sizes) + i]), size - size // 2)])
        for i, size in enumerate(sizes)
    ]


def members(sources: list[SourceRows]) -> list[set[int]]:
    return [set(rows[np.arange(len(rows))].tolist()) for rows in sources]


@pytest.fixture
def corpus(tmp_path: Path, documents: list[list[str]]) -> Corpus:
    """Three sources of 200, 60 and 40 documents in one folder."""
    folder = tmp_path / "text"
    folder.mkdir()
    for name, chosen in (("a.txt", documents[:200]), ("b.txt", documents[200:260]), ("c.txt", documents[260:])):
        (folder / name).write_text("\n\n".join("\n".join(lines) for lines in chosen))
    return Corpus(tuple(str(folder / name) for name in ("a.txt", "b.txt", "c.txt")))


@pytest.fixture
def data(corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer) -> PreparedData:
    return prepare(corpus, tokenizer, tmp_path / "data", seq_len=32, workers=1, heldout=0.2)


def test_rows_of_a_source() -> None:
    sources = spread_sources()
    found = members(sources)
    assert [len(rows) for rows in sources] == list(SIZES)
    assert [len(each) for each in found] == list(SIZES)
    assert set().union(*found) == set(range(sum(SIZES)))
    assert sources[0][np.array([34, 35, 69])].tolist() == [34, 188, 222]
    assert len(SourceRows([])) == 0


@pytest.mark.parametrize("weights", [(1, 1, 1), (5, 1, 2), (1, 1000, 1)])
def test_each_source_has_its_share_in_epochs_of_its_own(monkeypatch, weights: tuple[float, ...]) -> None:
    monkeypatch.setattr(sources_module, "BLOCK", 2048)
    sources = spread_sources()
    mixture = Mixture("abc", sources, weights, 3)
    rows = mixture.rows(0, 2048 * 5).tolist()
    for each, weight, found in zip(sources, weights, members(sources), strict=True):
        mine = [row for row in rows if row in found]
        assert len(mine) == pytest.approx(weight / sum(weights) * 2048 * 5, abs=5)
        for first in range(0, len(mine) - len(each), len(each)):
            assert set(mine[first : first + len(each)]) == found, "an epoch has every example once"
        if len(mine) >= 2 * len(each):
            assert mine[: len(each)] != mine[len(each) : 2 * len(each)], "each epoch has another order"


def test_a_position_does_not_depend_on_how_it_is_reached(monkeypatch) -> None:
    monkeypatch.setattr(sources_module, "BLOCK", 128)
    whole = Mixture("abc", spread_sources(), (5, 1, 2), 3, 0).rows(0, 1000)
    again, first = Mixture("abc", spread_sources(), (10, 2, 4), 3, 0), 1000
    rng = random.Random(0)
    while first:  # backwards, in parts of any size
        number = min(first, rng.randint(1, 300))
        first -= number
        assert again.rows(first, number).tolist() == whole[first : first + number].tolist()
    assert Mixture("abc", spread_sources(), (5, 1, 2), 4, 0).rows(0, 1000).tolist() != whole.tolist()


def test_shares_in_a_short_run_are_those_of_random_draws() -> None:
    """In a block of the size of training, a batch has each share on average: here 100 batches of 32."""
    sources = spread_sources()
    rows = Mixture("abc", sources, (1, 2, 1), 0).rows(0, 3200)
    counts = [sum(row in found for row in rows.tolist()) for found in members(sources)]
    assert counts == pytest.approx([800, 1600, 800], abs=100)


def test_a_share_below_one_example_of_a_block_is_rejected() -> None:
    with raises(UsageError, "share-too-small", "b", f"{sources_module.BLOCK:,}"):
        Mixture("abc", spread_sources(), (1e6, 1, 1e6), 0)


def test_prepared_data_records_the_sources(
    data: PreparedData, corpus: Corpus, tokenizer: Tokenizer, documents: list[list[str]]
) -> None:
    assert data.manifest.settings.names == list(corpus.sources)
    expected = [
        Counter(" ".join(map(" ".join, part)).split())
        for part in (documents[:200], documents[200:260], documents[260:])
    ]
    for i, words in enumerate(expected):
        found: Counter[str] = Counter()
        for split in ("train", "heldout"):
            rows = list_source_rows(data.manifest, split)[i]
            assert len(rows)
            examples = getattr(data, split)
            for row in rows[np.arange(len(rows))].tolist():
                found.update(tokenizer.tokens(examples[row].ids.tolist()))
        assert (found - words).keys() <= {"[CLS]", "[SEP]"}
        assert not words - found


def test_sources_do_not_change_the_shards(
    data: PreparedData, corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    other = prepare(
        Corpus((str(tmp_path / "text"),)), tokenizer, tmp_path / "other", seq_len=32, workers=1, heldout=0.2
    )
    assert other.manifest.fingerprint == data.manifest.fingerprint
    assert other.manifest.train[0].sources == [(0, len(other.train))]


def test_the_end_of_the_last_document_keeps_its_source(
    tmp_path: Path, tokenizer: Tokenizer, documents: list[list[str]]
) -> None:
    (tmp_path / "a.txt").write_text("\n".join(documents[0]))
    (tmp_path / "b.txt").write_text("")
    corpus = Corpus((str(tmp_path / "b.txt"), str(tmp_path / "a.txt")))
    data = prepare(corpus, tokenizer, tmp_path / "data", seq_len=32, workers=1)
    assert data.manifest.heldout_from == "end"
    assert [len(rows) for rows in list_source_rows(data.manifest, "heldout")] == [0, len(data.heldout)]
    with raises(DataError, "empty-source", "b.txt"):
        build_mixture(data.manifest, ("a.txt=1", "b.txt=1"), None, (0,))


def test_the_loader_reads_the_mixture(data: PreparedData) -> None:
    weights = ("a.txt=1", "b.txt=2", "c.txt=1")
    sources = members(list_source_rows(data.manifest, "train"))

    def load(seed: int, micro_batch_size: int = 8, rank: int = 0, world_size: int = 1) -> BatchLoader:
        mixture = build_mixture(data.manifest, weights, None, (seed,))
        return BatchLoader(data.train, batch_size=32, micro_batch_size=micro_batch_size, pad_id=0, seed=(seed,),
                           mixture=mixture, rank=rank, world_size=world_size, batch_warmup=BatchWarmup(20, 8))  # fmt: skip

    def ids(loader: BatchLoader, step: int) -> list[list[int]]:
        rows = (row for batch in loader.batches(step) for row in batch.input_ids.tolist())
        return sorted([token for token in row if token] for row in rows)

    whole = load(0)
    text = {tuple(t for t in data.train[i].ids.tolist() if t): i for i in range(len(data.train))}
    counts: Counter[int] = Counter()
    for step in range(60):
        rows = [text[tuple(row)] for row in ids(whole, step)]
        counts.update(next(i for i, each in enumerate(sources) if row in each) for row in rows)
    assert whole.count(60) == counts.total()
    assert [counts[i] / counts.total() for i in range(3)] == pytest.approx([0.25, 0.5, 0.25], abs=0.06)
    assert ids(load(0, 4), 41) == ids(whole, 41), "neither the micro-batch size nor the steps before matter"
    parts = sorted(ids(load(0, 8, 0, 2), 41) + ids(load(0, 8, 1, 2), 41))
    assert parts == ids(whole, 41)
    assert ids(load(1), 41) != ids(whole, 41)


def test_temperature_is_the_rule_of_multilingual_bert(data: PreparedData) -> None:
    sizes = np.array([len(rows) for rows in list_source_rows(data.manifest, "train")], dtype=float)
    for temperature in (1.0, 1.43, 5.0):
        mixture = build_mixture(data.manifest, (), temperature, (0,))
        powers = (sizes / sizes.sum()) ** (1 / temperature)
        assert mixture is not None
        assert mixture.shares == pytest.approx(powers / powers.sum())
    assert build_mixture(data.manifest, (), None, (0,)) is None


NAMES = ("/x/wiki", "/x/law.txt", "hf://owner/set", "/y/wiki")


@pytest.mark.parametrize(
    ("weights", "code", "values"),
    [
        (("wiki=1",), "ambiguous-source", ["wiki", 2]),
        (("news=1",), "unknown-source", ["news", "/x/law.txt"]),
        (("law=1",), "unknown-source", ["law"]),
        (("=1",), "bad-weight", ["=1"]),
        (("wiki",), "bad-weight", ["wiki"]),
        (("wiki=much",), "bad-weight", ["wiki=much"]),
        (("law.txt=0",), "out-of-range", ["law.txt", 0]),
        (("law.txt=-1",), "out-of-range", ["law.txt", "-1"]),
        (("law.txt=nan",), "out-of-range", ["law.txt", "nan"]),
        (("law.txt=inf",), "out-of-range", ["law.txt", "inf"]),
        (("law.txt=1", "x/law.txt=2"), "repeated-weight", ["/x/law.txt"]),
        (("law.txt=1", "set=2", "x/wiki=1"), "missing-weight", ["/y/wiki"]),
    ],
)
def test_wrong_weights_are_rejected(weights: tuple[str, ...], code: str, values: list[object]) -> None:
    with raises(UsageError, code, "--weights", *values):
        match_weights(weights, NAMES)


def test_weights_name_sources_by_the_end_of_their_path(monkeypatch, tmp_path: Path) -> None:
    assert match_weights(("y/wiki=4", "owner/set=3", "law.txt=.5", "/x/wiki=1e1"), NAMES) == [10, 0.5, 3, 4]
    assert match_weights(("a=1", "b/a=2"), ("a", "b/a")) == [1, 2], "the whole name comes first"
    monkeypatch.chdir(tmp_path)
    assert match_weights(("a=1", "b/a=2"), (str(tmp_path / "a"), str(tmp_path / "b/a"))) == [1, 2]
    assert match_weights(("p=1=1", "q=2"), ("p=1", "q")) == [1, 2]


def test_conflicting_and_useless_options_are_rejected(data: PreparedData) -> None:
    with raises(UsageError, "conflicting-options", "--weights", "--mix-temperature"):
        check_mixing(("a=1",), 2.0)
    for temperature in (0.5, float("nan"), float("inf")):
        with raises(UsageError, "out-of-range", "--mix-temperature"):
            check_mixing((), temperature)
    single = replace(data.manifest, settings=replace(data.manifest.settings, names=["a.txt"]))
    for weights, temperature in ((("a.txt=1",), None), ((), 2.0)):
        with raises(UsageError, "one-source", "a.txt"):
            build_mixture(replace(single, train=[]), weights, temperature, (0,))


def test_data_of_an_older_version_has_no_sources(data: PreparedData, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """It can be trained on without weights; unfinished, it is prepared again."""
    path = data.path / MANIFEST
    content = json.loads(path.read_text())
    for file in (content, settings := json.loads((data.path / "settings.json").read_text())):
        file.get("settings", file).pop("names")
    for entry in content["train"] + content["heldout"]:
        entry.pop("sources")
    path.write_text(json.dumps(content))
    (data.path / "settings.json").write_text(json.dumps(settings))
    old = prepare(corpus, tokenizer, data.path, seq_len=32, workers=1, heldout=0.2)
    assert list_source_rows(old.manifest, "train") == []
    assert build_mixture(old.manifest, (), None, (0,)) is None
    with raises(DataError, "unknown-sources"):
        build_mixture(old.manifest, ("a=1",), None, (0,))
    path.unlink()
    record = data.path / "chunks/00000.json"
    content = json.loads(record.read_text())
    content["train"].pop("sources")
    record.write_text(json.dumps(content))
    assert prepare(corpus, tokenizer, data.path, seq_len=32, workers=1, heldout=0.2).manifest == data.manifest


@pytest.mark.parametrize("sources", [[[0, 1]], [[7, 1]], [[3, 10**6]]])
def test_wrong_sources_in_a_manifest_are_rejected(data: PreparedData, sources: list[list[int]]) -> None:
    path = data.path / MANIFEST
    content = json.loads(path.read_text())
    content["train"][0]["sources"] = sources
    path.write_text(json.dumps(content))
    with raises(DataError, "wrong-sources", path):
        PreparedData.open(data.path)


def test_other_sources_need_another_directory(data: PreparedData, corpus: Corpus, tokenizer: Tokenizer) -> None:
    with raises(DataError, "other-settings", "names"):
        prepare(
            Corpus((str(Path(corpus.sources[0]).parent),)), tokenizer, data.path, seq_len=32, workers=1, heldout=0.2
        )
    assert Manifest.load(data.path) == data.manifest


def test_labels_are_short_and_unique() -> None:
    assert label_sources(NAMES) == ["/x/wiki", "law.txt", "set", "/y/wiki"]
    assert label_sources(["builtin"]) == ["builtin"]
