"""Kill commands with SIGKILL at random times, restart them until they finish, and compare with an uninterrupted run.

    python tests/kill/driver.py --kills 100 --seed 0

Kills are distributed evenly over the stages of all commands. Within a stage, the time is uniform over the duration of the
stage in the uninterrupted run. Each command calls `electra.cli.main` in a fork of this process, which has imported everything:
most kills would otherwise happen during imports, which take a second or more and write nothing. All files that the last process
leaves are compared byte for byte, except for clocks and the files in IGNORED. The exit status is 1 if anything differs.
"""

import argparse
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import yaml
from support import toy_tasks
from support.toy import TINY_RUN, sentences

from electra import cli

CLOCKS = ("seconds", "tokens_per_second", "flops_per_second", "mfu")
"""Keys of JSON objects that depend on the time a run takes."""
IGNORED = {
    "events": "TensorBoard's files have time stamps",
    "report.html": "contains the duration of the run and the curve of its speed",
    "pictures": "contain the curve of the speed",
}
"""Files and folders that are not compared, with the reasons. Hidden ones are not compared either."""
IMPORTED = (
    "electra.commands.pretraining",
    "electra.finetuning.benchmark.grid",
    "electra.pretraining.run",
    "electra.inference.predict",
    "matplotlib.pyplot",
    "torch.utils.tensorboard",
)
"""Modules to import once, before the first fork. Nothing is computed before it, because threads do not survive a fork."""
LOOK_EVERY = 0.002
ATTEMPTS = 10
"""Maximum number of runs per planned kill: a short stage can end before its kill."""
TIMEOUT = 600
"""Seconds after which a command counts as hanging."""


@dataclass
class Command:
    """A command and its stages, which are recognized by the files of earlier stages."""

    name: str
    words: list[str]
    stages: dict[str, str]
    """Name of a stage -> pattern of a path in the output directory that exists when it starts; empty for the first stage."""
    durations: dict[str, float] = field(default_factory=dict)
    """Seconds of each stage in the uninterrupted run."""

    def stage(self, out: Path) -> str:
        """Return the current stage of a command by the files that it has written."""
        reached = [name for name, pattern in self.stages.items() if not pattern or any(out.glob(pattern))]
        return reached[-1]


def commands(folder: Path) -> list[Command]:
    """Build all commands, with toy inputs in `folder`."""
    (folder / "text.txt").write_text(sentences(8_000))
    run = TINY_RUN | {"text": [str(folder / "text.txt")], "steps": 24}
    (folder / "joint.yaml").write_text(yaml.safe_dump(run))
    (folder / "stages.yaml").write_text(yaml.safe_dump(run | {"procedure": "two-stage-scratch"}))
    toy_tasks.save_model(folder / "model")
    toy_tasks.write_glue(folder / "glue", rows=256)
    (folder / "lines.txt").write_text("the cat is good .\nthe dog is bad .\n" * 4_000)
    tuning = ["--model", f"{folder}/model", "--data", f"{folder}/glue", "--epochs", "2"]
    start = {"starting": "", "tokenizer": "config.yaml", "preparing": "tokenizer/tokenizer.json"}
    return [
        Command(
            "pretrain",
            ["pretrain", "--config", f"{folder}/joint.yaml"],
            {**start, "training": "data/manifest.json", "evaluation and export": "checkpoints/step-00000024"},
        ),
        Command(
            "pretrain, two stages",
            ["pretrain", "--config", f"{folder}/stages.yaml"],
            {
                **start,
                "generator": "data/manifest.json",
                "discriminator": "first-stage/summary.json",
                "evaluation and export": "checkpoints/step-00000012",
            },
        ),
        Command(
            "finetune",
            ["finetune", "sst2", *tuning, "--seeds", "2"],
            {
                "starting": "",
                "training": "seed-0/config.yaml",
                "scoring and export": "seed-0/checkpoints/step-*",
                "second seed": "seed-0/results.json",
            },
        ),
        Command(
            "glue",
            ["glue", "--tasks", "sst2", "stsb", *tuning, "--seeds", "1"],
            {"starting": "", "first task": "sst2/seed-0/config.yaml", "second task": "sst2/results.json"},
        ),
        Command(
            "predict",
            ["predict", "--model", f"{folder}/tuned/seed-0/model", "--input", f"{folder}/lines.txt"],
            {"starting": "", "predicting": ".predictions.jsonl.partial"},
        ),
    ]


