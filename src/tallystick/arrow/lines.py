"""Columns as lines: of JSON as the standard library writes it, of CSV as PostgreSQL's COPY does.

In: columns of texts, whole numbers and bytes. Out: a text for each value, and lines made of these.
Bytes are lower-case hex digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import bitmap
from tallystick.arrow.json_kernels import put_bytes
from tallystick.arrow.texts import csv_text

_TEXT = pa.large_string()
"""64-bit offsets: what a batch holds may have more digits than 32 bits count."""
IN_JSON, _IN_CSV = r"[^ !#-\[\]-~]", '^$|[",\r\n]'
"""What a text has, or is, that is not written as it is."""
_REPEATED = 8
"""A column with so many rows for each of its texts is written text by text."""


def json_texts(column: pa.Array) -> pa.Array:
    """Return each value as JSON."""
    if pa.types.is_string(column.type):
        quoted = _by_text(column, json.dumps, IN_JSON, _in_quotes)
    elif pa.types.is_binary(column.type):
        quoted = _in_quotes(hex_texts(column))
    else:
        quoted = column.cast(_TEXT)
    return quoted.fill_null("null")


def csv_texts(column: pa.Array) -> pa.Array:
    """Return each value as a field of a line; what is null is nothing."""
    if pa.types.is_binary(column.type):
        column = hex_texts(column)
        return pc.if_else(pc.equal(column, ""), csv_text(""), column).fill_null("")
    if not pa.types.is_string(column.type):
        return column.cast(_TEXT).fill_null("")
    return _by_text(column, csv_text, _IN_CSV, lambda one: one).fill_null("")


def quoted_csv(column: pa.Array) -> pa.Array:
    """Return texts that all have quotes in them as fields of a line."""
    doubled = pc.replace_substring(column.cast(_TEXT), '"', '""')
    return _in_quotes(doubled).fill_null("")


def has_one_value(column: pa.Array) -> bool:
    """Return whether all rows of a column, which has some, are equal."""
    if column.null_count:
        return bool(column.null_count == len(column))
    return bool(column[0] == column[-1] and pc.all(pc.equal(column, column[0])).as_py())


def lines(parts: Sequence[pa.Array | bytes], count: int, null: str = "") -> memoryview:
    """Return the bytes of so many rows, each the join of its parts; bytes are a part of every row.

    ``null`` stands for a part that is null.
    """
    # Bytes, because the name of a log may be no UTF-8.
    kind, each = pa.large_binary(), list[Any]()
    for one in parts:
        if not isinstance(one, bytes):
            each.append(one.cast(kind))
        elif each and isinstance(each[-1], bytes):
            each[-1] += one  # a part more in each row costs more than some bytes more
        else:
            each.append(one)
    if len(each) == 1 and isinstance(each[0], bytes):
        return memoryview(each[0] * count)
    each = [pa.scalar(one, kind) if isinstance(one, bytes) else one for one in each]
    nothing = pa.scalar(b"", kind)
    joined = pc.binary_join_element_wise(
        *each, nothing, null_handling="replace", null_replacement=null
    )
    _, ends, data = joined.buffers()
    if not len(joined):
        return memoryview(b"")
    first, last = np.frombuffer(ends, np.int64)[[joined.offset, joined.offset + len(joined)]]
    return memoryview(data)[first:last]


def _in_quotes(column: pa.Array) -> pa.Array:
    quote, nothing = (pa.scalar(one, _TEXT) for one in ('"', ""))
    return pc.binary_join_element_wise(quote, column, quote, nothing)


def _by_text(
    column: pa.Array,
    write: Callable[[str], str],
    special: str,
    plain: Callable[[pa.Array], pa.Array],
) -> pa.Array:
    """Return what ``write`` makes of each text; ``plain`` does so where none is special."""
    coded = column.dictionary_encode()
    texts = coded.dictionary
    few = len(texts) * _REPEATED <= len(column)
    if not few and not pc.any(pc.match_substring_regex(column, special)).as_py():
        return plain(column.cast(_TEXT))
    return pa.array(map(write, texts.to_pylist()), _TEXT, size=len(texts)).take(coded.indices)


def hex_texts(column: pa.Array) -> pa.Array:
    """Return the digits of each value."""
    column = column.cast(pa.large_binary())
    _, ends, data = column.buffers()
    found = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    first, last = (int(found[0]), int(found[-1])) if len(column) else (0, 0)
    digits = np.empty(2 * (last - first), np.uint8)
    put_bytes(np.frombuffer(data or b"", np.uint8), first, last, digits, 0)
    valid = bitmap(np.asarray(column.is_valid()))
    buffers: list[Any] = [None if valid is None else pa.py_buffer(valid)]
    buffers += [pa.py_buffer((found - first) * 2), pa.py_buffer(digits)]
    return pa.Array.from_buffers(_TEXT, len(column), buffers)
