"""The command line: words -> given options -> a function of `electra.commands` -> its result on the terminal."""

import io
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from electra.cli.parsing import build_parser, check_command, check_input_words, format_help, take_flags
from electra.cli.table import COMMANDS, HELP

MAX_MESSAGE = 2000
"""Characters of an error message; it can quote a value of any length."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command. Exits with 0, with 2 after a user's error, with 128 + n after signal n.

    A command whose output is its result ends as by SIGPIPE when nobody reads it any more.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    from electra.errors import ElectraError

    try:
        try:
            run(words)
        finally:
            flush(required=is_result(words))
    except ElectraError as error:
        fail(f"error: {error}", cause=error)
    except BrokenPipeError:
        from electra.console import redirect_to_null

        redirect_to_null(sys.stdout)
        raise SystemExit(128 + signal.SIGPIPE) from None
    except OSError as error:  # not turned into an ElectraError
        name = "" if error.filename is None else f"{error.filename}: "
        fail(f"error: {name}{error.strerror or error}")
    except KeyboardInterrupt:
        fail("interrupted; a command with --out resumes when it is run again", 130)


def run(words: list[str]) -> None:
    """Run a command, or print the version or the list of commands."""
    rest = list(words)
    flags = take_flags(rest)
    if not rest:
        rows = "\n".join(f"  {name:<14} {command.summary}" for name, command in COMMANDS.items())
        print(HELP.format(commands=rows), end="")
        return
    name = rest.pop(0)
    if name == "--version":
        from electra import __version__

        print(f"electra {__version__}")
        return
    check_command(name)
    from electra.console import console, show_log

    show_log(10 if "--verbose" in flags else 30 if "--quiet" in flags else 20)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of another encoding than UTF-8 has no "·"
    console.required = is_result(words)
    console.stderr = COMMANDS[name].writes_json and "--help" not in flags
    try:
        if "--help" in flags:
            sys.stdout.write(format_help(name, rest))
        else:
            run_command(name, rest)
    finally:
        console.required = console.stderr = False


def run_command(name: str, words: Sequence[str]) -> None:
    """Call the function of a command with the given options, and show its result."""
    from electra import commands

    command = COMMANDS[name]
    if command.reads_texts:
        check_input_words(name, words)
    given = build_parser(name).parse(words)
    arguments = dict(given)
    if command.reads_texts:
        arguments["input"] = Path(given["input"])  # a string is a text
    if command.writes_json and sys.stdout is None and given.get("out") is None:
        from electra.errors import UsageError

        hint = "; name a file by --out" if command.reads_texts else ""
        raise UsageError("stdout-closed", f"standard output is closed{hint}")
    result = getattr(commands, name.replace("-", "_"))(**arguments)
    if command.shows:
        from electra import display

        getattr(display, f"show_{name.replace('-', '_')}")(result, given)


def is_result(words: Sequence[str]) -> bool:
    """Whether what a command line prints is its result."""
    rest = list(words)
    flags = take_flags(rest)
    return "--help" in flags or not rest or rest[0] not in COMMANDS or COMMANDS[rest[0]].is_result


def fail(line: str, status: int = 2, cause: Exception | None = None) -> NoReturn:
    """Exit with a line on standard error; the exit has its cause for a program that calls `main`."""
    from electra.console import print_to_stderr
    from electra.external import shorten

    print_to_stderr(shorten(line, MAX_MESSAGE))
    raise SystemExit(status) from cause


def flush(required: bool) -> None:
    """Write the buffer of the standard output now, while an error can still be reported."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            from electra.console import Output

            Output(sys.stdout, required).flush()
