"""The splits of a log and their rests give the records and all rows of the whole log, or refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import RECORDS, batches_of_changes, plain
from tallystick.reading.tables import batches_of
from tallystick.systems.h2 import reader
from tallystick.systems.h2.format import entries, layout
from tallystick.systems.h2.read import skim
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import (
    ClosesBySplit,
    LogSource,
    NotClosedInPartsError,
    ReadOptions,
    Split,
)
from tests.fixtures import cases, fixture_dir
from tests.sweeps import Sweep
from tests.systems.h2.kit import fixture
from tests.systems.h2.made_logs import damaged, file_of, long_log, random_log

ROWS = 50
SIZES = (300, 2000, 9000)
SEEDS = range(24)
MUTANTS = range(40)
Rows = Counter[tuple[str, str]]
Reader = Callable[[], H2Reading]


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have short logs walked by compiled code, too."""
    for module in (skim, reader):
        monkeypatch.setattr(module, "compiled", lambda _stream: True)


def _reader(path: Path) -> Reader:
    source = LogSource("h2", str(path), (str(path),))
    return lambda: H2Reading(source, ReadOptions())


def _rows(table: str, batches: Iterable[pa.RecordBatch]) -> Rows:
    return Counter((table, repr(row)) for batch in batches for row in batch.to_pylist())


def _records(batches: Iterable[pa.RecordBatch]) -> Rows:
    return _rows("records", (plain(batch, RECORDS) for batch in batches))


def _in_parts(read: Reader, splits: Iterable[Split]) -> Rows:
    """The rows of splits, each read on its own, and of their rests."""
    found: Rows = Counter()
    rests = []
    for split in splits:
        reading = read()
        assert isinstance(reading, ClosesBySplit)
        closed = reading.close_split(split, ROWS)
        for table, batch in closed.batches:
            assert 0 < batch.num_rows <= ROWS
            found += _rows(table, [batch])
        if (rest := closed.rest()) is None:
            raise NotClosedInPartsError("a split has no rest")
        rests.append(rest)
    for table, batch in read().close_rests(rests, ROWS):
        found += _rows(table, [batch])
    return found


def _whole(read: Reader) -> Rows:
    found: Rows = Counter()
    for table in ("transactions", "changes"):
        found += _rows(table, batches_of(read(), table))
    return found


def _agree(read: Reader, size: int) -> bool:
    """Compare both ways; return whether several splits closed the log."""
    splits = read().splits(size)
    parts: Rows = Counter()
    for split in splits:
        parts += _records(read().batches(split))
    assert parts == _records(read().batches())
    if len(splits) < 2:
        return False
    try:
        found = _in_parts(read, splits)
    except NotClosedInPartsError:
        return False
    assert found == _whole(read)
    return True


CLOSES = 4
"""The seed of a log that closes in parts of any size."""


def test_parts_of_made_logs_give_the_rows_of_the_whole(tmp_path: Path, sweep: Sweep) -> None:
    path, closed = tmp_path / "made.h2.db", 0
    for seed in {CLOSES, *sweep.of(SEEDS, 6)}:
        path.write_bytes(random_log(seed))
        closed += sum(_agree(_reader(path), size) for size in SIZES)
    assert closed


def test_parts_of_damaged_logs_give_the_same_or_refuse(tmp_path: Path) -> None:
    path, closed = tmp_path / "damaged.h2.db", 0
    for seed in MUTANTS:
        path.write_bytes(damaged(seed, sealed=0.9))
        closed += _agree(_reader(path), SIZES[seed % len(SIZES)])
    assert closed > 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", [one for one in cases("h2") if one.endswith("-512")])
def test_parts_of_logs_of_the_engine_give_the_same_or_refuse(case: str) -> None:
    _agree(lambda: fixture(case), 6000)


@pytest.mark.parametrize("case", ["h-drop-create", "h-dc2", "h-dc3"])
def test_rows_of_a_dropped_table_are_not_those_of_the_next_one_with_its_number(case: str) -> None:
    path = fixture_dir("typed") / case / "x.h2.db"
    dropped = [one.collection for one in _reader(path)().changes() if one.collection == "15#1"]
    assert len(dropped) == 2
    found = _rows("changes", _reader(path)().change_batches(ROWS))
    one_by_one = batches_of_changes(_reader(path)().changes(), "none", ROWS)
    assert found == _rows("changes", one_by_one)
    assert _agree(_reader(path), 2000)


@pytest.mark.parametrize("case", ["h-array", "h-blob", "h-clob", "h-geo", "h-ts-1.3.176", "h-uuid"])
def test_values_are_shown_alike_in_columns_and_one_by_one(case: str) -> None:
    path = fixture_dir("typed") / case / "x.h2.db"
    one_by_one = batches_of_changes(_reader(path)().changes(), "none", ROWS)
    assert _rows("changes", _reader(path)().change_batches(ROWS)) == _rows("changes", one_by_one)
    closed = _agree(_reader(path), 2000)
    assert closed or case != "h-uuid"  # blocks of large objects are anywhere in the database


@pytest.mark.parametrize("ending", ["committed", "prepared", "by-name", "open"])
def test_a_transaction_over_all_parts_is_closed_in_them(tmp_path: Path, ending: str) -> None:
    data = long_log(400)
    if ending in ("prepared", "by-name"):
        data += entries.encode_prepare(1, "XID_1_0A_0B")
    if ending in ("committed", "by-name"):
        data += entries.encode_commit(1)
    path = tmp_path / "long.h2.db"
    path.write_bytes(file_of(data, 512))
    for size in (700, 2000, 8000):
        assert _agree(_reader(path), size)


def _log(path: Path) -> list[Split]:
    path.write_bytes(file_of(long_log(300), 512))
    return list(_reader(path)().splits(2000))


def test_missing_and_exchanged_parts_are_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "log.h2.db"
    splits = _log(path)
    assert len(splits) > 3
    for wrong in (splits[1:], splits[:-1], [splits[0], *splits[2:]], [splits[1], *splits]):
        with pytest.raises(NotClosedInPartsError, match=r"follow each other|goes on"):
            _in_parts(_reader(path), wrong)


def test_a_split_that_was_not_planned_is_not_closed(tmp_path: Path) -> None:
    path = tmp_path / "log.h2.db"
    splits = [replace(one, state=b"") for one in _log(path)]
    with pytest.raises(NotClosedInPartsError, match="no rest"):
        _in_parts(_reader(path), splits)


def test_parts_of_a_log_that_has_changed_give_all_of_its_records(tmp_path: Path) -> None:
    path = tmp_path / "log.h2.db"
    splits = _log(path)
    data = bytearray(path.read_bytes())
    at = splits[2].begin // 512 * 512 + 512 * 3
    data[at + 40 : at + 60] = bytes((255,)) * 20
    data[at : at + 512] = layout.seal(data[at : at + 512], at // 512)
    path.write_bytes(data)
    read, found = _reader(path), Counter[tuple[str, str]]()
    for split in splits:
        found += _records(read().batches(split))
    assert not _records(read().batches()) - found, "records after the change may be more"
    with pytest.raises(NotClosedInPartsError):
        _in_parts(read, splits)


def test_a_log_whose_pages_go_back_in_the_file_is_one_split(tmp_path: Path) -> None:
    path = tmp_path / "log.h2.db"
    assert len(_log(path)) > 3
    reading = _reader(path)()
    found = reading._stream()
    assert found is not None
    found[1].data_pages.reverse()
    assert len(reading.splits(2000)) == 1
