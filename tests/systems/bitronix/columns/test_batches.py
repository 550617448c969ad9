"""The vectorised path agrees with the records, row by row; compiled and as plain Python."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tallystick.arrow import crc_kernel
from tallystick.arrow.schemas import RECORDS, plain, record_batches
from tallystick.systems.bitronix.reader import BitronixReading
from tallystick.systems.bitronix.runs import chunk, walk
from tests.kit import same_rows
from tests.systems.bitronix.logs import CASES, file_bytes, folder_of, reading_of, record, write_pair

KERNELS = (
    "be_int32",
    "be_int64",
    "be_uint16",
    "be_uint32",
    "le_word32",
    "crc_range",
    "has_high_bits",
    "is_ascending",
    "take_names",
    "walk",
)


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    table = pa.Table.from_batches([plain(one) for one in batches], RECORDS)
    rows: list[dict[str, object]] = table.drop_columns(["attributes"]).to_pylist()
    return rows


def expected(reading: BitronixReading) -> list[dict[str, object]]:
    records = reading.records()
    return rows_of(list(record_batches(records, reading.source.path, reading.clock.value)))


def place_of(row: dict[str, object]) -> tuple[str, str]:
    return (str(row["file"]), f"{row['offset']:012}")


@pytest.mark.sampled(15)
@pytest.mark.parametrize("case", CASES)
def test_batches_agree_with_records(case: str) -> None:
    same_rows(reading_of(folder_of(case)))


@pytest.mark.parametrize("case", ["damaged-hole", "made-padding", "names", "tm-outcomes"])
def test_small_batches_and_splits_give_every_record_once(case: str) -> None:
    reading = reading_of(folder_of(case))
    batches = list(reading.batches(rows=3))
    assert max(one.num_rows for one in batches) <= 3
    assert rows_of(batches) == expected(reading)
    parts = rows_of([one for split in reading.splits(1) for one in reading.batches(split)])
    assert sorted(parts, key=place_of) == sorted(expected(reading), key=place_of)


def test_a_record_larger_than_the_window_goes_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk, "WINDOW", 200)
    records = [record(8, 1, "a", "b"), record(8, 2, "x" * 900), record(3, 3, "a")]
    reading = write_pair(tmp_path, file_bytes(records, 9_000), file_bytes([], 8_000))
    assert rows_of(list(reading.batches())) == expected(reading)
    assert len(expected(reading)) == 3


def test_records_with_more_names_than_fit_into_a_batch(tmp_path: Path) -> None:
    many = [f"name-{number:03}" for number in range(3 * walk.NAMES_PER_ROW)]
    records = [record(8, 1, "a"), record(8, 2, *many), record(3, 3, "a", "b"), record(8, 4, *many)]
    reading = write_pair(tmp_path, file_bytes(records, 9_000), file_bytes([], 8_000))
    for rows in (1, 2, 10_000):
        assert rows_of(list(reading.batches(rows=rows))) == expected(reading)
    assert len(expected(reading)) == 4


@pytest.mark.parametrize("case", ["damaged-name-flip", "made-unsorted", "non-ascii", "gtrids"])
def test_the_kernel_gives_the_same_as_plain_python(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KERNELS:
        function = getattr(walk, name)
        monkeypatch.setattr(walk, name, getattr(function, "py_func", function))
    monkeypatch.setattr(chunk, "walk", walk.walk)
    reading = reading_of(folder_of(case))
    assert rows_of(list(reading.batches())) == expected(reading)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 15, 16, 17, 127, 128, 129, 300, 1000])
@pytest.mark.parametrize("room", [0, 1, 14, 15, 16, 90])
def test_names_of_any_length_at_the_end_of_a_file(tmp_path: Path, size: int, room: int) -> None:
    records = [
        record(status, number, "a", "b" * size, "c" * (size + number))
        for number, status in enumerate((0, 8, 3))
    ]
    length = 21 + sum(one.size for one in records) + room
    reading = write_pair(
        tmp_path, file_bytes(records, 9_000, size=length), file_bytes([], 8_000, size=length)
    )
    assert rows_of(list(reading.batches())) == expected(reading)
    assert len(expected(reading)) == 3


def test_crc_of_the_kernel_is_zlibs() -> None:
    table = crc_kernel.crc_table()
    source = random.Random(7)
    for size in (0, 1, 7, 8, 9, 24, 100, 1001):
        data = source.randbytes(size)
        found = crc_kernel.crc_range(np.frombuffer(data, np.uint8), 0, size, 0xFFFFFFFF, table)
        assert int(found) ^ 0xFFFFFFFF == zlib.crc32(data)
