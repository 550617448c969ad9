"""The schedule of one target: batches that keep the order of each key, and no other order.

In: entries in the order of their numbers, and the outcome of each batch. Out: batches. Two
transactions that touch the same key (of the same collection) are never in two batches at once, nor
out of order; within a batch they are in order.

Each key has a queue. Transactions stay in their queues until they are done; those in a batch are
*taken*: always the first ones of a queue, and by one batch only. A transaction may be taken when
all that are before it in its queues are taken by the same batch. A transaction that is set aside
makes those after it in its queues *stuck*, and those after these.

While one batch at a time is enough (``single``) and nothing has failed, no queue is needed, nor a
`QueuedTransaction`: entries wait in an inbox and leave it in the order of their numbers. Not safe
for threads.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tallystick.roles import PersistEntry

Key = tuple[str, bytes]
ALL_KEYS: frozenset[Key] = frozenset({("", b"")})


@dataclass(eq=False, slots=True)
class QueuedTransaction:
    """One transaction in the queues of one target, with its operations for that target."""

    entry: PersistEntry
    keys: frozenset[Key] = field(default=frozenset(), init=False)
    """The keys of its queues; empty while it is in none."""
    blocked: int = field(default=0, init=False)
    """Number of queues in which a transaction that is not taken is before it."""
    attempts: int = field(default=0, init=False)
    error: str = field(default="", init=False)
    alone: bool = field(default=False, init=False)
    """It gets a batch of its own."""
    aside: bool = field(default=False, init=False)
    """Set aside: it and its keys wait for an operator."""
    stuck: bool = field(default=False, init=False)
    """It is set aside, or is after one that is, in some queue."""
    delayed: bool = field(default=False, init=False)
    """It waits for a delay to end."""
    taken: bool = field(default=False, init=False)
    """It is in a batch."""
    gone: bool = field(default=False, init=False)
    """Done or discarded."""

    @property
    def number(self) -> int:
        """The number of its entry."""
        return self.entry.number

    def __lt__(self, other: QueuedTransaction) -> bool:
        return self.entry.number < other.entry.number


@dataclass(slots=True)
class KeyQueue:
    """The transactions on one key, in order; the first ``taken`` of them are in a batch."""

    transactions: deque[QueuedTransaction] = field(default_factory=deque)
    taken: int = 0


def keys_of(entry: PersistEntry) -> frozenset[Key]:
    """Return the keys that the entry's operations touch."""
    return frozenset((one.collection, one.key) for one in entry.operations)


