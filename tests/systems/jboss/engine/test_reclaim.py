"""Which files of a journal the reader calls redundant: section 4.2 of the format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.systems.jboss.engine.reclaim import CURRENT, FREE, HOLDS, NOT_LOADED, PINNED, SPENT
from tallystick.systems.jboss.format.layout import Item
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    delete,
    delete_tx,
    file_name,
    image,
    prepare,
    read,
    rollback,
    update,
    write,
)

SHAPE = "g3"

CASES: dict[str, tuple[list[list[Item]], list[str]]] = {
    "a live record keeps its file": ([[add(1)], [add(2)]], [HOLDS, CURRENT]),
    "a record that a later file deletes keeps none": (
        [[add(1)], [delete(1)], [add(2)]],
        [SPENT, SPENT, CURRENT],
    ),
    "a delete in the last file is not counted yet": (
        [[add(1)], [delete(1)]],
        [HOLDS, CURRENT],
    ),
    "a delete stays as long as what it deletes": (
        [[add(1), add(2)], [delete(1)], [add(3)]],
        [HOLDS, PINNED, CURRENT],
    ),
    "an update keeps its file until the record is deleted": (
        [[add(1)], [update(1)], [delete(1)], [add(2)]],
        [SPENT, SPENT, SPENT, CURRENT],
    ),
    "a live update keeps its file and the file of its add": (
        [[add(1)], [update(1)], [add(2)]],
        [HOLDS, HOLDS, CURRENT],
    ),
    "a prepared transaction keeps its files": (
        [[add_tx(9, 1)], [prepare(9, b"xid")], [add(2)]],
        [HOLDS, HOLDS, CURRENT],
    ),
    "a transaction that never ended keeps none": (
        [[add_tx(9, 1)], [add(2)]],
        [SPENT, CURRENT],
    ),
    "a rolled back transaction keeps none": (
        [[add_tx(9, 1)], [rollback(9)], [add(2)]],
        [SPENT, SPENT, CURRENT],
    ),
    "a commit stays as long as what it made count": (
        [[add_tx(9, 1), commit(9, 1)], [add(2)], [delete(2)], [add(3)]],
        [HOLDS, SPENT, SPENT, CURRENT],
    ),
    "a committed delete frees the file of its record": (
        [[add(1)], [delete_tx(9, 1), commit(9, 1)], [add(2)]],
        [SPENT, SPENT, CURRENT],
    ),
    "a delete by a transaction with a hole frees nothing": (
        [[add(1)], [delete_tx(9, 1), commit(9, 2)], [add(2)]],
        [HOLDS, SPENT, CURRENT],
    ),
    "files without records are free": ([[add(1)], [], [add(2)], []], [HOLDS, FREE, CURRENT, FREE]),
    "a journal without records is free": ([[], []], [FREE, FREE]),
}  # fmt: skip


def redundancy_of(folder: Path) -> list[tuple[bool | None, str]]:
    return [(file.redundant, file.why) for file in read(folder).files()]


def begun(folder: Path, files: list[list[Item]]) -> None:
    write(folder, SHAPE, {n: image(SHAPE, n, items) for n, items in enumerate(files, 1)})


@pytest.mark.parametrize("case", CASES)
def test_files_may_go_when(case: str, tmp_path: Path) -> None:
    files, expected = CASES[case]
    begun(tmp_path, files)
    assert redundancy_of(tmp_path) == [(why in (FREE, SPENT), why) for why in expected]


def test_damaged_record_counts_as_not_deleted(tmp_path: Path) -> None:
    begun(tmp_path, [[add(1), add(2)], [delete(1), delete(2)], [add(3)]])
    assert redundancy_of(tmp_path)[0] == (True, SPENT)
    damaged = tmp_path / file_name(SHAPE, 1)
    raw = bytearray(damaged.read_bytes())
    raw[16 + 7] ^= 0xFF  # the first record's id: whole once
    raw[16 + 6 + 8 + 3] ^= 0x40  # and the length of its body
    damaged.write_bytes(raw)
    assert redundancy_of(tmp_path)[0] == (False, HOLDS)


def test_redundancy_is_unknown_if_the_journal_does_not_load(tmp_path: Path) -> None:
    begun(tmp_path, [[add(1)], [delete(1)], [add(2)]])
    raw = bytearray((tmp_path / file_name(SHAPE, 2)).read_bytes())
    raw[7] = 77  # another user version
    (tmp_path / file_name(SHAPE, 2)).write_bytes(raw)
    assert redundancy_of(tmp_path) == [(None, NOT_LOADED)] * 3
