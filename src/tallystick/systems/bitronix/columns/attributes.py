"""The column ``attributes`` of plain records: JSON texts, joined from columns of their parts.

In: the bytes of whole records, and where they stand. Out: the texts that
`tallystick.arrow.schemas.json_text` makes of the attributes of `read.records`.
"""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tallystick.arrow.columns import byte_ranges, numbers_at
from tallystick.systems.bitronix.format import layout

Longs = npt.NDArray[np.int64]
_INT = 4
"""Bytes of the number at the end of a gtrid."""


def plain_attributes(
    data: npt.NDArray[np.uint8], places: Longs, lengths: Longs, statuses: npt.NDArray[np.int32]
) -> pa.Array:
    """Return the attributes of the whole records at ``places`` of ``data``, as JSON."""
    sizes = data[places + layout.GTRID_SIZE_OFFSET].astype(np.int64)
    server_ids, times, sequences = gtrid_parts(data, places + layout.GTRID_OFFSET, sizes)
    parts = (
        '{"status":', _text(statuses),
        ',"recordLength":', _text(lengths - layout.LENGTH_OUTSIDE),
        ',"headerLength":', _text(numbers_at(data, places + layout.HEADER_LENGTH_OFFSET, ">i4")),
        ',"crc32":', _text(numbers_at(data, places + layout.CRC_OFFSET, ">i4")),
        ',"gtridServerId":', server_ids,
        ',"gtridTimestamp":', times,
        ',"gtridSequence":', sequences,
        f',"endRecord":{layout.END_RECORD}}}',
    )  # fmt: skip
    return pc.binary_join_element_wise(*parts, "")


def gtrid_parts(
    data: npt.NDArray[np.uint8], starts: Longs, sizes: Longs
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return server id, time and sequence number of gtrids as JSON.

    ``data`` has at least as many bytes as the tail of a gtrid.
    """
    # A tail that a short gtrid does not have may begin before the data: its numbers are hidden.
    sequences, times = (
        np.maximum(starts + sizes - size, 0) for size in (_INT, layout.GTRID_TAIL.size)
    )
    return (
        _server_ids(data, starts, sizes - layout.GTRID_TAIL.size),
        _known(sizes >= layout.GTRID_TAIL.size, numbers_at(data, times, ">i8")),
        _known(sizes >= _INT, numbers_at(data, sequences, ">i4")),
    )


def _text(values: npt.NDArray[np.generic]) -> pa.Array:
    return pc.cast(pa.array(values), pa.string())


def _known(known: npt.NDArray[np.bool_], values: npt.NDArray[np.generic]) -> pa.Array:
    return pc.if_else(pa.array(known), _text(values), "null")


def _server_ids(data: npt.NDArray[np.uint8], starts: Longs, lengths: Longs) -> pa.Array:
    """Return each server id as JSON; null where the gtrid has no byte before its tail."""
    # `byte_ranges` makes nulls of these.
    lengths = np.where(lengths > 0, lengths, -1)
    found = byte_ranges(data, starts, lengths).cast(pa.binary()).dictionary_encode()
    # Once for each server id: a journal has few.
    texts = [json.dumps(one.decode("latin-1")) for one in found.dictionary.to_pylist()]
    return pc.fill_null(pa.array(texts, pa.string()).take(found.indices), "null")
