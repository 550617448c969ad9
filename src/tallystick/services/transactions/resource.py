"""Protocols of resources and branches, and the answers that a coordinator understands.

In: calls of the coordinator for one branch (`Branch`) or for branches found in doubt
(`Resource`). Out: a vote, success, or one of the answers below; a resource turns its
driver's errors into them, so that the coordinator knows no driver.

    ResourceAnswer
    ├── BranchRolledBack      the branch is gone, and nothing of it was kept
    ├── BranchUnknown         the resource does not know the branch (any more)
    ├── BranchHeuristic       the resource ended the branch against, or without, the decision
    └── ResourceUnreachable   nothing is known; ask again later
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, cast

from tallystick.errors import TransactionError, TransactionUsageError
from tallystick.printable import printable
from tallystick.records import Xid

begins_by: ContextVar[float] = ContextVar("tallystick_begins_by", default=math.inf)
"""The moment of the monotonic clock by which a branch that begins now must have begun.

For resources whose beginning waits for others, and cannot be ended from outside."""


class ResourceAnswer(TransactionError):  # noqa: N818 - not every answer is an error
    """An answer of a resource other than success."""


class BranchRolledBack(ResourceAnswer):
    """The branch is gone, and nothing of it was kept."""


class BranchUnknown(ResourceAnswer):
    """The resource does not know the branch (any more): XA's NOTA."""


class BranchHeuristic(ResourceAnswer):
    """The resource ended the branch against, or without, the decision."""


class ResourceUnreachable(ResourceAnswer):
    """Nothing is known about the branch; ask again later."""

    retryable = True


class EndedByApplication(TransactionUsageError):  # noqa: N818 - what happened
    """A statement of the application has ended the branch: what it did may be kept."""


class Vote(Enum):
    """A branch's answer to prepare; a refusal is `BranchRolledBack`."""

    PREPARED = "prepared"
    READ_ONLY = "read-only"
    """Nothing was changed: the branch is over and takes no part in phase two."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something of a resource that is not set up, and how to mend it."""

    resource: str
    what: str
    mend: str

    def __str__(self) -> str:
        return printable(f"{self.resource}: {self.what}. {self.mend}")


class Branch(Protocol):
    """One branch at work on one resource, used by one thread at a time."""

    @property
    def xid(self) -> Xid:
        """The XA id of the branch."""
        ...

    @property
    def handle(self) -> Any:
        """The object that the application works with: a connection, a session, a store."""
        ...

    def prepare(self) -> Vote:
        """Make the branch durable and able to go either way; verified, not assumed.

        After `BranchRolledBack` or `ResourceUnreachable` the coordinator calls `rollback`.
        """
        ...

    def commit(self) -> None:
        """Commit what was prepared."""
        ...

    def commit_one_phase(self) -> None:
        """Commit without prepare. `BranchRolledBack` if it was not committed."""
        ...

    def rollback(self) -> None:
        """Undo the branch, prepared or not; succeed if there is nothing to undo.

        `EndedByApplication` if that has ended it, and it cannot be told whether by a commit.
        """
        ...

    def close(self) -> None:
        """Release what the branch holds; called once, at the end, whatever happened."""
        ...


class EagerBranch(Branch, Protocol):
    """A branch that can be sent a request whose answer is awaited later.

    So several resources work at the same time. An error in sending is raised by the call that
    waits.
    """

    def send_prepare(self) -> bool:
        """Send the request of `prepare`; `prepare` or `rollback` follows. False if not sent."""
        ...

    def send_commit(self) -> bool:
        """Send the request of `commit`; `commit` follows. False if not sent."""
        ...


class SessionBranch(Branch, Protocol):
    """A branch whose session another thread can end. A branch for tasks may have these, too."""

    def abort(self) -> None:
        """End the session, so that a call that waits for it fails; at any moment."""
        ...

    def discard(self, *, prepared: bool) -> None:
        """Release the session, without waiting; nobody works with the branch any more."""
        ...


class AsyncBranch(Protocol):
    """A branch at work for a task: a `Branch` whose calls are awaited.

    It may have the calls of `EagerBranch`, too.
    """

    @property
    def xid(self) -> Xid:
        """The XA id of the branch."""
        ...

    @property
    def handle(self) -> Any:
        """The object that the application works with."""
        ...

    def prepare(self) -> Awaitable[Vote]:
        """Make the branch durable and able to go either way; see `Branch.prepare`."""
        ...

    def commit(self) -> Awaitable[None]:
        """Commit what was prepared."""
        ...

    def commit_one_phase(self) -> Awaitable[None]:
        """Commit without prepare."""
        ...

    def rollback(self) -> Awaitable[None]:
        """Undo the branch, prepared or not."""
        ...

    def close(self) -> Awaitable[None]:
        """Release what the branch holds."""
        ...


