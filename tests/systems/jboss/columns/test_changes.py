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
from tallystick.systems.jboss.columns.changes import change_batches
from tallystick.systems.jboss.reader import JournalReading
from tallystick.systems.protocol import ChangeBatches, LogSource, ReadOptions
from tests.systems.jboss.build import add, image, read, sources, write
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


def test_changes_of_damaged_journals_are_the_same_both_ways(tmp_path: Path) -> None:
    compared = 0
    for index, files in enumerate(mutants(1, 120)):
        write_bundle(files, tmp_path / str(index))
        with suppress(LogUnreadableError):
            compared += sum(map(_compared, sources(tmp_path / str(index))))
    assert compared > 1_000


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
    assert isinstance(reading, ChangeBatches)
    (row,) = _rows(reading.change_batches(ROWS))
    assert (row["key"], row["after"], row["values"]) == ("4", b"four", '{"user_type":-1}')


def test_a_file_id_that_orders_nothing_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "g3", {1: image("g3", 1 << 40, [add(4)])})
    with pytest.raises(CorruptLogError, match="have no order"):
        list(read(tmp_path).change_batches(ROWS))
