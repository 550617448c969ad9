"""A compaction, or a file, that a crash left unfinished: what a load makes of it is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.records import Answer
from tallystick.systems.jboss.format.compaction_control import Control, encode_control
from tallystick.systems.jboss.format.layout import CONTROL_FILE, SHAPES
from tests.systems.jboss.build import add, delete, image, read

NAME = "activemq-data-{}.amq"
OLD = (NAME.format(1), NAME.format(2))
NEW = NAME.format(4) + ".cmp"
SIZE = 107
"""Bytes of a file: a header and three records."""
ORDERS = encode_control(SHAPES["g3"], Control(OLD, (NEW,)))


def compacting(folder: Path) -> None:
    """Files 1 and 2 are compacted to one with the id 1, named 4; 3 is current, 5 waits."""
    spent = [delete(1), delete(2), add(4), delete(4)]
    files = {1: [add(1), add(2), add(3)], 2: spent, 3: [add(5)], 5: []}
    for number, items in files.items():
        (folder / NAME.format(number)).write_bytes(image("g3", number, items, SIZE, b"\0"))
    (folder / NEW).write_bytes(image("g3", 1, [add(3)], SIZE, b"\0"))


def created(folder: Path) -> None:
    (folder / NEW).unlink()
    (folder / (NAME.format(6) + ".tmp")).write_bytes(image("g3", 6, [], SIZE, b"\0"))


def renamed(folder: Path) -> None:
    (folder / NEW).rename(folder / (NAME.format(6) + ".tmp"))


def ordered(folder: Path) -> None:
    (folder / CONTROL_FILE).write_bytes(ORDERS)


def half_ordered(folder: Path) -> None:
    (folder / CONTROL_FILE).write_bytes(ORDERS[:40])


def carried_out(folder: Path) -> None:
    ordered(folder)
    for name in OLD:
        (folder / name).unlink()


def renamed_too(folder: Path) -> None:
    carried_out(folder)
    (folder / NEW).rename(folder / NAME.format(4))


def without_orders(folder: Path) -> None:
    carried_out(folder)
    (folder / CONTROL_FILE).unlink()


def damaged_orders(folder: Path) -> None:
    carried_out(folder)
    half_ordered(folder)


def nothing_to_order(folder: Path) -> None:
    half_ordered(folder)
    (folder / NEW).unlink()


def without_the_new_file(folder: Path) -> None:
    carried_out(folder)
    (folder / NEW).unlink()


def unwritten(folder: Path) -> None:
    (folder / NEW).write_bytes(bytes(SIZE))


def copied(folder: Path) -> None:
    """The new files are there, and no orders."""


@pytest.mark.parametrize(
    "left", [copied, unwritten, created, half_ordered, ordered, carried_out, renamed_too]
)
def test_a_load_finds_all_records_whenever_a_crash_came(
    left: Callable[[Path], None], tmp_path: Path
) -> None:
    compacting(tmp_path)
    left(tmp_path)
    judgement = read(tmp_path).verdict().judgement
    assert (judgement.answer, judgement.reason) == (Answer.SAFE, "next-file"), judgement.text


@pytest.mark.parametrize(
    "left", [renamed, without_orders, damaged_orders, nothing_to_order, without_the_new_file]
)
def test_what_no_crash_leaves_of_a_compaction_is_not_safe(
    left: Callable[[Path], None], tmp_path: Path
) -> None:
    compacting(tmp_path)
    left(tmp_path)
    assert read(tmp_path).verdict().judgement.reason == "compaction-pending"
