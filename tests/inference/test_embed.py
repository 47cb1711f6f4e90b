"""Sentence vectors: those of transformers, from all input formats, in all output formats, in order; damaged directories."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.damage import check_short_error
from support.errors import fails, notices, raises
from support.toy_tasks import TINY, save_model, toy_tokenizer, write_jsonl
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

import electra
from electra import cli
from electra.errors import DataError, ModelError, UsageError
from electra.finetuning.embedding.sentence_transformers import write_modules
from electra.inference import predict

TEXTS = ["the cat sees mice .", "a dog", "the owl is not very likely to hunt birds , it is fine .", "the", "a\tfox"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


def embed(model: Path, texts: object, **options: object) -> np.ndarray:
    return np.array([row["vector"] for row in electra.embed(model, texts, **options)], np.float32)


def compute_states(model: Path, text: str) -> torch.Tensor:
    """Compute the last hidden states [L, H] by transformers."""
    with torch.inference_mode():
        inputs = AutoTokenizer.from_pretrained(model)(text, return_tensors="pt")
        return AutoModel.from_pretrained(model).eval()(**inputs).last_hidden_state[0]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_pooled_states_of_transformers(model: Path, pooling: str, normalize: bool) -> None:
    found = embed(model, TEXTS, pooling=pooling, normalize=normalize)
    for text, vector in zip(TEXTS, found, strict=True):
        states = compute_states(model, text)
        expected = states.mean(0) if pooling == "mean" else states[0]
        expected = torch.nn.functional.normalize(expected, dim=0) if normalize else expected
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_bert(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=TINY.vocab_size, **sizes)).save_pretrained(tmp_path)
    toy_tokenizer().save(tmp_path)
    [vector] = embed(tmp_path, TEXTS[0], normalize=False)
    np.testing.assert_allclose(vector, compute_states(tmp_path, TEXTS[0]).mean(0), atol=1e-5)


def test_formats_of_input(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = embed(model, TEXTS)
    rows = [{"id": f"n{i}", "review": text} for i, text in enumerate(TEXTS)]
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "a.csv").write_text("review\n" + "".join(f'"{text}"\n' for text in TEXTS))
    (tmp_path / "a.tsv").write_text("review\n" + "".join(f"{text}\n" for text in TEXTS).replace("\t", " "))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    write_jsonl(tmp_path / "a.jsonl", rows)
    for suffix in (".csv", ".tsv", ".parquet", ".jsonl"):
        np.testing.assert_array_equal(embed(model, tmp_path / f"a{suffix}", text="review"), expected)
    np.testing.assert_array_equal(embed(model, tmp_path / "a.txt"), expected)
    np.testing.assert_array_equal(embed(model, rows, text="review"), expected)
    monkeypatch.setattr(sys, "stdin", io.StringIO((tmp_path / "a.txt").read_text()))
    np.testing.assert_array_equal(embed(model, Path("-")), expected)
    assert [row["id"] for row in electra.embed(model, tmp_path / "a.jsonl", text="review")] == [r["id"] for r in rows]


def read_json_lines(path: Path) -> np.ndarray:
    return np.array([json.loads(line)["vector"] for line in path.read_text().splitlines()], np.float32)


def read_parquet(path: Path) -> np.ndarray:
    table = pq.read_table(path)
    assert table["id"].to_pylist() == [str(i) for i in range(len(table))]
    return np.array(table["vector"].to_pylist(), np.float32)


@pytest.mark.parametrize(("suffix", "read"), [("jsonl", read_json_lines), ("npy", np.load), ("parquet", read_parquet)])
def test_formats_of_output(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, read: Callable[[Path], np.ndarray]
) -> None:
    """Texts of different lengths over several batches: the order is that of the input."""
    monkeypatch.setattr(predict, "FILE_INPUTS", 8)
    monkeypatch.setattr("electra.inference.output.GROUP_ROWS", 7)
    texts = [f"{TEXTS[i % 5]} the cat {'is ' * (i * 7 % 11)}" for i in range(30)]
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in texts))
    out = tmp_path / f"out.{suffix}"
    cli.main(["embed", "--model", str(model), "--input", str(tmp_path / "a.txt"), "--out", str(out)])
    found = read(out)
    assert (found.shape, found.dtype) == ((30, TINY.hidden_size), np.float32)
    np.testing.assert_allclose(found, embed(model, texts), atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", out.name]


def test_inputs_are_read_while_vectors_are_computed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "FILE_INPUTS", 4)
    taken = []

    def texts():
        for i in range(1000):
            taken.append(i)
            yield "the cat"

    rows = electra.embed(model, texts())
    next(rows)
    assert len(taken) <= 8


def test_standard_output(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "a.txt").write_text("the cat\na dog\n")
    cli.main(["embed", "--model", str(model), "--input", str(tmp_path / "a.txt")])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == list(electra.embed(model, ["the cat", "a dog"]))


def test_length_is_limited(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    long, short = embed(model, ["the cat sees mice and birds", "the cat sees"], max_length=5)
    np.testing.assert_allclose(long, short, atol=1e-6)
    assert len(notices(caplog, "truncated")) == 1
    with raises(UsageError, "longer-than-model", "--max-length", 65, 64):
        electra.embed(model, "the cat", max_length=65)


def test_mistakes(model: Path, tmp_path: Path) -> None:
    words = ["embed", "--model", model, "--input"]
    (tmp_path / "a.txt").write_text("the cat\n\na dog\n")
    (tmp_path / "a.csv").write_text("review\nthe cat\n")
    out = tmp_path / "out.npy"
    fails([*words, tmp_path / "a.txt", "--out", out], "no-tokens", "a.txt:2")
    fails([*words, tmp_path / "a.csv", "--out", out], "missing-field", "a.csv:2", "'sentence'", "--text")
    fails([*words, tmp_path / "no.txt", "--out", out], "missing", "no.txt")
    fails([*words, "the cat"], "text-as-file", "electra embed")
    fails([*words, tmp_path / "a.csv", "--out", tmp_path / "out.txt"], "unknown-format", "out.txt", ".npy")
    fails([*words, tmp_path / "a.csv", "--pooling", "max"], "unknown-choice", "--pooling")
    fails([*words, tmp_path / "a.csv", "--max-length", "2"], "out-of-range", "--max-length")
    with raises(DataError, "unexpected-pair", "input 0"):
        electra.embed(model, [("the cat", "a dog")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.txt"]


def change(name: str, **values: object) -> Callable[[Path], object]:
    """Change keys of a JSON file."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, **values}))

    return damage


