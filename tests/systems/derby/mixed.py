"""Derby logs of mixed operations by a seed: interleaved transactions, undo, checkpoints, boots."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tallystick.records import Xid
from tallystick.storage.crc import crc32
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Container, Page
from tallystick.systems.derby.format.layout import (
    CHECKSUM_RECORD_SIZE,
    Control,
    Group,
    encode_checksum_body,
    encode_control,
    encode_header,
    encode_record,
    make_instant,
)
from tallystick.systems.derby.format.operations import encode_begin, encode_end, encode_operation
from tallystick.systems.derby.format.record_body import encode_body

FILE_SIZE = 8000
"""Bytes after which the next file begins."""
_PREALLOCATED = 100_000
_RAW = Group.RAWSTORE
_CONTAINERS = (1168, 1200, 70_000)


def written(files: Mapping[str, bytes], folder: Path) -> Path:
    """Write files to a new folder."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


class MixedLog:
    """Makes the files of a log.

    Args:
        seed: decides everything.
        files: how many there are at most.
        steps: records, about.
        checkpoints, reboots: whether there are some.
        gaps: whether pages skip versions.
        branches: whether transactions have global ids.
    """

    def __init__(
        self,
        seed: int,
        files: int,
        steps: int,
        *,
        checkpoints: bool,
        reboots: bool,
        gaps: bool,
        branches: bool = True,
    ) -> None:
        self._chance = random.Random(seed)
        self._files, self._gaps, self._branches = files, gaps, branches
        self._checkpoints, self._reboots = checkpoints, reboots
        self._number, self._checkpoint = 1, 0
        self._data = bytearray(encode_header(1, 0))
        self._group = b""
        self._open: dict[int, _Open] = {}
        self._next = 7
        self._versions: dict[Page, int] = {}
        self.files: dict[str, bytes] = {}
        for _ in range(steps):
            self._step()
        self._flush()
        self._close(max(_PREALLOCATED - len(self._data), 5000))
        for name in ("log.ctrl", "logmirror.ctrl"):
            self.files[name] = encode_control(Control(self._checkpoint))

    def _step(self) -> None:
        chance = self._chance
        if not self._open or chance.random() < 0.2:
            self._begin()
        else:
            number = chance.choice(list(self._open))
            how = chance.choices(
                (self._change, self._undo, self._create, self._prepare, self._end),
                (50, 5, 2, 5, 15),
            )[0]
            if not self._open[number].prepared or how == self._end:
                how(number)
        if chance.random() < 0.02 and self._checkpoints:
            self._make_checkpoint()
        if chance.random() < 0.3:
            self._flush()
        if chance.random() < 0.01 and self._reboots:
            self._open.clear()
            self._next = 7
        if self._number < self._files and len(self._data) > FILE_SIZE:
            self._flush()
            self._switch()

    # -- writing -----------------------------------------------------------------------------

    def _add(self, group: int, number: int, operation: bytes, **tail: Any) -> int:
        place = self._here()
        body = encode_body(_RAW | group, number, operation, **tail)
        self._group += encode_record(place, body + b"pad" * (self._chance.random() < 0.02))
        return place

    def _here(self) -> int:
        position = len(self._data) + CHECKSUM_RECORD_SIZE + len(self._group)
        return make_instant(self._number, position)

    def _flush(self) -> None:
        if self._group:
            checksum = encode_checksum_body(len(self._group), crc32(self._group))
            place = make_instant(self._number, len(self._data))
            self._data += encode_record(place, checksum) + self._group
            self._group = b""

    def _close(self, zeros: int) -> None:
        self.files[f"log{self._number}.dat"] = bytes(self._data) + bytes(zeros)

    def _switch(self) -> None:
        end = make_instant(self._number, len(self._data))
        self._close(4)
        self._number += 1
        self._data = bytearray(encode_header(self._number, end))

    # -- records -----------------------------------------------------------------------------

    def _begin(self) -> None:
        number = self._next
        self._next += self._chance.choice((1, 1, 2, 70, 20_000))
        xid = self._xid() if self._chance.random() < 0.3 and self._branches else None
        status = operations.STATUS_INTERNAL if self._chance.random() < 0.1 else 0
        first = self._add(Group.FIRST, number, encode_begin(status, xid))
        self._open[number] = _Open(first, xid)

    def _xid(self) -> Xid:
        chance = self._chance
        gtrid, bqual = chance.randbytes(chance.randrange(1, 64)), chance.randbytes(5)
        return Xid(chance.randrange(-5, 100), gtrid, bqual)

    def _change(self, number: int) -> None:
        chance = self._chance
        operation, make = chance.choice(_CHANGES)
        page = self._page()
        fields, tail = make(chance)
        version = self._versions.get(page, chance.randrange(40_000))
        fields |= {"pageId": page, "pageVersion": version}
        self._versions[page] = version + fields.get("num_rows", 1) + self._missing()
        tail = tail if chance.random() < 0.97 else chance.randbytes(9)
        group = Group.XA_NEEDLOCK if chance.random() < 0.5 else Group(0)
        encoded = encode_operation(operation, fields)
        self._open[number].changes.append(self._add(group, number, encoded, optional=tail))

    def _missing(self) -> int:
        return 3 if self._gaps and self._chance.random() < 0.05 else 0

    def _page(self) -> Page:
        chance = self._chance
        return Page(chance.choice((0, 0, 1)), chance.choice(_CONTAINERS), chance.randrange(1, 20))

    def _undo(self, number: int) -> None:
        changes = self._open[number].changes
        if not changes:
            return
        last = self._chance.random() < 0.8
        place = changes.pop() if last else self._chance.choice(changes)
        page = self._page()
        version = self._versions.get(page, 5)
        self._versions[page] = version + 1
        fields = {"pageId": page, "pageVersion": version}
        encoded = encode_operation(operations.PHYSICAL_UNDO, fields)
        self._add(Group.COMPENSATION, number, encoded, undo=place)

    def _create(self, number: int) -> None:
        container = Container(0, self._chance.choice(_CONTAINERS))
        fields = {
            "containerId": container,
            "containerVersion": 1,
            "operation": operations.CONTAINER_CREATE,
            "createByteArray": "00ff",
        }
        self._add(0, number, encode_operation(operations.CONTAINER_CHANGE, fields))

    def _prepare(self, number: int) -> None:
        one = self._open[number]
        if one.xid is not None:
            one.prepared = True
            self._add(Group.PREPARE, number, encode_end(operations.STATUS_PREPARED, one.xid))

    def _end(self, number: int) -> None:
        one = self._open.pop(number)
        if self._chance.random() < 0.8:
            group, status = Group.COMMIT, operations.STATUS_COMMITTED
        else:
            group, status = Group.ABORT, operations.STATUS_ABORTED
        self._add(Group.LAST | group, number, encode_end(status, one.xid))

    def _make_checkpoint(self) -> None:
        table = [
            {"xid": number, "gid": one.xid, "first": one.first, "last": None, "status": 2}
            for number, one in self._open.items()
        ]
        number = self._next
        self._next += 1
        self._add(Group.FIRST, number, encode_begin(operations.STATUS_INTERNAL, None))
        here = self._here()
        undo = min((one.first for one in self._open.values()), default=here)
        redo = here if number % 2 else undo
        fields = {"redoLWM": redo, "undoLWM": undo, "transactionTable": table}
        self._add(0, number, encode_operation(operations.CHECKPOINT, fields))
        self._add(Group.LAST | Group.COMMIT, number, encode_end(operations.STATUS_COMMITTED, None))
        self._checkpoint = here


