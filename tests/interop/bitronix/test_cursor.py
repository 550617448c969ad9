"""Our emulation of the real cursors against the real ones, over samples and random damage."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import pytest

from tallystick.systems.bitronix.engine.cursor_v2 import RandomAccessCursor
from tallystick.systems.bitronix.engine.cursor_v3 import PagedCursor
from tallystick.systems.bitronix.engine.events import Accepted, Event, Refused, Stop, singles
from tallystick.systems.bitronix.engine.opening import CODE_LINES
from tests.interop.bitronix.original import COORDINATES, NEW, dump_cursor
from tests.systems.bitronix.logs import CASES, file_bytes, parts_of, record

pytestmark = pytest.mark.interop

FILES = 400
CALLS_MAX = 5_000
"""Calls of the cursor for each file, as `DumpCursor` makes them."""
Cursor = Callable[[memoryview], RandomAccessCursor | PagedCursor]
LENGTHS = (0, -1, 5, 28, 29, 51, -(1 << 31), 2 - (1 << 31), (1 << 31) - 1, 100, 8184, 40_000)


def test_the_release_of_3_0_reads_every_sample_as_the_engine_says(tmp_path: Path) -> None:
    """The samples' oracle was the last state of 3.0 in version control; of 2.1.4 it is this jar."""
    parts = {
        f"{case}-{number}": data for case in CASES for number, data in enumerate(parts_of(case))
    }
    files = {tmp_path / name: data for name, data in parts.items() if data is not None}
    _check(files, NEW, CODE_LINES["3.0.0-SNAPSHOT"])


@pytest.mark.parametrize(
    ("line", "cursor"), [*zip(COORDINATES, CODE_LINES.values(), strict=True)], ids=COORDINATES
)
def test_the_cursor_says_what_the_original_says_about_random_damage(
    tmp_path: Path, line: str, cursor: Cursor
) -> None:
    rng = random.Random(11)
    _check({tmp_path / str(number): _damaged(rng) for number in range(FILES)}, line, cursor)


def _check(files: dict[Path, bytes], line: str, cursor: Cursor) -> None:
    for path, content in files.items():
        path.write_bytes(content)
    reported = dump_cursor(list(files), line)
    for path, content in files.items():
        events = islice(singles(cursor(memoryview(content)).events()), CALLS_MAX)
        assert _words(events) == reported[path], path.name


def _words(events: Iterable[Event]) -> list[str]:
    lines = []
    for event in events:
        if isinstance(event, Accepted):
            text, _, _ = str(event.record).rpartition(", endRecord=")  # the original leaves it out
            lines.append(f"{text}, end={event.record.end_record}")
        elif isinstance(event, Refused):
            lines.append(event.message)
        elif isinstance(event, Stop) and event.error is not None:
            lines.append(f"stop {event.error.java_class} {event.error.message or 'null'}")
        else:
            lines.append("end")
    return lines


def _damaged(rng: random.Random) -> bytes:
    records = [
        record(
            rng.choice((0, 2, 3, 8, 42)),
            number,
            *(
                rng.choice("abc") * rng.choice((0, 1, 9, 300, 300, 9_000))
                for _ in range(rng.randrange(4))
            ),
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
