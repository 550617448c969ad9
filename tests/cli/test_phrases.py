"""Entries of verdicts are put into words, short enough for a line."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.cli.phrases import NAME_MAX, phrase


@pytest.mark.parametrize(
    ("entry", "reported"),
    [
        (
            {"what": "record", "id": 307, "file": "/a/b/jbm-3.jbm", "offset": 4080, "why": "stale"},
            "record 307 in jbm-3.jbm at offset 4,080: stale",
        ),
        ({"transaction": 7, "complete": True}, "transaction 7, complete"),
        ({"transaction": 7, "complete": False}, "transaction 7, not complete"),
        (
            {"gtrid": "0a0b", "state": "rolling_back", "resources": ["a", "b", "c", "d", "e"]},
            "global transaction 0a0b, rolling back, resources a, b, c and 2 more",
        ),
        ({"blocks": 1, "suspects": [{"kind": "persisting", "txid": 3}]},
         "blocks 1, suspects kind persisting, txid 3"),
        ({"transaction": 3, "file": None, "name": None}, "transaction 3"),
        ([1, 2], "1, 2"),
        ("plain words are left as they are, however many of them there may be in it", "="),
    ],
)  # fmt: skip
def test_entries_are_told_in_words(entry: Any, reported: str) -> None:
    assert phrase(entry) == (entry if reported == "=" else reported)


def test_a_long_name_is_cut_in_the_middle() -> None:
    reported = phrase({"resources": ["resource-manager-0-" * 40]})
    assert "…" in reported
    assert len(reported) < NAME_MAX + 12