class Process:
    """A running command."""

    def __init__(self, command: Command, out: Path) -> None:
        self.out = out
        self.log = out.parent / "log.txt"
        to = out / "predictions.jsonl" if command.name == "predict" else out
        self.pid = os.fork()
        if self.pid == 0:
            self.work([*command.words, "--out", str(to)])

    def work(self, words: list[str]) -> None:
        """Run the command in this process, and exit."""
        status = 1
        try:
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            cli.main(words)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def has_ended(self) -> bool:
        """Whether it has ended; if it failed, the driver exits."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid and status:
            sys.exit(f"a command failed (status {status}):\n{self.log.read_text()}")
        return pid != 0

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def wait(process: Process, seconds: float = TIMEOUT) -> bool:
    """Wait until a process ends, at most some seconds; returns whether it has ended."""
    end = time.monotonic() + seconds
    while not (ended := process.has_ended()) and time.monotonic() < end:
        time.sleep(LOOK_EVERY)
    if not ended and seconds == TIMEOUT:
        process.kill()
        sys.exit(f"a command has not ended after {TIMEOUT} s:\n{process.log.read_text()}")
    return ended


def run_uninterrupted(command: Command, out: Path) -> dict[str, Any]:
    """Run a command and measure the durations of its stages; returns its results."""
    process, stage, since = Process(command, out), next(iter(command.stages)), time.monotonic()
    ended = False
    while not ended:
        ended = process.has_ended()
        now = stage if ended else command.stage(out)
        if now != stage or ended:
            command.durations[stage] = time.monotonic() - since
            stage, since = now, time.monotonic()
        time.sleep(LOOK_EVERY)
    return read_results(out)


def kill_in(command: Command, stage: str, out: Path, draw: random.Random) -> str | None:
    """Start a command and kill it in a stage; returns the stage in which it was killed, or None if it ended before."""
    process = Process(command, out)
    names = list(command.stages)
    end = time.monotonic() + TIMEOUT
    while names.index(command.stage(out)) < names.index(stage):
        if process.has_ended():
            return None
        assert time.monotonic() < end, process.log.read_text()
        time.sleep(LOOK_EVERY)
    if wait(process, draw.uniform(0, command.durations.get(stage, 0.1))):
        return None
    found = command.stage(out)
    process.kill()
    return found


def run_with_kills(
    command: Command, left: Counter[str], out: Path, draw: random.Random
) -> tuple[list[str], dict[str, Any]]:
    """Kill a command up to five times in stages that have kills left, then let it finish; returns these stages and its results."""
    killed: list[str] = []
    names = list(command.stages)
    for _ in range(draw.randint(1, 5)):
        ahead = [name for name in names[names.index(command.stage(out)) if out.exists() else 0 :] if left[name] > 0]
        if not ahead:
            break
        target = draw.choice(ahead)
        found = kill_in(command, target, out, draw)
        if found is None:
            return killed, read_results(out)
        killed.append(found)
        left[target] -= 1
    wait(Process(command, out))
    return killed, read_results(out)


def read_results(out: Path) -> dict[str, Any]:
    """Read all files that are not ignored; JSON without clocks."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file()]
    shown = [path for path in paths if not any(p in IGNORED or p.startswith(".") for p in path.relative_to(out).parts)]
    return {str(path.relative_to(out)): read_content(path) for path in shown}


def read_content(path: Path) -> Any:
    """Read a file as bytes, or as JSON without clocks."""
    if path.name == "README.md":  # a model card contains the duration of training
        return re.sub(r"\d+ min \d+ s", "", path.read_text())
    if path.suffix not in (".json", ".jsonl"):
        return path.read_bytes()
    rows = [
        remove_clocks(json.loads(line))
        for line in ([path.read_text()] if path.suffix == ".json" else path.read_text().splitlines())
    ]
    if path.name == "state.json":  # of a checkpoint; its checksum depends on its clock
        rows[0].pop("sha256")
    return rows


def remove_clocks(value: Any) -> Any:
    """Remove the keys in CLOCKS from JSON at any depth."""
    if isinstance(value, dict):
        return {key: remove_clocks(each) for key, each in value.items() if key not in CLOCKS}
    return [remove_clocks(each) for each in value] if isinstance(value, list) else value


def find_differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Return the names of files that differ."""
    return [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="number of kills")
    parser.add_argument("--seed", type=int, default=0, help="seed of the times of the kills")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    for module in IMPORTED:
        importlib.import_module(module)
    total, same, wrong = Counter[tuple[str, str]](), Counter[tuple[str, str]](), []
    with tempfile.TemporaryDirectory(prefix="electra-kill-") as temporary:
        folder = Path(temporary)
        every = commands(folder)
        slots = [(command.name, stage) for command in every for stage in command.stages]
        shuffled = draw.sample(slots, len(slots))
        planned = Counter(shuffled[i % len(slots)] for i in range(options.kills))
        wait(Process(every[2], folder / "tuned"))  # the model of predict
        for command in every:
            left = Counter({stage: planned[command.name, stage] for stage in command.stages})
            if not sum(left.values()):
                continue
            out = folder / "out"  # always the same path, because results contain it
            expected = run_uninterrupted(command, out)
            shutil.rmtree(out)
            for _ in range(ATTEMPTS * sum(left.values())):
                if not any(left.values()):
                    break
                killed, found = run_with_kills(command, left, out, draw)
                different = find_differences(expected, found)
                for stage in killed:
                    total[command.name, stage] += 1
                    same[command.name, stage] += not different
                if different:
                    wrong.append(f"{command.name}, killed in {', '.join(killed)}: {', '.join(different)} differ")
                shutil.rmtree(out)
            if missing := sum(left.values()):
                wrong.append(f"{command.name}: {missing} kills never reached their stage")
            print(f"{command.name}: {len(expected)} files compared", flush=True)
    print("\n| command | stage | kills | identical |\n|---|---|---|---|")
    for name, stage in slots:
        print(f"| {name} | {stage} | {total[name, stage]} | {same[name, stage]} |")
    print(f"| all | | {sum(total.values())} | {sum(same.values())} |")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
