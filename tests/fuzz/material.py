"""Valid files that cases change: text, a tokenizer, data, runs, fine-tuned models, fine-tuning data, inputs to predict."""

import gzip
import json
import os
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from support import toy, toy_tasks

import electra

SIZES = ["--model.vocab-size", "120", "--model.embedding-size", "8", "--model.hidden-size", "16", "--model.num-layers", "2", "--model.num-heads", "2", "--model.ffn-size", "32", "--model.max-positions", "32"]  # fmt: skip
RUN = ["--preset", "tiny", "--steps", "4", "--seq-len", "24", "--workers", "1", "--training.batch-size", "8",
       "--training.checkpoint-every", "2", "--training.log-every", "1", "--runtime.threads", "1", *SIZES]  # fmt: skip
LABELED = ["--text", "text", "--label", "label"]
EPOCH = ["--epochs", "1", "--batch-size", "8", "--runtime.threads", "1"]
TEXTS = [f"a{ending}{packed}" for ending in (".txt", ".jsonl", ".parquet") for packed in ("", ".gz", ".zst")]
TABLES = ["table.csv", "table.tsv", "table.jsonl", "table.parquet"]


def make_material(base: Path) -> None:
    """Write all files to a folder."""
    base.mkdir(parents=True)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        make_text(base / "text")
        make_tables(base)
        make_runs(base)


def make_text(folder: Path) -> None:
    """Write the same documents in every format and compression."""
    folder.mkdir()
    documents = toy.sentences(40).split("\n\n")
    (folder / "a.txt").write_text("\n\n".join(documents))
    (folder / "a.jsonl").write_text(
        "".join(json.dumps({"text": text, "n": i}) + "\n" for i, text in enumerate(documents))
    )
    pq.write_table(pa.table({"text": documents, "n": range(len(documents))}), folder / "a.parquet")
    for ending in (".txt", ".jsonl", ".parquet"):
        data = (folder / f"a{ending}").read_bytes()
        (folder / f"a{ending}.gz").write_bytes(gzip.compress(data))
        (folder / f"a{ending}.zst").write_bytes(zstandard.ZstdCompressor().compress(data))


def make_tables(base: Path) -> None:
    """Write fine-tuning data: a table in every format, tagged words, questions, GLUE."""
    texts = ["the cat is good .", "the dog is bad .", "a fox, very fine .", "an owl is awful ."] * 6
    labels = ["yes", "no"] * 12
    rows = [{"id": i, "text": text, "label": label} for i, (text, label) in enumerate(zip(texts, labels, strict=True))]
    toy_tasks.write_jsonl(base / "table.jsonl", rows)
    (base / "table.csv").write_text(
        "id,text,label\n" + "".join(f'{i},"{t}",{y}\n' for i, (t, y) in enumerate(zip(texts, labels, strict=True)))
    )
    (base / "table.tsv").write_text(
        "id\ttext\tlabel\n" + "".join(f"{i}\t{t}\t{y}\n" for i, (t, y) in enumerate(zip(texts, labels, strict=True)))
    )
    pq.write_table(pa.Table.from_pylist(rows), base / "table.parquet")
    toy_tasks.write_conll(base / "tags.conll", 12, 0)
    toy_tasks.write_jsonl(
        base / "tags.jsonl", [{"words": ["the", "cat"], "tags": ["O", "B-A"]}, {"words": ["a"], "tags": ["O"]}] * 5
    )
    toy_tasks.write_questions(base / "squad.json", 8, 0)
    (base / "squad.json.gz").write_bytes(gzip.compress((base / "squad.json").read_bytes()))
    toy_tasks.write_jsonl(
        base / "questions.jsonl", [{"id": "a", "question": "likes very", "context": "the cat likes milk ."}] * 3
    )
    toy_tasks.write_jsonl(
        base / "pairs.jsonl",
        [{"sentence_good": "the cat is good .", "sentence_bad": "the good is cat .", "UID": "order"}],
    )
    (base / "lines.txt").write_text("the cat is good .\nthe dog\n")
    toy_tasks.write_glue(base / "glue", 16)


def make_runs(base: Path) -> None:
    """Run commands to get a finished run, an interrupted one, and a fine-tuned model of every kind."""
    text = str(base / "text" / "a.txt")
    commands = [
        ["tokenizer", text, "--out", "tokenizer", "--vocab-size", "120"],
        ["prepare", text, "--tokenizer", "tokenizer", "--out", "data", "--seq-len", "24", "--workers", "1"],
        ["pretrain", text, "--out", "run", *RUN],
        ["finetune", "table", "--model", str(base / "run"), "--train", str(base / "table.csv"), *LABELED, "--out", "table", *EPOCH],
        ["finetune", "tagging", "--model", "run", "--train", "tags.conll", "--out", "tagging", *EPOCH],
        ["finetune", "squad1", "--model", "run", "--train", "squad.json", "--dev", "squad.json", "--out", "squad", *EPOCH],
        ["finetune", "squad1", "--model", "run", "--train", "squad.json", "--dev", "squad.json", "--out", "plain",
         "--span.head", "plain", *EPOCH],
    ]  # fmt: skip
    before = Path.cwd()
    os.chdir(base)
    for words in commands:
        electra.cli.main(words)
    os.chdir(before)
    stopped = shutil.copytree(base / "run", base / "stopped")
    for path in (stopped / "summary.json", stopped / "report.html", max((stopped / "checkpoints").glob("step-*"))):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
