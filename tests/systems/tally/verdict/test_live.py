"""Verdicts on a log whose writer goes on while it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tallystick import Journal
from tallystick.reading.discovery import discover
from tallystick.reading.results import is_severe
from tallystick.records import Answer
from tallystick.systems.registry import system
from tallystick.systems.tally.read.files import FileAccess
from tallystick.systems.tally.reader import TallyReading


@pytest.mark.parametrize("count", [1, 3])
def test_a_log_that_grows_before_each_look_at_its_files_is_safe(tmp_path: Path, count: int) -> None:
    with Journal(tmp_path / "log", settings={"segment_size": 64 << 10}) as journal:
        journal.append(bytes(700))
        looks = 0

        def growing(look: Any) -> Any:
            def taken(*arguments: Any) -> Any:
                nonlocal looks
                looks += 1
                for _ in range(count):
                    journal.append(bytes(700))
                return look(*arguments)

            return taken

        plain = FileAccess()
        access = FileAccess(growing(plain.head), growing(plain.part), growing(plain.open))
        (source,) = discover(tmp_path, known=(system("tally"),)).logs
        reading = TallyReading(source, access=access)
        assert not [one for one in reading.findings() if is_severe(one)]
        verdict = reading.verdict()
    assert verdict.judgement.answer is Answer.SAFE
    assert not verdict.differences
    assert looks == 4  # control block, head, the walk, and the end once more
