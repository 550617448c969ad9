"""Open work written again at the end of the log, so that old segments can go.

In: the state of a log. Out: bundles of drafts that say the same of each open decision, unsettled
heuristic outcome and pending entry as the records in the old segments do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tallystick.systems.tally.format.bodies import encode_decision, encode_names
from tallystick.systems.tally.format.columns import Draft
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.read.state import LogState


class Bundle(NamedTuple):
    """Records that go into one group, or not at all. Its LSN is that of the last one."""

    drafts: tuple[Draft, ...]


def carried(state: LogState, before: int) -> list[Bundle]:
    """One bundle for each piece of open work that is in a segment below ``before``."""
    return [Bundle(tuple(drafts)) for drafts in _work(state, before)]


def _work(state: LogState, before: int) -> Iterator[list[Draft]]:
    for gtrid, decision in state.decisions.items():
        if decision.segment < before:
            body = encode_decision(decision.resources, decision.time_us)
            yield [Draft(Code.DECISION, body, gtrid=gtrid)]
    for gtrid, (segment, names) in state.heuristics.items():
        if segment < before:
            yield [heuristic(gtrid, names)]
    for number, entry in state.pending.items():
        if entry.segment < before:
            drafts = [Draft(Code.PERSISTING, entry.body, key=number)]
            done = set(entry.targets) - entry.remaining
            if done:
                drafts.append(Draft(Code.PERSISTED, encode_names(done), key=number))
            yield drafts


def heuristic(gtrid: bytes, names: frozenset[str]) -> Draft:
    """The record of a heuristic outcome."""
    return Draft(Code.HEURISTIC, encode_names(names, b"heuristic"), gtrid=gtrid)
