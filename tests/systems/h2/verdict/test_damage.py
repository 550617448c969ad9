"""Damage of every kind: what the engine would do, what we report, and that reading always ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.records import Answer, Outcome, Severity, State
from tallystick.storage.source import open_source
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.entries import (
    TABLE_CATALOG,
    TABLE_META,
    encode_add,
    encode_checkpoint,
    encode_commit,
    encode_prepare,
    encode_remove,
    encode_truncate,
    encode_undo,
)
from tallystick.systems.h2.format.layout import Trunk
from tallystick.systems.h2.format.numbers import encode_var_int
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import LogSealedError, LogSource, ReadOptions
from tallystick.testing.spans import check_tiling
from tests.fixtures import fixture_dir
from tests.kit import read_in_runs, same_rows
from tests.systems.h2.kit import page_file, reading_of

ROW = encode_row([1, "text"])


def base(case: str = "committed-512") -> bytearray:
    with open_source(str(fixture_dir("h2") / case / "db.h2.db.gz")) as source:
        return bytearray(source.data)


def reading(data: bytes, tmp_path: Path) -> H2Reading:
    path = tmp_path / "db.h2.db"
    path.write_bytes(data)
    return H2Reading(LogSource("h2", str(tmp_path), (str(path),)), ReadOptions())


def codes(one: H2Reading) -> set[str]:
    return {finding.code for finding in one.findings()}


def check_everything(one: H2Reading) -> None:
    """Require that the spans tile the file, and that no method fails but those that need a key."""
    for file in one.files():
        check_tiling(file)
    one.verdict().to_dict()
    rows: list[Callable[[], Iterable[object]]]
    rows = [partial(one.records, salvage=True), one.transactions, one.changes]
    if "encrypted" in codes(one):
        for each in rows:
            with pytest.raises(LogSealedError):
                list(each())
        return
    for each in rows:
        list(each())
    same_rows(one)


def flipped(data: bytearray, at: int, bit: int = 1) -> bytearray:
    data[at] ^= bit
    return data


def sealed(data: bytearray, page: int, size: int = 512) -> bytearray:
    part = bytearray(data[page * size : (page + 1) * size])
    data[page * size : (page + 1) * size] = layout.seal(part, page)
    return data


DAMAGE: list[tuple[str, Callable[[bytearray], bytearray], str, int]] = [
    ("wrong magic", lambda data: flipped(data, 3), "does-not-open", 90048),
    ("wrong inner magic", lambda data: flipped(data, 35), "encrypted", 90049),
    ("newer read version", lambda data: flipped(data, 53, 4), "does-not-open", 90048),
    ("page size", lambda data: flipped(data, 51), "unreadable-structure", 90030),
    ("first header", lambda data: flipped(data, 600), "header-copy-damaged", 0),
    ("both headers", lambda data: flipped(flipped(data, 600), 1100), "does-not-open", 90030),
    ("log data page", lambda data: flipped(data, 13 * 512 + 511), "lost-behind-damage", 0),
    (
        "zeroed log page",
        lambda data: data[: 13 * 512] + bytes(512) + data[14 * 512 :],
        "lost-behind-damage",
        0,
    ),
    ("trunk page", lambda data: flipped(data, 5 * 512 + 511), "lost-behind-damage", 0),
    ("cut file", lambda data: data[: 140 * 512], "does-not-open", 90030),
    ("three pages", lambda data: data[: 3 * 512], "file-would-be-replaced", 0),
    ("a fragment", lambda data: data[:20], "file-would-be-replaced", 0),
]


@pytest.mark.parametrize(
    ("what", "damage", "code", "error"), DAMAGE, ids=[row[0] for row in DAMAGE]
)
def test_damage_is_found_and_judged_as_the_engine_would(
    what: str,
    damage: Callable[[bytearray], bytearray],
    code: str,
    error: int,
    tmp_path: Path,
) -> None:
    one = reading(bytes(damage(base())), tmp_path)
    assert code in codes(one), what
    recovery = one.verdict().engine["recovery"]
    assert recovery["opened"] is (error == 0)
    assert recovery.get("error_code", 0) == error
    check_everything(one)


@pytest.mark.parametrize("change", [partial(flipped, at=600), partial(flipped, at=1100)])
def test_one_copy_of_a_header_that_names_a_log_is_enough(
    change: Callable[[bytearray], bytearray], tmp_path: Path
) -> None:
    """Each of 112 databases of 1.3.176 and 1.4.200 without one of both had everything."""
    assert reading(bytes(base()), tmp_path).judgement.answer is Answer.SAFE
    one = reading(bytes(change(base())), tmp_path)
    assert one.judgement.answer is Answer.SAFE
    assert "header-copy-damaged" in codes(one)


@pytest.mark.parametrize("at", [600, 1100])
def test_one_copy_of_a_header_that_names_no_log_is_not_enough(at: int, tmp_path: Path) -> None:
    """Closing writes one after the other, and the one that is gone may have named a log."""
    assert reading(bytes(base("clean-512")), tmp_path).judgement.answer is Answer.SAFE
    one = reading(bytes(flipped(base("clean-512"), at)), tmp_path)
    assert one.judgement.answer is Answer.CANNOT_TELL


@pytest.mark.parametrize("at", [52, 53])
def test_versions_are_signed_so_a_high_one_does_not_keep_the_engine_from_opening(
    at: int, tmp_path: Path
) -> None:
    recovery = reading(bytes(flipped(base(), at, 128)), tmp_path).verdict().engine["recovery"]
    assert recovery == reading(bytes(base()), tmp_path).verdict().engine["recovery"]


def test_commits_on_the_only_damaged_page_are_not_called_no_loss() -> None:
    one = reading_of(fixture_dir("h2") / "corrupt-checksum-2048")
    lost = one.verdict().strict["lost"]
    assert lost["records"] == 34
    (loss,) = lost["ends"]
    assert loss["code"] == "lost-behind-damage"
    assert "at least 34 commits" in loss["what"]


def test_trunk_count_that_does_not_fit_is_a_general_error(tmp_path: Path) -> None:
    data = base()
    data[5 * 512 + 15 : 5 * 512 + 17] = b"\xff\xff"
    one = reading(bytes(sealed(data, 5)), tmp_path)
    assert one.verdict().engine["recovery"]["error_code"] == 50000
    assert not list(one.records())
    check_everything(one)


def test_commits_after_damage_are_counted_and_salvaged(tmp_path: Path) -> None:
    whole = [record.type for record in reading_of(fixture_dir("h2") / "committed-512").records()]
    one = reading(bytes(flipped(base(), 14 * 512 + 511)), tmp_path)
    (loss,) = [finding for finding in one.findings() if finding.severity is Severity.LOSS]
    assert loss.code == "lost-behind-damage"
    believed = [record.type for record in one.records()]
    saved = [
        record
        for record in one.records(salvage=True)
        if record.attributes.get("why") == "after damage"
    ]
    assert all(record.attributes["salvaged"] for record in saved)
    assert {record.outcome for record in saved} == {Outcome.VALID, Outcome.CORRUPT}
    damaged = [record for record in saved if record.outcome is Outcome.CORRUPT]
    assert {record.offset // 512 for record in damaged} == {14}
    found = believed.count("COMMIT") + [record.type for record in saved].count("COMMIT")
    assert believed.count("COMMIT") < found <= whole.count("COMMIT")
    assert f"at least {[r.type for r in saved].count('COMMIT')} commits" in loss.message
    (difference,) = one.verdict().differences
    assert "silently" in difference.meaning


LONG_ROW = encode_row([77, "x" * 900])
HEAD_OF_ADD = encode_add(3, 16, 1, b"")[:-1]
"""An added row up to its length."""

RECORDS: list[tuple[str, bytes, str]] = [
    ("unknown type", b"\x0c\x0d" + encode_commit(3), "unknown-record-type"),
    ("type above 127", encode_commit(3) + b"\x80" + encode_commit(3), "log-cut-short"),
    ("unknown value", encode_add(3, 16, 1, b"\x01\xc8"), "log-cut-short"),
    ("row too long", encode_add(3, 16, 1, ROW + b"\0\0"), "damaged-row"),
    ("row too short", encode_add(3, 16, 1, b"\x05" + ROW[1:]), "damaged-row"),
    ("undo image", b"\x01\x20\x05\x00a\xff\xff\xff" + encode_commit(3), "damaged-undo-image"),
    ("oversized undo image", b"\x01\x20\x81\x09", "log-cut-short"),
    ("cut record", encode_commit(3) + encode_add(3, 16, 1, LONG_ROW)[:490], "torn-record"),
    ("last row and its length", HEAD_OF_ADD + encode_var_int(900) + ROW, "odd-last-record"),
    ("last row", HEAD_OF_ADD + encode_var_int(900) + b"\x02\xc8", "odd-last-record"),
    ("last undo image", b"\x01\x20" + encode_var_int(900), "odd-last-record"),
    ("negative columns", encode_add(3, 16, 1, encode_var_int(-1)), "does-not-open"),
]


@pytest.mark.parametrize(("what", "body", "code"), RECORDS, ids=[row[0] for row in RECORDS])
def test_damaged_records_are_found(what: str, body: bytes, code: str, tmp_path: Path) -> None:
    one = reading(bytes(page_file(body)), tmp_path)
    assert code in codes(one), what
    check_everything(one)


def test_unknown_types_are_skipped_byte_by_byte_as_the_engine_does(tmp_path: Path) -> None:
    one = reading(bytes(page_file(b"\x7f\x0a" + encode_commit(3))), tmp_path)
    types = [record["type"] for record in one.verdict().engine["records"]]
    assert types == ["UNKNOWN", "UNKNOWN", "COMMIT", "NOOP"]
    assert one.verdict().strict["records"] == {"corrupt": 1}


def with_log(body: bytes, tmp_path: Path) -> H2Reading:
    """Return a cleanly closed database of the engine with this log appended."""
    data = base("clean-512")
    size = 512
    while len(data) % size:
        data += b"\0"
    first = len(data) // size
    room = size - layout.DATA_START
    ids = tuple(range(first + 1, first + 2 + len(body) // room))
    data += layout.encode_trunk(Trunk(first, first, 9, 0, ids), size)
    for at, page in enumerate(ids):
        data += layout.encode_data(page, first, 9, body[at * room : (at + 1) * room], size)
    header = layout.encode_variable_header(layout.VariableHeader(99, 9, first, ids[0]), size)
    data[size : 3 * size] = header * 2
    return reading(bytes(data), tmp_path)


TABLE = 16
NEW_ROW, OLD_ROW = encode_row([77, "new"]), encode_row([7, "old"])
SET_SQL = encode_row([99, 0, 6, "SET WRITE_DELAY 0"])
ADD_77 = encode_add(3, TABLE, 77, NEW_ROW)


@pytest.mark.parametrize(
    ("row", "answer"), [(LONG_ROW, Answer.SAFE), (NEW_ROW, Answer.CANNOT_TELL)]
)
def test_a_last_row_that_goes_on_after_the_log_was_begun_or_its_length_is_damaged(
    row: bytes, answer: Answer, tmp_path: Path
) -> None:
    """H2 drops it, and what stood after it, without a word."""
    head = encode_add(3, TABLE, 77, b"")[:-1] + encode_var_int(len(LONG_ROW))
    room = 512 - layout.DATA_START
    with_log((head + row).ljust(room, b"\0")[:room], tmp_path)
    data = (tmp_path / "db.h2.db").read_bytes()
    assert reading(data[:-512] + bytes(512), tmp_path).judgement.answer is answer


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (encode_add(3, TABLE, 77, NEW_ROW) + encode_commit(3), 0),
        (encode_add(3, TABLE, 7, OLD_ROW) + encode_commit(3), 23505),
        (encode_add(3, TABLE, 7, NEW_ROW) + encode_commit(3), 0),  # its key is its first column
        (
            encode_add(3, TABLE, 77, NEW_ROW) + encode_add(3, TABLE, 7, NEW_ROW) + encode_commit(3),
            23505,
        ),
        (encode_add(3, TABLE, 7, NEW_ROW), 0),
        (encode_remove(3, TABLE, 7) + encode_add(3, TABLE, 7, NEW_ROW) + encode_commit(3), 0),
        (encode_add(3, TABLE, 77, NEW_ROW) * 2 + encode_commit(3), 23505),
        (encode_remove(3, TABLE, 999) + encode_commit(3), 0),
        (encode_truncate(3, TABLE) + encode_add(3, TABLE, 7, NEW_ROW) + encode_commit(3), 0),
        (encode_add(3, 4711, 1, NEW_ROW) + encode_commit(3), 50000),
        (encode_undo(4, None) + encode_commit(3), 0),
    ],
)
def test_redo_decides_whether_the_database_opens(body: bytes, error: int, tmp_path: Path) -> None:
    one = with_log(body, tmp_path)
    recovery = one.verdict().engine["recovery"]
    assert recovery.get("error_code", 0) == error
    check_everything(one)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (ADD_77, ""),
        (encode_add(3, TABLE, 7, NEW_ROW), "under another key"),
        (encode_add(3, TABLE, 88, NEW_ROW), "under another key"),
        (encode_add(3, TABLE, 77, encode_row([None, "new"])), "under another key"),
        (encode_add(3, TABLE, 77, encode_row(["x", "new"])), "under another key"),
        (encode_add(3, TABLE, 77, encode_row([77, "new", 1])), "another number of columns"),
        (encode_add(3, TABLE, 77, encode_row([77])), "another number of columns"),
        (encode_add(3, TABLE, 77, b""), "another number of columns"),
        (encode_add(3, TABLE_CATALOG, 99, SET_SQL), ""),
        (encode_add(3, TABLE_CATALOG, 0, SET_SQL), "without a key"),
        (encode_remove(3, TABLE, 7), ""),
        (encode_remove(3, TABLE, 77), "not there"),
        (ADD_77 + encode_remove(3, TABLE, 77), ""),
        (encode_remove(3, TABLE, 7) * 2, "not there"),
        (encode_truncate(3, TABLE) + encode_remove(3, TABLE, 7), "not there"),
        (encode_remove(3, TABLE_META, 9_999), "not there"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_changes_of_rows_that_the_engine_never_writes_are_damage(
    change: bytes, what: str, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2 1.4.200 did not open such files, or had other rows; of each one bit had been flipped."""
    read_in_runs(monkeypatch, always=compiled)
    one = with_log(change + encode_commit(3), tmp_path)
    assert one.judgement.answer is (Answer.CANNOT_TELL if what else Answer.SAFE)
    found = [each.message for each in one.findings() if each.code == "damaged-row"]
    assert any(what in each for each in found) is bool(what)


