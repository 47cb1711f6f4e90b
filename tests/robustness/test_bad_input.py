"""Invalid input of commands: an error that names file and place, exit code 2, and no incomplete output."""

import errno
import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import zstandard
from safetensors.torch import load_file, save_file
from support.command_line import RUN
from support.errors import fails, notices

import electra

GOOD = "the cat sees mice .\nthe dog likes milk .\n\n" * 400


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


BAD_TEXT: dict[str, tuple[Callable[[Path], Path], str, list[str]]] = {
    "no such path": (lambda d: d / "nowhere.txt", "missing", [os.strerror(errno.ENOENT)]),
    "unknown format": (lambda d: write(d, "a.pdf", b"%PDF"), "unknown-format", [".txt"]),
    "prepared data": (
        lambda d: write(d, "settings.json", b'{"seq_len": 24}').parent,
        "prepared-data",
        ["electra pretrain --data"],
    ),
    "empty file": (lambda d: write(d, "a.txt", b""), "no-text", []),
    "blank file": (lambda d: write(d, "a.txt", b"\n \n\n"), "no-text", []),
    "too small": (
        lambda d: write(d, "a.txt", b"the cat sees mice .\n\nthe dog sleeps .\n"),
        "too-little-text",
        [" 1 ", " 24 ", " 4;", "--training.batch-size", "--seq-len"],
    ),
    "not UTF-8": (lambda d: write(d, "a.txt", GOOD.encode() + b"caf\xe9 ole\n"), "not-utf8", ["0xe9"]),
    "truncated gzip": (lambda d: write(d, "a.txt.gz", gzip.compress(GOOD.encode())[:-20]), "damaged", []),
    "truncated zstd": (
        lambda d: write(
            d, "a.txt.zst", zstandard.ZstdCompressor().compress(GOOD.encode() + bytes(range(32, 127)))[:-20]
        ),
        "damaged",
        [],
    ),
    "broken JSON": (lambda d: write(d, "a.jsonl", b'{"text": "fine"}\n{"text": \n'), "not-json", ["a.jsonl:2: "]),
    "no text field": (
        lambda d: write(d, "a.jsonl", b'{"body": "fine"}\n'),
        "missing-column",
        ["a.jsonl:1: ", "'body'"],
    ),
    "a line of 50 MB": (lambda d: write(d, "a.txt", b"fine .\n" + b"a b " * 12_500_000), "too-long", ["a.txt:2: "]),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_invalid_text_is_rejected(case: str, tmp_path: Path) -> None:
    make, code, values = BAD_TEXT[case]
    path = make(tmp_path)
    before = set(tmp_path.iterdir())
    fails(["pretrain", path, "--out", tmp_path / "run", *RUN], code, path, *values)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_invalid_utf8_byte_is_reported_and_can_be_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", GOOD.encode() + b"caf\xe9 ole\n")
    words = ["pretrain", str(path), "--out", str(tmp_path / "run"), *RUN]
    fails(words, "not-utf8", path, f" {len(GOOD) + 3} ", "--encoding-errors replace")
    electra.cli.main([*words, "--encoding-errors", "replace"])


@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_utf_16_is_reported_and_not_replaced(errors: str, tmp_path: Path) -> None:
    """Many of its bytes are valid UTF-8, and replacing the others would not give text."""
    path = write(tmp_path, "a.txt", GOOD.encode("utf-16"))
    words = ["pretrain", path, "--out", tmp_path / "run", "--encoding-errors", errors, *RUN]
    fails(words, "utf16", path, "iconv -f UTF-16 -t UTF-8")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, a tokenizer, data and a finished run; tests damage copies of them."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "a.txt").write_text(GOOD)
    electra.tokenizer([str(folder / "a.txt")], out=str(folder / "tokenizer"), vocab_size=160)
    electra.prepare([str(folder / "a.txt")], tokenizer=str(folder / "tokenizer"), out=str(folder / "data"), seq_len=24)
    electra.cli.main(["pretrain", "--data", str(folder / "data"), "--out", str(folder / "run"), *RUN])
    return folder


def pretrain_data(data: Path, out: Path, *more: str) -> list[str]:
    return ["pretrain", "--data", str(data), "--out", str(out), *RUN, *more]


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "code"), [("truncated", "wrong-size"), ("changed", "wrong-checksum")])
def test_damaged_shards_are_rejected(parts: Path, tmp_path: Path, damage: str, code: str) -> None:
    data = shutil.copytree(parts / "data", tmp_path / "data")
    shard = next((data / "train").iterdir())
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content if damage == "changed" else content[:-100])
    fails(pretrain_data(data, tmp_path / "run"), code, shard)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_another_tokenizer_than_that_of_the_data_is_rejected(parts: Path, tmp_path: Path) -> None:
    electra.tokenizer([str(parts / "a.txt")], out=str(tmp_path / "t"), vocab_size=160, cased=True)
    words = pretrain_data(parts / "data", tmp_path / "run", "--tokenizer", str(tmp_path / "t"))
    fails(words, "other-tokenizer", parts / "data")
    assert not (tmp_path / "run").exists()


