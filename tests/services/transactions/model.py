"""Databases in memory that prepare, one that cannot, and a decision log.

`DurableState` holds all that survives a crash. Resources and logs made from it have no state, so a
test simulates a crash by making new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.errors import LogPoisonedError
from tallystick.records import State, Xid
from tallystick.roles import Decision, DecisionOutcome
from tallystick.services.transactions.resource import (
    BranchHeuristic,
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceUnreachable,
    Vote,
)


@dataclass
class Database:
    """Durable state of one database: values, and values that wait in prepared branches."""

    values: dict[str, int] = field(default_factory=dict)
    prepared: dict[Xid, dict[str, int]] = field(default_factory=dict)
    outcomes: set[bytes] = field(default_factory=set)
    proves: bool = True
    away: bool = False
    refuse_prepare: bool = False
    heuristic: bool = False
    lose_answer_of_commit: bool = False

    def require(self) -> None:
        if self.away:
            raise ResourceUnreachable("the database is away")


@dataclass
class DurableState:
    """Everything that survives a crash of the coordinator."""

    databases: dict[str, Database] = field(default_factory=dict)
    decisions: dict[bytes, frozenset[str]] = field(default_factory=dict)
    heuristics: dict[bytes, frozenset[str]] = field(default_factory=dict)
    log_fails: bool = False
    notes: list[tuple[State, bytes]] = field(default_factory=list)

    def resources(self, last: str | None = None) -> dict[str, ModelResource]:
        return {
            name: (LastModelResource if name == last else ModelResource)(name, database)
            for name, database in self.databases.items()
        }


class Done:
    """A ticket that is durable already, or has failed."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is None
        if self._error is not None:
            raise self._error
        return 1

    def done(self) -> bool:
        return True

    def start_flush(self) -> None:
        pass

    def __await__(self) -> Generator[object, None, int]:
        yield from ()
        return self.wait()


class ModelLog:
    """The decision log."""

    def __init__(self, state: DurableState) -> None:
        self._state = state

    def note(self, state: State, gtrid: bytes, resources: Collection[str]) -> None:
        assert resources
        self._state.notes.append((state, gtrid))

    def decide(self, gtrid: bytes, resources: Collection[str]) -> Done:
        if self._state.log_fails:
            return Done(LogPoisonedError("the log failed"))
        known = self._state.decisions.get(gtrid, frozenset())
        self._state.decisions[gtrid] = known | frozenset(resources)
        return Done()

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        left = self._state.decisions.pop(gtrid, frozenset()) - frozenset(resources)
        if left:
            self._state.decisions[gtrid] = left
        if outcome is DecisionOutcome.HEURISTIC:
            known = self._state.heuristics.get(gtrid, frozenset())
            self._state.heuristics[gtrid] = known | frozenset(resources)

    def open_decisions(self) -> Mapping[bytes, Decision]:
        return {g: Decision(g, names) for g, names in self._state.decisions.items()}

    def heuristics(self) -> Mapping[bytes, frozenset[str]]:
        return dict(self._state.heuristics)

    def settle(self, gtrid: bytes) -> Done:
        del self._state.heuristics[gtrid]
        return Done()

    def close(self) -> None:
        pass


class ModelBranch:
    """A branch that adds to values."""

    def __init__(self, database: Database, xid: Xid) -> None:
        self.xid = xid
        self.work: dict[str, int] = {}
        self.closed = 0
        self._database = database
        self._prepared = False

    @property
    def handle(self) -> Callable[[str, int], None]:
        def add(key: str, value: int) -> None:
            self.work[key] = self.work.get(key, 0) + value

        return add

    def prepare(self) -> Vote:
        self._database.require()
        if self._database.refuse_prepare:
            raise BranchRolledBack("refused")
        if not self.work:
            return Vote.READ_ONLY
        self._database.prepared[self.xid] = self.work
        self._prepared = True
        return Vote.PREPARED

    def commit(self) -> None:
        settle(self._database, self.xid, commit=True)

    def commit_one_phase(self) -> None:
        self._database.require()
        if self._database.refuse_prepare:
            raise BranchRolledBack("refused")
        apply(self._database, self.work)

    def rollback(self) -> None:
        self._database.require()
        self._database.prepared.pop(self.xid, None)

    def close(self) -> None:
        self.closed += 1
        assert self.closed == 1, "a branch is closed once"


class LastModelBranch(ModelBranch):
    def prepare(self) -> Vote:
        raise AssertionError("a last resource is never asked to prepare")

    def commit(self) -> None:
        self.commit_one_phase()
        self._database.outcomes.add(self.xid.gtrid)
        if self._database.lose_answer_of_commit:
            raise ResourceUnreachable("the answer was lost")


class ModelResource:
    """A database that can prepare."""

    branch: type[ModelBranch] = ModelBranch

    def __init__(self, name: str, database: Database) -> None:
        self.name = name
        self.database = database

    def begin(self, xid: Xid) -> ModelBranch:
        self.database.require()
        return self.branch(self.database, xid)

    def in_doubt(self) -> Sequence[Xid]:
        self.database.require()
        return list(self.database.prepared)

    def commit(self, xid: Xid) -> None:
        settle(self.database, xid, commit=True)

    def rollback(self, xid: Xid) -> None:
        settle(self.database, xid, commit=False)

    def outcomes(self) -> Sequence[bytes]:
        self.database.require()
        return list(self.database.outcomes)

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        self.database.outcomes.difference_update(gtrids)

    def preflight(self) -> Sequence[Problem]:
        self.database.require()
        return []

    def close(self) -> None:
        pass


class LastModelResource(ModelResource):
    branch = LastModelBranch

    def has_outcome(self, gtrid: bytes) -> bool:
        self.database.require()
        return gtrid in self.database.outcomes


def settle(database: Database, xid: Xid, *, commit: bool) -> None:
    """End a prepared branch as the database would."""
    database.require()
    if xid not in database.prepared:
        raise BranchUnknown("no such branch")
    work = database.prepared.pop(xid)
    if database.heuristic:
        raise BranchHeuristic("rolled back by hand")
    if commit:
        apply(database, work)
        if database.proves:
            database.outcomes.add(xid.gtrid)


def apply(database: Database, work: dict[str, int]) -> None:
    for key, value in work.items():
        database.values[key] = database.values.get(key, 0) + value
