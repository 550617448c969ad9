"""Whether a page store may still be used: open, whole, and in the process that opened it.

In: failures and ends. Out: `LogClosedError` for everything after them, with the first cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tallystick.errors import LogClosedError
from tallystick.storage.forks import forked_error


class Health:
    """The state of the store in ``path``, as one opening sees it."""

    def __init__(self, path: str) -> None:
        self.closed = False
        self.forked = False
        self.failure: BaseException | None = None
        self._path = path

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """What must succeed, or the state in memory can no longer be trusted."""
        try:
            yield
        except BaseException as error:
            self.failure = self.failure or error
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
