"""A prepare is acknowledged, so one whose count is wrong is damage; some ends of it stop the load.

What the loaders do was seen with HornetQ 2.4.7 and Artemis 2.40; tests/interop/jboss repeats it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.systems.jboss.engine.loader import NOTHING_PLACED
from tallystick.systems.jboss.format.layout import Item
from tests.systems.jboss.build import add_tx, commit, image, prepare, read, rollback, write

WRONG, RIGHT = prepare(5, b"xid", 1), prepare(5, b"xid", 0)
CASES = {
    "alone": ([WRONG], False, True),
    "commit": ([WRONG, commit(5, 0)], True, True),
    "incomplete commit": ([WRONG, commit(5, 1)], False, True),
    "rollback": ([WRONG, rollback(5)], True, True),
    "element after": ([WRONG, add_tx(5, 1), rollback(5)], False, False),
    "right one before": ([RIGHT, WRONG], False, False),
    "right one after": ([WRONG, RIGHT, commit(5, 0)], False, False),
    "elements": ([add_tx(5, 1), prepare(5, b"xid", 2)], False, False),
}
"""Records, and whether Artemis' and HornetQ's loaders give up on them."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["g1d", "g2", "g3-hornetq", "g3-artemis", "hash"])
def test_a_prepare_of_nothing_stops_the_load_at_its_end(
    name: str, case: str, tmp_path: Path
) -> None:
    items, artemis, hornetq = CASES[case]
    shape = name.partition("-")[0]
    write(tmp_path, shape, {1: image(shape, 1, items), 2: image(shape, 2, [])})
    refuses = {"g3-artemis": artemis, "hash": False}.get(name, hornetq)
    verdict = read(tmp_path, generation=name).verdict()
    assert verdict.engine["loaded"] is not refuses
    assert verdict.engine.get("error") == (NOTHING_PLACED if refuses else None)
    assert (verdict.judgement.answer is Answer.REFUSES) is refuses


@pytest.mark.parametrize("items", [[add_tx(5, 1), prepare(5, b"xid", 2)], [WRONG]])
def test_a_prepared_transaction_that_is_thrown_away_is_not_safe(
    items: list[Item], tmp_path: Path
) -> None:
    write(
        tmp_path, "g3", {1: image("g3", 1, items, fill=b"\0"), 2: image("g3", 2, [], 1024, b"\0")}
    )
    found = read(tmp_path).verdict().judgement
    assert (found.answer, found.reason) == (Answer.CANNOT_TELL, "damaged")
