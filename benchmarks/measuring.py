"""What the benchmarks share: sides that take turns, processes of their own, peak memory, marks, and the JSON with its origin.

A benchmark is `main(argv)` in a file of this folder. It prints a table and its marks, says which of them it misses, and
writes a JSON file to the folder `--out`.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

Given = TypeVar("Given")
HERE = Path(__file__).parent
CODE = (":/src", ":/benchmarks", ":!results", ":/pyproject.toml", ":/constraints.txt")
"""What a measurement depends on, in git's words."""
PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "onnxruntime")


def options(description: str) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has; the first line of `description` is its help."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side, of which the median counts")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for the JSON file")
    return parser


def interleaved(sides: Mapping[str, Callable[[], Given]], rounds: int, warm_up: int = 1) -> dict[str, list[Given]]:
    """What each side returns, round by round. They take turns, so that other work on the machine hits all alike.

    The first `warm_up` rounds are not kept.
    """
    kept: dict[str, list[Given]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        for name, side in sides.items():
            value = side()
            if number >= warm_up:
                kept[name].append(value)
    return kept


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """The median over the rounds of the quotient of two sides: what slows a round down slows both of its sides."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


@dataclass(frozen=True)
class Mark:
    """A number that a benchmark is to reach."""

    what: str
    """What was measured, with its unit."""
    value: float
    bound: float
    """The least that will do; with `at_most`, the most."""
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def __str__(self) -> str:
        relation = "at most" if self.at_most else "at least"
        return f"{self.what}: {self.value:,.3g} ({relation} {self.bound:,.3g}){'' if self.met else '   MARK MISSED'}"


def report(name: str, out: Path, marks: Iterable[Mark], result: Mapping[str, Any], threads: int | None = None) -> None:
    """Print the marks, and write everything with machine, versions and commit to `out`/`name`.json."""
    marks = list(marks)
    print("\n".join(map(str, marks)) if marks else "no mark is set for these sizes on this device")
    whole = {
        **environment(),
        **({"threads": threads} if threads else {}),
        **result,
        "marks": [asdict(mark) | {"met": mark.met} for mark in marks],
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(whole, indent=2) + "\n")


def environment() -> dict[str, Any]:
    """The machine, the versions of what takes part, and the commit, with a plus if files of it were changed."""
    import torch

    import electra
    from electra.runtime.setup import get_cpu_name

    versions = {"python": platform.python_version(), "electra": electra.__version__}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {"machine": get_cpu_name(), **gpu, "versions": versions, "commit": commit()}


def commit() -> str | None:
    """Of this folder, "+" behind it if code or its dependencies were changed since; None outside a repository."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *CODE)
        return git("rev-parse", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None


def in_own_process(script: str, arguments: Iterable[object]) -> dict[str, Any]:
    """Run a script of this folder; returns the JSON on the last line that it prints.

    Raises:
        RuntimeError: it failed; the message is the end of what it wrote.
    """
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def turns_of(script: str, arguments: Iterable[object]) -> Iterator[Callable[[], dict[str, Any]]]:
    """A script of this folder in a process of its own, kept for many turns; each call of what it yields gives the JSON of one.

    What one side does to memory (what it frees, the next one has to get from the system again) then slows no other side down.
    The script gives an `answer` each time it is `asked`.

    Raises:
        RuntimeError: when called, the script has ended; the message is the end of what it wrote.
    """
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    with (
        tempfile.TemporaryFile("w+") as errors,  # not a pipe: nobody reads while it writes
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):

        def turn() -> dict[str, Any]:
            with suppress(BrokenPipeError):
                print(flush=True, file=process.stdin)
            said = process.stdout.readline()
            if said:
                return json.loads(said)
            process.wait()
            errors.seek(0)
            raise RuntimeError(f"{script} ended:\n{errors.read()[-2000:]}")

        try:
            yield turn
        except BaseException:
            process.terminate()
            raise
        finally:  # it ends by itself when nothing more is asked
            with suppress(BrokenPipeError):
                process.stdin.close()


def asked() -> Iterator[None]:
    """Comes up with something whenever `turns_of`, in the process that started this one, asks for a turn."""
    for _ in sys.stdin:
        yield


def answer(given: Mapping[str, Any]) -> None:
    """What the turn gave."""
    print(json.dumps(given), flush=True)


def peak_memory() -> int:
    """Bytes of main memory that this process had at most, with all that it imported.

    Linux tells it of the process alone; what `getrusage` says there began with the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
