"""What is due for one global transaction: the decision table.

| coordinator's last record     | branch in its log      | due / resolution               |
|-------------------------------|------------------------|--------------------------------|
| committing, committed         | prepared               | commit (closed for its name:   |
|                               |                        | an alarm, it lost its commit)  |
| committing, committed         | none prepared          | none                           |
| committing, committed         | rolled back, or not    | heuristic mismatch             |
|                               | even prepared (2 ph.)  |                                |
| active, undecided, no record  | prepared               | roll back (presumed abort); an |
|                               |                        | alarm, if an outcome row of a  |
|                               |                        | last resource may be the       |
|                               |                        | decision                       |
| rolling back, rolled back     | prepared               | roll back                      |
| undecided, rolled back        | committed (2 phases)   | heuristic mismatch             |
| no record, though the journal | committed (2 phases)   | heuristic mismatch             |
| reaches back far enough       |                        |                                |
| heuristic                     | any                    | heuristic mismatch             |
| no decision, in a journal     | prepared               | roll back (an alarm: a         |
| that is damaged               |                        | decision may have been lost)   |
|                               | all of them committed  | none (an alarm likewise)       |
| its coordinator is not here   | prepared               | foreign                        |
| none, or not here             | one committed, another | heuristic mismatch             |
|                               | rolled back            |                                |
| no decision, in a journal     | one committed, another | heuristic mismatch, and so for |
| that is damaged               | prepared               | the branch: neither is proved  |

One-phase transactions have one resource, which alone knows its outcome: nothing is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tallystick.records import State


class Decision(StrEnum):
    """What the coordinator decided."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNDECIDED = "undecided"


class Resolution(StrEnum):
    """What is due."""

    NONE = "none"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    FOREIGN = "foreign"
    HEURISTIC_MISMATCH = "heuristic_mismatch"


DECISIONS = {
    State.COMMITTING: Decision.COMMIT,
    State.COMMITTED: Decision.COMMIT,
    State.ROLLING_BACK: Decision.ROLLBACK,
    State.ROLLED_BACK: Decision.ROLLBACK,
    State.ACTIVE: Decision.UNDECIDED,
    State.UNDECIDED: Decision.UNDECIDED,
}


