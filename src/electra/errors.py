"""Every error a user can cause, as one tree. The command line prints it as one line and exits with 2.

    ElectraError
    ├── UsageError        options that are wrong or clash
    │   └── DeviceError   options that are right, but not for this machine
    ├── TextError         text that cannot be read
    ├── TokenizerError    a tokenizer that is missing, broken or does not fit
    ├── DataError         prepared data that is missing, damaged or does not fit
    ├── ModelError        a model directory that is missing, broken or does not fit
    ├── RunError          a run directory that is not what it should be
    ├── StorageError      the disk is full, or writing is not allowed
    └── DivergedError     training has become numerically meaningless

A message names the thing and the place, what was found and expected, and what to do; it has one line and no traceback.
Our own invariants are asserts, not these.
"""


class ElectraError(Exception):
    """What every error below is; `except electra.ElectraError` catches them all."""


class UsageError(ElectraError):
    """Options that are wrong or clash."""


class DeviceError(UsageError):
    """This machine cannot do what is asked; what was prepared so far is of use elsewhere, or with other options."""


class TextError(ElectraError):
    """Text that cannot be read; the message names the file and the place in it."""


class TokenizerError(ElectraError):
    """A tokenizer that is missing, broken or does not fit the data."""


class DataError(ElectraError):
    """Prepared data that is missing, damaged or does not fit the run."""


class ModelError(ElectraError):
    """A model directory that is missing, broken or has other sizes."""


class RunError(ElectraError):
    """A run directory of another configuration, or not a run directory."""


class StorageError(ElectraError):
    """The disk is full, or writing is not allowed."""


class DivergedError(ElectraError):
    """A loss or gradient is not a finite number any more."""