def test_data_longer_than_the_positions_is_rejected(parts: Path, tmp_path: Path) -> None:
    words = pretrain_data(parts / "data", tmp_path / "run", "--model.max-positions", "16", "--seq-len", "16")
    fails(words, "longer-than-model", parts / "data", " 24 ", " 16 ")
    assert not (tmp_path / "run").exists()


def test_either_text_or_data_is_required(parts: Path, tmp_path: Path) -> None:
    fails(["pretrain", "--out", tmp_path / "run"], "no-text", "--data")
    words = ["pretrain", parts / "a.txt", "--data", parts / "data", "--out", tmp_path / "run"]
    fails(words, "text-and-data", parts / "a.txt", f"--data {parts / 'data'}")
    assert not (tmp_path / "run").exists()


def test_directory_without_data_is_rejected(tmp_path: Path) -> None:
    fails(pretrain_data(tmp_path / "nowhere", tmp_path / "run"), "missing", tmp_path / "nowhere", "electra prepare")
    (tmp_path / "empty").mkdir()
    words = pretrain_data(tmp_path / "empty", tmp_path / "run")
    fails(words, "no-manifest", tmp_path / "empty", "manifest.json", "electra prepare")
    assert not (tmp_path / "run").exists()


def test_run_of_another_configuration_is_rejected(
    parts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = shutil.copytree(parts / "run", tmp_path / "run")
    before = (run / "config.yaml").read_bytes()
    words = pretrain_data(parts / "data", run, "--optimizer.learning-rate", "1e-5")
    fails(words, "other-configuration", run, "--optimizer.learning-rate", "1e-05", "--out", f"--init {run}")
    assert (run / "config.yaml").read_bytes() == before
    electra.cli.main(pretrain_data(parts / "data", run, "--training.log-every", "7", "--runtime.threads", "1"))
    assert notices(caplog, "finished"), "options that do not change the result may differ"


def test_directory_without_a_run_is_rejected(tmp_path: Path, parts: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    fails(pretrain_data(parts / "data", tmp_path / "mine"), "not-run", tmp_path / "mine", "--out")
    words = pretrain_data(parts / "data", tmp_path / "mine/letter.txt")
    fails(words, "not-directory", tmp_path / "mine/letter.txt", "--out")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("network", "sizes", "values"),
    [
        ("discriminator", {"hidden_size": 48}, ["hidden_size 48", "64", "--model.hidden-size 48"]),
        ("discriminator", {"num_hidden_layers": 3}, ["num_layers 3", "1", "--model.num-layers 3"]),
        ("generator", {"num_hidden_layers": 3}, ["num_layers 3", "1", "--generator.depth 3"]),
        ("generator", {"intermediate_size": 64}, ["ffn_size 64", "128", "--generator.ffn 0.25"]),
        ("generator", {"max_position_embeddings": 700}, ["max_positions 700", "512"]),
    ],
)
def test_init_of_other_sizes_is_rejected(
    parts: Path, tmp_path: Path, network: str, sizes: dict, values: list[str]
) -> None:
    for name in ("discriminator", "generator"):
        shutil.copytree(parts / "run" / name, tmp_path / "init" / name)
    init = tmp_path / "init" / network
    config = json.loads((init / "config.json").read_text())
    (init / "config.json").write_text(json.dumps(config | sizes))
    ours = ("--model.hidden-size", "64", "--generator.size", "0.5", "--generator.depth", "1", "--generator.ffn", "0.5")
    words = pretrain_data(parts / "data", tmp_path / "run", "--init", str(tmp_path / "init"), *ours)
    fails(words, "other-sizes", f"{init}: ", *values)
    assert not (tmp_path / "run").exists()


def test_init_without_a_model_is_rejected(parts: Path, tmp_path: Path) -> None:
    words = pretrain_data(parts / "data", tmp_path / "run", "--init", str(tmp_path / "nowhere"))
    fails(words, "missing", tmp_path / "nowhere", "owner/name")


@pytest.fixture(scope="module")
def models(parts: Path) -> Path:
    """Model directories of all kinds that can be given as --init."""
    electra.cli.main(
        ["pretrain", "--data", str(parts / "data"), "--out", str(parts / "bert"), *RUN, "--objective", "mlm"]
    )
    bare = shutil.copytree(parts / "run/discriminator", parts / "bare")
    weights = load_file(bare / "model.safetensors")
    save_file({n: t for n, t in weights.items() if n.startswith("electra.")}, bare / "model.safetensors")
    return parts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("init", "objective", "code", "values"),
    [
        ("run/generator", "electra", "not-discriminator", ["{folder}/run/generator: ", " {folder}/run,"]),
        ("run", "mlm", "not-masked-lm", ["{folder}/run/discriminator: ", "--objective"]),
        ("bare", "electra", "no-head", ["{folder}/bare: "]),
    ],
)
def test_init_with_another_network_is_rejected(
    models: Path, tmp_path: Path, init: str, objective: str, code: str, values: list[str]
) -> None:
    """The error is raised before the text is read and before the output is created."""
    words = ["pretrain", models / "a.txt", "--out", tmp_path / "run", *RUN, "--init", models / init]
    fails([*words, "--objective", objective], code, *(value.format(folder=models) for value in values))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("given", ["tokenizer", "data"])
