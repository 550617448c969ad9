"""Encode items as groups, apply them to the state of the log, and append them.

In: the items of one group of the group writer, in order. Out: the LSN of each, written but not
synced, or why it was refused: then it has changed neither the log nor the state. The group writer
calls one function at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from tallystick.errors import LogWriteError
from tallystick.records import Xid
from tallystick.storage.group.answers import Answer, lsns_of
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
from tallystick.systems.tally.format.kinds import ELEMENTS, Code
from tallystick.systems.tally.live.appender import Appender, LogEnd
from tallystick.systems.tally.live.groups.refusals import Refusals
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
    rows_of,
    size_of,
    split_into_groups,
)
from tallystick.systems.tally.read.state import LogState

_PERSISTING, _PERSISTED = Code.PERSISTING.value, Code.PERSISTED.value
_DECISIONS: Final = frozenset({Code.DECISION.value, Code.FINISH.value})
_PLAIN = {bytes}
_NO_TRANSACTION = {None}


class GroupEncoder:
    """Writes the groups of a log.

    No group has a payload of more than ``capacity`` bytes; ``lock`` guards ``state``.

    Attributes:
        refusals: what was refused, and what is owed.
    """

    def __init__(
        self, appender: Appender, state: LogState, lock: threading.Lock, capacity: int
    ) -> None:
        self._appender = appender
        self._state = state
        self._lock = lock
        self._capacity = capacity
        self.refusals = Refusals(self.write_each)
        self._put = appender.write_group
        appender.at.plain_lsns = state.plain_lsns
        appender.at.encoders = {CommittedRows: self._encode_alone}

    def write(self, items: list[Item]) -> Sequence[int]:
        """Write a group, or several if the items do not fit in one; return the LSN of each.

        The numbers are `Answers` if some items were refused.

        Raises:
            LogWriteError: nothing was written.
        """
        alone = len(items) == 1
        if type(items[0]) is bytes and (alone or set(map(type, items)) == _PLAIN):
            payload = encode_plain(Code.APPEND, cast(list[bytes], items))
            if payload.size <= self._capacity:
                first = self._plain(payload, len(items))
                return range(first, first + len(items))
        if self.refusals.active:
            return lsns_of(self.refusals.write(items))
        of_one_kind = _OF_ONE_KIND.get(type(items[0]))
        if of_one_kind is not None and (alone or len(set(map(type, items))) == 1):
            try:
                lsns = of_one_kind(self, items)
            except LogWriteError as error:
                self.refusals.note(items, [error] * len(items))
                raise
            if lsns is not None:
                return lsns
        answers, refused = self._write_groups(items)
        if not refused:
            return cast(list[int], answers)
        self.refusals.note(items, answers)
        return lsns_of(answers)

    def write_each(self, items: list[Item]) -> Sequence[Answer]:
        """Write items; return the LSN of each, or why it was refused. Nothing of it is owed."""
        return self._write_groups(items)[0]

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
        for _, group, size in split_into_groups(fitting, self._capacity, self._pairs_of):
            self._mixed(group, size)
        self._appender.sync()

    def _write_groups(self, items: list[Item]) -> tuple[Sequence[Answer], bool]:
        """Write items; return the answer for each, and whether any was refused.

        What comes after an item that was refused is refused, too, but for actions.
        """
        answers: list[Answer] = []
        error: LogWriteError | None = None
        refused = False
        for kind, group, size in split_into_groups(items, self._capacity, self._pairs_of):
            try:
                if kind is Action:
                    answers.append(self._act(cast(Action, group[0])))
                elif error is None:
                    answers += self._write_group(kind, group, size)
                else:
                    answers += [error] * len(group)
            except LogWriteError as problem:
                answers += [problem] * len(group)
                error = error if kind is Action else problem
                refused = True
        return answers, refused

    def _write_group(self, kind: type, group: list[Item], size: int) -> Sequence[int]:
        if kind is bytes:
            first = self._plain(encode_plain(Code.APPEND, cast(list[bytes], group)), len(group))
            return range(first, first + len(group))
        if kind is Columnar:
            return (self._plain(*cast(Columnar, group[0])),)
        return self._mixed(group, size)

    def _plain(self, payload: GroupPayload, count: int) -> int:
        """Write plain records; return the LSN of the first one."""
        appender = self._appender
        appender.ensure_space(payload.size)
        appender.now()
        first = self._put(payload, count)
        # Without the lock: it is one store into a mapping that only the writer goes through.
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
        # After space was made, which may begin a new segment: commit records count elements by
        # segment.
        segment = appender.at.segment
        payload, counts = encode_committed(items, segment)
        before = self._put(payload, counts[-1]) - 1
        lsns = [before + count for count in counts]
        with self._lock:
            state.apply_committed(segment, lsns[-1] - 1, max([item.transaction for item in items]))
        return lsns

    def _outside(self, records: list[UnplacedRecord]) -> Sequence[int] | None:
        """Write records of no transaction in one group; None if they do not fit, or one has one."""
        if {one[2] for one in records} != _NO_TRANSACTION:
            return None
        appender = self._appender
        size = RECORD_BYTES * len(records)
        size += sum([len(one.body) + len(one.gtrid) for one in records])
        if size > self._capacity:
            return None
        appender.ensure_space(size)
        now, segment = appender.now(), appender.at.segment
        first = self._put(encode_records(records), len(records))
        state = self._state
        with self._lock:
            if {one[0] for one in records} <= _DECISIONS:
                state.apply_decisions(records, segment, now)
            else:
                for lsn, record in enumerate(records, first):
                    state.apply(Row(lsn, segment, now, record))
        return range(first, first + len(records))

    def _encode_alone(self, item: CommittedRows) -> tuple[int, int, bytes, bytes] | None:
        """Apply a transaction as `_committed` does; return its group for the core to write.

        None if a part of it was logged before, or is owed.
        """
        at, state, transaction = self._appender.at, self._state, item.transaction
        if transaction in state.open or self.refusals.active:
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
        appender.ensure_space(size + sum(map(self._pairs_of, items)))
        now, segment = appender.now(), appender.at.segment
        made = _Records(state, segment)
        for item in items:
            made.add(item)
        first = self._put(encode_records(made.records), len(made.records))
        lsns = [first + end - 1 for end in made.ends]
        place = 0
        with self._lock:
            for item, end in zip(items, made.ends, strict=True):
                if isinstance(item, UnplacedEntry):
                    state.apply_entry(item.number, segment, now, item.body, item.targets)
                elif isinstance(item, UnplacedMarks):
                    state.apply_marks(item.numbers, item.targets)
                else:
                    for one in range(place, end):
                        record = cast(UnplacedRecord, made.records[one])
                        row = Row(first + one, segment, now, record)
                        ending = made.endings.get(one)
                        if ending is None:
                            state.apply(row)
                        else:
                            state.apply_ending(row, ending)
                place = end
        return lsns

    def _pairs_of(self, item: Item) -> int:
        """Return the bytes of the pairs of an ending at most: it may get two segments more."""
        if not isinstance(item, UnplacedEnding | CommittedRows):
            return 0
        one = self._state.open.get(item.transaction)
        return PAIR_BYTES * (2 + (len(one.counts) if one else 0))


class _Records:
    """The records of a group that is being made; the state is only looked at.

    Attributes:
        records: what was added, in order.
        ends: the number of records up to the end of each item.
        endings: the bodies of the prepare and commit records that were made here, by their place.
    """

    def __init__(self, state: LogState, segment: int) -> None:
        self.records: list[Fields] = []
        self.ends: list[int] = []
        self.endings: dict[int, Ending] = {}
        self._opened = state.open
        self._segment = segment
        self._counts: dict[int, dict[int, int]] = {}
        """Elements by segment, of each transaction of which the group has a record."""

    def add(self, item: Item) -> None:
        """Add an item that is no action and not encoded yet."""
        if isinstance(item, UnplacedRecord):
            self._add(item)
        elif isinstance(item, UnplacedEntry):
            self.records.append((_PERSISTING, item.body, None, item.number, 0, b""))
        elif isinstance(item, UnplacedMarks):
            for number in item.numbers:
                self.records.append((_PERSISTED, item.body, None, number, 0, b""))
        elif isinstance(item, UnplacedEnding):
            self._end(item.code, item.transaction, item.xid, item.extra)
        elif isinstance(item, bytes):
            self.records.append(UnplacedRecord(Code.APPEND, item))
        else:
            assert isinstance(item, Bundle | CommittedRows), "the others are written by themselves"
            for record in item.records if isinstance(item, Bundle) else rows_of(item):
                self._add(record)
            if isinstance(item, CommittedRows):
                self._end(Code.COMMIT, item.transaction)
        self.ends.append(len(self.records))

    def _add(self, record: UnplacedRecord) -> None:
        self.records.append(record)
        number = record.transaction
        if number is None:
            return
        if record.code == Code.ROLLBACK:
            self._counts[number] = {}
        elif record.code in ELEMENTS:
            counts = self._of(number)
            counts[self._segment] = counts.get(self._segment, 0) + 1

    def _of(self, number: int) -> dict[int, int]:
        counts = self._counts.get(number)
        if counts is None:
            one = self._opened.get(number)
            counts = self._counts[number] = dict(one.counts) if one else {}
        return counts

    def _end(self, code: int, number: int, xid: Xid | None = None, extra: bytes = b"") -> None:
        ending = Ending(tuple(sorted(self._of(number).items())), xid, extra)
        self.endings[len(self.records)] = ending
        gtrid = xid.gtrid if xid else b""
        self.records.append(UnplacedRecord(code, encode_ending(ending), number, gtrid=gtrid))
        if code == Code.COMMIT:
            self._counts[number] = {}


_OF_ONE_KIND: Final[dict[type, Callable[[GroupEncoder, Any], Sequence[int] | None]]] = {
    CommittedRows: GroupEncoder._committed,
    UnplacedRecord: GroupEncoder._outside,
}
"""Writes a group of items of one type; it returns None where it cannot."""