@dataclass(slots=True)
class _Open:
    first: int
    xid: Xid | None
    prepared: bool = False
    changes: list[int] = field(default_factory=list)


_Made = tuple[dict[str, Any], bytes]


def _row(chance: random.Random) -> bytes:
    fields = [_field(chance) for _ in range(chance.randrange(1, 4))]
    return bytes((0, chance.randrange(6, 60), len(fields))) + b"".join(fields)


def _field(chance: random.Random) -> bytes:
    data = chance.randbytes(chance.randrange(90))
    plain = b"\0" + (b"" if len(data) < 64 else b"\x40") + len(data).to_bytes(1) + data
    fixed = b"\x20" + len(data).to_bytes(2) + data
    return chance.choice((b"\1", b"\5", plain, plain, fixed))


def _of_row(tail: Callable[[random.Random], bytes], chance: random.Random, **fields: Any) -> _Made:
    undo = chance.choice((None, None, "B2IUndo"))
    record = chance.choice((6, 70, 20_000))
    return {"recordId": record, "undo": undo, "doMeSlot": 3, **fields}, tail(chance)


def _deleted(chance: random.Random) -> _Made:
    image = chance.choice((b"", _row(chance)))
    return _of_row(lambda _: image, chance, delete=chance.random() < 0.8)


def _purged(chance: random.Random) -> _Made:
    records = [chance.randrange(30_000) for _ in range(chance.randrange(4))]
    return {"slot": 1, "num_rows": len(records), "recordIds": records}, _row(chance)


def _copied(chance: random.Random) -> _Made:
    count = chance.randrange(4)
    lists = {"recordIds": [1] * count, "reservedSpace": [300] * count}
    return {"num_rows": count, "destSlot": 1, **lists}, _row(chance)


def _fixed(_: random.Random, **fields: Any) -> _Made:
    return fields, b""


_INSERTED = partial(_of_row, _row, insertFlag=1)
_CHANGES: list[tuple[int, Callable[[random.Random], _Made]]] = [
    *[(operations.INSERT, _INSERTED)] * 4,
    (operations.DELETE, _deleted),
    (operations.UPDATE_FIELD, partial(_of_row, lambda _: b"\0\3abc\1", fieldId=2)),
    (operations.UPDATE_ROW, lambda chance: ({"doMeSlot": 1, "recordId": 9}, _row(chance) * 2)),
    (operations.PURGE, _purged),
    (operations.COPY_ROWS, _copied),
    (operations.INVALIDATE_PAGE, _fixed),
    (operations.ALLOC_PAGE, partial(_fixed, newPageNumber=3, doStatus=1, undoStatus=2)),
    (operations.COMPRESS_SPACE, partial(_fixed, newHighestPage=3, num_pages_truncated=2)),
]
