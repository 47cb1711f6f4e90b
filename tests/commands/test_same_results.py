"""Each command from the command line and from Python: the same configuration, results, files and log records."""

import functools
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from support import toy_studies
from support.command_line import RUN
from support.tensorflow_names import hf_to_tf, write_checkpoint

import electra
from electra import cli, commands, display

assert toy_studies.TASKS, "registers the study and the scale toy"
RUN_OPTIONS = {
    "preset": "tiny",
    "steps": 2,
    "seq_len": 24,
    "workers": 1,
    "training": {"batch_size": 4},
    "model": {"num_layers": 1},
    "model.vocab_size": 160,
}
"""`RUN` in Python."""
ONE_EPOCH = ["--epochs", "1", "--seeds", "1"]
TIMES = re.compile(r"\d[\d,.]*(e[+-]?\d+)?( ms| s| min| h)?")
"""Numbers in log records, some of which are times."""
SAME = (".yaml", ".txt", ".safetensors", ".csv", "vocab.txt", "tokenizer.json")
"""Files that do not depend on the time."""


def cases(inputs: Path, run: Path) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """Command -> the words of its command line, and the same as keyword arguments; without --out."""
    text, data, model = str(inputs / "text"), str(run / "data"), str(inputs / "model")
    glue, lines, tuned = str(inputs / "glue"), str(inputs / "lines.txt"), str(inputs / "tuned/seed-0/model")
    tokenizer, seq_len = str(inputs / "tokenizer"), {"seq_len": 24, "workers": 1}
    mask = "the cat [MASK] mice ."
    return {
        "pretrain": ([text, *RUN], {"text": text, **RUN_OPTIONS}),
        "tokenizer": ([text, "--vocab-size", "160", "--cased"], {"text": text, "vocab_size": 160, "cased": True}),
        "prepare": (
            [text, "--tokenizer", tokenizer, "--seq-len", "24", "--workers", "1"],
            {"text": [text], "tokenizer": tokenizer, **seq_len},
        ),
        "evaluate": ([str(run), "--data", data], {"run": run, "data": data}),
        "minimal-pairs": ([str(run), *map(str, write_pairs(inputs))], {"model": run, "files": write_pairs(inputs)}),
        "evaluate-mlm": ([str(run), "--examples", "8"], {"run": run, "examples": 8}),
        "fill-mask": ([mask, "--model", str(run), "--top", "3"], {"text": mask, "model": run, "top": 3}),
        "finetune": (
            ["sst2", "--model", model, "--data", glue, "--runtime.threads", "1", *ONE_EPOCH],
            {"task": "sst2", "model": model, "data": glue, "runtime": {"threads": 1}, "epochs": 1},
        ),
        "predict": (["--model", tuned, "--input", lines], {"model": tuned, "input": Path(lines)}),
        "embed": (["--model", model, "--input", lines], {"model": model, "input": Path(lines)}),
        "export": ([tuned], {"model": tuned}),
        "push": ([tuned, "me/model", "--dry-run"], {"directory": tuned, "repository": "me/model", "dry_run": True}),
        "convert": (
            [write_original(inputs), "--tokenizer", model],
            {"checkpoint": write_original(inputs), "tokenizer": model},
        ),
        "glue": (
            ["--model", model, "--data", glue, "--tasks", "sst2", "rte", *ONE_EPOCH],
            {"model": model, "data": glue, "tasks": ["sst2", "rte"], "epochs": 1.0, "seeds": 1},
        ),
        "score": ([mask, "--model", str(run)], {"text": mask, "model": run}),
        "advise": ([text, "--hours", "0.01"], {"text": text, "hours": 0.01}),
        "flops": (["--preset", "tiny", "--steps", "1e3"], {"preset": "tiny", "steps": 1000}),
        "paper-table": (["8"], {"number": 8}),
        "study": (
            ["toy", "--data", text, "--glue", glue, "--scale", "toy", "--tasks", "sst2", "--dry-run"],
            {"name": "toy", "data": text, "glue": glue, "scale": "toy", "tasks": "sst2", "dry_run": True},
        ),
    }


def write_pairs(folder: Path) -> list[Path]:
    """Write two files of a minimal pair each."""
    pair = {"sentence_good": "the cat sees mice .", "sentence_bad": "the mice sees cat ."}
    paths = [folder / f"pairs_{number}.jsonl" for number in range(2)]
    for path in paths:
        path.write_text(json.dumps(pair))
    return paths


