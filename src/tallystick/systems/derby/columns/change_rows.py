"""Changes as Arrow batches from objects: for short logs, and for what runs leave over.

In: `Change`s. Out: batches of the `CHANGES` schema. Nothing compiled is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

from tallystick.arrow.schemas import CHANGES, batch_of, change_rows
from tallystick.records import Change, Clock


def object_batches(changes: Iterable[Change], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield changes as batches of at most ``rows`` rows."""
    source = iter(changes)
    while part := list(islice(source, rows)):
        yield batch_of(list(change_rows(part, Clock.NONE.value)), CHANGES)
