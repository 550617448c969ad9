"""The state of an open page store: open, intact, decided, and in the process that opened it.

In: failures, transactions in doubt, close and fork. Out: `LogClosedError` for every call after a
failure or an end, with the first cause; `IncompleteLogError` for changes while transactions are in
doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tallystick.errors import IncompleteLogError, LogClosedError, LogPoisonedError, LogWriteError
from tallystick.refusals import file_of, reason_of
from tallystick.roles import InDoubt
from tallystick.storage.fork import forked_error

_REOPEN = "Close it and open it again: recovery reads what is on the disk"


class Health:
    """The state of the store in ``path``."""

    def __init__(self, path: str) -> None:
        self.usable = True
        """False once it was closed or has failed: then `require_open` raises."""
        self.closed = False
        self.forked = False
        self.failure: BaseException | None = None
        self.in_doubt: list[InDoubt] = []
        """Transactions prepared before the last crash that are not decided yet."""
        self._path = path

    def close(self) -> None:
        """Mark the store as closed."""
        self.closed, self.usable = True, False

    def fail(self, error: BaseException) -> None:
        """Mark the state in memory as unusable; the first cause is kept."""
        self.failure = self.failure or error
        self.usable = False

    @contextmanager
    def required(self) -> Iterator[None]:
        """Mark the state in memory as unusable if the block fails.

        What the log refuses has changed nothing, and may be tried again.

        Raises:
            LogPoisonedError: The operating system has failed a call.
        """
        try:
            yield
        except LogWriteError:
            raise
        except OSError as error:
            self.fail(error)
            raise self.poisoned(error) from error
        except BaseException as error:
            self.fail(error)
            raise

    def poisoned(self, error: OSError) -> LogPoisonedError:
        """Return the error for a failed call of the operating system."""
        return LogPoisonedError(
            f"the page store failed: {reason_of(error)}",
            file=file_of(error, self._path),
            advice=_REOPEN,
        )

    def fork(self) -> None:
        """Mark this process as a child of the one that opened the store."""
        self.forked = True
        self.failure = forked_error(self._path)
        self.usable = False

    def require_open(self) -> None:
        """Raise `LogClosedError` if the store was closed or has failed."""
        if self.closed:
            raise LogClosedError("the page store is closed", file=self._path)
        if self.failure is not None:
            raise LogClosedError(
                f"the page store failed: {str(self.failure) or repr(self.failure)}",
                file=self._path,
                advice=_REOPEN,
            ) from self.failure

    def require_writable(self) -> None:
        """Raise `IncompleteLogError` too while transactions are in doubt."""
        if not self.usable:
            self.require_open()
        if self.in_doubt:
            raise IncompleteLogError(
                f"transactions are in doubt: {[one.name for one in self.in_doubt]}",
                file=self._path,
                advice="Settle each with settle(name, commit=...), or begin(read_only=True)",
            )
