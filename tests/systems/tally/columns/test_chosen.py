"""The changes that a part of a log commits are those of the whole log, for few of its bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tallystick.reading.filters import Filter
from tallystick.reading.tables import batches_of
from tallystick.storage.files import FileSystem
from tallystick.systems.protocol import Split
from tallystick.systems.tally.columns import splits
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.reader import TallyReading
from tallystick.testing import MemoryFileSystem
from tests.kit import read_in_runs
from tests.systems.tally.build import FOLDER, every_kind, reading
from tests.systems.tally.columns.test_splits import Cost
from tests.systems.tally.read.test_closing import interleaved
from tests.systems.tally.read.test_followed_changes import numbers_used_again


def _rows(one: TallyReading, split: Split | None) -> list[dict[str, Any]]:
    found = batches_of(one, "changes", split, rows=7)
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("in_runs", [True, False])
@pytest.mark.parametrize("written", [lambda: interleaved(20), numbers_used_again, every_kind])
def test_every_range_of_commits_has_its_changes(
    written: Callable[[], FileSystem], in_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "PART", 2_000)
    read_in_runs(monkeypatch, always=in_runs)
    log = reading(written())
    every, parts = _rows(log, None), 0
    last = max(one.sequence or 0 for one in log.records())
    for first in range(1, last, 11):
        for until in (first, first + 23, last):
            wanted = Filter(from_lsn=first, to_lsn=until)
            chosen = wanted.splits_in(log, "changes")
            parts += len(chosen or ())
            read: list[Split | None] = [None] if chosen is None else [*chosen]
            found = [row for one in read for row in _rows(log, one)]
            fitting = [row for row in found if first <= row["commit_sequence"] <= until]
            assert fitting == [row for row in every if first <= row["commit_sequence"] <= until]
            assert len({(row["commit_sequence"], row["ordinal"]) for row in found}) == len(found)
    assert parts


def _long() -> MemoryFileSystem:
    """Two sealed segments and more, of transactions of three rows that overlap."""
    fs = MemoryFileSystem()
    settings = Settings(segment_size=4 << 20, preallocate=False, idle_mark_s=None)
    log = TallyLog(FOLDER, settings=settings, fs=fs)
    number = 0
    while log.last_segment < 3:
        number += 1
        for key in range(3):
            log.submit(UnplacedRecord(Code.ADD, bytes(300), number - key, number))
        if number > 2:
            log.submit(UnplacedEnding(Code.COMMIT, number - 2)).wait()
    log.close()
    return fs


def test_one_percent_of_the_commits_costs_a_twentieth_of_the_bytes() -> None:
    fs = _long()
    log, cost = reading(fs), Cost(fs)
    every = _rows(log, None)
    # The middle one, so that what it needs of the part before it is counted, too.
    rows = every[len(every) // 2 :][: len(every) // 100]
    first, last = (row["commit_sequence"] for row in (rows[0], rows[-1]))
    wanted = Filter(from_lsn=first, to_lsn=last)
    few = TallyReading(log.source, access=replace(cost.reach))
    chosen = wanted.splits_in(few, "changes") or []
    found = [row for one in chosen for row in _rows(few, one)]
    assert [row for row in found if first <= row["commit_sequence"] <= last] == [
        row for row in every if first <= row["commit_sequence"] <= last
    ]
    size = sum(len(data) for data in fs.contents().values())
    assert cost.bytes < size // 20 + 3 * (64 << 10), f"{cost.bytes} of {size}"
