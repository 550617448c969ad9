"""What is wrong in a Bitronix journal, as its records prove it.

In: the two files of a journal. Out: patches of the timestamp and of the position in the header of
the file in use, where these are all; else of what opening a copy of the journal mends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from tallystick.errors import CorruptLogError, LogFormatError
from tallystick.storage.source import logical_name, open_source
from tallystick.systems.bitronix.format.layout import (
    CURRENT_POSITION_HEADER,
    DEFAULT_NAMES,
    HEADER_LENGTH,
    TIMESTAMP_HEADER,
)
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.bitronix.read.detect import part_number
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.bitronix.reader import BitronixReading
from tallystick.systems.protocol import LogSource, Patch, ReadOptions

_HEADER = frozenset({"stale-file-in-use", "swap-timestamp", "uncounted-record", "header-position"})
_OPENED = frozenset({"torn-tail", "damaged-record", "hole", "lost-behind-damage"})
_LATEST = (1 << 63) - 1
_CUT = (
    "a crash leaves an unfinished end before it is acknowledged: opening the journal cuts it off "
    "and keeps every whole record"
)


def patches(source: LogSource, options: ReadOptions) -> Iterator[Patch]:
    """Yield what mends a journal of two files.

    Raises:
        LogUnreadableError: a file cannot be read.
    """
    if len(source.files) != 2:
        return
    reading = BitronixReading(source, options)
    codes = {one.code for one in reading.findings()}
    if reading.judgement.reason == "same-time":  # nothing tells which file is in use
        return
    if not codes & (_HEADER | _OPENED) and not reading.verdict().differences:
        return
    with ExitStack() as opened:
        pair = _pair(source, opened)
        found = [*_timestamp(pair), *_position(pair)]
        if not found or codes & _OPENED:
            found = list(_opened(pair))
        if all(_agrees(pair, one) for one in found):
            yield from found


def _pair(source: LogSource, opened: ExitStack) -> DualFiles:
    parts = [
        Part(part_number(logical_name(path)) or at, path, opened.enter_context(one).data)
        for at, path in enumerate(source.files, 1)
        for one in (open_source(path),)
    ]
    first, second = sorted(parts, key=lambda part: part.number)
    return DualFiles((first, second))


def _timestamp(pair: DualFiles) -> Iterator[Patch]:
    """Yield a timestamp for the later file where the manager takes the other one, or it by chance.

    That of both files may be any number then, so it is the least that is greater than both and
    than every offset in the file, which 2.1.4 leaves there.
    """
    (one, two), later = (part.header for part in pair.parts), pair.order()[1]
    if one is None or two is None or later.path is None:
        return
    stamps = one.timestamp, two.timestamp
    taken = 1 if stamps[0] > stamps[1] else 2
    if (taken == later.number and not later.swap_defect) or max(stamps) >= _LATEST:
        return
    after = max(*stamps, later.size) + 1
    why = f"the records show that part {later.number} is the later file"
    yield Patch(later.path, TIMESTAMP_HEADER, after.to_bytes(8, "big", signed=True), why)


def _position(pair: DualFiles) -> Iterator[Patch]:
    """Yield the position after the last record of the later file if its header has another one.

    Where the header's is impossible only zeros may follow: nothing else tells records of an earlier
    life of the file.
    """
    later = pair.order()[1]
    if later.header is None or later.path is None:
        return
    end, spans = HEADER_LENGTH, (one for one in later.spans(pair.newest) if one.offset)
    damaged = False
    for span in spans:
        if span.whole is None:
            damaged = span.is_damage
            break
        end = span.end
    counted = HEADER_LENGTH <= later.header.position <= later.size
    if (end > later.header.position and not damaged) if counted else later.content_end <= end:
        why = f"whole records stand up to offset {end:,}"
        yield Patch(later.path, CURRENT_POSITION_HEADER, end.to_bytes(8, "big"), why)


def _agrees(pair: DualFiles, patch: Patch) -> bool:
    """Return whether the records show the same part as the later one after a patch of its header.

    Whole files need not be asked: which one is in use then is known to who wrote them.
    """
    if len(patch.data) > HEADER_LENGTH:
        return True
    parts = []
    for part in pair.parts:
        data = bytearray(part.data or b"")
        if part.path == patch.path:
            data[patch.offset : patch.offset + len(patch.data)] = patch.data
        parts.append(Part(part.number, part.path, memoryview(bytes(data))))
    return DualFiles((parts[0], parts[1])).order()[1].number == pair.order()[1].number


def _opened(pair: DualFiles) -> Iterator[Patch]:
    """Yield what opening a copy of the journal changes; nothing if that is refused."""
    with tempfile.TemporaryDirectory() as folder:
        for part, name in zip(pair.parts, DEFAULT_NAMES, strict=True):
            assert part.data is not None  # both are there
            Path(folder, name).write_bytes(part.data)
        with suppress(CorruptLogError, LogFormatError):
            DiskJournal(folder).close()
            for part, name in zip(pair.parts, DEFAULT_NAMES, strict=True):
                assert part.path is not None
                after = Path(folder, name).read_bytes()
                if after != bytes(part.data or b""):
                    yield Patch(part.path, 0, after, _CUT)
