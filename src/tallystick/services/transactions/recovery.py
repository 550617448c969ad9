"""Recovery: every branch in doubt of this node is committed or rolled back, when that is known.

In: the decision log, the resources, the transactions alive in this process. Out: a
`RecoveryReport` that lists what was done, what stays in doubt and why. It may be killed
at any step and run again.

    branch in doubt            its transaction             action
    format or node not ours    any                         leave (foreign)
    ours                       alive here, or frozen       leave (live)
    ours                       decided                     commit
    ours                       outcome row found           record the decision, commit
    ours                       a last resource is away     leave (cannot know)
    ours, younger than the
    orphan interval            not decided                 leave (young)
    ours                       not decided                 roll back (presumed abort)

The order matters: first scan, then look who is alive, then at the decisions. A transaction
leaves the living only after its decision is in the log, so one that is not alive and not
decided will never be. A decision is closed, an outcome row forgotten, only if it stood before the
scan that found nothing in doubt, and its transaction was over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystick.records import Xid
from tallystick.roles import Decision, DecisionOutcome
from tallystick.services.transactions.resource import (
    BranchHeuristic,
    BranchRolledBack,
    BranchUnknown,
    LastResource,
    Resource,
    ResourceUnreachable,
    is_last_resource,
)
from tallystick.services.transactions.xids import FORMAT_ID, node_of, time_of

if TYPE_CHECKING:
    from tallystick.services.transactions.manager import TransactionManager

_log = logging.getLogger("tallystick.transactions")


@dataclass(frozen=True, slots=True)
class BranchInDoubt:
    """A branch that recovery left in doubt, and why."""

    resource: str
    xid: Xid
    why: str
    node: str | None = None


@dataclass(slots=True)
class RecoveryReport:
    """What a recovery did and what it had to leave."""

    committed: list[tuple[str, Xid]] = field(default_factory=list)
    rolled_back: list[tuple[str, Xid]] = field(default_factory=list)
    heuristic: list[tuple[str, Xid]] = field(default_factory=list)
    left: list[BranchInDoubt] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)
    """Resources that could not be asked, with the reason."""
    open_decisions: int = 0
    """Decisions that still wait for a resource."""

    @property
    def clean(self) -> bool:
        """True if nothing of this node is in doubt any more and every resource was asked."""
        ours = any(branch.why != "foreign" for branch in self.left)
        return not (ours or self.unreachable or self.open_decisions)


class Recovery:
    """One pass over all resources."""

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager
        self._report = RecoveryReport()
        self._lasts: dict[str, LastResource] = {}

    def run(self) -> RecoveryReport:
        """Scan, decide, act. Raises nothing for a resource that fails; it is listed."""
        began = time.perf_counter()
        standing = self._standing_decisions()
        for resource in self._manager.resources.values():
            if is_last_resource(resource):
                self._lasts[resource.name] = resource  # type: ignore[assignment]  # just tested
        rows = self._standing_outcomes()
        found = [
            (resource, xid)
            for resource in self._manager.resources.values()
            if resource.name not in self._lasts
            for xid in self._scan(resource)
        ]
        for resource, xid in found:
            self._treat(resource, xid)
        in_doubt = {(resource.name, xid.gtrid) for resource, xid in found}
        self._close_decisions(standing, in_doubt)
        self._forget_outcomes(rows, {gtrid for _, gtrid in in_doubt})
        self._report.open_decisions = len(self._manager.decisions.open_decisions())
        self._manager.metrics.recovered(time.perf_counter() - began)
        return self._report

    def _scan(self, resource: Resource) -> list[Xid]:
        self._manager.step("scan", resource.name)
        try:
            return list(resource.in_doubt())
        except Exception as answer:  # whatever it is, the others are to be asked
            self._away(resource, answer)
            return []

    def _treat(self, resource: Resource, xid: Xid) -> None:
        node = node_of(xid.gtrid)
        if xid.format_id != FORMAT_ID or node != self._manager.node:
            self._leave(resource, xid, "foreign")
        elif self._manager.is_live(xid.gtrid):
            self._leave(resource, xid, "live")
        elif resource.name in self._report.unreachable:
            self._leave(resource, xid, "unreachable")
        elif xid.gtrid in self._manager.decisions.open_decisions():
            self._settle(resource, xid, commit=True)
        else:
            self._treat_undecided(resource, xid)

    def _treat_undecided(self, resource: Resource, xid: Xid) -> None:
        outcome = self._outcome_row(xid.gtrid)
        if outcome is None:
            self._leave(resource, xid, "a last resource cannot be asked")
        elif outcome:
            self._manager.decisions.decide(xid.gtrid, [resource.name]).wait()
            self._settle(resource, xid, commit=True)
        elif self._is_young(xid.gtrid):
            self._leave(resource, xid, "younger than the orphan interval")
        else:
            self._settle(resource, xid, commit=False)

    def _outcome_row(self, gtrid: bytes) -> bool | None:
        """True if a last resource committed it, None if one cannot be asked."""
        for last in self._lasts.values():
            try:
                if last.has_outcome(gtrid):
                    return True
            except ResourceUnreachable as answer:
                self._away(last, answer)
                return None
        return False

    def _is_young(self, gtrid: bytes) -> bool:
        begun = time_of(gtrid)
        if begun is None:  # an id of Bitronix holds the time since boot: of no use here
            return False
        # An id from the future is of a clock that was set back since: by a little, it is young.
        age = abs(self._manager.xids.clock() - begun)
        return age < self._manager.orphan_interval * 1000

    def _settle(self, resource: Resource, xid: Xid, *, commit: bool) -> None:
        verb = "commit" if commit else "roll back"
        self._manager.step(f"recovery: before {verb}", resource.name)
        try:
            if commit:
                resource.commit(xid)
            else:
                resource.rollback(xid)
        except BranchUnknown:
            pass  # somebody was faster: it is over
        except (BranchHeuristic, BranchRolledBack) as answer:
            if commit or isinstance(answer, BranchHeuristic):
                self._heuristic(resource, xid, answer)
                return
        except Exception as answer:
            self._away(resource, answer)
            self._leave(resource, xid, "unreachable")
            return
        self._manager.step(f"recovery: after {verb}", resource.name)
        self._manager.metrics.settled(commit=commit)
        (self._report.committed if commit else self._report.rolled_back).append(
            (resource.name, xid)
        )
        if commit:
            self._manager.decisions.finish(xid.gtrid, [resource.name], DecisionOutcome.COMMITTED)

    def _heuristic(self, resource: Resource, xid: Xid, answer: Exception) -> None:
        _log.critical(
            "heuristic outcome found by recovery",
            extra={"gtrid": xid.gtrid.hex(), "resource": resource.name, "answer": str(answer)},
        )
        self._manager.decisions.finish(xid.gtrid, [resource.name], DecisionOutcome.HEURISTIC)
        self._manager.metrics.heuristic()
        self._report.heuristic.append((resource.name, xid))

    def _standing_decisions(self) -> dict[bytes, Decision]:
        """Open decisions whose transactions are over."""
        decisions = self._manager.decisions.open_decisions()
        return {g: one for g, one in decisions.items() if not self._manager.is_live(g)}

    def _close_decisions(
        self, standing: dict[bytes, Decision], in_doubt: set[tuple[str, bytes]]
    ) -> None:
        """Close decisions whose branches are over: asked, and not in doubt any more."""
        for gtrid, decision in standing.items():
            over = [
                name
                for name in sorted(decision.resources)
                if self._was_asked(name) and (name, gtrid) not in in_doubt
            ]
            if over:
                self._manager.decisions.finish(gtrid, over, DecisionOutcome.COMMITTED)

    def _was_asked(self, name: str) -> bool:
        return name in self._manager.resources and name not in self._report.unreachable

    def _standing_outcomes(self) -> dict[str, Sequence[bytes]]:
        """The outcome rows of each last resource that can be asked."""
        rows: dict[str, Sequence[bytes]] = {}
        for name, last in self._lasts.items():
            try:
                rows[name] = last.outcomes()
            except ResourceUnreachable as answer:
                self._away(last, answer)
        return rows

    def _forget_outcomes(self, rows: dict[str, Sequence[bytes]], in_doubt: set[bytes]) -> None:
        """Drop outcome rows that nobody can need: everyone was asked, nothing is in doubt."""
        if self._report.unreachable:
            return
        for name, last in self._lasts.items():
            over = [g for g in rows[name] if g not in in_doubt and not self._manager.is_live(g)]
            try:
                last.forget_outcomes(over)
            except ResourceUnreachable as answer:
                self._away(last, answer)

    def _leave(self, resource: Resource, xid: Xid, why: str) -> None:
        self._report.left.append(BranchInDoubt(resource.name, xid, why, node_of(xid.gtrid)))

    def _away(self, resource: Resource, answer: Exception) -> None:
        self._report.unreachable[resource.name] = str(answer)
        self._manager.metrics.retried(resource.name)
        _log.warning(
            "resource cannot be asked; it is retried",
            extra={"resource": resource.name, "answer": str(answer)},
        )
