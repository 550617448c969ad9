"""What a global transaction is, whoever drives it: its branches, its owner, its end.

In: branches as they begin, hooks. Out: steps (`steps`) that take the branches through two-phase
commit in the order that presumed abort needs, to one of three ends: committed, `RolledBackError`,
or an error that says what is not known (`InDoubtError`, `HeuristicError`). `transaction` drives
them in its thread, `aio` on an event loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from tallystick.errors import (
    RolledBackError,
    TransactionUsageError,
)
from tallystick.services.transactions.resource import (
    AnyBranch,
    Resource,
    is_last_resource,
)
from tallystick.services.transactions.steps import Steps
from tallystick.services.transactions.two_phase_commit import (
    commit_one_phase,
    complete_branches,
    prepare_branches,
    rollback_branches,
)

if TYPE_CHECKING:
    from tallystick.services.transactions.manager import TransactionManager

_log = logging.getLogger("tallystick.transactions")


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
OPEN = (Status.ACTIVE, Status.MARKED)


class GlobalTransaction:
    """Branches and their end. It belongs to the thread that began it."""

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
        self._branches: dict[str, AnyBranch] = {}
        self._last: str | None = None
        self._prepared: dict[str, AnyBranch] | None = None
        self._owner: int | None = threading.get_ident()
        self._deadline = time.monotonic() + timeout
        self._before: list[Callable[[], object]] = []
        self._after: list[Callable[[Status], object]] = []
        self.gtrid = gtrid
        self.status = Status.ACTIVE

    @property
    def branches(self) -> dict[str, AnyBranch]:
        """Enlisted branches by name, in the order of enlistment."""
        return dict(self._branches)

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

    # -- steps ------------------------------------------------------------------------------

    def _call_hooks(self) -> Steps[None]:
        """What comes before the first phase; a failure leaves only rollback."""
        self._require_open("commit it")
        try:
            for hook in self._before:  # noqa: UP028 - a list takes no answers
                yield hook
        except Exception as error:
            raise RolledBackError(f"rolled back before commit: {error}") from error

    def _commit(self) -> Steps[None]:
        """Both phases, or what is left of them."""
        yield from self._check()
        self.status = Status.COMMITTING
        ended = Status.ROLLED_BACK
        work = (self._manager, self.gtrid, self._branches, self._last)
        try:
            if self._prepared is None and len(self._branches) > 1:
                self._prepared = yield from prepare_branches(*work)
            ended = Status.UNRESOLVED
            if self._prepared is not None:
                yield from complete_branches(*work, self._prepared)
            else:
                for one in self._branches.items():
                    yield from commit_one_phase(self._manager, self.gtrid, *one)
            ended = Status.COMMITTED
        except RolledBackError:
            ended = Status.ROLLED_BACK
            raise
        finally:
            yield from self._end(ended)

    def _check(self) -> Steps[None]:
        """See that it may commit; what may only roll back does so."""
        if self.status is Status.PREPARED:
            self._require_owner("commit it")
            return
        try:
            self._require_open("commit it")
            if self.status is Status.MARKED:
                raise RolledBackError("the transaction was marked for rollback")
        except RolledBackError:
            yield from self._roll_back()
            raise

    def _prepare(self) -> Steps[None]:
        """The first phase alone."""
        yield from self._check()
        try:
            self._prepared = yield from prepare_branches(
                self._manager, self.gtrid, self._branches, self._last
            )
        except BaseException:
            yield from self._end(Status.ROLLED_BACK)
            raise
        self.status = Status.PREPARED

    def _roll_back(self) -> Steps[None]:
        if self.status is Status.PREPARED:
            self._require_owner("roll it back")
        else:
            self._require_open("roll it back", timed=False)
        try:
            yield from rollback_branches(self._manager, self._branches)
        finally:
            yield from self._end(Status.ROLLED_BACK)

    def _end(self, status: Status) -> Steps[None]:
        self.status = status
        for name, branch in self._branches.items():
            try:
                yield branch.close
            except Exception:  # the transaction is over, and the other branches are to be closed
                _log.exception("a branch could not be closed", extra={"resource": name})
        self._manager.ended(self)
        for hook in self._after:
            self._manager.guarded(hook, status)

    # -- checks -----------------------------------------------------------------------------

    def _joining(self, name: str) -> Resource:
        """The resource of a branch that shall begin. Raises `TransactionUsageError`."""
        resource = self._manager.resource(name)
        if self._last is not None and is_last_resource(resource):
            raise TransactionUsageError(
                f"{name!r} cannot prepare, and neither can {self._last!r}, enlisted before",
                advice="At most one resource of a transaction may be unable to prepare",
            )
        return resource

    def _join(self, name: str, resource: Resource, branch: AnyBranch) -> None:
        """The branch has begun."""
        self._branches[name] = branch
        if is_last_resource(resource):
            self._last = name

    def _require_new(self, name: str) -> None:
        if name in self._branches:
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
        if self._owner != threading.get_ident():
            raise TransactionUsageError(
                f"cannot {what}: the transaction belongs to another thread",
                advice="Call suspend() there and resume() here to hand it over",
            )
