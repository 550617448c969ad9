"""The common part of resources that are reached over connections.

In: how to connect, how a branch begins on a connection, which errors the driver raises. Out:
branches over pooled connections, and those errors as the answer `ResourceUnreachable`. Before the
first branch, and in each recovery until there is one, a place for outcome rows is looked for.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import parse_qsl

from tallystick.arguments import text
from tallystick.callables import checked
from tallystick.errors import TransactionUsageError
from tallystick.printable import logger
from tallystick.records import Xid
from tallystick.services.transactions.resource import (
    Branch,
    EndedByApplication,
    Problem,
    ResourceAnswer,
    ResourceUnreachable,
)
from tallystick.services.transactions.resources.pool import Closable, Connections, Pool
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading, time

_log = logger("tallystick.transactions")
_Connection = TypeVar("_Connection", bound=Closable)

OUTCOMES = "tallystick_outcomes"
"""The table of outcome rows, of this name in every database."""

IDENTITY = b"\0identity\0"
"""The global id of the row that tells a database from others; no coordinator makes one like it."""


class DriverErrors:
    """A block in which an error of the driver becomes `ResourceUnreachable`.

    It is for errors that say nothing of the branch. One object serves any number of blocks.
    """

    __slots__ = ("_errors",)

    def __init__(self, *errors: type[Exception]) -> None:
        self._errors = errors

    def answer(self, error: BaseException) -> ResourceAnswer:
        """Return what the error means for the coordinator."""
        return ResourceUnreachable(message_of(error))

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None and isinstance(error, self._errors):
            raise self.answer(error) from error


def shut_down(descriptor: int) -> None:
    """Shut the socket of a session down; calls that wait for it fail, in whichever thread."""
    with suppress(OSError):
        own = os.dup(descriptor)
        try:
            end = socket.socket(fileno=own)
        except BaseException:  # another file has the number meanwhile
            os.close(own)
            raise
        with end:
            end.shutdown(socket.SHUT_RDWR)


class _Watch(Uncopied):
    """A block whose connection is among those watched."""

    __slots__ = ("_connection", "_lock", "_watched")

    def __init__(
        self, connection: Any, watched: dict[object, tuple[float, Any]], lock: threading.Lock
    ) -> None:
        self._connection = connection
        self._watched = watched
        self._lock = lock

    def __enter__(self) -> None:
        self._watched[self] = time.monotonic(), self._connection

    def __exit__(self, *_: object) -> None:
        with self._lock:  # afterwards others use the connection
            del self._watched[self]


class NoTableError(Exception):
    """There is no place for outcome rows in a database."""


class ConnectionResource(Uncopied, ABC, Generic[_Connection]):
    """A database under its unique name, over pooled connections.

    Attributes:
        connect: makes a connection.
        pool: its connections; another pool can take its place before the first use.
        outcome_table: the table of outcome rows as statements name it; None if there is none.
        no_table: why there is none.
    """

    keeps_rows: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        connect: Callable[[], _Connection],
        errors: DriverErrors,
        alive: Callable[[_Connection], bool] = lambda _: True,
    ) -> None:
        self.name = text(name, "name")
        self.connect = connect = checked(connect, f"what connects to {name!r}")
        alive = checked(alive, f"what looks whether a connection to {name!r} is alive")

        def is_alive(connection: _Connection) -> bool:
            with self.watch(connection):
                return alive(connection)

        self.pool: Connections[_Connection] = Pool(connect, is_alive)
        self.errors = errors
        self._prepared_for_rows = False
        self._watched: dict[object, tuple[float, Any]] = {}
        self._watching = threading.Lock()
        self.outcome_table: str | None = None
        self.no_table = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def prepare_for_rows(self, *, again: bool = False) -> None:
        """Look for a place for outcome rows, once; ``again`` if there was none before.

        Raises:
            ResourceUnreachable: the database is away.
        """
        if self._prepared_for_rows and not (again and self.outcome_table is None):
            return
        with self.lend() as connection:
            try:
                self.outcome_table = self.make_table(connection)
            except NoTableError as error:
                self.no_table = str(error)
        self._prepared_for_rows = True

    def make_table(self, connection: _Connection) -> str:
        """Return the table of outcome rows, which is made if it is not there.

        Raises:
            NoTableError: it cannot be made.
        """
        raise NoTableError(f"{type(connection).__name__} has none")

    @contextmanager
    def lend(self) -> Iterator[_Connection]:
        """Lend a connection for a block that ends in time, or fails with `ResourceUnreachable`."""
        with self.errors, self.pool.borrow() as connection, self.watch(connection):
            yield connection

    def watch(self, connection: Any) -> _Watch:
        """Return a block in which `reap` ends the session of a connection if it takes too long."""
        return _Watch(connection, self._watched, self._watching)

    def reap(self, before: float) -> None:
        """End the sessions of blocks that began before this moment of the monotonic clock."""
        for began, _ in list(self._watched.values()):
            if began < before:
                break
        else:
            return
        with self._watching:
            for began, connection in list(self._watched.values()):
                if began < before:
                    try:
                        self.end_session(connection)
                    except Exception:  # of any driver: the other sessions must be ended
                        extra = {"resource": self.name}
                        _log.exception("a session could not be ended", extra=extra)

    def end_session(self, connection: Any) -> None:
        """End the session of a connection, so that a call that waits for it fails.

        Any thread may call it. A driver that offers nothing of the kind has no limit of time.
        """

    def begin(self, xid: Xid) -> Branch:
        """Begin a branch on a connection of its own."""
        if self.keeps_rows and not self._prepared_for_rows:
            self.prepare_for_rows()

        def start(connection: _Connection) -> Branch:
            with self.watch(connection):
                return self.start(connection, xid)

        with self.errors:
            return self.pool.begin(start)

    @abstractmethod
    def start(self, connection: _Connection, xid: Xid) -> Branch:
        """Begin the branch on the server. Raises the driver's errors."""

    def close(self) -> None:
        """Close idle connections, and the others when they come back."""
        self.pool.close()


