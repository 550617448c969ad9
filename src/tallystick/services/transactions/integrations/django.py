"""Django's databases in one global transaction: ``with atomic_all("orders", "stock"):``.

In: aliases of ``DATABASES`` with the engines for PostgreSQL (psycopg 3) or MariaDB and MySQL
(PyMySQL). Out: within the block each alias is a connection of its own, made by Django's engine with
its settings, in a branch: models, ``atomic`` (a savepoint), signals and cursors work as in
``atomic``, and what would end the branch is refused as there. Functions given to ``on_commit`` are
called after the global commit.

Setting ``TALLYSTICK``: ``{"COORDINATOR": folder, "DATABASES": [aliases], "OPTIONS": {…}}``. The
folder holds one directory per process that works at the same time; a process takes the first that
no other has, and settles what dead ones have left. The options are those of `TransactionManager`.
"""

from __future__ import annotations

import atexit
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, ExitStack
from pathlib import Path
from typing import Any, Self

from tallystick.callables import require_plain
from tallystick.errors import LogLockedError, MissingExtraError, TransactionUsageError
from tallystick.posix import after_fork_in_child
from tallystick.printable import logger
from tallystick.records import Xid
from tallystick.services.transactions.manager import TransactionManager
from tallystick.services.transactions.resource import Branch
from tallystick.services.transactions.transaction import Transaction
from tallystick.storage.scheduling import threading

try:
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.db import connections
    from django.db.transaction import Atomic, TransactionManagementError
    from django.utils.asyncio import async_unsafe
except ImportError as error:  # pragma: no cover - the extra is missing
    raise MissingExtraError("django", "django") from error

_log = logger("tallystick.transactions.django")

_SLOTS_MAX = 1000


_WRAPPER = "_tallystick_wrapper"
"""Attribute of a driver's connection: Django's wrapper of it, which a renewed one keeps."""


class DjangoDatabase:
    """A database of Django as a resource; everything but the handle is that of the native one.

    Args:
        alias: its name in ``DATABASES`` and as a resource.

    Raises:
        TransactionUsageError: its engine has no two-phase commit.
    """

    begin_async = None

    def __init__(self, alias: str) -> None:
        self.name = alias
        vendor = connections[alias].vendor
        self._native: Any
        if vendor == "postgresql":
            from tallystick.services.transactions.resources.postgres import PostgresResource

            self._native = PostgresResource(alias, self._connect)
        elif vendor == "mysql":
            from tallystick.services.transactions.resources.mysql import MySqlResource

            self._native = MySqlResource(alias, self._connect)
        else:
            raise TransactionUsageError(
                f"the database {alias!r} cannot take part: {vendor}",
                expected="an engine for PostgreSQL, MariaDB or MySQL",
            )

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._native, attribute)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def _connect(self) -> Any:
        """Connect as Django does, by its engine; return the driver's connection."""
        wrapper = connections.create_connection(self.name)
        wrapper.inc_thread_sharing()
        wrapper.connect()
        if wrapper.vendor == "postgresql":
            wrapper.set_autocommit(False)
        vars(wrapper.connection)[_WRAPPER] = wrapper
        return wrapper.connection

    def begin(self, xid: Xid) -> Branch:
        """Begin a branch on a connection whose handle is Django's wrapper of it."""
        inner = self._native.begin(xid)
        wrapper = vars(inner.raw)[_WRAPPER]
        wrapper.connection = inner.raw  # each branch has a connection of its own to the session
        branch: Any = _DjangoBranch(inner, wrapper)
        return branch  # type: ignore[no-any-return]  # all calls but the handle are the inner's


class _DjangoBranch:
    """A native branch whose handle is a wrapper of Django."""

    def __init__(self, inner: Any, wrapper: Any) -> None:
        self._inner = inner
        self.handle = wrapper

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._inner, attribute)


class _Process(threading.local):
    """The `atomic_all` block that this thread is in."""

    running: AtomicAll | None = None


_here = _Process()
_managers: dict[int, TransactionManager] = {}
_opening = threading.Lock()


def _after_fork() -> None:
    global _opening
    _opening = threading.Lock()  # a thread of the parent may have held the other one


after_fork_in_child(_after_fork)


def manager() -> TransactionManager:
    """Return the transaction manager of this process, which is opened at the first call.

    Raises:
        ImproperlyConfigured: the setting ``TALLYSTICK`` is missing.
    """
    with _opening:
        found = _managers.get(os.getpid())
        if found is None:
            found = _managers[os.getpid()] = _open()
            atexit.register(found.close)
        return found


def _open() -> TransactionManager:
    wanted = getattr(settings, "TALLYSTICK", None)
    if not wanted or "COORDINATOR" not in wanted:
        raise ImproperlyConfigured('TALLYSTICK = {"COORDINATOR": folder} is not set')
    aliases = wanted.get("DATABASES", list(settings.DATABASES))
    folder = Path(wanted["COORDINATOR"])
    options = wanted.get("OPTIONS", {})
    for slot in itertools.islice(_slots(folder), _SLOTS_MAX):
        resources = {alias: DjangoDatabase(alias) for alias in aliases}
        try:
            made = TransactionManager(slot, resources, **options)
        except LogLockedError:
            continue
        try:
            _settle_all(made, folder, slot)
        except BaseException:
            made.close()
            raise
        return made
    raise TransactionUsageError(f"{_SLOTS_MAX} processes coordinate below {folder}")


