"""Files in the place of others: older copies, other logs', and those recycled under a reader."""

from __future__ import annotations

import contextlib

import pytest

from tallystick.errors import CorruptLogError, LogUnreadableError, TallystickError
from tallystick.records import Outcome
from tallystick.systems.tally.format.layout import CONTROL_NAME
from tallystick.systems.tally.live.tail import Tail
from tallystick.testing import MemoryFileSystem
from tests.systems.tally.build import FOLDER, bodies, reading, segments_of_plain, tiny_log

COUNT = 45
SIZE = 900
CONTROL = f"{FOLDER}/{CONTROL_NAME}"


def _body(number: int) -> bytes:
    return b"%06d" % number + bytes([number % 251]) * SIZE


def _history() -> list[dict[str, bytes]]:
    """A log's files as they were after each of its records, and at last when it was closed."""
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    found = []
    for number in range(COUNT):
        log.append(_body(number)).wait()
        found.append(fs.contents())
    log.close()
    return [*found, fs.contents()]


def _opened(files: dict[str, bytes]) -> list[bytes] | None:
    """The bodies in a log after it was opened for writing; None if that was refused."""
    fs = MemoryFileSystem(files)
    try:
        tiny_log(fs).close()
    except (CorruptLogError, LogUnreadableError):
        assert fs.contents() == files, "a refused log was changed"
        return None
    return bodies(reading(fs).records())


def test_older_copy_of_any_one_file_is_refused_or_loses_nothing() -> None:
    *older, last = _history()
    every = [_body(number) for number in range(COUNT)]
    assert len(last) > 4
    refused = tried = 0
    for files in older:
        for path, content in files.items():
            if path not in last or last[path] == content:
                continue
            tried += 1
            found = _opened(last | {path: content})
            refused += found is None
            assert found in (None, every), path
    assert refused > COUNT // 2
    assert tried > refused, "an older control block alone loses nothing"


def _siblings() -> tuple[dict[str, bytes], dict[str, bytes], list[str]]:
    """The files of two copies of a log that went their own ways, and the paths of segments.

    Both have one identity, and their segments begin with the same records.
    """
    begun = MemoryFileSystem()
    log = tiny_log(begun)
    log.append(_body(0)).wait()
    log.close()
    last = []
    for own in (1000, 2000):
        fs = MemoryFileSystem(begun.contents())
        log = tiny_log(fs)
        for number in range(COUNT):
            log.append(_body(own + number)).wait()
        log.close()
        last.append(fs.contents())
    one, other = last
    exchanged = [path for path in one if path != CONTROL and path.endswith(".tally")]
    assert len(exchanged) > 4
    return one, other, sorted(exchanged)


def test_segment_of_a_copy_that_went_its_own_way_is_refused() -> None:
    one, other, exchanged = _siblings()
    for path in exchanged:
        assert _opened(one | {path: other[path]}) is None, path


def test_follower_ends_at_a_segment_of_a_copy_that_went_its_own_way() -> None:
    one, other, exchanged = _siblings()
    own = [_body(0), *(_body(1000 + number) for number in range(COUNT))]
    for path in exchanged[1:]:  # the first one begins the log: nothing stands before it
        tail = Tail(FOLDER, fs=MemoryFileSystem(one | {path: other[path]}))
        found: list[bytes] = []
        with pytest.raises(CorruptLogError, match="another copy of the log"):
            found.extend(record.body for record in tail.read())
        tail.close()
        assert 0 < len(found) < len(own)
        assert found == own[: len(found)], path


def test_control_block_of_another_log_is_refused() -> None:
    files = segments_of_plain().contents()
    for other in (segments_of_plain(5), segments_of_plain(60)):
        stranger = other.contents()[CONTROL]
        assert _opened(files | {CONTROL: stranger}) is None
        half = stranger[:4096] + files[CONTROL][4096:]
        assert _opened(files | {CONTROL: half}) in (None, _opened(files))


def test_segment_under_the_number_of_another_is_refused() -> None:
    files = segments_of_plain(60).contents()
    paths = sorted(path for path in files if path != CONTROL and path.endswith(".tally"))
    for one in paths:
        for other in paths:
            if one != other:
                assert _opened(files | {one: files[other]}) is None


@pytest.mark.parametrize("read", [0, 1, 7, 20])
def test_reader_of_a_log_that_recycles_meanwhile_gives_no_wrong_record(read: int) -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for number in range(COUNT):
        log.append(_body(number)).wait()
    one = reading(fs)
    assert one.catalog.segments
    records = one.records()
    found = [next(records) for _ in range(read)]
    for number in range(COUNT, 3 * COUNT):
        log.append(_body(number)).wait()
        log.reclaim(log.next_lsn)
    with contextlib.suppress(TallystickError):
        found += records
    for record in found:
        if record.outcome is Outcome.VALID:
            assert record.body == _body((record.sequence or 0) - 1)
    log.close()
