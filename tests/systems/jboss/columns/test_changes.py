"""Changes as batches are those that are made one by one, in the same order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import CHANGES, batches_of_changes
from tallystick.errors import CorruptLogError, LogUnreadableError, TallystickError
from tallystick.records import Xid
from tallystick.systems.jboss.columns import changes
from tallystick.systems.jboss.columns.changes import change_batches
from tallystick.systems.jboss.format.bodies import pack_xid
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.protocol import LogSource, ReadOptions
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
    sources,
    update,
    write,
)
from tests.systems.jboss.mutants import mutants
from tests.systems.jboss.mutants import write as write_bundle

ROWS = 7


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    try:
        for batch in batches:
            assert batch.schema == CHANGES
            assert batch.num_rows <= ROWS
            yield from batch.to_pylist()
    except TallystickError as error:
        yield {"error": str(error)}


@pytest.mark.parametrize("piece", [2, 7, changes.PIECE])
def test_changes_of_damaged_journals_are_the_same_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(changes, "PIECE", piece)
    compared = 0
    for index, files in enumerate(mutants(piece, 50)):
        write_bundle(files, tmp_path / str(index))
        with suppress(LogUnreadableError):
            compared += sum(map(_compared, sources(tmp_path / str(index))))
    assert compared > 400


def _compared(source: LogSource) -> int:
    one = JournalReading(source, ReadOptions())
    if one.journal.generation.shape.pairs:
        return 0
    expected = list(_rows(batches_of_changes(one.changes(), "none", ROWS)))
    assert list(_rows(change_batches(one.journal, source.path, ROWS))) == expected
    return len(expected)


def test_a_reading_gives_its_changes_as_batches(tmp_path: Path) -> None:
    write(tmp_path, "g3", {1: image("g3", 1, [add(4, b"four", -1)])})
    reading = read(tmp_path)
    (row,) = _rows(reading.change_batches(ROWS))
    assert (row["key"], row["after"], row["values"]) == ("4", b"four", '{"user_type":-1}')


XID = pack_xid(Xid(7, b"a gtrid of some length", b"branch"))
ITEMS = {
    "side by side": [add_tx(7, 1), add_tx(8, 2), add(3), commit(8, 1), add_tx(7, 4), commit(7, 2)],
    "deletes after adds": [delete_tx(7, 1), add_tx(7, 2), delete_tx(7, 3), commit(7, 3), delete(2)],
    "a branch": [add_tx(7, 1), prepare(7, XID, 1), add(2), commit(7, 1)],
    "a number again": [add_tx(7, 1), rollback(7), add_tx(7, 2), commit(7, 1)],
    "a wrong count in between": [add(1), add_tx(7, 2), commit(7, 2), update(1), add_tx(8, 4)],
}


@pytest.mark.parametrize("piece", [1, 3, changes.PIECE])
@pytest.mark.parametrize("name", ITEMS)
def test_changes_come_in_the_order_of_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, piece: int
) -> None:
    monkeypatch.setattr(changes, "PIECE", piece)
    write(tmp_path, "g3", {1: image("g3", 1, ITEMS[name]), 2: image("g3", 2, [commit(8, 0)])})
    assert _compared(sources(tmp_path)[0])


def test_a_file_id_that_orders_nothing_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "g3", {1: image("g3", 1 << 40, [add(4)])})
    with pytest.raises(CorruptLogError, match="have no order"):
        list(read(tmp_path).change_batches(ROWS))
