"""Folders that real brokers and journals left when they were killed or stopped, whole or not."""

from __future__ import annotations

import pytest

from tallystick.records import Answer
from tests.fixtures import fixture_dir
from tests.systems.jboss.build import read

KILLS = fixture_dir("kills")


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        # Started again and again: the same file was current, and loads spent ids.
        ("artemis-killed-3-times", Answer.SAFE),
        ("artemis-stopped-after-kills", Answer.SAFE),
        ("artemis-small-loads", Answer.SAFE),
        # Compacted: ids of earlier compactions are gone.
        ("hornetq-next-beside", Answer.SAFE),
        ("hornetq-right-after-compaction", Answer.SAFE),
        # A file was removed, and HornetQ dropped and revived records without a word.
        ("hornetq-last-file-lost", Answer.CANNOT_TELL),
    ],
)
def test_what_kills_leave_is_safe_and_what_is_lost_is_missed(case: str, answer: Answer) -> None:
    judgement = read(KILLS / case / "journal").judgement
    assert judgement.answer is answer, judgement
    assert answer is Answer.SAFE or judgement.reason == "ids-missing"
