"""Bad input, from the command line to the end: one clear line naming file and place, exit code 2, nothing half-written."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import zstandard
from safetensors.torch import load_file, save_file
from support.command_line import RUN, error

import electra

GOOD = "the cat sees mice .\nthe dog likes milk .\n\n" * 400


def broken(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


BAD_TEXT: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no such path": (lambda d: d / "nowhere.txt", "nowhere.txt: "),
    "unknown kind": (lambda d: broken(d, "a.pdf", b"%PDF"), "a.pdf: unknown text format"),
    "prepared data": (
        lambda d: broken(d, "settings.json", b'{"seq_len": 24}').parent,
        "prepared data, expected text; use electra pretrain --data",
    ),
    "empty file": (lambda d: broken(d, "a.txt", b""), "a.txt"),
    "blank file": (lambda d: broken(d, "a.txt", b"\n \n\n"), "a.txt"),
    "too small": (
        lambda d: broken(d, "a.txt", b"the cat sees mice .\n\nthe dog sleeps .\n"),
        "a.txt: too little text: 1 training example of up to 24 tokens, less than one batch of 4; "
        "add text, or lower --training.batch-size or --seq-len",
    ),
    "not UTF-8": (lambda d: broken(d, "a.txt", GOOD.encode() + b"caf\xe9 ole\n"), "a.txt: "),
    "truncated gzip": (lambda d: broken(d, "a.txt.gz", gzip.compress(GOOD.encode())[:-20]), "a.txt.gz: "),
    "truncated zstd": (
        lambda d: broken(
            d, "a.txt.zst", zstandard.ZstdCompressor().compress(GOOD.encode() + bytes(range(32, 127)))[:-20]
        ),
        "a.txt.zst: ",
    ),
    "broken JSON": (lambda d: broken(d, "a.jsonl", b'{"text": "fine"}\n{"text": \n'), "a.jsonl:2: "),
    "no text field": (lambda d: broken(d, "a.jsonl", b'{"body": "fine"}\n'), "a.jsonl:1: "),
    "a line of 50 MB": (lambda d: broken(d, "a.txt", b"fine .\n" + b"a b " * 12_500_000), "a.txt:2: "),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_text(case: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make, message = BAD_TEXT[case]
    path = make(tmp_path)
    before = set(tmp_path.iterdir())
    line = error(capsys, "pretrain", str(path), "--out", str(tmp_path / "run"), *RUN)
    assert message in line
    assert set(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_invalid_utf8_byte_is_reported_and_can_be_replaced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = broken(tmp_path, "a.txt", GOOD.encode() + b"caf\xe9 ole\n")
    line = error(capsys, "pretrain", str(path), "--out", str(tmp_path / "run"), *RUN)
    assert f"{len(GOOD) + 3:,}" in line or str(len(GOOD) + 3) in line
    assert "--encoding-errors replace" in line
    electra.cli.main(["pretrain", str(path), "--out", str(tmp_path / "run"), "--encoding-errors", "replace", *RUN])


@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_utf_16_is_reported_and_not_replaced(errors: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Half of its bytes may well be UTF-8, and what is left of it no text."""
    path = broken(tmp_path, "a.txt", GOOD.encode("utf-16"))
    line = error(capsys, "pretrain", str(path), "--out", str(tmp_path / "run"), "--encoding-errors", errors, *RUN)
    assert line == f"{path}: UTF-16, expected UTF-8: convert the file (iconv -f UTF-16 -t UTF-8)"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, a tokenizer, data and a finished run to be broken in copies."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "a.txt").write_text(GOOD)
    electra.tokenizer([str(folder / "a.txt")], out=str(folder / "tokenizer"), vocab_size=160)
    electra.prepare([str(folder / "a.txt")], tokenizer=str(folder / "tokenizer"), out=str(folder / "data"), seq_len=24)
    electra.cli.main(["pretrain", "--data", str(folder / "data"), "--out", str(folder / "run"), *RUN])
    return folder