@dataclass(frozen=True, slots=True)
class Place:
    """The record that states it: its name, file and offset."""

    type: str
    file: str | None
    offset: int | None

    def __str__(self) -> str:
        if self.file is None and self.offset is None:
            return self.type  # a running database has told it
        where = self.file or "an unknown file"
        return f"{self.type} in {where} offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Decided:
    """The last word of a coordinator's log on one global transaction."""

    log: str
    state: State
    names: tuple[str, ...]
    open_names: tuple[str, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch as one resource's log has it. ``bqual`` is None where no log names it."""

    system: str | None
    log: str | None
    resource: str | None
    bqual: bytes | None
    state: str
    """prepared, committed, rolled_back, active or unknown."""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is due, and why.

    Attributes:
        decision: what the coordinator's log says, None without a record.
        resolution: what is due.
        reasons: why.
        alarm: the code of a finding, or empty.
        unread: branches disagree, and a damaged journal may have held the decision.
    """

    decision: Decision | None
    resolution: Resolution
    reasons: tuple[str, ...]
    alarm: str = ""
    unread: bool = False


def judge(
    decided: Decided | None,
    branches: Sequence[Branch],
    *,
    owned: bool,
    covered: bool,
    damaged: bool = False,
    lasts: Sequence[str] = (),
) -> Judgement:
    """Judge one global transaction.

    ``owned``: the journal of its coordinator is here. ``covered``: that journal reaches back
    before the transaction began, so a missing record means that there was none. ``damaged``: not
    all of that journal can be read, so a decision may be missing. ``lasts``: resources of its
    coordinator whose own commit decides, which no journal tells of.
    """
    decision = None if decided is None else DECISIONS.get(decided.state)
    in_doubt = [branch for branch in branches if branch.state == "prepared"]
    unread = damaged and decision in (None, Decision.UNDECIDED)
    if decided is not None and decision is None:
        reason = "the coordinator recorded a heuristic outcome: look at each resource"
        return Judgement(None, Resolution.HEURISTIC_MISMATCH, (reason,), "heuristic-outcome")
    if _two_phase(decided, branches):
        if damaged and _agreed(decided, branches):
            reason = "every branch has committed; the damaged journal may have held the decision"
            return Judgement(decision, Resolution.NONE, (reason,), "missing-decision")
        if undone := _against(decision, branches, covered=covered):
            return _mismatch(decision, undone, unread=unread)
    if decided is None and not owned:
        return _foreign(in_doubt)
    if not in_doubt:
        return Judgement(decision, Resolution.NONE, (_nothing_due(decided, branches),))
    if unread:
        reason = (
            "no decision to commit can be read, but the journal is damaged and may have held one: "
            "presumed abort is not proved"
        )
        return Judgement(decision, Resolution.ROLLBACK, (reason,), "doubtful-abort")
    if lasts and decision in (None, Decision.UNDECIDED):
        reason = (
            "no decision to commit is in the journal, and an outcome row of "
            f"{', '.join(lasts)} may be it: presumed abort is not proved"
        )
        return Judgement(decision, Resolution.ROLLBACK, (reason,), "decided-elsewhere")
    return _due(decided, decision, in_doubt)


def _foreign(in_doubt: list[Branch]) -> Judgement:
    if not in_doubt:
        return Judgement(None, Resolution.NONE, ("nothing is in doubt",))
    reason = "its coordinator is not in the estate and must decide: leave it alone"
    return Judgement(None, Resolution.FOREIGN, (reason,), "foreign-branch")


def _two_phase(decided: Decided | None, branches: Sequence[Branch]) -> bool:
    names = len(decided.names) if decided is not None else 0
    return names > 1 or len(branches) > 1


def _against(
    decision: Decision | None, branches: Sequence[Branch], *, covered: bool
) -> list[Branch]:
    """Branches that ended the other way, or will: what never prepared is rolled back."""
    committed = [branch for branch in branches if branch.state == "committed"]
    if decision is Decision.COMMIT:
        return [branch for branch in branches if branch.state in ("rolled_back", "active")]
    if decision is None and not covered:
        # The journal has forgotten it, or is not here: the branches have only each other.
        return [branch for branch in branches if committed and branch.state == "rolled_back"]
    return committed


def _agreed(decided: Decided | None, branches: Sequence[Branch]) -> bool:
    """Return True if all known branches have committed and no decision can be read."""
    undecided = decided is None or DECISIONS.get(decided.state) is Decision.UNDECIDED
    complete = undecided and len(branches) >= (len(decided.names) if decided else 0)
    return complete and all(branch.state == "committed" for branch in branches)


def _mismatch(decision: Decision | None, undone: list[Branch], *, unread: bool) -> Judgement:
    against = {
        "committed": "committed against no decision to commit",
        "rolled_back": "rolled back against "
        + ("the decision to commit" if decision else "the commit of another branch"),
        "active": "not even prepared against the decision to commit",
    }
    reasons = [f"{one.resource or one.log} {against[one.state]}" for one in undone]
    if unread:
        reasons.append("the damaged journal may have held that decision")
    resolution = Resolution.HEURISTIC_MISMATCH
    return Judgement(decision, resolution, tuple(reasons), "heuristic-mismatch", unread)


def _nothing_due(decided: Decided | None, branches: Sequence[Branch]) -> str:
    if decided is None or decided.state is not State.COMMITTING:
        return "nothing is in doubt"
    silent = [branch.resource or "" for branch in branches if branch.log is None]
    if silent:
        return f"nothing is in doubt here, and no log here tells of {', '.join(silent)}"
    return "nothing is in doubt; only the closing record is missing"


def _due(decided: Decided | None, decision: Decision | None, in_doubt: list[Branch]) -> Judgement:
    if decision is not Decision.COMMIT:
        reason = "no decision to commit is recorded: presumed abort"
        if decision is Decision.ROLLBACK:
            reason = "the decision is to roll back"
        return Judgement(decision, Resolution.ROLLBACK, (reason,))
    assert decided is not None
    if not any(_closed_for(decided, branch) for branch in in_doubt):
        return Judgement(decision, Resolution.COMMIT, ("the decision to commit is not closed",))
    reason = (
        "the coordinator has closed its decision to commit, and the resource lost that commit: "
        "a restart would roll it back without a word"
    )
    return Judgement(decision, Resolution.COMMIT, (reason,), "lost-commit")


def _closed_for(decided: Decided, branch: Branch) -> bool:
    """Return True if the coordinator holds that this branch has committed."""
    if decided.state is not State.COMMITTING:
        return True
    return branch.resource in decided.names and branch.resource not in decided.open_names


def due_of(branch: Branch, judgement: Judgement, decided: Decided | None) -> str | None:
    """Return what is due for one branch in doubt, also where other branches disagree."""
    if branch.state != "prepared":
        return None
    if judgement.resolution is not Resolution.HEURISTIC_MISMATCH or judgement.unread:
        return judgement.resolution.value
    if decided is None or DECISIONS.get(decided.state) is not Decision.COMMIT:
        return Resolution.ROLLBACK.value
    return Resolution.COMMIT.value


def named_branches(
    decided: Decided | None, branches: Sequence[Branch], logs: Mapping[str, str]
) -> list[Branch]:
    """Return the branches with resource names, and one of state unknown per further name."""
    names = {log: name for name, log in logs.items()}
    known = [
        Branch(one.system, one.log, names.get(one.log or ""), one.bqual, one.state, one.place)
        for one in branches
    ]
    if decided is None:
        return known
    present = {branch.resource for branch in known}
    missing = [name for name in decided.names if name not in present]
    if any(branch.resource is None for branch in known):
        # Some log's name is not known: it may be one of the missing.
        missing = [name for name in missing if name in logs]
    return known + [Branch(None, logs.get(name), name, None, "unknown") for name in missing]
