"""Encode items as groups, apply them to the state of the log, and append them.

In: the items of one group of the group writer, in order. Out: the LSN of each, written but not
synced. The group writer calls one function at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from tallystick.errors import LogPoisonedError, LogWriteError
from tallystick.storage.scheduling import threading
from tallystick.systems.tally.format.bodies import Ending, encode_ending
from tallystick.systems.tally.format.columns import (
    Fields,
    GroupPayload,
    Row,
    UnplacedRecord,
    encode_plain,
    encode_records,
)
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.appender import Appender, LogEnd
from tallystick.systems.tally.live.items import (
    PAIR_BYTES,
    RECORD_BYTES,
    Action,
    Bundle,
    Columnar,
    CommittedRows,
    Item,
    UnplacedEnding,
    UnplacedEntry,
    UnplacedMarks,
    encode_committed,
    encode_one_committed,
    needs_transaction,
    rows_of,
    size_of,
    split_into_groups,
)
from tallystick.systems.tally.read.state import LogState

_PERSISTING, _PERSISTED = Code.PERSISTING.value, Code.PERSISTED.value
_DECISIONS: Final = frozenset({Code.DECISION.value, Code.FINISH.value})
_PLAIN = {bytes}


class GroupEncoder:
    """Writes the groups of the log at ``path``.

    No group has a payload of more than ``capacity`` bytes; ``lock`` guards ``state``.
    """

    def __init__(
        self, appender: Appender, state: LogState, lock: threading.Lock, capacity: int, path: str
    ) -> None:
        self._appender = appender
        self._state = state
        self._lock = lock
        self._capacity = capacity
        self._path = path
        self._put = appender.write_group
        appender.at.plain_lsns = state.plain_lsns
        appender.at.encoders = {CommittedRows: self._encode_alone}

    def write(self, items: list[Item]) -> Sequence[int]:
        """Write a group, or several if the items do not fit in one; return the LSN of each.

        Raises:
            LogWriteError: nothing was written.
            LogPoisonedError: a part was written.
        """
        alone = len(items) == 1
        if type(items[0]) is bytes and (alone or set(map(type, items)) == _PLAIN):
            payload = encode_plain(Code.APPEND, cast(list[bytes], items))
            if payload.size <= self._capacity:
                first = self._plain(payload, len(items))
                return range(first, first + len(items))
        before = self._appender.at.next_lsn
        try:
            of_one_kind = _OF_ONE_KIND.get(type(items[0]))
            if of_one_kind is not None and (alone or len(set(map(type, items))) == 1):
                lsns = of_one_kind(self, items)
                if lsns is not None:
                    return lsns
            return self._write_groups(items)
        except LogWriteError as error:
            # The items can only be refused as a whole, and only if none belongs to a transaction:
            # a later commit would not know of an element that was refused.
            if self._appender.at.next_lsn == before and not any(map(needs_transaction, items)):
                raise
            raise LogPoisonedError(
                f"no space for a part of what belongs together: {error.message}",
                file=self._path,
                advice="Free space and reopen the log; recovery rolls back what is not whole",
            ) from error

    def write_synced(self) -> Callable[[list[Item]], Sequence[int]] | None:
        """Return what writes as `write` does and syncs too, by the core where it can.

        None without the core, or where the core cannot write this log.
        """
        return None if type(self._appender.at) is LogEnd else self._write_synced

    def _write_synced(self, items: list[Item]) -> Sequence[int]:
        appender = self._appender
        if len(items) == 1 and (lsn := appender.at.write_plain(items[0])) is not None:
            return (lsn,)
        self._put = appender.write_durably
        try:
            return self.write(items)
        finally:
            self._put = appender.write_group

    def write_durably(self, bundles: Sequence[Bundle]) -> None:
        """Write and sync the bundles that fit in a group; call it in an `Action` only."""
        fitting: list[Item] = [one for one in bundles if size_of(one) <= self._capacity]
        for _, group, size in split_into_groups(fitting, self._capacity):
            self._mixed(group, size)
        self._appender.sync()

    def _write_groups(self, items: list[Item]) -> list[int]:
        lsns: list[int] = []
        for kind, group, size in split_into_groups(items, self._capacity):
            if kind is bytes:
                first = self._plain(encode_plain(Code.APPEND, cast(list[bytes], group)), len(group))
                lsns += range(first, first + len(group))
            elif kind is Columnar:
                lsns += [self._plain(*one) for one in cast(list[Columnar], group)]
            elif kind is Action:
                lsns += [self._act(one) for one in cast(list[Action], group)]
            else:
                lsns += self._mixed(group, size)
        return lsns

    def _plain(self, payload: GroupPayload, count: int) -> int:
        """Write plain records; return the LSN of the first one."""
        appender = self._appender
        appender.ensure_space(payload.size)
        appender.now()
        first = self._put(payload, count)
        self._state.apply_plain(appender.at.segment, first + count - 1)
        return first

    def _committed(self, items: list[CommittedRows]) -> Sequence[int] | None:
        """Write whole transactions in one group; None if they do not fit, or one is open."""
        appender, state = self._appender, self._state
        size, opened = 0, state.open
        for item in items:
            size += item.size
            if item.transaction in opened:
                return None
        if size > self._capacity:
            return None
        appender.ensure_space(size)
        appender.now()
        segment = appender.at.segment
        payload, counts = encode_committed(items, segment)
        before = appender.at.next_lsn - 1
        lsns = [before + count for count in counts]
        with self._lock:
            state.apply_committed(segment, lsns[-1] - 1, max([item.transaction for item in items]))
        self._put(payload, counts[-1])
        return lsns

    def _decisions(self, records: list[UnplacedRecord]) -> Sequence[int] | None:
        """Write decisions and their ends in one group; None if they do not fit, or are others."""
        if not {one[0] for one in records} <= _DECISIONS:
            return None
        appender = self._appender
        size = RECORD_BYTES * len(records)
        size += sum([len(one.body) + len(one.gtrid) for one in records])
        if size > self._capacity:
            return None
        appender.ensure_space(size)
        now = appender.now()
        with self._lock:
            self._state.apply_decisions(records, appender.at.segment, now)
        first = self._put(encode_records(records), len(records))
        return range(first, first + len(records))

    def _encode_alone(self, item: CommittedRows) -> tuple[int, int, bytes, bytes] | None:
        """Apply a transaction as `_committed` does; return its group for the core to write.

        None if a part of it was logged before.
        """
        at, state, transaction = self._appender.at, self._state, item.transaction
        if transaction in state.open:
            return None
        encoded = encode_one_committed(item, at.segment)
        with self._lock:
            state.apply_committed(at.segment, at.next_lsn + encoded[0] - 2, transaction)
        return encoded

    def _act(self, action: Action) -> int:
        self._appender.sync()
        action.run()
        return self._appender.at.next_lsn - 1

    def _mixed(self, items: Sequence[Item], size: int) -> list[int]:
        appender, state = self._appender, self._state
        appender.ensure_space(size + self._pairs_size(items))
        now, segment, first = appender.now(), appender.at.segment, appender.at.next_lsn
        records: list[Fields] = []
        lsns = []
        with self._lock:
            for item in items:
                if isinstance(item, UnplacedEntry):
                    number, body, targets = item
                    state.apply_entry(number, segment, now, body, targets)
                    records.append((_PERSISTING, body, None, number, 0, b""))
                elif isinstance(item, UnplacedMarks):
                    numbers, body, held = item
                    state.apply_marks(numbers, held)
                    records += [(_PERSISTED, body, None, number, 0, b"") for number in numbers]
                else:
                    records += self._apply(item, first + len(records), segment, now)
                lsns.append(first + len(records) - 1)
        self._put(encode_records(records), len(records))
        return lsns

    def _apply(self, item: Item, lsn: int, segment: int, now: int) -> list[UnplacedRecord]:
        """Apply an item whose first record is at this place to the state; return its records."""
        state = self._state
        ending = item if isinstance(item, UnplacedEnding) else None
        records = [] if ending else list(_records(item))
        for place, record in enumerate(records, lsn):
            state.apply(Row(place, segment, now, record))
        if isinstance(item, CommittedRows):
            ending = UnplacedEnding(Code.COMMIT, item.transaction)
        if ending:
            body = state.ending_of(ending.transaction, ending.xid, ending.extra)
            records.append(_ending_record(ending, body))
            state.apply_ending(Row(lsn + len(records) - 1, segment, now, records[-1]), body)
        return records

    def _pairs_size(self, items: Sequence[Item]) -> int:
        """Return the bytes of the pairs of every ending: each may get one segment more."""
        opened = self._state.open
        endings = [
            opened.get(item.transaction)
            for item in items
            if type(item) is UnplacedEnding or type(item) is CommittedRows
        ]
        return PAIR_BYTES * sum([2 + (len(one.counts) if one else 0) for one in endings])


def _records(item: Item) -> Sequence[UnplacedRecord]:
    """Return the records of an item in order, without its commit record."""
    if isinstance(item, CommittedRows):
        return tuple(rows_of(item))
    if isinstance(item, Bundle):
        return item.records
    if isinstance(item, UnplacedRecord):
        return (item,)
    assert isinstance(item, bytes), "actions and columns are written by themselves"
    return (UnplacedRecord(Code.APPEND, item),)


def _ending_record(item: UnplacedEnding, ending: Ending) -> UnplacedRecord:
    gtrid = item.xid.gtrid if item.xid else b""
    return UnplacedRecord(item.code, encode_ending(ending), item.transaction, gtrid=gtrid)


_OF_ONE_KIND: Final[dict[type, Callable[[GroupEncoder, Any], Sequence[int] | None]]] = {
    CommittedRows: GroupEncoder._committed,
    UnplacedRecord: GroupEncoder._decisions,
}
"""Writes a group of items of one type; it returns None where it cannot."""
