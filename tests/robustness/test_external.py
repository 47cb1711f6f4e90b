"""Input from outside that is no data: special files, YAML that grows, values no option can have, names with escapes."""

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
from support.command_line import error

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
    ("content", "message"),
    [
        (BOMB, "line 2 has an alias (*a); write out its value"),
        ("seed: " + yaml.safe_dump(ONE_LINE_BOMB, width=10**9), "--seed: expected int, got {a: &a "),
        ("preset: " + yaml.safe_dump(ONE_LINE_BOMB, width=10**9), "preset: expected tiny, small, "),
        ("a: " + "[" * 30_000, "line 1 has values nested more than 20 deep"),
        ("a: " + "{b: " * 30_000, "line 1 has values nested more than 20 deep"),
        ("steps: " + "9" * 5000, "line 1 has a number of 5,000 characters"),
        ("steps: 1" + ":59" * 5000, "line 1 has a number of 15,001 characters"),
        ("steps: " + "9" * 30, "--steps: expected a number of at most 9,007,199,254,740,992 (2^53)"),
        ("hours: .inf", "--hours: expected a finite number, got inf"),
        ("3: 4", "the name '3', which is not text"),
        ("seed: 1\nyes: 4", "line 2 has the name 'yes', which is not text"),
        ("model: {1.5: 4}", "the name '1.5', which is not text"),
        ("seed: 1\nseed: 2", "line 2 has the name 'seed' a second time"),
        ("? [a, b]\n: c", "line 1 has the name of several values, which is not text"),
        ("steps: {a: 1}", "--steps: expected int or null, got names and values"),
        ("steps: 0x_", "not a config file (invalid literal"),
        ("steps: 2001-99-99", "--steps: expected int or null, got 2001-99-99"),
        ("<<: 5", "which has a special meaning in YAML"),
        ('preset: "\\ud800"', "line 1 has a NUL character or half a surrogate pair"),
        ('preset: "a\\0b"', "line 1 has a NUL character or half a surrogate pair"),
        ("x" * (MAX_BYTES + 1), "more than 2,097,152 bytes"),
        ("\x1b[31m", "not a config file"),
        ("seed: 1:2:3:4", "line 1 has 1:2:3:4, which YAML reads as a base-60 number"),
        ("model: canary.Class", "--model is a group of options; name one of them, such as --model.vocab-size"),
        ("model: {class_path: canary.Class}", "there is no option --model.class-path"),
        ("model.class_path: canary.Class", "there is no option --model.class-path"),
        ('x: !!python/object/apply:os.mkdir ["executed"]', "line 1 has a tag (tag:yaml.org,2002:python/object/apply:os.mkdir)"),
    ],
)  # fmt: skip
def test_invalid_yaml_is_rejected(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "canary.py").write_text("import os\nos.mkdir('executed')\nclass Class: pass\n")
    (tmp_path / "c.yaml").write_text(content)
    line = error(capsys, "pretrain", "a", "--out", "r", "--config", "c.yaml")
    assert line.startswith("c.yaml: ") or "preset" in message
    assert message in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.yaml", "canary.py"]


