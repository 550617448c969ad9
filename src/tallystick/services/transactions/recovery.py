"""Recovery: every branch in doubt of this node is committed or rolled back, when that is known.

In: the decision log, the resources, the transactions at work in this process. Out: a
`RecoveryReport` that lists what was done, what stays in doubt and why. It may be killed
at any step and run again.

    branch in doubt            its transaction             action
    format or node not ours    any                         leave (foreign)
    ours                       at work here, or frozen     leave (live)
    ours, of another process
    that shares the node       that lives                  leave (live)
    ours                       decided                     commit
    ours                       a branch of it ended
                               otherwise, not settled      leave (heuristic): an operator decides
    ours                       decided, closed before      commit: its database was restored
    ours                       outcome row found           record the decision, commit
    ours                       a last resource is away,
                               or was not given            leave (cannot know)
    ours, begun before an
    opening found the log
    damaged at its end         not decided                 leave (its decision may be lost)
    ours, begun before the
    coordinator was opened     not decided                 roll back (presumed abort)
    ours, of another process
    that shared the node       not decided, it is dead     roll back (presumed abort)
    ours, younger than the
    orphan interval            not decided                 leave (young)
    ours                       not decided                 roll back (presumed abort)

The lock of the coordinator's directory proves that the process of an earlier transaction is dead;
if processes share the directory, each global id names its process (`xids`), and a lock of that one
proves that it lives.

The order matters: first scan, then see which transactions are live, then read the decisions. A
transaction stops being live only after its decision is in the log, so one that is neither live nor
decided will never be.

A decision is closed for a resource only by a positive answer: its commit succeeded, or the outcome
row of the branch is there. A branch that is not
listed, or not known to the commit, has not answered: the decision stays open and is named in the
report, until an operator settles it. An outcome row is deleted only if it stood before the scan
that found nothing in doubt, and its decision is closed; where it is the decision, only if all
resources were scanned that it may be about, and one of another process only if it is noted that it
was carried out.

A resource whose database is not the one noted under its name is refused, and not asked. A resource
whose database was noted under a name that the manager has no more is that one, renamed: it answers
for the old name, too.

`BackgroundRecovery` repeats it in a thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, cast

from tallystick.errors import LogClosedError, LogPoisonedError
from tallystick.printable import logger, printable
from tallystick.records import Xid
from tallystick.roles import (
    Decision,
    DecisionLog,
    DecisionOutcome,
    RecoveryResult,
    SharedDecisionLog,
)
from tallystick.roles.coordinator_files import last_resources
from tallystick.services.transactions.coordinator_dir import ClosedDecisions
from tallystick.services.transactions.deadlines import start_call
from tallystick.services.transactions.metrics import TransactionMetrics
from tallystick.services.transactions.resource import (
    BranchHeuristic,
    BranchRolledBack,
    BranchUnknown,
    LastResource,
    ProvingResource,
    Resource,
    ResourceUnreachable,
    is_last_resource,
    keeps_outcomes,
)
from tallystick.services.transactions.steps import Observer
from tallystick.services.transactions.tracing import Tracing
from tallystick.services.transactions.two_phase_commit import LiveTransactions
from tallystick.services.transactions.xids import FORMAT_ID, XidFactory, member_of, node_of, time_of
from tallystick.storage.fork import Uncopied
from tallystick.storage.opening import join_thread, start_thread
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import interrupt_in

_log = logger("tallystick.transactions")

_FIRST_RETRY_S = 1.0

_STEPS = {
    "identity": "identify",
    "in_doubt": "scan",
    "outcomes": "read outcomes",
}
"""Names of steps for observers."""

HELD = "another session holds it, the database says"
LISTED_TWICE = "ended in another resource that lists it, and yet in doubt here"
UNPROVED = "decided and not listed any more, but nothing proves its commit"
LOST = "not decided in the log, which may have lost a decision: settle it"
NO_LAST = "a last resource was not given, whose outcome row may be the decision"
NO_RESOURCE = "decided, but the manager has no resource of that name"
HEURISTIC = "its outcome is heuristic: settle it"


class _Process(Enum):
    """What is known of the process of a transaction, where processes share a node."""

    UNKNOWN = auto()
    THIS = auto()
    LIVES = auto()
    DEAD = auto()


@dataclass(frozen=True, slots=True)
class BranchInDoubt:
    """A branch that recovery left in doubt, and why."""

    resource: str
    xid: Xid
    why: str
    node: str | None = None

    def __str__(self) -> str:
        node = f", of node {self.node}" if self.node else ""
        return printable(f"{self.xid} in {self.resource}{node}: {self.why}")


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
    log: RecoveryResult | None = None
    """What the opening of the decision log found."""

    def __str__(self) -> str:
        counts = {"committed": self.committed, "rolled back": self.rolled_back}
        counts |= {"heuristic": self.heuristic}
        said = [f"{len(branches):,} {what}" for what, branches in counts.items() if branches]
        lines = [f"Branches: {', '.join(said) or 'none was in doubt'}."]
        lines += [f"Left: {one}." for one in self.left]
        lines += [f"Cannot be asked: {name}: {why}." for name, why in self.unreachable.items()]
        if self.open_decisions:
            lines.append(f"Decisions that wait for a resource: {self.open_decisions:,}.")
        return "\n".join(map(printable, lines))

    @property
    def clean(self) -> bool:
        """True if nothing of this node is in doubt any more and every resource was asked.

        Not where a decision may be missing in the log, for all that `log` says. A log that says
        nothing of its own opening is trusted.
        """
        sound = self.log is None or self.log.sound
        return sound and not (self.ours or self.unreachable or self.open_decisions)

    @property
    def ours(self) -> list[BranchInDoubt]:
        """The branches of this node that were left."""
        return [branch for branch in self.left if branch.why != "foreign"]

    def in_doubt(self, now: int) -> tuple[int, float]:
        """Return how many of these there are and the age of the oldest in seconds.

        Args:
            now: milliseconds since 1970.
        """
        begun = [time_of(branch.xid.gtrid) for branch in self.ours]
        ages = [(now - moment) / 1000 for moment in begun if moment is not None]
        return len(self.ours), max(ages, default=0.0)


@dataclass(slots=True)
class Recovery(Uncopied):
    """One pass over all resources.

    ``orphan_interval`` is in seconds; ``xids`` gives the node and its clock. ``identities`` are
    those of the databases by resource name, noted in the coordinator's directory. ``kept`` has
    decisions in outcome rows that nothing said were carried out, from one pass to the next.
    ``record_ends``
    has the log record what other threads have ended. Transactions
    begun before the moment ``dead_before``, in milliseconds, are not at work anywhere; decisions
    about those begun before ``lost_before`` may be lost.
    """

    xids: XidFactory
    decisions: DecisionLog
    resources: Mapping[str, Resource]
    live: LiveTransactions
    orphan_interval: float
    metrics: TransactionMetrics
    observe: Observer
    tracing: Tracing
    identities: MutableMapping[str, str]
    closed: ClosedDecisions
    others: dict[str, str]
    kept: set[bytes]
    record_ends: Callable[[], None]
    finish: Callable[[bytes, Collection[str], DecisionOutcome], None]
    log: RecoveryResult
    dead_before: int = 0
    lost_before: int = 0
    known_resources: Callable[[], Mapping[str, str]] = dict
    """Returns all resources that the coordinator was ever opened with, and what each is."""
    _known: Mapping[str, str] = field(init=False, default_factory=dict)
    _report: RecoveryReport = field(init=False, default_factory=RecoveryReport)
    _lasts: dict[str, LastResource] = field(init=False, default_factory=dict)
    _met: dict[str, str] = field(init=False, default_factory=dict)
    """Identities that are not noted yet."""
    _closed_before: set[bytes] = field(init=False, default_factory=set)
    _listed_after: dict[str, set[Xid]] = field(init=False, default_factory=dict)
    """What resources list after the closed decisions were read; only those that are asked again."""
    _ended: set[Xid] = field(init=False, default_factory=set)
    _again: list[tuple[Resource, Xid]] = field(init=False, default_factory=list)
    """Branches that have ended through another resource, which lists them, too."""
    _former: dict[str, str] = field(init=False, default_factory=dict)
    """Resources by the names that they had before."""
    _handled: BaseException | None = field(init=False, default_factory=sys.exception)

    def run(self) -> RecoveryReport:
        """Scan, decide, act; a resource that fails is listed in the report."""
        began = time.perf_counter()
        self._report.log = self.log
        standing = self._decisions_of_ended()
        for name, resource in self.resources.items():
            if is_last_resource(resource):
                self._lasts[name] = cast(LastResource, resource)
        self._check_identities()
        keepers = [name for name, resource in self.resources.items() if keeps_outcomes(resource)]
        rows: dict[str, Sequence[bytes]] = self._ask(keepers, "outcomes")
        scanned = self._ask(
            [name for name in self.resources if name not in self._lasts], "in_doubt"
        )
        found = [
            (self.resources[name], xid) for name, branches in scanned.items() for xid in branches
        ]
        # A process that shares the directory may have brought a resource along until now.
        self._known = self.known_resources()
        self._closed_before = self.closed.among(
            {xid.gtrid for _, xid in found if node_of(xid.gtrid) == self.xids.node}
        )
        for resource, xid in found:
            self._resolve(resource, xid)
        over = self._ended_elsewhere()
        in_doubt = {
            (resource.name, xid.gtrid)
            for resource, xid in found
            if (resource.name, xid) not in over
        }
        self._close_decisions(standing, in_doubt)
        self._forget_outcomes(rows, {gtrid for _, gtrid in in_doubt})
        self._note_identities()
        self.closed.sync()
        self._report.open_decisions = len(self._open_decisions())
        self.metrics.recovered(time.perf_counter() - began)
        return self._report

    def _ask(self, names: Sequence[str], attribute: str) -> dict[str, Any]:
        """Return the answers of resources to a call, which they are asked at the same time.

        Those that cannot be asked, or have no answer in time, are noted, and no longer asked.
        """
        waits: dict[str, Callable[[], Any]] = {}
        answers: dict[str, Any] = {}
        for name in names:
            if name not in self._report.unreachable:
                self.observe(_STEPS[attribute], name)
                with self._noted(name):
                    waits[name] = start_call(self.resources[name], attribute)
        for name, wait in waits.items():
            with self._noted(name):
                answers[name] = wait()
        return answers

    @contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        """Note a resource that cannot be asked."""
        try:
            yield
        except Exception as answer:  # whatever it is, the others must be asked
            self._unreachable(self.resources[name], answer)

    def _check_identities(self) -> None:
        """Refuse databases that are not those noted under the names of the resources."""
        known = [name for name, resource in self.resources.items() if hasattr(resource, "identity")]
        for name, found in self._ask(known, "identity").items():
            noted = self.identities.get(name)
            self._look_for_former_names(name, found)
            self.others.pop(name, None)
            if found is None or found == noted:
                continue
            if noted is None:
                self._met[name] = found
                continue
            text = f"this is another database: {found!r}, and its branches are in {noted!r}"
            self.others[name] = text
            self._unreachable(self.resources[name], ResourceUnreachable(text))

    def _note_identities(self) -> None:
        """Note databases met for the first time, unless a decision still waits for the name."""
        decisions = self._open_decisions().values()
        waiting = {name for decision in decisions for name in decision.resources}
        for name, found in self._met.items():
            if name not in waiting:
                self.identities[name] = found

    def _look_for_former_names(self, name: str, found: str | None) -> None:
        """Find names that the manager does not have and whose database is that of a resource."""
        for old, identity in self.identities.items():
            if identity == found and old not in self.resources:
                self._former[old] = name

    def _resolve(self, resource: Resource, xid: Xid) -> None:
        node = node_of(xid.gtrid)
        if xid.format_id != FORMAT_ID or node != self.xids.node:
            self._leave(resource, xid, "foreign")
        elif self._is_live(xid.gtrid):
            self._leave(resource, xid, "live")
        elif resource.name in self._report.unreachable:
            self._leave(resource, xid, "unreachable")
        elif xid in self._ended:
            self._again.append((resource, xid))
        elif xid.gtrid in self._open_decisions():
            self._settle(resource, xid, commit=True)
        elif xid.gtrid in self.decisions.heuristics():
            self._leave(resource, xid, HEURISTIC)
        elif xid.gtrid in self._closed_before:
            if not self._still_lists(resource, xid):
                return  # it was live during the scan, and has ended as it should
            _log.warning(
                "a branch is in doubt whose decision was closed; perhaps its database was restored",
                extra={"gtrid": xid.gtrid.hex(), "resource": resource.name},
            )
            self._settle(resource, xid, commit=True)
        else:
            self._resolve_undecided(resource, xid)

    def _still_lists(self, resource: Resource, xid: Xid) -> bool:
        """Return True if the resource lists a branch after its decision was seen to be closed."""
        name = resource.name
        if name not in self._listed_after:
            self._listed_after[name] = set(self._ask([name], "in_doubt").get(name, ()))
        return xid in self._listed_after[name]

    def _ended_elsewhere(self) -> set[tuple[str, Xid]]:
        """Return the branches that have ended through another resource of the same server.

        Each database of a MariaDB server lists the branches of all, and so does each resource of
        a database that has several names.
        """
        listed = self._ask(list({resource.name: None for resource, _ in self._again}), "in_doubt")
        over = set()
        for resource, xid in self._again:
            if resource.name not in listed:
                self._leave(resource, xid, "unreachable")
            elif xid in listed[resource.name]:
                self._leave(resource, xid, LISTED_TWICE)
            else:
                over.add((resource.name, xid))
        return over

    def _resolve_undecided(self, resource: Resource, xid: Xid) -> None:
        outcome = self._outcome_row(xid.gtrid)
        if outcome is None:
            self._leave(resource, xid, "a last resource cannot be asked")
        elif not outcome and self._lacks(xid.gtrid, self._lacking_lasts()):
            self._leave(resource, xid, NO_LAST)
        elif outcome:
            self.decisions.decide(xid.gtrid, [resource.name]).wait()
            self._settle(resource, xid, commit=True)
        elif (time_of(xid.gtrid) or 0) < self.lost_before:
            self._leave(resource, xid, LOST)
        elif self._is_young(xid.gtrid):
            self._leave(resource, xid, "younger than the orphan interval")
        else:
            self._settle(resource, xid, commit=False)

    def _outcome_row(self, gtrid: bytes) -> bool | None:
        """Return True if a last resource committed it, None if one cannot be asked."""
        for name, last in self._lasts.items():
            if name in self._report.unreachable:
                return None
            try:
                if last.has_outcome(gtrid):
                    return True
            except ResourceUnreachable as answer:
                self._unreachable(last, answer)
                return None
        return False

    def _lacking_lasts(self) -> set[str]:
        """Return the last resources that were not given."""
        lasts = last_resources(self._known)
        return {name for name in lasts if self._former.get(name, name) not in self._lasts}

    def _lacks(self, gtrid: bytes, lacking: Collection[str]) -> bool:
        """Return True if one of these resources, which were not given, may have a part of it.

        One that this manager has begun had no other resources than it has. Its time alone does not
        tell: the clock may have been set back since an earlier process began it.
        """
        if not lacking:
            return False
        since = self.dead_before or self.xids.since
        return not (0 < since <= (time_of(gtrid) or 0) and self.xids.has_made(gtrid))

    def _is_young(self, gtrid: bytes) -> bool:
        begun = time_of(gtrid)
        if begun is None:  # an id of Bitronix holds the time since boot, not since 1970
            return False
        if begun < self.dead_before or self._process_of(gtrid) is _Process.DEAD:
            return False
        # An id from the future was made before the clock was set back: a little ahead is young.
        age = abs(self.xids.clock() - begun)
        return age < self.orphan_interval * 1000

    def _settle(self, resource: Resource, xid: Xid, *, commit: bool) -> None:
        verb = "commit" if commit else "roll back"
        self.observe(f"recovery: before {verb}", resource.name)
        try:
            with self.tracing.recovering(verb, resource.name, xid.gtrid):
                if commit:
                    resource.commit(xid)
                else:
                    resource.rollback(xid)
        except BranchUnknown:
            self._leave(resource, xid, HELD)
            return
        except (BranchHeuristic, BranchRolledBack) as answer:
            if commit or isinstance(answer, BranchHeuristic):
                self._heuristic(resource, xid, answer, decided=commit)
                return
        except Exception as answer:
            self._unreachable(resource, answer)
            self._leave(resource, xid, "unreachable")
            return
        self._ended.add(xid)
        self.observe(f"recovery: after {verb}", resource.name)
        self.metrics.settled(commit=commit)
        (self._report.committed if commit else self._report.rolled_back).append(
            (resource.name, xid)
        )
        if commit:
            names = [resource.name, *self._former_names(resource.name, xid.gtrid)]
            self.finish(xid.gtrid, names, DecisionOutcome.COMMITTED)

    def _former_names(self, name: str, gtrid: bytes) -> list[str]:
        """Return the former names of a resource for which a decision waits."""
        decision = self._open_decisions().get(gtrid)
        waiting = decision.resources if decision is not None else ()
        return [old for old, new in self._former.items() if new == name and old in waiting]

    def _heuristic(self, resource: Resource, xid: Xid, answer: Exception, *, decided: bool) -> None:
        _log.critical(
            "heuristic outcome found by recovery",
            extra={"gtrid": xid.gtrid.hex(), "resource": resource.name, "answer": str(answer)},
        )
        finish = self.finish if decided else self.decisions.finish
        finish(xid.gtrid, [resource.name], DecisionOutcome.HEURISTIC)
        self.metrics.heuristic()
        self._report.heuristic.append((resource.name, xid))

    def _decisions_of_ended(self) -> dict[bytes, Decision]:
        """Return the open decisions whose transactions are over."""
        decisions = self._open_decisions()
        return {g: one for g, one in decisions.items() if not self._is_live(g)}

    def _open_decisions(self) -> Mapping[bytes, Decision]:
        """Return the open decisions, without those of transactions that have ended here."""
        self.record_ends()
        return self.decisions.open_decisions()

    def _is_live(self, gtrid: bytes) -> bool:
        """Return True for a transaction of this process, or of another one that lives."""
        return gtrid in self.live or self._process_of(gtrid) is _Process.LIVES

    def _process_of(self, gtrid: bytes) -> _Process:
        """Return what is known of the process of a transaction of this node."""
        log, member, begun = self.decisions, member_of(gtrid), time_of(gtrid)
        if not isinstance(log, SharedDecisionLog) or member is None or begun is None:
            return _Process.UNKNOWN
        if node_of(gtrid) != self.xids.node:
            return _Process.UNKNOWN
        since = log.lives_since(member)
        if since is None or begun < since:
            return _Process.DEAD
        return _Process.THIS if member == log.member else _Process.LIVES

    def _close_decisions(
        self, standing: dict[bytes, Decision], in_doubt: set[tuple[str, bytes]]
    ) -> None:
        """Close decisions whose branches are proved to be committed; name the others."""
        waiting: dict[str, list[bytes]] = {}
        for gtrid, decision in standing.items():
            for name in sorted(decision.resources):
                now = self._former.get(name, name)
                if (now, gtrid) not in in_doubt and now not in self._report.unreachable:
                    waiting.setdefault(name, []).append(gtrid)
        for name, gtrids in waiting.items():
            proved = self._proved(name)
            if proved is not None and not proved.issuperset(gtrids):
                proved = self._proved_by_log(name, proved, gtrids)
            if proved is None:
                continue
            known = self._former.get(name, name) in self.resources
            why = UNPROVED if known else NO_RESOURCE
            if not known:
                _log.warning(
                    "decisions wait for a resource that the manager does not have",
                    extra={"resource": name, "decisions": len(gtrids)},
                )
            for gtrid in gtrids:
                if gtrid in proved:
                    self.finish(gtrid, [name], DecisionOutcome.COMMITTED)
                else:
                    xid = Xid(FORMAT_ID, gtrid, b"")
                    self._report.left.append(BranchInDoubt(name, xid, why, node_of(gtrid)))

    def _proved(self, name: str) -> set[bytes] | None:
        """Return the global ids whose branches are proved committed; None if it is away."""
        resource = self.resources.get(self._former.get(name, name))
        if resource is None:
            return set()
        if not keeps_outcomes(resource):
            return set()
        try:
            if name != resource.name and hasattr(resource, "outcomes_of"):
                return set(resource.outcomes_of(name))
            return set(cast(ProvingResource, resource).outcomes())
        except ResourceUnreachable as answer:
            self._unreachable(resource, answer)
            return None

    def _proved_by_log(
        self, name: str, proved: set[bytes], gtrids: Sequence[bytes]
    ) -> set[bytes] | None:
        """Return what is proved, and what the resource's own log proves; None if it is away."""
        resource = self.resources.get(self._former.get(name, name))
        if resource is None or not hasattr(resource, "committed_in_log"):
            return proved
        try:
            return proved | set(resource.committed_in_log(set(gtrids) - proved))
        except ResourceUnreachable as answer:
            self._unreachable(resource, answer)
            return None

    def _forget_outcomes(self, rows: dict[str, Sequence[bytes]], in_doubt: set[bytes]) -> None:
        """Delete outcome rows that no branch needs, if every resource was asked.

        A row of a last resource may be the decision for a branch of a resource that was not given.
        """
        if self._report.unreachable:
            return
        needed = in_doubt | self._open_decisions().keys()
        lacking = {
            name for name in self._known if self._former.get(name, name) not in self.resources
        }
        for name, found in rows.items():
            resource = self.resources[name]
            others = lacking if name in self._lasts else ()
            over = [
                gtrid
                for gtrid in found
                if gtrid not in needed
                and not self._lacks(gtrid, others)
                and not self._is_live(gtrid)
                and node_of(gtrid) == self.xids.node
            ]
            try:
                if name in self._lasts:
                    over = self._carried_out(over)
                cast(ProvingResource, resource).forget_outcomes(over)
            except Exception as answer:
                self._unreachable(resource, answer)

    def _carried_out(self, decided: Sequence[bytes]) -> list[bytes]:
        """Return decisions in outcome rows without those that may not have been carried out.

        What the log does not have of another process was never closed: a branch may be in doubt
        where nobody has looked, as another database was asked in the place of its own.
        """
        self.kept.difference_update(xid.gtrid for xid in self._ended)
        asked = [one for one in decided if not self.xids.has_made(one) and one not in self.kept]
        self.kept.update(set(asked) - self.closed.among(asked))
        return [one for one in decided if one not in self.kept]

    def _leave(self, resource: Resource, xid: Xid, why: str) -> None:
        self._report.left.append(BranchInDoubt(resource.name, xid, why, node_of(xid.gtrid)))

    def _unreachable(self, resource: Resource, answer: Exception) -> None:
        """Note a resource that cannot be asked; raise what a signal handler has raised instead."""
        interrupt = interrupt_in(answer, self._handled)
        if interrupt is not None:
            raise interrupt
        self._report.unreachable[resource.name] = str(answer)
        self.metrics.retried(resource.name)
        _log.warning(
            "resource cannot be asked; it is retried",
            extra={"resource": resource.name, "answer": str(answer)},
        )


