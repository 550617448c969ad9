"""Fixed layouts of an H2 page store file: headers, page checksum, trunk and data pages.

In: bytes of one page. Out: headers and pages as objects, and back.
All numbers are big-endian and signed, except the CRC-32. Page *n* starts at ``n * page_size``;
a trailing fragment of the file is no page. Source: docs/formats/h2.md, "The file".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.storage.crc import crc32

SYSTEM_NAME: Final = "h2"

# -- static header, page 0 ------------------------------------------------------------------

MAGIC = b"-- H2 0.5/B -- \n"
"""16 bytes at 0 and again at 32; in a plain file the salt between them is the same text."""
MAGIC_SIZE = 16
INNER_MAGIC_OFFSET = 32
"""In an encrypted file the text here is encrypted."""
PAGE_SIZE_OFFSET = 48
STATIC_HEADER = struct.Struct(">16s16s16sibb")
"""Magic, salt, inner magic, page size in bytes, write version, read version."""
VERSION = 3
"""Write and read version. A higher write version is opened read-only, a higher read one refused."""
PAGE_SIZE_MIN = 64
PAGE_SIZE_MAX = 32768
PAGE_SIZE_DEFAULT = 4096
GROWTH_MAX = 64
"""A page this many times beyond the end of a file is damage."""

# -- variable header, pages 1 and 2 ---------------------------------------------------------

VARIABLE_HEADER = struct.Struct(">Iqiii")
"""CRC-32 of the rest of the page, write counter, log key, first trunk and data page (0: none)."""
VARIABLE_HEADER_PAGES = (1, 2)
FREE_LIST_ROOT = 3
META_ROOT = 4
FIRST_FREE_PAGE = 5
FIRST_LOG = (1, 5, 6)
"""Key, first trunk and first data page of the log that a new database begins with."""
PAGE_COUNT_MIN = 5
"""A shorter file is taken for empty, and overwritten, by the engine."""

# -- pages ----------------------------------------------------------------------------------

PAGE_HEADER = struct.Struct(">BBBi")
"""Type, two checksum bytes, parent (table pages), previous trunk, own trunk."""
CHECKSUM_OFFSET = 1
PARENT_OFFSET = 3
EMPTY = 0
DATA_LEAF = 1
DATA_NODE = 2
DATA_OVERFLOW = 3
BTREE_LEAF = 4
BTREE_NODE = 5
FREE_LIST = 6
STREAM_TRUNK = 7
STREAM_DATA = 8
LAST = 16
"""Bit in the type of a table page: last page of its chain."""

TRUNK_HEADER = struct.Struct(">BBBiiih")
"""Page header, log key, next trunk page, number of data page ids that follow (4 bytes each)."""
TRUNK_ID_SIZE = 4
DATA_HEADER = struct.Struct(">BBBii")
"""Page header, log key; the rest of the page is log stream."""
DATA_KEY_OFFSET = 7
DATA_START = DATA_HEADER.size

FREE_LIST_START = 3
"""Offset of the bitmap in a free-list page, which has no parent field."""


@dataclass(frozen=True, slots=True)
class StaticHeader:
    """Page 0: ``page_size`` in bytes; ``encrypted`` where the inner magic is not plain text.

    The engine compares its versions as signed bytes: negative ones are not newer than its own.
    """

    page_size: int
    write_version: int = VERSION
    read_version: int = VERSION
    magic_ok: bool = True
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class VariableHeader:
    """Page 1 or 2: where the log begins. Trunk and data page 0 mean that there is no log."""

    write_counter: int
    log_key: int
    first_trunk: int
    first_data: int


@dataclass(frozen=True, slots=True)
class Trunk:
    """A page that lists log data pages in stream order and names the next trunk."""

    page: int
    previous: int
    key: int
    next: int
    data_pages: tuple[int, ...]

    @property
    def pages(self) -> tuple[int, ...]:
        """The numbers of this trunk page and of the data pages that it lists."""
        return (self.page, *self.data_pages)


# -- free list ------------------------------------------------------------------------------


def free_lists(page_count: int, page_size: int) -> range:
    """Return the pages of the free list; each has bits for itself and the pages up to the next."""
    return range(FREE_LIST_ROOT, page_count, (page_size - FREE_LIST_START) * 8)


def place_in_list(page: int, page_size: int) -> tuple[int, int]:
    """Return the page of the free list that has the bit of a page, and the number of the bit."""
    at = (page - FREE_LIST_ROOT) % free_lists(0, page_size).step
    return page - at, at


def marks(bits: bytes | bytearray, at: int) -> bool:
    """Return True if a bit of a page of the free list is set: its page is in use."""
    return bool(bits[at >> 3] >> (at & 7) & 1)


# -- encode ---------------------------------------------------------------------------------


def encode_static_header(header: StaticHeader) -> bytes:
    """Return page 0, whole."""
    packed = STATIC_HEADER.pack(
        MAGIC, MAGIC, MAGIC, header.page_size, header.write_version, header.read_version
    )
    return packed.ljust(header.page_size, b"\0")


def encode_variable_header(header: VariableHeader, page_size: int) -> bytes:
    """Return page 1 or 2, whole, with its CRC-32."""
    fields = (header.write_counter, header.log_key, header.first_trunk, header.first_data)
    page = VARIABLE_HEADER.pack(0, *fields).ljust(page_size, b"\0")
    return struct.pack(">I", crc32(page[4:])) + page[4:]


def encode_headers(page_size: int) -> bytes:
    """Return pages 0 to 2 of a file without a log."""
    copy = encode_variable_header(VariableHeader(0, 0, 0, 0), page_size)
    return encode_static_header(StaticHeader(page_size)) + copy * len(VARIABLE_HEADER_PAGES)


def encode_trunk(trunk: Trunk, page_size: int) -> bytes:
    """Return a trunk page with its checksum; the ids must fit (see `trunk_capacity`)."""
    count = len(trunk.data_pages)
    assert count <= trunk_capacity(page_size), "more data page ids than a trunk page holds"
    head = TRUNK_HEADER.pack(STREAM_TRUNK, 0, 0, trunk.previous, trunk.key, trunk.next, count)
    page = bytearray((head + struct.pack(f">{count}i", *trunk.data_pages)).ljust(page_size, b"\0"))
    return seal(page, trunk.page)


def encode_data(page: int, trunk: int, key: int, body: bytes, page_size: int) -> bytes:
    """Return a log data page with its checksum, ``body`` padded with zeros, which are no-ops."""
    assert len(body) <= page_size - DATA_START, "more stream bytes than a page holds"
    head = DATA_HEADER.pack(STREAM_DATA, 0, 0, trunk, key)
    return seal(bytearray((head + body).ljust(page_size, b"\0")), page)


def seal(page: bytearray, page_id: int) -> bytes:
    """Return the page with its checksum; an empty page (type 0) has none and stays as it is."""
    if page[0] != EMPTY:
        page[1], page[2] = checksum(page, page_id)
    return bytes(page)


# -- decode ---------------------------------------------------------------------------------


def trunk_capacity(page_size: int) -> int:
    """Return how many data page ids a trunk page holds."""
    return (page_size - TRUNK_HEADER.size) // TRUNK_ID_SIZE


def valid_page_size(size: int) -> bool:
    """Return True for a power of two from `PAGE_SIZE_MIN` to `PAGE_SIZE_MAX`."""
    return PAGE_SIZE_MIN <= size <= PAGE_SIZE_MAX and size & (size - 1) == 0


def is_encrypted(head: bytes | memoryview) -> bool:
    """Return True for the first bytes of an encrypted file: a salt, and no plain text after it."""
    if len(head) < STATIC_HEADER.size:
        return False
    magic, salt, inner, *_ = STATIC_HEADER.unpack_from(head)
    return magic == MAGIC and MAGIC not in (salt, inner)


def decode_static_header(head: bytes | memoryview, file: str) -> StaticHeader:
    """Decode the first bytes of a file.

    Raises:
        CorruptLogError: the file begins with another text, or the page size is impossible.
        UnsupportedFormatError: the file is too short for a header.
    """
    if len(head) < STATIC_HEADER.size:
        raise UnsupportedFormatError(
            "too short for a page store header",
            file=file,
            expected=f"{STATIC_HEADER.size} bytes",
            found=str(len(head)),
            advice="The engine would replace this file by a new, empty database: copy it first",
        )
    magic, _, inner, size, write, read = STATIC_HEADER.unpack_from(head)
    if is_encrypted(head):  # the page size is encrypted as well
        return StaticHeader(PAGE_SIZE_DEFAULT, encrypted=True)
    advice = (
        "The engine refuses the file; type tallystick repair FILE --to COPY, which writes page 0 "
        "anew where the pages after it prove it"
    )
    if not valid_page_size(size) and magic != MAGIC:  # the engine comes to the text first
        raise CorruptLogError(
            "unsupported version or invalid file header",
            file=file,
            offset=0,
            expected=MAGIC.decode().strip(),
            found=magic.hex(),
            advice=advice,
        )
    if not valid_page_size(size):
        raise CorruptLogError(
            "impossible page size",
            file=file,
            offset=PAGE_SIZE_OFFSET,
            expected=f"a power of two from {PAGE_SIZE_MIN} to {PAGE_SIZE_MAX}",
            found=str(size),
            advice=advice,
        )
    # The engine tells an encrypted file by its inner text alone, damaged or not.
    return StaticHeader(size, write, read, magic == MAGIC, inner != MAGIC)


def decode_variable_header(page: bytes | memoryview) -> VariableHeader | None:
    """Decode the header in a whole page 1 or 2; None where its CRC-32 is wrong."""
    if len(page) < VARIABLE_HEADER.size:
        return None
    crc, *fields = VARIABLE_HEADER.unpack_from(page)
    return VariableHeader(*fields) if crc == crc32(page[4:]) else None


def checksum(page: bytes | bytearray | memoryview, page_id: int) -> tuple[int, int]:
    """Return the two checksum bytes: a sum over seven bytes of the page, mixed with its id."""
    size = len(page)
    # As Python's numbers: those of a NumPy array have eight bits, and their sum would overflow.
    first = 255 + int(page[0])
    second = 255 + first
    for at in (6, size // 2 - 1, size // 2, size - 2, size - 1):
        first += int(page[at])
        second += first
    return (
        (((first & 255) + (first >> 8)) ^ page_id) & 255,
        (((second & 255) + (second >> 8)) ^ (page_id >> 8)) & 255,
    )


def checksum_ok(page: bytes | memoryview, page_id: int) -> bool:
    """Return True if the page is empty (never tested) or its checksum fits."""
    return page[0] == EMPTY or (page[1], page[2]) == checksum(page, page_id)


def decode_trunk(page: bytes | memoryview, page_id: int) -> Trunk:
    """Decode a trunk page whose type and checksum were tested.

    Raises:
        CorruptLogError: it lists more data pages than fit.
    """
    _, _, _, previous, key, following, count = TRUNK_HEADER.unpack_from(page)
    capacity = trunk_capacity(len(page))
    if not 0 <= count <= capacity:
        raise CorruptLogError(
            f"trunk page {page_id} lists more data pages than fit",
            offset=page_id * len(page) + TRUNK_HEADER.size - 2,
            expected=f"0 to {capacity}",
            found=str(count),
            advice="The engine fails to open the database; restore it, or salvage the log",
        )
    ids = struct.unpack_from(f">{count}i", page, TRUNK_HEADER.size)
    return Trunk(page_id, previous, key, following, ids)


def decode_data_header(page: bytes | memoryview) -> tuple[int, int]:
    """Return trunk page id and log key of a log data page."""
    _, _, _, trunk, key = DATA_HEADER.unpack_from(page)
    return trunk, key
