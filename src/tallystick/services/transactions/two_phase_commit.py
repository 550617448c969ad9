"""Two-phase commit over the branches of one transaction, by presumed abort.

In: branches by resource name, and the manager's decision log. Out: steps, which somebody drives
(`steps`), to one of these ends: all committed, or `RolledBackError` with nothing kept, or
`InDoubtError` / `HeuristicError`.

    no branch          nothing to do
    one branch         one phase, no record
    several            prepare all, at the same time where they can; "read only" drops out
      one left         nothing to agree upon: commit it, no record
      last resource    its commit, with an outcome row, is the decision; then the record
      otherwise        the forced record is the decision
    then               commit all, likewise; the end is recorded, not forced

Only what stands between the decision and the end can be in doubt after a crash, and
recovery finishes it. A refusal or an error before the decision rolls back everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from tallystick.errors import (
    HeuristicError,
    InDoubtError,
    LogClosedError,
    LogPoisonedError,
    LogWriteError,
    RolledBackError,
)
from tallystick.records import State
from tallystick.roles import DecisionOutcome
from tallystick.services.transactions.resource import (
    AnyBranch,
    BranchHeuristic,
    BranchRolledBack,
    BranchUnknown,
    ResourceAnswer,
    ResourceUnreachable,
    Vote,
    send_commit,
    send_prepare,
)
from tallystick.services.transactions.steps import Steps

if TYPE_CHECKING:
    from tallystick.services.transactions.manager import TransactionManager

_log = logging.getLogger("tallystick.transactions")

Branches = Mapping[str, AnyBranch]


def prepare_branches(
    manager: TransactionManager, gtrid: bytes, branches: Branches, last: str | None
) -> Steps[dict[str, AnyBranch]]:
    """The first phase: the branches that voted "prepared"; ``last`` names the one that cannot, if
    any. A refusal, or any error, rolls back all."""
    prepared = {}
    try:
        if manager.keeps_notes:
            manager.decisions.note(State.UNDECIDED, gtrid, branches)
        voters = [name for name in branches if name != last]
        for name in _asked(manager, branches, voters, send_prepare):
            branch = branches[name]
            manager.step("before prepare", name)
            if (yield branch.prepare) is Vote.PREPARED:
                prepared[name] = branch
            manager.step("after prepare", name)
    except BaseException as error:
        yield from rollback_branches(manager, branches)
        if isinstance(error, ResourceAnswer):
            raise RolledBackError(f"rolled back: prepare failed: {error}") from error
        if isinstance(error, (LogWriteError, LogPoisonedError, LogClosedError)):
            raise RolledBackError(f"rolled back: the log refused a note: {error}") from error
        raise
    return prepared


def complete_branches(
    manager: TransactionManager,
    gtrid: bytes,
    branches: Branches,
    last: str | None,
    prepared: Branches,
) -> Steps[None]:
    """The decision and the second phase."""
    if last is not None:
        yield from _commit_last(manager, gtrid, branches, last, alone=not prepared)
        if prepared:
            yield from _record_outcome(manager, gtrid, prepared, last)
    elif len(prepared) > 1:
        yield from _decide_or_roll_back(manager, gtrid, prepared)
    decided = len(prepared) > 1 or last is not None
    yield from _commit_prepared(manager, gtrid, prepared, decided=decided)


def commit_one_phase(
    manager: TransactionManager, gtrid: bytes, name: str, branch: AnyBranch
) -> Steps[None]:
    """Commit the only branch there is."""
    manager.step("before one-phase", name)
    try:
        yield branch.commit_one_phase
    except (BranchRolledBack, BranchUnknown) as answer:
        raise RolledBackError(f"rolled back by {name}: {answer}") from answer
    except ResourceUnreachable as answer:
        raise InDoubtError(
            f"{name} was lost during its one-phase commit: {answer}",
            advice="Only the resource knows; look for the data before repeating the work",
        ) from answer
    except BranchHeuristic as answer:
        _record_heuristic(manager, gtrid, name)
        raise HeuristicError(f"{name}: {answer}") from answer
    manager.step("after one-phase", name)


def rollback_branches(manager: TransactionManager, branches: Branches) -> Steps[None]:
    """Roll back every branch; what cannot be reached is recovery's, by presumed abort."""
    for name, branch in branches.items():
        manager.step("rollback", name)
        try:
            yield branch.rollback
        except (ResourceUnreachable, BranchUnknown, BranchRolledBack) as answer:
            _log.info("rollback left to recovery", extra=_extra(branch, name, answer))
            manager.wake_recovery()
        except BranchHeuristic as answer:
            _log.critical("heuristic outcome on rollback", extra=_extra(branch, name, answer))
            _record_heuristic(manager, branch.xid.gtrid, name)
        except Exception as error:  # whatever it is, the other branches must not stay
            _log.exception("rollback failed", extra=_extra(branch, name, error))
            manager.wake_recovery()


def _asked(
    manager: TransactionManager,
    branches: Branches,
    names: Collection[str],
    send: Callable[[AnyBranch], bool],
) -> list[str]:
    """Ask all of them that can be asked without waiting; the order to wait in: others first,
    as their work begins with the waiting."""
    asked = []
    if len(names) > 1:
        for name in names:
            if send(branches[name]):
                asked.append(name)
                manager.step("asked", name)
    return [name for name in names if name not in asked] + asked


