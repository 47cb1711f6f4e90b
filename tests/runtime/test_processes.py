"""Worker processes: results, errors, and the end of the workers."""

import math
import os
import signal
import subprocess
import sys
import time
from itertools import repeat
from pathlib import Path

import pytest
from support.errors import raises

from electra.errors import DataError
from electra.runtime.workers import map_unordered

FACTORIALS = """
import math
from electra.runtime.workers import map_unordered
print(sum(map_unordered(math.factorial, range(9), 2)))
"""


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_item_is_processed_once_and_few_are_in_memory(workers: int) -> None:
    taken = 0

    def items():
        nonlocal taken
        for number in range(1, 41):
            taken = number
            yield number

    results = []
    for result in map_unordered(math.factorial, items(), workers):
        results.append(result)
        assert taken - len(results) <= workers + 1
    assert sorted(results) == [math.factorial(i) for i in range(1, 41)]


def test_single_item_starts_no_process() -> None:
    assert list(map_unordered(_process, [0], 8)) == [os.getpid()]
    assert list(map_unordered(_process, [], 8)) == []


def _process(_item: int) -> int:
    return os.getpid()


def test_error_in_a_worker_has_its_traceback() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)result = function\(item\).*ValueError"):
        list(map_unordered(math.sqrt, [4, -1, 4], 2))


def test_error_of_the_items_ends_the_workers() -> None:
    def items():
        yield from range(5)
        raise DataError("no-more-items", "items end")

    with raises(DataError, "no-more-items", "items end"):
        list(map_unordered(math.factorial, items(), 2))


def test_killed_worker_is_reported() -> None:
    with raises(DataError, "worker-died", "signal 9"):
        list(map_unordered(signal.raise_signal, [signal.SIGKILL] * 9, 2))
    with raises(DataError, "worker-died", "exit code 3"):
        list(map_unordered(os._exit, [3] * 9, 2))


@pytest.mark.slow
def test_main_scripts_need_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FACTORIALS)
    expected = f"{sum(map(math.factorial, range(9)))}\n"
    for arguments, stdin in ([[str(script)], ""], [["-c", FACTORIALS], ""], [["-"], FACTORIALS]):
        run = subprocess.run([sys.executable, *arguments], input=stdin, capture_output=True, text=True, timeout=60)
        assert (run.stdout, run.stderr) == (expected, ""), arguments


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(number: signal.Signals) -> None:
    pause = 60 if number == signal.SIGINT else 1  # Ctrl-C does not wait for running items
    code = (
        "import multiprocessing, signal, time\nfrom electra.runtime.workers import map_unordered\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # shells start background jobs with SIGINT ignored
        "def items():\n"
        f"    yield from [{pause}] * 2\n"
        "    print(*[child.pid for child in multiprocessing.active_children()], flush=True)\n"
        f"    yield from [{pause}] * 1000\n"
        "list(map_unordered(time.sleep, items(), 2))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.3)
        parent.send_signal(number)
        parent.wait(5)
    for _ in repeat(None, 50):
        if not any(_is_running(pid) for pid in pids):
            return
        time.sleep(0.1)
    pytest.fail(f"workers {pids} are still running")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # In a container without an init process, an orphan that has ended remains as a zombie.
    return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes() if Path("/proc").is_dir() else True
