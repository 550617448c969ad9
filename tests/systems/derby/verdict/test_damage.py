"""Damage by every row of the table in docs/formats/derby.md, tried on the real engine."""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.errors import CorruptLogError
from tallystick.records import Answer, AtStake, Outcome, Severity
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.compressed_numbers import format_id
from tallystick.systems.derby.format.field_types import Container, Page
from tallystick.systems.derby.format.layout import (
    CHECKSUM_RECORD_SIZE,
    LENGTH,
    LOG_RECORD_FIXED_OVERHEAD_SIZE,
    PREFIX,
    Group,
    decode_control,
    encode_checksum_body,
    encode_control,
    encode_header,
    encode_record,
    make_instant,
)
from tallystick.systems.derby.format.operations import (
    ALLOC_PAGE,
    CONTAINER_CHANGE,
    CONTAINER_REMOVE,
    INIT_PAGE,
    INSERT,
    PHYSICAL_UNDO,
    PURGE,
    STATUS_COMMITTED,
    STATUS_INTERNAL,
    STATUS_USER,
    UPDATE_ROW,
    encode_begin,
    encode_end,
    encode_operation,
)
from tallystick.systems.derby.format.record_body import encode_body
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.protocol import ReadOptions
from tallystick.testing.spans import check_tiling
from tests.fixtures import fixture_dir
from tests.systems.derby.logs import (
    Patch,
    append,
    copy,
    cut,
    flip,
    group_at,
    log_bytes,
    manifest,
    reading_of,
    zero,
)
from tests.systems.derby.test_fixtures import same_rows

CASE = "halted"
END = 49358
UNDO = 41429
CHECKPOINT, CHECKPOINT_END = 41502, 41645
OPERATION, TABLE_FLAG, TAIL = CHECKPOINT + 20, CHECKPOINT + 39, CHECKPOINT + 65
"""In the checkpoint's record: its operation, whether it has a table, the length of its data."""


def groups() -> list[int]:
    """Positions of the checksum records after the undo mark."""
    data = log_bytes(CASE)
    found, place = [], data.find(bytes.fromhex("0081 4900 0000 01c5"))
    while place >= 0:
        found.append(place - 12)
        place = data.find(bytes.fromhex("0081 4900 0000 01c5"), place + 1)
    return [place for place in found if place >= UNDO]


