"""Transactions by state, of which only the open ones and the latest others are kept."""

from __future__ import annotations

from collections import Counter

import pytest

from tallystick.records import State
from tallystick.systems.tally.format.bodies import encode_names
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.entries import encode_entry
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.runs import transactions
from tallystick.testing import MemoryFileSystem
from tests.systems.tally.build import XID, reading, tiny_log


def test_what_has_ended_is_counted_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "CLOSED_MAX", 3)
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    names = encode_names(["a", "b"])
    for number in range(1, 41):
        gtrid = b"%d" % number
        log.submit(UnplacedRecord(Code.DECISION, names, gtrid=gtrid))
        log.submit(UnplacedRecord(Code.PERSISTING, encode_entry(("a",), "", ()), None, number))
        log.submit(UnplacedRecord(Code.ADD, b"", number, number))
        if number % 10:
            log.submit(UnplacedRecord(Code.FINISH, encode_names(["a"]), gtrid=gtrid))
            log.submit(UnplacedRecord(Code.FINISH, encode_names(["b"]), gtrid=gtrid))
            log.submit(UnplacedRecord(Code.PERSISTED, encode_names(["a"]), None, number))
            log.submit(UnplacedEnding(Code.COMMIT, number)).wait()
        else:
            log.submit(UnplacedEnding(Code.PREPARE, number, XID)).wait()
        if number % 20 == 1:
            log.submit(UnplacedRecord(Code.HEURISTIC, names, gtrid=gtrid)).wait()
    log.close()
    one = reading(fs)
    every = list(one.transactions())
    states = one._judged.states
    assert states.by_state() == Counter(each.state.value for each in every)
    assert states.in_doubt() == [each.key for each in every if each.state is State.PREPARED]
    assert len(list(states._table.kept)) == 3 + 3 * 4 + 2
