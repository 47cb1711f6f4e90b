"""GLUE's files: columns, labels and splits of toy folders, and of the real data if they exist."""

from pathlib import Path

import numpy as np
import pytest
from support.errors import raises
from support.places import DATA
from support.toy_tasks import toy_tokenizer, write_glue

from electra.errors import DataError
from electra.finetuning.classification.glue import GLUE, find_file, load_glue_task, read_split
from electra.finetuning.registry import TASKS

REAL = DATA / "glue"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


def test_columns_and_labels(folder: Path) -> None:
    sst = read_split("sst2", folder, "train", False)
    assert sst.second is None
    assert all(
        (word in text) == bool(y)
        for text, y in zip(sst.first, sst.labels, strict=True)
        for word in ["good"]
        if "good" in text or "awful" in text
    )
    sts = read_split("stsb", folder, "dev", False)
    assert sts.labels.dtype == np.float32
    assert set(sts.labels.tolist()) == {0.0, 5.0}
    rte = read_split("rte", folder, "dev", False)
    same = [a.split()[1] == b.split()[1] for a, b in zip(rte.first, rte.second, strict=True)]
    assert (rte.labels == 0).tolist() == same  # entailment is class 0
    mnli = read_split("mnli", folder, "dev_mismatched", False)
    assert set(mnli.labels.tolist()) == {1, 2}
    test = read_split("mrpc", folder, "test", False)
    assert test.labels is None
    assert test.ids == [str(i) for i in range(len(test))]


def test_existing_splits(folder: Path) -> None:
    task = load_glue_task("mnli", str(folder), toy_tokenizer())
    assert task.scored_splits == ("dev", "dev_mismatched")
    assert task.predicted_splits == ("test", "diagnostic")  # no test_mismatched.tsv in this folder
    assert load_glue_task("rte", str(folder), toy_tokenizer()).predicted_splits == ("test",)


def test_epochs_of_table_7() -> None:
    assert {name for name, spec in TASKS.items() if spec.recipe.epochs == 10} == {"rte", "stsb"}
    assert {name for name, spec in TASKS.items() if spec.recipe.epochs == 2} == {"squad1", "squad2", "mrqa"}
    assert {name for name, spec in TASKS.items() if spec.recipe.max_length != 128} == {
        *("squad1", "squad2", "mrqa"),
        *("chunk", "ner", "pos", "tagging"),
    }


def test_only_the_test_file_of_cola_has_a_header(tmp_path: Path) -> None:
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "train.tsv").write_text("gj04\t1\t\tThe cat sleeps.\nbc81\t0\t*\tCat the sleeps.\n")
    (tmp_path / "CoLA" / "test.tsv").write_text("index\tsentence\n0\tA dog.\n")
    train = read_split("cola", tmp_path, "train", False)
    assert (train.first, train.labels.tolist()) == (["The cat sleeps.", "Cat the sleeps."], [1, 0])
    assert read_split("cola", tmp_path, "test", False).first == ["A dog."]


@pytest.mark.parametrize(
    ("content", "code", "values"),
    [
        ("sentence\tlabel\nfine\t1\nbad\t2\n", "unknown-label", ["train.tsv:3", "'2'", 0, 1]),
        ("sentence\tlabel\nfine\t\n", "unknown-label", ["train.tsv:2", "''"]),
        ("sentence\tlabel\nfine\n", "bad-row", ["train.tsv:2", 1, 2]),
    ],
)
def test_bad_rows(tmp_path: Path, content: str, code: str, values: list) -> None:
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "train.tsv").write_text(content)
    with raises(DataError, code, *values):
        read_split("sst2", tmp_path, "train", False)


def test_folder_of_another_layout(tmp_path: Path) -> None:
    with raises(DataError, "missing", "RTE/train.tsv"):
        find_file("rte", tmp_path, "train")
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "train.tsv").write_text("a\tb\nc\td\n")
    with raises(DataError, "wrong-columns", "RTE/train.tsv", 2, "rte"):
        read_split("rte", tmp_path, "train", False)


def test_layout_of_the_hub(tmp_path: Path) -> None:
    """Read a local copy of a hub data set, in which MNLI numbers its labels in another order than GLUE's files."""
    datasets = pytest.importorskip("datasets")
    rows = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [0, 1, 2], "idx": [0, 1, 2]}
    for split in ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"):
        (tmp_path / "mnli").mkdir(exist_ok=True)
        datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "mnli" / f"{split}.parquet")
    splits = "".join(
        f"      - split: {split}\n        path: mnli/{split}.parquet\n"
        for split in ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched")
    )
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n  - config_name: mnli\n    data_files:\n{splits}---\n")
    task = load_glue_task("mnli", f"hf://{tmp_path}", toy_tokenizer())
    assert task.read("dev").labels.tolist() == [1, 2, 0]
    assert task.read("dev_mismatched").first == ["a", "b", "c"]
    assert task.read("test").labels is None
    with raises(DataError, "unreadable", "rte/validation"):
        load_glue_task("rte", f"hf://{tmp_path}", toy_tokenizer()).read("dev")


@pytest.mark.slow
@pytest.mark.skipif(not REAL.exists(), reason=f"GLUE is not at {REAL}")
@pytest.mark.parametrize(
    ("name", "train", "dev", "share"),
    [
        ("cola", 8551, 1043, 721 / 1043),
        ("sst2", 67349, 872, 444 / 872),
        ("mrpc", 3668, 408, 279 / 408),
        ("rte", 2490, 277, 131 / 277),
        ("wnli", 635, 71, 31 / 71),
    ],
)
def test_real_files(name: str, train: int, dev: int, share: float) -> None:
    assert len(read_split(name, REAL, "train", False)) == train
    sentences = read_split(name, REAL, "dev", False)
    assert len(sentences) == dev
    assert sentences.labels.mean() == pytest.approx(share)
    assert all(sentences.first)


@pytest.mark.skipif(not REAL.exists(), reason=f"GLUE is not at {REAL}")
def test_real_similarities() -> None:
    sentences = read_split("stsb", REAL, "dev", False)
    assert len(sentences) == 1500
    assert sentences.labels.mean() == pytest.approx(2.3639, abs=1e-4)
    assert set(GLUE) >= {"qqp", "qnli", "mnli"}
