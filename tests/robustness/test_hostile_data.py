"""Prepared data that is invalid: content that does not match the settings but has valid checksums, and invalid records."""

import hashlib
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.damage import NOT_FILES, Damage, broken_json, check_short_error, contents, edit
from support.errors import fails, raises

import electra
from electra.data.content import check_shard
from electra.data.manifest import Manifest, load_settings
from electra.data.shards import PreparedData
from electra.errors import DataError
from electra.text.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    (folder / "a.txt").write_text("the cat sees mice .\nthe dog likes milk .\n\n" * 400)
    electra.tokenizer([str(folder / "a.txt")], out=str(folder / "tokenizer"), vocab_size=160)
    electra.prepare(
        [str(folder / "a.txt")], tokenizer=str(folder / "tokenizer"), out=str(folder / "data"), seq_len=24, workers=1
    )
    return folder / "data"


def write_with_checksum(folder: Path, name: str, data: bytes) -> None:
    """Write a file of prepared data, and update its size and checksum in the manifest."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    entries = [*manifest["train"], *manifest["heldout"], manifest["unigrams"] | {"name": "unigrams.npy"}]
    for entry in entries:
        if entry["name"] == name:
            found = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            entry.update(found)
            if name == "unigrams.npy":
                manifest["unigrams"] = found
    (folder / "manifest.json").write_text(json.dumps(manifest))


def read_shard(folder: Path, split: str) -> tuple[str, pa.Table]:
    """Return the name and the columns of the only shard of a split."""
    (file,) = (folder / split).iterdir()
    with pa.ipc.open_file(file) as reader:
        return f"{split}/{file.name}", reader.read_all().combine_chunks()


def shard(split: str, change: Callable[[dict[str, pa.Array]], dict[str, pa.Array]], batches: int = 1) -> Damage:
    """Change the columns of a shard."""

    def damage(folder: Path) -> None:
        name, table = read_shard(folder, split)
        found = change({column: table.column(column).combine_chunks() for column in table.column_names})
        batch = pa.record_batch(found)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            for _ in range(batches):
                writer.write_batch(batch)
        write_with_checksum(folder, name, sink.getvalue().to_pybytes())

    return damage


def other_ids(value: int, kind: type = np.uint16) -> Callable[[dict[str, pa.Array]], dict[str, pa.Array]]:
    """Replace one token id, and the type of all."""

    def change(found: dict[str, pa.Array]) -> dict[str, pa.Array]:
        ids = found["input_ids"].values.to_numpy().astype(kind)
        ids[len(ids) // 2] = value
        return found | {"input_ids": pa.LargeListArray.from_arrays(found["input_ids"].offsets, pa.array(ids))}

    return change


def offsets(move: Callable[[np.ndarray], object]) -> Damage:
    """Overwrite the offsets in the file, because Arrow does not create invalid arrays."""

    def damage(folder: Path) -> None:
        name, table = read_shard(folder, "train")
        found = table.column("input_ids").combine_chunks().offsets.to_numpy().copy()
        before, data = found.tobytes(), (folder / name).read_bytes()
        assert data.count(before) == 1
        move(found)
        write_with_checksum(folder, name, data.replace(before, found.tobytes()))

    return damage


def other_segments(value: int, kind: Any = None) -> Callable[[dict[str, pa.Array]], dict[str, pa.Array]]:
    """Replace all values of segment_a."""

    def change(found: dict[str, pa.Array]) -> dict[str, pa.Array]:
        return found | {"segment_a": pa.array([value] * len(found["segment_a"]), kind or pa.int32())}

    return change


def array(make: Callable[[int], np.ndarray]) -> Damage:
    """Replace the token counts; `make` gets the size of the vocabulary."""

    def damage(folder: Path) -> None:
        file = io.BytesIO()
        np.save(file, make(load_tokenizer(folder / "tokenizer").vocab_size), allow_pickle=True)
        write_with_checksum(folder, "unigrams.npy", file.getvalue())

    return damage


def huge_array(folder: Path) -> None:
    """Write the header of an array of 8 TB, and no numbers."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (10**12,)})
    write_with_checksum(folder, "unigrams.npy", file.getvalue())


