"""Every public function accepts path objects of any class; other tests pass strings."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.toy import TINY_RUN
from support.toy_tasks import save_model, write_glue, write_jsonl

import electra


@dataclass(frozen=True)
class Place(os.PathLike):
    """A path object that is not a `pathlib.Path`."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """Tokenizer, prepared data, two pre-training runs, an encoder, and data to fine-tune it on."""
    folder = tmp_path_factory.mktemp("inputs")
    electra.tokenizer(str(text), out=str(folder / "tokenizer"), vocab_size=160)
    electra.prepare(str(text), tokenizer=str(folder / "tokenizer"), out=str(folder / "data"), seq_len=24, workers=1)
    save_model(folder / "model")
    write_glue(folder / "glue", rows=16)
    for objective in ("electra", "mlm"):
        electra.pretrain(data=str(folder / "data"), out=str(folder / objective), objective=objective, **TINY_RUN)
    return folder


pytestmark = pytest.mark.parametrize("kind", [Path, Place])


def test_tokenizer(kind: Any, text: Path, tmp_path: Path) -> None:
    for number, given in enumerate((kind(text), [kind(text / "a.txt"), kind(text / "b.txt")])):
        out = tmp_path / str(number)
        assert electra.tokenizer(given, out=kind(out), vocab_size=160) == out
    assert (tmp_path / "0" / "vocab.txt").read_text() == (tmp_path / "1" / "vocab.txt").read_text()


@pytest.mark.slow
def test_prepare(kind: Any, text: Path, folder: Path, tmp_path: Path) -> None:
    for number, given in enumerate((kind(text), (kind(text / "a.txt") for _ in range(1)))):
        options = {"tokenizer": kind(folder / "tokenizer"), "seq_len": 24, "workers": 1}
        assert electra.prepare(given, out=kind(tmp_path / str(number)), **options) == tmp_path / str(number)


@pytest.mark.slow
def test_pretrain(kind: Any, text: Path, folder: Path, tmp_path: Path) -> None:
    run, short = folder / "electra", TINY_RUN | {"steps": 2}
    given = {"tokenizer": kind(run / "discriminator"), "init": kind(run)}
    assert electra.pretrain([kind(text / "b.txt")], out=kind(tmp_path / "text"), **given, **short)["step"] == 2
    assert electra.pretrain(data=kind(folder / "data"), out=kind(tmp_path / "data"), **short)["step"] == 2
    config = kind(run / "config.yaml")
    assert electra.pretrain(out=kind(tmp_path / "config"), config=config, steps=2)["step"] == 2


@pytest.mark.slow
def test_evaluate(kind: Any, folder: Path) -> None:
    run, data = kind(folder / "electra"), kind(folder / "data")
    assert electra.evaluate(run, data=data) == electra.evaluate(str(folder / "electra"))
    beside = {"bert": kind(folder / "mlm"), "data": data}
    assert electra.evaluate_mlm(run, examples=8, candidates=4, **beside)


def test_fill_mask(kind: Any, folder: Path) -> None:
    assert electra.fill_mask("the [MASK] sees mice .", model=kind(folder / "electra"))[0]["answers"]


@pytest.mark.slow
def test_finetune_and_predict(kind: Any, folder: Path, tmp_path: Path) -> None:
    model, options = kind(folder / "model"), {"epochs": 1, "batch_size": 8}
    out = tmp_path / "rte"
    assert electra.finetune("rte", model=model, data=kind(folder / "glue"), out=kind(out), **options)["seeds"] == [0]
    rows = write_jsonl(tmp_path / "rows.jsonl", [{"t": "the cat", "y": "a"}, {"t": "the dog", "y": "b"}] * 4)
    files = dict.fromkeys(("train", "dev", "test"), kind(rows))
    own = tmp_path / "own"
    electra.finetune("table", model=model, out=kind(own), text="t", label="y", **files, **options)
    (tmp_path / "a.txt").write_text("the cat\n")
    expected = list(electra.predict(str(own), ["the cat"]))
    assert list(electra.predict(kind(own), Path(tmp_path / "a.txt"), out=kind(tmp_path / "out.jsonl"))) == expected
    assert list(electra.load(kind(own)).predict(Place(tmp_path / "a.txt"), out=kind(tmp_path / "b.jsonl"))) == expected
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes() != b""


def test_glue(kind: Any, folder: Path, tmp_path: Path) -> None:
    given = {"model": kind(folder / "model"), "data": kind(folder / "glue"), "out": kind(tmp_path / "out")}
    assert set(electra.glue(**given, tasks="rte", seeds=1, epochs=1)["tasks"]) == {"rte"}


def test_study(kind: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    monkeypatch.setattr("electra.studies.run.run_study", lambda order, dry_run: orders.append(order) or {})
    places = {name: tmp_path / name for name in ("data", "glue", "tags", "out")}
    electra.study("objectives", **{name: kind(path) for name, path in places.items()})
    (order,) = orders
    assert {name: getattr(order, name) for name in places} == {
        name: path if name == "out" else str(path) for name, path in places.items()
    }
