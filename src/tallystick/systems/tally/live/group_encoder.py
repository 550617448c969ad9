"""Items become groups: encoded, folded into the state of the log, and appended.

In: the items of one group of the group writer, in order. Out: the LSN of each, written but not
synced. Everything here runs in the turn of the group writer, one call at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

from tallystick.errors import LogPoisonedError, LogWriteError
from tallystick.systems.tally.format.bodies import Ending, encode_ending
from tallystick.systems.tally.format.columns import Draft, Inner, encode_drafts, encode_plain
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.append_items import (
    PAIR_BYTES,
    Action,
    Columnar,
    EndingDraft,
    Item,
    is_element,
    runs,
    size_of,
)
from tallystick.systems.tally.live.appender import Appender
from tallystick.systems.tally.live.carry_forward import Bundle
from tallystick.systems.tally.read.open_work import Row
from tallystick.systems.tally.read.state import LogState

_PLAIN = {bytes}


class Writing:
    """Writes the groups of the log at ``path``, none with more than ``capacity`` bytes of columns
    and bodies. ``lock`` guards ``state``."""

    def __init__(
        self, appender: Appender, state: LogState, lock: threading.Lock, capacity: int, path: str
    ) -> None:
        self._appender = appender
        self._state = state
        self._lock = lock
        self._capacity = capacity
        self._path = path

    def write(self, items: list[Item]) -> Sequence[int]:
        """Write a group; several, if the items do not fit in one."""
        alone = len(items) == 1
        if type(items[0]) is bytes and (alone or set(map(type, items)) == _PLAIN):
            inner = encode_plain(Code.APPEND, cast(list[bytes], items))
            if inner.size <= self._capacity:
                first = self._plain(inner, len(items))
                return range(first, first + len(items))
        before = self._appender.next_lsn
        try:
            return self._write_runs(items)
        except LogWriteError as error:
            # The group can only be refused as a whole, and only if nobody builds on a part of
            # it: an element of a transaction that is not there must not be missed by its commit.
            if self._appender.next_lsn == before and not any(map(is_element, items)):
                raise
            raise LogPoisonedError(
                f"no room for a part of what belongs together: {error.message}",
                file=self._path,
                advice="Make room and reopen the log; recovery rolls back what is not whole",
            ) from error

    def write_durably(self, bundles: Sequence[Bundle]) -> None:
        """Write those bundles that fit; to be called from within an `Action` only."""
        fitting: list[Item] = [one for one in bundles if size_of(one) <= self._capacity]
        for _, run, size in runs(fitting, self._capacity):
            self._mixed(run, size)
        self._appender.sync()

    def _write_runs(self, items: list[Item]) -> list[int]:
        lsns: list[int] = []
        for kind, run, size in runs(items, self._capacity):
            if kind is bytes:
                first = self._plain(encode_plain(Code.APPEND, cast(list[bytes], run)), len(run))
                lsns += range(first, first + len(run))
            elif kind is Columnar:
                lsns += [self._plain(*one) for one in cast(list[Columnar], run)]
            elif kind is Action:
                lsns += [self._act(one) for one in cast(list[Action], run)]
            else:
                lsns += self._mixed(run, size)
        return lsns

    def _plain(self, inner: Inner, records: int) -> int:
        """Write plain records; returns the LSN of the first one."""
        appender = self._appender
        appender.room(inner.size)
        appender.now()
        first = appender.put(inner, records)
        self._state.plain(appender.segment, first + records - 1)
        return first

    def _act(self, action: Action) -> int:
        self._appender.sync()
        action.run()
        return self._appender.next_lsn - 1

    def _mixed(self, items: Sequence[Item], size: int) -> list[int]:
        appender, state = self._appender, self._state
        appender.room(size + self._pairs_size(items))
        now, segment, lsn = appender.now(), appender.segment, appender.next_lsn
        drafts: list[Draft] = []
        lsns = []
        with self._lock:
            for item in items:
                if type(item) is EndingDraft:
                    ending = state.ending_of(item.transaction, item.xid, item.extra)
                    draft = _ending_draft(item, ending)
                    drafts.append(draft)
                    state.end(Row(lsn, segment, now, draft), ending)
                    lsn += 1
                else:
                    for draft in _drafts(item):
                        drafts.append(draft)
                        state.apply(Row(lsn, segment, now, draft))
                        lsn += 1
                lsns.append(lsn - 1)
        appender.put(encode_drafts(drafts), len(drafts))
        return lsns

    def _pairs_size(self, items: Sequence[Item]) -> int:
        """Room for the pairs of every ending: each may have one segment more than now."""
        opened = self._state.open
        endings = [opened.get(item.transaction) for item in items if type(item) is EndingDraft]
        return PAIR_BYTES * sum([2 + (len(one.counts) if one else 0) for one in endings])


def _drafts(item: Item) -> Sequence[Draft]:
    """The records of an item that is no ending, in order."""
    if isinstance(item, Bundle):
        return item.drafts
    if isinstance(item, Draft):
        return (item,)
    assert isinstance(item, bytes), "actions and columns are written by themselves"
    return (Draft(Code.APPEND, item),)


def _ending_draft(item: EndingDraft, ending: Ending) -> Draft:
    gtrid = item.xid.gtrid if item.xid else b""
    return Draft(item.code, encode_ending(ending), item.transaction, gtrid=gtrid)
