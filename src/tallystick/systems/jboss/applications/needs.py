"""What the messages of a journal need beside it.

In: what the journals hold, read when it is asked for (`Known`). Out: `Needs`: queues, files of
large messages, pages, and transactions with messages there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from tallystick.systems.jboss.format import messages
from tallystick.systems.jboss.format.layout import Contents

REFERENCES: Final = frozenset({messages.REFERENCE, messages.ACKNOWLEDGED})
LISTED: Final = frozenset(
    {
        messages.LARGE_MESSAGE,
        messages.PAGE_TRANSACTION,
        *messages.COUNTERS,
        *messages.PAGE_TAKEN,
    }
)
"""User types of what the journal of messages says of parts beside it, but for references."""
UserTypes = Collection[int]
IF_COMMITTED: Final = "whether these transactions are committed"


@dataclass(frozen=True, slots=True)
class Known:
    """What the journals hold, read when it is asked for.

    Attributes:
        listed: the contents of the records of these user types that a load of the journal of
            messages lists.
        waiting: how many messages wait for each queue, and which of some large ones for any.
        in_doubt: the contents of the records that prepared transactions add.
        queues: the queues by id, each with its address, in the bindings of a folder; those that
            were dropped, too.
        dropped: what the bindings of a folder have deleted, by id.
        foreign: what ids and addresses of the journal of messages tell against the bindings of a
            folder with these queues, in words; empty if nothing.
        is_older: whether a start that they note is not one of the journal of messages.
        never_took: whether the journal of messages is all that it ever was, and no message was ever
            taken from a page.
        never_added: of these large messages, those of which the journal of messages surely never
            had a record, and which no queue can have taken from a page.
        finished: queue and page -> the id of the last record by which it has taken all of it, also
            where that was deleted since, as it is after the page.
    """

    listed: Callable[[UserTypes], Iterable[Contents]]
    waiting: Callable[[Set[int]], tuple[Counter[int], Set[int]]]
    in_doubt: Callable[[], Iterable[Contents]]
    queues: Callable[[str], dict[int, str]]
    dropped: Callable[[str], set[int]]
    foreign: Callable[[str, Mapping[int, str]], str]
    is_older: Callable[[str], bool]
    never_took: Callable[[], bool]
    never_added: Callable[[Set[int]], Set[int]]
    finished: Callable[[], dict[tuple[int, int], int]]


@dataclass(slots=True)
class Needs:
    """What the messages of a journal need.

    Attributes:
        waiting: queue -> how many messages it has not acknowledged; none of 0.
        large: large message -> the size that its record says, in bytes; None where it says none.
        wanted: large messages that wait for a queue.
        paged: queue -> how many of its messages are in pages.
        in_doubt: queue -> how many messages wait for it once transactions in doubt are committed.
        large_in_doubt: large messages among these -> the size that the record says, as in `large`.
        transactions: those that have messages in pages -> how often queues have still to take one.
        taken: queue -> the messages that it has taken from pages, as page and place there.
        finished: queue -> the pages of which it has taken all.
        dropped: what the bindings have deleted, queues among it.
    """

    waiting: Counter[int] = field(default_factory=Counter)
    large: dict[int, int | None] = field(default_factory=dict)
    wanted: Set[int] = frozenset()
    in_doubt: Counter[int] = field(default_factory=Counter)
    large_in_doubt: dict[int, int | None] = field(default_factory=dict)
    paged: Counter[int] = field(default_factory=Counter)
    transactions: dict[int, int] = field(default_factory=dict)
    taken: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    finished: dict[int, set[int]] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)


def waiting(references: Iterable[Contents], large: Set[int]) -> tuple[Counter[int], Set[int]]:
    """Return how many messages wait for each queue, and which of the large ones wait for any.

    ``references`` are the contents of records of `REFERENCES`, in their order.
    """
    held: dict[int, set[int]] = {}
    for number, user_type, body in references:
        if (queue := messages.queue_id(body)) is None:
            continue
        if user_type == messages.REFERENCE:
            held.setdefault(queue, set()).add(number)
        elif queue in held:
            held[queue].discard(number)
    counts = Counter({queue: len(numbers) for queue, numbers in held.items() if numbers})
    return counts, {number for numbers in held.values() for number in numbers & large}


def needs_of(known: Known) -> Needs:
    """Return what the messages of a journal need; what bindings tell is not in it."""
    needs = _counted(known.listed(LISTED))
    needs.waiting, needs.wanted = known.waiting(needs.large.keys())
    _add_in_doubt(needs, list(known.in_doubt()))
    return needs


def _counted(listed: Iterable[Contents]) -> Needs:
    found = Needs()
    for number, user_type, body in listed:
        queue = messages.queue_id(body)
        if user_type == messages.LARGE_MESSAGE:
            found.large[number] = messages.large_file(body).size
        elif queue is None:
            continue
        elif user_type == messages.PAGE_TRANSACTION:
            count = messages.counted(messages.PAGE_TRANSACTION, body)
            # The record counts them, and updates of it what was taken.
            left = found.transactions.get(queue)
            found.transactions[queue] = count if left is None else left - count
        elif user_type == messages.MESSAGE_TAKEN:
            found.taken.setdefault(queue, set()).add(messages.taken(body))
        elif user_type == messages.ALL_TAKEN:
            found.finished.setdefault(queue, set()).add(messages.taken(body)[0])
        else:
            found.paged[queue] += messages.counted(user_type, body)
    return found


def _add_in_doubt(needs: Needs, added: list[Contents]) -> None:
    """Add what waits once the transactions in doubt are committed."""
    found = _counted(one for one in added if one[1] in LISTED)
    references = (one for one in added if one[1] in REFERENCES)
    needs.in_doubt, wanted = waiting(references, found.large.keys())
    needs.large_in_doubt = {one: found.large[one] for one in wanted}
    needs.transactions |= found.transactions
