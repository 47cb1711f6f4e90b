"""Errors and log records, compared by their codes."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from electra import cli
from electra.errors import ElectraError


@contextmanager
def raises(kind: type[ElectraError], code: str, *values: object) -> Iterator[pytest.ExceptionInfo[ElectraError]]:
    """Expect an error of this class and code, whose message names the values (a file, a line, an option) in one line."""
    with pytest.raises(ElectraError) as raised:
        yield raised
    check_error(raised.value, kind, code, *values)


def check_error(error: BaseException | None, kind: type[ElectraError], code: str, *values: object) -> None:
    """Check an error that was caught: its class, its code, and the values that its message names in one line."""
    assert isinstance(error, kind), repr(error)
    assert error.code == code, repr(error)
    assert "\n" not in str(error), str(error)
    check_message(str(error), *values)


def check_message(message: str, *values: object) -> None:
    """Check that a message names the values.

    An integer must be a number of its own, not a part of a path, of a place (`a.txt:2`) or of a longer number.
    """
    for value in values:
        if isinstance(value, int):
            assert re.search(rf"(?<![\w.:/]){value}(?![\w/])", message), (value, message)
        else:
            assert str(value) in message, (value, message)


def fails(words: Sequence[object], code: str, *values: object) -> ElectraError:
    """Run a command that exits with 2 because of an error of this code; return the error."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    error = stop.value.__cause__
    assert stop.value.code == 2
    check_error(error, ElectraError, code, *values)
    assert isinstance(error, ElectraError)
    return error


def notices(caplog: pytest.LogCaptureFixture, code: str) -> list[str]:
    """The messages of the log records with this code."""
    return [record.getMessage() for record in caplog.records if getattr(record, "code", None) == code]
