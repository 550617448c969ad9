"""The values of added rows as a column of JSON texts.

In: rows of bytes in order, their tables and the names of these. Out: what `changes` gives as
``values``: an object of the values as the engine prints them, by column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa

from tallystick.arrow.columns import bitmap, joined_bytes
from tallystick.arrow.neighbours import distinct
from tallystick.systems.h2.columns.value_kernels import (
    NO_OBJECT,
    WHOLE_ROW,
    find_others,
    kinds_of,
    read_doubles,
    write_objects,
)
from tallystick.systems.h2.format.catalogue import TableLives
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.java_text import number_text
from tallystick.systems.h2.format.values.shown import Presentation, is_enum
from tallystick.systems.h2.format.values.types import (
    DOUBLE,
    TYPES,
    Layout,
    decode_row,
    decode_value,
)
from tallystick.systems.h2.read.changes import by_column, column_names
from tallystick.systems.h2.runs.rows import NO_COLUMN, read_rows

_encode = json.JSONEncoder(separators=(",", ":")).encode
_TEXT_MAX = (1 << 31) - 1
"""Bytes of a column of texts at most."""
_ESCAPE_SIZE = 6
"""Bytes of JSON for a byte of a text at most: a control character."""
_VALUE_SIZE = 48
"""The same for the quotes around a value, or for a number or a time."""


class RowTexts:
    """Makes JSON of the rows of one log."""

    def __init__(self, lives: TableLives, zone: Zone, presentation: Presentation) -> None:
        self._presentation = presentation
        self._lives = lives
        self._zone = zone
        self._kinds = kinds_of(zone.zone is UTC and not zone.raw_ms and not zone.julian)
        self._constants = _joined(_constant_texts())

    def column(self, data: Any, starts: Any, lengths: Any, tables: Any, positions: Any) -> pa.Array:
        """Return the texts of rows; null where a length is negative or a row has no column.

        ``positions`` are the offsets in the stream of the records that the rows are from.
        """
        counts = np.zeros(len(starts), np.int64)
        added = np.flatnonzero(lengths >= 0)
        found = np.empty(len(added), np.int64)
        # Once for the numbers as well, which are not written: no column is asked for.
        read_rows(data, starts[added], lengths[added], NO_COLUMN, found, found)
        counts[added] = found
        labels, bases, label_size = self._labels(tables, counts)
        others = self._others(data, starts, lengths, tables, positions, bases)
        # An upper bound: the kernel writes without a look at the room, and what was too much is cut
        # off.
        size = _ESCAPE_SIZE * int(lengths[added].sum()) + _VALUE_SIZE * int(counts.sum())
        size += label_size + len(others[0]) + len(starts)
        out, ends = np.empty(size, np.uint8), np.empty(len(starts) + 1, np.int64)
        texts = (labels, self._constants, others)
        write_objects(data, starts, lengths, bases, self._kinds, texts, out, ends)
        return _texts(out[: ends[-1]], ends, bases != NO_OBJECT)

    def _labels(self, tables: Any, counts: Any) -> tuple[tuple[Any, Any], Any, int]:
        """Return the labels that stand before the values of columns.

        Returns:
            The labels as `_joined` gives texts; for each row the number of the label of its first
            column, or `NO_OBJECT` or `WHOLE_ROW`; the bytes of the labels of all rows.
        """
        ids, tables = distinct(tables)
        widths, counts = distinct(counts)
        # One number for each pair of table and width: rows of one table can have several widths
        # where columns were added.
        pairs, places = distinct(tables * len(widths) + counts)
        repeated = np.bincount(places, minlength=len(pairs)).tolist()
        labels: list[bytes] = []
        bases, sizes = [], []
        for pair, rows in zip(pairs, repeated, strict=True):
            table, count = ids[pair // len(widths)], widths[pair % len(widths)]
            known = self._lives.get(table)
            names = column_names(known, count)
            base = len(labels) if count else NO_OBJECT
            own = [_label(name, at) for at, name in enumerate(names)]
            by_type = known is not None and any(map(is_enum, known.types))
            if count and (by_type or len(set(names)) < count):  # the last value of a name counts
                base, own = WHOLE_ROW, []
            bases.append(base)
            sizes.append(sum(map(len, own)) * rows)
            labels += own
        return _joined(labels), np.array(bases, np.int64)[places], sum(sizes)

    def _others(
        self, data: Any, starts: Any, lengths: Any, tables: Any, positions: Any, bases: Any
    ) -> tuple[Any, Any]:
        """Return the texts of the values that `format.values` prints, as `_joined` gives them.

        They are in the order in which `write_objects` comes to them.
        """
        places, rows = np.empty((2, int(lengths[lengths > 0].sum())), np.int64)
        count = find_others(data, starts, lengths, bases, self._kinds, places, rows)
        places, rows = places[:count], rows[:count]
        doubles = np.empty(len(places), np.int64)
        # The kernel only puts their bits in order, which H2 stores reversed: their shortest digits
        # are Python's.
        read_doubles(data, places, doubles)
        view = memoryview(data)
        texts = []
        columns = places.tolist(), rows.tolist(), doubles.view(np.float64).tolist()
        for place, row, double in zip(*columns, strict=True):
            position = int(positions[row])
            if place < 0:
                values, _ = decode_row(view[int(starts[row]) :][: int(lengths[row])], self._zone)
                table = self._lives.get(int(tables[row]))
                text = _encode(by_column(values, table, self._presentation, position))
            elif view[place] == DOUBLE:
                text = f'"{number_text(double)}"'
            else:
                value, _ = decode_value(view, place, self._zone)
                text = _encode(self._presentation.shown(value, position))
            texts.append(text.encode())
        return _joined(texts)


def _label(name: str, at: int) -> bytes:
    return f"{',' if at else '{'}{json.dumps(name)}:".encode()


def _constant_texts() -> Iterator[bytes]:
    """Yield the text of the value of each type that has one value, empty for others."""
    for code in range(256):
        one = TYPES.get(code)
        constant = one is not None and one.layout is Layout.FIXED and not one.size
        value = decode_value(bytes((code,)), 0, Zone())[0] if constant else None
        yield json.dumps(value and value.text).encode() if constant else b""


def _joined(texts: Any) -> tuple[Any, Any]:
    """Return texts one after the other, and where each ends."""
    every = list(texts)
    data = np.frombuffer(b"".join(every), np.uint8)
    return data, np.cumsum([len(one) for one in every], dtype=np.int64)


def _texts(out: Any, ends: Any, known: Any) -> pa.Array:
    if len(out) > _TEXT_MAX:
        raise OverflowError("more text than a column holds")
    return joined_bytes(pa.string(), ends.astype(np.int32), out.copy(), bitmap(known))
