"""Numbers that are too large or not finite, in all options; and invalid environment variables."""

import dataclasses
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest
from support.damage import check_short_error
from support.errors import check_error, fails, raises
from support.toy_tasks import toy_tokenizer

import electra
from electra.config.resolve import resolve
from electra.config.suggestions import format_flag
from electra.errors import UsageError
from electra.finetuning.config import FinetuneConfig, build_finetune_config
from electra.inference.config import build_predict_config
from electra.pretraining.config import BUDGETS, PretrainConfig
from electra.runtime.setup import RuntimeConfig, read_launch_variables, start_runtime

HUGE = {"NaN": math.nan, "infinite": math.inf, "minus infinite": -math.inf, "1e300": 1e300, "-1e300": -1e300}
WHOLE = {"10^20": 10**20, "10^400": 10**400, "-10^400": -(10**400)}


def numbers(config: type, prefix: str = "") -> Iterator[tuple[str, type]]:
    """Yield the numeric options of a configuration, with dotted names, and their types."""
    for name, kind in get_type_hints(config).items():
        if dataclasses.is_dataclass(kind):
            yield from numbers(kind, f"{prefix}{name}.")
        elif kind in (int, int | None):
            yield prefix + name, int
        elif kind in (float, float | None):
            yield prefix + name, float


NUMBER_CODES = ("out-of-range", "not-finite")
PRETRAIN, FINETUNE = dict(numbers(PretrainConfig)), dict(numbers(FinetuneConfig))


def test_numeric_options_are_found() -> None:
    assert {"steps", "model.hidden_size", "optimizer.learning_rate", "generator.temperature"} < set(PRETRAIN)
    assert {"epochs", "layerwise_decay", "span.beam_size"} < set(FINETUNE)


@pytest.mark.parametrize("name", PRETRAIN)
def test_pretraining_options_reject_extreme_numbers(name: str) -> None:
    for value in (HUGE if PRETRAIN[name] is float else WHOLE).values():
        if name == "optimizer.clip_norm" and value > 0:
            continue  # infinity means no clipping
        with pytest.raises(UsageError) as raised:
            resolve(PretrainConfig(), {}, {name: value}, alternatives=BUDGETS)
        assert raised.value.code in NUMBER_CODES, repr(raised.value)
        check_short_error(raised.value, format_flag(name) if "--" in str(raised.value) else name)


@pytest.mark.parametrize("name", [name for name in FINETUNE if name != "span.max_length"])
def test_finetuning_options_reject_extreme_numbers(name: str) -> None:
    for value in (HUGE if FINETUNE[name] is float else WHOLE).values():
        if name == "span.null_threshold" and not math.isnan(value):
            continue  # infinity means always an answer, or never
        with pytest.raises(UsageError) as raised:
            build_finetune_config("rte", {"model": "m", "data": "d", name: value})
        assert raised.value.code in NUMBER_CODES, repr(raised.value)
        last = name.rpartition(".")[2]
        assert last in str(raised.value) or last.replace("_", "-") in str(raised.value)
        check_short_error(raised.value, "")


def test_null_threshold_of_predict_may_be_infinite() -> None:
    with raises(UsageError, "not-finite", "--null-threshold", "nan"):
        build_predict_config({"null_threshold": math.nan})
    assert build_predict_config({"null_threshold": -math.inf}).null_threshold == -math.inf


