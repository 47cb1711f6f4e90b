"""Processes of one run with different options or files: all of them raise the same error before training starts."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.errors import check_error
from support.processes import TIMEOUT, Holder
from support.toy import TINY_RUN

import electra
from electra import errors
from electra.errors import ElectraError
from electra.storage import LOCK

SCRIPT = """
import json, os, sys
from contextlib import nullcontext
from pathlib import Path
import electra
from electra.pretraining import run
from electra.runtime.setup import RuntimeConfig, start_runtime
file, rank = Path(sys.argv[1]), os.environ["RANK"]
with start_runtime(RuntimeConfig()) as runtime:
    run.start_runtime = lambda config: nullcontext(runtime)  # a process group can be joined only once
    for name, options in json.loads(file.read_text().replace("RANK", rank)).items():
        try:
            folder = file.parent / options.pop("folder", "")
            os.chdir(folder)
            run.make_paths_absolute = lambda config: config
            electra.pretrain(**options)
            raised = None
        except electra.ElectraError as error:
            raised = [type(error).__name__, error.code, str(error)]
        file.with_name(f"{name}-{rank}.json").write_text(json.dumps(raised))
"""
"""Trains with each of several sets of options and writes the error of each. Processes on different hosts, whose files differ,
are simulated by working directories of their own."""


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory, text: Path) -> dict[str, list[ElectraError | None]]:
    """The errors of two processes by scenario. In options, RANK is the rank of the process."""
    place = tmp_path_factory.mktemp("alike")
    for host in ("host-0", "host-1"):
        (place / host).mkdir()
    first, second = place / "host-0", place / "host-1"
    electra.pretrain(str(text), out=str(first / "over"), **TINY_RUN)
    for name, left_out in (("over", "summary.json"), ("lost", "checkpoints"), ("broken", "nothing")):
        shutil.copytree(first / "over", second / name, ignore=shutil.ignore_patterns(left_out))
        if name != "over":
            shutil.copytree(first / "over", first / name)
            for host in (first, second):
                (host / name / "summary.json").unlink()
                config = (host / name / "config.yaml").read_text()
                (host / name / "config.yaml").write_text(config.replace(str(text), "gone"))
    (second / "broken/checkpoints/step-00000012/model.safetensors").write_bytes(b"")
    for host, source in ((first, "a.txt"), (second, "b.txt")):
        words = ["prepare", str(text / source), "--tokenizer", str(first / "over/tokenizer"), "--seq-len", "24"]
        electra.cli.main([*words, "--out", str(host / "data"), "--workers", "1"])
    for host in (first, second):
        shutil.copytree(first / "over", host / "damaged")
    (second / "damaged/summary.json").write_text("{")
    shutil.copytree(text, first / "text")
    shutil.copytree(text, place / "text")
    apart = {**TINY_RUN, "folder": "host-RANK"}
    scenarios = {
        "lost": apart | {"text": "gone", "out": "lost"},
        "over": apart | {"text": "text", "out": "over"},
        "broken": apart | {"text": "gone", "out": "broken"},
        "data": apart | {"data": "data", "out": "other-data"},
        "text": apart | {"text": "text", "out": "no-text"},
        "options": {**TINY_RUN, "text": "text", "out": "new", "seed": "7RANK"},
        "damaged": apart | {"text": "text", "out": "damaged"},
        "used": {**TINY_RUN, "text": "text", "out": "used"},
        "absent": {**TINY_RUN, "text": "absent", "out": "new"},
        "alike": {**TINY_RUN, "text": "text", "out": "new", "steps": 2},
    }
    (place / "scenarios.json").write_text(json.dumps(scenarios).replace('"7RANK"', "7RANK"))
    (place / "script.py").write_text(SCRIPT)
    holder = Holder(place / "used", place / "used" / LOCK)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, str(place / "script.py"), str(place / "scenarios.json")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    finally:
        holder.end()
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: [read_error(place / f"{name}-{rank}.json") for rank in (0, 1)] for name in scenarios}


def read_error(file: Path) -> ElectraError | None:
    """Read an error that SCRIPT wrote; None if there was none."""
    if (raised := json.loads(file.read_text())) is None:
        return None
    kind, code, message = raised
    return getattr(errors, kind)(code, message)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "kind", "code", "values"),
    [
        ("lost", errors.RunError, "processes-differ", ["checkpoint", "step-00000012", "none"]),
        ("over", errors.RunError, "processes-differ", ["--out", "True", "False"]),
        ("broken", errors.RunError, "processes-differ", ["step", " 12 ", " 8 "]),
        ("data", errors.RunError, "processes-differ", ["prepared data"]),
        ("text", errors.TextError, "missing", ["text: ", os.strerror(errno.ENOENT)]),
        ("options", errors.RunError, "processes-differ", ["--seed", " 70 ", " 71 "]),
        ("damaged", errors.RunError, "not-json", ["damaged/summary.json:1"]),
        ("used", errors.RunError, "in-use", ["used: "]),
        ("absent", errors.TextError, "missing", ["absent: ", os.strerror(errno.ENOENT)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_all_processes_raise_the_same_error(
    raised: dict[str, list[ElectraError | None]],
    scenario: str,
    kind: type[ElectraError],
    code: str,
    values: list[str],
) -> None:
    main, other = raised[scenario]
    check_error(main, kind, code, *values)
    check_error(other, kind, code, *values)
    assert re.search(".*".join(map(re.escape, values)), str(main)), "in the order of the processes"
    assert str(main).replace("process 1: ", "") == str(other)
    assert str(main).startswith("process 1: ") == (scenario in ("text", "damaged"))


@pytest.mark.slow
def test_equal_processes_raise_no_error(raised: dict[str, list[ElectraError | None]]) -> None:
    assert raised["alike"] == [None, None]
