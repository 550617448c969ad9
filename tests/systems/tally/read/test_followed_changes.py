"""A step that follows the changes of a native log gives those that it commits, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick.storage.files import FileSystem
from tallystick.testing import MemoryFileSystem
from tests.kit import read_in_runs
from tests.systems.tally.build import every_item, reading, tiny_log
from tests.systems.tally.read.test_closing import interleaved


def numbers_used_again() -> FileSystem:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for round_ in range(6):
        for item in every_item():
            ticket = log.submit(item)
            if round_ % 2:
                ticket.wait()
        log.append(bytes(3000)).wait()
    log.close()
    return fs


@pytest.mark.parametrize("in_runs", [True, False])
@pytest.mark.parametrize("written", [lambda: interleaved(20), numbers_used_again])
def test_steps_give_what_they_commit(
    written: Callable[[], FileSystem], in_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_runs(monkeypatch, always=in_runs)
    log = reading(written())
    every = list(log.changes())
    last = max(one.sequence or 0 for one in log.records())
    assert len(log.catalog.segments) > 2
    for after in range(0, last, 23):
        for until in (after + 23, last):
            expected = [one for one in every if after < one.commit_sequence <= until]
            assert list(log.changes_between(after, until)) == expected