def _commit_last(
    manager: TransactionManager, gtrid: bytes, branches: Branches, last: str, *, alone: bool
) -> Steps[None]:
    """The last resource's own commit is the decision."""
    manager.step("before last", last)
    branch = branches[last]
    try:
        yield branch.commit_one_phase if alone else branch.commit
    except ResourceUnreachable as answer:
        raise InDoubtError(
            f"{last} was lost during its commit, which is the decision: {answer}",
            advice="Recovery asks its outcome row and finishes the others; call recover()",
        ) from answer
    except ResourceAnswer as answer:
        yield from rollback_branches(manager, {n: b for n, b in branches.items() if n != last})
        raise RolledBackError(f"rolled back: {last} refused to commit: {answer}") from answer
    manager.step("after last", last)
    _log.debug("decided by the last resource", extra={"gtrid": gtrid.hex(), "resource": last})


def _decide_or_roll_back(
    manager: TransactionManager, gtrid: bytes, prepared: Branches
) -> Steps[None]:
    try:
        yield from _decide(manager, gtrid, prepared)
    except LogWriteError as error:  # refused before a byte was written: not decided
        yield from rollback_branches(manager, prepared)
        raise RolledBackError(f"rolled back: the decision was refused: {error}") from error


def _decide(manager: TransactionManager, gtrid: bytes, names: Branches) -> Steps[None]:
    manager.step("before decision")
    try:
        ticket = manager.decisions.decide(gtrid, names)
        manager.step("decision written")
        yield ticket
    except (LogPoisonedError, LogClosedError) as error:
        manager.freeze(gtrid)  # nobody may presume anything while the log is as it is
        raise InDoubtError(
            f"the decision could not be made durable: {error}",
            advice="Reopen the log: recovery commits if the record is there, else rolls back",
        ) from error
    manager.metrics.decided()
    manager.step("after decision")


def _record_outcome(
    manager: TransactionManager, gtrid: bytes, prepared: Branches, last: str
) -> Steps[None]:
    """Note what the last resource decided. If that fails its outcome row still speaks."""
    try:
        yield from _decide(manager, gtrid, prepared)
    except (InDoubtError, LogWriteError) as error:
        raise InDoubtError(
            f"committed in {last}, but the log cannot record it: {error}",
            advice="Reopen the log: recovery finds the outcome row and commits the others",
        ) from error


def _commit_prepared(
    manager: TransactionManager, gtrid: bytes, prepared: Branches, *, decided: bool
) -> Steps[None]:
    done: list[str] = []
    against: dict[str, ResourceAnswer] = {}
    for name in _asked(manager, prepared, prepared, send_commit):
        branch = prepared[name]
        manager.step("before commit", name)
        try:
            yield branch.commit
            done.append(name)
        except ResourceUnreachable as answer:
            _log.warning("commit left to recovery", extra=_extra(branch, name, answer))
            if not decided:
                raise _lost_alone(name, answer) from answer
        except ResourceAnswer as answer:
            against[name] = answer
        except Exception as error:
            if not decided:
                raise
            _log.exception(
                "commit failed, and is left to recovery", extra=_extra(branch, name, error)
            )
        manager.step("after commit", name)
    _finish(manager, gtrid, prepared, done, against, decided=decided)


def _lost_alone(name: str, answer: ResourceUnreachable) -> InDoubtError:
    return InDoubtError(
        f"{name} was lost during its commit, and no other resource took part: {answer}",
        advice="Recovery rolls the branch back if it is still prepared",
    )


def _finish(
    manager: TransactionManager,
    gtrid: bytes,
    prepared: Branches,
    done: list[str],
    against: Mapping[str, ResourceAnswer],
    *,
    decided: bool,
) -> None:
    if decided and done:
        _record_end(manager, gtrid, done, DecisionOutcome.COMMITTED)
        manager.step("after end record")
    for name in against:
        _record_heuristic(manager, gtrid, name)
    if against:
        told = ", ".join(f"{name}: {answer}" for name, answer in against.items())
        raise HeuristicError(
            f"committed in {done or 'none'}, but not in {told}",
            advice="See 'tallystick indoubt list'; settle it once the data agree",
        )
    if len(done) < len(prepared):
        manager.wake_recovery()


def _record_heuristic(manager: TransactionManager, gtrid: bytes, name: str) -> None:
    _record_end(manager, gtrid, [name], DecisionOutcome.HEURISTIC)
    manager.metrics.heuristic()


def _record_end(
    manager: TransactionManager, gtrid: bytes, names: list[str], outcome: DecisionOutcome
) -> None:
    """Record how branches have ended. A log that cannot does not change that they have: the
    decision stays open, and recovery finds nothing left to do."""
    try:
        manager.decisions.finish(gtrid, names, outcome)
    except (LogWriteError, LogPoisonedError, LogClosedError):
        _log.critical(
            "the log cannot record an end",
            exc_info=True,
            extra={"gtrid": gtrid.hex(), "resources": names, "outcome": outcome.value},
        )


def _extra(branch: AnyBranch, name: str, answer: Exception) -> dict[str, str]:
    return {"gtrid": branch.xid.gtrid.hex(), "resource": name, "answer": str(answer)}
