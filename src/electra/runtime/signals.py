"""Signals that ask a run to stop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], int]]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into a wish to stop, for a loop that asks; the second one acts as usual.

    Signals that are ignored stay so: nohup ignores SIGHUP, and a shell SIGINT for what it runs in the background.
    Yields a function that tells the number of the signal that came, 0 before one did.
    """
    all_signals, came = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), [0]
    signals = [each for each in all_signals if signal.getsignal(each) is not signal.SIG_IGN]

    def handle(number: int, _frame: FrameType | None) -> None:
        came[0] = number
        for each in signals:
            signal.signal(each, before[each])

    before = {each: signal.getsignal(each) for each in signals}
    if threading.current_thread() is threading.main_thread():  # only there may Python set handlers
        for each in signals:
            signal.signal(each, handle)
    try:
        yield lambda: came[0]
    finally:
        if threading.current_thread() is threading.main_thread():
            for each in signals:
                signal.signal(each, before[each])
