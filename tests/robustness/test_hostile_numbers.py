"""Numbers that overflow, in every option of pre-training and fine-tuning; and an environment that others have set."""

import dataclasses
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest
from support.command_line import error
from support.damage import refused
from support.toy_tasks import toy_tokenizer

import electra
from electra.config.resolve import resolve
from electra.errors import UsageError
from electra.finetuning.config import FinetuneConfig, build_finetune_config
from electra.inference.config import build_predict_config
from electra.pretraining.config import BUDGETS, PretrainConfig
from electra.runtime.setup import RuntimeConfig, read_launch_variables, start_runtime

HUGE = {"NaN": math.nan, "infinite": math.inf, "minus infinite": -math.inf, "1e300": 1e300, "-1e300": -1e300}
WHOLE = {"10^20": 10**20, "10^400": 10**400, "-10^400": -(10**400)}


def numbers(config: type, prefix: str = "") -> Iterator[tuple[str, type]]:
    """The numeric options of a configuration, dotted, and their types."""
    for name, kind in get_type_hints(config).items():
        if dataclasses.is_dataclass(kind):
            yield from numbers(kind, f"{prefix}{name}.")
        elif kind in (int, int | None):
            yield prefix + name, int
        elif kind in (float, float | None):
            yield prefix + name, float


PRETRAIN, FINETUNE = dict(numbers(PretrainConfig)), dict(numbers(FinetuneConfig))


def test_all_are_there() -> None:
    assert {"steps", "model.hidden_size", "optimizer.learning_rate", "generator.temperature"} < set(PRETRAIN)
    assert {"epochs", "layerwise_decay", "span.beam_size"} < set(FINETUNE)


@pytest.mark.parametrize("name", PRETRAIN)
def test_pretrain(name: str) -> None:
    for value in (HUGE if PRETRAIN[name] is float else WHOLE).values():
        if name == "optimizer.clip_norm" and value > 0:
            continue  # no clipping
        with pytest.raises(UsageError) as raised:
            resolve(PretrainConfig(), {}, {name: value}, alternatives=BUDGETS)
        refused(raised.value, name.rpartition(".")[2].replace("_", "-") if "--" in str(raised.value) else name)


@pytest.mark.parametrize("name", [name for name in FINETUNE if name != "span.max_length"])
def test_finetune(name: str) -> None:
    for value in (HUGE if FINETUNE[name] is float else WHOLE).values():
        if name == "span.null_threshold" and not math.isnan(value):
            continue  # always an answer, or never
        with pytest.raises(UsageError) as raised:
            build_finetune_config("rte", {"model": "m", "data": "d", name: value})
        last = name.rpartition(".")[2]
        assert last in str(raised.value) or last.replace("_", "-") in str(raised.value)
        refused(raised.value, "")


def test_predict() -> None:
    with pytest.raises(UsageError, match="null-threshold: expected a finite number, got nan"):
        build_predict_config({"null_threshold": math.nan})
    assert build_predict_config({"null_threshold": -math.inf}).null_threshold == -math.inf


@pytest.mark.parametrize(
    "words",
    [
        "finetune rte --model m --data d --layerwise-decay 1e300",
        "finetune rte --model m --data d --learning-rate nan",
        "finetune rte --model m --data d --epochs inf",
        "pretrain a --optimizer.learning-rate 1e400",
        "pretrain a --hours inf",
        "pretrain a --steps " + "9" * 30,
        "pretrain a --steps " + "9" * 5000,
        "pretrain a --seed " + "9" * 5000,
        "pretrain a --model.num-layers 1e7",
        "pretrain a --model.hidden-size 1e10",
        "pretrain a --loss-weight -inf",
        "tokenizer a.txt --vocab-size 1000000000000",
        "prepare a.txt --tokenizer t --seq-len " + "9" * 30,
        "prepare a.txt --tokenizer t --workers 1e9",
        "study objectives --data a --seeds 1e9",
        "study objectives --data a --hours inf",
    ],
)
def test_on_the_command_line(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("the cat sees mice .\n\n")
    toy_tokenizer().save(Path("t"))
    assert len(error(capsys, *words.split(), "--out", str(tmp_path / "out"))) < 6000
    assert not (tmp_path / "out").exists()


VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
WRONG = {
    "RANK=x": "RANK='x', expected an integer",
    "RANK=-1": "RANK='-1', expected an integer",
    "RANK=1.5": "RANK='1.5'",
    "RANK=٣": "RANK=",
    "RANK=" + "9" * 5000: "RANK=",
    "RANK=1": "RANK is 1 and WORLD_SIZE is 1, expected RANK < WORLD_SIZE",
    "RANK=2 WORLD_SIZE=2": "RANK is 2 and WORLD_SIZE is 2",
    "WORLD_SIZE=0": "WORLD_SIZE is 0",
    "WORLD_SIZE=x": "WORLD_SIZE='x'",
    "WORLD_SIZE=2": "WORLD_SIZE is 2, but RANK is not set; start several processes with torchrun",
    "WORLD_SIZE=2 RANK=0": "but MASTER_ADDR is not set",
    "WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1": "but MASTER_PORT is not set",
    "WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=x": "MASTER_PORT='x'",
    "WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=70000": "MASTER_PORT is 70000, expected 1 to 65535",
    "LOCAL_RANK=first": "LOCAL_RANK='first'",
    "WORLD_SIZE=2 RANK=0 MASTER_ADDR=no.such.host.invalid MASTER_PORT=2222": "processes cannot connect to each other",
}


@pytest.mark.parametrize("case", WRONG)
def test_variables_of_launchers(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for word in case.split():
        monkeypatch.setenv(*word.split("=", 1))
    if "no.such.host" in case:
        monkeypatch.setattr("electra.runtime.setup.dist.init_process_group", no_host)
    with pytest.raises(UsageError) as raised, start_runtime(RuntimeConfig(device="cpu")):
        pass
    refused(raised.value, WRONG[case])


def no_host(backend: str) -> None:
    """As torch does, after its timeout."""
    raise electra.runtime.setup.dist.DistNetworkError("The client socket has failed to connect\nto any network address")


def test_variables_that_are_empty_are_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    assert read_launch_variables() == (0, 1, 0)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )


def test_a_rank_that_is_no_number_silences_nothing() -> None:
    done = python(
        "import logging; from electra.console import show_log; show_log(); logging.getLogger('electra.x').info('here')",
        RANK="x",
    )
    assert (done.returncode, done.stdout) == (0, "· here\n"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["moon", "module://nowhere.backend", "TkAgg", ""])
def test_a_foreign_backend_of_pictures(backend: str, tmp_path: Path) -> None:
    code = (
        "import os; from electra.plotting import Figure; figure = Figure(); figure.subplots().plot([1, 2]); "
        "figure.savefig(os.environ['OUT'], format='png'); print(os.environ['MPLBACKEND'])"
    )
    done = python(code, MPLBACKEND=backend, OUT=str(tmp_path / "a.png"))
    assert (done.returncode, done.stdout.strip()) == (0, backend), done.stderr
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_only_drawing_imports_matplotlib() -> None:
    package = Path(electra.__file__).parent
    found = {
        path.name
        for path in package.rglob("*.py")
        if "from matplotlib" in path.read_text() or "import matplotlib" in path.read_text()
    }
    assert found == {"plotting.py"}
