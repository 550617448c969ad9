"""The control file of a compaction, and which files a load reads because of it.

In: the body of the one record in ``journal-rename-control.ctr``, and the names of the files of a
folder. Out: `Control`, and `plan`, the files that the next load reads and their names then.
Source: docs/formats/jboss.md, "Compaction". The body holds three lists of names, for each a count
i4 and the names: length i2, UTF-8 bytes. The third list holds pairs of names.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass

from tallystick.systems.jboss.format.file_names import COMPACTED
from tallystick.systems.jboss.format.layout import (
    I4,
    Item,
    RecordType,
    Shape,
    encode,
    encode_header,
)

_LENGTH = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Control:
    """What a load has to do first.

    Attributes:
        old: names of files to delete.
        new: names of compacted files, which lose their suffix.
        renames: (name, new name) of further files.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    renames: tuple[tuple[str, str], ...] = ()

    def moves(self) -> list[tuple[str, str]]:
        """Return (name, new name) of every file to rename, in order."""
        return [*((name, name.removesuffix(COMPACTED)) for name in self.new), *self.renames]


def encode_control(shape: Shape, control: Control) -> bytes:
    """Return the control file: a header with id 0 and one ADD record."""
    lists = [_pack_names(control.old), _pack_names(control.new), I4.pack(len(control.renames))]
    lists += [_pack_name(name) for pair in control.renames for name in pair]
    item = Item(0, 0, RecordType.ADD, 0, 0, record_id=1, user_type=0, body=b"".join(lists))
    return encode_header(shape, 0) + encode(shape, item)


def decode_orders(body: memoryview) -> Control | None:
    """Return the orders in the body of the control file's record; None if it holds no orders."""
    try:
        old, at = _unpack_names(body, 0)
        new, at = _unpack_names(body, at)
        flat, at = _unpack_names(body, at, 2)
    except (struct.error, UnicodeDecodeError):
        return None
    return Control(old, new, tuple(zip(flat[::2], flat[1::2], strict=True)))


def plan(names: Collection[str], control: Control | None, extension: str) -> dict[str, str]:
    """Return the files that a load reads: stored name -> name after ``control`` was carried out."""
    stay = {name: name for name in names if name.endswith("." + extension)}
    if control is None:
        return stay
    for name in control.old:
        stay.pop(name, None)
    for source, target in control.moves():
        if source in names:
            stay = {name: final for name, final in stay.items() if final != target}
            stay[source] = target
    return {name: final for name, final in stay.items() if final.endswith("." + extension)}


def _unpack_names(body: memoryview, at: int, each: int = 1) -> tuple[tuple[str, ...], int]:
    (count,) = I4.unpack_from(body, at)
    at += I4.size
    names = []
    if each * count * _LENGTH.size > len(body) - at:
        raise struct.error("more names than bytes")
    for _ in range(each * count):
        (size,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if at + size > len(body):
            raise struct.error("a name reaches beyond the body")
        names.append(bytes(body[at : at + size]).decode())
        at += size
    return tuple(names), at


def _pack_names(names: tuple[str, ...]) -> bytes:
    return I4.pack(len(names)) + b"".join(_pack_name(name) for name in names)


def _pack_name(name: str) -> bytes:
    raw = name.encode()
    return _LENGTH.pack(len(raw)) + raw
