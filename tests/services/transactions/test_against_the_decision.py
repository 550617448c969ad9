"""No branch goes against the decision without a record of it, whatever branches answer and when.

Three branches answer each phase in one of four ways, before the program goes on to a recovery and
an operator. The whole table runs with the soak tests, a sample by seed with the others.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tallystick.errors import (
    HeuristicError,
    InDoubtError,
    RolledBackError,
    TransactionError,
    TransactionUsageError,
)
from tallystick.indoubt.settle import settle
from tallystick.records import Xid
from tallystick.services.transactions import TransactionManager, Vote
from tallystick.services.transactions.resource import (
    BranchHeuristic,
    BranchRolledBack,
    BranchUnknown,
    Problem,
    ResourceUnreachable,
)
from tallystick.testing.memory import MemoryFileSystem

ANSWERS: dict[str, Callable[[], Exception] | None] = {
    "ok": None,
    "heuristic": lambda: BranchHeuristic("ended by hand"),
    "unreachable": lambda: ResourceUnreachable("away"),
    "rolled back": lambda: BranchRolledBack("gone"),
}
OPERATORS: tuple[bool | None, ...] = (True, False, None)
SAMPLE = 40
FOLDER = "/tm"


@dataclass
class Scripted:
    """A resource of one branch, whose answers to each phase are given."""

    name: str
    prepare: str
    end: str
    prepared: list[Xid] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    heuristic: bool = False
    instant = True

    def answer(self, which: str, xid: Xid) -> None:
        """Raise the answer; a branch is gone but after ``unreachable``."""
        if which != "unreachable" and xid in self.prepared:
            self.prepared.remove(xid)
        self.heuristic = self.heuristic or which == "heuristic"
        if (made := ANSWERS[which]) is not None:
            raise made()

    def begin(self, xid: Xid) -> Branch:
        return Branch(self, xid)

    def in_doubt(self) -> list[Xid]:
        return list(self.prepared)

    def commit(self, xid: Xid) -> None:
        self._end("commit", xid)

    def rollback(self, xid: Xid) -> None:
        self._end("rollback", xid)

    def _end(self, verb: str, xid: Xid) -> None:
        if xid not in self.prepared:
            raise BranchUnknown("no such branch")
        self.ended.append(verb)
        self.answer("ok", xid)

    def preflight(self) -> list[Problem]:
        return []

    def close(self) -> None:
        pass


@dataclass
class Branch:
    resource: Scripted
    xid: Xid
    handle: None = None

    def prepare(self) -> Vote:
        made = ANSWERS[self.resource.prepare]
        if made is None or self.resource.prepare == "unreachable":  # its answer may be lost
            self.resource.prepared.append(self.xid)
        self.resource.heuristic |= self.resource.prepare == "heuristic"
        if made is not None:
            raise made()
        return Vote.PREPARED

    def commit(self) -> None:
        self.resource.ended.append("commit")
        self.resource.answer(self.resource.end, self.xid)

    def rollback(self) -> None:
        self.resource.ended.append("rollback")
        self.resource.answer(self.resource.end, self.xid)

    def commit_one_phase(self) -> None:
        raise AssertionError("three branches have two phases")

    def close(self) -> None:
        pass


Case = tuple[tuple[tuple[str, str], ...], bool | None]


def cases() -> list[Case]:
    """Return the answers of each branch to prepare and to the end, and what the operator wants."""
    branches = itertools.product(itertools.product(ANSWERS, ANSWERS), repeat=3)
    return [(answers, operator) for answers in branches for operator in OPERATORS]


def open_manager(disk: MemoryFileSystem, resources: dict[str, Any]) -> TransactionManager:
    return TransactionManager(
        FOLDER, resources, recovery_interval=None, orphan_interval=0.0, fs=disk
    )


def run_transaction(tm: TransactionManager) -> tuple[bytes, TransactionError | None]:
    tx = tm.begin()
    try:
        with tx:
            for name in tm.resources:
                tx[name]
    except (RolledBackError, HeuristicError, InDoubtError) as error:
        return tx.gtrid, error
    return tx.gtrid, None


def try_settle(
    disk: MemoryFileSystem, resources: dict[str, Any], gtrid: bytes, wanted: bool | None
) -> bool:
    """Return whether the operator was heard."""
    try:
        return bool(settle(FOLDER, resources, gtrid, commit=wanted, fs=disk))
    except TransactionUsageError:
        return False


def check(case: Case) -> None:
    answers, operator = case
    disk = MemoryFileSystem()
    made = [Scripted(name, *one) for name, one in zip("abc", answers, strict=True)]
    resources: dict[str, Any] = {one.name: one for one in made}
    decided = all(one.prepare == "ok" for one in made)
    right, wrong = ("commit", "rollback") if decided else ("rollback", "commit")
    with open_manager(disk, resources) as tm:
        gtrid, error = run_transaction(tm)
        known = set(tm.decisions.heuristics().get(gtrid, frozenset()))
        against = {one.name for one in made if one.heuristic}
        gone = {one.name for one in made if decided and one.end == "rolled back"}
        assert known == against | gone, "each outcome against the decision is on record"
        assert isinstance(error, HeuristicError) == bool(known), "and the program knows of it"
        assert known or isinstance(error, RolledBackError) == (not decided)
        assert bool(tm.directory.closed.among([gtrid])) <= decided, "only what was decided is noted"
        report = tm.recover()
        left = {one.resource for one in report.left}
        assert {one.name for one in made if one.prepared} <= left, "what waits is named"
    heard = try_settle(disk, resources, gtrid, operator)
    assert not (heard and operator is not None and operator is not decided)
    try_settle(disk, resources, gtrid, decided)
    try_settle(disk, resources, gtrid, None)
    with open_manager(disk, resources) as tm:
        assert tm.recover().clean
    assert not any(one.prepared for one in made)
    assert all(wrong not in one.ended for one in made), right


def check_all(chosen: list[Case], origin: str) -> None:
    for case in chosen:
        try:
            check(case)
        except BaseException as error:
            error.add_note(f"{origin}: {case}")
            raise


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_branch_of_a_rolled_back_transaction_is_not_committed_later(
    operator: bool | None,
) -> None:
    """One branch was ended by hand, one was away at the rollback, one has refused to prepare."""
    check(((("ok", "heuristic"), ("ok", "unreachable"), ("rolled back", "ok")), operator))


def test_no_branch_goes_against_the_decision_without_a_record() -> None:
    seed = int(os.environ.get("TALLYSTICK_SEED", random.randrange(1 << 32)))
    check_all(random.Random(seed).sample(cases(), SAMPLE), f"TALLYSTICK_SEED={seed}")


@pytest.mark.soak
@pytest.mark.parametrize("part", range(16))
def test_no_branch_goes_against_the_decision_in_the_whole_table(part: int) -> None:
    check_all(cases()[part::16], "the whole table")
