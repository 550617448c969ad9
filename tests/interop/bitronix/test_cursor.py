"""Our emulation of the real cursor against the real one, over files with random damage."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tallystick.systems.bitronix.engine.cursor_v2 import RandomAccessCursor
from tallystick.systems.bitronix.engine.events import Accepted, Refused, singles
from tests.interop.bitronix.original import dump_cursor
from tests.systems.bitronix.logs import file_bytes, record

pytestmark = pytest.mark.interop

FILES = 400
LENGTHS = (0, -1, 5, 28, 29, 51, -(1 << 31), 2 - (1 << 31), (1 << 31) - 1, 100, 8184, 40_000)


def test_the_cursor_says_what_the_original_says_about_random_damage(tmp_path: Path) -> None:
    rng = random.Random(11)
    files = {}
    for number in range(FILES):
        path = tmp_path / str(number)
        files[path] = _damaged(rng)
        path.write_bytes(files[path])
    reported = dump_cursor(list(files))
    for path, content in files.items():
        assert _ours(content) == reported[path], path.name


def _ours(content: bytes) -> list[str]:
    lines = []
    for event in singles(RandomAccessCursor(memoryview(content)).events()):
        if isinstance(event, Accepted):
            text, _, _ = str(event.record).rpartition(", endRecord=")  # the original leaves it out
            lines.append(f"{text}, end={event.record.end_record}")
        elif isinstance(event, Refused):
            lines.append(event.message)
        elif event.error is None:
            lines.append("end")
        else:
            lines.append(f"stop {event.error.java_class} {event.error.message or 'null'}")
    return lines


def _damaged(rng: random.Random) -> bytes:
    records = [
        record(
            rng.choice((0, 2, 3, 8, 42)),
            number,
            *(rng.choice("abc") * rng.choice((0, 1, 9, 300)) for _ in range(rng.randrange(4))),
            gtrid=rng.randbytes(rng.choice((0, 11, 22, 127))),
        )
        for number in range(rng.randrange(12))
    ]
    content = bytearray(file_bytes(records, 9_000, size=rng.choice((600, 4096, 9000))))
    offsets = [21]
    for one in records:
        offsets.append(offsets[-1] + one.size)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        _damage(content, offsets, rng)
    return bytes(content)


def _damage(content: bytearray, offsets: list[int], rng: random.Random) -> None:
    start = rng.choice(offsets)
    kind = rng.randrange(6)
    if kind == 0:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        struct.pack_into(">i", content, min(start, len(content) - 8) + 4, rng.choice(LENGTHS))
    elif kind == 2 and start + 28 < len(content):
        content[start + 28] = rng.randrange(256)
    elif kind == 3:
        size = min(rng.randrange(1, 200), max(0, len(content) - start))
        content[start : start + size] = bytes(size)
    elif kind == 4:
        position = rng.choice((0, 21, start, len(content) + 50, start + rng.randrange(200)))
        struct.pack_into(">q", content, 13, position)
    elif len(content) > 600:
        del content[rng.randrange(500, len(content)) :]