def test_a_key_that_is_there_after_a_removal_of_another_one_proves_no_refusal(
    tmp_path: Path,
) -> None:
    """Of a removal the key had been damaged, and H2 1.3.176 opened the file and kept all."""
    body = encode_remove(3, TABLE, 99) + encode_add(3, TABLE, 7, OLD_ROW) + encode_commit(3)
    assert with_log(body, tmp_path).judgement.answer is Answer.CANNOT_TELL


def test_changes_that_are_not_redone_say_nothing(tmp_path: Path) -> None:
    one = with_log(encode_remove(3, TABLE, 77) + encode_commit(4), tmp_path)
    assert one.judgement.answer is Answer.SAFE


def test_hidden_name_and_changes_after_a_prepare_are_reported(tmp_path: Path) -> None:
    body = b"".join(
        (
            encode_add(3, TABLE, 71, NEW_ROW),
            encode_prepare(3, "first"),
            encode_add(3, TABLE, 72, NEW_ROW),
            encode_prepare(3, "second"),
            encode_add(3, TABLE, 73, NEW_ROW),
        )
    )
    one = with_log(body, tmp_path)
    assert {"in-doubt", "name-hidden", "changes-behind-prepare"} <= codes(one)
    (transaction,) = one.transactions()
    assert (transaction.state, transaction.name) == (State.PREPARED, "second")
    assert transaction.attributes["hidden_names"] == ["first"]


