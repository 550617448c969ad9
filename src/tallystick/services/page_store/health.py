"""Whether a page store may still be used: open, whole, decided, and in the process that opened it.

In: failures, doubts and ends. Out: `LogClosedError` for everything after a failure or an end, with
the first cause; `IncompleteLogError` for changes while transactions are in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tallystick.errors import IncompleteLogError, LogClosedError
from tallystick.roles import InDoubt
from tallystick.storage.fork import forked_error


class Health:
    """The state of the store in ``path``, as one opening sees it."""

    def __init__(self, path: str) -> None:
        self.closed = False
        self.forked = False
        self.failure: BaseException | None = None
        self.doubtful: list[InDoubt] = []
        """Transactions prepared before the last crash that nobody has decided."""
        self._path = path

    def fail(self, error: BaseException) -> None:
        """The state in memory can no longer be trusted; the first cause is kept."""
        self.failure = self.failure or error

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """What must succeed, or the state in memory can no longer be trusted."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def fork(self) -> None:
        """This is a child of the process that opened the store."""
        self.forked = True
        self.failure = forked_error(self._path)

    def require_open(self) -> None:
        """Raise `LogClosedError` if the store was closed or has failed."""
        if self.closed:
            raise LogClosedError("the page store is closed", file=self._path)
        if self.failure is not None:
            raise LogClosedError(
                f"the page store failed: {self.failure}",
                file=self._path,
                advice="Close it and open it again: recovery reads what is on the disk",
            ) from self.failure

    def require_writable(self) -> None:
        """Raise `IncompleteLogError` as well, while transactions are in doubt."""
        self.require_open()
        if self.doubtful:
            raise IncompleteLogError(
                f"transactions are in doubt: {[one.name for one in self.doubtful]}",
                file=self._path,
                advice="Settle each with settle(name, commit=...); until then it is read-only",
            )
