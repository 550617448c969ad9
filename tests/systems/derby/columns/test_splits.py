"""Batches of a log and of its parts are its records, whatever was damaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tallystick.records import Outcome
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.layout import (
    HEADER_SIZE,
    Group,
    encode_header,
    encode_record,
    make_instant,
)
from tallystick.systems.derby.format.operations import encode_begin, encode_operation
from tallystick.systems.derby.format.record_body import encode_body
from tests.systems.derby.logs import CASES, Patch, copy, cut, log_bytes, options, reading_of
from tests.systems.derby.test_fixtures import rows_of, same_rows

SWITCHED = "switch-archive"


@pytest.mark.parametrize("name", ["log2.dat", "log4.dat"])
def test_records_after_a_missing_end_marker_are_not_valid_ones(tmp_path: Path, name: str) -> None:
    end = len(log_bytes(SWITCHED, name).rstrip(b"\0"))
    log = reading_of(copy(SWITCHED, tmp_path / "db", {name: cut(end), "log.ctrl": None}))
    same_rows(log)
    whole = reading_of(copy(SWITCHED, tmp_path / "whole"))
    assert len(rows_of(log.batches())) < len(rows_of(whole.batches()))


def test_file_of_a_header_only_ends_the_log(tmp_path: Path) -> None:
    log = reading_of(
        copy(SWITCHED, tmp_path / "db", {"log2.dat": cut(HEADER_SIZE), "log.ctrl": None})
    )
    same_rows(log)


def test_body_that_no_checksum_covers_is_decoded_to_its_end(tmp_path: Path) -> None:
    bodies = [
        encode_body(Group.FIRST | Group.RAWSTORE, 1, encode_begin(operations.STATUS_USER, None)),
        encode_body(Group.RAWSTORE, 1, encode_operation(operations.REMOVE_FILE, _REMOVED)),
    ]
    bodies[1] = bodies[1][:-4] + b"\0\0\0\7"  # optional data that are not there
    data = encode_header(1, 0)
    for body in bodies:
        data += encode_record(make_instant(1, len(data)), body)
    (tmp_path / "log1.dat").write_bytes(data + bytes(100))
    log = reading_of(tmp_path)
    assert [one.outcome for one in log.records()] == [Outcome.VALID, Outcome.CORRUPT]
    same_rows(log)


_REMOVED = {"name": "c1.dat", "generationId": 1, "removeAtOnce": True}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(6))
def test_batches_are_the_records_after_any_damage(tmp_path: Path, case: str, seed: int) -> None:
    chance = random.Random(f"{case} {seed}")
    names = sorted(one.name for one in copy(case, tmp_path / "whole").glob("log/log*.dat"))
    patch, name = _damage(chance), chance.choice(names)
    folder = copy(case, tmp_path / "db", {name: patch})
    same_rows(reading_of(folder, options(case)))


def _damage(chance: random.Random) -> Patch | None:
    kind = chance.choice(["flip", "flip", "zero", "cut", "end", "swap", "remove"])

    def patch(content: bytearray) -> bytearray:
        used = max(len(content.rstrip(b"\0")), 1)
        at = chance.randrange(used)
        if kind == "flip":
            content[at] ^= 1 << chance.randrange(8)
        elif kind == "zero":
            size = min(chance.choice([1, 4, 37, 512]), len(content) - at)
            content[at : at + size] = bytes(size)
        elif kind == "cut":
            del content[at:]
        elif kind == "end":
            del content[used + chance.randrange(5) :]
        else:
            other = chance.randrange(used)
            content[at : at + 64], content[other : other + 64] = (
                content[other : other + 64],
                content[at : at + 64],
            )
        return content

    return None if kind == "remove" else patch
