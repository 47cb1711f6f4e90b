import errno
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.errors import raises

from electra.data.examples import Examples
from electra.data.manifest import MANIFEST, SETTINGS, Checksum, Manifest, Settings, save_json
from electra.data.shards import ExampleSet, PreparedData, write_shard, write_unigrams
from electra.errors import DataError, StorageError

SETTINGS_HERE = Settings([("a.txt", 10), ("hf://b", None)], "file", "text", "f" * 64, 100, 16, 0, 0.1)


def examples(seed: int, number: int, dtype: type = np.uint16) -> Examples:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 17, number)
    ids = rng.integers(5, 100, lengths.sum()).astype(dtype)
    return Examples(ids, np.concatenate([[0], np.cumsum(lengths)]), (lengths - 1).astype(np.int32))


SHARDS = {
    "train": [examples(seed, number) for seed, number in [(0, 7), (1, 1), (2, 20)]],
    "heldout": [examples(3, 4)],
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("electra.data.shards.TOKENS_PER_COUNT", 7)  # the last part is shorter
    entries = {
        split: [write_shard(tmp_path, split, number, shard) for number, shard in enumerate(shards)]
        for split, shards in SHARDS.items()
    }
    unigrams = write_unigrams(tmp_path, entries["train"], 100, without=(7, 9))
    save_json(tmp_path / SETTINGS, SETTINGS_HERE)
    save_json(
        tmp_path / MANIFEST,
        Manifest(SETTINGS_HERE, 5, "documents", entries["train"], entries["heldout"], unigrams),
    )
    return tmp_path


def flat(shards: list[Examples]) -> list[tuple[list[int], int]]:
    return [
        (shard.ids[shard.offsets[i] : shard.offsets[i + 1]].tolist(), int(shard.segment_a[i]))
        for shard in shards
        for i in range(len(shard))
    ]


def test_written_shards_are_read_unchanged(directory: Path) -> None:
    data = PreparedData.open(directory)
    for read, split in ((data.train, "train"), (data.heldout, "heldout")):
        expected = flat(SHARDS[split])
        assert len(read) == len(expected)
        assert [
            (example.ids.tolist(), example.segment_a) for example in (read[i] for i in range(len(read)))
        ] == expected
        assert read.lengths(range(len(read))).tolist() == [len(ids) for ids, _ in expected]
        assert read.tokens == sum(len(ids) for ids, _ in expected)
        assert read[-1].ids.tolist() == expected[-1][0]
        with pytest.raises(IndexError):
            read[len(read)]
    assert [example.segment_a for example in data.train.rows([27, 0, 7])] == [
        flat(SHARDS["train"])[i][1] for i in (27, 0, 7)
    ]
    assert data.manifest.settings == SETTINGS_HERE
    assert (data.manifest.seq_len, data.manifest.vocab_size) == (16, 100)
    assert data.tokenizer_path == directory / "tokenizer"


def test_examples_are_views_of_the_files(directory: Path) -> None:
    train = PreparedData.open(directory).train
    if Path("/proc").is_dir():
        opened = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        assert not any(path.startswith(str(directory)) for path in opened), "all files are closed"
        maps = Path("/proc/self/maps").read_text()
        assert f"{directory}/train/00002.arrow" in maps
    ids = train[20].ids
    assert not ids.flags.owndata
    assert not ids.flags.writeable


def test_large_vocabularies_have_wider_ids(tmp_path: Path) -> None:
    shard = Examples(np.array([2, 70_000, 3], np.uint32), np.array([0, 3]), np.array([3], np.int32))
    entry = write_shard(tmp_path, "train", 0, shard)
    checksum = write_unigrams(tmp_path, [entry], 70_001, without=())
    settings = replace(SETTINGS_HERE, vocab_size=70_001)
    save_json(tmp_path / MANIFEST, Manifest(settings, 1, "end", [entry], [], checksum))
    data = PreparedData.open(tmp_path)
    assert data.train[0].ids.tolist() == [2, 70_000, 3]
    assert len(data.heldout) == data.heldout.tokens == 0
    assert data.unigrams[70_000] == 1


def test_unigrams_equal_counts(directory: Path) -> None:
    counts = [0] * 100
    for ids, _ in flat(SHARDS["train"]):
        for token in ids:
            counts[token] += token not in (7, 9)
    unigrams = PreparedData.open(directory).unigrams
    assert unigrams.dtype == np.int64
    assert unigrams.tolist() == counts
    assert sum(counts) > 100


def test_another_tokenizer_is_rejected(directory: Path) -> None:
    data = PreparedData.open(directory)
    data.check_tokenizer("f" * 64, 100)
    with raises(DataError, "other-tokenizer", directory, "f" * 12, "e" * 12):
        data.check_tokenizer("e" * 64, 100)


@pytest.mark.parametrize("name", ["train/00001.arrow", "heldout/00000.arrow", "unigrams.npy"])
def test_damaged_files_are_named(directory: Path, name: str) -> None:
    file = directory / name
    content = file.read_bytes()
    advice = f"{directory}/manifest.json", "electra prepare"

    file.write_bytes(content[:-1])
    with raises(DataError, "wrong-size", file, f"{len(content) - 1:,}", f"{len(content):,}", *advice):
        PreparedData.open(directory)

    middle = len(content) // 2
    file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    checksums = (hashlib.sha256(each).hexdigest()[:12] for each in (file.read_bytes(), content))
    with raises(DataError, "wrong-checksum", file, *checksums, *advice):
        PreparedData.open(directory)

    file.unlink()
    with raises(DataError, "missing", file, *advice):
        PreparedData.open(directory)


def test_missing_prepared_data_is_reported(directory: Path) -> None:
    (directory / MANIFEST).unlink()
    with raises(DataError, "unfinished", directory, MANIFEST):
        PreparedData.open(directory)
    (directory / SETTINGS).unlink()
    with raises(DataError, "no-manifest", directory, MANIFEST, "electra prepare"):
        PreparedData.open(str(directory))
    with raises(DataError, "missing", directory / "no", "electra prepare"):
        PreparedData.open(directory / "no")


def test_damaged_manifests_are_reported(directory: Path) -> None:
    path = directory / MANIFEST
    good = path.read_text()
    for content, code, values in (
        (good[:-20], "damaged", [f"line {good[:-20].count(chr(10)) + 1}"]),
        (good.replace('"sha256"', '"sha"'), "damaged", ["sha256"]),
        (good.replace('"heldout_from"', '"from"'), "damaged", ["heldout_from"]),
        (json.dumps({"shards": []}), "not-prepared", []),
        ("[]", "not-prepared", []),
        (good.replace('"version": 1', '"version": 9'), "other-version", [9, 1]),
    ):
        path.write_text(content)
        with raises(DataError, code, path, *values):
            PreparedData.open(directory)
    path.unlink()
    path.mkdir()
    with raises(DataError, "unreadable", path, os.strerror(errno.EISDIR)):
        PreparedData.open(directory)


def test_shard_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("a file where a folder should be")
    with raises(StorageError, "unwritable", tmp_path / "train/00000.arrow"):
        write_shard(tmp_path, "train", 0, examples(0, 3))


def test_empty_example_set() -> None:
    assert len(ExampleSet([])) == ExampleSet([]).tokens == 0


def test_manifest_has_the_given_values() -> None:
    manifest = Manifest(SETTINGS_HERE, 5, "documents", [], [], Checksum(0, ""))
    assert replace(manifest, settings=replace(SETTINGS_HERE, seq_len=64)).seq_len == 64
