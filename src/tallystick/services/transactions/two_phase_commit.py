"""Two-phase commit over the branches of one transaction, by presumed abort.

In: branches by resource name, and what all commits of a coordinator share. Out: steps, run by a
driver of `steps`, to one of these ends: all committed, or `RolledBackError` with nothing kept, or
`InDoubtError` / `HeuristicError`.

    no branch          nothing to do
    one branch         one phase, no record
    several            prepare all, at the same time where they can; "read only" drops out
      one left         nothing to agree upon: commit it, no record
      last resource    its commit, with an outcome row, is the decision; then the record
      otherwise        the forced record is the decision
    then               commit all, likewise; the end is recorded, not forced

Only a crash between the decision and the end leaves branches in doubt that are to be committed, and
recovery commits them. A refusal or an error before the decision rolls back everything.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from tallystick.errors import (
    HeuristicError,
    InDoubtError,
    LogClosedError,
    LogPoisonedError,
    LogWriteError,
    RolledBackError,
    TransactionUsageError,
)
from tallystick.printable import logger
from tallystick.records import State
from tallystick.roles import DecisionLog, DecisionOutcome
from tallystick.services.transactions.coordinator_dir import log_unrecorded_end
from tallystick.services.transactions.metrics import TransactionMetrics
from tallystick.services.transactions.resource import (
    AnyBranch,
    BranchHeuristic,
    BranchRolledBack,
    BranchUnknown,
    EndedByApplication,
    ResourceAnswer,
    ResourceUnreachable,
    Vote,
    abort,
    discard,
    send_commit,
    send_prepare,
)
from tallystick.services.transactions.steps import Observer, Steps, Whole
from tallystick.services.transactions.tracing import Tracing
from tallystick.storage.fork import Uncopied
from tallystick.storage.group.owned_lock import WaitRefusedError
from tallystick.storage.scheduling import threading, time
from tallystick.storage.signals import uninterrupted

_log = logger("tallystick.transactions")

_SHORTEST_LIMIT_S = 1.0
_POLL_S = 0.01

_LOG_REFUSED = (LogWriteError, LogPoisonedError, LogClosedError)

TIMED_OUT = "the transaction timed out"
CLOSED = "the transaction manager was closed"
_ADVICE = {
    TIMED_OUT: "Roll it back; begin with a longer timeout if the work needs it",
    CLOSED: "Close the manager after the blocks of its transactions; open another one to repeat it",
}


def cut_short(why: str, what: str = "rolled back") -> RolledBackError:
    """Return the error for a transaction that was ended before its commit began.

    Args:
        why: `TIMED_OUT` or `CLOSED`.
        what: what cannot be done any more, or what was done.
    """
    return RolledBackError(f"{what}: {why}", advice=_ADVICE[why])


class LiveTransactions(Uncopied):
    """Global ids whose branches recovery must leave alone: at work in this process, or frozen.

    Each change is a single operation of a dictionary or a set, so no lock is needed. A transaction
    is frozen before it is removed.

    ``closing`` is True from the moment at which the manager begins to close.
    """

    __slots__ = ("_at_work", "_closed", "_ending", "_frozen", "closing")

    def __init__(self) -> None:
        self._at_work: dict[bytes, TwoPhaseCommit] = {}
        self._frozen: set[bytes] = set()
        self._ending = threading.Lock()
        self.closing = self._closed = False

    def add(self, transaction: TwoPhaseCommit) -> None:
        """Protect a transaction, which begins."""
        self._at_work[transaction.gtrid] = transaction

    def remove(self, gtrid: bytes) -> None:
        """Leave a transaction that has ended to recovery, unless it is frozen."""
        self._at_work.pop(gtrid, None)

    def freeze(self, gtrid: bytes) -> None:
        """Protect a transaction as long as the log is open: only a reopened log shows its end."""
        self._frozen.add(gtrid)

    def at_work(self) -> list[TwoPhaseCommit]:
        """Return the transactions that have not ended."""
        return list(self._at_work.values())

    def has(self, transaction: TwoPhaseCommit) -> bool:
        """Return True if a transaction has not ended."""
        return self._at_work.get(transaction.gtrid) is transaction

    def admits(self, transaction: TwoPhaseCommit) -> bool:
        """Return True if a commit may begin, or go on to its second phase.

        None begins once the manager is closing. `wait_for_ends` comes after ``closing`` was set: it
        sees the commits that have not seen that.
        """
        began, transaction.is_ending = transaction.is_ending, True
        return not self._closed and (began or not self.closing)

    def abort_if_late(self, transaction: TwoPhaseCommit, now: float, why: str = TIMED_OUT) -> None:
        """End the sessions of a transaction whose deadline has passed.

        Again every second: a branch may have joined since.
        """
        with self._ending:
            if transaction.deadline < now:
                transaction.deadline = now + 1.0
                transaction.cut_short = transaction.cut_short or why
                for name, branch in list(transaction.branches.items()):
                    try:
                        abort(branch)
                    except Exception:  # the other sessions must be ended
                        extra = {"gtrid": transaction.gtrid.hex(), "resource": name}
                        _log.exception("a session could not be ended", extra=extra)

    def abort_all(self) -> None:
        """End the sessions of all transactions, as the decision log is closed next."""
        self._closed = True
        for transaction in self.at_work():
            transaction.deadline = -math.inf
            self.abort_if_late(transaction, 0.0, CLOSED)

    def discard_of_this_thread(self) -> None:
        """Release the branches of the caller's own transactions, which it is not working with."""
        for transaction in self.at_work():
            owner = None if transaction.owner is None else transaction.owner()
            if owner is None or owner.thread == threading.get_ident():
                transaction.discard()

    def wait_for_ends(self, seconds: float) -> None:
        """Wait for transactions whose commit has begun."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(one.is_ending for one in self.at_work()):
            uninterrupted.interruptible(time.sleep, _POLL_S)

    async def wait_until_empty(self, seconds: float, but: Collection[bytes] = ()) -> None:
        """Wait for all transactions to end, on the event loop, except the global ids ``but``."""
        deadline = time.monotonic() + seconds
        while self._at_work.keys() - but and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)

    def release(self, transaction: TwoPhaseCommit) -> None:
        """Let nobody end the sessions of a transaction from now on: others will use them."""
        with self._ending:
            transaction.deadline = math.inf

    def leave_to_parent(self) -> None:
        """Refuse all calls of transactions in a child process."""
        for transaction in self._at_work.values():
            transaction.of_parent = True

    def __len__(self) -> int:
        return len(self._at_work)

    def __contains__(self, gtrid: bytes) -> bool:
        return gtrid in self._at_work or gtrid in self._frozen


@dataclass(slots=True)
class CommitContext:
    """What all commits of one coordinator share.

    ``writes_notes`` has the log record that a commit begins, which decides nothing.
    ``call_timeout`` is in seconds, for calls in the second phase and in rollback. ``committed``
    records that branches have ended as decided, ``finish`` how others have.
    ``recover_soon`` is called when something was left to recovery. ``others`` says of which
    resources the last recovery has found another database than before.
    """

    decisions: DecisionLog
    live: LiveTransactions
    metrics: TransactionMetrics
    tracing: Tracing
    observe: Observer
    recover_soon: Callable[[], None]
    writes_notes: bool
    call_timeout: float
    committed: Callable[[bytes, Collection[str]], None]
    finish: Callable[[bytes, Collection[str], DecisionOutcome], None]
    others: dict[str, str] = field(default_factory=dict)


class Owner(Protocol):
    """A transaction of the application."""

    @property
    def thread(self) -> int | None:
        """The thread that used it last; None between threads."""
        ...

    @property
    def ends_with(self) -> int | None:
        """The thread without which nobody ends it; None if another one may."""
        ...


class TwoPhaseCommit(Uncopied):
    """The branches of one transaction, and the protocol that ends them.

    ``branches`` are by resource name, in the order of enlistment; ``last`` names the one that
    cannot prepare, if any. ``prepared`` is None until `prepare` has run; then it holds the branches
    that voted "prepared". ``of_parent`` is True in a process forked since it began.

    ``deadline`` is the moment of the monotonic clock at which another thread ends the sessions of
    the branches; then ``cut_short`` says why. ``owner`` refers weakly to the transaction of the
    application. ``is_ending`` is True from the begin of the first phase. ``on_release`` is called
    once the branches are closed; ``is_discarded`` is True if they were released unasked.
    ``against`` has the answers of branches that may have ended against a rollback.

    Args:
        gtrid: the global id.
        context: what all commits share.
        timeout: seconds for the work and the first phase.
    """

    __slots__ = (
        "_context",
        "_observe",
        "_timeout",
        "_trace",
        "against",
        "branches",
        "cut_short",
        "deadline",
        "gtrid",
        "is_discarded",
        "is_ending",
        "last",
        "of_parent",
        "on_release",
        "owner",
        "prepared",
    )

    def __init__(self, gtrid: bytes, context: CommitContext, timeout: float) -> None:
        now = time.monotonic()
        self.gtrid = gtrid
        self.deadline = now + timeout
        self.cut_short: str | None = None
        self.is_ending = self.is_discarded = False
        self.on_release: Callable[[], None] | None = None
        self.owner: weakref.ref[Owner] | None = None
        self._timeout = timeout
        self.branches: dict[str, AnyBranch] = {}
        self.against: dict[str, ResourceAnswer] = {}
        self.last: str | None = None
        self.prepared: dict[str, AnyBranch] | None = None
        self.of_parent = False
        self._context = context
        self._trace = context.tracing.begin(gtrid, context.observe, now)
        self._observe = context.observe if self._trace is None else self._trace.observe
        context.live.add(self)

    def require_known(self, name: str) -> None:
        """Raise `ResourceUnreachable` if a resource is another database than before."""
        if name in self._context.others:
            raise ResourceUnreachable(f"{name!r}: {self._context.others[name]}")

    def prepare(self) -> Steps[None]:
        """Run the first phase. A refusal, or any error, rolls back all branches."""
        prepared, branches, observe = {}, self.branches, self._observe
        try:
            self._go_on()
            observe("before first phase")
            if self._context.writes_notes:
                self._context.decisions.note(State.UNDECIDED, self.gtrid, branches)
            last = self.last
            voters = [name for name in branches if name != last]
            for name in self._send(branches, voters, send_prepare):
                branch = branches[name]
                observe("before prepare", name)
                try:
                    vote = yield branch.prepare
                except BranchHeuristic as answer:
                    self._against_rollback(name, answer)
                    raise
                if vote is Vote.PREPARED:
                    prepared[name] = branch
                observe("after prepare", name)
        except BaseException as error:
            yield from self.rollback()
            if isinstance(error, ResourceAnswer) or self._closed_its_session(error):
                why = self.cut_short or "prepare failed"
                raise RolledBackError(f"rolled back: {why}: {error}") from error
            if isinstance(error, _LOG_REFUSED):
                raise RolledBackError(f"rolled back: the log refused a note: {error}") from error
            raise
        self.prepared = prepared
        self.deadline = math.inf

    @property
    def is_manager_closing(self) -> bool:
        """Whether no commit may begin any more."""
        return self._context.live.closing

    def _go_on(self) -> None:
        """Note that a commit begins, or goes on to its second phase.

        Raises:
            RolledBackError: the manager is closing, and its log could not take the decision.
        """
        if not self._context.live.admits(self):
            raise cut_short(CLOSED)

    def _closed_its_session(self, error: BaseException) -> bool:
        """Return True if not the application, but another thread has closed a connection."""
        return self.cut_short is not None and isinstance(error, TransactionUsageError)

    def complete(self) -> Steps[None]:
        """Decide and run the second phase; without a first phase, commit the only branch."""
        prepared = self.prepared
        try:
            self._go_on()
        except RolledBackError:
            yield from self.rollback()
            raise
        self.deadline = math.inf
        if prepared is None:
            for name in self.branches:
                yield from self._commit_one_phase(name)
            return
        decided = len(prepared) > 1 or self.last is not None
        if self.last is not None:
            yield from self._commit_last(self.last, alone=not prepared)
            if prepared:
                yield from self._record_outcome(self.last, prepared)
        elif decided:
            try:
                yield from self._decide(prepared)
            except LogWriteError as error:  # refused before a byte was written: not decided
                yield from self._rollback(prepared)
                text = f"rolled back: the decision was refused: {error}"
                raise RolledBackError(text) from error
        yield from self._commit_prepared(prepared, decided=decided)

    def rollback(self) -> Steps[None]:
        """Roll back every branch; unreachable ones are left to recovery, by presumed abort.

        Raises:
            HeuristicError: branches may have been committed.
        """
        return self._rollback(self.branches)

    def discard(self) -> None:
        """Release the branches of a transaction that nobody owns any more."""
        self._context.live.release(self)
        self.is_discarded = True
        for name, branch in self.branches.items():
            try:
                abort(branch)
                discard(branch, prepared=self.prepared is not None)
            except Exception:  # the other branches must be released
                _log.exception("a branch could not be released", extra={"resource": name})
        self._release()
        self._context.recover_soon()

    def close(self) -> Steps[None]:
        """Close every branch, and leave the transaction to recovery; in a child, to its parent."""
        if self.of_parent or self.is_discarded:
            return
        self._context.live.release(self)
        for name, branch in self.branches.items():
            try:
                yield Whole(branch.close)
            except Exception:  # the transaction is over, and the other branches must be closed
                _log.exception("a branch could not be closed", extra={"resource": name})
        self._release()

    def _release(self) -> None:
        self._context.live.remove(self.gtrid)
        released, self.on_release = self.on_release, None
        if released is not None:
            released()

    def ended(self, outcome: Enum) -> None:
        """Take note of how it ended, for those who watch."""
        if self._trace is not None:
            self._trace.end(str(outcome.value))

    # -- one phase ----------------------------------------------------------------------------

    def _commit_one_phase(self, name: str) -> Steps[None]:
        self._observe("before one-phase", name)
        self._begin_limit()
        try:
            yield Whole(self.branches[name].commit_one_phase)
        except (BranchRolledBack, BranchUnknown) as answer:
            raise RolledBackError(f"rolled back by {name}: {answer}") from answer
        except TransactionUsageError as error:
            if not self._closed_its_session(error):
                raise
            raise cut_short(self.cut_short or TIMED_OUT) from error
        except ResourceUnreachable as answer:
            raise InDoubtError(
                f"{name} was lost during its one-phase commit: {answer}",
                advice="Only the resource knows; look for the data before repeating the work",
            ) from answer
        except BranchHeuristic as answer:
            self._record_heuristic(name, decided=False)
            raise HeuristicError(f"{name}: {answer}") from answer
        self._observe("after one-phase", name)

    # -- the decision -------------------------------------------------------------------------

    def _commit_last(self, last: str, *, alone: bool) -> Steps[None]:
        """Commit the last resource, which is the decision; ``alone`` if no branch is prepared."""
        self._observe("before last", last)
        self._begin_limit()
        branch = self.branches[last]
        try:
            yield Whole(branch.commit_one_phase if alone else branch.commit)
        except ResourceUnreachable as answer:
            raise InDoubtError(
                f"{last} was lost during its commit, which is the decision: {answer}",
                advice="Recovery asks its outcome row and finishes the others; call recover()",
            ) from answer
        except (ResourceAnswer, TransactionUsageError) as answer:
            if isinstance(answer, BranchHeuristic):
                self._against_rollback(last, answer)
            yield from self._rollback({n: b for n, b in self.branches.items() if n != last})
            if isinstance(answer, TransactionUsageError):
                raise
            raise RolledBackError(f"rolled back: {last} refused to commit: {answer}") from answer
        self._observe("after last", last)
        extra = {"gtrid": self.gtrid.hex(), "resource": last}
        _log.debug("decided by the last resource", extra=extra)

    def _decide(self, prepared: Mapping[str, AnyBranch]) -> Steps[None]:
        self.deadline = math.inf  # nothing of a resource is waited for
        context, observe = self._context, self._observe
        observe("before decision")
        try:
            ticket = context.decisions.decide(self.gtrid, prepared)
            observe("decision written")
            yield ticket
        except (LogPoisonedError, LogClosedError, WaitRefusedError) as error:
            context.live.freeze(self.gtrid)
            raise InDoubtError(
                f"the decision could not be made durable: {error}",
                advice="Reopen the log: recovery commits if the record is there, else rolls back",
            ) from error
        context.metrics.decided()
        observe("after decision")

    def _record_outcome(self, last: str, prepared: Mapping[str, AnyBranch]) -> Steps[None]:
        """Record what the last resource decided. If that fails, its outcome row is the proof."""
        try:
            yield from self._decide(prepared)
        except (InDoubtError, LogWriteError) as error:
            raise InDoubtError(
                f"committed in {last}, but the log cannot record it: {error}",
                advice="Reopen the log: recovery finds the outcome row and commits the others",
            ) from error

    # -- the second phase ---------------------------------------------------------------------

    def _commit_prepared(self, prepared: Mapping[str, AnyBranch], *, decided: bool) -> Steps[None]:
        """Commit the branches; what is decided and fails is left to recovery, or heuristic."""
        done: list[str] = []
        against: dict[str, ResourceAnswer] = {}
        observe = self._observe
        self._begin_limit()
        try:
            for name in self._send(prepared, prepared, send_commit):
                observe("before commit", name)
                try:
                    yield Whole(prepared[name].commit)
                    done.append(name)
                except Exception as error:
                    self._not_committed(name, error, against, decided=decided)
                observe("after commit", name)
        finally:
            if len(done) < len(prepared):
                self._context.recover_soon()
        if decided and done:
            self._context.committed(self.gtrid, done)
            observe("after end record")
        if against:
            self._raise_heuristic(done, against, decided=decided)

    def _not_committed(
        self,
        name: str,
        error: Exception,
        against: dict[str, ResourceAnswer],
        *,
        decided: bool,
    ) -> None:
        """Add an answer to ``against``, or leave the branch to recovery; called in a handler."""
        if isinstance(error, ResourceUnreachable):
            _log.warning("commit left to recovery", extra=self._extra(name, error))
            if not decided:
                raise _lost_alone(name, error) from error
        elif isinstance(error, ResourceAnswer):
            against[name] = error
        elif decided:
            extra = self._extra(name, error)
            _log.exception("commit failed, and is left to recovery", extra=extra)
        else:
            raise error

    def _raise_heuristic(
        self, done: list[str], against: Mapping[str, ResourceAnswer], *, decided: bool
    ) -> None:
        for name in against:
            self._record_heuristic(name, decided=decided)
        raise _heuristic(f"committed in {done or 'none'}, but not in", against)

    # -- both phases --------------------------------------------------------------------------

    def _send(
        self,
        branches: Mapping[str, AnyBranch],
        names: Collection[str],
        send: Callable[[AnyBranch], bool],
    ) -> Collection[str]:
        """Send the request to every branch that can be sent one before the answer is awaited.

        Args:
            branches: by name.
            names: those to send it to.
            send: sends it; False where that begins only with the waiting.

        Returns:
            The names in the order to wait in: first those that begin only with the waiting.
        """
        sent = []
        if len(names) > 1:
            for name in names:
                if send(branches[name]):
                    sent.append(name)
                    self._observe("asked", name)
        return [name for name in names if name not in sent] + sent if sent else names

    def _begin_limit(self) -> None:
        """Give the calls that follow a time of their own."""
        limit = max(self._timeout, _SHORTEST_LIMIT_S)
        self.deadline = time.monotonic() + min(self._context.call_timeout, limit)

    def _rollback(self, branches: Mapping[str, AnyBranch]) -> Steps[None]:
        # Of a parent: the sessions belong to the process that this one was forked from.
        if self.of_parent or self.is_discarded:
            return
        self._begin_limit()
        ended: EndedByApplication | None = None
        for name, branch in branches.items():
            self._observe("rollback", name)
            try:
                yield Whole(branch.rollback)
            except (ResourceUnreachable, BranchUnknown, BranchRolledBack) as answer:
                _log.info("rollback left to recovery", extra=self._extra(name, answer))
                self._context.recover_soon()
            except BranchHeuristic as answer:
                self._against_rollback(name, answer)
            except EndedByApplication as error:
                ended = ended or error
                self._context.recover_soon()
            except Exception as error:  # the other branches must be rolled back all the same
                _log.exception("rollback failed", extra=self._extra(name, error))
                self._context.recover_soon()
        if self.against:
            raise _heuristic("rolled back, but perhaps not in", self.against)
        if ended is not None:
            raise ended

    def _against_rollback(self, name: str, answer: BranchHeuristic) -> None:
        """Take note of a branch that may be committed, while the transaction rolls back."""
        _log.critical("heuristic outcome on rollback", extra=self._extra(name, answer))
        if name not in self.against:
            self.against[name] = answer
            self._record_heuristic(name, decided=False)

    def _record_heuristic(self, name: str, *, decided: bool) -> None:
        """Record an outcome; that a commit was decided is noted for good only if it was."""
        finish = self._context.finish if decided else self._context.decisions.finish
        try:
            finish(self.gtrid, [name], DecisionOutcome.HEURISTIC)
        except _LOG_REFUSED:
            log_unrecorded_end(self.gtrid, [name], DecisionOutcome.HEURISTIC)
        self._context.metrics.heuristic()

    def _extra(self, name: str, answer: Exception) -> dict[str, str]:
        return {"gtrid": self.gtrid.hex(), "resource": name, "answer": str(answer)}


def _heuristic(text: str, against: Mapping[str, ResourceAnswer]) -> HeuristicError:
    answers = ", ".join(f"{name}: {answer}" for name, answer in against.items())
    return HeuristicError(
        f"{text} {answers}",
        advice="See 'tallystick indoubt list'; settle it once the data agree",
    )


def _lost_alone(name: str, answer: ResourceUnreachable) -> InDoubtError:
    return InDoubtError(
        f"{name} was lost during its commit, and no other resource took part: {answer}",
        advice="Recovery rolls the branch back if it is still prepared",
    )
