"""Processes of one run that differ: all of them end with the same line, and nothing is trained."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import TIMEOUT, Holder
from support.toy import TINY_RUN

import electra
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
    run.start_runtime = lambda config: nullcontext(runtime)  # a process group is joined once
    for name, options in json.loads(file.read_text().replace("RANK", rank)).items():
        try:
            folder = file.parent / options.pop("folder", "")
            os.chdir(folder)
            run.make_paths_absolute = lambda config: config
            electra.pretrain(**options)
            said = "it ended well"
        except electra.ElectraError as error:
            said = f"{type(error).__name__}: {error}"
        file.with_name(f"{name}-{rank}.said").write_text(said)
"""
"""Trains by each of several lists of options. Where relative paths have a folder for each process, they are hosts apart."""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, text: Path) -> dict[str, list[str]]:
    """What each of two processes is told, by what is different for them. RANK is the number of the process."""
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
        "options": {**TINY_RUN, "text": "text", "out": "new", "seed": "RANK"},
        "damaged": apart | {"text": "text", "out": "damaged"},
        "used": {**TINY_RUN, "text": "text", "out": "used"},
        "absent": {**TINY_RUN, "text": "absent", "out": "new"},
        "alike": {**TINY_RUN, "text": "text", "out": "new", "steps": 2},
    }
    (place / "scenarios.json").write_text(json.dumps(scenarios).replace('"RANK"', "RANK"))
    (place / "script.py").write_text(SCRIPT)
    holder = Holder(place / "used", place / "used" / LOCK)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, str(place / "script.py"), str(place / "scenarios.json")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    finally:
        holder.end()
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: [(place / f"{name}-{rank}.said").read_text() for rank in (0, 1)] for name in scenarios}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "parts"),
    [
        ("lost", ["RunError: the newest checkpoint is step-00000012 in process 0 on ", ", none in process 1 on "]),
        ("over", ["RunError: a finished run in --out is True in process 0 on ", ", False in process 1 on "]),
        ("broken", ["RunError: the step to resume from is 12 in process 0 on ", ", 8 in process 1 on "]),
        ("data", ["RunError: the prepared data is ", "all processes need the same options, data and run directory"]),
        ("text", ["TextError: ", "text: cannot be read: No such file or directory"]),
        ("options", ["RunError: --seed is 0 in process 0 on ", ", 1 in process 1 on "]),
        ("damaged", ["RunError: ", "damaged/summary.json:1: not JSON"]),
        ("used", ["RunError: used: in use by process "]),
        ("absent", ["TextError: absent: cannot be read: No such file or directory"]),
        ("alike", ["it ended well"]),
    ],
)
def test_all_processes_report_the_same_error(said: dict[str, list[str]], scenario: str, parts: list[str]) -> None:
    main, other = said[scenario]
    assert main.replace("process 1: ", "") == other
    for part in parts:
        assert part in other
    assert main.startswith(parts[0])
