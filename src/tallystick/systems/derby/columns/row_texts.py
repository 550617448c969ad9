"""The values of whole rows of a table as a column of JSON texts.

In: the fields of rows as `images.find_fields` finds them, and the columns of their table. Out: what
rows have as ``values``: an object of plain values by name of column.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.byte_kernels import Bytes
from tallystick.arrow.columns import byte_ranges
from tallystick.arrow.lines import IN_JSON
from tallystick.systems.derby.format.sql_values import SqlType, read_text
from tallystick.systems.derby.read.catalogue import Layout
from tallystick.systems.derby.read.tables import plain_value
from tallystick.systems.derby.runs.images import ABSENT, NULL

_WHOLE, _SIZES = ("smallint", "int", "bigint"), (2, 4, 8)
_HEAD = 2
"""Bytes before a text that state its length."""
_encode = json.JSONEncoder(separators=(",", ":")).encode


def names_once(layout: Layout) -> bool:
    """Return whether no two columns have one name: of an object the last would count."""
    names = [one[0] for one in layout if one is not None]
    return len({*names}) == len(names)


def row_texts(data: Bytes, fields: Any, last: Any, layout: Layout) -> pa.Array:
    """Return the texts; null of rows without a column.

    Args:
        data: the bytes of the file.
        fields: begins and sizes, by column and row.
        last: of each row the column after which all others are null.
        layout: the columns.
    """
    texts = [
        _texts(data, fields[0, number], fields[1, number], last < number, one)
        for number, one in enumerate(layout)
        if one is not None
    ]
    if not texts:
        return pa.nulls(len(last), pa.string())
    # Where nulls are skipped, Arrow leaves out a row of nulls altogether.
    objects = pc.binary_join_element_wise(
        "{", *texts, "}", "", null_handling="replace", null_replacement=""
    )
    # Each value comes with a comma.
    objects = pc.replace_substring(objects, "{,", "{", max_replacements=1)
    return pc.if_else(pc.equal(objects, "{}"), pa.scalar(None, pa.string()), objects)


def _texts(
    data: Bytes, begins: Any, sizes: Any, after: Any, column: tuple[str, SqlType]
) -> pa.Array:
    """Return a comma, name and value of one column; null where it is left out."""
    label, kind = f",{_encode(column[0])}:", column[1]
    known = _numbers(data, begins, sizes) if kind.kind in _WHOLE else None
    if kind.read is read_text:
        known = _plain_texts(data, begins, sizes)
    if known is not None:
        known = pc.binary_join_element_wise(label, known, "")
    else:
        # Most have few values, and reading one costs more than finding out whether it is new.
        coded = byte_ranges(data, begins, sizes).cast(pa.binary()).dictionary_encode()
        values = coded.dictionary.to_pylist()
        texts = pa.array([label + _encode(plain_value(kind, one)) for one in values], pa.string())
        known = texts.take(coded.indices)
    nulls = (sizes == NULL) | ((sizes == ABSENT) & after)
    return pc.if_else(pa.array(nulls), f"{label}null", known) if nulls.any() else known


def _numbers(data: Bytes, begins: Any, sizes: Any) -> pa.Array | None:
    """Return whole numbers as texts; None if they are not all of one size."""
    there = sizes >= 0
    size = int(sizes[there][0]) if there.any() else 0
    if size not in _SIZES or (sizes[there] != size).any():
        return None
    # Of a field that is not there the first bytes of the file: it becomes a null.
    found = data[begins[:, None] + np.arange(size)].view(f">i{size}")[:, 0]
    return pa.array(found.astype(np.int64), mask=~there).cast(pa.string())


def _plain_texts(data: Bytes, begins: Any, sizes: Any) -> pa.Array | None:
    """Return texts as JSON; None if one is not as it should be, or is not written as it is."""
    there = sizes >= 0
    if (sizes[there] < _HEAD).any():
        return None
    stated = data[begins].astype(np.int64) * 256 + data[begins + 1]
    if ((stated != sizes - _HEAD) & (stated != 0) & there).any():
        return None
    texts = byte_ranges(data, begins + _HEAD, np.where(there, sizes - _HEAD, -1)).cast(pa.binary())
    if pc.any(pc.match_substring_regex(texts, IN_JSON)).as_py():
        return None
    return pc.binary_join_element_wise('"', texts.cast(pa.string()), '"', "")
