"""Signals that ask a run to stop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], int]]:
    """Record Ctrl-C, SIGTERM and SIGHUP, for a loop that polls; a second signal has its default effect.

    Ignored signals stay ignored: nohup ignores SIGHUP, and a shell ignores SIGINT for background jobs. Yields a function that
    returns the number of the received signal, or 0.
    """
    all_signals, received = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), [0]
    signals = [each for each in all_signals if signal.getsignal(each) is not signal.SIG_IGN]

    def handle(number: int, _frame: FrameType | None) -> None:
        received[0] = number
        for each in signals:
            signal.signal(each, before[each])

    before = {each: signal.getsignal(each) for each in signals}
    if threading.current_thread() is threading.main_thread():  # Python sets handlers only there
        for each in signals:
            signal.signal(each, handle)
    try:
        yield lambda: received[0]
    finally:
        if threading.current_thread() is threading.main_thread():
            for each in signals:
                signal.signal(each, before[each])
