"""Unusual external input: special files, large or unsafe YAML, invalid values of options, names with control characters."""

import gzip
import io
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from rich.table import Table
from support.errors import check_error, fails, raises

import electra
from electra import cli, console
from electra.config.files import MAX_BYTES, load_yaml
from electra.errors import DataError, TextError, UsageError
from electra.external import decode_json, escape_unprintable, refuse_special_file
from electra.finetuning.qa import data
from electra.finetuning.qa.data import read_mrqa, read_squad
from electra.finetuning.readers import inputs
from electra.finetuning.readers.tables import read_table, stream_rows
from electra.finetuning.tagging.data import read_sentences, stream_sentences
from electra.text import files
from electra.text.formats import ReadOptions, read_parquet

READERS_OF_DATA = (read_table, stream_rows, read_squad, read_mrqa, read_sentences, stream_sentences)
LEVELS = "abcdefghijklmno"
BOMB = 'a: &a ["x", "x"]\n' + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise(LEVELS))
ONE_LINE_BOMB = "{" + BOMB.strip().replace("\n", ", ") + "}"


@pytest.mark.parametrize(
    ("content", "code", "values"),
    [
        (BOMB, "yaml-alias", ["line 2", "*a"]),
        ("seed: " + yaml.safe_dump(ONE_LINE_BOMB, width=10**9), "wrong-type", ["--seed", "int", "{a: &a "]),
        ("preset: " + yaml.safe_dump(ONE_LINE_BOMB, width=10**9), "unknown-choice", ["preset", "tiny, nano, ", "{a: &a "]),
        ("a: " + "[" * 30_000, "too-deep", ["line 1", " 20 "]),
        ("a: " + "{b: " * 30_000, "too-deep", ["line 1", " 20 "]),
        ("steps: " + "9" * 5000, "too-many-digits", ["line 1", "5,000"]),
        ("steps: 1" + ":59" * 5000, "too-many-digits", ["line 1", "15,001"]),
        ("steps: " + "9" * 30, "out-of-range", ["--steps", "9,007,199,254,740,992"]),
        ("hours: .inf", "not-finite", ["--hours", "inf"]),
        ("3: 4", "name-not-text", ["line 1", "'3'"]),
        ("seed: 1\nyes: 4", "name-not-text", ["line 2", "'yes'"]),
        ("model: {1.5: 4}", "name-not-text", ["'1.5'"]),
        ("seed: 1\nseed: 2", "repeated-name", ["line 2", "'seed'"]),
        ("? [a, b]\n: c", "name-not-text", ["line 1"]),
        ("steps: {a: 1}", "wrong-type", ["--steps", "int or null"]),
        ("steps: 0x_", "not-yaml", []),
        ("steps: 2001-99-99", "wrong-type", ["--steps", "int or null", "2001-99-99"]),
        ("<<: 5", "special-value", ["'<<'"]),
        ('preset: "\\ud800"', "half-surrogate", ["line 1"]),
        ('preset: "a\\0b"', "nul-character", ["line 1"]),
        ("x" * (MAX_BYTES + 1), "too-large", ["2,097,152"]),
        ("\x1b[31m", "not-yaml", []),
        ("seed: 1:2:3:4", "base-60", ["line 1", "1:2:3:4"]),
        ("model: canary.Class", "option-group", ["--model ", "--model.vocab-size"]),
        ("model: {class_path: canary.Class}", "unknown-option", ["--model.class-path"]),
        ("model.class_path: canary.Class", "unknown-option", ["--model.class-path"]),
        ('x: !!python/object/apply:os.mkdir ["executed"]', "yaml-tag", ["line 1", "tag:yaml.org,2002:python/object/apply:os.mkdir"]),
    ],
)  # fmt: skip
def test_invalid_yaml_is_rejected(
    content: str, code: str, values: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "canary.py").write_text("import os\nos.mkdir('executed')\nclass Class: pass\n")
    (tmp_path / "c.yaml").write_text(content)
    error = fails(["pretrain", "a", "--out", "r", "--config", "c.yaml"], code, *values)
    assert str(error).startswith("c.yaml: ") or "preset" in values
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.yaml", "canary.py"]