MIDDLE = groups()[len(groups()) // 2]
LAST = groups()[-1]


def control(**changes: int) -> Patch:
    def patch(content: bytearray) -> bytes:
        return encode_control(dataclasses.replace(decode_control(bytes(content)), **changes))

    return patch


def content(data: bytes) -> Patch:
    return lambda _: data


def damaged(tmp_path: Path, name: str, patch: Patch | None) -> DerbyReading:
    folder = copy(CASE, tmp_path / "db", {name: patch})
    if patch is not None and not (folder / "log" / name).exists():
        (folder / "log" / name).write_bytes(patch(bytearray()) or b"")
    return reading_of(folder)


LOG = "log1.dat"
NEXT = make_instant(1, END)
# (what, file, damage, boots, fuzzy end, end of the log; None: not looked at)
TABLE: list[tuple[str, str, Patch | None, bool, bool | None, int | None]] = [
    ("bit flip in the last group", LOG, flip(LAST + 57), True, True, LAST),
    ("bit flip in the CRC of the last group", LOG, flip(LAST + 32), True, True, LAST),
    ("bit flip in a middle group", LOG, flip(MIDDLE + 57), True, True, MIDDLE),
    ("bit flip before the undo mark", LOG, flip(UNDO - 50), True, False, END),
    ("checksum length short", LOG, append(b"\0\0\0\5", MIDDLE + 21), True, True, MIDDLE),
    ("checksum length too large", LOG, append(b"\x7f\xff\xff\xff", MIDDLE + 21), False, None, None),
    ("checksum length negative", LOG, append(b"\xff\xff\xff\0", MIDDLE + 21), False, None, None),
    ("checksum algorithm", LOG, append(b"\2", MIDDLE + 20), False, None, None),
    ("record length negative", LOG, append(b"\xff\xff\xff\0", MIDDLE), False, None, None),
    ("high half of the CRC", LOG, append(b"\0\0\0\1", MIDDLE + 25), True, True, MIDDLE),
    ("trailing length larger, none to undo", LOG, append(b"\x16", MIDDLE + 36), True, False, END),
    ("trailing length smaller", LOG, append(b"\0\0\0\x14", MIDDLE + 33), True, True, MIDDLE),
    ("instant smaller", LOG, append(struct.pack(">q", 1), MIDDLE + 4), True, True, MIDDLE),
    ("instant larger", LOG, append(b"\x7f", MIDDLE + 4), True, False, END),
    ("length beyond the file", LOG, append(b"\0\xff\0\0", MIDDLE), True, True, MIDDLE),
    ("leading length zero", LOG, zero(MIDDLE, MIDDLE + 4), True, False, MIDDLE),
    ("checksum record zero", LOG, zero(MIDDLE, MIDDLE + 37), True, False, MIDDLE),
    ("cut inside a group", LOG, cut(MIDDLE + 60), True, True, MIDDLE),
    ("cut inside a checksum record", LOG, cut(MIDDLE + 20), True, True, MIDDLE),
    ("cut inside a length", LOG, cut(MIDDLE + 2), True, True, MIDDLE),
    ("cut between groups", LOG, cut(MIDDLE), True, False, MIDDLE),
    ("cut before the checkpoint", LOG, cut(UNDO - 100), True, True, None),
    ("bit flip in the checkpoint's head", LOG, flip(CHECKPOINT + 13, 3), False, None, None),
    ("length after the checkpoint", LOG, append(b"\xcf\x93\xa7\x6f", TAIL), True, True, None),
    ("checkpoint's table not 1", LOG, append(b"\5", TABLE_FLAG), True, True, None),
    ("checkpoint of no table", LOG, append(b"\1\0\0", TABLE_FLAG), True, True, None),
    ("checkpoint without an operation", LOG, zero(OPERATION, OPERATION + 2), True, True, None),
    ("checkpoint of undo mark 0", LOG, zero(OPERATION + 10, OPERATION + 18), False, None, None),
    ("compensation flag of a checksum record", LOG, flip(MIDDLE + 15, 2), True, False, END),
    ("noise after the end", LOG, append(b"\x11" * 60, END), True, True, END),
    ("noise after four zeros", LOG, append(b"\x11" * 60, END + 4), True, False, END),
    ("header format id", LOG, flip(3), False, None, None),
    ("header file number", LOG, flip(15, 2), False, None, None),
    ("empty file", LOG, cut(0), False, None, None),
    ("16 bytes", LOG, cut(16), True, None, 0),
    ("24 bytes", LOG, cut(24), True, None, 0),
    ("log file missing", LOG, None, True, None, 0),
    ("next file linked and empty", "log2.dat", content(encode_header(2, NEXT)), True, False, None),
    ("next file not linked", "log2.dat", content(encode_header(2, 7)), True, False, END),
    ("next file empty", "log2.dat", content(b""), False, None, None),
    ("next file's number", "log2.dat", content(encode_header(3, NEXT)), False, None, None),
    ("log.ctrl flipped", "log.ctrl", flip(12), True, False, END),
    ("log.ctrl missing", "log.ctrl", None, True, False, END),
    ("mirror missing", "logmirror.ctrl", None, True, False, END),
    ("log.ctrl of 8 bytes", "log.ctrl", cut(8), True, False, END),
    ("log.ctrl of 16 bytes", "log.ctrl", cut(16), False, None, None),
    ("log.ctrl of 17 bytes", "log.ctrl", cut(17), True, False, END),
    ("log.ctrl of 35 bytes", "log.ctrl", cut(35), True, False, END),
    ("log.ctrl of 36 bytes", "log.ctrl", cut(36), False, None, None),
    ("log.ctrl of 37 bytes", "log.ctrl", cut(37), True, False, END),
    ("log.ctrl of zeros", "log.ctrl", content(bytes(48)), False, None, None),
    ("zeros after log.ctrl", "log.ctrl", append(bytes(8), 48), True, False, END),
    ("mirror of zeros", "logmirror.ctrl", content(bytes(48)), True, False, END),
    ("newer version", "log.ctrl", control(minor=15), True, False, END),
    ("beta", "log.ctrl", control(flags=1), False, None, None),
    ("older version", "log.ctrl", control(minor=5), True, False, END),
    ("no checkpoint", "log.ctrl", control(checkpoint=0), True, False, END),
    ("file of the checkpoint", "log.ctrl", control(checkpoint=(9 << 32) + 24), True, None, 0),
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("row", TABLE, ids=[row[0].replace(" ", "-") for row in TABLE])
def test_engine_does_with_damage_what_derby_10_14_did(
    tmp_path: Path, row: tuple[str, str, Patch | None, bool, bool | None, int | None]
) -> None:
    _, name, patch, boots, fuzzy, end = row
    log = damaged(tmp_path, name, patch)
    assert log.recovery.boots is boots, log.recovery.reason
    assert any(one.refuses for one in log.verdict().differences) is not boots
    assert fuzzy is None or log.recovery.fuzzy is fuzzy
    if end is not None:
        assert log.recovery.log_end == (make_instant(1, end) if end else 0)
    everything_holds_together(log)


def everything_holds_together(log: DerbyReading) -> None:
    """What must hold of any input: tiling, JSON, batches as records, no engine record lost."""
    for file in log.files():
        check_tiling(file)
    json.dumps(log.verdict().to_dict())
    json.dumps([record.to_dict() for record in log.records(salvage=True)])
    assert all(finding.to_dict() for finding in log.findings())
    same_rows(log)


def test_damage_in_the_middle_is_loss_and_names_the_dropped_commits(tmp_path: Path) -> None:
    log = damaged(tmp_path, LOG, flip(MIDDLE + 57))
    verdict = log.verdict()
    assert verdict.differences[0].severity is Severity.LOSS
    assert "overwrites them with zeros" in verdict.differences[0].meaning
    assert "dropped-commits" in verdict.strict["findings"]
    believed = {record.offset for record in log.records()}
    salvaged = [record for record in log.records(salvage=True) if record.offset not in believed]
    assert salvaged
    assert all(record.attributes["salvaged"] for record in salvaged)
    assert max(record.offset + record.length for record in salvaged) == END


def test_flipped_group_is_corrupt_where_records_follow_and_torn_where_none_do(
    tmp_path: Path,
) -> None:
    middle = damaged(tmp_path / "middle", LOG, flip(MIDDLE + 57))
    last = damaged(tmp_path / "last", LOG, flip(LAST + 57))
    assert damage_of(middle) == {Outcome.CORRUPT}
    assert damage_of(last) == {Outcome.TORN}


def damage_of(log: DerbyReading) -> set[Outcome]:
    return {record.outcome for record in log.records()} - {Outcome.VALID}


def test_damage_before_recoverys_start_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    log = damaged(tmp_path, LOG, flip(UNDO - 50))
    (difference,) = log.verdict().differences
    assert difference.severity is Severity.DAMAGE
    assert log.verdict().strict["lost"] == {"bytes": 0, "records": 0, "ends": []}
    healthy = reading_of(fixture_dir("derby") / CASE)
    ours = {record.offset for record in log.records()}
    assert ours == {record.offset for record in healthy.records()}


def test_checkpoint_after_the_end_warns_of_undo_against_newer_pages(tmp_path: Path) -> None:
    log = damaged(tmp_path, LOG, cut(UNDO - 100))
    assert "undo-against-newer-pages" in log.verdict().strict["findings"]


def test_unlinked_next_file_is_stale(tmp_path: Path) -> None:
    stale = encode_header(2, 7) + log_bytes("switch-archive", "log2.dat")[24:]
    log = damaged(tmp_path, "log2.dat", content(stale))
    records = list(log.records(salvage=True))
    assert {record.outcome for record in records if record.file.endswith("log2.dat")} == {
        Outcome.STALE
    }
    assert not any(record.file.endswith("log2.dat") for record in log.records())


def test_archived_file_missing_before_recoverys_start_is_found(tmp_path: Path) -> None:
    log = reading_of(copy("switch-archive", tmp_path / "db", {"log3.dat": None}))
    assert log.recovery.boots is True
    assert [one.file for one in log.findings() if one.code == "missing-file"] == [None]
    assert log.judgement.answer is Answer.SAFE  # as where none of an archive is there
    beyond = [record for record in log.records() if record.attributes.get("in_scan") is False]
    assert {Path(record.file).name for record in beyond} == {"log4.dat", "log5.dat"}
    everything_holds_together(log)


def test_records_after_a_missing_file_are_salvaged(tmp_path: Path) -> None:
    first = control(checkpoint=0)
    patches = {"log3.dat": None, "log.ctrl": first, "logmirror.ctrl": first}
    log = reading_of(copy("switch-archive", tmp_path / "db", patches))
    salvaged = [record for record in log.records(salvage=True) if "salvaged" in record.attributes]
    assert {Path(record.file).name for record in salvaged} == {"log4.dat", "log5.dat"}
    assert "dropped-commits" in log.verdict().strict["findings"]
    assert (log.judgement.answer, log.judgement.at_stake) == (Answer.LOSES, AtStake())
    everything_holds_together(log)


def test_trailing_length_in_the_way_of_undo_stops_the_boot(tmp_path: Path) -> None:
    """But for one that leads to what seems older than the transaction: Derby 10.14 boots then."""
    vectors = json.loads((fixture_dir("derby") / "writer-vectors/vectors.json").read_text())
    (vector,) = (one for one in vectors if one["name"] == "no-end")
    at, tail = vector["append_at"], b""
    for body in map(bytes.fromhex, vector["record_bodies_hex"]):  # a group for each
        place = at + len(tail)
        record = encode_record(make_instant(1, place + CHECKSUM_RECORD_SIZE), body)
        checksum = encode_checksum_body(len(record), zlib.crc32(record))
        tail += encode_record(make_instant(1, place), checksum) + record
    second = tail.rindex(bytes.fromhex("0081 4900 0000 01c5")) + 21
    whole = reading_of(copy("writer-vectors", tmp_path / "whole", {LOG: append(tail, at)}))
    assert whole.recovery.boots is True
    larger = tail[: second + 3] + b"\x16" + tail[second + 4 :]
    patched = reading_of(copy("writer-vectors", tmp_path / "larger", {LOG: append(larger, at)}))
    assert patched.judgement.reason == "no-boot"
    number_of_file = at + second + 4 - 8 + LENGTH.size - LOG_RECORD_FIXED_OVERHEAD_SIZE
    older = tail[:second] + LENGTH.pack(number_of_file) + tail[second + 4 :]
    patched = reading_of(copy("writer-vectors", tmp_path / "older", {LOG: append(older, at)}))
    assert patched.judgement.reason == "boot-depends"
    before = tail[:33] + b"\x16" + tail[34:]  # the record that ends where the transaction begins
    patched = reading_of(copy("writer-vectors", tmp_path / "before", {LOG: append(before, at)}))
    assert patched.judgement.reason == "no-boot"


def test_writer_vectors_get_the_engines_verdict(tmp_path: Path) -> None:
    vectors = json.loads((fixture_dir("derby") / "writer-vectors/vectors.json").read_text())
    for vector in vectors:
        patch = append(bytes.fromhex(vector["bytes_hex"]), vector["append_at"])
        log = reading_of(copy("writer-vectors", tmp_path / vector["name"], {LOG: patch}))
        truth = vector["real_verdict"]
        if vector["name"] == "page-version-gap":  # the page on disk decides, not the log
            assert log.recovery.boots is None
            assert log.recovery.depends == "seg0/c490.dat"
        else:
            assert log.recovery.boots is truth["boots"], vector["name"]
        if truth["boots"]:
            assert log.verdict().strict["in_doubt"] == truth["xa_recover"]
        everything_holds_together(log)


@pytest.mark.long
@settings(max_examples=12)
@given(
    at=st.integers(UNDO - 200, END + 8),
    bit=st.integers(0, 7),
    length=st.sampled_from([0, 1, 4, 40, 400]),
)
def test_any_flip_or_zeroing_is_answered_without_a_crash(at: int, bit: int, length: int) -> None:
    import tempfile

    patch = zero(at, at + length) if length else flip(at, bit)
    with tempfile.TemporaryDirectory() as folder:
        everything_holds_together(damaged(Path(folder), LOG, patch))


def test_sealed_log_gives_envelopes_and_says_so() -> None:
    log = reading_of(fixture_dir("derby") / "encrypted-aes-external-key")
    assert [one.code for one in log.findings()] == ["encrypted"]
    records = list(log.records())
    assert len(records) == manifest("encrypted-aes-external-key")["record_count"]
    assert {record.type for record in records} == {"sealed"}
    assert log.verdict().engine["boots"] is None
    everything_holds_together(log)


def test_newer_version_is_refused_only_by_an_engine_that_is_named(tmp_path: Path) -> None:
    folder = copy(CASE, tmp_path / "db", {"log.ctrl": control(minor=17)})
    log = reading_of(folder)
    assert log.recovery.boots is True
    assert log.judgement.reason == "boot-depends"
    assert [one.code for one in log.findings()] == ["newer-version"]
    for version, boots in (("10.16", False), ("10.17", True), ("10.18.1", True)):
        named = reading_of(folder, ReadOptions(settings={"derby_version": version}))
        assert named.recovery.boots is boots, version
        assert named.judgement.answer is (Answer.SAFE if boots else Answer.REFUSES)


def test_length_that_a_heap_may_not_hold_is_left_open(tmp_path: Path) -> None:
    log = damaged(tmp_path, LOG, append(b"\x7f\xff\xff\0", MIDDLE + 21))
    assert log.recovery.boots is None
    assert log.recovery.depends == "the size of the engine's heap"
    verdict = log.verdict()
    assert not any(one.refuses for one in verdict.differences)
    assert "dropped-commits" in verdict.strict["findings"]
    with pytest.raises(CorruptLogError):
        LogToFile(str(tmp_path / "db/log"))


@pytest.mark.parametrize("patch", [flip(3), flip(15), cut(0)], ids=["format", "number", "empty"])
def test_scan_of_a_first_file_with_a_bad_header_returns_nothing(
    tmp_path: Path, patch: Patch
) -> None:
    (first, *_) = damaged(tmp_path, LOG, patch).verdict().engine["real_scan"]
    assert first["records"] == 0


def test_log_that_ends_where_its_checkpoint_should_be_is_loss(tmp_path: Path) -> None:
    log = damaged(tmp_path, LOG, zero(CHECKPOINT, END))
    assert log.recovery.past_end
    assert Severity.LOSS in {one.severity for one in log.findings()}


BOTH = ("log.ctrl", "logmirror.ctrl")


@pytest.mark.parametrize(
    ("names", "patch", "answer"),
    [
        (BOTH[:1], cut(0), Answer.SAFE),
        (BOTH[:1], flip(12), Answer.SAFE),
        (BOTH[:1], content(bytes(48)), Answer.REFUSES),
        (BOTH[1:], cut(0), Answer.SAFE),
        (BOTH[1:], content(bytes(48)), Answer.SAFE),
        (BOTH, cut(0), Answer.CANNOT_TELL),
        (BOTH, content(bytes(48)), Answer.REFUSES),
    ],
)
def test_one_control_file_is_enough_unless_zeros_stand_in_the_first(
    tmp_path: Path, names: tuple[str, ...], patch: Patch, answer: Answer
) -> None:
    """Derby 10.10 and 10.14 start so; of zeros they say XSLAC."""
    reading = reading_of(copy(CASE, tmp_path / "db", dict.fromkeys(names, patch)))
    assert reading.judgement.answer is answer
    assert sum(one.code == "control-damaged" for one in reading.findings()) == len(names)


def test_advice_names_no_control_file_that_is_missing_or_damaged_too(tmp_path: Path) -> None:
    names = ("log.ctrl", "logmirror.ctrl")
    folder = copy(CASE, tmp_path / "missing", dict.fromkeys(names))
    (finding,) = (one for one in reading_of(folder).findings() if one.code == "control-missing")
    assert "logmirror" not in (finding.advice or "")
    folder = copy(CASE, tmp_path / "damaged", dict.fromkeys(names, flip(12)))
    for finding in reading_of(folder).findings():
        assert "twin" not in (finding.advice or "")


def test_end_marker_without_a_next_file_is_damage(tmp_path: Path) -> None:
    first = control(checkpoint=0)
    patches = {"log5.dat": None, "log.ctrl": first, "logmirror.ctrl": first}
    log = reading_of(copy("switch-archive", tmp_path / "db", patches))
    assert log.recovery.boots is True
    (finding,) = log.findings()
    assert (finding.code, finding.severity) == ("missing-file", Severity.DAMAGE)
    assert "log5.dat" in finding.message
    verdict = log.verdict()
    assert verdict.strict["lost"]["files"] == ["log5.dat"]
    assert [one.severity for one in verdict.differences] == [Severity.DAMAGE]
    with pytest.raises(CorruptLogError):
        LogToFile(str(tmp_path / "db/log"))
    everything_holds_together(log)


@pytest.mark.parametrize(("booted", "reason"), [(2, "last-file-missing"), (8, "odd-size")])
def test_four_zeros_after_a_boot_near_them_may_be_no_end_marker(
    booted: int, reason: str, tmp_path: Path
) -> None:
    """The boot may have overwritten a torn group with them; far before them it did not.

    A marker proves that a next file was made, and not that anything was committed in it.
    """
    fields = {"pageId": Page(0, 1168, 1), "pageVersion": 1, "recordId": 6, "undo": None}
    operation = encode_operation(INSERT, fields | {"doMeSlot": 0, "insertFlag": 1})
    with LogToFile(str(tmp_path / "log"), switch_interval=100_000, archive=True) as log:
        number = log.begin()
        for index in range(11):
            log.log(number, operation, bytes(10_000))
            if index == booted:
                log.checkpoint()
        log.commit(number)
    (tmp_path / "log/log2.dat").unlink()
    (tmp_path / "service.properties").write_text("derby.storage.logSwitchInterval=100000\n")
    found = reading_of(tmp_path)
    assert found.recovery.marked
    assert (found.judgement.answer, found.judgement.reason) == (Answer.CANNOT_TELL, reason)


def test_zeros_without_a_next_file_prove_nothing(tmp_path: Path) -> None:
    first = control(checkpoint=0)
    patches: dict[str, Patch | None] = {"log.ctrl": first, "logmirror.ctrl": first}
    patches |= {f"log{number}.dat": None for number in (2, 3, 4, 5)}
    log = reading_of(copy("switch-archive", tmp_path / "db", patches))
    assert log.recovery.lost_file == 0
    assert "files" not in log.verdict().strict["lost"]


@pytest.mark.parametrize("at", [END - 3, MIDDLE + 20], ids=["last-bytes", "checksum-record"])
def test_file_that_is_cut_below_its_preallocation_is_not_called_a_torn_tail(
    tmp_path: Path, at: int
) -> None:
    (finding,) = damaged(tmp_path, LOG, cut(at)).findings()
    assert (finding.code, finding.severity) == ("cut-short", Severity.DAMAGE)


def test_torn_write_into_a_preallocated_file_is_a_torn_tail(tmp_path: Path) -> None:
    (finding,) = damaged(tmp_path, LOG, zero(LAST + 60, END)).findings()
    assert (finding.code, finding.severity) == ("torn-tail", Severity.WARNING)


def test_checkpoint_record_of_which_only_the_head_was_written_lets_the_database_boot(
    tmp_path: Path,
) -> None:
    """Derby 10.14 boots and keeps all: no object stands where the record's format id is 0."""

    def zeroed_body(content: bytearray) -> bytes:
        content[CHECKPOINT + PREFIX.size :] = bytes(len(content) - CHECKPOINT - PREFIX.size)
        return bytes(content)

    log = damaged(tmp_path, "log1.dat", zeroed_body)
    assert log.recovery.boots, log.recovery.reason
    assert log.verdict().judgement.answer is not Answer.REFUSES


@pytest.mark.parametrize(
    ("later", "answer", "reason"),
    [
        (True, Answer.LOSES, "commits-dropped"),
        (False, Answer.CANNOT_TELL, "checkpoint-past-end"),
    ],
)
def test_the_end_of_a_checkpoint_is_no_commit_that_is_lost(
    later: bool, answer: Answer, reason: str, tmp_path: Path
) -> None:
    """The checkpoint is damaged; after its own end, which is whole, commits follow, or none do."""

    def patch(content: bytearray) -> bytearray:
        content[CHECKPOINT - 30] ^= 1
        if not later:
            content[CHECKPOINT_END:END] = bytes(END - CHECKPOINT_END)
        return content

    found = reading_of(copy(CASE, tmp_path / "copy", {"log1.dat": patch}))
    assert (found.judgement.answer, found.judgement.reason) == (answer, reason)


@pytest.mark.parametrize(
    ("case", "later", "answer", "reason"),
    [
        ("switch-archive", True, Answer.LOSES, "commits-dropped"),
        (CASE, False, Answer.CANNOT_TELL, "new-log"),
    ],
)
def test_a_new_log_loses_what_is_seen_to_be_committed_after_the_last_checkpoint(
    case: str, later: bool, answer: Answer, reason: str, tmp_path: Path
) -> None:
    """The first file is missing, and no control file leads past it; or it was the only one."""

    damaged: dict[str, Patch | None] = {"log1.dat": None}
    if later:
        damaged |= {"log.ctrl": cut(0), "logmirror.ctrl": cut(0)}
    found = reading_of(copy(case, tmp_path / "copy", damaged))
    assert (found.judgement.answer, found.judgement.reason) == (answer, reason)
    assert found.judgement.at_stake == AtStake()  # nobody knows what the file held


def appended(tmp_path: Path, *groups: list[bytes], broken: int | None = None) -> DerbyReading:
    """A whole log with groups of these bodies at its end, one with a wrong checksum."""
    vectors = json.loads((fixture_dir("derby") / "writer-vectors/vectors.json").read_text())
    at: int = next(one["append_at"] for one in vectors if one["name"] == "no-end")
    tail = b""
    for number, bodies in enumerate(groups):
        tail += group_at(make_instant(1, at + len(tail)), bodies, broken=number == broken)
    return reading_of(copy("writer-vectors", tmp_path / "db", {LOG: append(tail, at)}))


OPEN, USER, INTERNAL = Group.RAWSTORE, STATUS_USER, STATUS_INTERNAL
NINTH = Page(0, 0x2A1, 9)
INITIALISED = {"pageId": NINTH, "pageVersion": 0, "nextRecordId": 6, "initFlag": 4}
INITIALISED |= {"pageOffset": 9 << 12, "pageFormatId": 117}
ALLOCATED = {"pageId": Page(0, 0x2A1, 0), "pageVersion": 9, "newPageNumber": 9}
NEW_PAGE = [
    encode_operation(INIT_PAGE, INITIALISED),
    encode_operation(ALLOC_PAGE, ALLOCATED | {"doStatus": 0, "undoStatus": 2}),
]
PURGED = {"pageId": NINTH, "pageVersion": 3, "slot": 1, "num_rows": 1, "recordIds": [6]}
FREED = [encode_operation(PURGE, PURGED)]


DROP = 2
"""A container is gone with the commit of its transaction."""


def container(operation: int) -> list[bytes]:
    fields = {"containerId": Container(0, 0x2A1), "containerVersion": 0, "operation": operation}
    return [encode_operation(CONTAINER_CHANGE, fields | {"createByteArray": None})]


UPDATED = [
    encode_operation(UPDATE_ROW, {"pageId": NINTH, "pageVersion": 7, "doMeSlot": 0, "recordId": 6})
]


@pytest.mark.parametrize("layout", ["in it", "after it", "begun before it"])
@pytest.mark.parametrize(
    ("status", "operations", "missed"),
    [
        (USER, NEW_PAGE, False),
        (USER, FREED, False),
        (USER, container(CONTAINER_REMOVE), False),
        (INTERNAL, UPDATED, False),
        (USER, [], False),
        (USER, container(DROP), True),
        (USER, UPDATED, True),
        (USER, [*UPDATED, *NEW_PAGE], True),
    ],
)
def test_a_dropped_commit_is_a_loss_only_where_its_transaction_changed_something(
    status: int, operations: list[bytes], missed: bool, layout: str, tmp_path: Path
) -> None:
    """Derby's own transactions, and those that give and take pages, were told to nobody."""
    number = 99_999
    begin = encode_body(Group.FIRST | OPEN, number, encode_begin(status, None))
    changes = [encode_body(OPEN, number, one) for one in operations]
    end = encode_body(Group.LAST | Group.COMMIT | OPEN, number, encode_end(STATUS_COMMITTED, None))
    other = encode_body(Group.FIRST | OPEN, number + 1, encode_begin(STATUS_USER, None))
    groups, broken = {
        "in it": ([[begin, *changes, end]], 0),
        "after it": ([[other], [begin, *changes, end]], 0),
        "begun before it": ([[begin, *changes], [end]], 1),
    }[layout]
    found = appended(tmp_path, *groups, broken=broken)
    assert (found.judgement.reason == "commits-dropped") is missed
    assert found.judgement.answer is (Answer.LOSES if missed else Answer.CANNOT_TELL)


def around_a_checkpoint(
    tmp_path: Path, begun: list[bytes], dropped: list[bytes], after: list[bytes]
) -> DerbyReading:
    """A whole log with three groups at its end; the second one is damaged.

    The last checkpoint is between it and the third one, and leads to the first one.
    """
    vectors = json.loads((fixture_dir("derby") / "writer-vectors/vectors.json").read_text())
    at: int = next(one["append_at"] for one in vectors if one["name"] == "no-end")
    tail = group_at(make_instant(1, at), begun)
    tail += group_at(make_instant(1, at + len(tail)), dropped, broken=True)
    redo = make_instant(1, at + len(tail))
    marks = {"redoLWM": redo, "undoLWM": make_instant(1, at), "transactionTable": []}
    begin, end = of(99_990, INTERNAL)
    checkpoint = encode_body(OPEN, 99_990, encode_operation(operations.CHECKPOINT, marks))
    place = redo + CHECKSUM_RECORD_SIZE + len(encode_record(redo, begin))
    tail += group_at(redo, [begin, checkpoint, end])
    tail += group_at(make_instant(1, at + len(tail)), after)
    damaged: dict[str, Patch | None] = {LOG: append(tail, at)}
    damaged |= dict.fromkeys(("log.ctrl", "logmirror.ctrl"), control(checkpoint=place))
    return reading_of(copy("writer-vectors", tmp_path / "db", damaged))


def of(number: int, status: int = USER) -> tuple[bytes, bytes]:
    """The records that begin a transaction and end it by a commit."""
    begin = encode_body(Group.FIRST | OPEN, number, encode_begin(status, None))
    end = encode_body(Group.LAST | Group.COMMIT | OPEN, number, encode_end(STATUS_COMMITTED, None))
    return begin, end


CHANGE = encode_body(OPEN, 99_999, UPDATED[0])
BEGIN, COMMIT = of(99_999)
WRITTEN: dict[str, tuple[list[bytes], list[bytes], list[bytes], bool]] = {
    "all": ([], [BEGIN, CHANGE], [COMMIT], False),
    "all, and it is known to have begun": ([BEGIN], [CHANGE], [COMMIT], False),
    "all but the last change": ([], [BEGIN, CHANGE], [CHANGE, COMMIT], True),
    "all, and a restart takes back the first change": ([BEGIN, CHANGE], [CHANGE], [COMMIT], True),
    "nothing": ([], [], [BEGIN, CHANGE, COMMIT], True),
}


@pytest.mark.parametrize("by_runs", [True, False])
@pytest.mark.parametrize("written", WRITTEN)
def test_a_dropped_commit_is_no_loss_where_a_checkpoint_has_written_its_changes(
    written: str, by_runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derby 10.14 and 10.16 have its rows: the pages hold them, and nothing is known to undo."""
    begun, dropped, after, missed = WRITTEN[written]
    if not by_runs:
        monkeypatch.setattr(DerbyReading, "_runs", None)
    other, _ = of(99_998)
    found = around_a_checkpoint(tmp_path, [other, *begun], dropped or [*of(99_997)], after)
    assert found.recovery.boots
    assert found.recovery.redo_mark > found.recovery.log_end
    assert (found.judgement.reason == "commits-dropped") is missed
    assert found.judgement.answer is (Answer.LOSES if missed else Answer.CANNOT_TELL)


WRONG = (0x7FFFFFFF).to_bytes(4)
"""A length of data that no record holds."""
CHANGED = {"pageId": Page(0, 0x2A1, 1), "pageVersion": 7, "doMeSlot": 0, "recordId": 6}


@pytest.mark.parametrize(
    ("operation", "depends"),
    [
        (encode_operation(UPDATE_ROW, CHANGED), "seg0/c2a1.dat"),
        (encode_end(STATUS_COMMITTED, None), "a second copy of the database, booted"),
    ],
    ids=["page", "end"],
)
def test_wrong_length_after_an_operation_that_may_not_be_redone_is_left_open(
    operation: bytes, depends: str, tmp_path: Path
) -> None:
    begin = encode_body(Group.FIRST | Group.RAWSTORE, 99_999, encode_begin(STATUS_USER, None))
    wrong = encode_body(Group.RAWSTORE, 99_999, operation)[:-4] + WRONG
    found = appended(tmp_path, [begin], [wrong])
    assert (found.recovery.boots, found.recovery.depends) == (None, depends)
    assert found.judgement.answer is not Answer.REFUSES


@pytest.mark.parametrize("at", [TAIL, TABLE_FLAG + 1], ids=["data", "table"])
def test_end_of_a_checkpoint_whose_record_is_damaged_is_no_lost_commit(
    at: int, tmp_path: Path
) -> None:
    """Derby 10.14 boots and keeps all: it reads neither the data after it nor no table."""

    def patch(content: bytearray) -> bytearray:
        content[at : at + 2] = bytes(2) if at != TAIL else b"\xcf\x93"
        content[CHECKPOINT_END:END] = bytes(END - CHECKPOINT_END)
        return content

    found = damaged(tmp_path, LOG, patch)
    assert found.recovery.boots
    assert not found.recovery.depends
    assert found.judgement.answer is Answer.CANNOT_TELL


@pytest.mark.parametrize(("before", "reason"), [(0, "unfinished-group"), (40, "odd-group")])
def test_zeros_that_begin_inside_a_sector_are_no_unfinished_group(
    before: int, reason: str, tmp_path: Path
) -> None:
    """A disk writes a sector whole: something else zeroed it, and may have zeroed more."""
    sector = -(-(MIDDLE + 40) // 512) * 512
    found = damaged(tmp_path, LOG, zero(sector - before, END))
    assert found.judgement.reason == reason
    assert (found.judgement.answer is Answer.CANNOT_TELL) is (before > 0)


REDO = OPERATION + 2
"""In the checkpoint's record: the mark from which changes are redone."""


def resummed(patch: Patch) -> Patch:
    """Damage in the group of the checkpoint's record that its checksum record covers."""

    def patched(content: bytearray) -> bytearray:
        patch(content)
        head = content.rindex(bytes.fromhex("0081 4900 0000 01c5"), 0, CHECKPOINT)
        begin = head - PREFIX.size + CHECKSUM_RECORD_SIZE
        size = int.from_bytes(content[head + 9 : head + 13])
        crc = zlib.crc32(content[begin : begin + size])
        content[head + 13 : head + 21] = crc.to_bytes(8)
        return content

    return patched


@pytest.mark.parametrize(
    "damage",
    [
        dict.fromkeys(("log.ctrl", "logmirror.ctrl"), control(checkpoint=make_instant(1, LAST))),
        {LOG: resummed(append(b"\xff", REDO))},
    ],
    ids=["control", "mark"],
)
def test_log_without_the_checkpoint_that_its_control_file_names_is_not_safe(
    damage: dict[str, Patch | None], tmp_path: Path
) -> None:
    """Derby 10.14 boots, and rows are lost: redo starts at another place, or leaves changes out."""
    found = reading_of(copy(CASE, tmp_path / "copy", damage))
    assert found.recovery.boots
    assert (found.judgement.answer, found.judgement.reason) == (
        Answer.CANNOT_TELL,
        "no-checkpoint",
    )


TABLE_ID = TABLE_FLAG + 1
"""In the checkpoint's record: the format id of the table of open transactions."""


def test_table_of_open_transactions_of_another_class_is_left_open(tmp_path: Path) -> None:
    """Derby 10.14 reads an object of any class there and does not use it."""
    found = damaged(tmp_path, LOG, resummed(append(format_id(261), TABLE_ID)))
    assert (found.recovery.boots, found.judgement.reason) == (None, "boot-depends")
    with pytest.raises(CorruptLogError):
        LogToFile(str(tmp_path / "db/log"))


def test_entry_of_the_table_without_a_transaction_stops_the_boot(tmp_path: Path) -> None:
    """The engine puts it into a map that takes no null."""
    entry = format_id(261) + bytes(2 + 2 + 2 + 2 + 4)
    found = damaged(tmp_path, LOG, append(format_id(262) + b"\1" + entry, TABLE_ID))
    assert found.judgement.reason == "no-boot"


BEGUN = encode_begin(STATUS_USER, None)
ENDED = encode_end(STATUS_COMMITTED, None)


@pytest.mark.parametrize(
    ("group", "operation"),
    [
        (Group.FIRST, encode_operation(UPDATE_ROW, CHANGED)),
        (Group.FIRST | Group.LAST, BEGUN),
        (Group.PREPARE, ENDED),
        (Group.LAST | Group.ABORT, ENDED),
        (Group(0), encode_operation(PHYSICAL_UNDO, CHANGED)),
    ],
    ids=["first", "last", "prepare", "abort", "undo"],
)
def test_record_whose_flags_do_not_fit_its_operation_is_left_open(
    group: Group, operation: bytes, tmp_path: Path
) -> None:
    begin = encode_body(Group.FIRST | Group.RAWSTORE, 99_999, BEGUN)
    wrong = encode_body(group | Group.RAWSTORE, 99_999, operation)
    found = appended(tmp_path, *([] if group & Group.FIRST else [[begin]]), [wrong])
    assert (found.recovery.boots, found.judgement.reason) == (None, "boot-depends")


def test_control_file_with_a_negative_checkpoint_is_used(tmp_path: Path) -> None:
    """Derby 10.14 looks at the mirror only for a checkpoint of 0; here it makes a new log."""
    found = damaged(tmp_path, "log.ctrl", control(checkpoint=-make_instant(1, 1)))
    assert found.recovery.new_log
    assert found.judgement.answer is not Answer.SAFE


@pytest.mark.parametrize(
    ("size", "reason"), [(100_000, "file-grown"), (99_000, "not-preallocated")]
)
def test_a_last_file_that_reaches_beyond_what_others_were_given_has_grown(
    size: int, reason: str, tmp_path: Path
) -> None:
    """Derby gives each new file the same size, which a system property tells, and no file."""
    log = reading_of(copy("switch-archive", tmp_path / "db"))
    stop, path = log.recovery.stop, tmp_path / "db/log/log5.dat"
    assert min(one.size for one in log.log.files.values()) == 100_000
    content, at = path.read_bytes()[: stop & 0xFFFFFFFF], stop >> 32 << 32
    bodies = [
        encode_body(Group.FIRST | Group.RAWSTORE, 77_777, encode_begin(STATUS_USER, None)),
        encode_body(
            Group.LAST | Group.COMMIT | Group.RAWSTORE, 77_777, encode_end(STATUS_COMMITTED, None)
        ),
    ]
    while len(content) < size:
        content += group_at(at | len(content), bodies)
    path.write_bytes(content)
    assert reading_of(tmp_path / "db").judgement.reason == reason
