"""What reads the files of an open journal where no descriptor is left: a documented error.

It names the log by its path, however the log reaches its files.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallystick.errors import LogFullError, LogUnreadableError, UnsupportedFormatError
from tallystick.services.journal import Journal

CALLS: dict[str, Callable[[Journal], object]] = {
    "replay": lambda journal: list(journal.replay()),
    "follow": lambda journal: list(journal.follow(idle_s=0.01)),
    "live_records": lambda journal: list(journal.live_records()),
    "prepared": lambda journal: journal.prepared(),
    "checkpoint": lambda journal: journal.checkpoint(),
    "compact": lambda journal: journal.compact(force=True),
}


@contextlib.contextmanager
def descriptors(left: int) -> Iterator[None]:
    """Have the process open no more than so many others."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for one in taken[len(taken) - left :]:
            os.close(one)
        del taken[len(taken) - left :]
        yield
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["tally", "shared", "jboss"])
def test_a_call_that_finds_no_descriptor_names_the_log(
    kind: str, call: str, left: int, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    with Journal(path, system=kind.replace("shared", "tally"), shared=kind == "shared") as journal:
        journal.append(b"first")
        journal.add(7, b"live")
        with descriptors(left):
            try:
                CALLS[call](journal)
                refusal = None
            except (LogUnreadableError, LogFullError, UnsupportedFormatError) as error:
                refusal = str(error)
        assert refusal is None or refusal.startswith(str(path))
        assert refusal is None or "Too many open files" in refusal or kind == "jboss"
        CALLS["live_records"](journal)
        journal.append(b"second")
        assert len(list(journal.replay())) >= 3