def check_scheme(name: str, url: str, driver: str) -> None:
    """Raise `TransactionUsageError` for a URL that asks for another driver."""
    wanted = url.partition("://")[0].partition("+")[2]
    if wanted not in ("", driver):
        raise TransactionUsageError(
            f"the resource {name!r} is reached through {driver}, not {wanted}",
            advice="Leave the driver out of the URL, or write a Resource over that driver",
        )


def url_options(name: str, url: str, known: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """Return the options of a URL as settings of a driver.

    Args:
        name: the resource.
        url: with options after a question mark, perhaps.
        known: by name, what makes the value of a text, and raises `ValueError` if it is none.

    Raises:
        TransactionUsageError: an option is not known, given twice, or its value is none.
    """
    settings: dict[str, Any] = {}
    for option, given in parse_qsl(url.partition("?")[2], keep_blank_values=True):
        if option not in known or option in settings:
            raise TransactionUsageError(
                f"the option {option!r} of {name!r} is "
                + ("given twice" if option in settings else "not known"),
                expected=f"options among {', '.join(sorted(known))}" if known else "no options",
                advice="Connect through a SQLAlchemy engine for what a URL cannot say",
            )
        try:
            settings[option] = known[option](given)
        except ValueError as error:
            raise TransactionUsageError(
                f"{given!r} is no value of the option {option!r} of {name!r}"
            ) from error
    return settings


_WORDS = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(
    ("false", "0", "no", "off"), False
)


def yes_or_no(text: str) -> bool:
    """Return the meaning of a word in a URL. Raises `ValueError` for another one."""
    try:
        return _WORDS[text.lower()]
    except KeyError as error:
        raise ValueError(text) from error


def no_rows(name: str, why: str) -> Problem:
    """Return the problem of a database without a place for outcome rows."""
    return Problem(
        name,
        f"there is no table {OUTCOMES}: a commit whose answer is lost cannot be proved ({why})",
        f"Name a database in the address, and let the user create the table {OUTCOMES} in it",
    )


def no_primary(what: str) -> str:
    """Return why a server that follows another one cannot be asked for branches in doubt."""
    return f"{what} does not list every branch in doubt: give the address of its primary"


def message_of(error: BaseException) -> str:
    """Return the text of a driver's error, without its number, in one line."""
    arguments: tuple[Any, ...] = error.args
    text = str(arguments[-1] if arguments else error)
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def closed_by_application(name: str) -> TransactionUsageError:
    """Return the error for a commit of a branch whose connection the application has closed."""
    return TransactionUsageError(
        f"the connection of {name!r} was closed",
        advice="Leave it open: the transaction manager takes it back when the transaction ends",
    )


def ended_by_application(name: str) -> EndedByApplication:
    """Return the error for a branch whose transaction a statement of the application has ended."""
    return EndedByApplication(
        f"a statement of the application ended the transaction of {name!r}",
        found="COMMIT, ROLLBACK or the like before the transaction manager's own",
        advice="What it did there may be kept, everything else is rolled back: compare. "
        "Use savepoints for a part that can be undone",
    )
