"""Terminal output of the main process: log records as lines, the progress of long work as bars.

When the output cannot be written (`| head`, a closed terminal, a full disk), a command continues without it, unless the output
is its result.
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
    """Whether this is the process that writes output; `electra.runtime.setup` raises an error if RANK is not a number."""
    rank = os.environ.get("RANK", "0")
    return not rank.isdecimal() or int(rank) == 0


class Output:
    """A stream that discards everything written to it after the first failure.

    Raises:
        BrokenPipeError: `required`, and the process that read the stream has ended.
        StorageError: `required`, and the stream cannot be written for another reason.
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
            redirect_to_null(self._stream)
            if self._required and isinstance(error, BrokenPipeError):
                raise
            reason = f"cannot be written: {error.strerror or error}"
            if self._required:
                raise StorageError("stdout-failed", f"standard output: {reason}") from error
            print_to_stderr(f"standard output {reason}; the command continues without output")
            return otherwise


class Terminal(Console):
    """A rich console that writes to an `Output` and escapes control characters in names, texts and tokens."""

    required = False
    """Whether the output is the result of the command."""

    @property
    def file(self) -> Any:
        """Standard output or error; looked up at each use, because they can be replaced."""
        return Output(Console.file.fget(self), self.required and not self.stderr)  # type: ignore[attr-defined]

    @file.setter
    def file(self, new_file: Any) -> None:
        Console.file.fset(self, new_file)  # type: ignore[attr-defined]

    def print(self, *objects: Any, **options: Any) -> None:
        """Print each string in one line, other objects as rich does."""
        super().print(*(escape_unprintable(each) if isinstance(each, str) else each for each in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object with the control characters of its texts escaped, also those in tables and progress bars."""
        for text, style, control in super().render(renderable, options):
            lines = text.split("\n")  # line breaks of rich: those in strings are escaped already
            yield Segment(text if control else "\n".join(map(escape_unprintable, lines)), style, control)

    def on_broken_pipe(self) -> None:
        """Raise the error that is being handled; the inherited method would end the process with status 1."""
        raise


def redirect_to_null(stream: Any) -> None:
    """Redirect a stream to the null device.

    Otherwise Python writes the stream's buffer again when it ends, fails, and changes the exit status.
    """
    with suppress(OSError, ValueError):  # the stream has no file descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def print_to_stderr(line: str) -> None:
    """Print a line to standard error, if it can be written."""
    if sys.stderr is None:
        return
    try:
        print(f"electra: {escape_unprintable(line)}", file=sys.stderr, flush=True)
    except OSError:
        redirect_to_null(sys.stderr)


console = Terminal(quiet=not is_main_process(), highlight=False, soft_wrap=True)

LINE_EVERY = 15.0
"""Minimum seconds between two log records about the progress of work, where no bars are shown."""


class ConsoleHandler(logging.Handler):
    """Prints each log record of `electra.*` as one line of `console`."""

    def emit(self, record: logging.LogRecord) -> None:
        message = escape(record.getMessage())
        if logging.getLogger("electra").level <= logging.DEBUG:
            message = f"{record.name}: {message}"
        if record.levelno >= logging.WARNING:
            console.print(f"[yellow]! {message}[/yellow]")
        else:
            console.print(f"[bold]·[/bold] {message}")


def show_log(level: int = logging.INFO) -> None:
    """Print the log records of `electra` from `level` on, in the main process.

    The command line calls this; a program that calls electra's functions can configure logging itself. A second call only
    changes the level.
    """
    root = logging.getLogger("electra")
    root.setLevel(level)
    if not any(isinstance(handler, ConsoleHandler) for handler in root.handlers):
        root.addHandler(ConsoleHandler())


def shows_bars() -> bool:
    """Whether progress bars are shown: on a terminal, if `show_log` was called with a level of INFO or less."""
    root = logging.getLogger("electra")
    shown = any(isinstance(handler, ConsoleHandler) for handler in root.handlers)
    return console.is_terminal and shown and root.isEnabledFor(logging.INFO)


@contextmanager
def hide_log() -> Iterator[None]:
    """Log nothing in the block by the loggers `electra.*`, to any handler; those with a level of their own still log."""
    logger = logging.getLogger("electra")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def show_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print a table with one line per row at any terminal width; the first row is the header, the first column labels."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for label, *cells in rows:
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        console.print(f"{label.ljust(widths[0])}  {numbers}", markup=False)


@contextmanager
def reading_progress(description: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """Show the progress of work that reads `total` bytes or texts: a bar on a terminal, elsewhere log records.

    Yields a function that is called with the number read so far and a detail to show beside it.
    """
    if not shows_bars():
        last = time.monotonic()

        def log_progress(read: int, detail: str) -> None:
            nonlocal last
            if time.monotonic() - last > LINE_EVERY:
                last = time.monotonic()
                share = f"{read / total:.0%}" if total else f"{read / 1e6:,.0f} MB"
                log.info(f"{description}: {share} {detail}".rstrip(), extra={"code": "progress"})

        yield log_progress
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[detail]}"))
    with Progress(SpinnerColumn(), *columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(description, total=total, detail="")

        def update_bar(read: int, detail: str) -> None:
            progress.update(task, completed=read, detail=detail)

        yield update_bar


def training_progress() -> Progress:
    """Build the progress bar of a training run: share of the budget, `detail`, remaining time."""
    return Progress(
        TextColumn("[bold]{task.description}[/bold]"),
        BarColumn(bar_width=20),
        TaskProgressColumn("[progress.percentage]{task.percentage:>3.0f}% done"),
        TextColumn("{task.fields[detail]}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=console,
    )
