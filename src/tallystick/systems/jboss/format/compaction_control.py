"""The control file of a compaction that a crash left half done, and what it orders.

In: the bytes of ``journal-rename-control.ctr`` and the names of the files of a folder. Out:
`plan`: which of them the next load reads, and under which names. Nothing is renamed here.
Source: sections 2.5 and 4.3 of the format.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass

from tallystick.systems.jboss.format.layout import (
    I4,
    SHAPES,
    Item,
    Name,
    Shape,
    decode,
    decode_header,
    encode,
    encode_header,
)
from tallystick.systems.jboss.read.scan import VALID, scan

COMPACTED = ".cmp"
TEMPORARY = ".tmp"
_NAME = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Control:
    """What a control file orders: files to delete, files to put in place, files to rename."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    renames: tuple[tuple[str, str], ...] = ()


def encode_control(shape: Shape, control: Control) -> bytes:
    """The control file: a header with id 0 and one ADD record."""
    lists = [_names(control.old), _names(control.new), I4.pack(len(control.renames))]
    lists += [_text(name) for pair in control.renames for name in pair]
    item = Item(0, 0, Name.ADD, 0, 0, record_id=1, user_type=0, body=b"".join(lists))
    return encode_header(shape, 0) + encode(shape, item)


def decode_control(data: memoryview) -> Control | None:
    """The orders of a control file, None if it holds no whole record: it is then ignored."""
    for shape in (SHAPES["g3"], SHAPES["hash"], SHAPES["g2"], SHAPES["g1d"]):
        if len(data) < shape.header_size:
            continue
        stamp = decode_header(shape, data).stamp
        for row in scan(data, shape, stamp):
            if row.status == VALID and data[row.offset] == Name.ADD:
                body = decode(shape, data, row.offset, row.size).body or b""
                return _orders(memoryview(body))
    return None


def plan(names: Collection[str], control: Control | None, extension: str) -> dict[str, str]:
    """Stored name -> name after the control file was carried out, of the files that stay."""
    stay = {name: name for name in names if name.endswith("." + extension)}
    if control is None:
        return stay
    for name in control.old:
        stay.pop(name, None)
    moves = [(name, name.removesuffix(COMPACTED)) for name in control.new]
    for source, target in (*moves, *control.renames):
        if source in names:
            stay = {name: final for name, final in stay.items() if final != target}
            stay[source] = target
    return {name: final for name, final in stay.items() if final.endswith("." + extension)}


def _orders(body: memoryview) -> Control | None:
    try:
        old, at = _read_names(body, 0)
        new, at = _read_names(body, at)
        flat, at = _read_names(body, at, 2)
    except (struct.error, UnicodeDecodeError):
        return None
    return Control(old, new, tuple(zip(flat[::2], flat[1::2], strict=True)))


def _read_names(body: memoryview, at: int, each: int = 1) -> tuple[tuple[str, ...], int]:
    (count,) = I4.unpack_from(body, at)
    at += I4.size
    names = []
    if each * count * _NAME.size > len(body) - at:
        raise struct.error("more names than bytes")
    for _ in range(each * count):
        (size,) = _NAME.unpack_from(body, at)
        at += _NAME.size
        if at + size > len(body):
            raise struct.error("a name reaches beyond the body")
        names.append(bytes(body[at : at + size]).decode())
        at += size
    return tuple(names), at


def _names(names: tuple[str, ...]) -> bytes:
    return I4.pack(len(names)) + b"".join(_text(name) for name in names)


def _text(name: str) -> bytes:
    raw = name.encode()
    return _NAME.pack(len(raw)) + raw