class BackgroundRecovery(Uncopied):
    """A daemon thread that runs recovery every ``interval`` seconds, and soon after `wake`.

    If a pass leaves something, it is repeated after a second, then after twice as long each time,
    up to the interval. A failed log ends the thread. Without an interval there is no thread.
    """

    def __init__(self, recover: Callable[[], RecoveryReport], interval: float | None) -> None:
        self._recover = recover
        self._interval = interval
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        if self._interval is not None:
            thread = threading.Thread(
                target=self._run, args=(self._interval,), name="tallystick-recovery", daemon=True
            )
            start_thread(thread)
            self._thread = thread

    def wake(self) -> None:
        """Have recovery run soon, as something was left to it."""
        self._wake.set()

    def stop(self, seconds: float) -> None:
        """End the thread; wait for a recovery that is running, for this time at most."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            join_thread(self._thread, seconds)

    def _run(self, interval: float) -> None:
        delay = interval
        while True:
            woken = self._wake.wait(delay)
            self._wake.clear()
            if self._stopped:
                return
            clean = self._attempt()
            if clean is None:
                return
            if clean:
                delay = interval
            else:
                delay = min(interval, _FIRST_RETRY_S if woken else max(_FIRST_RETRY_S, delay * 2))

    def _attempt(self) -> bool | None:
        """Return True if nothing is left, None if another attempt would be of no use."""
        try:
            return self._recover().clean
        except (LogPoisonedError, LogClosedError) as error:
            _log.critical("recovery has to wait until the log is reopened: %s", error)
            return None
        except Exception:  # whatever it is, the next attempt may find it gone
            _log.exception("recovery failed; it is tried again")
            return False
