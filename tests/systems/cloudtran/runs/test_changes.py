"""Steps that follow a log give what one reading gives, of entries that are carried forward too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tallystick.records import Change
from tallystick.systems.cloudtran.format.entries import Entry, EntryKind, PersistingFlag
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.protocol import ReadOptions
from tests.systems.cloudtran.blocks import block, entry, reading
from tests.systems.cloudtran.runs.test_pieces import store

FILES, BLOCKS, BLOCK_BYTES = 3, 12, 512
DAMAGE = ("none", "first file gone", "blocks zeroed")
LOGS = 20


def _carried(number: int) -> Entry:
    return entry(number)._replace(flags=int(PersistingFlag.CARRIED_FORWARD))


def _log(choice: random.Random, damage: str) -> dict[str, bytes]:
    """Return files with new entries, of which old ones are carried forward."""
    number, known = 0, list[int]()
    files = {}
    for serial in range(1, FILES + 1):
        data = bytearray()
        for place in range(BLOCKS):
            entries = []
            for _ in range(choice.randrange(3)):
                if known and choice.random() < 0.4:
                    entries.append(_carried(choice.choice(known)))
                else:
                    number += 1
                    known.append(number)
                    entries.append(entry(number))
            entries = entries or [entry(max(number, 1), kind=EntryKind.PERSISTED)]
            data += block(len(data), (serial - 1) * BLOCKS + place + 1, *entries, serial=serial)
        if damage == "blocks zeroed":
            for _ in range(choice.randrange(3)):
                begin = choice.randrange(BLOCKS) * BLOCK_BYTES
                data[begin : begin + BLOCK_BYTES] = bytes(BLOCK_BYTES)
        files[f"translog-{serial:010d}-20130701T100000Z.ctlog"] = bytes(data)
    if damage == "first file gone":
        del files[min(files)]
    return files


def _steps(log: CloudtranReading, choice: random.Random) -> list[Change]:
    """Return what steps of a few blocks each give together."""
    known: int | None = None
    found = list[Change]()
    while (known or 0) < FILES * BLOCKS:
        blocks = (one.block for one in log.occurrences() if one.block.readable)
        left = [one.prologue.sequence for one in blocks]
        left = [one for one in left if known is None or one > known]
        if not left:
            break
        until = left[min(choice.randrange(1, 9), len(left)) - 1]
        found += log.changes_between(known, until)
        known = until
    return found


@pytest.mark.parametrize("damage", DAMAGE)
def test_steps_give_carried_entries_whose_first_place_is_not_there_once_and_in_order(
    tmp_path: Path, damage: str
) -> None:
    for seed in range(LOGS):
        choice = random.Random(seed)
        store(tmp_path / "log", _log(choice, damage))
        log = CloudtranReading(
            reading(tmp_path / "log").source, ReadOptions(skip_lost=damage == "blocks zeroed")
        )
        there = list(log.changes())
        assert _steps(log, choice) == there, f"seed {seed}"
