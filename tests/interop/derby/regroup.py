"""The same records in other groups: every instant moves, and all that points to one with it."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from pathlib import Path

from tallystick.storage.local import LOCAL
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import (
    CHECKSUM_RECORD_SIZE,
    HEADER_SIZE,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    Group,
    decode_control,
    make_instant,
)
from tallystick.systems.derby.format.operations import encode_operation
from tallystick.systems.derby.format.record_body import Body, encode_body
from tallystick.systems.derby.live.access_file import LogAccessFile
from tallystick.systems.derby.live.files import LogFolder
from tests.systems.derby.logs import reading_of


def regroup(database: Path, per_group: int) -> None:
    """Write the one log file anew with so many records in a group; 0: no checksum records."""
    bodies = [
        (one.place, one.body, one.clear or b"")
        for one in reading_of(database).scan.ranges()
        if one.body is not None and not one.body.group & Group.CHECKSUM
    ]
    moved = _new_places(bodies, per_group)
    path = database / "log" / "log1.dat"
    content = bytearray(path.stat().st_size)
    content[:HEADER_SIZE] = path.read_bytes()[:HEADER_SIZE]
    file = _Memory(content)
    writer = LogAccessFile(file, HEADER_SIZE, checksums=per_group > 0)
    end = HEADER_SIZE
    for index, (place, body, raw) in enumerate(bodies):
        fresh = _adjusted(body, raw, moved)
        assert len(fresh) == len(raw)
        end += writer.reserve_space_for_checksum(len(fresh), 1, end)
        assert make_instant(1, end) == moved[place]
        writer.write_log_record(len(fresh), moved[place], fresh)
        end += len(fresh) + LOG_RECORD_FIXED_OVERHEAD_SIZE
        if per_group and index % per_group == per_group - 1:
            writer.flush_log_access_file()
    writer.flush_log_access_file()
    path.write_bytes(content)
    _move_controls(database, moved)


class _Memory:
    def __init__(self, content: bytearray) -> None:
        self.content = content

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:
        self.content[offset : offset + len(data)] = data

    def datasync(self) -> None: ...

    def close(self) -> None: ...


def _new_places(bodies: list[tuple[int, Body, bytes]], per_group: int) -> dict[int, int]:
    """New instants by old ones; bodies keep their sizes, as all instants are in one range."""
    moved, end = {}, HEADER_SIZE
    for index, (place, _, raw) in enumerate(bodies):
        if per_group and index % per_group == 0:
            end += CHECKSUM_RECORD_SIZE
        moved[place] = make_instant(1, end)
        end += len(raw) + LOG_RECORD_FIXED_OVERHEAD_SIZE
    return moved


def _adjusted(body: Body, raw: bytes, moved: dict[int, int]) -> bytes:
    if body.undo is not None:
        return raw[: body.head] + moved[body.undo].to_bytes(8)
    if body.operation != operations.CHECKPOINT:
        return raw
    table = [
        entry | {"first": moved[entry["first"]], "last": moved.get(entry["last"])}
        for entry in body.fields["transactionTable"]
    ]
    fields = {
        "redoLWM": _mark(body.fields["redoLWM"], moved),
        "undoLWM": _mark(body.fields["undoLWM"], moved),
        "transactionTable": table,
    }
    operation = encode_operation(operations.CHECKPOINT, fields)
    assert body.transaction is not None
    return encode_body(body.group, body.transaction, operation)


def _mark(old: int, moved: dict[int, int]) -> int:
    """A mark is the next free place; its record is the first one from there on."""
    places = list(moved)
    return moved[places[bisect_left(places, old)]]


def _move_controls(database: Path, moved: dict[int, int]) -> None:
    for lock in database.glob("*.lck"):
        lock.unlink()
    folder = LogFolder(str(database / "log"), LOCAL)
    try:
        control = decode_control((database / "log/log.ctrl").read_bytes())
        folder.write_control(dataclasses.replace(control, checkpoint=moved[control.checkpoint]))
    finally:
        folder.close()
