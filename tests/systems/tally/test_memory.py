"""Memory is bounded by segments and by open work, never by the length of the log.

Python's own allocations are counted (`tracemalloc`), so that no page cache and no other test gets
into the figure. What may grow is a few hundred bytes for each segment: its place in the catalog.
"""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.storage.local import LOCAL
from tallystick.systems.tally.live.roles.journal import TallyJournal, open_journal
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.reader import TallyReading
from tests.systems.tally.build import reading as read
from tests.systems.tally.build import say

SETTINGS = Settings(
    segment_size=128 << 10, group_bytes=32 << 10, preallocate=False, idle_mark_s=None
)
SMALL, LARGE = 12, 240
"""Segments of both logs; what is compared is the peak of doing something with each of them."""
SEGMENT_BYTES = 2 << 10
"""Most bytes of memory per segment: 1/8192 of one of the default size."""
BATCH_BYTES = 2 << 20
"""What batches take once they have all of their rows, and a few cached columns."""
BODY = bytes(1000)


def fill(journal: TallyJournal, segments: int) -> None:
    """Plain records, records that come and go, transactions that end either way."""
    number = 0
    while journal.log.last_segment < segments:
        number += 1
        journal.append_many([BODY] * 90)
        for step in range(4):
            key = 4 * number + step
            journal.add_in(key, key, BODY)
            journal.update_in(key, key, BODY)
            journal.delete_in(key, key)
            journal.commit(key) if step % 2 else journal.rollback(key)
        journal.add(-number, BODY)
        journal.delete(-number)
        journal.flush()


def reading(path: Path) -> TallyReading:
    return read(LOCAL, folder=str(path))


def append(path: Path) -> None:
    segments = SMALL if "small" in path.name else LARGE
    journal = open_journal(str(path.with_suffix(".appended")), settings=SETTINGS)
    fill(journal, segments)
    journal.close()
    shutil.rmtree(journal.log.path)


def reopen(path: Path) -> None:
    open_journal(str(path), settings=SETTINGS).close()


def replay(path: Path) -> None:
    journal = open_journal(str(path), settings=SETTINGS)
    for record in journal.records():
        assert record.sequence
    assert list(journal.live_records()) == []
    journal.close()


def verdict(path: Path) -> None:
    strict = reading(path).verdict().strict
    assert not strict["findings"]
    assert strict["transactions"]["committed"] == strict["transactions"]["rolled_back"]


def batches(path: Path) -> None:
    for batch in reading(path).batches():
        assert batch.num_rows


def changes(path: Path) -> None:
    for change in reading(path).changes():
        assert change.commit_sequence


def files(path: Path) -> None:
    for file in reading(path).files():
        assert file.spans


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small log and one that is twenty times as long."""
    folder = tmp_path_factory.mktemp("memory")
    for name, segments in (("small", SMALL), ("large", LARGE)):
        journal = open_journal(str(folder / name), settings=SETTINGS)
        fill(journal, segments)
        journal.close()
    return folder / "small", folder / "large"


def peak(work: Callable[[Path], None], path: Path) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        work(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("work", "allowed"),
    [
        (append, 0), (reopen, 0), (replay, 0), (verdict, 0), (files, 0), (changes, 0),
        (batches, BATCH_BYTES),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)  # fmt: skip
def test_log_twenty_times_as_long_takes_no_more_memory(
    work: Callable[[Path], None],
    allowed: int,
    logs: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    small, large = logs
    work(small)  # what is imported and cached is not the log's
    before, after = peak(work, small), peak(work, large)
    limit = before * 1.1 + (LARGE - SMALL) * SEGMENT_BYTES + allowed
    if after >= limit:  # the interpreter's table of names may have grown, by megabytes at a time
        after = peak(work, large)
    say(capsys, f"{work.__name__}: {before >> 10} KiB, twenty times the log {after >> 10} KiB")
    assert after < limit
