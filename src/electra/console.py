"""What a person at the terminal sees: decisions as lines, long work as progress bars. Silent in all but the main process.

Where nobody reads it any more (`| head`, a closed terminal, a full disk), the work goes on without output, except for
commands whose output is their result.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment

from electra.errors import StorageError
from electra.external import escape_unprintable

Result = TypeVar("Result")
log = logging.getLogger(__name__)


def is_main_process() -> bool:
    """Whether this is the process that reports; a RANK that is no number is refused where processes are set up."""
    rank = os.environ.get("RANK", "0")
    return not rank.isdecimal() or int(rank) == 0


class Output:
    """A stream. If it cannot be written, what is written to it from then on is discarded.

    Raises:
        BrokenPipeError: `required`, and whoever read it has ended.
        StorageError: `required`, and it cannot be written for another reason.
    """

    def __init__(self, stream: Any, required: bool = False) -> None:
        self._stream = stream
        self._required = required

    def write(self, text: str) -> int:
        return self._attempt(lambda: self._stream.write(text), len(text))

    def flush(self) -> None:
        self._attempt(self._stream.flush, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _attempt(self, call: Callable[[], Result], otherwise: Result) -> Result:
        try:
            return call()
        except OSError as error:
            discard(self._stream)
            if self._required and isinstance(error, BrokenPipeError):
                raise
            reason = f"cannot be written: {error.strerror or error}"
            if self._required:
                raise StorageError("stdout-failed", f"standard output: {reason}") from error
            complain(f"standard output {reason}; the work goes on without it")
            return otherwise


class Terminal(Console):
    """rich's console, which writes to an `Output`, and names, texts and tokens with their control characters escaped."""

    required = False
    """Whether what is printed is the result of the command."""

    @property
    def file(self) -> Any:
        """Standard output or error, as they are now."""
        return Output(Console.file.fget(self), self.required and not self.stderr)  # type: ignore[attr-defined]

    @file.setter
    def file(self, new_file: Any) -> None:
        Console.file.fset(self, new_file)  # type: ignore[attr-defined]

    def print(self, *objects: Any, **options: Any) -> None:
        """Print strings in one line each, other things as rich does."""
        super().print(*(escape_unprintable(each) if isinstance(each, str) else each for each in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Pieces of text and the terminal's control codes, of everything that is printed: tables and progress bars too."""
        for text, style, control in super().render(renderable, options):
            lines = text.split("\n")  # rich's own: those of strings are escaped already
            yield Segment(text if control else "\n".join(map(escape_unprintable, lines)), style, control)

    def on_broken_pipe(self) -> None:
        """Called where the error is handled; rich's own method would end the process with 1."""
        raise


def discard(stream: Any) -> None:
    """Have a stream write to nowhere: what is in its buffer would fail again when Python ends, which costs the exit code."""
    with suppress(OSError, ValueError):  # no file of the system
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def complain(line: str) -> None:
    """A line on standard error; if nobody reads that either, none."""
    if sys.stderr is None:
        return
    try:
        print(f"electra: {escape_unprintable(line)}", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


console = Terminal(quiet=not is_main_process(), highlight=False, soft_wrap=True)

LINE_EVERY = 15.0
"""Seconds between two log records about the progress of work, where there are no bars."""


class ConsoleHandler(logging.Handler):
    """Prints each record of the loggers `electra.*` as one line of `console`."""

    def emit(self, record: logging.LogRecord) -> None:
        message = escape(record.getMessage())
        if logging.getLogger("electra").level <= logging.DEBUG:
            message = f"{record.name}: {message}"
        if record.levelno >= logging.WARNING:
            console.print(f"[yellow]! {message}[/yellow]")
        else:
            console.print(f"[bold]·[/bold] {message}")


def show_log(level: int = logging.INFO) -> None:
    """Show what `electra` logs from `level` on, in the main process; a program that calls its functions may log as it likes.

    Called again, it changes the level only.
    """
    root = logging.getLogger("electra")
    root.setLevel(level)
    if not any(isinstance(handler, ConsoleHandler) for handler in root.handlers):
        root.addHandler(ConsoleHandler())


def shows_bars() -> bool:
    """Whether progress bars are shown: on a terminal, where `show_log` was called for more than warnings."""
    root = logging.getLogger("electra")
    shown = any(isinstance(handler, ConsoleHandler) for handler in root.handlers)
    return console.is_terminal and shown and root.isEnabledFor(logging.INFO)


def format_count(number: int, thing: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def show_rows(rows: Sequence[Sequence[str]]) -> None:
    """A table whose first row is its heading and first column its labels; a line a row, however narrow the terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for label, *cells in rows:
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        console.print(f"{label.ljust(widths[0])}  {numbers}", markup=False)


@contextmanager
def reading_progress(description: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """Show how far work is that reads `total` bytes or texts; yields a function of what is read so far and a detail.

    A bar on a terminal; elsewhere a log record now and then.
    """
    if not shows_bars():
        last = time.monotonic()

        def line(read: int, detail: str) -> None:
            nonlocal last
            if time.monotonic() - last > LINE_EVERY:
                last = time.monotonic()
                share = f"{read / total:.0%}" if total else f"{read / 1e6:,.0f} MB"
                log.info(f"{description}: {share} {detail}".rstrip(), extra={"code": "progress"})

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[detail]}"))
    with Progress(SpinnerColumn(), *columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(description, total=total, detail="")

        def bar(read: int, detail: str) -> None:
            progress.update(task, completed=read, detail=detail)

        yield bar


def training_progress() -> Progress:
    """The bar of a training run: share of the budget, `detail`, time left."""
    return Progress(
        TextColumn("[bold]{task.description}[/bold]"),
        BarColumn(bar_width=20),
        TaskProgressColumn("[progress.percentage]{task.percentage:>3.0f}% done"),
        TextColumn("{task.fields[detail]}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=console,
    )
