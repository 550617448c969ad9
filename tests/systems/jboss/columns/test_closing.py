"""Splits and the fold of their rests give the transactions and changes of the whole journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import batches_of_changes, batches_of_transactions
from tallystick.errors import LogUnreadableError
from tallystick.reading.tables import TABLES
from tallystick.systems.jboss.columns import closing
from tallystick.systems.jboss.columns.closing import Rest
from tallystick.systems.jboss.format.layout import Item
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.protocol import (
    ClosesBySplit,
    LogSource,
    NotClosedInPartsError,
    ReadOptions,
)
from tallystick.systems.rests import unpacked
from tests.systems.jboss.build import add, add_tx, commit, image, sources, write
from tests.systems.jboss.mutants import journal, mutants
from tests.systems.jboss.mutants import write as write_bundle

ROWS = 5
Rows = Counter[tuple[str, str]]


def _rows(batches: Iterable[tuple[str, pa.RecordBatch]]) -> Rows:
    found: Rows = Counter()
    for table, batch in batches:
        assert batch.schema == TABLES[table]
        assert 0 < batch.num_rows <= ROWS
        found.update((table, repr(row)) for row in batch.to_pylist())
    return found


def _in_parts(source: LogSource, size: int) -> Rows | None:
    """What splits of about ``size`` bytes and their fold give; None if they refuse."""
    reading = JournalReading(source, ReadOptions())
    assert isinstance(reading, ClosesBySplit)
    found: Rows = Counter()
    rests = []
    for split in reading.splits(size):
        one = JournalReading(source, ReadOptions()).close_split(split, ROWS)
        found += _rows(one.batches)
        rests.append(one.rest())
    whole = [one for one in rests if one is not None]
    if len(whole) < len(rests):
        return None
    try:
        return found + _rows(reading.close_rests(whole, ROWS))
    except NotClosedInPartsError:
        return None


def _whole(source: LogSource) -> Rows:
    one, other = (JournalReading(source, ReadOptions()) for _ in range(2))
    transactions = batches_of_transactions(one.transactions(), "none", ROWS)
    changes = batches_of_changes(other.changes(), "none", ROWS)
    return _rows(("transactions", batch) for batch in transactions) + _rows(
        ("changes", batch) for batch in changes
    )


def _agree(source: LogSource, size: int) -> bool:
    """Compare both ways; return whether the splits closed the journal."""
    found = _in_parts(source, size)
    if found is not None:
        assert found == _whole(source)
    return found is not None


@pytest.mark.parametrize("first", [1, 3, 64])
def test_parts_of_journals_give_the_rows_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(closing, "FIRST_NUMBERS", first)
    closed = 0
    for seed in range(20):
        write_bundle(journal(seed), tmp_path / str(seed))
        for source in sources(tmp_path / str(seed)):
            closed += _agree(source, (700, 1 << 20)[seed % 2])
    assert closed > 5


def test_parts_of_damaged_journals_give_the_same_or_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "FIRST_NUMBERS", 2)
    closed = 0
    for index, files in enumerate(mutants(3, 40)):
        write_bundle(files, tmp_path / str(index))
        with suppress(LogUnreadableError):
            closed += sum(_agree(one, 1 << 20) for one in sources(tmp_path / str(index)))
    assert closed > 5


def _two_files(folder: Path, one: list[Item], two: list[Item]) -> LogSource:
    folder.mkdir(exist_ok=True)
    write(folder, "g3", {1: image("g3", 1, one), 2: image("g3", 2, two)})
    return sources(folder)[0]


def test_a_transaction_over_two_files_is_joined(tmp_path: Path) -> None:
    source = _two_files(tmp_path, [add_tx(7, 8), add(1)], [add_tx(7, 9), commit(7, 1)])
    assert _agree(source, 1 << 20)


def test_a_transaction_that_was_closed_too_early_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "FIRST_NUMBERS", 1)
    late = [add_tx(5, 6), commit(5, 1), add_tx(7, 9), commit(7, 1)]
    assert _in_parts(_two_files(tmp_path, [add_tx(7, 8)], late), 1 << 20) is None


def test_a_number_that_two_splits_close_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "FIRST_NUMBERS", 1)
    again = [add_tx(5, 6), commit(5, 1), add_tx(7, 9), commit(7, 1)]
    source = _two_files(tmp_path, [add_tx(7, 8), commit(7, 1)], again)
    assert _in_parts(source, 1 << 20) is None


def test_too_large_a_rest_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _two_files(tmp_path, [add_tx(7, 8, bytes(100))], [])
    assert _agree(source, 1 << 20)
    monkeypatch.setattr(closing, "REST_MAX", 100)
    assert _in_parts(source, 1 << 20) is None


def test_a_rest_is_packed_and_unpacked() -> None:
    rest = Rest("ä/1.amq", "g3", [-5, 3, 1 << 62], [(16, b"one"), (1 << 40, b"")])
    assert unpacked(rest.packed(), Rest.built) == rest