def write_original(inputs: Path) -> str:
    """Write the weights of the discriminator as a TensorFlow checkpoint."""
    folder = inputs / "original"
    if not folder.exists():
        folder.mkdir()
        variables = hf_to_tf(load_file(inputs / "model/model.safetensors"), "electra")
        write_checkpoint(folder / "model.ckpt-7", variables)
    return str(folder / "model.ckpt-7")


WITHOUT_OUT = ("embed", "push", "evaluate", "evaluate-mlm", "fill-mask", "score", "advise", "flops", "paper-table")


@pytest.fixture
def _constant_times() -> Iterator[None]:
    """Let every measured update take the same time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("electra.studies.compute.measure_step_seconds", lambda config, runtime: 0.01)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("_constant_times")
@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name != "serve"])  # which does not end
def test_command_line_and_python_give_the_same_results(
    name: str,
    inputs: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture,
) -> None:
    words, arguments = cases(inputs, finished)[name]
    function = name.replace("-", "_")
    results: list[Any] = []
    monkeypatch.setattr(commands, function, recording(getattr(commands, function), results))
    caplog.set_level(logging.DEBUG, "electra")

    cli_out, python_out = tmp_path / "cli", tmp_path / "python"
    cli.main([name, *words, *([] if name in WITHOUT_OUT else ["--out", str(cli_out)])])
    records = messages(caplog, cli_out)
    caplog.clear()
    monkeypatch.undo()
    result = getattr(electra, function)(**arguments, **({} if name in WITHOUT_OUT else {"out": python_out}))
    result = [*result] if name in ("predict", "embed") else result
    assert messages(caplog, python_out) == records
    assert normalize(result, python_out) == normalize(results[0], cli_out)
    assert files(python_out) == files(cli_out)


def recording(function: Callable[..., Any], results: list[Any]) -> Callable[..., Any]:
    """Wrap a function so that it appends its results to a list."""

    @functools.wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        result = function(*positional, **named)
        results.append([*result] if function.__name__ in ("predict", "embed") else result)
        return results[-1]

    return call


def messages(log: pytest.LogCaptureFixture, out: Path) -> list[tuple[str, str, str]]:
    """List the log records: logger, level, message without the output's path and without numbers."""
    return [
        (record.name, record.levelname, TIMES.sub("#", record.getMessage().replace(str(out), "OUT")))
        for record in log.records
        if record.name.startswith("electra")
    ]


def normalize(result: Any, out: Path) -> str:
    """Format a result as JSON without paths and times."""
    if isinstance(result, dict) and "summary" in result:  # a table of texts, with times
        result = result | {"summary": TIMES.sub("#", str(result["summary"]))}
    text = json.dumps(result, default=str, indent=1).replace(str(out), "OUT")
    return re.sub(r'"(\w*seconds?|hours)": [\d.e+-]+', r'"\1": 0', text)


def files(out: Path) -> dict[str, bytes]:
    """Read the files of an output; the content of files that depend on the time is left out."""
    found = sorted(path for path in out.rglob("*") if path.is_file()) if out.is_dir() else [out] if out.exists() else []
    return {
        re.sub(r"tfevents.*", "tfevents", str(path.relative_to(out))): path.read_bytes().replace(
            str(out).encode(), b"OUT"
        )
        if path.name.endswith(SAME) or path == out
        else b""
        for path in found
    }


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "shown"), [("-q", False), ("--quiet", False), ("-v", True), ("--verbose", True)])
def test_quiet_and_verbose(flag: str, shown: bool, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    try:
        cli.main(["tokenizer", str(inputs / "text"), "--vocab-size", "160", "--out", str(tmp_path / "t"), flag])
        out = capsys.readouterr().out
        assert ("electra." in out) == shown
        assert shown or out == ""
        cli.main([flag, "flops"])
        assert "FLOPs" in capsys.readouterr().out, "results are always shown"
    finally:
        electra.console.show_log()


def test_commands_whose_output_is_their_result() -> None:
    """Other commands continue when their output cannot be written."""
    for flags in ([], ["-v"], ["--quiet"]):
        assert not cli.is_result([*flags, "pretrain", "text", "--out", "run"])
        assert cli.is_result([*flags, "flops"])
    assert cli.is_result(["pretrain", "--help"])


def test_every_command_shows_what_it_returns() -> None:
    for name, command in cli.COMMANDS.items():
        assert hasattr(display, f"show_{name.replace('-', '_')}") == command.shows