def _slots(folder: Path) -> Iterator[Path]:
    return (folder / str(number) for number in itertools.count())


def _settle_all(made: TransactionManager, folder: Path, own: Path) -> None:
    """Settle what this process left when it had the directory, and what dead processes left."""
    made.recover()
    for other in folder.iterdir():
        if other == own:
            continue
        try:
            made.take_over(other)
        except LogLockedError:
            continue  # alive
        except Exception:  # of any driver: the next start tries again
            _log.warning("a directory cannot be settled", exc_info=True, extra={"file": other})


_refuse_in_a_task: Callable[[], None] = async_unsafe(
    "atomic_all is no block of a coroutine: what it awaits would run in other threads, on other "
    "connections. Put the whole block into a function, and await sync_to_async(function)()"
)(lambda: None)


class AtomicAll(ContextDecorator):
    """A block in one global transaction over several databases; also a decorator.

    Within another such block it is a savepoint in each database.

    Args:
        aliases: of the databases.

    Raises:
        TransactionManagementError: one of them is in an ``atomic`` block already.
    """

    def __init__(self, *aliases: str) -> None:
        self._aliases = aliases
        self._transaction: Transaction | None = None
        self._nested: ExitStack | None = None
        self._before: dict[str, Any] = {}

    def __call__(self, function: Callable[..., Any]) -> Any:
        """Decorate a function. Raises `TransactionUsageError` if its calls have to be awaited."""
        return super().__call__(require_plain(function, "a function of atomic_all"))

    def _recreate_cm(self) -> Self:
        return type(self)(*self._aliases)

    def __enter__(self) -> None:
        _refuse_in_a_task()
        outer = _here.running
        if outer is not None:
            self._nest(outer)
            return
        for alias in self._aliases:
            _refuse_atomic(alias)
        transaction = manager().begin()
        transaction.__enter__()
        self._transaction = transaction
        _here.running = self
        try:
            for alias in self._aliases:
                self._join(alias)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def _nest(self, outer: AtomicAll) -> None:
        with ExitStack() as stack:
            for alias in self._aliases:
                if alias not in outer._before:
                    _refuse_atomic(alias)
                    outer._join(alias)
                stack.enter_context(Atomic(alias, savepoint=True, durable=False))
            self._nested = stack.pop_all()

    def _join(self, alias: str) -> None:
        """Begin the branch, and let the alias mean its connection in this thread."""
        assert self._transaction is not None
        wrapper = self._transaction[alias]
        usual = connections[alias]
        wrapper.execute_wrappers = usual.execute_wrappers
        wrapper.queries_log = usual.queries_log
        wrapper.force_debug_cursor = usual.force_debug_cursor
        wrapper.run_on_commit = []
        wrapper.needs_rollback = wrapper.closed_in_transaction = False
        wrapper.in_atomic_block = True
        wrapper.autocommit = False  # for Django: MariaDB needs it to be on at the server
        # Its presence refuses atomic(durable=True) within, as a nested block.
        wrapper.atomic_blocks = [Atomic(alias, savepoint=False, durable=True)]
        wrapper.atomic_blocks[0]._from_testcase = False
        wrapper.savepoint_ids = []
        self._before[alias] = usual
        connections[alias] = wrapper

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if self._nested is not None:
            nested, self._nested = self._nested, None
            return bool(nested.__exit__(kind, error, trace))
        transaction, self._transaction = self._transaction, None
        assert transaction is not None
        _here.running = None
        hooks, broken = self._leave()
        if broken and kind is None:
            transaction.__exit__(TransactionManagementError, None, None)
            raise TransactionManagementError(
                f"an inner block has failed in {', '.join(broken)}: everything is rolled back"
            )
        transaction.__exit__(kind, error, trace)
        if kind is None:
            for usual, functions in hooks:
                usual.run_on_commit += functions
                usual.run_and_clear_commit_hooks()
        return False

    def _leave(self) -> tuple[list[tuple[Any, list[Any]]], list[str]]:
        """Let the aliases mean their usual connections again.

        Returns:
            The functions of ``on_commit`` with the usual connection of each alias, and the aliases
            whose work may only be rolled back.
        """
        hooks, broken = [], []
        for alias, usual in self._before.items():
            wrapper = connections[alias]
            hooks.append((usual, wrapper.run_on_commit))
            if wrapper.needs_rollback:
                broken.append(alias)
            wrapper.run_on_commit = []
            wrapper.in_atomic_block = False
            wrapper.atomic_blocks = []
            connections[alias] = usual
        self._before = {}
        return hooks, broken


def atomic_all(*aliases: str | Callable[..., Any]) -> Any:
    """Return a block, or a decorator, in one global transaction over several databases.

    Args:
        aliases: of the databases; none for all that the manager has.
    """
    if len(aliases) == 1 and callable(aliases[0]):
        return atomic_all()(aliases[0])
    names = [str(alias) for alias in aliases] or list(manager().resources)
    return AtomicAll(*names)


def _refuse_atomic(alias: str) -> None:
    if connections[alias].in_atomic_block:
        raise TransactionManagementError(
            f"{alias!r} is in an atomic block already: what that did could not be rolled back with "
            "the other databases. Let atomic_all be the outermost block (in tests: "
            "TransactionTestCase)"
        )
