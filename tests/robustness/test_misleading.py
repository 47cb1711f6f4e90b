"""Warnings and reports about data that does not fit: unknown tokens, short documents."""

import json
import logging
import random
import re
from pathlib import Path

import pytest
from support.errors import notices

import electra
from electra import cli
from electra.data.shards import PreparedData


def korean(number: int) -> str:
    """Documents in words of Korean syllables."""
    draw = random.Random(0)
    words = ["".join(chr(draw.randrange(0xAC00, 0xD7A4)) for _ in range(3)) for _ in range(40)]
    return "\n\n".join(" ".join([*draw.choices(words, k=12), "the", "."]) for _ in range(number)) + "\n"


def check_unknown_tokens(caplog: pytest.LogCaptureFixture, source: Path) -> None:
    """Check that the only record about unknown tokens is a warning that names the source and its two shares."""
    (record,) = (record for record in caplog.records if getattr(record, "code", None) == "unknown-tokens")
    assert record.levelno == logging.WARNING
    message = record.getMessage()
    assert message.startswith(f"{source}: ")
    assert re.findall(r"[\d.]+%", message)[:2] == ["85.7%", "0.0%"]


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A file of text with characters that the vocabulary of the toy language does not have."""
    path = tmp_path / "korean.txt"
    path.write_text(korean(80), "utf-8")
    return path


@pytest.mark.slow
def test_unknown_tokens_are_reported_as_a_problem(
    finished: Path,
    foreign: Path,
    tmp_path: Path,
    tiny_run: dict,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture,
) -> None:
    run, tokenizer = tmp_path / "run", str(finished / "tokenizer")
    summary = electra.pretrain(str(foreign), out=str(run), tokenizer=tokenizer, **tiny_run)
    check_unknown_tokens(caplog, foreign)
    (finding,) = (each for each in summary["findings"] if each["step"] == 0)
    assert "85.7%" in finding["advice"]
    assert "[UNK]" in finding["advice"]
    heldout = summary["heldout"]
    assert heldout["generator_accuracy_without_unk"] < heldout["generator_accuracy"]
    report = (run / "report.html").read_text()
    assert f"<b>{finding['problem']}</b>" in report
    assert "not [UNK]" in report, "the label of the accuracy without unknown tokens"
    cli.main(["evaluate", str(run)])
    assert "not [UNK]" in capsys.readouterr().out


def test_text_without_unknown_tokens_has_no_such_problem(finished: Path) -> None:
    data = PreparedData.open(finished / "data")
    assert data.manifest.coverage is not None
    assert data.manifest.coverage.unknown == data.unigrams[1] == 0
    summary = json.loads((finished / "summary.json").read_text())
    assert "generator_accuracy_without_unk" not in summary["heldout"]
    assert all(each["step"] > 0 for each in summary["findings"])


@pytest.mark.slow
def test_prepare_and_prepared_data_report_coverage(
    finished: Path, foreign: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    electra.prepare(str(foreign), tokenizer=str(finished / "tokenizer"), out=str(data), seq_len=24, workers=1)
    check_unknown_tokens(caplog, foreign)
    caplog.clear()
    electra.pretrain(data=str(data), out=str(tmp_path / "run"), objective="mlm", **tiny_run)
    check_unknown_tokens(caplog, data)
    metrics = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert all("mlm_accuracy_without_unk" in row for row in metrics)


def test_the_sequence_length_of_pretraining_is_saved_with_the_model(finished: Path) -> None:
    for network in ("discriminator", "generator"):
        assert json.loads((finished / network / "config.json").read_text())["pretrained_length"] == 24


def test_the_report_begins_with_the_sizes_and_the_data(finished: Path) -> None:
    """The sizes in the report are those of the model, not those of the preset."""
    head, _ = (finished / "report.html").read_text().split("<h2>Held-out text</h2>")
    assert "<h1>electra, 2 x 16: finished</h1>" in head
    vocabulary = len((finished / "tokenizer/vocab.txt").read_text().splitlines())
    documents = PreparedData.open(finished / "data").manifest.documents
    assert documents == 200
    for row in (
        f"<td>data<td>{documents} documents, ",
        f"<td>vocabulary<td>{vocabulary} tokens; 0.0% of the tokens are [UNK], ",
        "<td>encoder<td>2 layers, width 16, 2 heads, feed-forward 32, embeddings of 8",
        "<td>generator<td>2 layers, width 8, 1 head, feed-forward 16, embeddings of 8",
        "<td>options start from<td>preset tiny",
    ):
        assert row in head
    assert head.count("tiny") == 1


def test_documents_are_counted_and_short_ones_reported(
    finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    novel = tmp_path / "novel.txt"
    novel.write_text("\n\n".join(["the cat sees mice . the dog hunts birds . " * 3] * 40))
    articles = tmp_path / "articles.txt"
    articles.write_text("\n\n".join(["the cat sees mice . the dog hunts birds . " * 12] * 10))
    for source, options, number, short in (
        (novel, {}, 40, True),
        (novel, {"documents": "file"}, 1, False),
        (articles, {}, 10, False),
    ):
        caplog.clear()
        out = str(tmp_path / f"data-{source.stem}-{len(options)}")
        electra.prepare(str(source), tokenizer=str(finished / "tokenizer"), out=out, seq_len=24, workers=1, **options)
        (notice,) = notices(caplog, "examples")
        assert notice.startswith(f"{number} ")
        hints = notices(caplog, "short-documents")
        assert len(hints) == short
        assert all("--documents file" in hint for hint in hints)