def test_saved_configurations_are_plain_yaml(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("text: [2001-01-01, 'a b', '*x']\nseed: 0x10\nmodel:\n  dropout: 0.5\n")
    assert load_yaml(tmp_path / "c.yaml") == {
        "text": ["2001-01-01", "a b", "*x"],
        "seed": 16,
        "model": {"dropout": 0.5},
    }


@pytest.mark.parametrize(
    ("words", "code", "values"),
    [
        (["--seed", ONE_LINE_BOMB], "wrong-type", ["--seed", "int", "{a: &a "]),
        ([f"--hours={ONE_LINE_BOMB}"], "wrong-type", ["--hours", "float or null", "{a: &a "]),
        (["--preset", ONE_LINE_BOMB], "unknown-choice", ["--preset", "tiny, nano, ", "{a: &a "]),
        (["--documents", ONE_LINE_BOMB], "unknown-choice", ["--documents", "blank-line, file or line", "{a: &a "]),
        (["--optimizer.learning-rate", "!!timestamp x"], "wrong-type", ["--optimizer.learning-rate", "float", "!!timestamp x"]),
        (["--optimizer.learning-rate", "1e400"], "not-finite", ["--optimizer.learning-rate", "inf"]),
        (["--seed", "9" * 5000], "wrong-type", ["--seed", "int", "999"]),
        (["--seed", "9" * 30], "out-of-range", ["--seed", "9,007,199,254,740,992"]),
        (["--seed", "[" * 5000], "wrong-type", ["--seed", "int", "[[["]),
        (["--text-field", "\udcff"], "not-utf8", ["--text-field", r"\udcff"]),
        (["--model", "canary.Class"], "option-group", ["--model ", "--model.vocab-size"]),
        (["--model=canary.Class"], "option-group", ["--model ", "--model.vocab-size"]),
        (["--model", "/dev/zero"], "option-group", ["--model ", "--model.vocab-size"]),
        (["--config", "/dev/zero"], "special-file", ["/dev/zero"]),
    ],
)  # fmt: skip
def test_invalid_values_of_options_are_rejected(words: list[str], code: str, values: list[str]) -> None:
    error = fails(["pretrain", "a", "--out", "r", *words], code, *values)
    assert len(str(error)) < 2100


COMMANDS = {
    "pretrain": ["a.txt"],
    "tokenizer": ["a.txt"],
    "prepare": ["a.txt", "--tokenizer", "t"],
    "finetune": ["sst2", "--model", "m"],
    "glue": ["--model", "m", "--data", "d"],
    "predict": ["--model", "m", "--input", "a.txt"],
    "study": ["objectives", "--data", "a.txt"],
}


@pytest.mark.parametrize("out", ["", " ", "\t"])
@pytest.mark.parametrize("command", COMMANDS)
def test_blank_output_is_rejected(command: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell variable that is not set gives an empty path, which would be the current folder."""
    monkeypatch.chdir(tmp_path)
    fails([command, *COMMANDS[command], "--out", out], "empty-option", "--out")
    assert not any(tmp_path.iterdir())


def test_empty_task_is_rejected() -> None:
    fails(
        ["finetune", "", "--model", "m", "--data", "d", "--out", "o"],
        "unknown-choice",
        "TASK: ",
        "cola, sst2",
        "an empty text",
    )
    with raises(UsageError, "missing-task", "cola, sst2"):
        electra.finetune("", model="m", data="d", out="o")


@pytest.mark.parametrize("out", [".", "..", "/dev/null", "folder", "pipe"])
def test_predictions_replace_regular_files_only(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    fails(["predict", "--model", "m", "--input", "a.txt", "--out", out], "not-regular-file", f"--out {out}: ")


def test_empty_output_is_rejected_in_python() -> None:
    for call in (
        lambda: electra.pretrain("a", out=""),
        lambda: electra.finetune("sst2", model="m", out=""),
        lambda: electra.tokenizer("a", out=""),
        lambda: list(electra.predict("m", "a", out="")),
    ):
        with raises(UsageError, "empty-option", "--out"):
            call()


def test_special_files_are_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name, kind in {"pipe": "named pipe", "link": "named pipe", "socket": "socket"}.items():
        with raises(DataError, "special-file", f"{tmp_path / name}: ", kind):
            refuse_special_file(tmp_path / name, DataError)
    with raises(DataError, "special-file", "/dev/null: ", "device"):
        refuse_special_file(Path("/dev/null"), DataError)
    refuse_special_file(tmp_path, DataError)
    refuse_special_file(tmp_path / "nowhere", DataError)


@pytest.mark.parametrize(
    ("text", "code", "values"),
    [
        ("{", "not-json", ["column 2"]),
        ("[\n]]", "not-json", ["line 2, column 2"]),
        ("[" * 100_000, "too-deep", []),
        ("9" * 5000, "too-many-digits", ["4,300"]),
        (r'{"a": ["\ud800"]}', "half-surrogate", []),
        (rb'{"\uDFFF": 1}', "half-surrogate", []),
        (b'"\xff"', "not-utf8", ["byte 1"]),
    ],
)  # fmt: skip
def test_invalid_json_is_rejected(text: str | bytes, code: str, values: list[str]) -> None:
    with raises(TextError, code, "x:1: ", *values):
        decode_json(text, "x:1", TextError)


def test_valid_json_is_parsed() -> None:
    assert decode_json(r'"\ud83d\ude00"', "", TextError) == "\U0001f600"
    assert decode_json(r'"\ud83d"', "", TextError, half_surrogates=True) == "\ud83d"


DIFFICULT_TEXT = "a\nb\x1b[31mc\x9bd\u202ee\u2028f\udcffg[bold]h[/x]"
DIFFICULT_PATH = "a\nb\x1b[31m.txt"
SHOWN = r"a\nb\x1b[31mc\x9bd\u202ee\u2028f\udcffg[bold]h[/x]"


def test_names_are_printed_escaped(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert escape_unprintable(DIFFICULT_TEXT) == SHOWN
    monkeypatch.setattr(
        logging.getLogger("electra"), "propagate", False
    )  # pytest-xdist cannot send half a surrogate pair
    log = logging.getLogger("electra.test")
    log.info(f"{DIFFICULT_TEXT} ({DIFFICULT_TEXT})")
    log.warning(DIFFICULT_TEXT)
    console.console.print(DIFFICULT_TEXT, markup=False)
    grid = Table(box=None)
    grid.add_column("x", no_wrap=True)
    grid.add_row("a\x1b[31mb")
    console.console.print(grid)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"· {SHOWN} ({SHOWN})", f"! {SHOWN}", SHOWN]
    assert lines[-1].strip() == r"a\x1b["  # rich has measured the text before


def test_progress_bars_are_printed_escaped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    terminal = console.Terminal(force_terminal=True, width=200, color_system=None, legacy_windows=False)
    monkeypatch.setattr(console, "console", terminal)
    with console.training_progress() as progress:
        progress.add_task("a\x1b[31mb", total=1, detail="c\x9bd")
    out = capsys.readouterr().out
    assert r"a\x1b[" in out
    assert "a\x1b" not in out
    assert "\x9b" not in out


@pytest.mark.parametrize("words", [["tokenizer", DIFFICULT_PATH, "--out", "r"], ["evaluate", DIFFICULT_PATH]])
def test_names_in_errors_are_printed_escaped(words: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        cli.main(words)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(r"electra: error: a\nb\x1b[31m.txt: ")
    assert line.isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_another_encoding(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "\u732b.txt").write_text("the cat sees the dog .\n" * 20)
    words = ["tokenizer", f"{tmp_path}/\u732b.txt", "--out", f"{tmp_path}/t", "--vocab-size", "64"]
    done = subprocess.run(
        [sys.executable, "-m", "electra", *words],
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        text=True,
        encoding=encoding,
    )
    assert done.returncode == 0, done.stderr
    assert r"\u732b.txt" in done.stdout


@pytest.mark.parametrize("command", ["tokenizer", "prepare", "pretrain"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet", "a.txt.gz", "a.parquet.zst", "folder/a.txt"])
def test_named_pipes_among_text_are_rejected(name: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    words = {"prepare": ["--tokenizer", tmp_path]}.get(command, [])
    source = path.parent if "/" in name else path
    fails([command, source, "--out", tmp_path / "out", *words], "special-file", f"{path}: ", "named pipe")


def test_devices_among_text_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.symlink_to("/dev/zero")
    fails(["tokenizer", file, "--out", tmp_path / "out"], "special-file", f"{file}: ", "device")


def test_empty_names_among_text_are_rejected(tmp_path: Path) -> None:
    fails(["tokenizer", "", "--out", tmp_path / "out"], "empty-name")


@pytest.mark.parametrize("read", READERS_OF_DATA, ids=lambda read: read.__name__)
def test_named_pipes_among_data_are_rejected(read: Callable, tmp_path: Path) -> None:
    """A reader rejects a pipe, or the format that the name of the pipe stands for."""
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.parquet.gz", "a.json", "a.json.gz", "a.conll"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError) as raised:
            list(read(tmp_path / name))
        assert raised.value.code in ("special-file", "unknown-format")
        check_error(raised.value, DataError, raised.value.code, tmp_path / name)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_decompressed_size_is_limited(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[ending]
    pq.write_table(pa.table({"text": ["a b c"] * 3}), tmp_path / "a.parquet")
    packed = tmp_path / f"a.parquet{ending}"
    packed.write_bytes(pack((tmp_path / "a.parquet").read_bytes()))
    assert [piece.lines for piece in read_parquet(packed, ReadOptions())] == [["a b c"]] * 3
    assert read_table(packed).get_column("text") == ["a b c"] * 3
    monkeypatch.setattr(files, "MAX_UNPACKED_BYTES", 3_000_000)
    packed.write_bytes(pack(bytes(4_000_000)))
    with raises(TextError, "too-large", f"{packed}: "):
        list(read_parquet(packed, ReadOptions()))
    with raises(DataError, "too-large", f"{packed}: "):
        read_table(packed)
    monkeypatch.setattr(data, "MAX_DOCUMENT_BYTES", 3_000_000)
    (tmp_path / f"a.json{ending}").write_bytes(pack(b" " * 4_000_000))
    with raises(DataError, "too-large", f"a.json{ending}: ", "3 MB"):
        read_squad(tmp_path / f"a.json{ending}")


def test_columns_of_the_same_name_are_rejected(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("text,x,text\na,b,c\n")
    (tmp_path / "b.csv").write_text("text,,\na,b,c\n")
    for name in ("a.parquet", "a.csv"):
        with raises(DataError, "repeated-column", f"{name}: ", "'text'"):
            read_table(tmp_path / name)
        with raises(DataError, "repeated-column", f"{name}: ", "'text'"):
            next(stream_rows(tmp_path / name))
    assert read_table(tmp_path / "b.csv").get_column("text") == ["a"]
    words = ["tokenizer", tmp_path / "a.parquet", "--out", tmp_path / "t"]
    fails(words, "repeated-column", f"{tmp_path / 'a.parquet'}: ", "'text'")


@pytest.mark.parametrize("content", [b"\0" * 1000, b"\0\x01\x7f\n" * 100, "\u200b\n".encode() * 100])
def test_text_of_control_characters_is_rejected(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    words = ["tokenizer", tmp_path / "a.txt", "--out", tmp_path / "t", "--vocab-size", "64"]
    fails(words, "only-control-characters", tmp_path / "a.txt")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (r'{"text": "\ud800", "label": "a"}', "half-surrogate"),
        (r'{"text": "a", "\udc00": "a"}', "half-surrogate"),
        ('{"text": "a", "label": %s}' % ("9" * 5000), "too-many-digits"),
        ('{"text": "a", "label": %s}' % ("[" * 50_000), "too-deep"),
    ],
)  # fmt: skip
def test_invalid_records_are_rejected(record: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "words": ["a"]}\n' + record + "\n")
    for read in (read_table, lambda path: list(stream_rows(path)), read_sentences):
        with raises(DataError, code, "a.jsonl:2: "):
            read(tmp_path / "a.jsonl")


def test_invalid_standard_input_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_LINE_BYTES", 10)
    monkeypatch.setattr("sys.stdin", io.StringIO("123456789\n" + "x" * 11))
    found = inputs.read_lines("-", "a text in each")
    assert next(found) == ("standard input, line 1", "123456789")
    with raises(DataError, "too-long", "standard input, line 2: ", " 10 "):
        next(found)
    monkeypatch.setattr("sys.stdin", io.StringIO("\udcff\n"))
    with raises(DataError, "not-utf8", "standard input, line 1: "):
        next(inputs.read_lines("-", "a text in each"))