def pretrain_data(data: Path, out: Path, *more: str) -> list[str]:
    return ["pretrain", "--data", str(data), "--out", str(out), *RUN, *more]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_shards(parts: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture) -> None:
    data = shutil.copytree(parts / "data", tmp_path / "data")
    shard = next((data / "train").iterdir())
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content if damage == "changed" else content[:-100])
    line = error(capsys, *pretrain_data(data, tmp_path / "run"))
    assert str(shard) in line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_another_tokenizer_than_that_of_the_data_is_rejected(
    parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    electra.tokenizer([str(parts / "a.txt")], out=str(tmp_path / "t"), vocab_size=160, cased=True)
    line = error(capsys, *pretrain_data(parts / "data", tmp_path / "run", "--tokenizer", str(tmp_path / "t")))
    assert "prepared with another tokenizer" in line
    assert not (tmp_path / "run").exists()


def test_sequences_longer_than_the_positions(parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    options = ("--model.max-positions", "16", "--seq-len", "16")
    line = error(capsys, *pretrain_data(parts / "data", tmp_path / "run", *options))
    assert "prepared with sequences of 24 tokens, the model has 16 positions" in line
    assert not (tmp_path / "run").exists()


def test_text_and_data(parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "give either text to train on" in error(
        capsys, *pretrain_data(parts / "data", tmp_path / "run", "--cased")[:1], "--out", str(tmp_path / "run")
    )
    line = error(
        capsys, "pretrain", str(parts / "a.txt"), "--data", str(parts / "data"), "--out", str(tmp_path / "run")
    )
    assert "got the text" in line
    assert not (tmp_path / "run").exists()


def test_invalid_data_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "no such directory; electra prepare creates prepared data" in error(
        capsys, *pretrain_data(tmp_path / "nowhere", tmp_path / "run")
    )
    (tmp_path / "empty").mkdir()
    assert "not prepared data (there is no manifest.json); electra prepare creates prepared data" in error(
        capsys, *pretrain_data(tmp_path / "empty", tmp_path / "run")
    )
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_configuration(parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = shutil.copytree(parts / "run", tmp_path / "run")
    before = (run / "config.yaml").read_bytes()
    line = error(capsys, *pretrain_data(parts / "data", run, "--optimizer.learning-rate", "1e-5"))
    assert "a run of another configuration: --optimizer.learning-rate is " in line
    assert "there, 1e-05 here" in line
    assert (run / "config.yaml").read_bytes() == before
    electra.cli.main(pretrain_data(parts / "data", run, "--training.log-every", "7", "--runtime.threads", "1"))
    assert "is finished" in capsys.readouterr().out, "how it runs may differ"


def test_directory_without_a_run_is_rejected(tmp_path: Path, parts: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    assert "not empty and not a run" in error(capsys, *pretrain_data(parts / "data", tmp_path / "mine"))
    assert "not a directory" in error(capsys, *pretrain_data(parts / "data", tmp_path / "mine/letter.txt"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("network", "sizes", "message"),
    [
        (
            "discriminator",
            {"hidden_size": 48},
            "discriminator: other sizes: hidden_size 48 (the model has 64); try --model.hidden-size 48",
        ),
        ("discriminator", {"num_hidden_layers": 3}, "num_layers 3 (the model has 1)"),
        ("generator", {"num_hidden_layers": 3}, "num_layers 3 (the model has 1); try --generator.depth 3"),
        ("generator", {"intermediate_size": 64}, "ffn_size 64 (the model has 128); try --generator.ffn 0.25"),
        ("generator", {"max_position_embeddings": 7}, "max_positions 7 (the model has 512)"),
    ],
)
def test_init_of_other_sizes(
    parts: Path, tmp_path: Path, network: str, sizes: dict, message: str, capsys: pytest.CaptureFixture
) -> None:
    for name in ("discriminator", "generator"):
        shutil.copytree(parts / "run" / name, tmp_path / "init" / name)
    init = tmp_path / "init" / network
    config = json.loads((init / "config.json").read_text())
    (init / "config.json").write_text(json.dumps(config | sizes))
    ours = ("--model.hidden-size", "64", "--generator.size", "0.5", "--generator.depth", "1", "--generator.ffn", "0.5")
    line = error(capsys, *pretrain_data(parts / "data", tmp_path / "run", "--init", str(tmp_path / "init"), *ours))
    assert message in line
    assert not (tmp_path / "run").exists()


def test_init_without_a_model_is_rejected(parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    line = error(capsys, *pretrain_data(parts / "data", tmp_path / "run", "--init", str(tmp_path / "nowhere")))
    assert "nowhere: not a model directory" in line
    assert "hf download OWNER/NAME --local-dir FOLDER" in line


@pytest.fixture(scope="module")
def models(parts: Path) -> Path:
    """A directory of each kind that can be taken for something to continue from."""
    electra.cli.main(
        ["pretrain", "--data", str(parts / "data"), "--out", str(parts / "bert"), *RUN, "--objective", "mlm"]
    )
    bare = shutil.copytree(parts / "run/discriminator", parts / "bare")
    weights = load_file(bare / "model.safetensors")
    save_file({n: t for n, t in weights.items() if n.startswith("electra.")}, bare / "model.safetensors")
    return parts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("init", "objective", "message"),
    [
        (
            "bert",
            "electra",
            "bert/masked_lm: a masked language model, not a discriminator; continue it with --objective mlm",
        ),
        (
            "run/generator",
            "electra",
            "run/generator: a generator; name {folder}/run, which contains the discriminator too",
        ),
        ("run", "mlm", "run/discriminator: a discriminator, and this objective needs a masked language model"),
        ("bare", "electra", "bare: has no pre-training head; it is an encoder without a head, or a fine-tuned model"),
    ],
)
def test_init_with_another_network_is_rejected(
    models: Path, tmp_path: Path, init: str, objective: str, message: str, capsys: pytest.CaptureFixture
) -> None:
    """It is said before the text is read, and nothing is left in the way of the corrected command."""
    words = ("--init", str(models / init), "--objective", objective)
    line = error(capsys, "pretrain", str(models / "a.txt"), "--out", str(tmp_path / "run"), *RUN, *words)
    assert message.format(folder=models) in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("given", ["tokenizer", "data"])
def test_init_with_another_tokenizer(
    parts: Path, tmp_path: Path, given: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = electra.tokenizer(str(parts / "a.txt"), out=str(tmp_path / "t"), vocab_size=160, cased=True)
    source = ["pretrain", str(parts / "a.txt"), "--tokenizer", str(tokenizer)]
    if given == "data":
        electra.prepare(str(parts / "a.txt"), tokenizer=str(tokenizer), out=str(tmp_path / "d"), seq_len=24, workers=1)
        source = ["pretrain", "--data", str(tmp_path / "d")]
    monkeypatch.setattr(electra.pretraining.run, "load_inputs", None)  # it is seen before that
    line = error(capsys, *source, "--out", str(tmp_path / "run"), *RUN, "--init", str(parts / "run"))
    assert "run/discriminator: its tokenizer differs from " in line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_another_sequence_length_than_that_of_the_data_is_rejected(
    parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    line = error(capsys, *pretrain_data(parts / "data", tmp_path / "run", "--seq-len", "48"))
    assert (
        f"--seq-len is 48, but {parts / 'data'} was prepared with sequences of 24 tokens; leave --seq-len out" in line
    )
    assert not (tmp_path / "run").exists()
    words = [word for word in RUN if word not in ("--seq-len", "24")]
    electra.cli.main(["pretrain", "--data", str(parts / "data"), "--out", str(tmp_path / "run"), *words])
    assert "prepared with sequence length 24" in capsys.readouterr().out
    assert "seq_len: 24\n" in (tmp_path / "run/config.yaml").read_text()


def test_a_tokenizer_is_never_replaced_by_another(parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = shutil.copytree(parts / "tokenizer", tmp_path / "tokenizer")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    words = ("tokenizer", str(parts / "a.txt"), "--out", str(out), "--vocab-size", "160")
    electra.cli.main(words)
    assert f"{out} already contains the same tokenizer" in capsys.readouterr().out
    assert f"{out}: contains another tokenizer; choose another --out" in error(capsys, *words, "--cased")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("place", ["run", "data", ""])
def test_a_tokenizer_needs_a_directory_of_its_own(
    parts: Path, place: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(electra.data.pipeline, "train_tokenizer_with_progress", None)  # it is seen before the work
    before = sorted(parts.rglob("*"))
    line = error(capsys, "tokenizer", str(parts / "a.txt"), "--out", str(parts / place))
    assert line.startswith(f"{parts / place}: contains other files (such as ")
    assert "a file; a tokenizer needs a separate directory" in error(
        capsys, "tokenizer", str(parts / "a.txt"), "--out", str(parts / "a.txt")
    )
    assert sorted(parts.rglob("*")) == before


@pytest.mark.parametrize("command", ["tokenizer", "prepare", "pretrain"])
def test_unwritable_output_is_reported_before_work_starts(
    parts: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(electra.text.corpus.Corpus, "__iter__", None)
    monkeypatch.setattr(electra.storage.os, "access", lambda path, mode: False)  # root may write everywhere
    more = ("--tokenizer", str(parts / "tokenizer")) if command == "prepare" else ()
    line = error(capsys, command, str(parts / "a.txt"), "--out", str(tmp_path / "new/out"), *more)
    assert line == f"{tmp_path / 'new/out'}: cannot be written: no permission to create files in {tmp_path}"


@pytest.mark.slow
def test_text_that_changed_while_a_run_was_unfinished(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    source = Path(shutil.copy(text / "a.txt", tmp_path / "a.txt"))
    words = ("pretrain", str(source), "--out", str(tmp_path / "run"), *RUN)
    electra.cli.main(words)
    (tmp_path / "run/summary.json").unlink()
    source.write_text(source.read_text() + GOOD)
    line = error(capsys, *words)
    assert f"prepared from other text: {source} had " in line
    assert "restore the original text to resume, or choose another --out for the new text" in line


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--runtime.threads", "0", "runtime.threads is 0; it must be at least 1"),
        ("--schedule.warmup-steps", "-1", "schedule.warmup_steps is -1; it must not be negative"),
        ("--training.checkpoint-minutes", "0", "training.checkpoint_minutes is 0; it must be more than 0"),
    ],
)
def test_numbers_out_of_range(
    option: str, value: str, message: str, parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert message in error(capsys, *pretrain_data(parts / "data", tmp_path / "run", f"{option}={value}"))
    assert not (tmp_path / "run").exists()


def test_no_permission(parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    line = error(capsys, *pretrain_data(parts / "data", tmp_path / "file/run"))
    assert "cannot be written" in line
    assert str(tmp_path / "file") in line


def test_no_gpu(parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = error(capsys, *pretrain_data(parts / "data", tmp_path / "run", "--runtime.device", "cuda"))
    assert "runtime.device is cuda, but PyTorch sees no GPU here" in line