def test_saved_configurations_are_plain_yaml(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("text: [2001-01-01, 'a b', '*x']\nseed: 0x10\nmodel:\n  dropout: 0.5\n")
    assert load_yaml(tmp_path / "c.yaml") == {
        "text": ["2001-01-01", "a b", "*x"],
        "seed": 16,
        "model": {"dropout": 0.5},
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", ONE_LINE_BOMB], "--seed: expected int, got {a: &a "),
        ([f"--hours={ONE_LINE_BOMB}"], "--hours: expected float or null, got {a: &a "),
        (["--preset", ONE_LINE_BOMB], "preset: expected tiny, small, "),
        (["--documents", ONE_LINE_BOMB], "--documents: expected blank-line, file or line, got {a: &a "),
        (["--optimizer.learning-rate", "!!timestamp x"], "--optimizer.learning-rate: expected float, got !!timestamp x"),
        (["--optimizer.learning-rate", "1e400"], "--optimizer.learning-rate: expected a finite number, got inf"),
        (["--seed", "9" * 5000], "--seed: expected int, got 999"),
        (["--seed", "9" * 30], "--seed: expected a number of at most 9,007,199,254,740,992"),
        (["--seed", "[" * 5000], "--seed: expected int, got [[["),
        (["--text-field", "\udcff"], r"--text-field: \udcff holds bytes that are not UTF-8"),
        (["--model", "canary.Class"], "--model is a group of options; name one of them, such as --model.vocab-size"),
        (["--model=canary.Class"], "--model is a group of options"),
        (["--model", "/dev/zero"], "--model is a group of options"),
        (["--config", "/dev/zero"], "/dev/zero: a device, expected a regular file"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected(words: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    line = error(capsys, "pretrain", "a", "--out", "r", *words)
    assert message in line
    assert len(line) < 2100


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
def test_an_empty_output(
    command: str, out: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a shell variable is not set: an empty path would be the current folder."""
    monkeypatch.chdir(tmp_path)
    assert "--out is empty; name a directory or file" in error(capsys, command, *COMMANDS[command], "--out", out)
    assert not any(tmp_path.iterdir())


def test_an_empty_task(capsys: pytest.CaptureFixture) -> None:
    assert "no task is named; there are " in error(capsys, "finetune", "", "--model", "m", "--data", "d", "--out", "o")


@pytest.mark.parametrize("out", [".", "..", "/dev/null", "folder", "pipe"])
def test_predictions_do_not_replace_a_device(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    line = error(capsys, "predict", "--model", "m", "--input", "a.txt", "--out", out)
    assert line == f"--out {out}: not a regular file; name a file to write, or omit --out"


def test_an_empty_output_in_python() -> None:
    for call in (
        lambda: electra.pretrain("a", out=""),
        lambda: electra.finetune("sst2", model="m", out=""),
        lambda: electra.tokenizer("a", out=""),
        lambda: list(electra.predict("m", "a", out="")),
    ):
        with pytest.raises(UsageError, match="--out is empty"):
            call()


def test_special_files_are_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name, kind in {"pipe": "a named pipe", "link": "a named pipe", "socket": "a socket"}.items():
        with pytest.raises(DataError, match=f"{name}: {kind}, expected a regular file"):
            refuse_special_file(tmp_path / name, DataError)
    with pytest.raises(DataError, match="/dev/null: a device"):
        refuse_special_file(Path("/dev/null"), DataError)
    refuse_special_file(tmp_path, DataError)
    refuse_special_file(tmp_path / "nowhere", DataError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "x:1: not JSON: Expecting property name enclosed in double quotes (column 2)"),
        ("[\n]]", "x:1: not JSON: Extra data (line 2, column 2)"),
        ("[" * 100_000, "x:1: not JSON that can be read: nested too deeply"),
        ("9" * 5000, "x:1: not JSON that can be read: a number of more than 4,300 digits"),
        (r'{"a": ["\ud800"]}', "x:1: half a surrogate pair, which is not a character"),
        (rb'{"\uDFFF": 1}', "x:1: half a surrogate pair, which is not a character"),
        (b'"\xff"', "x:1: not JSON that can be read: not UTF-8 at byte 1"),
    ],
)  # fmt: skip
def test_invalid_json_is_rejected(text: str | bytes, message: str) -> None:
    with pytest.raises(TextError) as raised:
        decode_json(text, "x:1", TextError)
    assert str(raised.value) == message


def test_valid_json_is_parsed() -> None:
    assert decode_json(r'"\ud83d\ude00"', "", TextError) == "\U0001f600"
    assert decode_json(r'"\ud83d"', "", TextError, half_surrogates=True) == "\ud83d"


NASTY = "a\nb\x1b[31mc\x9bd\u202ee\u2028f\udcffg[bold]h[/x]"
SHOWN = r"a\nb\x1b[31mc\x9bd\u202ee\u2028f\udcffg[bold]h[/x]"


def test_names_are_printed_escaped(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert escape_unprintable(NASTY) == SHOWN
    monkeypatch.setattr(
        logging.getLogger("electra"), "propagate", False
    )  # pytest-xdist cannot send half a surrogate pair
    log = logging.getLogger("electra.test")
    log.info(f"{NASTY} ({NASTY})")
    log.warning(NASTY)
    console.console.print(NASTY, markup=False)
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


def test_names_in_errors_are_printed_escaped(capsys: pytest.CaptureFixture) -> None:
    assert error(capsys, "tokenizer", "a\nb\x1b[31m.txt", "--out", "r").startswith(r"a\nb\x1b[31m.txt: cannot be read")
    with pytest.raises(SystemExit):
        cli.main(["evaluate", "a\nb\x1b[31m"])
    assert "\x1b" not in capsys.readouterr().err


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
def test_a_named_pipe_among_text(name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    words = {"prepare": ["--tokenizer", str(tmp_path)]}.get(command, [])
    line = error(capsys, command, str(path.parent if "/" in name else path), "--out", str(tmp_path / "out"), *words)
    assert line.startswith(f"{path}: a named pipe, expected a regular file")


def test_devices_among_text(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to("/dev/zero")
    line = error(capsys, "tokenizer", str(tmp_path / "a.txt"), "--out", str(tmp_path / "out"))
    assert line.startswith(f"{tmp_path / 'a.txt'}: a device")
    assert "an empty name among the text" in error(capsys, "tokenizer", "", "--out", str(tmp_path / "out"))


@pytest.mark.parametrize("read", READERS_OF_DATA, ids=lambda read: read.__name__)
def test_a_named_pipe_among_data(read: Callable, tmp_path: Path) -> None:
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.parquet.gz", "a.json", "a.json.gz", "a.conll"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError, match="a named pipe|not a table|not a known kind"):
            list(read(tmp_path / name))


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
    with pytest.raises(
        TextError, match=rf"a\.parquet\{ending}: more than 0.0 GB decompressed; decompress it, and give"
    ):
        list(read_parquet(packed, ReadOptions()))
    with pytest.raises(DataError, match=rf"a\.parquet\{ending}: more than 0.0 GB decompressed"):
        read_table(packed)
    monkeypatch.setattr(data, "MAX_DOCUMENT_BYTES", 3_000_000)
    (tmp_path / f"a.json{ending}").write_bytes(pack(b" " * 4_000_000))
    with pytest.raises(DataError, match=rf"a\.json\{ending}: more than 3 MB unpacked, which is held in memory whole"):
        read_squad(tmp_path / f"a.json{ending}")


def test_columns_of_the_same_name(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("text,x,text\na,b,c\n")
    (tmp_path / "b.csv").write_text("text,,\na,b,c\n")
    for name in ("a.parquet", "a.csv"):
        with pytest.raises(DataError, match=f"{name}: two columns are called 'text'; rename one"):
            read_table(tmp_path / name)
        with pytest.raises(DataError, match=f"{name}: two columns are called 'text'; rename one"):
            next(stream_rows(tmp_path / name))
    assert read_table(tmp_path / "b.csv").get_column("text") == ["a"]
    line = error(capsys, "tokenizer", str(tmp_path / "a.parquet"), "--out", str(tmp_path / "t"))
    assert line.endswith("a.parquet: two columns are called 'text': rename one")


@pytest.mark.parametrize("content", [b"\0" * 1000, b"\0\x01\x7f\n" * 100, "\u200b\n".encode() * 100])
def test_text_of_control_characters_is_rejected(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    line = error(capsys, "tokenizer", str(tmp_path / "a.txt"), "--out", str(tmp_path / "t"), "--vocab-size", "64")
    assert "a.txt: only control characters" in line
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (r'{"text": "\ud800", "label": "a"}', "half a surrogate pair"),
        (r'{"text": "a", "\udc00": "a"}', "half a surrogate pair"),
        ('{"text": "a", "label": %s}' % ("9" * 5000), "a number of more than 4,300 digits"),
        ('{"text": "a", "label": %s}' % ("[" * 50_000), "nested too deeply"),
    ],
)  # fmt: skip
def test_records(record: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "words": ["a"]}\n' + record + "\n")
    for read in (read_table, lambda path: list(stream_rows(path)), read_sentences):
        with pytest.raises(DataError, match=rf"a\.jsonl:2: .*{message}"):
            read(tmp_path / "a.jsonl")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_LINE_BYTES", 10)
    monkeypatch.setattr("sys.stdin", io.StringIO("123456789\n" + "x" * 11))
    found = inputs.read_lines("-", "a text in each")
    assert next(found) == ("standard input, line 1", "123456789")
    with pytest.raises(DataError, match="standard input, line 2: more than 10 characters; break it up"):
        next(found)
    monkeypatch.setattr("sys.stdin", io.StringIO("\udcff\n"))
    with pytest.raises(DataError, match="standard input, line 1: not UTF-8"):
        next(inputs.read_lines("-", "a text in each"))
