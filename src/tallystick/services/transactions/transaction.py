"""A global transaction: its state, owner and hooks, and its face for a thread.

In: calls of the application (enlist, commit, rollback, hooks). Out: steps that take the branches
through two-phase commit (`two_phase_commit`) to one of three ends: committed, `RolledBackError`, or
an error that says what is not known (`InDoubtError`, `HeuristicError`). `Transaction` runs the
steps in its thread, `aio.AsyncTransaction` on an event loop.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, NoReturn, Self, TypeVar

from tallystick.callables import require_plain
from tallystick.errors import RolledBackError, TransactionUsageError
from tallystick.printable import logger
from tallystick.records import Xid
from tallystick.services.driver_errors import (
    driver_error_in,
    is_of_driver,
    is_retryable,
    kind_of,
    refused_by,
)
from tallystick.services.transactions.resource import (
    AnyBranch,
    Branch,
    Resource,
    ResourceAnswer,
    begins_by,
    is_last_resource,
)
from tallystick.services.transactions.steps import Hook, Steps, drive_in_block
from tallystick.services.transactions.two_phase_commit import (
    CLOSED,
    TIMED_OUT,
    TwoPhaseCommit,
    cut_short,
)
from tallystick.services.transactions.xids import XidFactory
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import starts_unchecked, uninterrupted

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


class Running(NamedTuple):
    """The transaction whose block is open in a context, and the task or thread that opened it.

    A copy of the context in another task or thread has it, too, and is not in the block. Without a
    ``holder`` it is: a request is handled in several threads and tasks.
    """

    transaction: GlobalTransaction
    holder: object


Current = ContextVar[Running | None]
"""What runs in a context, of one manager."""


def inside(current: Current) -> GlobalTransaction | None:
    """Return the transaction whose block this thread or task is in; None outside of blocks."""
    found = current.get()
    if found is None or found.transaction.status not in OPEN:
        return None
    return found.transaction if found.holder is None or found.holder == here() else None


def here() -> object:
    """Return the task that runs; outside of tasks the identifier of the thread."""
    # Not get_running_loop(), whose error costs each commit outside of tasks a microsecond.
    loop = asyncio._get_running_loop()
    return (None if loop is None else asyncio.current_task(loop)) or threading.get_ident()


class Joined(Generic[_Running]):
    """The block of a call that takes part in a transaction which is running.

    What leaves it by an exception marks the whole transaction for rollback.
    """

    def __init__(self, transaction: _Running) -> None:
        self._transaction = transaction

    def __enter__(self) -> _Running:
        return self._transaction

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._transaction._fail(error)

    async def __aenter__(self) -> _Running:
        return self._transaction

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.__exit__(_, error, __)


class GlobalTransaction(Uncopied):
    """What both faces of a transaction share.

    Args:
        protocol: two-phase commit over the branches, empty so far.
        resources: by name, those that can be enlisted.
        xids: makes the ids of branches.
        current: where its block is noted while it is open.
    """

    __slots__ = (
        "__weakref__",
        "_after",
        "_before",
        "_current",
        "_deadline",
        "_entered",
        "_failure",
        "_in_hook",
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
        current: Current,
    ) -> None:
        self._protocol = protocol
        self._current = current
        self._entered: Token[Running | None] | None = None
        self._failure: BaseException | None = None
        self._resources = resources
        self._xids = xids
        self._owner: int | None = threading.get_ident()
        self._deadline = protocol.deadline
        protocol.owner = weakref.ref(self)
        self._before: list[Callable[[], object]] | None = None
        self._after: list[Callable[[Status], object]] | None = None
        self._in_hook = False
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
        """The identifier of the thread that used it last; None while it is suspended."""
        return self._owner

    @property
    def ends_with(self) -> int | None:
        """The thread without which nobody ends it; None if another one may."""
        return self._owner

    def before_commit(self, hook: Callable[[], object]) -> None:
        """Call ``hook`` when commit begins; an exception in it rolls everything back.

        It is inside the transaction, and may use it, but not commit, prepare or roll it back.

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

    # -- the block --------------------------------------------------------------------------

    def _enter(self, holder: object) -> None:
        """Open the block: from now on the transaction is the running one of its holder."""
        if self._entered is not None:
            raise TransactionUsageError(
                "the block of the transaction is open already",
                advice="Use the transaction within it, or begin(join=True)",
            )
        self._entered = self._current.set(Running(self, holder))

    def _leave(self) -> None:
        """Close the block: the transaction around it, or none, is the running one again.

        Each manager has a variable of its own, which a context would hold for ever if it were only
        set.
        """
        entered, self._entered = self._entered, None
        if entered is None:
            return
        try:
            self._current.reset(entered)
        except ValueError:  # it was opened in another context
            found, outer = self._current.get(), entered.old_value
            if found is not None and found.transaction is self:
                self._current.set(None if outer is Token.MISSING else outer)

    def _fail(self, error: BaseException) -> None:
        """Mark the transaction: a call that had joined it raised an error."""
        if self.status in OPEN:
            self.status = Status.MARKED
            self._failure = self._failure or error

    # -- steps ------------------------------------------------------------------------------

    def _call_hooks(self) -> Steps[None]:
        """Call the hooks before the first phase; a failure leaves only rollback."""
        self._require_open("commit it")
        try:
            for hook in self._before or ():
                yield from self._call_hook(partial(self._inside, hook))
        except Exception as error:
            if is_of_driver(error):  # a session that was flushed
                raise
            raise RolledBackError(f"rolled back before commit: {error}") from error

    def _inside(self, hook: Callable[[], object]) -> object:
        """Call a hook as within the block: what it calls joins the transaction it is a part of."""
        outer = self._current.set(Running(self, here()))
        try:
            return hook()
        finally:
            self._current.reset(outer)

    def _call_hook(self, hook: Callable[[], object]) -> Steps[None]:
        """Call a hook, which cannot end the transaction meanwhile."""
        self._in_hook = True
        try:
            yield Hook(hook)
        finally:
            self._in_hook = False

    def _refuse_hook(self, what: str) -> None:
        """Raise `TransactionUsageError` while a hook runs: the call that called it goes on."""
        if self._in_hook:
            raise TransactionUsageError(
                f"cannot {what}: a hook of the transaction is running",
                advice="Raise an error in before_commit, or call mark_rollback(), to have it "
                "rolled back; in after_completion it has ended",
            )

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
        except RolledBackError as error:
            ended = Status.ROLLED_BACK
            _raise_as_known(error)
        except BaseException:
            if not protocol.is_ending:  # interrupted before the protocol began
                ended = Status.ROLLED_BACK
                yield from protocol.rollback()
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
            return self._marked()
        return None

    def _marked(self) -> RolledBackError:
        """Return why it was marked for rollback."""
        failure, self._failure = self._failure, None
        if failure is None:
            return RolledBackError("the transaction was marked for rollback")
        refusal = RolledBackError(
            "rolled back: a call that had joined the transaction raised "
            f"{type(failure).__name__}: {failure}",
            advice="Let the exception pass, or do in begin(independent=True) what may fail alone",
        )
        refusal.__cause__ = failure
        return refusal

    def _prepare(self) -> Steps[None]:
        """Run the first phase alone."""
        if (refusal := self._refusal()) is not None:
            yield from self._roll_back()
            raise refusal
        try:
            yield from self._protocol.prepare()
        except BaseException as error:
            yield from self._end_rolled_back()
            if isinstance(error, RolledBackError):
                _raise_as_known(error)
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
        interrupt: BaseException | None = None
        for hook in self._after or ():
            try:
                yield from self._call_hook(partial(hook, status))
            except Exception:  # a hook may raise anything; the transaction is over
                _log.exception("a hook after completion failed")
            except GeneratorExit:
                raise
            except BaseException as error:  # the others are called all the same
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def _why_short(self) -> str | None:
        """Return why its sessions were ended, None if they were not; asked before a rollback.

        A rollback that takes long has its own sessions ended, too, which explains no error before.
        """
        why = self._protocol.cut_short
        if why is None and time.monotonic() > self._deadline:  # before another thread has noticed
            return TIMED_OUT
        return why

    def _explain(self, error: BaseException | None, why: str | None) -> None:
        """Raise `RolledBackError` from an error that the end of its sessions has caused."""
        if why is not None and isinstance(error, Exception):
            raise cut_short(why) from error

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
        self._protocol.require_known(name)
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
        branch = self._begin_in_time_left(resource, self._xids.branch(self.gtrid))
        self._join(name, resource, branch)
        return branch

    def _begin_in_time_left(self, resource: Resource, xid: Xid) -> Branch:
        """Begin a branch that waits no longer than the transaction allows."""
        token = begins_by.set(self._deadline)
        try:
            return resource.begin(xid)
        finally:
            begins_by.reset(token)

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
        if timed and (self._protocol.is_manager_closing or time.monotonic() > self._deadline):
            self.status = Status.MARKED
            why = CLOSED if self._protocol.is_manager_closing else TIMED_OUT
            raise cut_short(self._protocol.cut_short or why, f"cannot {what}")

    def _require_owner(self, what: str) -> None:
        if self._protocol.of_parent:
            raise TransactionUsageError(
                f"cannot {what}: the transaction belongs to the process this one was forked from",
                advice="Begin another one in this process, with a manager of its own",
            )
        self._require_thread(what)

    def _require_thread(self, what: str) -> None:
        if self._owner != threading.get_ident():
            raise TransactionUsageError(
                f"cannot {what}: the transaction belongs to another thread, that of its event loop",
                advice="Use it in tasks of that loop",
            )


