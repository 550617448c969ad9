"""Whether the messages of a journal are for the addresses of the queues in which they wait.

In: records of the journal, and the addresses of queues by the bindings. Out: a queue of which no
message is for its address, in words. Brokers give ids to their queues from 1 on, so those
of another broker may have the same ids under other names: it would deliver these messages there.

Copies that a broker makes (diverts, moves, dead letters, expiry) have the address of where they go.
Left out are addresses with wildcards, and its own, by which it passes messages on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from tallystick.records import Kind, Outcome, Record
from tallystick.systems.jboss.format import messages

LOOKED_AT_MAX: Final = 2_000
"""Records that are looked at: a broker holds millions of messages, of few queues."""
_WILDCARDS: Final = frozenset("*#>")
_OWN: Final = "$"


def other_address(records: Iterable[Record], queues: Mapping[int, str]) -> str:
    """Return which queue has only messages for another address, in words; empty if none has.

    Args:
        records: those of the journal, of which the first are looked at, live or not.
        queues: the address of each queue.
    """
    addresses, waiting = dict[int, str](), list[tuple[int, int]]()
    for one in islice(records, LOOKED_AT_MAX):
        number, body = one.record_id or 0, one.body or b""
        user_type = one.attributes.get("user_type")
        if one.outcome is not Outcome.VALID or not isinstance(user_type, int):
            continue
        if user_type in messages.MESSAGES and one.kind is Kind.ADD:
            found = messages.core_message(user_type, body)
            if found is not None and found.address:
                addresses[number] = found.address
        elif user_type == messages.REFERENCE and (queue := messages.queue_id(body)) is not None:
            waiting.append((number, queue))
    fitting, others = set[int](), dict[int, str]()
    for number, queue in waiting:
        if number not in addresses or queue not in queues:
            continue
        address, own = addresses[number], queues[queue]
        if _is_special(own) or own in address or address in own:  # a prefix, or address::queue
            fitting.add(queue)
        else:
            others.setdefault(queue, address)
    for queue, address in others.items():
        if queue not in fitting:
            return f"Queue {queue} is of the address {queues[queue]}, its messages of {address}"
    return ""


def _is_special(address: str) -> bool:
    return not address or address.startswith(_OWN) or not _WILDCARDS.isdisjoint(address)
