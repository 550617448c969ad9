"""What the strict verdict proves, and its differences from the engine's."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tallystick.records import Answer, Outcome, Severity, State
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    HEADER_LENGTH,
    MARKED_ROLLBACK,
    NO_TRANSACTION,
    PREPARED,
    PREPARING,
    ROLLEDBACK,
    ROLLING_BACK,
    UNKNOWN,
    make_gtrid,
)
from tallystick.systems.bitronix.reader import BitronixReading
from tallystick.testing.spans import check_tiling
from tests.systems.bitronix.logs import GTRID, file_bytes, record, write_pair

EMPTY = file_bytes([], 8_000)


def gtrid(number: int) -> bytes:
    return make_gtrid("node", 5_000, number)


def read(folder: Path, content: bytes, other: bytes = EMPTY) -> BitronixReading:
    return write_pair(folder, content, other)


def codes(reading: BitronixReading) -> list[str]:
    return [one.code for one in reading.findings()]


def outcomes(reading: BitronixReading) -> dict[str, int]:
    counts: dict[str, int] = reading.verdict().strict["records"]
    return {name: count for name, count in counts.items() if count}


DECISIONS = [record(COMMITTING, n, "a", gtrid=gtrid(n)) for n in range(1, 6)]
SIZE = DECISIONS[0].size


def changed(place: int, value: bytes) -> bytes:
    """The file of `DECISIONS` with some bytes of the third record replaced."""
    content = bytearray(file_bytes(DECISIONS, 9_000))
    begin = HEADER_LENGTH + 2 * SIZE + place
    content[begin : begin + len(value)] = value
    return bytes(content)


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (3, b"\x09", "damaged-record"),
        (7, b"\x40", "damaged-record"),
        (4, b"\x7f", "damaged-record"),
        (24, b"\0\0", "damaged-record"),
        (28, b"\xff", "damaged-record"),
        (SIZE - 4, b"y", "damaged-record"),
        (0, bytes(SIZE), "hole"),
    ],
    ids=["status", "length", "huge length", "crc", "gtrid length", "end marker", "zeros"],
)
def test_one_damaged_record_costs_one_record(
    tmp_path: Path, place: int, value: bytes, code: str
) -> None:
    reading = read(tmp_path, changed(place, value))
    assert outcomes(reading) == {"valid": 4, "corrupt": 1}
    assert code in codes(reading)
    open_now = {one.gtrid for one in reading.transactions() if one.state is State.COMMITTING}
    assert open_now == {gtrid(n) for n in (1, 2, 4, 5)}
    for file in reading.files():
        check_tiling(file)


def test_flipped_length_byte_is_corrupt_not_torn(tmp_path: Path) -> None:
    (damaged,) = (
        one
        for one in read(tmp_path, changed(7, b"\x40")).records(salvage=True)
        if one.outcome is not Outcome.VALID
    )
    assert (damaged.outcome, damaged.offset) == (Outcome.CORRUPT, HEADER_LENGTH + 2 * SIZE)


def test_what_skipping_would_drop_is_reported_as_a_loss(tmp_path: Path) -> None:
    reading = read(tmp_path, changed(0, bytes(SIZE)))
    lost = [one for one in reading.findings() if one.code == "lost-behind-damage"]
    assert [one.offset for one in lost] == [HEADER_LENGTH + n * SIZE for n in (3, 4)]
    assert {one.severity for one in lost} == {Severity.LOSS}
    verdict = reading.verdict()
    assert len(verdict.strict["lost"]) == 2
    assert "rolled back" in verdict.strict["lost"][0]
    salvaged = [one for one in reading.records(salvage=True) if one.attributes.get("salvaged")]
    assert [one.gtrid for one in salvaged] == [gtrid(4), gtrid(5)]


def test_an_unfinished_last_record_is_torn(tmp_path: Path) -> None:
    content = bytearray(file_bytes(DECISIONS, 9_000))
    begin = HEADER_LENGTH + 4 * SIZE
    content[begin + 30 : begin + SIZE] = bytes(SIZE - 30)
    reading = read(tmp_path, bytes(content))
    assert outcomes(reading) == {"valid": 4, "torn": 1}
    assert codes(reading) == ["torn-tail"]


def test_a_damaged_last_record_with_its_marker_is_corrupt(tmp_path: Path) -> None:
    content = bytearray(file_bytes(DECISIONS, 9_000))
    content[HEADER_LENGTH + 4 * SIZE + 20] ^= 1
    assert outcomes(read(tmp_path, bytes(content))) == {"valid": 4, "corrupt": 1}


@pytest.mark.parametrize("position", [0, 21, 21 + 3 * SIZE, 21 + 3 * SIZE + 5])
def test_records_after_the_position_are_uncounted(tmp_path: Path, position: int) -> None:
    content = bytearray(file_bytes(DECISIONS, 9_000))
    content[13:21] = position.to_bytes(8, "big")
    reading = read(tmp_path, bytes(content))
    uncounted = [one for one in reading.findings() if one.code == "uncounted-record"]
    assert len(uncounted) == 5 - max(0, (position - 21) // SIZE)
    assert len(reading.verdict().strict["dangling"]) == 5


def test_records_of_an_earlier_life_are_stale(tmp_path: Path) -> None:
    new = [record(COMMITTING, 9, "a", gtrid=gtrid(9), time=7_000)]
    content = bytearray(file_bytes(DECISIONS, 9_000))
    content[: HEADER_LENGTH + SIZE] = file_bytes(new, 9_000)[: HEADER_LENGTH + SIZE]
    reading = read(tmp_path, bytes(content))
    assert outcomes(reading) == {"valid": 1, "stale": 4}
    assert [one.gtrid for one in reading.transactions()] == [gtrid(9)]


def test_the_later_file_is_named_where_the_timestamp_is_spoilt(tmp_path: Path) -> None:
    old = [DECISIONS[0], record(COMMITTED, 2, "b", gtrid=gtrid(2))]
    new = [DECISIONS[0], record(COMMITTING, 3, "b", gtrid=gtrid(3), time=7_000)]
    reading = read(tmp_path, file_bytes(old, 50_000), file_bytes(new, HEADER_LENGTH + SIZE))
    verdict = reading.verdict()
    assert codes(reading) == ["stale-file-in-use"]
    assert verdict.strict["in_use"] == "part2"
    assert verdict.engine["2.1.4"]["open"]["active"] == "part1"
    assert any("loses the decision" in text for text in verdict.strict["lost"])


@pytest.mark.parametrize("boot", [True, False])
def test_the_clock_follows_from_the_numbers(tmp_path: Path, boot: bool) -> None:
    time = 6_000 if boot else 1_700_000_000_000
    reading = read(tmp_path, file_bytes([record(0, 1, time=time)], time + 1))
    assert reading.clock == ("boot_ms" if boot else "wall_ms")


@pytest.mark.parametrize(
    ("statuses", "state"),
    [
        ([ACTIVE], State.ACTIVE),
        ([ACTIVE, MARKED_ROLLBACK], State.ACTIVE),
        ([ACTIVE, PREPARING], State.UNDECIDED),
        ([PREPARING, PREPARED], State.UNDECIDED),
        ([PREPARED, COMMITTING], State.COMMITTING),
        ([COMMITTING, COMMITTED], State.COMMITTED),
        ([PREPARING, ROLLING_BACK], State.ROLLING_BACK),
        ([ROLLING_BACK, ROLLEDBACK], State.ROLLED_BACK),
        ([COMMITTING, UNKNOWN], State.HEURISTIC),
        ([NO_TRANSACTION], State.UNKNOWN),
        ([77], State.UNKNOWN),
    ],
)
def test_state_by_the_last_status(tmp_path: Path, statuses: list[int], state: State) -> None:
    records = [record(status, n, "a", "b") for n, status in enumerate(statuses)]
    (one,) = read(tmp_path, file_bytes(records, 9_000)).transactions()
    assert one.state is state
    assert one.gtrid == GTRID
    assert one.open_participants == (("a", "b") if state is State.COMMITTING else ())
    assert one.participants == ("a", "b")
    assert one.evidence is not None


def test_last_status_is_taken_from_both_parts(tmp_path: Path) -> None:
    old = [record(COMMITTING, 1, "a", "b"), record(PREPARED, 2, "a", gtrid=gtrid(2))]
    new = [old[0], record(COMMITTED, 3, "a", time=7_000)]
    reading = read(tmp_path, file_bytes(new, 9_000), file_bytes(old, 8_000))
    states = {one.gtrid: (one.state, one.open_participants) for one in reading.transactions()}
    assert states == {GTRID: (State.COMMITTING, ("b",)), gtrid(2): (State.UNDECIDED, ())}


def test_two_server_ids_are_a_warning(tmp_path: Path) -> None:
    records = [record(0, n, gtrid=make_gtrid(node, 1, n)) for n, node in enumerate(("a", "b"))]
    assert codes(read(tmp_path, file_bytes(records, 9_000))) == ["server-ids"]


def test_one_file_alone_is_read_and_the_other_missed(tmp_path: Path) -> None:
    reading = read(tmp_path, file_bytes(DECISIONS, 9_000))
    (tmp_path / "btm1.tlog").unlink()
    reading = type(reading)(
        type(reading.source)("bitronix", str(tmp_path), (str(tmp_path / "btm2.tlog"),)),
        reading.options,
    )
    assert codes(reading) == ["missing-file"]
    assert reading.verdict().engine["2.1.4"]["part1"] == {"header": None, "cursor": None}


def test_a_file_that_vanishes_is_a_finding(tmp_path: Path) -> None:
    reading = read(tmp_path, file_bytes(DECISIONS, 9_000))
    (tmp_path / "btm2.tlog").unlink()
    assert codes(reading) == ["unreadable"]
    assert len(list(reading.records())) == 5
    assert sum(batch.num_rows for batch in reading.batches()) == 5


def test_a_verdict_takes_little_memory_beside_what_it_tells(tmp_path: Path) -> None:
    content = file_bytes(
        [
            record(status, number, "orders", gtrid=gtrid(number))
            for number in range(1000)
            for status in (COMMITTING, COMMITTED)
        ],
        400_000,
    )
    reading = read(tmp_path, content, bytes(EMPTY).ljust(400_000, b"\0"))
    reading.verdict()  # imports and compiles
    tracemalloc.start()
    try:
        verdict = reading.verdict()
        engine = dict(verdict.engine)  # made when it is asked for: it lists the records
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert verdict.strict["transactions"] == {"committed": 1000}
    assert engine.keys() == {"2.1.4", "3.0.0-SNAPSHOT"}
    assert peak < 2.5 * kept


@pytest.mark.parametrize("position", [HEADER_LENGTH, HEADER_LENGTH + SIZE])
def test_newer_records_behind_a_damaged_one_leave_no_proof(position: int, tmp_path: Path) -> None:
    """The position went back to a record that is damaged: 3.0 starts without the later ones."""
    since = 1_700_000_000_000
    decisions = [record(COMMITTING, n, "a", gtrid=gtrid(n), time=since + n) for n in range(5)]
    content = bytearray(file_bytes(decisions, since))
    content[13:21] = position.to_bytes(8, "big")
    content[position + 5] ^= 1
    reading = read(tmp_path, bytes(content), file_bytes([], since - 1))
    assert reading.judgement.answer is not Answer.SAFE
