"""Every error that Tallystick raises on purpose, as one tree.

    TallystickError
    ├── LogFormatError            bytes that are not what a format requires
    │   ├── CorruptLogError       acknowledged data is damaged; recovery refuses
    │   ├── NotALogError          the bytes are no log of any known system
    │   └── UnsupportedFormatError  a format or option that this version does not read
    ├── LogUnreadableError        the operating system could not read the bytes
    │   ├── LogBeingWrittenError  they changed while they were read; read again
    │   └── FileShrankError       bytes of a file were gone while it was read
    ├── LogWriteError             a record that cannot be written; the log is unharmed
    │   ├── RecordTooLargeError   larger than the log can ever hold
    │   └── LogFullError          no space; retriable once space was made
    ├── LogClosedError            an operation on a log that is not open
    ├── LogLockedError            another process or object owns the log
    ├── LogPoisonedError          a write or fsync failed; nothing more is acknowledged
    ├── IncompleteLogError        recovery found work that must be settled first
    ├── TransactionError          the transaction did not do what was asked
    │   ├── RolledBackError       it was rolled back, whole
    │   ├── HeuristicError        a branch went against the decision
    │   ├── InDoubtError          the outcome is not known yet; recovery will settle it
    │   └── TransactionUsageError wrong use: order, thread, double enlistment
    │       └── RecordIdError     the id is taken, has no record, or is held
    ├── BusyError                 a limit was reached; retry later
    └── MissingExtraError         an optional dependency is needed

An error names the file, the offset, what was expected, what was found, and what
the reader can do next, as far as each is known. Its text is printable, whatever the log said.
"""

from __future__ import annotations

import copy

from tallystick.printable import printable


class TallystickError(Exception):
    """Root of all errors; carries the place and the advice, and prints them.

    Args:
        message: What is the case, in one sentence without a full stop.
        file: Path of the file, or of the log's folder.
        offset: Byte offset in the file.
        expected: What the format or the operation requires there, as a short text.
        found: What is there instead.
        advice: What to do next, in one sentence.

    Attributes:
        retryable: Whether the same work can be tried again, now or later, without doing it twice;
            None if that is not known.
    """

    retryable: bool | None = False

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        offset: int | None = None,
        expected: str | None = None,
        found: str | None = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.offset = offset
        self.expected = expected
        self.found = found
        self.advice = advice

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is remade by its class with its `args`, which other signatures do not take;
        # a pool of processes waits for ever for one that cannot be remade.
        return _remade, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        place = self.file or ""
        if self.offset is not None:
            place += f" at offset {self.offset}"
        text = f"{place.strip()}: {self.message}" if place else self.message
        if self.expected is not None:
            text += f"; expected {self.expected}"
        if self.found is not None:
            text += f"; found {self.found}"
        if self.advice is not None:
            text = f"{text.rstrip('.')}. {self.advice}"
        return printable(text)


class LogFormatError(TallystickError):
    """Bytes that are not what a format requires."""


class CorruptLogError(LogFormatError):
    """Acknowledged data is damaged; recovery refuses rather than lose it silently."""


class NotALogError(LogFormatError):
    """The bytes are no log of any known system."""


class UnsupportedFormatError(LogFormatError):
    """A format, a version or an option that this version does not read."""


class LogUnreadableError(TallystickError):
    """The operating system could not read the bytes: permission, missing file, I/O error."""


class LogBeingWrittenError(LogUnreadableError):
    """The log changed while it was read, each time; reading again may help."""


class FileShrankError(LogUnreadableError):
    """A file became shorter, or its disk failed, while it was read; what was read is not whole."""


class LogWriteError(TallystickError):
    """A record that cannot be written; the log is unharmed and stays usable."""


class RecordTooLargeError(LogWriteError):
    """The record is larger than the log can ever hold."""


class LogFullError(LogWriteError):
    """There is no space now, or no file descriptor; it may be retried once there is."""

    retryable = True


class LogClosedError(TallystickError):
    """An operation on a log that is not open."""


class LogLockedError(TallystickError):
    """Another process, or another object of this one, owns the log."""

    retryable = True


class LogPoisonedError(TallystickError):
    """A write or an fsync failed; nothing more is acknowledged until the log is reopened.

    What it was raised for may be in the log, or not.
    """

    retryable = None


class IncompleteLogError(TallystickError):
    """The log holds work that must be replayed or settled before a normal start."""


class TransactionError(TallystickError):
    """The transaction did not do what was asked."""


class RolledBackError(TransactionError):
    """The transaction was rolled back, in every resource.

    ``retryable`` is None where a database says why, and that is neither a conflict nor a loss of
    the connection: a wrong statement, for example.
    """

    retryable: bool | None = True


class HeuristicError(TransactionError):
    """A branch went against the decision; an operator has to settle it."""


class InDoubtError(TransactionError):
    """The outcome is not known yet; recovery will settle it."""

    retryable = None


class TransactionUsageError(TransactionError):
    """Wrong use: order of calls, thread, double enlistment, closed resource."""


class RecordIdError(TransactionUsageError):
    """The id of a record is taken, has no record, or is held by a prepared transaction.

    A transaction that gets it at its end was rolled back, and may be repeated.

    Attributes:
        refusal: Which of these: a `tallystick.roles.record_ids.IdRefusal`.
        place: Of the ids of a transaction, in the order in which it used them: which one.
    """

    refusal: int = 0
    place: int = 0


class BusyError(TallystickError):
    """A limit was reached; retry later."""

    retryable = True


class MissingExtraError(TallystickError):
    """An optional dependency is needed for this operation.

    Args:
        package: The distribution that is missing.
        extra: The extra of ``tallystick`` that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed",
            advice=f"Install it with: pip install 'tallystick[{extra}]'",
        )


def _remade(kind: type[TallystickError], args: tuple[object, ...]) -> TallystickError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def copy_error(error: TallystickError) -> TallystickError:
    """Return a copy to raise in one of several threads, so that each has its own traceback."""
    mine = copy.copy(error)
    mine.__cause__ = error.__cause__
    return mine
