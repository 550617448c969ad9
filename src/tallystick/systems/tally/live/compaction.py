"""Compaction: live records of old segments are written again, so that the segments can go.

In: an open log. Out: the same live records in fewer segments. JBoss's rule says when: live bytes
below a share of what the segments take, and more than a few segments.

A record is copied with everything that is known of its id, in one group, as `Code.MOVED_ADD` and
`Code.MOVED_UPDATE`: replay then forgets what it knew of the id. Bodies are read without holding
up writers; an id that changed meanwhile is left for the next run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tallystick.systems.tally.format.columns import Draft
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.append_items import Action
from tallystick.systems.tally.live.carry_forward import Bundle
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.read_back import live_rows
from tallystick.systems.tally.read.open_work import Element

LIVE_SHARE: Final = 0.3
SEGMENTS_MIN: Final = 10
_CHUNK_BYTES: Final = 1 << 20
_UPDATES = (Code.UPDATE, Code.MOVED_UPDATE)

_Elements = tuple[Element, ...]


def compaction_due(
    log: TallyLog, *, share: float = LIVE_SHARE, segments_min: int = SEGMENTS_MIN
) -> bool:
    """True if less than ``share`` of at least ``segments_min`` full segments is live."""
    with log.state() as state:
        live = state.live_bytes
    segments = log.last_segment - log.first_segment
    return segments >= segments_min and live < share * segments * log.segment_size


def compact(log: TallyLog) -> list[int]:
    """Move every live record out of the segments before the current one, and free those that
    nothing else needs; returns their numbers.

    Interrupted at any point, nothing is lost: each id is moved by one group.
    """
    if log.last_segment == log.first_segment:
        return []
    log.roll()
    before = log.last_segment
    with log.state() as state:
        old = {
            key: elements
            for key, elements in state.live.items()
            if any(one.segment < before for one in elements)
        }
    with log.hold(log.first_segment):
        for chunk in _chunks(old, min(_CHUNK_BYTES, log.capacity // 2)):
            _move(log, chunk)
    return log.reclaim()


def _chunks(old: dict[int, _Elements], size: int) -> Iterator[dict[int, _Elements]]:
    chunk: dict[int, _Elements] = {}
    total = 0
    for key, elements in old.items():
        own = sum(one.size for one in elements)
        if chunk and total + own > size:
            yield chunk
            chunk, total = {}, 0
        chunk[key] = elements
        total += own
    if chunk:
        yield chunk


def _move(log: TallyLog, chunk: dict[int, _Elements]) -> None:
    wanted = {one.lsn for elements in chunk.values() for one in elements}
    rows = {row.lsn: row.draft for row in live_rows(log, wanted)}
    bundles = {
        key: Bundle(tuple(_copies([rows[one.lsn] for one in elements])))
        for key, elements in chunk.items()
    }

    def act() -> None:
        # Only ids that are still as they were read: the writer is not running beside us.
        still = [bundle for key, bundle in bundles.items() if log.elements_of(key) == chunk[key]]
        log.write_now(still)

    log.submit(Action(act)).wait()


def _copies(drafts: list[Draft]) -> Iterator[Draft]:
    """The records of one id. The first one makes replay forget what came before."""
    if drafts[0].code in _UPDATES:
        yield Draft(Code.DELETE, key=drafts[0].key)
    for draft in drafts:
        code = Code.MOVED_UPDATE if draft.code in _UPDATES else Code.MOVED_ADD
        yield Draft(code, draft.body, None, draft.key, draft.user_type)
