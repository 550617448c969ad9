"""Transactions as batches are those of the analysis of single records, in the same order."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import TRANSACTIONS, batches_of_transactions
from tallystick.errors import LogUnreadableError, TallystickError
from tallystick.records import Xid
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE, pack_xid
from tallystick.systems.jboss.format.layout import Item
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.kit import read_in_runs
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    delete_tx,
    image,
    prepare,
    rollback,
    sources,
    write,
)
from tests.systems.jboss.mutants import mutants
from tests.systems.jboss.mutants import write as write_bundle

ROWS = 3
XID = pack_xid(Xid(7, b"a gtrid of some length", b"branch"))


def _rows(batches: Iterable[pa.RecordBatch]) -> list[Any]:
    found: list[Any] = []
    try:
        for batch in batches:
            assert batch.schema == TRANSACTIONS
            assert 0 < batch.num_rows <= ROWS
            found += batch.to_pylist()
    except TallystickError as error:
        found.append(str(error))
    return found


def _both(source: LogSource, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], bool]:
    """Compare three ways; return the rows, and whether there are columns of them."""
    read_in_runs(monkeypatch, always=False)
    slow = JournalReading(source, ReadOptions()).transactions()
    expected = _rows(batches_of_transactions(slow, "none", ROWS))
    read_in_runs(monkeypatch)
    reading = JournalReading(source, ReadOptions())
    assert _rows(reading.transaction_batches(ROWS)) == expected
    assert _rows(batches_of_transactions(reading.transactions(), "none", ROWS)) == expected
    return expected, reading._in_columns() is not None


def test_transactions_of_damaged_journals_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = columns = 0
    for index, files in enumerate(mutants(6, 25)):
        write_bundle(files, tmp_path / str(index))
        with suppress(LogUnreadableError):
            for source in sources(tmp_path / str(index)):
                found, plain = _both(source, monkeypatch)
                rows, columns = rows + len(found), columns + plain
    assert rows > 30
    assert columns > 8


CASES: dict[str, tuple[list[Item], list[Item]]] = {
    "nothing": ([], []),
    "no transaction": ([add(1)], [add(2)]),
    "two at once": ([add_tx(7, 1), add_tx(8, 2), add_tx(7, 3), commit(8, 1), commit(7, 2)], []),
    "over two files": ([add_tx(7, 1)], [delete_tx(7, 2), commit(7, 1), add_tx(8, 3), commit(8, 1)]),
    "a number again": ([add_tx(7, 1), commit(7, 1)], [add_tx(7, 2), commit(7, 1)]),
    "a number again and open": ([add_tx(7, 1), rollback(7)], [add_tx(7, 2)]),
    "a number that an open one has": ([add_tx(7, 1)], [commit(7, 0), add_tx(7, 2), commit(7, 1)]),
    "prepared": ([add_tx(7, 1), prepare(7, XID, 1), commit(7, 1), add(4)], [commit(9, 0)]),
    "prepared without an Xid": ([add_tx(7, 1), prepare(7, b"x", 1), commit(7, 1)], []),
    "prepared twice": ([add_tx(7, 1), prepare(7, XID, 1), prepare(7, b"", 1), commit(7, 1)], []),
    "prepared with a wrong count": ([add_tx(7, 1), prepare(7, XID, 2), rollback(7)], []),
    "prepared and nothing else": ([prepare(7, XID), commit(7, 0)], [prepare(8, XID)]),
    "a wrong count": ([add_tx(7, 1), commit(7, 2)], [add_tx(8, 3), commit(8, 1)]),
    "ends of nothing": ([commit(7, 0), rollback(8)], [add_tx(9, 3), commit(9, 1), commit(9, 0)]),
    "heuristic": ([add(1, XID + b"\1", HEURISTIC_TYPE), add_tx(7, 2), commit(7, 1)], []),
}


@pytest.mark.parametrize("name", CASES)
def test_transactions_are_found_in_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    first, second = (image("g3", at + 1, items) for at, items in enumerate(CASES[name]))
    write(tmp_path, "g3", {1: first, 2: second})
    assert _both(sources(tmp_path)[0], monkeypatch)[1]


def test_damaged_elements_are_found_beside_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytearray(image("g3", 1, [add_tx(7, 1), commit(7, 1)]))
    content[-len(content) + 16 + 25] ^= 1
    write(tmp_path, "g3", {1: bytes(content), 2: image("g3", 2, [add(3)])})
    (source,) = sources(tmp_path)
    assert _both(source, monkeypatch)[1]
