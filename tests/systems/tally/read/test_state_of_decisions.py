"""Decisions of one group are applied together as they are one by one."""

from __future__ import annotations

from random import Random

import pytest

from tallystick.systems.tally.format.bodies import encode_decision, encode_names
from tallystick.systems.tally.format.columns import Row, UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.read.state import LogState

NAMES = ("a", "b", "c")


def records(random: Random, count: int) -> list[UnplacedRecord]:
    """Make decisions, some of them written again, and ends, of few transactions."""
    made = []
    for _ in range(count):
        names, gtrid = random.sample(NAMES, random.randint(1, 3)), b"g%d" % random.randrange(4)
        code = random.choice([Code.DECISION, Code.FINISH])
        body = encode_names(names, b"committed" if code is Code.FINISH else b"")
        if code is Code.DECISION and random.random() < 0.3:
            body = encode_decision(names, random.randrange(1, 50))
        made.append(UnplacedRecord(code, body, gtrid=gtrid))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_a_group_of_decisions_leaves_the_state_that_its_records_leave(seed: int) -> None:
    random, together, one_by_one = Random(seed), LogState(), LogState()
    lsn = 0
    for segment in range(1, 8):
        group, time_us = records(random, random.randint(1, 6)), random.randrange(1, 100)
        together.apply_decisions(group, segment, time_us)
        for record in group:
            lsn += 1
            one_by_one.apply(Row(lsn, segment, time_us, record))
        assert together.decisions == one_by_one.decisions
        assert together.needed_from() == one_by_one.needed_from()


def test_an_end_takes_its_resources_alone_out_of_a_decision() -> None:
    state = LogState()
    decision = UnplacedRecord(Code.DECISION, encode_names(NAMES), gtrid=b"g")
    state.apply_decisions([decision], 1, 7)
    for done, left in (("a", {"b", "c"}), ("x", {"b", "c"}), ("b", {"c"})):
        end = UnplacedRecord(Code.FINISH, encode_names((done,), b"committed"), gtrid=b"g")
        state.apply_decisions([end], 1, 8)
        assert state.decisions[b"g"].resources == left
    end = UnplacedRecord(Code.FINISH, encode_names(("c",), b"committed"), gtrid=b"g")
    state.apply_decisions([end], 1, 9)
    assert state.decisions == {}
