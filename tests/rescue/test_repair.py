"""Damage is mended in a copy where other bytes tell what was there; elsewhere that is said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tallystick
from tallystick.errors import LogLockedError, LogUnreadableError, LogWriteError, TallystickError
from tallystick.records import Answer
from tallystick.rescue import repair
from tallystick.storage.local import LOCAL
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.live.mend import patches
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fixtures import fixture_dir
from tests.rescue.kit import case, change, content, limited_file_size, names, temporary

PAGE = 2048
H2, DERBY, BLOCKS = "db.h2.db", "log/log.ctrl", "log/translog-0000000001-20130701T100000Z.ctlog"


# system, case, file, offset, bytes
DAMAGE = {
    "second header copy": ("h2", "committed-2048", H2, 2 * PAGE + 9, None),
    "first header copy": ("h2", "committed-2048", H2, PAGE + 17, None),
    "first header copy, zeroed": ("h2", "committed-2048", H2, PAGE, bytes(PAGE)),
    "page size": ("h2", "committed-2048", H2, layout.PAGE_SIZE_OFFSET, b"\0\0\x08\1"),
    "another page size": ("h2", "committed-2048", H2, layout.PAGE_SIZE_OFFSET, b"\0\0\x10\0"),
    "text of page 0": ("h2", "committed-2048", H2, 3, b"XYZ"),
    "end of the text of page 0": ("h2", "committed-2048", H2, 34, b"XYZ"),
    "control file": ("derby", "halted", "log/log.ctrl", 13, None),
    "mirror of the control file": ("derby", "halted", "log/logmirror.ctrl", 40, None),
    "first header of a block": ("cloudtran", "normal", BLOCKS, 70, None),
    "header of a block, zeroed": ("cloudtran", "normal", BLOCKS, 0, bytes(84)),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_the_copy_is_what_was_there_before_the_damage(name: str, tmp_path: Path) -> None:
    system, made, file, offset, data = DAMAGE[name]
    log = case(system, made, tmp_path / "log")
    before = content(log)
    change(log / file, offset, data)
    damaged = content(log)
    found = repair(log, tmp_path / "copy")
    assert content(tmp_path / "copy") == before
    assert content(log) == damaged
    assert not found.left
    for one in found.mends:
        assert before[one.file][one.offset :][: len(one.after)] == one.after
        assert damaged[one.file][one.offset :][: len(one.before)] == one.before
    assert {one.before == one.after for one in found.mends} == {False}
    again = repair(tmp_path / "copy", tmp_path / "again")
    assert (again.mends, again.exit_code) == ([], 1)
    assert names(tmp_path) == ["copy", "log"]


def test_a_control_file_that_is_gone_is_made_from_its_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, sync_dir = list[bool](), LOCAL.sync_dir

    def note(path: str) -> None:
        named.append(Path(path, Path(DERBY).name).exists())
        sync_dir(path)

    monkeypatch.setattr(LOCAL, "sync_dir", note)
    log = case("derby", "halted", tmp_path / "log")
    before = content(log)
    (log / DERBY).unlink()
    (mend,) = repair(log, tmp_path / "copy").mends
    assert (mend.file, mend.offset, mend.before) == (DERBY, 0, b"")
    assert content(tmp_path / "copy") == before
    assert True in named, "its name is durable, too"


def test_of_two_damaged_copies_the_sum_of_one_proves_the_rest_of_the_other(tmp_path: Path) -> None:
    log = case("h2", "committed-2048", tmp_path / "log")
    data = (log / H2).read_bytes()
    second = data[2 * PAGE : 3 * PAGE]
    change(log / H2, PAGE, second[:4] + bytes((1,)) * 30)
    change(log / H2, 2 * PAGE)
    assert tallystick.explain(log).logs[0].judgement.answer is Answer.REFUSES
    repair(log, tmp_path / "copy")
    copied = (tmp_path / "copy" / H2).read_bytes()
    assert copied[PAGE : 2 * PAGE] == copied[2 * PAGE : 3 * PAGE] == second
    change(log / H2, 2 * PAGE + 8)
    assert repair(log, tmp_path / "other").mends == []


def test_the_header_copy_with_a_log_takes_the_place_of_one_without(tmp_path: Path) -> None:
    log = case("h2", "committed-2048", tmp_path / "log")
    data = (log / H2).read_bytes()
    none = layout.encode_variable_header(layout.VariableHeader(9, 900, 7, 8), PAGE)
    change(log / H2, PAGE, none)
    assert tallystick.explain(log).logs[0].judgement.answer is Answer.LOSES
    found = repair(log, tmp_path / "copy")
    assert content(tmp_path / "copy") == {H2: data}
    assert [one.file for one in found.mends] == [H2]


@given(st.integers(0, 3 * PAGE - 1), st.binary(min_size=1, max_size=40))
def test_whatever_stands_in_the_headers_a_mend_is_what_was_there(offset: int, data: bytes) -> None:
    with temporary(fixture_dir("h2") / "clean-2048", H2) as file:
        before = file.read_bytes()
        change(file, offset, data)
        source = LogSource("h2", str(file.parent), (str(file),))
        for one in patches(source, ReadOptions()):
            assert before[one.offset :][: len(one.data)] == one.data


JOURNALS = [
    "damaged-position-mid-record", "damaged-position-zero", "damaged-timestamps-equal",
    "exact-fill-0", "rollover-1", "oversize", "damaged-torn-last",
]  # fmt: skip


@pytest.mark.parametrize("name", JOURNALS)
def test_a_mended_journal_has_the_decisions_that_its_records_prove(
    name: str, tmp_path: Path
) -> None:
    log = case("bitronix", name, tmp_path / "log")
    (before,) = tallystick.explain(log).logs
    assert before.judgement.answer is not Answer.SAFE
    proved = before.strict["in_doubt"]
    found = repair(log, tmp_path / "copy")
    assert (found.exit_code, found.left) == (0, [])
    (verdict,) = tallystick.explain(tmp_path / "copy").logs
    assert (verdict.judgement.answer, verdict.differences) == (Answer.SAFE, ())
    assert verdict.strict["in_doubt"] == proved


NO_PROOF = {
    ("bitronix", "damaged-crc-flip"), ("bitronix", "all-dangling"), ("bitronix", "gtrid-128"),
    ("bitronix", "damaged-missing-second"), ("cloudtran", "damaged-payload"),
    ("cloudtran", "both-headers-damaged"), ("h2", "truncated-2048"),
    ("h2", "corrupt-checksum-2048"),
}  # fmt: skip


@pytest.mark.parametrize(("system", "name"), sorted(NO_PROOF))
def test_without_a_proof_nothing_is_written(system: str, name: str, tmp_path: Path) -> None:
    log = case(system, name, tmp_path / "log")
    found = repair(log, tmp_path / "copy")
    assert (found.mends, found.exit_code) == ([], 1)
    assert bool(found.left) == (name != "all-dangling")
    assert names(tmp_path) == ["log"]


def _native(folder: Path) -> Path:
    with tallystick.Journal(folder) as journal:
        for number in range(5):
            journal.add(number, b"record %d" % number)
    return folder


@pytest.mark.parametrize("file", ["control.tally", "00000001"])
def test_copies_of_native_headers_are_mended_from_their_twins(file: str, tmp_path: Path) -> None:
    log = _native(tmp_path / "log")
    (path,) = (one for one in log.iterdir() if file in one.name)
    before = content(log)
    for place in (40, 4096 + 40):
        change(path, place)
        found = repair(log, tmp_path / f"copy-{place}")
        assert content(tmp_path / f"copy-{place}") == before
        assert {one.offset // 4096 for one in found.mends} == {place // 4096}
        path.write_bytes(before[path.name])


def test_a_group_header_is_mended_from_its_twin(tmp_path: Path) -> None:
    log = _native(tmp_path / "log")
    (path,) = (one for one in log.iterdir() if one.name.endswith("00000001.tally"))
    before = content(log)
    change(path, path.read_bytes().index(b"record 0") // 512 * 512 + 20)
    assert repair(log, tmp_path / "copy").mends
    assert content(tmp_path / "copy") == before


def test_a_file_is_copied_to_a_file_and_an_estate_with_all_that_lies_in_it(tmp_path: Path) -> None:
    log = case("h2", "committed-2048", tmp_path / "estate/h2")
    case("derby", "halted", tmp_path / "estate/derby")
    (tmp_path / "estate/notes.txt").write_text("read me")
    change(log / H2, PAGE)
    repair(log / H2, tmp_path / "mended.h2.db")
    assert (tmp_path / "mended.h2.db").is_file()
    found = repair(tmp_path / "estate", tmp_path / "copy")
    assert [(one.file, one.offset) for one in found.mends] == [(f"h2/{H2}", PAGE)]
    changed = {one.path for one in found.logs if one.before != one.after}
    assert len(found.logs) == 2
    assert changed <= {"h2"}
    assert (tmp_path / "copy/notes.txt").read_text() == "read me"


def test_links_are_followed_so_that_nothing_is_written_through_them(tmp_path: Path) -> None:
    real = case("h2", "committed-2048", tmp_path / "real")
    change(real / H2, PAGE)
    before = content(real)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / H2).symlink_to(real / H2)
    (tmp_path / "log/nowhere").symlink_to("gone")
    os.mkfifo(tmp_path / "log/pipe")
    assert repair(tmp_path / "log", tmp_path / "copy").mends
    assert content(real) == before
    assert not (tmp_path / "copy" / H2).is_symlink()


def _damaged(tmp_path: Path) -> Path:
    log = case("h2", "committed-2048", tmp_path / "log")
    change(log / H2, PAGE)
    return log


def _loop(log: Path) -> None:
    (log / "loop").symlink_to(log)


def _door(log: Path) -> None:
    (log / "door").symlink_to(log.parent)


@pytest.mark.parametrize(
    ("origin", "copy", "prepare", "said"),
    [
        ("log", "log/copy", None, "would lie inside"),
        ("log", "log", None, "exists already"),
        ("log", "log/../log/db.h2.db", None, "exists already"),
        ("log", "copy", lambda log: (log.parent / "copy").symlink_to("gone"), "exists already"),
        ("log", "copy", _door, "would lie inside"),
        ("log", "elsewhere/copy", _loop, "does not exist"),
        ("log", "copy", _loop, "leads back"),
        ("log", "copy", lambda log: (log.parent / "copy.unfinished").mkdir(), "cut short"),
        ("log", "s3://bucket/copy", None, "local disk"),
        ("gone", "copy", None, "No such file"),
        ("empty", "copy", lambda log: (log.parent / "empty").mkdir(), "no log"),
    ],
)
def test_a_wrong_place_is_refused_and_nothing_is_written(
    tmp_path: Path, origin: str, copy: str, prepare: Callable[[Path], object] | None, said: str
) -> None:
    log = _damaged(tmp_path)
    if prepare is not None:
        prepare(log)
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(TallystickError, match=said):
        repair(tmp_path / origin, copy if "://" in copy else tmp_path / copy)
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_link_to_the_log_does_not_hide_that_the_copy_lies_in_it(tmp_path: Path) -> None:
    log = _damaged(tmp_path)
    (tmp_path / "way").symlink_to(log)
    with pytest.raises(LogWriteError, match="inside"):
        repair(log, tmp_path / "way/copy")


def test_a_part_of_a_log_is_refused(tmp_path: Path) -> None:
    journal = case("bitronix", "rollover-1", tmp_path / "journal")
    with pytest.raises(LogUnreadableError, match="Name its folder"):
        repair(journal / "btm1.tlog", tmp_path / "copy")
    assert names(tmp_path) == ["journal"]


def test_packed_files_of_logs_are_unpacked_in_the_copy(tmp_path: Path) -> None:
    packed = fixture_dir("bitronix") / "rollover-1"
    plain = case("bitronix", "rollover-1", tmp_path / "plain")
    repair(plain, tmp_path / "mended")
    found = repair(packed, tmp_path / "copy")
    assert [one.file for one in found.mends] == ["btm2.tlog"]
    assert content(tmp_path / "mended").items() <= content(tmp_path / "copy").items()
    assert "manifest.json" in names(tmp_path / "copy")


def test_what_lies_packed_beside_a_packed_log_is_unpacked(tmp_path: Path) -> None:
    logs = Path(__file__).parents[2] / "examples/incident/logs/derby"
    shutil.copytree(logs, tmp_path / "log")
    (tmp_path / "log/cut.gz").write_bytes((logs / "service.properties.gz").read_bytes()[:-9])
    (tmp_path / "log/twice").write_bytes(b"plain")
    (tmp_path / "log/twice.gz").write_bytes((logs / "service.properties.gz").read_bytes())
    repair(tmp_path / "log", tmp_path / "copy")
    assert names(tmp_path / "copy") == ["cut.gz", "log", "service.properties", "twice", "twice.gz"]
    assert names(tmp_path / "copy/log") == ["log.ctrl", "log1.dat", "logmirror.ctrl"]


def test_a_packed_log_that_does_not_unpack_whole_is_refused(tmp_path: Path) -> None:
    logs = Path(__file__).parents[2] / "examples/incident/logs/derby"
    shutil.copytree(logs, tmp_path / "log")
    file = tmp_path / "log/log/log1.dat.gz"
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(LogUnreadableError, match="its end is missing"):
        repair(tmp_path / "log", tmp_path / "copy")
    assert names(tmp_path) == ["log"]


def test_a_log_that_is_open_is_refused(tmp_path: Path) -> None:
    log = case("bitronix", "rollover-1", tmp_path / "log")
    journal = DiskJournal(str(log))
    with pytest.raises(LogLockedError):
        repair(log, tmp_path / "copy")
    journal.close()
    assert names(tmp_path) == ["log"]


def test_a_disk_that_fills_leaves_nothing(tmp_path: Path) -> None:
    log = _damaged(tmp_path)
    with limited_file_size(4096), pytest.raises(OSError):
        repair(log, tmp_path / "copy")
    assert names(tmp_path) == ["log"]


def test_a_copy_can_be_written_by_its_owner_whatever_the_original_allows(tmp_path: Path) -> None:
    log = _damaged(tmp_path)
    (log / H2).chmod(0o444)
    log.chmod(0o555)
    try:
        repair(log, tmp_path / "copy")
    finally:
        log.chmod(0o755)
    assert (tmp_path / "copy" / H2).stat().st_mode & 0o777 == 0o644
    shutil.rmtree(tmp_path / "copy")
