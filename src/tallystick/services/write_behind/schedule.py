"""Which transactions a target may get next: the order of each key is kept, nothing else is.

In: entries in the order of their numbers, and what became of the batches handed out. Out:
batches. Two transactions that touch the same key (of the same collection) are never in two
batches at once, nor out of order; within a batch they stand in order.

Each key has a queue. Works stay in their queues until they are done; those in a batch are
*taken*, always the first ones of a queue and by one batch only. A work may be taken when all
that stand before it in its queues are taken by the batch that takes it. A work that is set aside
makes those behind it in its queues *stuck*, and those behind them.

Where one batch is out at a time (``single``) and nothing has failed, no queue is needed: works
wait in an inbox and leave it in the order of their numbers. Not for several threads at once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tallystick.roles import PersistEntry
from tallystick.services.write_behind.queued_transaction import (
    EVERYTHING,
    Key,
    Queue,
    Work,
    keys_of,
)


@dataclass(slots=True)
class Schedule:
    """The transactions that wait for one target. ``strict`` keeps the order of all of them."""

    strict: bool = False
    single: bool = False
    waiting: dict[int, Work] = field(default_factory=dict)
    """What stands in a queue, or is out in a batch, by ascending number."""
    newly_stuck: list[int] = field(default_factory=list)
    """Numbers that became stuck; whoever takes note of them clears it."""
    _lined_up: bool = field(init=False)
    """Works stand in queues."""
    _inbox: deque[PersistEntry] = field(default_factory=deque)
    _given_up: set[int] = field(default_factory=set)
    """Numbers that are to be left out when they come from the inbox."""
    _queues: dict[Key, Queue] = field(default_factory=dict)
    _ready: list[Work] = field(default_factory=list)
    _resting: list[tuple[float, Work]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lined_up = not self.single

    def add(self, entries: Iterable[PersistEntry]) -> None:
        """More, with greater numbers than all before them."""
        self._inbox.extend(entries)
        if self._lined_up:
            self.look_closer()

    def take(self, count_max: int, now: float) -> list[Work]:
        """The next batch, in the order of numbers; empty if nothing is ready at ``now``."""
        if not self._lined_up:
            return self._take_first(count_max)
        while self._resting and self._resting[0][0] <= now:
            rested = heapq.heappop(self._resting)[1]
            rested.resting = False
            self._offer(rested)
        batch: list[Work] = []
        keys: set[Key] = set()
        joining: list[Work] = []
        while len(batch) < count_max:
            work = self._next(joining, first=not batch)
            if work is None:
                break
            batch.append(work)
            keys |= work.keys
            joined = self._take(work)
            for follower in joined:
                if self._may_join(follower, keys):
                    heapq.heappush(joining, follower)
            if work.alone:
                break
        return sorted(batch)

    def _take_first(self, count_max: int) -> list[Work]:
        batch: list[Work] = []
        while self._inbox and len(batch) < count_max:
            work = self._next_of_inbox()
            if work is not None:
                work.taken = True
                batch.append(work)
        return batch

    def _next_of_inbox(self) -> Work | None:
        entry = self._inbox.popleft()
        if self._given_up and entry.number in self._given_up:
            self._given_up.discard(entry.number)
            return None
        work = self.waiting[entry.number] = Work(entry)
        return work

    def _line_up(self, work: Work) -> None:
        """Put a work at the end of the queues of its keys."""
        work.keys = EVERYTHING if self.strict else keys_of(work.entry)
        for key in work.keys:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = Queue()
            elif queue.works[-1].stuck:
                work.stuck = True
            work.behind += len(queue.works) > queue.taken
            queue.works.append(work)
        if work.stuck:
            self.newly_stuck.append(work.number)
        self._offer(work)

    @property
    def empty(self) -> bool:
        """True if nothing waits and nothing is out."""
        return not self.waiting and len(self._inbox) == len(self._given_up)

    def has_ready(self) -> bool:
        """True if a batch could be taken, or soon after a rest."""
        return bool(self._inbox or self._resting) or any(map(self._is_ready, self._ready))

    def next_rest(self) -> float | None:
        """When the next resting work may be tried again, None if none rests."""
        return self._resting[0][0] if self._resting else None

    def done(self, batch: list[Work]) -> None:
        """The target holds the batch."""
        for work in batch:
            work.gone = True
            self.waiting.pop(work.number, None)
            for key in work.keys:
                queue = self._queues[key]
                queue.works.remove(work)  # among the first: the batch took them
                queue.taken -= 1
        self._offer_heads(batch)
        if self.single and not self.waiting:
            self._lined_up = False

    def put_back(self, batch: list[Work]) -> None:
        """The target does not hold the batch; its works may be taken again."""
        if not self._lined_up:
            for work in reversed(batch):
                if self.waiting.pop(work.number, None) is not None:
                    self._inbox.appendleft(work.entry)
            return
        for work in reversed(batch):
            work.taken = False
            for key in work.keys:
                queue = self._queues[key]
                if queue.taken < len(queue.works):
                    queue.works[queue.taken].behind += 1
                queue.taken -= 1
        for work in [one for one in batch if one.gone]:
            self._remove(work)
        self._offer_heads(batch)

    def look_closer(self) -> None:
        """From now on keep queues, until they are empty: works go different ways."""
        self._lined_up = True
        while self._inbox:
            work = self._next_of_inbox()
            if work is not None:
                self._line_up(work)

    def rest(self, work: Work, until: float) -> None:
        """Keep a work that is not taken back for a while."""
        work.resting = True
        heapq.heappush(self._resting, (until, work))

    def set_aside(self, work: Work) -> None:
        """Keep a work back until `retry` or `discard`; its keys wait with it."""
        work.aside = True
        self._stick(work)

    def retry(self, number: int) -> bool:
        """Try a work that was set aside anew; False if there is none."""
        work = self.waiting.get(number)
        if work is None or not work.aside:
            return False
        work.aside, work.attempts = False, 0
        self._offer(work)
        return True

    def stuck_again(self) -> list[int]:
        """Look anew at who stands behind what is set aside: everyone who is stuck."""
        for work in self.waiting.values():
            work.stuck = False
        for work in [one for one in self.waiting.values() if one.aside]:
            self._stick(work)
        self.newly_stuck.clear()
        return [work.number for work in self.waiting.values() if work.stuck]

    def _stick(self, work: Work) -> None:
        if not work.stuck:
            work.stuck = True
            self.newly_stuck.append(work.number)
            self._spread(work.keys)

    def _spread(self, keys: Iterable[Key]) -> None:
        """Everyone behind a stuck work is stuck, in all of its queues."""
        look = set(keys)
        while look:
            behind = False
            for work in self._queues[look.pop()].works:
                if behind and not work.stuck:
                    work.stuck = True
                    self.newly_stuck.append(work.number)
                    look |= work.keys
                behind = behind or work.stuck

    def discard(self, number: int) -> None:
        """Forget a work; one that is out in a batch may still be applied."""
        work = self.waiting.pop(number, None)
        if work is None:
            if any(entry.number == number for entry in self._inbox):
                self._given_up.add(number)
            return
        work.gone = True
        if work.keys and not work.taken:
            self._remove(work)
            self._offer_heads([work])

    # -- queues ------------------------------------------------------------------------------

    def _next(self, joining: list[Work], *, first: bool) -> Work | None:
        while self._ready and not self._is_ready(self._ready[0]):
            heapq.heappop(self._ready)
        if self._ready and (not joining or self._ready[0] < joining[0]):
            if first or not self._ready[0].alone:
                return heapq.heappop(self._ready)
            return heapq.heappop(joining) if joining else None
        return heapq.heappop(joining) if joining else None

    def _take(self, work: Work) -> list[Work]:
        """Mark as taken; returns the works that nothing untaken stands before any more."""
        work.taken = True
        freed = []
        for key in work.keys:
            queue = self._queues[key]
            queue.taken += 1
            if queue.taken < len(queue.works):
                follower = queue.works[queue.taken]
                follower.behind -= 1
                if follower.behind == 0:
                    freed.append(follower)
        return freed

    def _may_join(self, work: Work, keys: set[Key]) -> bool:
        if work.alone or work.aside or work.resting or work.gone:
            return False
        return all(key in keys or self._queues[key].taken == 0 for key in work.keys)

    def _remove(self, work: Work) -> None:
        """Take a work that is not taken out of its queues."""
        for key in work.keys:
            queue = self._queues[key]
            place = queue.works.index(work)
            if place == queue.taken and place + 1 < len(queue.works):
                queue.works[place + 1].behind -= 1
            del queue.works[place]

    def _offer_heads(self, batch: list[Work]) -> None:
        for key in {key for work in batch for key in work.keys}:
            queue = self._queues[key]
            if not queue.works:
                del self._queues[key]
            elif queue.taken == 0:
                self._offer(queue.works[0])

    def _offer(self, work: Work) -> None:
        if self._is_ready(work):
            heapq.heappush(self._ready, work)

    def _is_ready(self, work: Work) -> bool:
        kept = work.behind or work.taken or work.aside or work.resting or work.gone
        return not kept and all(self._queues[key].taken == 0 for key in work.keys)