def test_prepared_session_that_was_rolled_back_alive_is_not_committed(tmp_path: Path) -> None:
    body = b"".join(
        (
            encode_remove(3, TABLE, 5),
            encode_add(3, TABLE, 71, NEW_ROW),
            encode_prepare(3, "XID_1_AA_BB"),
            encode_remove(3, TABLE, 71),
            encode_add(3, TABLE, 5, NEW_ROW),
            encode_commit(3),
        )
    )
    (transaction,) = with_log(body, tmp_path).transactions()
    assert transaction.state is State.ROLLED_BACK
    assert (transaction.gtrid, transaction.bqual) == (b"\xbb", b"\xaa")


def test_stale_names_count_for_nothing_and_are_reported() -> None:
    one = reading_of(fixture_dir("h2") / "indoubt-checkpoint-2048")
    assert len(one.verdict().strict["in_doubt"]) == 1


# -- hostile input ------------------------------------------------------------------------


def test_cyclic_trunk_chain_ends(tmp_path: Path) -> None:
    data = page_file(encode_commit(3))
    data[5 * 512 : 6 * 512] = layout.encode_trunk(Trunk(5, 5, 7, 5, (6,)), 512)
    one = reading(bytes(data), tmp_path)
    assert [record.type for record in one.records()] == ["COMMIT", "NOOP"]
    check_everything(one)