AnyBranch = Branch | AsyncBranch


class Resource(Protocol):
    """A database, store or queue under its unique name.

    One whose branches never wait may have an attribute ``instant = True``: an event loop then
    calls them directly.
    """

    @property
    def name(self) -> str:
        """The unique name, ASCII; decisions are recorded under it."""
        ...

    def begin(self, xid: Xid) -> Branch:
        """Begin a branch."""
        ...

    def in_doubt(self) -> Sequence[Xid]:
        """List every prepared branch, foreign ones too. Raises `ResourceUnreachable`."""
        ...

    def commit(self, xid: Xid) -> None:
        """Commit a branch found in doubt."""
        ...

    def rollback(self, xid: Xid) -> None:
        """Roll back a branch found in doubt."""
        ...

    def preflight(self) -> Sequence[Problem]:
        """Return what is not set up. Raises `ResourceUnreachable`."""
        ...

    def close(self) -> None:
        """Close connections that wait for their next branch."""
        ...


class AsyncResource(Resource, Protocol):
    """A resource that has branches for tasks. Branches of others run in worker threads there."""

    def begin_async(self, xid: Xid) -> Awaitable[AsyncBranch]:
        """Begin a branch for a task."""
        ...


class LastResource(Resource, Protocol):
    """A resource that cannot prepare.

    It commits last: its own commit, which also stores an outcome row with the global id, is the
    decision of the transaction. So a manager takes one database of the kind. Where several
    resources are one database, their attributes ``place`` are equal.
    """

    def has_outcome(self, gtrid: bytes) -> bool:
        """Return True if the transaction was committed here. Raises `ResourceUnreachable`."""
        ...

    def outcomes(self) -> Sequence[bytes]:
        """List the global ids of all outcome rows."""
        ...

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        """Delete the outcome rows of transactions that no branch needs any more."""
        ...


class ProvingResource(Resource, Protocol):
    """A resource whose branches store an outcome row with what they commit.

    The row is the proof of a commit whose answer was lost. It may be that there is no place for
    rows; then there are none.
    """

    def outcomes(self) -> Sequence[bytes]:
        """List the global ids of all outcome rows. Raises `ResourceUnreachable`."""
        ...

    def outcomes_of(self, name: str) -> Sequence[bytes]:
        """List the global ids of outcome rows stored under an earlier name of the resource."""
        ...

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        """Delete the outcome rows of transactions whose decisions are closed."""
        ...


def keeps_outcomes(resource: Resource) -> bool:
    """Return True for a resource that can list outcome rows, last resources included."""
    return hasattr(resource, "outcomes")


def identity_of(resource: Resource) -> str | None:
    """Return text that tells the database of a resource from others; None if there is none.

    Raises:
        ResourceUnreachable: the database cannot be asked.
    """
    ask = getattr(resource, "identity", None)
    return None if ask is None else cast("str | None", ask())


def is_last_resource(resource: Resource) -> bool:
    """Return True for a resource that cannot prepare."""
    return hasattr(resource, "has_outcome")


def require_one_last(resources: Mapping[str, Resource]) -> None:
    """Check that all resources that cannot prepare are one database.

    Raises:
        TransactionUsageError: two of them are not: no transaction could use both.
    """
    lasts = {
        getattr(resource, "place", name): name
        for name, resource in resources.items()
        if is_last_resource(resource)
    }
    if len(lasts) > 1:
        raise TransactionUsageError(
            f"{' and '.join(map(repr, lasts.values()))} cannot prepare, and are not one database",
            expected="at most one such database, as SQLite is, in a manager",
            advice="Put their tables into one database, or give each a manager of its own",
        )


def is_instant(resource: Resource) -> bool:
    """Return True for a resource whose branches never wait."""
    return bool(getattr(resource, "instant", False))


def abort(branch: AnyBranch) -> None:
    """End the session of a branch, if it has one, so that a call that waits for it fails.

    Any thread may call it, at any moment.
    """
    if hasattr(branch, "abort"):
        branch.abort()


def discard(branch: AnyBranch, *, prepared: bool) -> None:
    """Release what a branch holds that nobody works with any more, without waiting.

    A branch of a database rolls back with its session, unless it is prepared.
    """
    if hasattr(branch, "discard"):
        branch.discard(prepared=prepared)
    elif not inspect.iscoroutinefunction(branch.rollback):
        if not prepared:
            branch.rollback()
        branch.close()


def send_prepare(branch: AnyBranch) -> bool:
    """Send a branch the request to prepare; False if it has none to be sent ahead."""
    return hasattr(branch, "send_prepare") and bool(branch.send_prepare())


def send_commit(branch: AnyBranch) -> bool:
    """Send a branch the request to commit; False if it has none to be sent ahead."""
    return hasattr(branch, "send_commit") and bool(branch.send_commit())
