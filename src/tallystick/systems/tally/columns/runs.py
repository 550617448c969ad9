"""The records of a leap as Arrow columns, and the columns that follow from codes alone.

In: a `Run`, or codes. Out: a batch, or its columns of kinds and types.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallystick.arrow.columns import coded, constant, no_texts, numbers, record_batch, viewed
from tallystick.records import Clock, Outcome
from tallystick.systems.tally.columns.kernels import KEY, LENGTH, LSN, OFFSET, TIME, TRANSACTION
from tallystick.systems.tally.format.kinds import Code, name_of
from tallystick.systems.tally.format.layout import SYSTEM_NAME
from tallystick.systems.tally.read.group_runs import Run


def run_batch(log: str, path: str, run: Run) -> pa.RecordBatch:
    """The records of a leap as one batch; bodies are views into the segment."""
    count, columns = run.count, run.numbers
    bits = -(-count // 8)
    arrays = {
        "system": constant(SYSTEM_NAME, count),
        "log": constant(log, count),
        "file": constant(path, count),
        "offset": numbers(columns[OFFSET], None),
        "length": numbers(columns[LENGTH], None),
        "outcome": constant(Outcome.VALID.value, count),
        "sequence": numbers(columns[LSN], None),
        "time": numbers(columns[TIME], None),
        "clock": constant(Clock.WALL_US.value, count),
        "transaction": numbers(columns[TRANSACTION], run.valid[0, :bits]),
        "record_id": numbers(columns[KEY], run.valid[1, :bits]),
        "resources": no_texts(count),
        "body": viewed(run.views, None, pa.py_buffer(run.data)),
    }
    return record_batch(arrays | kinds_and_types(run.codes), count)


def kinds_and_types(codes: npt.NDArray[np.uint8]) -> dict[str, pa.Array]:
    """The columns ``kind`` and ``type`` of records with these codes."""
    kinds, types, kind_names, type_names = _names()
    return {"kind": coded(kinds[codes], kind_names), "type": coded(types[codes], type_names)}


@cache
def _names() -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8], pa.Array, pa.Array]:
    """Lookup from code to place in the dictionaries of kinds and types, and these."""
    pairs = [name_of(code) for code in range(256)]
    known = [code for code in range(256) if code in set(Code)]
    kinds = list(dict.fromkeys(pairs[code][0].value for code in (*known, 0)))
    types = [pairs[code][1] for code in known]
    types += [f"code {code}" for code in range(256) if code not in set(Code)][: 127 - len(types)]
    kind_of = np.array([kinds.index(pair[0].value) for pair in pairs], np.int8)
    type_of = np.array([types.index(p[1]) if p[1] in types else -1 for p in pairs], np.int8)
    return kind_of, type_of, pa.array(kinds), pa.array(types)
