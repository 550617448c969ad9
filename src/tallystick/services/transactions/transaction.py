"""One global transaction at work: its branches, its owner, its end.

In: calls of the application (enlist, commit, rollback, hooks). Out: branches driven through
two-phase commit in the order that presumed abort needs, and one of three ends: committed,
`RolledBackError`, or an error that says what is not known (`InDoubtError`, `HeuristicError`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tallystick.errors import (
    RolledBackError,
    TransactionUsageError,
)
from tallystick.services.transactions.commit import (
    commit_branches,
    complete_branches,
    prepare_branches,
    rollback_branches,
)
from tallystick.services.transactions.resource import Branch, is_last_resource

if TYPE_CHECKING:
    from tallystick.services.transactions.manager import TransactionManager


class Status(Enum):
    """Where a transaction of this process stands."""

    ACTIVE = "active"
    PREPARED = "prepared"
    MARKED = "marked for rollback"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNRESOLVED = "in doubt or heuristic"


_TIMED_OUT = "Roll it back; begin with a longer timeout if the work needs it"
_OPEN = (Status.ACTIVE, Status.MARKED)


class Transaction:
    """A global transaction; a context manager that commits, or rolls back on an exception.

    ``transaction["name"]`` enlists the resource of that name at its first use and gives its
    handle. It belongs to the thread that began it until `suspend` and `resume` hand it over.
    """

    __slots__ = (
        "_after",
        "_before",
        "_branches",
        "_deadline",
        "_last",
        "_manager",
        "_owner",
        "_prepared",
        "gtrid",
        "status",
    )

    def __init__(self, manager: TransactionManager, gtrid: bytes, timeout: float) -> None:
        self._manager = manager
        self._branches: dict[str, Branch] = {}
        self._last: str | None = None
        self._prepared: dict[str, Branch] | None = None
        self._owner: int | None = threading.get_ident()
        self._deadline = time.monotonic() + timeout
        self._before: list[Callable[[], object]] = []
        self._after: list[Callable[[Status], object]] = []
        self.gtrid = gtrid
        self.status = Status.ACTIVE

    @property
    def branches(self) -> dict[str, Branch]:
        """Enlisted branches by name, in the order of enlistment."""
        return dict(self._branches)

    def __getitem__(self, name: str) -> Any:
        self._require_open("use a resource")
        if name not in self._branches:
            self._branches[name] = self._enlist(name)
        return self._branches[name].handle

    def enlist(self, name: str) -> Any:
        """Enlist a resource and give its handle. Raises `TransactionUsageError` if it is
        enlisted already; ``transaction[name]`` does not mind."""
        if name in self._branches:
            raise TransactionUsageError(
                f"resource {name!r} is enlisted already",
                advice=f"Use transaction[{name!r}] for the handle of its one branch",
            )
        return self[name]

    def before_commit(self, hook: Callable[[], object]) -> None:
        """Call ``hook`` when commit begins; an exception in it rolls everything back."""
        self._before.append(hook)

    def after_completion(self, hook: Callable[[Status], object]) -> None:
        """Call ``hook`` with the final status; its exceptions are logged, not raised."""
        self._after.append(hook)

    def mark_rollback(self) -> None:
        """From now on the transaction can only roll back."""
        self._require_open("mark it")
        self.status = Status.MARKED

    def suspend(self) -> None:
        """Let go of the transaction, so that another thread may `resume` it."""
        self._require_open("suspend it", timed=False)
        self._owner = None

    def resume(self) -> None:
        """Take over a suspended transaction for this thread."""
        if self._owner is not None:
            raise TransactionUsageError(
                "the transaction is not suspended",
                advice="Call suspend() in the thread that works on it first",
            )
        self._owner = threading.get_ident()

    def commit(self) -> None:
        """Make it durable in every resource, or in none. Raises `RolledBackError`,
        `InDoubtError`, `HeuristicError`, `TransactionUsageError`."""
        if self._prepared is None:
            self._run_hooks()
        else:
            self._require_owner("commit it")
        self.status = Status.COMMITTING
        ended = Status.UNRESOLVED
        try:
            self._commit()
            ended = Status.COMMITTED
        except RolledBackError:
            ended = Status.ROLLED_BACK
            raise
        finally:
            self._end(ended)

    def _commit(self) -> None:
        work = (self._manager, self.gtrid, self._branches, self._last)
        if self._prepared is None:
            commit_branches(*work)
        else:
            complete_branches(*work, self._prepared)

    def prepare(self) -> None:
        """The first phase alone, for a coordinator above this one: afterwards only `commit`
        or `rollback` is left, and either can be carried out. Raises `RolledBackError`."""
        self._run_hooks()
        try:
            self._prepared = prepare_branches(self._manager, self.gtrid, self._branches, self._last)
        except BaseException:
            self._end(Status.ROLLED_BACK)
            raise
        self.status = Status.PREPARED

    def rollback(self) -> None:
        """Undo everything in every resource."""
        if self.status is Status.PREPARED:
            self._require_owner("roll it back")
        else:
            self._require_open("roll it back", timed=False)
        self._roll_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.status not in _OPEN:
            return
        if error is None:
            self.commit()
        else:
            self.rollback()

    def _run_hooks(self) -> None:
        """Everything that comes before the first phase; a failure rolls back."""
        self._require_open("commit it", timed=False)
        try:
            self._require_open("commit it")
            for hook in self._before:
                hook()
            if self.status is Status.MARKED:
                raise RolledBackError("the transaction was marked for rollback")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, RolledBackError):
                raise
            raise RolledBackError(f"rolled back before commit: {error}") from error

    def _enlist(self, name: str) -> Branch:
        resource = self._manager.resource(name)
        last = is_last_resource(resource)
        if last and self._last is not None:
            raise TransactionUsageError(
                f"{name!r} cannot prepare, and neither can {self._last!r}, enlisted before",
                advice="At most one resource of a transaction may be unable to prepare",
            )
        branch = resource.begin(self._manager.xids.branch(self.gtrid))
        if last:
            self._last = name
        return branch

    def _require_open(self, what: str, *, timed: bool = True) -> None:
        if self.status not in _OPEN:
            raise TransactionUsageError(
                f"cannot {what}: the transaction is {self.status.value}",
                advice="Begin another one with manager.begin()",
            )
        self._require_owner(what)
        if timed and time.monotonic() > self._deadline:
            self.status = Status.MARKED
            raise RolledBackError(f"cannot {what}: the transaction timed out", advice=_TIMED_OUT)

    def _require_owner(self, what: str) -> None:
        if self._owner != threading.get_ident():
            raise TransactionUsageError(
                f"cannot {what}: the transaction belongs to another thread",
                advice="Call suspend() there and resume() here to hand it over",
            )

    def _roll_back(self) -> None:
        try:
            rollback_branches(self._manager, self._branches)
        finally:
            self._end(Status.ROLLED_BACK)

    def _end(self, status: Status) -> None:
        self.status = status
        for branch in self._branches.values():
            branch.close()
        self._manager.ended(self)
        for hook in self._after:
            self._manager.guarded(hook, status)