SHARDS = {
    "a token outside of the vocabulary": shard("train", other_ids(60_000)),
    "such a token in held-out text": shard("heldout", other_ids(160)),
    "token ids with a sign": shard("train", other_ids(-1, np.int32)),
    "wide ids outside of the vocabulary": shard("train", other_ids(2**32 - 1, np.uint32)),
    "token ids as numbers with a fraction": shard("train", other_ids(5, np.float32)),
    "examples that are too long": offsets(lambda found: found.__setitem__(slice(1, 3), found[3])),
    "offsets beyond the tokens": offsets(lambda found: found.__setitem__(-1, 10**12)),
    "offsets that decrease": offsets(lambda found: found.__setitem__([1, 2], found[[2, 1]])),
    "offsets that do not start at 0": offsets(lambda found: found.__setitem__(0, 1)),
    "an example missing": shard("train", lambda found: {name: column[:-1] for name, column in found.items()}),
    "no examples": shard("train", lambda found: {name: column[:0] for name, column in found.items()}),
    "two batches": shard("train", lambda found: found, batches=2),
    "no batch": shard("train", lambda found: found, batches=0),
    "segments of 0 tokens": shard("train", other_segments(0)),
    "segments beyond the example": shard("train", other_segments(25)),
    "segments as text": shard("train", other_segments("7", pa.string())),
    "segments of 64 bits": shard("train", other_segments(5, pa.int64())),
    "segments that are missing": shard("train", other_segments(None)),
    "a column missing": shard("train", lambda found: {"input_ids": found["input_ids"]}),
    "another column": shard("train", lambda found: found | {"more": found["segment_a"]}),
    "columns of other names": shard("train", lambda found: dict(zip("ab", found.values(), strict=True))),
    "texts instead of lists": shard(
        "train", lambda found: found | {"input_ids": other_segments("x", pa.string())(found)["segment_a"]}
    ),
    "not Arrow": lambda folder: write_with_checksum(folder, read_shard(folder, "train")[0], b"ARROW1" + bytes(1000)),
    "an empty file": lambda folder: write_with_checksum(folder, read_shard(folder, "train")[0], b""),
    **{f"a shard that is {case}": make("train/00000.arrow") for case, make in NOT_FILES.items()},
    "counts of another length": array(lambda size: np.zeros(size - 1, np.int64)),
    "counts in two dimensions": array(lambda size: np.zeros((size, 1), np.int64)),
    "counts with a fraction": array(np.zeros),
    "negative counts": array(lambda size: np.full(size, -1)),
    "a pickled array": array(lambda size: np.array([None] * size)),
    "counts for 10^12 tokens": huge_array,
    "counts that are not an array": lambda folder: write_with_checksum(folder, "unigrams.npy", b"x" * 99),
    "counts that are a FIFO": NOT_FILES["a FIFO"]("unigrams.npy"),
}
MANIFESTS = {
    **broken_json("manifest.json"),
    "examples that are text": edit("manifest.json", train__0__examples="7"),
    "more examples than there are": edit("manifest.json", train__0__examples=10**9),
    "a negative number of tokens": edit("manifest.json", train__0__tokens=-1),
    "a size that is NaN": edit("manifest.json", train__0__bytes=float("nan")),
    "a shard in another place": edit("manifest.json", train__0__name="../../../etc/passwd"),
    "an absolute shard": edit("manifest.json", train__0__name="/etc/passwd"),
    "a shard that is not an object": edit("manifest.json", train=["train/00000.arrow"]),
    "shards that are not a list": edit("manifest.json", train={}),
    "sequences of 0": edit("manifest.json", settings__seq_len=0),
    "sequences of text": edit("manifest.json", settings__seq_len="24"),
    "sequences that are shorter than the examples": edit("manifest.json", settings__seq_len=10),
    "a vocabulary of 10^12": edit("manifest.json", settings__vocab_size=10**12),
    "a smaller vocabulary": edit("manifest.json", settings__vocab_size=20),
    "no settings": edit("manifest.json", settings=...),
    "sources of numbers": edit("manifest.json", settings__sources=[1, 2]),
    "held out from elsewhere": edit("manifest.json", heldout_from="moon"),
    "a version that is text": edit("manifest.json", version="1"),
    "a format that is a list": edit("manifest.json", format=[]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", [*SHARDS, *MANIFESTS])
def test_invalid_data_is_not_opened(case: str, good: Path, tmp_path: Path) -> None:
    data = shutil.copytree(good, tmp_path / "data")
    (SHARDS | MANIFESTS)[case](data)
    before = contents(data)
    with pytest.raises(DataError) as raised:
        PreparedData.open(data)
    check_short_error(raised.value, str(data))
    assert contents(data) == before


def test_vocabulary_size_must_be_that_of_the_tokenizer(good: Path, tmp_path: Path) -> None:
    data = shutil.copytree(good, tmp_path / "data")
    edit("manifest.json", settings__vocab_size=200)(data)
    array(lambda _: np.zeros(200, np.int64))(data)
    tokenizer = load_tokenizer(data / "tokenizer")
    with raises(DataError, "other-vocabulary", f"{data / 'manifest.json'}: ", " 200 ", f" {tokenizer.vocab_size};"):
        PreparedData.open(data).check_tokenizer(tokenizer.fingerprint, tokenizer.vocab_size)


@pytest.mark.parametrize(
    ("case", "code", "name"),
    [
        ("a token outside of the vocabulary", "token-outside-vocabulary", "train/00000.arrow"),
        ("counts with a fraction", "wrong-counts", "unigrams.npy"),
    ],
)
def test_a_run_does_not_start_with_invalid_data(case: str, code: str, name: str, good: Path, tmp_path: Path) -> None:
    data = shutil.copytree(good, tmp_path / "data")
    SHARDS[case](data)
    fails(["pretrain", "--data", data, "--out", tmp_path / "run", "--preset", "tiny"], code, data / name)
    assert not (tmp_path / "run").exists()


SETTINGS = {
    **broken_json("settings.json"),
    "a seed that is text": edit("settings.json", seed="0"),
    "sources that are not a list": edit("settings.json", sources="a.txt"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_invalid_settings_are_rejected(case: str, good: Path, tmp_path: Path) -> None:
    data = shutil.copytree(good, tmp_path / "data")
    SETTINGS[case](data)
    with pytest.raises(DataError) as raised:
        load_settings(data)
    check_short_error(raised.value, str(data / "settings.json"))


@pytest.mark.slow
@pytest.mark.parametrize("case", broken_json("chunks/00000.json"))
def test_a_damaged_chunk_record_is_written_again(case: str, good: Path, tmp_path: Path) -> None:
    data = shutil.copytree(good, tmp_path / "data")
    (data / "manifest.json").unlink()
    record = (good / "chunks/00000.json").read_bytes()
    broken_json("chunks/00000.json")[case](data)
    if (data / "chunks/00000.json").is_dir():
        return  # a directory cannot be replaced by a file
    again = electra.prepare(
        [str(good.parent / "a.txt")], tokenizer=str(good / "tokenizer"), out=str(data), seq_len=24, workers=1
    )
    assert (data / "chunks/00000.json").read_bytes() == record
    assert Manifest.load(Path(str(again))) == Manifest.load(good)


def test_valid_data_is_opened(good: Path) -> None:
    manifest = Manifest.load(good)
    for entry in (*manifest.train, *manifest.heldout):
        check_shard(good / entry.name, entry, manifest.settings)
        with raises(DataError, "wrong-size", good / entry.name, f"{entry.tokens:,}", f"{entry.tokens + 1:,}"):
            check_shard(good / entry.name, replace(entry, tokens=entry.tokens + 1), manifest.settings)
