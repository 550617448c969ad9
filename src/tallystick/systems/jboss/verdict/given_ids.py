"""Whether a journal of messages and bindings are those of one broker, by the ids that it gave.

In: the files of the journal, and the records of the bindings. Out: an id that tells that they are
not, in words. One counter gives the ids of records and transactions of both, each once, and none
above the last note in the bindings. Two brokers that were set up alike have given the same ids to
the same queues: where neither of these rules is broken the ids tell nothing.

Source: BatchingIDGenerator of Artemis 2.40 and HornetQ 2.4.7. HornetQ gives the id of a note once
more, and so does a broker that writes records after it has noted its last id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tallystick.systems.jboss.format.layout import LONG_MAX
from tallystick.systems.jboss.format.messages import Notes
from tallystick.systems.jboss.read.file_facts import KnownFile

GIVEN_WHILE_STOPPING_MAX = 16
"""Ids that a broker may give after it has noted its last one."""


class Bound(NamedTuple):
    """What bindings tell of ids: of their records but notes, their transactions, and the notes."""

    ids: frozenset[int]
    notes: Notes


def foreign_id(files: Sequence[KnownFile], bound: Bound, *, each_once: bool) -> str:
    """Return what an id of the journal of messages tells against the bindings; empty if nothing.

    Args:
        files: those of the journal of messages.
        bound: what the bindings tell of ids.
        each_once: whether no note of a start shares its id with a record.
    """
    notes = sorted((number, int.from_bytes(body[:8])) for number, body in bound.notes)
    own = set(bound.ids)
    if each_once:
        own.update(number for number, limit in notes if limit > number)
    ids = sorted(one for one in own if 0 < one < LONG_MAX)
    limits = [*(one + 1 for one in ids), LONG_MAX]
    for one in files:
        *below, highest = one.named_below(limits)
        if notes and highest > notes[-1][1] + GIVEN_WHILE_STOPPING_MAX:
            return f"The journal has the id {highest}, and they end with {notes[-1][1]}"
        for number, found in zip(ids, below, strict=True):
            if found == number:
                return f"The journal has the id {number}, and they have given it to something else"
    return ""
