"""Encode items as groups, apply them to the state of the log, and append them.

In: the items of one group of the group writer, in order. Out: the LSN of each, written but not
synced. The group writer calls one function at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, cast

from tallystick.errors import LogPoisonedError, LogWriteError
from tallystick.storage.group.core import CORE
from tallystick.storage.local import LocalFile
from tallystick.systems.tally.format.bodies import Ending, encode_ending
from tallystick.systems.tally.format.columns import (
    GroupPayload,
    Row,
    UnplacedRecord,
    encode_plain,
    encode_records,
)
from tallystick.systems.tally.format.index import ENTRY_SIZE
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.appender import Appender
from tallystick.systems.tally.live.items import (
    PAIR_BYTES,
    Action,
    Bundle,
    Columnar,
    Item,
    UnplacedEnding,
    needs_transaction,
    size_of,
    split_into_groups,
)
from tallystick.systems.tally.read.state import LogState

_PLAIN = {bytes}
_REAL_FILE: Final = (LocalFile, LocalFile.pwrite, LocalFile.datasync)
"""The compiled core writes in place of these two alone: not of a subclass, nor of other functions
that took their place."""


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
        before = self._appender.next_lsn
        try:
            return self._write_groups(items)
        except LogWriteError as error:
            # The items can only be refused as a whole, and only if none belongs to a transaction:
            # a later commit would not know of an element that was refused.
            if self._appender.next_lsn == before and not any(map(needs_transaction, items)):
                raise
            raise LogPoisonedError(
                f"no room for a part of what belongs together: {error.message}",
                file=self._path,
                advice="Make room and reopen the log; recovery rolls back what is not whole",
            ) from error

    def through(self) -> Callable[[Item], int | None] | None:
        """Return what writes and syncs one plain record in the compiled core, if there is one."""
        if CORE is None or not self._appender.stores_plain:
            return None
        control = self._appender.control
        plain: Callable[[Item], int | None] = CORE.Plain(
            self._appender, self._state.plain_lsns, *_REAL_FILE, control.sector_size,
            control.segment_size, ENTRY_SIZE, control.shard, control.tag,
        )  # fmt: skip
        return plain

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
        first = appender.write_group(payload, count)
        self._state.apply_plain(appender.segment, first + count - 1)
        return first

    def _act(self, action: Action) -> int:
        self._appender.sync()
        action.run()
        return self._appender.next_lsn - 1

    def _mixed(self, items: Sequence[Item], size: int) -> list[int]:
        appender, state = self._appender, self._state
        appender.ensure_space(size + self._pairs_size(items))
        now, segment, lsn = appender.now(), appender.segment, appender.next_lsn
        records: list[UnplacedRecord] = []
        lsns = []
        with self._lock:
            for item in items:
                if type(item) is UnplacedEnding:
                    ending = state.ending_of(item.transaction, item.xid, item.extra)
                    record = _ending_record(item, ending)
                    records.append(record)
                    state.apply_ending(Row(lsn, segment, now, record), ending)
                    lsn += 1
                else:
                    for record in _records(item):
                        records.append(record)
                        state.apply(Row(lsn, segment, now, record))
                        lsn += 1
                lsns.append(lsn - 1)
        appender.write_group(encode_records(records), len(records))
        return lsns

    def _pairs_size(self, items: Sequence[Item]) -> int:
        """Return the bytes of the pairs of every ending: each may get one segment more."""
        opened = self._state.open
        endings = [opened.get(item.transaction) for item in items if type(item) is UnplacedEnding]
        return PAIR_BYTES * sum([2 + (len(one.counts) if one else 0) for one in endings])


def _records(item: Item) -> Sequence[UnplacedRecord]:
    """Return the records of an item that is no ending, in order."""
    if isinstance(item, Bundle):
        return item.records
    if isinstance(item, UnplacedRecord):
        return (item,)
    assert isinstance(item, bytes), "actions and columns are written by themselves"
    return (UnplacedRecord(Code.APPEND, item),)


def _ending_record(item: UnplacedEnding, ending: Ending) -> UnplacedRecord:
    gtrid = item.xid.gtrid if item.xid else b""
    return UnplacedRecord(item.code, encode_ending(ending), item.transaction, gtrid=gtrid)
