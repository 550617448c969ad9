"""Records as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tallystick.records import Clock
from tallystick.schemas import record_batches
from tallystick.systems.base import Split
from tallystick.systems.h2.describe import record_of
from tallystick.systems.h2.scan import Scan
from tallystick.systems.h2.stream import LogStream
from tallystick.systems.h2.times import Zone


def record_batches_of(
    stream: LogStream, zone: Zone, log: str, split: Split | None, rows: int
) -> Iterator[pa.RecordBatch]:
    records = (record_of(entry, stream, None) for entry in Scan(stream, zone).entries())
    wanted = (one for one in records if split is None or split.begin <= one.offset < split.end)
    yield from record_batches(wanted, log, Clock.NONE.value, rows)
