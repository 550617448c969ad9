"""A global transaction: its state, owner and hooks, and its face for a thread.

In: calls of the application (enlist, commit, rollback, hooks). Out: steps that take the branches
through two-phase commit (`two_phase_commit`) to one of three ends: committed, `RolledBackError`, or
an error that says what is not known (`InDoubtError`, `HeuristicError`). `Transaction` runs the
steps in its thread, `aio.AsyncTransaction` on an event loop.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from enum import Enum
from functools import partial
from typing import Any, Self, TypeVar

from tallystick.callables import require_plain
from tallystick.errors import RolledBackError, TransactionUsageError
from tallystick.printable import logger
from tallystick.services.transactions.resource import AnyBranch, Resource, is_last_resource
from tallystick.services.transactions.steps import Steps, drive
from tallystick.services.transactions.two_phase_commit import TwoPhaseCommit
from tallystick.services.transactions.xids import XidFactory
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading, time

_log = logger("tallystick.transactions")


class Status(Enum):
    """State of a transaction of this process."""

    ACTIVE = "active"
    PREPARED = "prepared"
    MARKED = "marked for rollback"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNRESOLVED = "in doubt or heuristic"


_TIMED_OUT = "Roll it back; begin with a longer timeout if the work needs it"
OPEN = (Status.ACTIVE, Status.MARKED)


_Handle = TypeVar("_Handle")
_Running = TypeVar("_Running", bound="GlobalTransaction")


def of_kind(handle: object, name: str, kind: type[_Handle]) -> _Handle:
    """Return a handle whose class is known. Raises `TransactionUsageError` if it has another."""
    if not isinstance(handle, kind):
        raise TransactionUsageError(
            f"the handle of {name!r} is of another class",
            expected=f"{kind.__module__}.{kind.__qualname__}",
            found=f"{type(handle).__module__}.{type(handle).__qualname__}",
        )
    return handle


def leave(running: ContextVar[_Running | None], entered: Token[_Running | None] | None) -> None:
    """End a ``with`` block: the transaction around it, or none, is the running one again.

    Each manager has a variable of its own, which a context would hold for ever if it were only set.
    """
    if entered is None:
        return
    try:
        running.reset(entered)
    except ValueError:  # entered in another context
        outer = entered.old_value
        running.set(None if outer is Token.MISSING else outer)


class GlobalTransaction(Uncopied):
    """What both faces of a transaction share. It belongs to the thread that began it.

    Args:
        protocol: two-phase commit over the branches, empty so far.
        resources: by name, those that can be enlisted.
        xids: makes the ids of branches.
    """

    __slots__ = (
        "__weakref__",
        "_after",
        "_before",
        "_deadline",
        "_owner",
        "_protocol",
        "_resources",
        "_xids",
        "gtrid",
        "status",
    )

    def __init__(
        self,
        protocol: TwoPhaseCommit,
        resources: Mapping[str, Resource],
        xids: XidFactory,
    ) -> None:
        self._protocol = protocol
        self._resources = resources
        self._xids = xids
        self._owner: int | None = threading.get_ident()
        self._deadline = protocol.deadline
        protocol.owner = weakref.ref(self)
        self._before: list[Callable[[], object]] | None = None
        self._after: list[Callable[[Status], object]] | None = None
        self.gtrid = protocol.gtrid
        self.status = Status.ACTIVE

    def __repr__(self) -> str:
        names = ", ".join(self._protocol.branches) or "no resource"
        return f"<{type(self).__name__} {self.gtrid.hex()}: {self.status.value}, {names}>"

    @property
    def branches(self) -> dict[str, AnyBranch]:
        """Enlisted branches by name, in the order of enlistment."""
        return dict(self._protocol.branches)

    @property
    def thread(self) -> int | None:
        """The identifier of the thread that it belongs to; None while it is suspended."""
        return self._owner

    def before_commit(self, hook: Callable[[], object]) -> None:
        """Call ``hook`` when commit begins; an exception in it rolls everything back.

        Raises:
            TransactionUsageError: it would run after the call.
        """
        self._takes(hook)
        self._before = self._before or []
        self._before.append(hook)

    def after_completion(self, hook: Callable[[Status], object]) -> None:
        """Call ``hook`` with the final status; its exceptions are logged, not raised.

        Raises:
            TransactionUsageError: it would run after the call.
        """
        self._takes(hook)
        self._after = self._after or []
        self._after.append(hook)

    def _takes(self, hook: Callable[..., object]) -> None:
        """Raise `TransactionUsageError` for a hook that cannot be called, and awaited, in time."""
        require_plain(hook, "a hook of a transaction", awaited=True)

    def mark_rollback(self) -> None:
        """Mark the transaction: from now on it can only roll back."""
        self._require_open("mark it")
        self.status = Status.MARKED

    # -- steps ------------------------------------------------------------------------------

    def _call_hooks(self) -> Steps[None]:
        """Call the hooks before the first phase; a failure leaves only rollback."""
        self._require_open("commit it")
        try:
            for hook in self._before or ():  # noqa: UP028 - `yield from` a list accepts no answers
                yield hook
        except Exception as error:
            raise RolledBackError(f"rolled back before commit: {error}") from error

    def _commit(self) -> Steps[None]:
        """Run both phases, or what is left of them."""
        if (refusal := self._refusal()) is not None:
            yield from self._roll_back()
            raise refusal
        self.status = Status.COMMITTING
        protocol = self._protocol
        ended = Status.ROLLED_BACK
        try:
            if protocol.prepared is None and len(protocol.branches) > 1:
                yield from protocol.prepare()
            ended = Status.UNRESOLVED
            yield from protocol.complete()
            ended = Status.COMMITTED
        except RolledBackError:
            ended = Status.ROLLED_BACK
            raise
        finally:
            if protocol.against:
                ended = Status.UNRESOLVED
            self.status = ended
            yield from protocol.close()
            yield from self._report(ended)

    def _refusal(self) -> RolledBackError | None:
        """Return why it may only roll back; None if it may commit."""
        if self.status is Status.PREPARED:
            self._require_owner("commit it")
            return None
        try:
            self._require_open("commit it")
        except RolledBackError as error:
            return error
        if self.status is Status.MARKED:
            return RolledBackError("the transaction was marked for rollback")
        return None

    def _prepare(self) -> Steps[None]:
        """Run the first phase alone."""
        if (refusal := self._refusal()) is not None:
            yield from self._roll_back()
            raise refusal
        try:
            yield from self._protocol.prepare()
        except BaseException:
            yield from self._end_rolled_back()
            raise
        self.status = Status.PREPARED
        self._protocol.is_ending = False

    def _roll_back(self) -> Steps[None]:
        if self.status is Status.PREPARED:
            self._require_owner("roll it back")
        else:
            self._require_open("roll it back", timed=False)
        try:
            yield from self._protocol.rollback()
        finally:
            yield from self._end_rolled_back()

    def _end_rolled_back(self) -> Steps[None]:
        self.status = status = Status.UNRESOLVED if self._protocol.against else Status.ROLLED_BACK
        yield from self._protocol.close()
        yield from self._report(status)

    def _report(self, status: Status) -> Steps[None]:
        """Tell those who watch, and the hooks, how it has ended."""
        self._protocol.ended(status)
        for hook in self._after or ():
            try:
                yield partial(hook, status)
            except Exception:  # a hook may raise anything; the transaction is over
                _log.exception("a hook after completion failed")

    def _explain(self, error: BaseException | None) -> None:
        """Raise `RolledBackError` from an error that a session ended too late has caused."""
        if self._protocol.expired and isinstance(error, Exception):
            raise RolledBackError("the transaction timed out", advice=_TIMED_OUT) from error

    # -- enlistment -------------------------------------------------------------------------

    def _joinable(self, name: str) -> Resource:
        """Return the resource of a branch that is to begin. Raises `TransactionUsageError`."""
        try:
            resource = self._resources[name]
        except KeyError:
            raise TransactionUsageError(
                f"there is no resource {name!r}",
                expected=f"one of {sorted(self._resources)}",
                advice="Give it to the manager under that name",
            ) from None
        if self._protocol.last is not None and is_last_resource(resource):
            last = self._protocol.last
            raise TransactionUsageError(
                f"{name!r} cannot prepare, and neither can {last!r}, enlisted before",
                advice="At most one resource of a transaction may be unable to prepare",
            )
        return resource

    def _join(self, name: str, resource: Resource, branch: AnyBranch) -> None:
        """Add a branch that has begun."""
        self._protocol.branches[name] = branch
        if is_last_resource(resource):
            self._protocol.last = name

    def _begin_now(self, name: str, resource: Resource) -> AnyBranch:
        """Begin a branch by a call that blocks, or never waits."""
        branch = resource.begin(self._xids.branch(self.gtrid))
        self._join(name, resource, branch)
        return branch

    # -- checks -----------------------------------------------------------------------------

    def _require_new(self, name: str) -> None:
        if name in self._protocol.branches:
            raise TransactionUsageError(
                f"resource {name!r} is enlisted already",
                advice=f"Use transaction[{name!r}] for the handle of its one branch",
            )

    def _require_open(self, what: str, *, timed: bool = True) -> None:
        if self.status not in OPEN:
            raise TransactionUsageError(
                f"cannot {what}: the transaction is {self.status.value}",
                advice="Begin another one with manager.begin()",
            )
        self._require_owner(what)
        if timed and time.monotonic() > self._deadline:
            self.status = Status.MARKED
            raise RolledBackError(f"cannot {what}: the transaction timed out", advice=_TIMED_OUT)

    def _require_owner(self, what: str) -> None:
        if self._protocol.of_parent:
            raise TransactionUsageError(
                f"cannot {what}: the transaction belongs to the process this one was forked from",
                advice="Begin another one in this process, with a manager of its own",
            )
        if self._owner != threading.get_ident():
            raise TransactionUsageError(
                f"cannot {what}: the transaction belongs to another thread",
                advice="Call suspend() there and resume() here to hand it over",
            )


class Transaction(GlobalTransaction):
    """A global transaction; a context manager that commits, or rolls back on an exception.

    ``transaction["name"]`` enlists the resource of that name at its first use and gives its
    handle. It belongs to the thread that began it until `suspend` and `resume` hand it over.
    """

    __slots__ = ("_entered", "_running")

    def __init__(
        self,
        protocol: TwoPhaseCommit,
        resources: Mapping[str, Resource],
        xids: XidFactory,
        running: ContextVar[Transaction | None],
    ) -> None:
        super().__init__(protocol, resources, xids)
        self._running = running
        self._entered: Token[Transaction | None] | None = None

    def _takes(self, hook: Callable[..., object]) -> None:
        require_plain(hook, "a hook of a transaction of threads")

    def __getitem__(self, name: str) -> Any:
        self._require_open("use a resource")
        branch = self._protocol.branches.get(name)
        if branch is None:
            branch = self._begin_now(name, self._joinable(name))
        return branch.handle

    def enlist(self, name: str) -> Any:
        """Enlist a resource and return its handle.

        Raises:
            TransactionUsageError: it is enlisted already; use ``transaction[name]``.
        """
        self._require_new(name)
        return self[name]

    def connection(self, name: str, kind: type[_Handle]) -> _Handle:
        """Return ``transaction[name]`` as what it is, so that type checkers know it.

        Args:
            name: the resource, which is enlisted at its first use.
            kind: the class of its handle, such as ``psycopg.Connection``.

        Raises:
            TransactionUsageError: the handle is something else.
        """
        return of_kind(self[name], name, kind)

    def suspend(self) -> None:
        """Release the transaction, so that another thread may `resume` it."""
        self._require_open("suspend it", timed=False)
        self._owner = None

    def resume(self) -> None:
        """Make this thread the owner of a suspended transaction."""
        if self._owner is not None:
            raise TransactionUsageError(
                "the transaction is not suspended",
                advice="Call suspend() in the thread that works on it first",
            )
        self._owner = threading.get_ident()

    def commit(self) -> None:
        """Make it durable in every resource, or in none.

        Raises:
            RolledBackError: nothing of it was kept.
            InDoubtError: it is not known yet; recovery will settle it.
            HeuristicError: a resource went against the decision.
            TransactionUsageError: it has ended, or belongs to another thread.
        """
        self._run_hooks()
        drive(self._commit())

    def prepare(self) -> None:
        """Run the first phase alone, for a coordinator above this one.

        Afterwards only `commit` or `rollback` is left, and either can be carried out.

        Raises:
            RolledBackError: nothing of it was kept.
        """
        self._run_hooks()
        drive(self._prepare())

    def rollback(self) -> None:
        """Undo everything in every resource.

        Raises:
            HeuristicError: a resource says that it has committed, or may have.
        """
        drive(self._roll_back())

    def __enter__(self) -> Self:
        self._entered = self._running.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        leave(self._running, self._entered)
        self._entered = None
        if self.status not in OPEN:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()
            self._explain(error)

    def _run_hooks(self) -> None:
        if not self._before or self.status is Status.PREPARED:
            return
        try:
            drive(self._call_hooks())
        except TransactionUsageError:
            raise
        except BaseException:
            drive(self._roll_back())
            raise
