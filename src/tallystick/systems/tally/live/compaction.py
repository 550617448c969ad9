"""Compact a log: write live records of old segments again, so that the segments become free.

In: an open log. Out: the same live records in fewer segments. It is due by JBoss's rule: live bytes
below a share of the size of the segments, and a minimum of segments.

All live records of an id are copied in one group, as `Code.MOVED_ADD` and `Code.MOVED_UPDATE`,
which replace all earlier records of the id at replay. Bodies are read while writers go on; an id
that changed meanwhile is left for the next compaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tallystick.errors import LogUnreadableError
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import Action, Bundle
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.read_back import live_rows
from tallystick.systems.tally.read.state import Element

LIVE_SHARE: Final = 0.3
"""Share of live bytes below which a log is compacted."""
SEGMENTS_MIN: Final = 10
"""Full segments that a log has at least when it is compacted."""
_CHUNK_BYTES: Final = 1 << 20
_UPDATES = (Code.UPDATE, Code.MOVED_UPDATE)

_Elements = tuple[Element, ...]


def compaction_due(log: TallyLog) -> bool:
    """Return True if little of the full segments is live, and they are many enough to matter."""
    with log.state() as state:
        live = state.live_bytes
    segments = log.last_segment - log.first_segment
    return segments >= SEGMENTS_MIN and live < LIVE_SHARE * segments * log.segment_size


def compact(log: TallyLog) -> list[int]:
    """Move every live record to the current segment; return the numbers of freed segments.

    Nothing is lost if it is interrupted: each id is moved by one group.
    """
    if log.last_segment == log.first_segment:
        return []
    # So that everything old lies in segments that can become free.
    log.roll()
    before = log.last_segment
    with log.state() as state:
        old = {
            key: elements
            for key, elements in state.live.items()
            if any(one.segment < before for one in elements)
        }
    # Bodies are read from the old segments while a checkpoint may give them up.
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
    while True:
        wanted = {one.lsn for elements in chunk.values() for one in elements}
        try:
            records = {row.lsn: row.record for row in live_rows(log, wanted)}
            break
        except LogUnreadableError:
            # Some may have changed since, and the segments in which they were been given up.
            before = chunk
            with log.state() as state:
                chunk = {key: one for key, one in before.items() if state.live.get(key) == one}
            if chunk == before:
                raise
    bundles = {
        key: Bundle(tuple(_copies([records[one.lsn] for one in elements])))
        for key, elements in chunk.items()
    }

    def act() -> None:
        # Only ids that have not changed since they were read: no other write happens meanwhile.
        still = [bundle for key, bundle in bundles.items() if log.elements_of(key) == chunk[key]]
        log.write_now(still)

    log.submit(Action(act)).wait()


def _copies(records: list[UnplacedRecord]) -> Iterator[UnplacedRecord]:
    """Yield the records of one id; the first one replaces all earlier records at replay."""
    if records[0].code in _UPDATES:
        # An update without its add: nothing else would take the earlier records of the id away.
        yield UnplacedRecord(Code.DELETE, key=records[0].key)
    for one in records:
        code = Code.MOVED_UPDATE if one.code in _UPDATES else Code.MOVED_ADD
        yield UnplacedRecord(code, one.body, None, one.key, one.user_type)