DAMAGES = [
    (lambda folder: (folder / "modules.json").write_text("[{]"), "not-json", "modules.json"),
    (lambda folder: (folder / "modules.json").write_text('[{"type": "a.Dense", "path": ""}]'), "unknown-modules", "Dense"),
    (lambda folder: (folder / "1_Pooling/config.json").unlink(), "missing", "1_Pooling"),
    (change("1_Pooling/config.json", pooling_mode_mean_tokens=False), "unknown-pooling", "none"),
    (change("1_Pooling/config.json", pooling_mode_max_tokens=True), "unknown-pooling", "max_tokens"),
    (change("1_Pooling/config.json", pooling_mode="weightedmean"), "unknown-pooling", "weightedmean"),
    (change("sentence_bert_config.json", max_seq_length=-1), "wrong-value", "max_seq_length"),
    (change("sentence_bert_config.json", do_lower_case=True), "wrong-value", "do_lower_case"),
    (change("config_sentence_transformers.json", default_prompt_name="query"), "wrong-value", "default_prompt_name"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "code", "named"), DAMAGES)
def test_damaged_directories_of_sentence_transformers(
    tmp_path: Path, damage: Callable[[Path], object], code: str, named: str
) -> None:
    save_model(tmp_path)
    write_modules(tmp_path, TINY, {"pooling": "mean", "max_length": 12})
    assert len(embed(tmp_path, TEXTS)) == len(TEXTS)
    damage(tmp_path)
    with raises(ModelError, code, named) as error:
        electra.embed(tmp_path, TEXTS)
    check_short_error(error.value, named)