def test_page_listed_over_and_over_ends(tmp_path: Path) -> None:
    data = page_file(encode_commit(3))
    data[5 * 512 : 6 * 512] = layout.encode_trunk(Trunk(5, 5, 7, 0, (6,) * 123), 512)
    one = reading(bytes(data), tmp_path)
    assert len(list(one.records())) <= 2 * 7
    check_everything(one)


def test_page_far_outside_is_reported(tmp_path: Path) -> None:
    data = page_file(encode_commit(3))
    data[5 * 512 : 6 * 512] = layout.encode_trunk(Trunk(5, 5, 7, 0, (6, 1 << 30)), 512)
    assert "page-far-outside" in codes(reading(bytes(data), tmp_path))


@pytest.mark.parametrize(
    ("listed", "impossible"),
    [
        ((6, 7, 8), False),
        ((6, 7, 0), True),  # H2 1.3.176: ArrayIndexOutOfBoundsException when it frees the log
        ((6, 4), True),
        ((6, 5), True),  # the trunk page itself
        ((6, 7, 6), True),
        ((6, layout.FREE_LIST_ROOT + (512 - layout.FREE_LIST_START) * 8), True),
    ],
)
def test_list_of_log_pages_with_one_that_no_log_has_is_not_safe(
    listed: tuple[int, ...], impossible: bool, tmp_path: Path
) -> None:
    data = page_file(encode_commit(3)) + bytes(8 * 512)
    data[5 * 512 : 6 * 512] = layout.encode_trunk(Trunk(5, 5, 7, 0, listed), 512)
    one = reading(bytes(data), tmp_path)
    assert ("impossible-log-page" in codes(one)) is impossible
    assert not impossible or one.verdict().judgement.answer is not Answer.SAFE


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "unit",
    [b"\x0a\x00", b"\x05\x03\x10\x01\x01\x05", encode_checkpoint(), b"\x01\x20\x01"],
    ids=["unknown and no-op", "stale rows", "checkpoints", "empty images"],
)
def test_time_is_linear_in_the_log(unit: bytes, tmp_path: Path) -> None:
    def seconds(pages: int) -> float:
        body = unit * (pages * 2037 // len(unit))
        one = reading(bytes(page_file(body, page_size=2048)), tmp_path)
        start = time.process_time()
        one.verdict()
        return time.process_time() - start

    seconds(2)
    small, large = seconds(4), seconds(24)
    assert large < 6 * 4 * small + 0.3


@given(st.binary(max_size=900))
def test_any_stream_is_read_to_an_end(body: bytes) -> None:
    one = H2Reading(LogSource("h2", "made", ("made",)), ReadOptions())
    _feed(one, bytes(page_file(body)))
    check_everything(one)


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=12))
def test_flipped_bytes_anywhere_are_survived(flips: list[tuple[int, int]]) -> None:
    data = base("clean-512")[: 40 * 512] + page_file(b"\x05" * 600)
    for at, bits in flips:
        data[at % len(data)] ^= bits
    one = H2Reading(LogSource("h2", "made", ("made",)), ReadOptions())
    _feed(one, bytes(data))
    check_everything(one)


def _feed(one: H2Reading, data: bytes) -> None:
    from tallystick.storage.source import ByteSource

    one.__dict__["_bytes"] = ByteSource("made", memoryview(data))


def test_vanished_file_is_a_finding(tmp_path: Path) -> None:
    one = H2Reading(LogSource("h2", str(tmp_path), (str(tmp_path / "gone.h2.db"),)), ReadOptions())
    assert codes(one) == {"unreadable"}
    assert one.verdict().engine == {}
    check_everything(one)
