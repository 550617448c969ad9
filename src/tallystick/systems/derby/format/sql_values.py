"""SQL types and values as Derby stores them in rows and in its catalogue.

In: the bytes of a field. Out: a type with its name in SQL and in Spark, or a plain value whose text
such a type holds: dates and decimal numbers as text, bytes as hex digits. Source:
docs/formats/derby.md, section "Values and types".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from tallystick.errors import LogFormatError
from tallystick.systems.derby.format.compressed_numbers import Cursor

Plain = str | int | float | bool | None

_TYPE_DESCRIPTOR = 14
_DECIMAL_TYPE = 198
_TAIL = struct.Struct(">iibi")
"""Precision, scale or collation, whether nulls are allowed, width: the end of a type."""

_TEXT_END = b"\xe0\0\0"
_CLOB_HEADER = 5
_CLOB_MAGIC = 0xF0
_TIME = struct.Struct(">BBBB")
_DATE = struct.Struct(">HBB")


@dataclass(frozen=True, slots=True)
class SqlType:
    """The type of a column: as declared, as `Column.kind`, how its values are read, who gives them.

    Attributes:
        declared: its type in SQL.
        kind: as of `Column`.
        read: decodes a value.
        computed: as of `Column`.
        counted: as of `Column`.
    """

    declared: str
    kind: str
    read: Callable[[bytes], Plain]
    computed: bool = False
    counted: bool = False


def read_type(data: bytes) -> SqlType:
    """Decode the column ``COLUMNDATATYPE`` of ``SYS.SYSCOLUMNS``; raises `LogFormatError`."""
    cursor = Cursor(data)
    cursor.expect(_TYPE_DESCRIPTOR, "type of a column")
    if cursor.uint(2) == _DECIMAL_TYPE:
        cursor.uint(1)
    name = cursor.utf()
    if cursor.left < _TAIL.size:
        raise LogFormatError("the type of a column ends early", found=data.hex())
    precision, scale, _, width = _TAIL.unpack(data[-_TAIL.size :])
    declared = name
    if name in ("DECIMAL", "NUMERIC"):
        return SqlType(f"{name}({precision},{scale})", f"decimal({precision},{scale})", _decimal)
    if name in _WITH_WIDTH:
        declared = f"{name}({width})"
    elif " () " in name:
        declared = name.replace(" () ", f" ({width}) ")
    kind, read = _TYPES.get(name, ("string", bytes.hex))
    return SqlType(declared, kind, read)


def read_text(data: bytes) -> str:
    """Decode a CHAR, VARCHAR or LONG VARCHAR; raises `LogFormatError`."""
    size, raw = int.from_bytes(data[:2]), data[2:]
    if size and size != len(raw):
        raise LogFormatError("a text of another length", expected=str(size), found=str(len(raw)))
    return _modified_utf(raw)


def _clob(data: bytes) -> str:
    if len(data) < _CLOB_HEADER or data[2] != _CLOB_MAGIC:  # before Derby 10.5
        return read_text(data)
    size = int.from_bytes(data[:2] + data[3:_CLOB_HEADER])
    text = _modified_utf(data[_CLOB_HEADER:])
    units = len(text) + sum(ord(one) > 0xFFFF for one in text)
    if size and units != size:
        raise LogFormatError("a CLOB of another length", expected=str(size), found=str(units))
    return text


def _modified_utf(raw: bytes) -> str:
    raw = raw.removesuffix(_TEXT_END).replace(b"\xc0\x80", b"\0")
    try:
        units = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise LogFormatError("no modified UTF-8", found=raw[:64].hex()) from error
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _xml(data: bytes) -> str:
    return read_text(data[2:])


def _binary(data: bytes) -> str:
    head = data[0] if data else 0
    if not head & 0x80:  # of an unknown length, or of Derby before 10.0
        start, size = 4, int.from_bytes(data[:4])
    elif head == 0xC0:
        start, size = 5, int.from_bytes(data[1:5])
    elif head == 0xA0:
        start, size = 3, int.from_bytes(data[1:3])
    else:
        start, size = 1, head & 0x1F
    if (size and size != len(data) - start) or len(data) < start:
        found = f"{len(data)} with {start} before them"
        raise LogFormatError("other bytes than stated", expected=str(size), found=found)
    return data[start:].hex()


def _number(data: bytes) -> int:
    return int.from_bytes(data, signed=True)


def _unpacked(form: struct.Struct, data: bytes) -> tuple[int, ...]:
    if len(data) < form.size:
        raise LogFormatError("a value ends early", expected=f"{form.size} bytes", found=data.hex())
    return form.unpack(data[: form.size])


def _real(data: bytes) -> float:
    return _unpacked(struct.Struct(">f"), data)[0]


def _double(data: bytes) -> float:
    return _unpacked(struct.Struct(">d"), data)[0]


def _boolean(data: bytes) -> bool:
    return data != b"\0"


def _decimal(data: bytes) -> str:
    if len(data) < 2 or data[1] != len(data) - 2:
        raise LogFormatError("a DECIMAL of another length", found=data.hex())
    number, scale = _number(data[2:]), data[0]
    # Not by Decimal, whose arithmetic rounds to 28 digits unless told otherwise.
    digits = f"{abs(number):0{scale + 1}}"
    point = len(digits) - scale
    return f"{'-' * (number < 0)}{digits[:point]}{'.' * (scale > 0)}{digits[point:]}"


def _date(data: bytes) -> str:
    year, month, day = _unpacked(_DATE, data)
    return f"{year:04}-{month:02}-{day:02}"


def _time(data: bytes) -> str:
    _, hours, minutes, seconds = _unpacked(_TIME, data)
    return f"{hours:02}:{minutes:02}:{seconds:02}"


def _timestamp(data: bytes) -> str:
    """Nine digits of a second where the last three, which Spark has not, are not zero."""
    nanoseconds = f"{int.from_bytes(data[8:12]):09}"
    return f"{_date(data)} {_time(data[4:])}.{nanoseconds.removesuffix('000')}"


_WITH_WIDTH = frozenset({"CHAR", "VARCHAR", "CLOB", "BLOB"})

_TYPES: dict[str, tuple[str, Callable[[bytes], Plain]]] = {
    "SMALLINT": ("smallint", _number),
    "INTEGER": ("int", _number),
    "BIGINT": ("bigint", _number),
    "REAL": ("float", _real),
    "DOUBLE": ("double", _double),
    "BOOLEAN": ("boolean", _boolean),
    "CHAR": ("string", read_text),
    "VARCHAR": ("string", read_text),
    "LONG VARCHAR": ("string", read_text),
    "CLOB": ("string", _clob),
    "XML": ("string", _xml),
    "DATE": ("date", _date),
    "TIME": ("string", _time),
    "TIMESTAMP": ("timestamp_ntz", _timestamp),
    "CHAR () FOR BIT DATA": ("binary", _binary),
    "VARCHAR () FOR BIT DATA": ("binary", _binary),
    "LONG VARCHAR FOR BIT DATA": ("binary", _binary),
    "BLOB": ("binary", _binary),
}
"""By Derby's own name: the kind in Spark, and how a value is read. Others are shown as hex."""
