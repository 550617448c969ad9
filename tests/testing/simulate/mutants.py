"""Bugs planted in copies of our own methods, one in each, that the simulator has to find.

In: nothing. Out: `MUTANTS`: what is replaced by what, and the scenario that has to fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.services.page_store.pages.cache import PageCache
from tallystick.services.page_store.transactions import Session, Transactions
from tallystick.services.transactions.recovery import Recovery
from tallystick.services.transactions.resource import AnyBranch
from tallystick.services.transactions.steps import Steps
from tallystick.services.transactions.two_phase_commit import TwoPhaseCommit
from tallystick.services.write_behind.sequencer import Sequencer
from tallystick.storage.files import FileSystem, Lock
from tallystick.storage.group.queue import PureQueue
from tallystick.storage.group.ticket import Group
from tallystick.storage.group.writer import GroupWriter
from tallystick.storage.shared import epochs
from tallystick.storage.shared.client import Cut
from tallystick.systems.tally.live import log
from tallystick.systems.tally.live.appender import Appender
from tallystick.systems.tally.live.shared import log as shared_log
from tallystick.systems.tally.live.shared.batches import decode_lsns
from tallystick.testing.simulate.simulation import Scenario
from tests.testing.simulate.scenario_behind import behind
from tests.testing.simulate.scenario_commit import commits
from tests.testing.simulate.scenario_decisions import decisions
from tests.testing.simulate.scenario_group import group
from tests.testing.simulate.scenario_journal import journal, journal_tasks
from tests.testing.simulate.scenario_pages import pages
from tests.testing.simulate.scenario_shared import shared


def _flush(self: GroupWriter[Any], sync: bool, end: Callable[[], None]) -> None:
    """As `GroupWriter._flush`, with other last steps."""
    queue = self._queue
    groups = queue.take()
    if not queue.unsynced:
        return
    for one in groups:
        self._write_group(one, self._write)
    if queue.unsynced and (sync or any(one.sync for one in groups)):
        end()


def acknowledges_before_the_sync(self: GroupWriter[Any], sync: bool) -> None:
    """As `GroupWriter._flush`, with its last two steps in the wrong order."""

    def end() -> None:
        self._queue.finish(0.0)
        self._sync()

    _flush(self, sync, end)


def goes_on_after_a_failed_sync(self: GroupWriter[Any], sync: bool) -> None:
    """As `GroupWriter._flush`, without the look at what the sync said."""

    def end() -> None:
        with contextlib.suppress(OSError):
            self._sync()
        self._queue.finish(0.0)

    _flush(self, sync, end)


def releases_without_a_look_at_the_groups(self: PureQueue[Any]) -> bool:
    """As `PureQueue.release`, without the wake-up of groups formed meanwhile (I5)."""
    with self._lock:
        self._flush_lock.release()
    return self.stopped is not None


def commits_alone_without_a_second_look(self: PureQueue[Any], item: Any, size: int) -> int:
    """As `PureQueue.commit`, with one look at what is under way, before the lock is taken."""
    if self._idle() and self._flush_lock.try_acquire():
        return self._policy.commit_alone(item, size)
    return self.submit(item, size, True).wait()


def hands_a_group_out_twice(self: PureQueue[Any]) -> list[Group[Any]]:
    """As `PureQueue.take`; the lock is given up between the copy and the clearing."""
    with self._lock:
        self._rotate()
        groups = [*self._dirty]
    with self._lock:
        self._dirty_bytes = 0
        self._unsynced += [one for one in groups if one not in self._unsynced]
        if len(groups) < 2:
            self._dirty.clear()
    return groups


def takes_items_after_the_end(self: PureQueue[Any]) -> None:
    """As `PureQueue.refuse_if_stopped`, which refuses nothing."""


def wakes_no_loop(self: Group[Any]) -> None:
    """As `Group.finish`, without the tasks."""
    self.finished = True
    self.open_gate()


def locks_without_a_sync_of_the_folder(fs: FileSystem, path: str) -> Lock:
    """As `lock_log`, which trusts the names that a killed owner has left."""
    return fs.lock(path)


def hands_over_before_the_log_is_durable(self: Sequencer, least: int) -> int:
    """As `Sequencer._hand_over`, which does not look at the ticket."""
    del least
    ready = []
    while self._queue:
        ready.append(self._queue.popleft()[0])
    if ready:
        self._durable(ready)
    return len(ready)


def waits_for_no_record(self: Transactions, session: Session) -> None:
    """As `Transactions._commit`, which does not wait for the end of the session."""
    self._log.log_rows(session.number, self.tables.to_log(session.changes, self._latches.latch))
    self._log.commit(session.number)


def frees_the_log_before_the_pages_are_durable(self: PageCache, latch: Any, _required: Any) -> None:
    """As `PageCache.write_back`, without the sync of the pages at its end."""
    with latch:
        pages = {
            n: image or self.codec.encode(n, self.nodes[n]) for n, image in self.writing.items()
        }
        self.writing.clear()
    self._write(pages)
    self.limit = 0


def syncs_nothing(self: Appender) -> None:
    """As `Appender.sync` of the native log, which leaves it to the operating system."""


def commits_before_the_decision_is_durable(
    self: TwoPhaseCommit, prepared: Mapping[str, AnyBranch]
) -> Steps[None]:
    """As `TwoPhaseCommit._decide`, which does not wait for the log."""
    self._context.decisions.decide(self.gtrid, prepared)
    yield from ()


def takes_no_transaction_for_live(self: Recovery, gtrid: bytes) -> bool:
    """As `Recovery._is_live`, which forgets those of its own process."""
    del self, gtrid
    return False


def asks_no_last_resource(self: Recovery, gtrid: bytes) -> bool:
    """As `Recovery._outcome_row`, which takes silence for a rollback."""
    del self, gtrid
    return False


def deposes_nobody(folder: str, number: int) -> tuple[bool, list[tuple[int, int]]]:
    """As `depose`, without the word that stops former leaders: no fence by epoch."""
    gone = True
    ends: list[tuple[int, int]] = []
    for one in epochs.numbers(folder):
        epoch = epochs.open_epoch(folder, one) if one < number else None
        if epoch is not None:
            gone = gone and not epoch.is_led()
            ends = epoch.ends() if epoch.ends_count else ends
            epoch.wake_all()
            epoch.close()
    return gone, ends


def hands_over_again_what_is_written(cut: Cut) -> Sequence[int]:
    """As `_written`, which does not look at what the former leader has written."""
    del cut
    return ()


def takes_what_was_staged_for_written(cut: Cut) -> Sequence[int]:
    """As `_written`, which does not look at where the former leader's epoch has ended."""
    return decode_lsns(cut.staged) if cut.staged and cut.staged[:1] != b"E" else ()


