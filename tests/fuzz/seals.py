"""Checksums of a damaged log made right again, so that a mutant gets past the first check.

In: the bytes of one file, changed in place. Out: the same with every checksum, length and repeated
header of the system's format made to fit, as far as the walk still finds its structures.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from zlib import crc32

from tallystick.systems.bitronix.format import layout as bitronix
from tallystick.systems.cloudtran.format import layout as cloudtran
from tallystick.systems.derby.format import layout as derby
from tallystick.systems.h2.format import layout as h2
from tallystick.systems.jboss.format import layout as jboss
from tallystick.systems.tally.format import headers
from tallystick.systems.tally.format import layout as tally

Seal = Callable[[str, bytearray], None]


def seal_bitronix(_: str, data: bytearray) -> None:
    """Give every record its end marker and the CRC of its bytes."""
    at = bitronix.HEADER_LENGTH
    while at + bitronix.RECORD_MIN <= len(data):
        (length,) = struct.unpack_from(">i", data, at + bitronix.LENGTH_OFFSET)
        end = at + bitronix.LENGTH_OUTSIDE + length
        if length < bitronix.LENGTH_FIXED or end > len(data):
            return
        data[end - 4 : end] = bitronix.END_MARKER
        head = bytes(data[at : at + bitronix.CRC_HEAD.size])
        crc = crc32(data[at + bitronix.GTRID_OFFSET : end], crc32(head))
        struct.pack_into(">I", data, at + bitronix.CRC_OFFSET, crc)
        at = end


def seal_cloudtran(_: str, data: bytearray) -> None:
    """Give every block the CRC of its data, its place, and the second header."""
    at = data.find(cloudtran.SIGNATURE)
    while at >= 0 and (header := cloudtran.parse_header(data, at)) is not None:
        after = at + 1
        begin, size = at + cloudtran.HEADER_SIZE, cloudtran.HEADER_SIZE
        end = begin + header.size
        if end <= len(data):
            struct.pack_into("<I", data, at + cloudtran.OFFSET_AT, at)
            struct.pack_into("<Q", data, at + cloudtran.CRC_AT, crc32(data[begin:end]))
            after = at + cloudtran.block_length(header.size, 512)
            if after <= len(data):
                data[after - size : after] = data[at : at + size]
        at = data.find(cloudtran.SIGNATURE, after)


def seal_derby(name: str, data: bytearray) -> None:
    """Give the control files their CRC, records their instants, groups the CRC of their data."""
    if name.endswith(".ctrl"):
        if len(data) >= derby.CONTROL_SIZE:
            head = bytes(data[: derby.CONTROL.size])
            data[-derby.CONTROL_CRC.size :] = derby.CONTROL_CRC.pack(crc32(data[:-8] or head))
        return
    if len(data) < derby.HEADER_SIZE:
        return
    number, at = derby.HEADER.unpack_from(data)[2], derby.HEADER_SIZE
    while (one := derby.read_envelope(memoryview(data), at)) is not None:
        struct.pack_into(">q", data, at + 4, _signed(number << 32 | at))
        struct.pack_into(">i", data, one.end - 4, one.length)
        if data[one.body : one.body + len(derby.CHECKSUM_HEAD)] == derby.CHECKSUM_HEAD:
            place = one.body + len(derby.CHECKSUM_HEAD)
            size = struct.unpack_from(">i", data, place + 1)[0]
            if 0 < size <= len(data) - one.end:
                struct.pack_into(">q", data, place + 5, crc32(data[one.end : one.end + size]))
        at = one.end


def _signed(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def seal_h2(_: str, data: bytearray) -> None:
    """Give both headers their CRC and every page its checksum."""
    if len(data) < h2.STATIC_HEADER.size:
        return
    (size,) = struct.unpack_from(">i", data, h2.PAGE_SIZE_OFFSET)
    if not h2.valid_page_size(size):
        return
    for page in range(1, len(data) // size):
        place = slice(page * size, (page + 1) * size)
        if page in h2.VARIABLE_HEADER_PAGES:
            data[place.start : place.start + 4] = crc32(data[place][4:]).to_bytes(4)
        else:
            data[place] = h2.seal(data[place], page)


def seal_jboss(_: str, data: bytearray) -> None:
    """Give every record of a file its size or its CRC-32, and the id of the file."""
    shape = next(
        (one for one in jboss.SHAPES.values() if one.format_version == _version(data)),
        jboss.SHAPES["g1d"],
    )
    stamp = bytes(data[shape.header_size - 4 : shape.header_size])
    at = shape.header_size
    while (size := _jboss_size(shape, data, at)) and at + size <= len(data):
        data[at + 1 : at + 5] = bytes([stamp[0] & 0x7F]) + stamp[1:]
        data[at + size - 4 : at + size] = jboss.check_of(shape, bytes(data[at : at + size - 4]))
        at += size


def _version(data: bytearray) -> int:
    return int.from_bytes(data[:4], "big") if len(data) >= 16 else -1


def _jboss_size(shape: jboss.Shape, data: bytearray, at: int) -> int:
    """Return the size of the record at a place by its own lengths; 0 for none."""
    try:
        kind = shape.record_type(data[at])
        place = (
            at + shape.fields_at + 8 * ((kind in jboss.IN_TRANSACTION) + (kind in jboss.OF_RECORD))
        )
        (length,) = jboss.I4.unpack_from(data, place)
        if kind in jboss.WITH_BODY:
            place += 5 + length
        elif kind is jboss.RecordType.DELETE_TX and shape.delete_body:
            place += 4 + length
        elif kind in (jboss.RecordType.COMMIT, jboss.RecordType.PREPARE):
            extra = 0
            if kind is jboss.RecordType.PREPARE and shape.extra:
                extra = 4 + jboss.I4.unpack_from(data, place + 4 * (not shape.pairs))[0]
            count = jboss.I4.unpack_from(data, place + (4 if extra and shape.pairs else 0))[0]
            place += 4 + extra + (8 * count if shape.pairs else 0)
    except (ValueError, IndexError, struct.error):
        return 0
    return place + 4 - at if place >= at else 0


def seal_tally(_: str, data: bytearray) -> None:
    """Give blocks, group headers and payloads their CRCs, and both copies the same bytes."""
    for magic in (headers.CONTROL_MAGIC, headers.SEGMENT_MAGIC):
        if data.startswith(magic) and len(data) >= tally.DATA_OFFSET:
            struct.pack_into("<I", data, 508, crc32(data[:508]))
            data[tally.COPY_OFFSET : tally.COPY_OFFSET + 512] = data[:512]
    chain = bytes(data[508:512])
    at = tally.DATA_OFFSET
    while data[at : at + 8] == tally.GROUP_MAGIC and at + tally.HEADER_SIZE <= len(data):
        (length,) = struct.unpack_from("<I", data, at + tally.LENGTH_AT)
        end = at + length
        if length < 2 * tally.HEADER_SIZE or end > len(data):
            return
        payload = crc32(data[at + tally.HEADER_SIZE : end - tally.HEADER_SIZE])
        struct.pack_into("<I", data, at + tally.PAYLOAD_CRC_AT, payload)
        struct.pack_into("<Q", data, at + tally.OFFSET_AT, at)
        data[at + tally.CHAIN_AT : at + tally.CHAIN_AT + 4] = chain
        checked = crc32(data[at : at + tally.CHECKSUM_AT])
        struct.pack_into("<I", data, at + tally.CHECKSUM_AT, checked)
        chain = struct.pack("<I", checked)
        data[end - tally.HEADER_SIZE : end] = data[at : at + tally.HEADER_SIZE]
        at = end


SEALS: dict[str, Seal] = {
    "bitronix": seal_bitronix,
    "cloudtran": seal_cloudtran,
    "derby": seal_derby,
    "h2": seal_h2,
    "jboss": seal_jboss,
    "tally": seal_tally,
}
