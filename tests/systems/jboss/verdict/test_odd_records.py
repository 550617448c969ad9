"""Records that no journal appends: the head of one was changed, or it was written over another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.systems.jboss.format.layout import Item
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    delete,
    delete_tx,
    image,
    prepare,
    read,
    rollback,
    write,
)

BRANCH = [add_tx(7, 3), prepare(7, b"xid", 1)]


def answer(folder: Path, items: list[Item], first: int = 1) -> tuple[Answer, str]:
    """The answer about one file with these records and an empty one; ids from ``first`` on."""
    files = {one: image("g3", one, items if one == first else []) for one in (first, first + 1)}
    write(folder, "g3", files)
    judgement = read(folder).verdict().judgement
    return judgement.answer, judgement.reason


@pytest.mark.parametrize(
    ("items", "odd"),
    [
        ([add(1), add(2)], False),
        ([add(1), add(1)], True),
        ([add(1), add_tx(7, 1), commit(7, 1)], True),
        ([add(1), add_tx(7, 1), rollback(7)], False),
        ([add(1), delete(1)], False),
        ([add(1), delete(1), delete(1)], True),
        ([add(1), rollback(1)], True),
        ([*BRANCH, rollback(7)], False),
        ([*BRANCH, delete(7)], True),
        ([add(1), delete(1), delete_tx(7, 1), commit(7, 1)], False),
    ],
)
def test_a_record_that_no_journal_appends_is_not_safe(
    items: list[Item], odd: bool, tmp_path: Path
) -> None:
    expected = (Answer.CANNOT_TELL, "odd-record") if odd else (Answer.SAFE, "next-file")
    assert answer(tmp_path, items) == expected


@pytest.mark.parametrize(
    ("items", "odd"),
    [
        ([add(9), delete(1)], False),
        ([add(9), rollback(7)], False),
        ([add(9), rollback(9)], True),
        ([*BRANCH, delete(7)], True),
    ],
)
def test_the_end_of_what_a_file_held_that_is_gone_is_not_odd(
    items: list[Item], odd: bool, tmp_path: Path
) -> None:
    """Unless its number says that one type was changed into the other one."""
    answer(tmp_path, items, first=2)
    (tmp_path / "activemq-data-1.amq").write_bytes(image("g3", 4, []))
    judgement = read(tmp_path).verdict().judgement
    assert judgement.answer is (Answer.CANNOT_TELL if odd else Answer.SAFE)
    assert judgement.reason == ("odd-record" if odd else "next-file")