def test_init_with_another_tokenizer_is_rejected(
    parts: Path, tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = electra.tokenizer(str(parts / "a.txt"), out=str(tmp_path / "t"), vocab_size=160, cased=True)
    source = ["pretrain", str(parts / "a.txt"), "--tokenizer", str(tokenizer)]
    advice = "--tokenizer"
    if given == "data":
        electra.prepare(str(parts / "a.txt"), tokenizer=str(tokenizer), out=str(tmp_path / "d"), seq_len=24, workers=1)
        source = ["pretrain", "--data", str(tmp_path / "d")]
        advice = "electra prepare TEXT --tokenizer"
    monkeypatch.setattr(electra.pretraining.run, "load_inputs", None)  # the error is raised before inputs are loaded
    words = [*source, "--out", tmp_path / "run", *RUN, "--init", parts / "run"]
    fails(words, "other-tokenizer", f"{parts / 'run/discriminator'}: ", advice)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_another_sequence_length_than_that_of_the_data_is_rejected(
    parts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = pretrain_data(parts / "data", tmp_path / "run", "--seq-len", "48")
    fails(words, "other-settings", "--seq-len is 48", parts / "data", " 24 ")
    assert not (tmp_path / "run").exists()
    words = [word for word in RUN if word not in ("--seq-len", "24")]
    electra.cli.main(["pretrain", "--data", str(parts / "data"), "--out", str(tmp_path / "run"), *words])
    (notice,) = notices(caplog, "data")
    assert " 24)" in notice
    assert "seq_len: 24\n" in (tmp_path / "run/config.yaml").read_text()


def test_a_tokenizer_is_never_replaced_by_another(
    parts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = shutil.copytree(parts / "tokenizer", tmp_path / "tokenizer")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    words = ("tokenizer", str(parts / "a.txt"), "--out", str(out), "--vocab-size", "160")
    electra.cli.main(words)
    (notice,) = notices(caplog, "reused-tokenizer")
    assert str(out) in notice
    fails([*words, "--cased"], "other-tokenizer", f"{out}: ", "--out")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("place", ["run", "data", ""])
def test_a_tokenizer_needs_a_separate_directory(parts: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(electra.data.pipeline, "train_tokenizer_with_progress", None)  # the error comes before the work
    before = sorted(parts.rglob("*"))
    fails(["tokenizer", parts / "a.txt", "--out", parts / place], "other-files", f"{parts / place}: ")
    fails(["tokenizer", parts / "a.txt", "--out", parts / "a.txt"], "not-directory", f"{parts / 'a.txt'}: ")
    assert sorted(parts.rglob("*")) == before


@pytest.mark.parametrize("command", ["tokenizer", "prepare", "pretrain"])
def test_unwritable_output_is_reported_before_work_starts(
    parts: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(electra.text.corpus.Corpus, "__iter__", None)
    monkeypatch.setattr(electra.storage.os, "access", lambda path, mode: False)  # root may write everywhere
    more = ("--tokenizer", str(parts / "tokenizer")) if command == "prepare" else ()
    out = tmp_path / "new/out"
    error = fails([command, parts / "a.txt", "--out", out, *more], "no-permission", f"{out}: ")
    assert str(error).endswith(f" {tmp_path}"), "the existing parent is named"


@pytest.mark.slow
def test_text_that_changed_during_an_unfinished_run_is_rejected(text: Path, tmp_path: Path) -> None:
    source = Path(shutil.copy(text / "a.txt", tmp_path / "a.txt"))
    words = ("pretrain", str(source), "--out", str(tmp_path / "run"), *RUN)
    electra.cli.main(words)
    (tmp_path / "run/summary.json").unlink()
    before = source.stat().st_size
    source.write_text(source.read_text() + GOOD)
    fails(words, "other-text", source, f"{before:,}", f"{source.stat().st_size:,}", "--out")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--runtime.threads", "0"), ("--schedule.warmup-steps", "-1"), ("--training.checkpoint-minutes", "0")],
)
def test_numbers_out_of_range_are_rejected(option: str, value: str, parts: Path, tmp_path: Path) -> None:
    words = pretrain_data(parts / "data", tmp_path / "run", f"{option}={value}")
    fails(words, "out-of-range", f"{option} is {value}")
    assert not (tmp_path / "run").exists()


def test_output_in_a_file_is_rejected(parts: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = pretrain_data(parts / "data", tmp_path / "file/run")
    fails(words, "not-directory", f"{tmp_path / 'file/run'}: ", f" {tmp_path / 'file'} ")


def test_cuda_without_a_gpu_is_rejected(parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = pretrain_data(parts / "data", tmp_path / "run", "--runtime.device", "cuda")
    fails(words, "no-gpu", "runtime.device", "cuda")