@dataclass(frozen=True)
class Mutant:
    """One bug: ``owner.name`` is replaced by ``body``; ``scenario`` has to notice."""

    owner: Any
    name: str
    body: Callable[..., Any]
    scenario: Scenario


MUTANTS = [
    Mutant(GroupWriter, "_flush", acknowledges_before_the_sync, group),
    Mutant(GroupWriter, "_flush", goes_on_after_a_failed_sync, group),
    Mutant(PureQueue, "release", releases_without_a_look_at_the_groups, group),
    Mutant(PureQueue, "commit", commits_alone_without_a_second_look, group),
    Mutant(PureQueue, "refuse_if_stopped", takes_items_after_the_end, group),
    Mutant(PureQueue, "take", hands_a_group_out_twice, group),
    Mutant(Group, "finish", wakes_no_loop, group),
    Mutant(log, "lock_log", locks_without_a_sync_of_the_folder, journal_tasks),
    Mutant(Appender, "sync", syncs_nothing, journal),
    Mutant(Appender, "sync", syncs_nothing, decisions),
    Mutant(Sequencer, "_hand_over", hands_over_before_the_log_is_durable, behind),
    Mutant(Transactions, "_commit", waits_for_no_record, pages),
    Mutant(TwoPhaseCommit, "_decide", commits_before_the_decision_is_durable, commits),
    Mutant(Recovery, "_is_live", takes_no_transaction_for_live, commits),
    Mutant(Recovery, "_outcome_row", asks_no_last_resource, commits),
    Mutant(epochs, "depose", deposes_nobody, shared),
    Mutant(shared_log, "_written", hands_over_again_what_is_written, shared),
    Mutant(shared_log, "_written", takes_what_was_staged_for_written, shared),
    Mutant(PageCache, "write_back", frees_the_log_before_the_pages_are_durable, pages),
]
