"""Tree of the errors that a user can cause. The command line prints one as a single line and exits with 2.

    ElectraError
    ├── UsageError        invalid or conflicting options
    │   └── DeviceError   valid options that this machine does not support
    ├── TextError         text that cannot be read
    ├── TokenizerError    a tokenizer that is missing, broken or does not match
    ├── DataError         prepared data that is missing, damaged or does not match
    ├── ModelError        a model directory that is missing, broken or does not match
    ├── RunError          an invalid or conflicting run directory
    ├── StorageError      a full disk, or missing permission to write
    ├── HubError          a hub that refuses, fails or cannot be reached
    └── DivergedError     training diverged

A message names the object and the place, what was found and expected, and what to do, in one line without a traceback.
A code names the condition in a few words with hyphens; programs and tests compare it, so it stays when a message is reworded.
Invariants of the package are asserts, not these errors.
"""


class ElectraError(Exception):
    """Base class; `except electra.ElectraError` catches all errors below.

    Both arguments are positional, so that an error from a worker process can be unpickled.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        """The condition, such as `"unknown-option"`."""

    def __str__(self) -> str:
        return str(self.args[1])


class UsageError(ElectraError):
    """Invalid or conflicting options."""


class DeviceError(UsageError):
    """Valid options that this machine does not support. Data prepared so far can be used elsewhere or with other options."""


class TextError(ElectraError):
    """Text that cannot be read; the message names the file and the place in it."""


class TokenizerError(ElectraError):
    """A tokenizer that is missing, broken or does not match the data."""


class DataError(ElectraError):
    """Prepared data that is missing, damaged or does not match the run."""


class ModelError(ElectraError):
    """A model directory that is missing, broken or has other sizes."""


class RunError(ElectraError):
    """A run directory that has another configuration, is in use, or is not a run directory."""


class StorageError(ElectraError):
    """A full disk, or missing permission to write."""


class HubError(ElectraError):
    """The Hugging Face hub refuses a request, fails or cannot be reached."""


class DivergedError(ElectraError):
    """A loss or gradient that is not finite."""
