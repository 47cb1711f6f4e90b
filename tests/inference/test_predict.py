"""Predictions of all task types from all input formats equal those of the fine-tuning run."""

import errno
import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.errors import notices, raises
from support.toy_tasks import TINY, save_model, toy_tokenizer, write_conll, write_glue, write_jsonl, write_questions
from support.toy_tasks import finetune_settings as settings
from transformers import ElectraConfig, ElectraForQuestionAnswering, ElectraForSequenceClassification

import electra
from electra import cli
from electra.errors import DataError, ModelError, UsageError
from electra.finetuning.preparation import VOCABULARY_ADVICE
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.run import finetune
from electra.inference import predict
from electra.inference.config import PredictRuntimeConfig


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one epoch for each type of task."""
    root = tmp_path_factory.mktemp("runs")
    model, glue = save_model(root / "model"), write_glue(root / "glue", rows=32)
    write_conll(root / "conll" / "train.txt", 20, 0)
    write_conll(root / "conll" / "test.txt", 5, 1, tags=False)
    write_conll(root / "conll" / "dev.txt", 5, 1)
    squad = {"train": write_questions(root / "train.json", 16, 0), "dev": write_questions(root / "dev.json", 8, 1)}
    files = {split: str(path) for split, path in squad.items()}
    for name, config in {
        "sst2": settings(model, "sst2", data=str(glue), epochs=1.0),
        "stsb": settings(model, "stsb", data=str(glue), epochs=1.0),
        "chunk": settings(model, "chunk", data=str(root / "conll"), epochs=1.0),
        "joint": settings(model, "squad1", **files, epochs=1.0),
        "plain": settings(model, "squad1", **files, epochs=1.0, span=SpanConfig(head="plain")),
    }.items():
        finetune(config, root / name)
    return root


def saved(runs: Path, name: str, split: str) -> list[dict]:
    lines = (runs / name / "seed-0" / f"predictions-{split}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def column(path: Path, *numbers: int) -> list[list[str]]:
    return [[line.split("\t")[i] for i in numbers] for line in path.read_text().splitlines()[1:]]


@pytest.mark.slow
def test_sentences_from_every_kind_of_file(runs: Path, tmp_path: Path, monkeypatch) -> None:
    texts = [text for (text,) in column(runs / "glue" / "SST-2" / "test.tsv", 1)]
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "a.csv").write_text("sentence\n" + "\n".join(f'"{text}"' for text in texts) + "\n")
    (tmp_path / "a.tsv").write_text("sentence\n" + "\n".join(texts) + "\n")
    write_jsonl(tmp_path / "a.jsonl", [{"sentence": text} for text in texts])
    pq.write_table(pa.table({"sentence": texts}), tmp_path / "a.parquet")
    expected = saved(runs, "sst2", "test")
    for file in ("a.txt", "a.csv", "a.tsv", "a.jsonl", "a.parquet", "-"):
        if file == "-":
            monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(texts)))
        source = Path(file) if file == "-" else tmp_path / file
        predictions = list(electra.predict(model=str(runs / "sst2"), input=source))
        assert [(row["id"], row["label"]) for row in predictions] == [(row["id"], row["label"]) for row in expected]
        for row, other in zip(predictions, expected, strict=True):
            assert row["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)


@pytest.mark.slow
def test_pairs_and_numbers(runs: Path, tmp_path: Path) -> None:
    pairs = column(runs / "glue" / "STS-B" / "test.tsv", 7, 8)
    (tmp_path / "a.txt").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    write_jsonl(tmp_path / "a.jsonl", [{"x": a, "y": b} for a, b in pairs])
    expected = [row["value"] for row in saved(runs, "stsb", "test")]
    lines = [row["value"] for row in electra.predict(model=str(runs / "stsb"), input=tmp_path / "a.txt")]
    rows = electra.predict(model=str(runs / "stsb"), input=tmp_path / "a.jsonl", text="x", text_pair="y")
    assert lines == pytest.approx(expected, abs=1e-4)
    assert [row["value"] for row in rows] == pytest.approx(expected, abs=1e-4)


def test_tags(runs: Path, tmp_path: Path, monkeypatch) -> None:
    conll, expected = runs / "conll" / "test.txt", saved(runs, "chunk", "test")
    lines = "\n".join(" ".join(block.split("\n")) for block in conll.read_text().strip().split("\n\n")) + "\n"
    (tmp_path / "a.txt").write_text(lines)
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert list(electra.predict(model=str(runs / "chunk"), input=conll)) == expected
    assert list(electra.predict(model=str(runs / "chunk"), input=tmp_path / "a.txt", form="lines")) == expected
    assert list(electra.predict(model=str(runs / "chunk"), input=Path("-"))) == expected


def test_every_line_has_a_prediction(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat\n\n\nthe dog\n")
    assert len(list(electra.predict(model=str(runs / "sst2"), input=tmp_path / "a.txt"))) == 4
    tags = [row["tags"] for row in electra.predict(model=str(runs / "chunk"), input=tmp_path / "a.txt", form="lines")]
    assert [len(each) for each in tags] == [2, 0, 0, 2]


def test_truncation_warning_and_mixed_pairs(runs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_text("the cat\n" + "the cat " * 100 + "\n")
    list(electra.predict(model=str(runs / "sst2"), input=tmp_path / "a.txt"))
    (line,) = notices(caplog, "truncated")
    assert line.startswith("1 ")
    assert str(tmp_path / "a.txt:1") in line
    (tmp_path / "a.txt").write_text("the cat\nthe dog\tthe owl\n")
    with raises(DataError, "unexpected-pair", tmp_path / "a.txt:2"):
        list(electra.predict(model=str(runs / "sst2"), input=tmp_path / "a.txt"))
    with raises(DataError, "missing-pair", tmp_path / "a.txt:1", "--text-pair"):
        list(electra.predict(model=str(runs / "stsb"), input=tmp_path / "a.txt"))


@pytest.mark.parametrize("head", ["joint", "plain"])
def test_answers(runs: Path, tmp_path: Path, head: str) -> None:
    expected = saved(runs, head, "dev")
    content = json.loads((runs / "dev.json").read_text())["data"][0]["paragraphs"]
    rows = [{"id": p["qas"][0]["id"], "question": p["qas"][0]["question"], "context": p["context"]} for p in content]
    for source in (runs / "dev.json", write_jsonl(tmp_path / "a.jsonl", rows)):
        predictions = list(electra.predict(model=str(runs / head), input=source))
        assert [(row["id"], row["answer"]) for row in predictions] == [(row["id"], row["answer"]) for row in expected]
        assert predictions[0]["null_odds"] == pytest.approx(expected[0]["null_odds"], abs=1e-3)
        assert len(predictions[0]["n_best"]) == len(expected[0]["n_best"])


@pytest.mark.parametrize("positions", [32, 512])
def test_span_model_of_transformers(positions: int, tmp_path: Path) -> None:
    """Also one with fewer positions than the default question length needs."""
    config = ElectraConfig(
        vocab_size=TINY.vocab_size, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=positions,
    )  # fmt: skip
    ElectraForQuestionAnswering(config).save_pretrained(tmp_path / "model")
    toy_tokenizer().save(tmp_path / "model")
    context = "the cat sees mice . " * 20
    (answer,) = electra.predict(tmp_path / "model", {"question": "who sees mice ?", "context": context})
    assert answer["answer"] in context


@pytest.mark.parametrize("labels", [2, 3])
def test_classifier_of_transformers(labels: int, tmp_path: Path) -> None:
    """A model saved by transformers, whose head has a hidden layer; it has no task.json."""
    torch.manual_seed(0)
    config = ElectraConfig(
        vocab_size=TINY.vocab_size, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, num_labels=labels,
    )  # fmt: skip
    theirs = ElectraForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path / "model")
    tokenizer = toy_tokenizer()
    tokenizer.save(tmp_path / "model")
    (tmp_path / "a.txt").write_text("the cat sees mice .\n")
    (predictions,) = electra.predict(model=str(tmp_path / "model"), input=tmp_path / "a.txt")
    ids = [tokenizer.cls_id, *tokenizer.encode_lines(["the cat sees mice ."])[0], tokenizer.sep_id]
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0].softmax(-1).tolist()
    assert list(predictions["probabilities"].values()) == pytest.approx(expected, abs=1e-5)
    assert predictions["label"] == f"LABEL_{max(range(labels), key=expected.__getitem__)}"


def test_output_file_is_complete_or_missing(runs: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"sentence": "the cat"}] * 600 + [{"text": "the cat"}])
    out = tmp_path / "predictions.jsonl"
    with raises(DataError, "missing-field", tmp_path / "a.jsonl:601", "'sentence'", " text ", "--text"):
        list(electra.predict(model=str(runs / "sst2"), input=tmp_path / "a.jsonl", out=str(out)))
    assert list(tmp_path.iterdir()) == [tmp_path / "a.jsonl"]
    write_jsonl(tmp_path / "a.jsonl", [{"sentence": "the cat"}] * 600)
    assert len(list(electra.predict(model=str(runs / "sst2"), input=tmp_path / "a.jsonl", out=str(out)))) == 600
    assert len(out.read_text().splitlines()) == 600


def test_standard_input_is_streamed(runs: Path, monkeypatch) -> None:
    """The first predictions are returned before the last inputs are read."""
    read = 0

    class Lines(io.StringIO):
        def __next__(self) -> str:
            nonlocal read
            read += 1
            return super().__next__()

    monkeypatch.setattr("sys.stdin", Lines("the cat\n" * 2000))
    rows = electra.predict(model=str(runs / "sst2"), input=Path("-"))
    next(rows)
    assert read <= 16


@pytest.mark.slow
def test_files_are_read_lazily(runs: Path, tmp_path: Path) -> None:
    """Each file is invalid near its end: the first predictions are returned before the error is raised."""
    rest = (b"x" * 500_000 + b"\n\n") * 4 + b"\xff\n"
    for name in ("a.csv", "a.tsv"):
        (tmp_path / name).write_bytes(b"sentence\n" + b"the cat\n" * 600 + rest.replace(b"\n\n", b"\n"))
    (tmp_path / "a.conll").write_bytes(b"the\ncat\n\n" * 600 + rest)
    pq.write_table(pa.table({"sentence": ["the cat"] * 4096}), tmp_path / "a.parquet", row_group_size=2048)
    offset = pq.read_metadata(tmp_path / "a.parquet").row_group(1).column(0).dictionary_page_offset
    with (tmp_path / "a.parquet").open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 16)
    invalid_utf8 = dict.fromkeys(("a.csv", "a.tsv", "a.conll"), "not-utf8")
    for name, code in {**invalid_utf8, "a.parquet": "unreadable"}.items():
        model = runs / ("chunk" if name == "a.conll" else "sst2")
        rows = electra.predict(model=str(model), input=tmp_path / name)
        assert [next(rows)["id"] for _ in range(512)] == [str(i) for i in range(512)], name
        with raises(DataError, code, tmp_path / name):
            list(rows)


def test_every_prediction_has_the_id_of_its_row(runs: Path, tmp_path: Path) -> None:
    """The id is the column id, idx or index, or else the number of the row in the file."""
    (tmp_path / "a.csv").write_text("idx,sentence\nx7,the cat\nx8,the dog\n")
    (tmp_path / "b.csv").write_text("sentence\n" + "the cat\n" * 600)
    write_jsonl(tmp_path / "a.jsonl", [{"words": ["the"], "id": 5}, {"words": ["the"], "index": "b"}, {"words": ["a"]}])
    question = {"question": "likes very", "context": "the owl likes milk ."}
    write_jsonl(tmp_path / "q.jsonl", [question, {**question, "id": "q9"}])
    (tmp_path / "q.csv").write_text("index,question,context\n4,likes very,the owl likes milk .\n")
    for model, file, ids in (
        ("sst2", "a.csv", ["x7", "x8"]),
        ("sst2", "b.csv", [str(i) for i in range(600)]),
        ("chunk", "a.jsonl", ["5", "b", "2"]),
        ("joint", "q.jsonl", ["0", "q9"]),
        ("joint", "q.csv", ["4"]),
    ):
        predictions = electra.predict(model=str(runs / model), input=tmp_path / file)
        assert [row["id"] for row in predictions] == ids, file


@pytest.mark.parametrize(
    ("name", "line", "values"),
    [
        ("sst2", "the cat", [" text ", " tab "]),
        ("chunk", "the cat", [" words "]),
        ("joint", '{"question": "likes", "context": "the owl"}', [" JSON ", " question ", " context "]),
    ],
    ids=["sst2", "chunk", "joint"],
)
def test_format_of_standard_input_is_logged(
    runs: Path, monkeypatch, capsys, caplog: pytest.LogCaptureFixture, name: str, line: str, values: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(line + "\n"))
    cli.main(["predict", "--model", str(runs / name / "seed-0" / "model"), "--input", "-", "--runtime.device", "cpu"])
    assert [record.code for record in caplog.records] == ["reading-stdin", "coverage"]
    (description,) = notices(caplog, "reading-stdin")
    assert all(value in description for value in values)
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [f"· {record.getMessage()}" for record in caplog.records]
    assert json.loads(printed.out)["id"] == "0"


def test_runtime_options(runs: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a.txt").write_text("the cat\n")
    used = []
    start = predict.start_runtime
    monkeypatch.setattr(predict, "start_runtime", lambda config: used.append(config) or start(config))
    model, config = str(runs / "sst2"), PredictRuntimeConfig(precision="bfloat16", threads=1)
    for given in (
        {"runtime": config},
        {"runtime": {"precision": "bfloat16", "threads": 1}},
        {"runtime.precision": "bfloat16", "runtime.threads": 1},
    ):
        list(electra.predict(model, tmp_path / "a.txt", **given))
    words = ["--runtime.precision", "bfloat16", "--runtime.threads", "1", "--out", str(tmp_path / "out.jsonl")]
    cli.main(["predict", "--model", model, "--input", str(tmp_path / "a.txt"), *words])
    assert used == [config] * 4
    with raises(UsageError, "unknown-option", "--thread;", "--runtime.threads"):
        electra.predict(model, tmp_path / "a.txt", thread=1)


@pytest.mark.parametrize(
    ("place", "content", "code", "values"),
    [
        ("a.jsonl:1", b"{\n", "not-json", []),
        ("a.jsonl:1", b"[]\n", "wrong-type", ["JSON object"]),
        ("a.jsonl:1", b'{"sentence": 5}\n', "wrong-type", ["'sentence'"]),
        ("a.jsonl:1", b'{"sentence": null}\n', "wrong-type", ["'sentence'"]),
        ("a.csv:3", b"sentence\nthe cat\nthe dog,bad\n", "bad-row", [2]),
        ("a.txt:1", b"\xff\n", "not-utf8", []),
        ("a.csv:2", b"x\ny\n", "missing-field", ["'sentence'", " x "]),
    ],
)
def test_invalid_inputs_are_rejected(
    runs: Path, tmp_path: Path, place: str, content: bytes, code: str, values: list[object]
) -> None:
    file = tmp_path / place.split(":")[0]
    file.write_bytes(content)
    with raises(DataError, code, tmp_path / place, *values) as raised:
        list(electra.predict(model=str(runs / "sst2"), input=file))
    assert "--skip-bad-rows" not in str(raised.value), "an option of fine-tuning only"


def test_invalid_models_and_files_are_rejected(runs: Path, tmp_path: Path) -> None:
    with raises(ModelError, "not-finetuned", runs / "model", "ElectraForPreTraining"):
        list(electra.predict(model=str(runs / "model"), input=Path("-")))
    with raises(DataError, "missing", tmp_path / "nosuch", os.strerror(errno.ENOENT)):
        list(electra.predict(model=str(runs / "sst2"), input=tmp_path / "nosuch"))


def test_columns_of_a_table_are_saved(runs: Path, tmp_path: Path) -> None:
    rows = [{"review": "the cat is good", "y": "kind"}, {"review": "the dog is bad", "y": "rude"}] * 8
    train = write_jsonl(tmp_path / "a.jsonl", rows)
    given = settings(runs / "model", "table", train=str(train), text="review", label="y", epochs=1.0)
    finetune(given, tmp_path / "out")
    assert len(list(electra.predict(str(tmp_path / "out"), train))) == 16


@pytest.mark.parametrize(
    ("content", "code", "level", "share"),
    [
        ("the cat is good .\nthe dog is bad .\n", "coverage", logging.INFO, " 0.0% "),
        ("고양이 좋다 .\n" * 600, "unknown-tokens", logging.WARNING, " 66.7% "),
    ],
    ids=["none", "most"],
)
def test_unknown_tokens_are_reported(
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    caplog: pytest.LogCaptureFixture,
    content: str,
    code: str,
    level: int,
    share: str,
) -> None:
    (tmp_path / "a.txt").write_text(content)
    cli.main(["predict", "--model", str(runs / "sst2"), "--input", str(tmp_path / "a.txt")])
    (line,) = notices(caplog, code)
    (record,) = (record for record in caplog.records if record.getMessage() == line)
    assert record.levelno == level
    assert share in line
    assert (VOCABULARY_ADVICE in line) == (level == logging.WARNING)
    captured = capsys.readouterr()
    assert line not in captured.out
    assert captured.err.count(line) == 1


@pytest.mark.slow
def test_memory_is_constant_in_the_length_of_the_input(runs: Path, tmp_path: Path) -> None:
    """The number of lines that are encoded at a time depends on their length: 512 long lines would need too much memory."""
    for number in (25, 150):
        write_jsonl(tmp_path / f"{number}.jsonl", [{"sentence": "the cat likes milk . " * 2000}] * number)
    code = (
        "import pathlib, resource, sys, electra; from electra.inference import predict\n"
        "predict.INPUT_CHARS = 1 << 16\n"
        "for path in sys.argv[2:]:\n"
        "    rows = sum(1 for _ in electra.predict(sys.argv[1], pathlib.Path(path)))\n"
        "    print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    paths = [str(tmp_path / f"{number}.jsonl") for number in (25, 150)]
    done = subprocess.run(
        [sys.executable, "-c", code, str(runs / "sst2"), *paths], capture_output=True, text=True, check=True
    )
    (few, before), (many, after) = [map(int, line.split()) for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert (few, many) == (25, 150)
    assert after - before < 30_000, "kilobytes; the longer file has 5,250 more"
