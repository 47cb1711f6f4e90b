"""Kill commands with SIGKILL at random moments, start them again until they are done, compare with an undisturbed run.

    python tests/kill/driver.py --kills 100 --seed 0

Kills are spread evenly over the stages of every command. Of a stage that has just begun, the moment is uniform over the
time that the undisturbed run spent in it. Each command is a fork of this process, which has imported everything, and calls
`electra.cli.main`: the second and more that imports take, in which nothing is written, would take most of the kills. All
that the last process leaves is compared byte for byte, except for clocks and what is in IGNORED. Exits with 1 if anything
differs.
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
    "report.html": "it has the minutes that a run took, and the curve of its speed",
    "pictures": "likewise",
}
"""By name, the files and folders that are not compared, and why. Hidden ones are not results."""
IMPORTED = (
    "electra.commands.pretraining",
    "electra.finetuning.benchmark.grid",
    "electra.pretraining.run",
    "electra.inference.predict",
    "matplotlib.pyplot",
    "torch.utils.tensorboard",
)
"""What is imported once, before the first fork. Nothing is computed: threads do not survive a fork."""
LOOK_EVERY = 0.002
ATTEMPTS = 10
"""Runs for each kill that is planned: a stage that is short may end before its kill."""
TIMEOUT = 600
"""Seconds after which a command is taken to hang."""


@dataclass
class Command:
    """A command, and how its stages are told apart: by the first file that a stage finds there."""

    name: str
    words: list[str]
    stages: dict[str, str]
    """By a stage's name, a pattern of a path in the output directory; the first stage has none."""
    durations: dict[str, float] = field(default_factory=dict)
    """Seconds of each stage, undisturbed."""

    def stage(self, out: Path) -> str:
        """The stage that a command was in, by what it has written."""
        reached = [name for name, pattern in self.stages.items() if not pattern or any(out.glob(pattern))]
        return reached[-1]


def commands(folder: Path) -> list[Command]:
    """All commands, on toy inputs in `folder`."""
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
    """A command that runs."""

    def __init__(self, command: Command, out: Path) -> None:
        self.out = out
        self.log = out.parent / "log.txt"
        to = out / "predictions.jsonl" if command.name == "predict" else out
        self.pid = os.fork()
        if self.pid == 0:
            self.work([*command.words, "--out", str(to)])

    def work(self, words: list[str]) -> None:
        """Run the command in this process, and end it."""
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

    def ended(self) -> bool:
        """Whether it has ended; a failure of it ends the driver."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid and status:
            sys.exit(f"a command failed (status {status}):\n{self.log.read_text()}")
        return pid != 0

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def wait(process: Process, seconds: float = TIMEOUT) -> bool:
    """Wait for the end of a process, or for some time; says whether it has ended."""
    end = time.monotonic() + seconds
    while not (ended := process.ended()) and time.monotonic() < end:
        time.sleep(LOOK_EVERY)
    if not ended and seconds == TIMEOUT:
        process.kill()
        sys.exit(f"a command has not ended after {TIMEOUT} s:\n{process.log.read_text()}")
    return ended


def undisturbed(command: Command, out: Path) -> dict[str, Any]:
    """What a command leaves; notes how long its stages take."""
    process, stage, since = Process(command, out), next(iter(command.stages)), time.monotonic()
    ended = False
    while not ended:
        ended = process.ended()
        now = stage if ended else command.stage(out)
        if now != stage or ended:
            command.durations[stage] = time.monotonic() - since
            stage, since = now, time.monotonic()
        time.sleep(LOOK_EVERY)
    return results(out)


def kill_in(command: Command, stage: str, out: Path, draw: random.Random) -> str | None:
    """Start a command and kill it in a stage, if it gets there; returns the stage it was in, or None if it has ended."""
    process = Process(command, out)
    names = list(command.stages)
    end = time.monotonic() + TIMEOUT
    while names.index(command.stage(out)) < names.index(stage):
        if process.ended():
            return None
        assert time.monotonic() < end, process.log.read_text()
        time.sleep(LOOK_EVERY)
    if wait(process, draw.uniform(0, command.durations.get(stage, 0.1))):
        return None
    found = command.stage(out)
    process.kill()
    return found


def disturbed(command: Command, left: Counter[str], out: Path, draw: random.Random) -> tuple[list[str], dict[str, Any]]:
    """Kill a command up to five times, each time in a stage that has kills left; then let it end, whatever remains."""
    killed: list[str] = []
    names = list(command.stages)
    for _ in range(draw.randint(1, 5)):
        ahead = [name for name in names[names.index(command.stage(out)) if out.exists() else 0 :] if left[name] > 0]
        if not ahead:
            break
        wanted = draw.choice(ahead)
        found = kill_in(command, wanted, out, draw)
        if found is None:
            return killed, results(out)
        killed.append(found)
        left[wanted] -= 1
    wait(Process(command, out))
    return killed, results(out)


def results(out: Path) -> dict[str, Any]:
    """The content of all files but those that are ignored; of JSON without clocks."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file()]
    shown = [path for path in paths if not any(p in IGNORED or p.startswith(".") for p in path.relative_to(out).parts)]
    return {str(path.relative_to(out)): content(path) for path in shown}


def content(path: Path) -> Any:
    """Bytes, or JSON without clocks."""
    if path.name == "README.md":  # a model card, with the time that training took
        return re.sub(r"\d+ min \d+ s", "", path.read_text())
    if path.suffix not in (".json", ".jsonl"):
        return path.read_bytes()
    rows = [
        without_clocks(json.loads(line)) for line in ([path.read_text()] if path.suffix == ".json" else lines(path))
    ]
    if path.name == "state.json":  # a checkpoint's, with a checksum of itself, clock included
        rows[0].pop("sha256")
    return rows


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def without_clocks(value: Any) -> Any:
    """JSON without the keys in CLOCKS, wherever they are."""
    if isinstance(value, dict):
        return {key: without_clocks(each) for key, each in value.items() if key not in CLOCKS}
    return [without_clocks(each) for each in value] if isinstance(value, list) else value


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The files that are not the same."""
    return [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs in all")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
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
        wait(Process(every[2], folder / "tuned"))  # the model that predicts
        for command in every:
            left = Counter({stage: planned[command.name, stage] for stage in command.stages})
            if not sum(left.values()):
                continue
            out = folder / "out"  # always the same: paths are among what is written
            expected = undisturbed(command, out)
            shutil.rmtree(out)
            for _ in range(ATTEMPTS * sum(left.values())):
                if not any(left.values()):
                    break
                killed, found = disturbed(command, left, out, draw)
                different = differing(expected, found)
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
