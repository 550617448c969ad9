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

from tallystick.arrow.columns import byte_ranges
from tallystick.systems.bitronix.format.layout import (
    CRC_OFFSET,
    END_RECORD,
    GTRID_OFFSET,
    GTRID_SIZE_OFFSET,
    GTRID_TAIL,
    HEADER_LENGTH_OFFSET,
    LENGTH_OUTSIDE,
)

Longs = npt.NDArray[np.int64]
_INT, _LONG = np.dtype(">i4"), np.dtype(">i8")


def plain_attributes(
    data: npt.NDArray[np.uint8], places: Longs, lengths: Longs, statuses: npt.NDArray[np.int32]
) -> pa.Array:
    """Return the attributes of the whole records at ``places`` of ``data``, as JSON."""
    sizes = data[places + GTRID_SIZE_OFFSET].astype(np.int64)
    server_ids, times, sequences = gtrid_parts(data, places + GTRID_OFFSET, sizes)
    parts = (
        '{"status":', _text(statuses),
        ',"recordLength":', _text(lengths - LENGTH_OUTSIDE),
        ',"headerLength":', _text(numbers_at(data, places + HEADER_LENGTH_OFFSET, _INT)),
        ',"crc32":', _text(numbers_at(data, places + CRC_OFFSET, _INT)),
        ',"gtridServerId":', server_ids,
        ',"gtridTimestamp":', times,
        ',"gtridSequence":', sequences,
        f',"endRecord":{END_RECORD}}}',
    )  # fmt: skip
    return pc.binary_join_element_wise(*parts, "")


def gtrid_parts(
    data: npt.NDArray[np.uint8], starts: Longs, sizes: Longs
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return server id, time and sequence number of gtrids as JSON.

    ``data`` has at least as many bytes as the tail of a gtrid.
    """
    ends = starts + sizes
    sequences, times = (
        numbers_at(data, ends - _INT.itemsize, _INT),
        numbers_at(data, ends - GTRID_TAIL.size, _LONG),
    )
    return (
        _server_ids(data, starts, sizes - GTRID_TAIL.size),
        _known(sizes >= GTRID_TAIL.size, times),
        _known(sizes >= _INT.itemsize, sequences),
    )


def numbers_at(
    data: npt.NDArray[np.uint8], places: Longs, kind: np.dtype[np.generic]
) -> npt.NDArray[np.generic]:
    """Return the big-endian numbers at ``places``, none of which is before or after the data."""
    # Gathered byte by byte: numbers stand at any offset, and a view needs contiguous bytes. A tail
    # that a short gtrid does not have may begin before the data; the caller hides its number.
    taken = data[np.maximum(places, 0)[:, np.newaxis] + np.arange(kind.itemsize)]
    return taken.view(kind).reshape(len(places)).astype(kind.newbyteorder("="))


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
