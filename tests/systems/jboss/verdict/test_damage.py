"""Unusual but valid files, damage, and what the loaders and the strict verdict make of them."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.errors import CorruptLogError
from tallystick.records import Answer, Outcome, State
from tallystick.systems.jboss import SYSTEM
from tallystick.systems.jboss.format.layout import (
    SHAPES,
    Item,
    RecordType,
    encode,
    encode_header,
)
from tallystick.systems.protocol import ReadOptions
from tallystick.testing.spans import check_tiling
from tests.kit import same_rows
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    commit_of,
    delete,
    delete_tx,
    engine_ids,
    event,
    file_name,
    image,
    prepare,
    prepare_of,
    read,
    rollback,
    sources,
    update,
    write,
)

ALL = ("g1a", "g1b", "g1c", "g1d", "g2", "g3")
OLD = ("g1a", "g1b", "g1c")
EVERY_SHAPE = pytest.mark.parametrize("shape", ALL)


def codes(folder: Path) -> set[str]:
    return {finding.code for finding in read(folder).findings()}


def patched(content: bytes, offset: int, value: bytes) -> bytes:
    return content[:offset] + value + content[offset + len(value) :]


def length_at(shape: str, index: int, size: int) -> int:
    """Offset of the body length of the ``index``-th of equal ADD records of ``size`` bytes."""
    return SHAPES[shape].header_size + index * size + SHAPES[shape].fields_at + 8


# -- unusual but valid ----------------------------------------------------------------------


@EVERY_SHAPE
def test_record_may_end_on_the_last_byte(shape: str, tmp_path: Path) -> None:
    spare = 1024 - len(image(shape, 1, [add(1, b"")], size=0))
    content = image(shape, 1, [add(1, bytes(spare))])
    assert len(content) == 1024
    write(tmp_path, shape, {1: content, 2: image(shape, 2, [])})
    assert engine_ids(read(tmp_path)) == [1]


@EVERY_SHAPE
def test_files_are_ordered_by_id_and_not_by_name(shape: str, tmp_path: Path) -> None:
    files = {1: image(shape, 9, [delete(1)]), 2: image(shape, 8, [add(1), add(2)])}
    write(tmp_path, shape, files)
    assert engine_ids(read(tmp_path)) == [2]
    assert [file.identity for file in read(tmp_path).files()] == [8, 9]


@EVERY_SHAPE
def test_record_inside_a_valid_body_is_not_found(shape: str, tmp_path: Path) -> None:
    inner = encode(
        SHAPES[shape], Item(0, 0, RecordType.ADD, 1, 0, record_id=66, user_type=1, body=b"")
    )
    write(tmp_path, shape, {1: image(shape, 1, [add(1, inner)]), 2: image(shape, 2, [])})
    assert engine_ids(read(tmp_path)) == [1]


@EVERY_SHAPE
def test_record_inside_a_damaged_one_is_found(shape: str, tmp_path: Path) -> None:
    inner = encode(
        SHAPES[shape], Item(0, 0, RecordType.ADD, 1, 0, record_id=66, user_type=1, body=b"")
    )
    content = image(shape, 1, [add(1, inner)])
    end = len(image(shape, 1, [add(1, inner)], size=0))
    write(tmp_path, shape, {1: patched(content, end - 1, b"\xff"), 2: image(shape, 2, [])})
    assert engine_ids(read(tmp_path)) == [66]


@EVERY_SHAPE
def test_second_commit_and_commit_of_nothing_are_ignored(shape: str, tmp_path: Path) -> None:
    end = commit_of(shape, 5, (1, 1))
    items = [add_tx(5, 1), end, end, commit_of(shape, 6, (1, 0))]
    write(tmp_path, shape, {1: image(shape, 1, items), 2: image(shape, 2, [])})
    reading = read(tmp_path)
    assert engine_ids(reading) == [1]
    assert reading.verdict().engine["incomplete_transactions"] == []


@EVERY_SHAPE
@pytest.mark.parametrize("byte", range(8))
def test_a_commit_under_another_number_is_no_calm_one(
    shape: str, byte: int, tmp_path: Path
) -> None:
    """Its transaction stays open, and whose elements it counts is not known."""
    items = [add_tx(5, 1), commit_of(shape, 5, (1, 1)), commit_of(shape, 5, (1, 1))]
    content = image(shape, 1, items)
    write(tmp_path, shape, {1: content, 2: image(shape, 2, [])})
    assert read(tmp_path).verdict().judgement.answer is Answer.SAFE  # a second one is ignored
    content = image(shape, 1, items[:2])
    start = len(image(shape, 1, items[:1], size=0))
    place = start + SHAPES[shape].fields_at + byte
    write(tmp_path, shape, {1: patched(content, place, bytes([content[place] ^ 0x11]))})
    found = read(tmp_path).verdict().judgement
    assert (found.answer, found.reason) == (Answer.CANNOT_TELL, "elements-missing")


@EVERY_SHAPE
def test_other_prefix_with_the_same_extension_is_read(shape: str, tmp_path: Path) -> None:
    write(tmp_path, shape, {1: image(shape, 1, [add(1)])})
    other = "other-2." + file_name(shape, 1).rpartition(".")[2]
    (tmp_path / other).write_bytes(image(shape, 2, [add(2)]))
    assert engine_ids(read(tmp_path)) == [1, 2]


@EVERY_SHAPE
def test_packed_files_are_read_as_they_are(shape: str, tmp_path: Path) -> None:
    content = gzip.compress(image(shape, 1, [add(1), add(2)]))
    (tmp_path / (file_name(shape, 1) + ".gz")).write_bytes(content)
    assert engine_ids(read(tmp_path)) == [1, 2]


def test_events_are_known_and_ignored(tmp_path: Path) -> None:
    items = [add(1), event(900), add(2)]
    write(tmp_path, "g3", {1: image("g3", 1, items, fill=b"\0")})
    reading = read(tmp_path)
    assert engine_ids(reading) == [1, 2]
    assert reading.verdict().engine["max_id"] == 2
    assert [record.type for record in reading.records()] == ["ADD", "EVENT", "ADD"]


def test_ids_beyond_31_bits_leave_their_low_part_in_records(tmp_path: Path) -> None:
    write(tmp_path, "g3", {1: image("g3", (1 << 33) + 7, [add(1)], fill=b"\0")})
    assert engine_ids(read(tmp_path)) == [1]


def test_two_files_of_one_id_are_both_read(tmp_path: Path) -> None:
    files = {1: image("g3", 1, [add_tx(5, 1)]), 2: image("g3", 1, [add_tx(5, 2), commit(5, 1)])}
    write(tmp_path, "g3", files)
    assert engine_ids(read(tmp_path)) == [1, 2]


# -- damage ---------------------------------------------------------------------------------

TO_THE_END = 0
BAD_LENGTHS = {
    "negative": -1,
    "largest": (1 << 31) - 1,
    "to the end": TO_THE_END,
    "too large": 5000,
    "one too large": 5,
}
ABORTS = {"negative", "largest", "to the end"}


@pytest.mark.parametrize("bad", BAD_LENGTHS)
@EVERY_SHAPE
def test_bad_length_costs_one_record_or_the_load(shape: str, bad: str, tmp_path: Path) -> None:
    size = len(encode(SHAPES[shape], add(1)))
    content = image(shape, 1, [add(1), add(2), add(3)])
    place = length_at(shape, 1, size)
    length = BAD_LENGTHS[bad] or 1024 - place - 4
    value = length.to_bytes(4, "big", signed=True)
    write(tmp_path, shape, {1: patched(content, place, value), 2: image(shape, 2, [])})
    reading = read(tmp_path)
    verdict = reading.verdict()
    engine = verdict.engine
    gives_up = (shape in OLD and bad in ABORTS) or (shape == "g1d" and bad == "to the end")
    assert engine["loaded"] is not gives_up
    assert any(one.refuses for one in verdict.differences) is gives_up
    if gives_up:
        assert engine["error"].startswith("java.")
        assert "load" in codes(tmp_path)
    else:
        assert engine_ids(reading) == [1, 3]
    assert [r.record_id for r in reading.records() if r.outcome is Outcome.VALID] == [1, 3]
    assert "damaged-record" in codes(tmp_path)


@EVERY_SHAPE
@pytest.mark.parametrize("offset", [0, 4, 12], ids=["type", "file id", "record id"])
def test_flipped_byte_of_a_record_between_others_is_corrupt(
    shape: str, offset: int, tmp_path: Path
) -> None:
    size = len(encode(SHAPES[shape], add(1)))
    content = bytearray(image(shape, 1, [add(1), add(2), add(3)]))
    content[SHAPES[shape].header_size + size + offset] ^= 0x40
    write(tmp_path, shape, {1: bytes(content), 2: image(shape, 2, [])})
    reading = read(tmp_path)
    assert len(engine_ids(reading)) == (3 if offset == 12 else 2)
    outcomes = [record.outcome for record in reading.records()]
    expected = Outcome.VALID if offset == 12 else Outcome.CORRUPT
    assert outcomes == [Outcome.VALID, expected, Outcome.VALID]


@EVERY_SHAPE
def test_half_written_last_record_is_torn_not_corrupt(shape: str, tmp_path: Path) -> None:
    whole = image(shape, 1, [add(1), add(2, b"x" * 40)], size=0)
    content = whole[:-30].ljust(1024, b"J")
    write(tmp_path, shape, {1: content, 2: image(shape, 2, [])})
    reading = read(tmp_path)
    assert [record.outcome for record in reading.records()] == [Outcome.VALID, Outcome.TORN]
    assert engine_ids(reading) == [1]
    severities = {finding.severity.value for finding in reading.findings()}
    assert severities <= {"info"}


@EVERY_SHAPE
@pytest.mark.parametrize("wrong", [0, 2])
def test_commit_that_counts_wrong_is_incomplete(shape: str, wrong: int, tmp_path: Path) -> None:
    items = [add_tx(5, 1), commit_of(shape, 5, (1, wrong)), add(9)]
    write(tmp_path, shape, {1: image(shape, 1, items), 2: image(shape, 2, [])})
    reading = read(tmp_path)
    engine = reading.verdict().engine
    assert engine_ids(reading) == [9]
    assert engine["incomplete_transactions"] == [5]
    assert engine.get("failed_transactions", []) == []
    (one,) = reading.transactions()
    assert (one.state, one.complete) == (State.INCOMPLETE, False)


@EVERY_SHAPE
def test_element_destroyed_in_the_commits_file_makes_it_incomplete(
    shape: str, tmp_path: Path
) -> None:
    items = [add_tx(5, 1), add_tx(5, 2), commit_of(shape, 5, (1, 2))]
    content = bytearray(image(shape, 1, items))
    first = SHAPES[shape].header_size + len(encode(SHAPES[shape], items[0]))
    content[first - 1] ^= 0xFF
    write(tmp_path, shape, {1: bytes(content), 2: image(shape, 2, [])})
    reading = read(tmp_path)
    assert engine_ids(reading) == []
    assert reading.verdict().engine["incomplete_transactions"] == [5]


@EVERY_SHAPE
def test_element_destroyed_in_an_earlier_file_is_applied_in_part_from_g1d_on(
    shape: str, tmp_path: Path
) -> None:
    first = bytearray(image(shape, 1, [add_tx(5, 1), add_tx(5, 2)]))
    hurt = SHAPES[shape].header_size + len(encode(SHAPES[shape], add_tx(5, 1)))
    first[hurt - 1] ^= 0xFF
    second = image(shape, 2, [add_tx(5, 3), commit_of(shape, 5, (1, 2), (2, 1))])
    write(tmp_path, shape, {1: bytes(first), 2: second})
    reading = read(tmp_path)
    (one,) = reading.transactions()
    assert not one.complete
    if SHAPES[shape].pairs:
        assert engine_ids(reading) == []
        assert one.state is State.INCOMPLETE
        return
    assert engine_ids(reading) == [2, 3]
    (difference,) = reading.verdict().differences
    assert difference.what == "partial-transaction"
    assert difference.severity.value == "loss"
    assert "damaged" in difference.strict


PREPARED = prepare_of("g3", 5, b"xid", (1, 1))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([add_tx(5, 1), add_tx(5, 2), commit(5, 1)], [add(9)]),  # all that it counts is there
        ([add_tx(5, 1), PREPARED, add(7)], [commit(5, 0)]),  # no element
        ([add_tx(5, 1), add_tx(5, 1), add(7)], [commit(5, 0)]),  # the beginning of another one
    ],
    ids=["counted", "prepare", "copy"],
)
def test_what_is_damaged_and_was_no_element_is_missed_in_no_transaction(
    first: list[Item], second: list[Item], tmp_path: Path
) -> None:
    """The second record of the first file; Artemis kept all that was live."""
    damaged = bytearray(image("g3", 1, first))
    damaged[len(image("g3", 1, first[:2], 0)) - 1] ^= 0xFF
    write(tmp_path, "g3", {1: bytes(damaged), 2: image("g3", 2, second), 3: image("g3", 3, [])})
    assert read(tmp_path).verdict().judgement.answer is Answer.CANNOT_TELL
    assert "partial-transaction" not in codes(tmp_path)


@EVERY_SHAPE
def test_prepared_transaction_that_counts_wrong_is_not_in_doubt(shape: str, tmp_path: Path) -> None:
    items = [add_tx(5, 1), prepare_of(shape, 5, b"xid", (1, 3))]
    write(tmp_path, shape, {1: image(shape, 1, items), 2: image(shape, 2, [])})
    engine = read(tmp_path).verdict().engine
    assert engine["prepared_transactions"] == []
    assert engine["incomplete_transactions"] == [5]
    if not SHAPES[shape].pairs:
        assert [one["txId"] for one in engine["failed_transactions"]] == [5]


@pytest.mark.parametrize("shape", OLD)
def test_pairs_that_name_no_file_count_as_reclaimed(shape: str, tmp_path: Path) -> None:
    items = [add_tx(5, 1), commit(5, pairs=[(1, 1), (77, 4)])]
    write(tmp_path, shape, {1: image(shape, 1, items), 2: image(shape, 2, [])})
    reading = read(tmp_path)
    assert engine_ids(reading) == [1]
    (one,) = reading.transactions()
    assert "file id 77" in one.holes


@pytest.mark.parametrize("shape", ["g1d", "g2", "g3"])
def test_empty_transaction_may_be_in_doubt_from_g1d_on(shape: str, tmp_path: Path) -> None:
    write(tmp_path, shape, {1: image(shape, 1, [prepare(5, b"xid")]), 2: image(shape, 2, [])})
    assert [p["txId"] for p in read(tmp_path).verdict().engine["prepared_transactions"]] == [5]


MAX_IDS = {"g1a": 5000, "g1b": 5000, "g1c": 5000, "g1d": 2, "g2": 2, "g3": 2}


@EVERY_SHAPE
def test_large_id_in_a_damaged_record_raises_the_maximum_in_2008_only(
    shape: str, tmp_path: Path
) -> None:
    items = [add(1), add(5000), add(2)]
    content = bytearray(image(shape, 1, items))
    size = len(encode(SHAPES[shape], add(1)))
    content[SHAPES[shape].header_size + 2 * size - 1] ^= 0x40
    write(tmp_path, shape, {1: bytes(content), 2: image(shape, 2, [])})
    assert read(tmp_path).verdict().engine["max_id"] == MAX_IDS[shape]


# -- files ----------------------------------------------------------------------------------


@EVERY_SHAPE
def test_truncated_file_stops_the_load_in_2008_only(shape: str, tmp_path: Path) -> None:
    files = {1: image(shape, 1, [add(1)])[:900], 2: image(shape, 2, []), 3: image(shape, 3, [])}
    write(tmp_path, shape, files)
    engine = read(tmp_path).verdict().engine
    assert engine["loaded"] is (shape not in OLD)
    if shape in OLD:
        assert "File is wrong size 900 expected 1024" in engine["error"]


@EVERY_SHAPE
def test_surplus_of_a_long_file_is_not_read_in_2008(shape: str, tmp_path: Path) -> None:
    surplus = encode(
        SHAPES[shape], Item(0, 0, RecordType.ADD, 1, 0, record_id=7, user_type=1, body=b"")
    )
    files = {1: image(shape, 1, [add(1)]) + surplus, 2: image(shape, 2, []), 3: image(shape, 3, [])}
    write(tmp_path, shape, files)
    assert engine_ids(read(tmp_path)) == ([1] if shape in OLD else [1, 7])


@EVERY_SHAPE
@pytest.mark.parametrize("size", [0, 3])
def test_file_shorter_than_a_header_stops_all_but_artemis(
    shape: str, size: int, tmp_path: Path
) -> None:
    write(tmp_path, shape, {1: image(shape, 1, [add(1)], fill=b"\0"), 2: bytes(size)})
    reading = read(tmp_path)
    assert reading.verdict().engine["loaded"] is (shape == "g3")
    assert "short-file" in codes(tmp_path)


@EVERY_SHAPE
@pytest.mark.parametrize("fill", [b"J", b"\0"])
def test_file_that_was_never_begun(shape: str, fill: bytes, tmp_path: Path) -> None:
    write(tmp_path, shape, {1: image(shape, 1, [add(1)]), 2: fill * 1024})
    reading = read(tmp_path)
    assert reading.verdict().engine["loaded"] is (SHAPES[shape].header_size == 4)
    assert "file-without-header" in codes(tmp_path)
    assert [one.outcome for one in reading.records()] == [Outcome.VALID]


@pytest.mark.parametrize("shape", ["g2", "g3"])
@pytest.mark.parametrize("version", [0, 3])
def test_unknown_format_stops_the_load(shape: str, version: int, tmp_path: Path) -> None:
    content = patched(image(shape, 2, [add(2)]), 0, version.to_bytes(4, "big"))
    write(tmp_path, shape, {1: image(shape, 1, [add(1)]), 2: content})
    assert "version mismatch" in read(tmp_path).verdict().engine["error"]


def test_configured_size_and_user_version_are_settings(tmp_path: Path) -> None:
    write(tmp_path, "g1a", {1: image("g1a", 1, [add(1)]), 2: image("g1a", 2, [])})
    assert read(tmp_path, file_size="2048").verdict().engine["loaded"] is False
    assert read(tmp_path, file_size="8").verdict().engine["live_records"] == []


def test_rolled_back_transaction_and_its_deletes_leave_nothing(tmp_path: Path) -> None:
    items = [add(1), add_tx(5, 2), delete_tx(5, 1), rollback(5), update(1)]
    write(tmp_path, "g3", {1: image("g3", 1, items)})
    reading = read(tmp_path)
    assert engine_ids(reading) == [1, 1]
    assert [one.state for one in reading.transactions()] == [State.ROLLED_BACK]


# -- anything at all ------------------------------------------------------------------------


@pytest.mark.sampled(3)
@EVERY_SHAPE
@settings(max_examples=60)
@given(changes=st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 255)), max_size=8))
def test_any_damage_is_read_to_the_end(
    shape: str, changes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    items = [add(1), add_tx(5, 2), commit_of(shape, 5, (1, 1)), delete(1), add(3)]
    content = bytearray(image(shape, 1, [*items, prepare(6, b"x" * 20)]))
    for offset, value in changes:
        content[offset] = value
    folder = tmp_path_factory.mktemp("journal")
    write(folder, shape, {1: bytes(content), 2: image(shape, 2, [add(9)])})
    for source in sources(folder):
        reading = SYSTEM.read(source, ReadOptions())
        reading.verdict()
        list(reading.records(salvage=True))
        with suppress(CorruptLogError):  # the id in a file's header gives changes no order
            list(reading.changes())
        same_rows(reading)
        for file in reading.files():
            check_tiling(file)


def test_empty_header_only_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / file_name("g3", 1)).write_bytes(encode_header(SHAPES["g3"], 1) + bytes(1008))
    assert engine_ids(read(tmp_path)) == []


@EVERY_SHAPE
def test_two_files_of_one_id_are_reported(shape: str, tmp_path: Path) -> None:
    files = {1: image(shape, 7, [add(1)]), 2: image(shape, 7, [add(2)])}
    write(tmp_path, shape, files)
    assert "same-file-id" in codes(tmp_path)
    write(tmp_path, shape, files | {2: image(shape, 8, [add(2)])})
    assert "same-file-id" not in codes(tmp_path)


@EVERY_SHAPE
def test_batches_classify_damage_after_the_last_records_as_records_do(
    shape: str, tmp_path: Path
) -> None:
    damaged = image(shape, 2, [add(2, b"only")])
    place = SHAPES[shape].header_size + SHAPES[shape].fields_at
    write(tmp_path, shape, {1: image(shape, 1, [add(1)]), 2: patched(damaged, place + 8, b"\x7f")})
    reading = read(tmp_path)
    objects = [(one.file, one.offset, one.outcome.value) for one in reading.records()]
    rows = [row for batch in reading.batches() for row in batch.to_pylist()]
    assert [(row["file"], row["offset"], row["outcome"]) for row in rows] == objects
    assert objects[-1][2] == Outcome.TORN.value
