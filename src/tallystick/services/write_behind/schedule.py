"""Which transactions a target may get next: the order of each key is kept, nothing else is.

In: entries in the order of their numbers, and what became of the batches handed out. Out:
batches. Two transactions that touch the same key (of the same collection) are never in two
batches at once, nor out of order; within a batch they stand in order.

Each key has a queue. Works stay in their queues until they are done; those in a batch are
*taken*, always the first ones of a queue and by one batch only. A work may be taken when all
that stand before it in its queues are taken by the batch that takes it. Not for several
threads at once.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from tallystick.services.roles import PersistEntry

Key = tuple[str, bytes]
_EVERYTHING: frozenset[Key] = frozenset({("", b"")})


@dataclass(slots=True, eq=False)
class Work:
    """One transaction on its way to one target, with its operations for that target."""

    entry: PersistEntry
    keys: frozenset[Key]
    behind: int = 0
    """Queues in which a work that is not taken stands before it."""
    attempts: int = 0
    error: str = ""
    alone: bool = False
    """To be tried in a batch of its own."""
    aside: bool = False
    """Set aside: it and its keys wait for an operator."""
    resting: bool = False
    """Waits out a delay."""
    taken: bool = False
    gone: bool = False
    """Done or discarded."""

    @property
    def number(self) -> int:
        return self.entry.number

    def __lt__(self, other: Work) -> bool:
        return self.entry.number < other.entry.number


@dataclass(slots=True)
class _Queue:
    works: deque[Work] = field(default_factory=deque)
    taken: int = 0


@dataclass(slots=True)
class Schedule:
    """The transactions that wait for one target. ``strict`` keeps the order of all of them."""

    strict: bool = False
    waiting: dict[int, Work] = field(default_factory=dict)
    """Everything that the target does not hold yet, by ascending number."""
    _queues: dict[Key, _Queue] = field(default_factory=dict)
    _ready: list[Work] = field(default_factory=list)
    _resting: list[tuple[float, Work]] = field(default_factory=list)

    def add(self, entry: PersistEntry) -> None:
        """One more, with a greater number than all before it."""
        keys = _EVERYTHING if self.strict else keys_of(entry)
        work = self.waiting[entry.number] = Work(entry, keys)
        for key in keys:
            queue = self._queues.setdefault(key, _Queue())
            work.behind += len(queue.works) > queue.taken
            queue.works.append(work)
        self._offer(work)

    def take(self, count_max: int, now: float) -> list[Work]:
        """The next batch, in the order of numbers; empty if nothing is ready at ``now``."""
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

    def has_ready(self) -> bool:
        """True if a batch could be taken, or soon after a rest."""
        return bool(self._resting) or any(map(self._is_ready, self._ready))

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

    def put_back(self, batch: list[Work]) -> None:
        """The target does not hold the batch; its works may be taken again."""
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

    def rest(self, work: Work, until: float) -> None:
        """Keep a work that is not taken back for a while."""
        work.resting = True
        heapq.heappush(self._resting, (until, work))

    def set_aside(self, work: Work) -> None:
        """Keep a work back until `retry` or `discard`; its keys wait with it."""
        work.aside = True

    def retry(self, number: int) -> bool:
        """Try a work that was set aside anew; False if there is none."""
        work = self.waiting.get(number)
        if work is None or not work.aside:
            return False
        work.aside, work.attempts = False, 0
        self._offer(work)
        return True

    def discard(self, number: int) -> None:
        """Forget a work; one that is out in a batch may still be applied."""
        work = self.waiting.pop(number, None)
        if work is None:
            return
        work.gone = True
        if not work.taken:
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


def keys_of(entry: PersistEntry) -> frozenset[Key]:
    """The keys that the entry's operations touch."""
    return frozenset((one.collection, one.key) for one in entry.operations)