@dataclass(slots=True)
class Schedule:
    """The transactions that wait for one target. ``strict`` keeps the order of all of them."""

    strict: bool = False
    single: bool = False
    waiting: dict[int, QueuedTransaction] = field(default_factory=dict)
    """Transactions in queues, by ascending number."""
    newly_stuck: list[int] = field(default_factory=list)
    """Numbers that became stuck; the reader clears it."""
    _queued: bool = field(init=False)
    """Transactions are in queues."""
    _inbox: deque[PersistEntry] = field(default_factory=deque)
    _discarded: set[int] = field(default_factory=set)
    """Discarded numbers that may be in the inbox, or in the batch of it."""
    _taken: dict[int, QueuedTransaction] = field(default_factory=dict)
    """Transactions of the queues that are in a batch."""
    _queues: dict[Key, KeyQueue] = field(default_factory=dict)
    _ready: list[QueuedTransaction] = field(default_factory=list)
    _delayed: list[tuple[float, QueuedTransaction]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._queued = not self.single

    def add(self, entries: Iterable[PersistEntry]) -> None:
        """Add entries with greater numbers than all before."""
        self._inbox.extend(entries)
        if self._queued:
            self.use_queues()

    def take(self, count_max: int, now: float) -> list[PersistEntry]:
        """Return the next batch, in the order of numbers; empty if none is ready at ``now``."""
        if not self._queued:
            return self._take_first(count_max)
        while self._delayed and self._delayed[0][0] <= now:
            due = heapq.heappop(self._delayed)[1]
            due.delayed = False
            self._offer(due)
        batch: list[QueuedTransaction] = []
        keys: set[Key] = set()
        joining: list[QueuedTransaction] = []
        while len(batch) < count_max:
            transaction = self._next(joining, first=not batch)
            if transaction is None:
                break
            batch.append(transaction)
            keys |= transaction.keys
            joined = self._take(transaction)
            for follower in joined:
                if self._may_join(follower, keys):
                    heapq.heappush(joining, follower)
            if transaction.alone:
                break
        return [one.entry for one in sorted(batch)]

    def _take_first(self, count_max: int) -> list[PersistEntry]:
        batch: list[PersistEntry] = []
        inbox, discarded = self._inbox, self._discarded
        while inbox and len(batch) < count_max:
            entry = inbox.popleft()
            if entry.number not in discarded:
                batch.append(entry)
        return batch

    def _enqueue(self, entry: PersistEntry) -> None:
        """Append a transaction to the queues of its keys."""
        transaction = self.waiting[entry.number] = QueuedTransaction(entry)
        transaction.keys = ALL_KEYS if self.strict else keys_of(transaction.entry)
        for key in transaction.keys:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = KeyQueue()
            elif queue.transactions[-1].stuck:
                transaction.stuck = True
            transaction.blocked += len(queue.transactions) > queue.taken
            queue.transactions.append(transaction)
        if transaction.stuck:
            self.newly_stuck.append(transaction.number)
        self._offer(transaction)

    def has_ready(self) -> bool:
        """Return True if a batch can be taken, or soon, after a delay."""
        return bool(self._inbox or self._delayed) or any(map(self._is_ready, self._ready))

    def next_delay_end(self) -> float | None:
        """Return when the next delay ends, None if there is none."""
        return self._delayed[0][0] if self._delayed else None

    def done(self, batch: list[PersistEntry]) -> None:
        """Remove a batch that the target has applied, or the first ones of it."""
        if not self._queued:
            if self._discarded:
                self._discarded = {one for one in self._discarded if one > batch[-1].number}
            return
        transactions = [self._taken.pop(one.number) for one in batch]
        for transaction in transactions:
            transaction.gone = True
            self.waiting.pop(transaction.number, None)
            for key in transaction.keys:
                queue = self._queues[key]
                queue.transactions.remove(transaction)  # near the front: the batch took them
                queue.taken -= 1
        self._offer_heads(transactions)
        if self.single and not self.waiting and not self._taken:
            self._queued = False

    def put_back(self, batch: list[PersistEntry]) -> None:
        """Return a batch that the target has not applied, or a part; it may be taken again."""
        if not self._queued:
            self._inbox.extendleft(reversed(batch))
            return
        transactions = [self._taken.pop(one.number) for one in batch]
        for transaction in reversed(transactions):
            transaction.taken = False
            for key in transaction.keys:
                queue = self._queues[key]
                if queue.taken < len(queue.transactions):
                    queue.transactions[queue.taken].blocked += 1
                queue.taken -= 1
        for transaction in [one for one in transactions if one.gone]:
            self._remove(transaction)
        self._offer_heads(transactions)

    def use_queues(self) -> None:
        """Keep queues until they are empty: transactions no longer leave in one order."""
        self._queued = True
        while self._inbox:
            entry = self._inbox.popleft()
            if entry.number not in self._discarded:
                self._enqueue(entry)
        self._discarded.clear()

    def delay(self, transaction: QueuedTransaction, until: float) -> None:
        """Delay a transaction that is not taken."""
        transaction.delayed = True
        heapq.heappush(self._delayed, (until, transaction))

    def set_aside(self, transaction: QueuedTransaction) -> None:
        """Hold a transaction until `retry` or `discard`; its keys wait too."""
        transaction.aside = True
        self._stick(transaction)

    def retry(self, number: int) -> bool:
        """Offer a transaction that was set aside again; return False if there is none."""
        transaction = self.waiting.get(number)
        if transaction is None or not transaction.aside:
            return False
        transaction.aside, transaction.attempts = False, 0
        self._offer(transaction)
        return True

    def find_stuck(self) -> list[int]:
        """Recompute which transactions are stuck; return their numbers."""
        for transaction in self.waiting.values():
            transaction.stuck = False
        for transaction in [one for one in self.waiting.values() if one.aside]:
            self._stick(transaction)
        self.newly_stuck.clear()
        return [transaction.number for transaction in self.waiting.values() if transaction.stuck]

    def _stick(self, transaction: QueuedTransaction) -> None:
        if not transaction.stuck:
            transaction.stuck = True
            self.newly_stuck.append(transaction.number)
            self._spread(transaction.keys)

    def _spread(self, keys: Iterable[Key]) -> None:
        """Mark the transactions after a stuck one, in all of its queues, as stuck."""
        unchecked = set(keys)
        while unchecked:
            after_stuck = False
            for transaction in self._queues[unchecked.pop()].transactions:
                if after_stuck and not transaction.stuck:
                    transaction.stuck = True
                    self.newly_stuck.append(transaction.number)
                    unchecked |= transaction.keys
                after_stuck = after_stuck or transaction.stuck

    def discard(self, number: int) -> None:
        """Remove a transaction; if it is in a batch it may still be applied."""
        if not self._queued:
            self._discarded.add(number)
            return
        transaction = self.waiting.pop(number, None)
        if transaction is None:
            return
        transaction.gone = True
        if not transaction.taken:
            self._remove(transaction)
            self._offer_heads([transaction])

    # -- queues ------------------------------------------------------------------------------

    def _next(self, joining: list[QueuedTransaction], *, first: bool) -> QueuedTransaction | None:
        while self._ready and not self._is_ready(self._ready[0]):
            heapq.heappop(self._ready)
        if self._ready and (not joining or self._ready[0] < joining[0]):
            if first or not self._ready[0].alone:
                return heapq.heappop(self._ready)
            return heapq.heappop(joining) if joining else None
        return heapq.heappop(joining) if joining else None

    def _take(self, transaction: QueuedTransaction) -> list[QueuedTransaction]:
        """Mark as taken; return transactions that only taken ones are before now."""
        transaction.taken = True
        self._taken[transaction.number] = transaction
        freed = []
        for key in transaction.keys:
            queue = self._queues[key]
            queue.taken += 1
            if queue.taken < len(queue.transactions):
                follower = queue.transactions[queue.taken]
                follower.blocked -= 1
                if follower.blocked == 0:
                    freed.append(follower)
        return freed

    def _may_join(self, transaction: QueuedTransaction, keys: set[Key]) -> bool:
        if transaction.alone or transaction.aside or transaction.delayed or transaction.gone:
            return False
        return all(key in keys or self._queues[key].taken == 0 for key in transaction.keys)

    def _remove(self, transaction: QueuedTransaction) -> None:
        """Remove a transaction that is not taken from its queues."""
        for key in transaction.keys:
            queue = self._queues[key]
            place = queue.transactions.index(transaction)
            if place == queue.taken and place + 1 < len(queue.transactions):
                queue.transactions[place + 1].blocked -= 1
            del queue.transactions[place]

    def _offer_heads(self, batch: list[QueuedTransaction]) -> None:
        for key in {key for transaction in batch for key in transaction.keys}:
            queue = self._queues[key]
            if not queue.transactions:
                del self._queues[key]
            elif queue.taken == 0:
                self._offer(queue.transactions[0])

    def _offer(self, transaction: QueuedTransaction) -> None:
        if self._is_ready(transaction):
            heapq.heappush(self._ready, transaction)

    def _is_ready(self, transaction: QueuedTransaction) -> bool:
        waits = (
            transaction.blocked
            or transaction.taken
            or transaction.aside
            or transaction.delayed
            or transaction.gone
        )
        return not waits and all(self._queues[key].taken == 0 for key in transaction.keys)