@pytest.mark.parametrize(
    ("words", "code", "values"),
    [
        ("finetune rte --model m --data d --layerwise-decay 1e300", "out-of-range", "layerwise-decay"),
        ("finetune rte --model m --data d --learning-rate nan", "not-finite", "--learning-rate nan"),
        ("finetune rte --model m --data d --epochs inf", "not-finite", "--epochs inf"),
        ("pretrain a --optimizer.learning-rate 1e400", "not-finite", "--optimizer.learning-rate inf"),
        ("pretrain a --hours inf", "not-finite", "--hours inf"),
        ("pretrain a --steps " + "9" * 30, "out-of-range", "--steps"),
        ("pretrain a --steps " + "9" * 5000, "wrong-type", "--steps int"),
        ("pretrain a --seed " + "9" * 5000, "wrong-type", "--seed int"),
        ("pretrain a --model.num-layers 1e7", "out-of-range", "--model.num-layers 10,000"),
        ("pretrain a --model.hidden-size 1e10", "out-of-range", "--model.hidden-size"),
        ("pretrain a --loss-weight -inf", "not-finite", "--loss-weight -inf"),
        ("tokenizer a.txt --vocab-size 1000000000000", "out-of-range", "1000000000000"),
        ("prepare a.txt --tokenizer t --seq-len " + "9" * 30, "out-of-range", "--seq-len"),
        ("prepare a.txt --tokenizer t --workers 1e9", "out-of-range", "--workers"),
        ("study objectives --data a --seeds 1e9", "out-of-range", "--seeds"),
        ("study objectives --data a --hours inf", "not-finite", "--hours inf"),
    ],
)
def test_command_lines_reject_extreme_numbers(
    words: str, code: str, values: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("the cat sees mice .\n\n")
    toy_tokenizer().save(Path("t"))
    error = fails([*words.split(), "--out", tmp_path / "out"], code, *values.split())
    assert len(str(error)) < 6000
    assert not (tmp_path / "out").exists()


VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
WRONG: dict[str, tuple[str, list[str]]] = {
    "RANK=x": ("not-integer", ["RANK='x'"]),
    "RANK=-1": ("not-integer", ["RANK='-1'"]),
    "RANK=1.5": ("not-integer", ["RANK='1.5'"]),
    "RANK=٣": ("not-integer", ["RANK='٣'"]),
    "RANK=" + "9" * 5000: ("not-integer", ["RANK='999"]),
    "RANK=1": ("wrong-rank", ["RANK is 1 ", "WORLD_SIZE is 1,"]),
    "RANK=2 WORLD_SIZE=2": ("wrong-rank", ["RANK is 2 ", "WORLD_SIZE is 2,"]),
    "WORLD_SIZE=0": ("wrong-rank", ["WORLD_SIZE is 0,"]),
    "WORLD_SIZE=x": ("not-integer", ["WORLD_SIZE='x'"]),
    "WORLD_SIZE=2": ("missing-variable", ["WORLD_SIZE is 2,", " RANK ", "torchrun"]),
    "WORLD_SIZE=2 RANK=0": ("missing-variable", [" MASTER_ADDR "]),
    "WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1": ("missing-variable", [" MASTER_PORT "]),
    "WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=x": ("not-integer", ["MASTER_PORT='x'"]),
    "WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=70000": ("wrong-port", ["MASTER_PORT", " 70000,", "65535"]),
    "LOCAL_RANK=first": ("not-integer", ["LOCAL_RANK='first'"]),
    "WORLD_SIZE=2 RANK=0 MASTER_ADDR=no.such.host.invalid MASTER_PORT=2222": ("no-connection", [" 2 "]),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_launch_variables_are_rejected(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for word in case.split():
        monkeypatch.setenv(*word.split("=", 1))
    if "no.such.host" in case:
        monkeypatch.setattr("electra.runtime.setup.dist.init_process_group", raise_network_error)
    with pytest.raises(UsageError) as raised, start_runtime(RuntimeConfig(device="cpu")):
        pass
    code, values = WRONG[case]
    check_error(raised.value, UsageError, code, *values)
    assert len(str(raised.value)) < 900


def raise_network_error(backend: str) -> None:
    """Raise the error that torch raises after its timeout."""
    raise electra.runtime.setup.dist.DistNetworkError("The client socket has failed to connect\nto any network address")


def test_empty_launch_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    assert read_launch_variables() == (0, 1, 0)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in another process, with additional environment variables."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )


def test_messages_are_shown_when_rank_is_not_a_number() -> None:
    done = run_python(
        "import logging; from electra.console import show_log; show_log(); logging.getLogger('electra.x').info('here')",
        RANK="x",
    )
    assert (done.returncode, done.stdout) == (0, "· here\n"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["moon", "module://nowhere.backend", "TkAgg", ""])
def test_plots_do_not_depend_on_the_matplotlib_backend(backend: str, tmp_path: Path) -> None:
    code = (
        "import os; from electra.plotting import Figure; figure = Figure(); figure.subplots().plot([1, 2]); "
        "figure.savefig(os.environ['OUT'], format='png'); print(os.environ['MPLBACKEND'])"
    )
    done = run_python(code, MPLBACKEND=backend, OUT=str(tmp_path / "a.png"))
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