def _raise_as_known(error: RolledBackError) -> NoReturn:
    """Raise the driver's own error if it says that the work can never be committed.

    Calls of ours, between the driver's error and that of the transaction, are not shown.
    """
    if kind_of(error) is not None:
        error.retryable = is_retryable(error)
    refused, found = refused_by(error), driver_error_in(error)
    if found is not None and isinstance(error.__cause__, ResourceAnswer):
        error = error.with_traceback(None)
        error.__cause__ = found.with_traceback(None)
    if refused is not None:
        raise refused from refused.__cause__
    raise error


class Transaction(GlobalTransaction):
    """A global transaction; a context manager that commits, or rolls back on an exception.

    ``transaction["name"]`` enlists the resource of that name at its first use and gives its
    handle. It belongs to who holds it: any thread may use and end it, one at a time.
    """

    __slots__ = ("_in_use",)

    def __init__(
        self,
        protocol: TwoPhaseCommit,
        resources: Mapping[str, Resource],
        xids: XidFactory,
        current: Current,
    ) -> None:
        super().__init__(protocol, resources, xids, current)
        self._in_use = threading.Lock()

    @property
    def ends_with(self) -> int | None:
        """The thread without which nobody ends it: the last one, unless its block is open.

        An open block outlives a thread as a generator, which another thread closes.
        """
        return self._owner if self._entered is None else None

    def _claim(self, what: str) -> bool:
        """Keep other threads out of a call; return True if the call has to let them in again.

        Raises:
            TransactionUsageError: another thread is in a call.
        """
        if self._in_use.acquire(blocking=False):
            if self._owner is not None:
                self._owner = threading.get_ident()
            return True
        if self._owner == threading.get_ident():  # a hook
            return False
        self._require_owner(what)
        raise TransactionUsageError(
            f"cannot {what}: another thread is using the transaction at this moment",
            advice="Let one thread at a time use it, or begin a transaction in each",
        )

    def _alone(self, what: str, work: Callable[[], None]) -> None:
        """Do something while no other thread is in a call; called in an uninterrupted block."""
        claimed = self._claim(what)
        try:
            self._refuse_hook(what)
            work()
        finally:
            if claimed:
                self._in_use.release()

    def _require_thread(self, what: str) -> None:
        if self._owner is None:
            raise TransactionUsageError(
                f"cannot {what}: the transaction is suspended", advice="Call resume() first"
            )

    def _takes(self, hook: Callable[..., object]) -> None:
        require_plain(hook, "a hook of a transaction of threads")

    def __getitem__(self, name: str) -> Any:
        with uninterrupted:
            claimed = self._claim("use a resource")
            try:
                self._require_open("use a resource")
                branch = self._protocol.branches.get(name)
                if branch is None:
                    branch = self._begin_now(name, self._joinable(name))
                return branch.handle
            finally:
                if claimed:
                    self._in_use.release()

    def enlist(self, name: str) -> Any:
        """Enlist a resource and return its handle.

        Raises:
            TransactionUsageError: it is enlisted already; use ``transaction[name]``.
        """
        self._require_new(name)
        return self[name]

    def connection(self, name: str, kind: type[_Handle]) -> _Handle:
        """Return ``transaction[name]`` with its class, for type checkers.

        Args:
            name: the resource, which is enlisted at its first use.
            kind: the class of its handle, such as ``psycopg.Connection``.

        Raises:
            TransactionUsageError: the handle is something else.
        """
        return of_kind(self[name], name, kind)

    def suspend(self) -> None:
        """Refuse all calls until `resume`, which any thread may call."""
        self._require_open("suspend it", timed=False)
        self._owner = None

    def resume(self) -> None:
        """Go on with a suspended transaction, in this thread."""
        if self._owner is not None:
            raise TransactionUsageError(
                "the transaction is not suspended",
                advice="Use it as it is: any thread may, one at a time",
            )
        self._owner = threading.get_ident()

    def commit(self) -> None:
        """Make it durable in every resource, or in none.

        Raises:
            RolledBackError: nothing of it was kept.
            Exception: nor was it if a driver's error says that a constraint or a value forbids it.
            InDoubtError: it is not known yet; recovery will settle it.
            HeuristicError: a resource went against the decision.
            TransactionUsageError: it has ended, or another thread is using it.
        """
        with uninterrupted:
            self._alone("commit it", self._commit_now)

    def _commit_now(self) -> None:
        self._run_hooks()
        drive_in_block(self._commit())

    def prepare(self) -> None:
        """Run the first phase alone, for a coordinator above this one.

        Afterwards only `commit` or `rollback` is left, and either can be carried out by this
        process. If it ends before, recovery rolls the transaction back: nothing was decided here.

        Raises:
            RolledBackError: nothing of it was kept.
        """
        with uninterrupted:
            self._alone("prepare it", self._prepare_now)

    def _prepare_now(self) -> None:
        self._run_hooks()
        drive_in_block(self._prepare())

    def rollback(self) -> None:
        """Undo everything in every resource.

        Raises:
            HeuristicError: a resource says that it has committed, or may have.
            TransactionUsageError: a statement of the program has ended a part of it before.
        """
        with uninterrupted:
            self._alone("roll it back", self._roll_back_now)

    def _roll_back_now(self) -> None:
        drive_in_block(self._roll_back())

    def __enter__(self) -> Self:
        outer = self._current.get()
        try:
            self._enter(here())
            return self
        except BaseException:
            with uninterrupted:
                if self._current.get() is not outer:  # a signal came once it was the running one
                    self._current.set(outer)
                    self._entered = None
            raise

    @starts_unchecked
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        with uninterrupted:
            self._leave()
            if self.status not in OPEN or (kind is not None and self._protocol.of_parent):
                return
            try:
                if kind is None:
                    self._alone("commit it", self._commit_now)
                else:
                    why = self._why_short()
                    self._alone("roll it back", self._roll_back_now)
                    self._explain(error, why)
            except BaseException:
                self._end_open()
                raise

    def _end_open(self) -> None:
        """Roll back what is open still, unless another thread is at work with it."""
        if self.status not in OPEN or self._owner is None:
            return
        if self._in_use.acquire(blocking=False) or self._owner == threading.get_ident():
            self._owner = threading.get_ident()
            self._roll_back_now()

    def _run_hooks(self) -> None:
        if not self._before or self.status is Status.PREPARED:
            return
        try:
            drive_in_block(self._call_hooks())
        except TransactionUsageError:
            raise
        except BaseException:
            self._roll_back_now()
            raise
