"""Shared code of the benchmarks: interleaved measurements, separate processes, peak memory, targets, and the JSON result.

A benchmark is `main(argv)` in a file of this folder. It prints a table and its targets (marks), with those that are missed,
and writes a JSON file to the folder `--out`.
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
"""What a measurement depends on, as git pathspecs."""
PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "onnxruntime")


def build_parser(description: str) -> argparse.ArgumentParser:
    """Build a parser with the options of all benchmarks; the first line of `description` is its help."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds, over which medians are taken")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for the JSON file")
    return parser


def run_interleaved(sides: Mapping[str, Callable[[], Given]], rounds: int, warm_up: int = 1) -> dict[str, list[Given]]:
    """Return the results of each side by round. The sides alternate, so other work on the machine affects all equally.

    The first `warm_up` rounds are dropped.
    """
    results: dict[str, list[Given]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        for name, side in sides.items():
            value = side()
            if number >= warm_up:
                results[name].append(value)
    return results


def compute_median_ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """Compute the median over the rounds of the quotient of two sides: other load in a round slows both sides."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


@dataclass(frozen=True)
class Mark:
    """A target of a benchmark."""

    what: str
    """The measured quantity with its unit."""
    value: float
    bound: float
    """The minimum; with `at_most`, the maximum."""
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def __str__(self) -> str:
        relation = "at most" if self.at_most else "at least"
        return f"{self.what}: {self.value:,.3g} ({relation} {self.bound:,.3g}){'' if self.met else '   MARK MISSED'}"


def report(name: str, out: Path, marks: Iterable[Mark], result: Mapping[str, Any], threads: int | None = None) -> None:
    """Print the marks, and write the result with machine, versions and commit to `out`/`name`.json."""
    marks = list(marks)
    print("\n".join(map(str, marks)) if marks else "no mark is set for these sizes on this device")
    content = {
        **environment(),
        **({"threads": threads} if threads else {}),
        **result,
        "marks": [asdict(mark) | {"met": mark.met} for mark in marks],
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


def environment() -> dict[str, Any]:
    """Return the machine, the versions of the packages, and the commit."""
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
    """Return the commit, with "+" if code or dependencies have uncommitted changes; None outside a repository."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *CODE)
        return git("rev-parse", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None


def run_script(script: str, arguments: Iterable[object]) -> dict[str, Any]:
    """Run a script of this folder in a separate process; return the JSON in the last line of its output.

    Raises:
        RuntimeError: the script failed; the message is the end of its error output.
    """
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def start_side(script: str, arguments: Iterable[object]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Start a script of this folder in a separate process; yield a function that requests one turn and returns its JSON.

    In a shared process, memory that one side frees has to be requested from the system again by the next one, which slows it.
    The script uses `wait_for_requests` and `send_result`.

    Raises:
        RuntimeError: the script has ended when a turn is requested; the message is the end of its error output.
    """
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    with (
        tempfile.TemporaryFile("w+") as errors,  # not a pipe, which nothing would read while the script writes
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):

        def turn() -> dict[str, Any]:
            with suppress(BrokenPipeError):
                print(flush=True, file=process.stdin)
            line = process.stdout.readline()
            if line:
                return json.loads(line)
            process.wait()
            errors.seek(0)
            raise RuntimeError(f"{script} ended:\n{errors.read()[-2000:]}")

        try:
            yield turn
        except BaseException:
            process.terminate()
            raise
        finally:  # the script ends at the end of its input
            with suppress(BrokenPipeError):
                process.stdin.close()


def wait_for_requests() -> Iterator[None]:
    """Yield whenever the parent process (`start_side`) requests a turn."""
    for _ in sys.stdin:
        yield


def send_result(given: Mapping[str, Any]) -> None:
    """Send the result of a turn to the parent process."""
    print(json.dumps(given), flush=True)


def peak_memory() -> int:
    """Return the peak main memory of this process in bytes, imports included.

    On Linux from /proc, because `getrusage` there includes the peak of the parent process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
