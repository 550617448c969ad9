"""Two-phase commit: databases that outlive every crash of their coordinator stay consistent.

In: a simulation. Out: an `AssertionError` if a transaction is torn, an acknowledged commit is lost,
one that was rolled back is there, or recovery says "clean" while something is in doubt.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from tallystick.errors import InDoubtError, RolledBackError, TallystickError
from tallystick.records import Xid
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.recovery import RecoveryReport
from tallystick.services.transactions.resource import (
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceUnreachable,
    Vote,
)
from tallystick.storage import scheduling
from tallystick.storage.files import FileSystem
from tallystick.testing.simulate import Simulation

FOLDER = "/coordinator"
PASSES = 20
"""Recoveries within which a database that is only slow has answered."""


class Database:
    """A database elsewhere: what it has prepared and committed survives every crash of ours.

    ``away`` is how often a call does not reach it, or its answer does not reach the caller.
    ``proves`` says whether it keeps outcome rows; a last resource always does.
    """

    def __init__(self, sim: Simulation, name: str, away: float, *, proves: bool) -> None:
        self.name = name
        self.sim = sim
        self.away = away
        self.proves = proves
        self.prepared: dict[Xid, str] = {}
        self.committed: list[str] = []
        self.outcomes: set[bytes] = set()

    def crosses(self, what: str) -> None:
        """Pass the network once; raise `ResourceUnreachable` if it is cut."""
        self.sim.pause()
        if self.sim.random.random() < self.away:
            raise ResourceUnreachable(f"{what}: the network is cut")

    def applied(self, work: str, gtrid: bytes) -> None:
        """Commit work, in one step with its outcome row."""
        self.committed.append(work)
        if self.proves:
            self.outcomes.add(gtrid)


class Branch:
    """A branch with at most one row, named by the transaction."""

    def __init__(self, database: Database, xid: Xid) -> None:
        self.xid = xid
        self.work = ""
        self._database = database

    @property
    def handle(self) -> Any:
        return self._write

    def _write(self, row: str) -> None:
        self.work = row

    def prepare(self) -> Vote:
        database = self._database
        database.crosses("prepare")
        if database.sim.random.random() < database.away:
            raise BranchRolledBack("a constraint is not met")
        if not self.work:
            return Vote.READ_ONLY
        database.prepared[self.xid] = self.work
        database.crosses("answer of prepare")
        return Vote.PREPARED

    def commit(self) -> None:
        _commit(self._database, self.xid)

    def commit_one_phase(self) -> None:
        database = self._database
        database.crosses("commit")
        if self.work:
            database.applied(self.work, self.xid.gtrid)
        database.crosses("answer of commit")

    def rollback(self) -> None:
        _roll_back(self._database, self.xid)

    def close(self) -> None:
        """Release nothing."""


class Last(Branch):
    """A branch that cannot prepare; its commit is the decision."""

    def prepare(self) -> Vote:
        raise AssertionError("a last resource is never asked to prepare")

    def commit(self) -> None:
        self.commit_one_phase()

    def rollback(self) -> None:
        """Do nothing: nothing was committed."""


def _commit(database: Database, xid: Xid) -> None:
    database.crosses("commit")
    if xid not in database.prepared:
        raise BranchUnknown("no such branch")
    database.applied(database.prepared.pop(xid), xid.gtrid)
    database.crosses("answer of commit")


def _roll_back(database: Database, xid: Xid) -> None:
    database.crosses("rollback")
    database.prepared.pop(xid, None)
    database.crosses("answer of rollback")


class Server:
    """A resource over a database that can prepare."""

    def __init__(self, database: Database) -> None:
        self.name = database.name
        self.database = database

    def begin(self, xid: Xid) -> Branch:
        self.database.crosses("begin")
        return Branch(self.database, xid)

    def in_doubt(self) -> Sequence[Xid]:
        self.database.crosses("list")
        return list(self.database.prepared)

    def commit(self, xid: Xid) -> None:
        _commit(self.database, xid)

    def rollback(self, xid: Xid) -> None:
        _roll_back(self.database, xid)

    def outcomes(self) -> Sequence[bytes]:
        self.database.crosses("outcomes")
        return list(self.database.outcomes)

    def forget_outcomes(self, gtrids: Sequence[bytes]) -> None:
        self.database.crosses("forget")
        self.database.outcomes.difference_update(gtrids)

    def preflight(self) -> Sequence[Problem]:
        return []

    def close(self) -> None:
        """Keep nothing open."""


class LastServer(Server):
    """A resource over one that cannot."""

    def begin(self, xid: Xid) -> Branch:
        self.database.crosses("begin")
        return Last(self.database, xid)

    def has_outcome(self, gtrid: bytes) -> bool:
        self.database.crosses("outcome")
        return gtrid in self.database.outcomes


class Model:
    """What applications were told of their transactions."""

    def __init__(self) -> None:
        self.over: dict[str, list[str]] = {}
        self.committed: list[str] = []
        self.rolled_back: list[str] = []

    def check(self, databases: dict[str, Database]) -> None:
        """Compare with what the databases hold in the end."""
        for row, names in self.over.items():
            held = [name for name in names if row in databases[name].committed]
            assert held in ([], names), f"torn: {row} is in {held} of {names}"
            assert held or row not in self.committed, f"acknowledged but lost: {row}"
            assert not held or row not in self.rolled_back, f"rolled back but there: {row}"
        for name, database in databases.items():
            assert len(set(database.committed)) == len(database.committed), f"twice in {name}"
            assert not database.prepared, f"left in doubt in {name}: {database.prepared}"


def commits(sim: Simulation) -> None:
    """Some lives of a coordinator, then one in which nothing fails and recovery ends its work."""
    random = sim.random
    away = random.choice((0.0, 0.0, 0.05, 0.2))
    proves = away > 0 or random.random() < 0.5
    databases = {name: Database(sim, name, away, proves=proves) for name in ("a", "b", "c")}
    last = random.choice((None, None, "c"))
    if last is not None:
        databases[last].proves = True
    workers, model = random.randint(1, 3), Model()

    def life(fs: FileSystem) -> None:
        with contextlib.suppress(TallystickError), _manager(fs, databases, last) as manager:
            running = [
                sim.spawn(_works, sim, manager, model, databases, name=f"worker-{number}")
                for number in range(workers)
            ]
            if random.random() < 0.3:
                running.append(sim.spawn(_recovers, manager))
            for one in running:
                one.join()

    for _ in range(random.randint(1, 2)):
        sim.until_crash(life)
    for database in databases.values():
        database.away = 0.0
    with _manager(sim.disk, databases, last) as manager:
        for _ in range(PASSES):
            report = manager.recover()
            _require_true(report, databases, manager)
            if not report.unreachable:
                break
            scheduling.time.sleep(10.0)  # it is only slow
        assert report.clean or not proves, f"nothing fails, yet not clean: {report}"
        assert not manager.decisions.heuristics(), "no database went against a decision"
    model.check(databases)


def _manager(
    fs: FileSystem, databases: dict[str, Database], last: str | None
) -> TransactionManager:
    resources = {
        name: (LastServer if name == last else Server)(one) for name, one in databases.items()
    }
    return TransactionManager(
        FOLDER, resources, node="node", fs=fs, timeout=30.0, call_timeout=5.0,
        recovery_interval=None, orphan_interval=0.0,
    )  # fmt: skip


def _works(
    sim: Simulation, manager: TransactionManager, model: Model, databases: dict[str, Database]
) -> None:
    for _ in range(2):
        names = sorted(sim.random.sample(sorted(databases), sim.random.randint(1, 3)))
        row = f"row-{len(model.over)}"
        model.over[row] = names
        try:
            with manager.begin() as transaction:
                for name in names:
                    transaction[name](row)
        except RolledBackError:
            model.rolled_back.append(row)
        except InDoubtError:
            pass
        except (ResourceUnreachable, TallystickError):
            return
        else:
            model.committed.append(row)


def _recovers(manager: TransactionManager) -> None:
    with contextlib.suppress(TallystickError):
        manager.recover()


def _require_true(
    report: RecoveryReport, databases: dict[str, Database], manager: TransactionManager
) -> None:
    """Check that "clean" is said only where nothing is in doubt any more."""
    if report.clean:
        left = {name: one.prepared for name, one in databases.items() if one.prepared}
        assert not left, f"clean, and yet in doubt: {left}"
        assert not manager.decisions.open_decisions()
