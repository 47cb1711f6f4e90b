"""What is counted is reported, so that a run that is not what it seems does not look healthy."""

import json
import random
from pathlib import Path

import pytest

import electra
from electra import cli
from electra.data.shards import PreparedData


def korean(number: int) -> str:
    """Documents in words of Korean syllables."""
    draw = random.Random(0)
    words = ["".join(chr(draw.randrange(0xAC00, 0xD7A4)) for _ in range(3)) for _ in range(40)]
    return "\n\n".join(" ".join([*draw.choices(words, k=12), "the", "."]) for _ in range(number)) + "\n"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Text that the vocabulary of the toy language cannot spell."""
    path = tmp_path / "korean.txt"
    path.write_text(korean(80), "utf-8")
    return path


@pytest.mark.slow
def test_text_that_the_vocabulary_does_not_cover_is_not_healthy(
    finished: Path, foreign: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture
) -> None:
    run, tokenizer = tmp_path / "run", str(finished / "tokenizer")
    summary = electra.pretrain(str(foreign), out=str(run), tokenizer=tokenizer, **tiny_run)
    line = f"! {foreign}: 85.7% of the tokens are [UNK], 0.0% of the words are split into single characters: the vocabulary"
    assert line in capsys.readouterr().out
    assert "the vocabulary does not fit the text" in [each["problem"] for each in summary["findings"]]
    heldout = summary["heldout"]
    assert heldout["generator_accuracy_without_unk"] < heldout["generator_accuracy"]
    report = (run / "report.html").read_text()
    assert "<b>the vocabulary does not fit the text</b> (from the start)" in report
    assert "where the original is not [UNK]" in report
    cli.main(["evaluate", str(run)])
    assert "not [UNK]" in capsys.readouterr().out


def test_text_that_the_vocabulary_covers_is_healthy(finished: Path, capsys: pytest.CaptureFixture) -> None:
    data = PreparedData.open(finished / "data")
    assert data.manifest.coverage is not None
    assert data.manifest.coverage.unknown == data.unigrams[1] == 0
    summary = json.loads((finished / "summary.json").read_text())
    assert "generator_accuracy_without_unk" not in summary["heldout"]
    assert "the vocabulary does not fit the text" not in [each["problem"] for each in summary["findings"]]


@pytest.mark.slow
def test_prepare_and_prepared_data_report_coverage(
    finished: Path, foreign: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture
) -> None:
    data = str(tmp_path / "data")
    electra.prepare(str(foreign), tokenizer=str(finished / "tokenizer"), out=data, seq_len=24, workers=1)
    assert f"! {foreign}: 85.7% of the tokens are [UNK]" in capsys.readouterr().out
    electra.pretrain(data=data, out=str(tmp_path / "run"), objective="mlm", **tiny_run)
    assert f"! {data}: 85.7% of the tokens are [UNK]" in capsys.readouterr().out
    metrics = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert all("mlm_accuracy_without_unk" in row for row in metrics)


def test_the_length_of_pretraining_is_in_the_model(finished: Path) -> None:
    for network in ("discriminator", "generator"):
        assert json.loads((finished / network / "config.json").read_text())["pretrained_length"] == 24


def test_the_report_begins_with_the_sizes_and_the_data(finished: Path) -> None:
    """They were overridden: the preset alone would name others."""
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
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    novel = tmp_path / "novel.txt"
    novel.write_text("\n\n".join(["the cat sees mice . the dog hunts birds . " * 3] * 40))
    articles = tmp_path / "articles.txt"
    articles.write_text("\n\n".join(["the cat sees mice . the dog hunts birds . " * 12] * 10))
    hint = "in .txt files a blank line ends a document: if blank lines are between the paragraphs of one text, prepare with --documents file"
    for source, options, count, short in (
        (novel, {}, "40 documents, ", True),
        (novel, {"documents": "file"}, "1 document, ", False),
        (articles, {}, "10 documents, ", False),
    ):
        out = str(tmp_path / f"data-{source.stem}-{len(options)}")
        electra.prepare(str(source), tokenizer=str(finished / "tokenizer"), out=out, seq_len=24, workers=1, **options)
        printed = capsys.readouterr().out
        assert f"· {count}" in printed
        assert (hint in printed) == short
