"""What a boot meets in the files of the database decides; the real Derby booted each case."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick
from tallystick.records import Answer, Part
from tallystick.storage.crc import crc32
from tallystick.systems.derby.engine import flushed_pages as before_checkpoint
from tallystick.systems.derby.engine.flushed_pages import (
    Written,
    _Last,
    flushed_pages,
    rows_written,
)
from tallystick.systems.derby.engine.page_files import PageFile
from tallystick.systems.derby.engine.page_versions import PageVersions, RedonePage
from tallystick.systems.derby.engine.recovery import recover
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.engine.rows_after import RowsAfter
from tallystick.systems.derby.format.compressed_numbers import Cursor
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.field_types import Container, Page
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.operations import (
    COMPRESS_SPACE,
    CONTAINER_CHANGE,
    CONTAINER_CREATE,
    CONTAINER_REMOVE,
    CONTAINER_UNDO,
    DELETE,
    ENCRYPT_CONTAINER,
    INIT_PAGE,
    INSERT,
    LOGICAL_UNDO_OF_ROW,
    PHYSICAL_UNDO,
    SET_RESERVED_SPACE,
    STATUS_COMMITTED,
    STATUS_USER,
    UPDATE_ROW,
    encode_begin,
    encode_end,
    encode_operation,
)
from tallystick.systems.derby.format.page_rows import read_row
from tallystick.systems.derby.format.record_body import Body, encode_body
from tallystick.systems.derby.read.containers import Conglomerate, conglomerates, holds
from tallystick.systems.derby.read.surroundings import read_at_boot, surroundings_of
from tallystick.systems.derby.runs import stored
from tallystick.systems.derby.runs.chunk import Runs
from tallystick.systems.derby.verdict import pages
from tallystick.systems.derby.verdict.pages import Containers
from tallystick.systems.protocol import ReadOptions
from tests.fixtures import fixture_dir
from tests.systems.derby import databases
from tests.systems.derby.databases import database, killed, odd_parts, verdict_of
from tests.systems.derby.logs import group_at, reading_of, redone_pages

CASES = {
    # What the original did: refused with that code, or booted without what was committed.
    "no-service-properties": (Answer.REFUSES, "XJ004"),
    "service.properties-missing": (Answer.REFUSES, "XJ004"),
    "page-older-than-log": (Answer.REFUSES, "XSDB4"),
    "table-file-missing": (Answer.REFUSES, "40XD2"),
    "torn-live-copy-log-first": (Answer.REFUSES, "40XD2"),
    "foreign-log": (Answer.CANNOT_TELL, "of different times or databases"),
    "log-of-yesterday-data-of-today": (Answer.CANNOT_TELL, "of different times or databases"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_database_is_no_safer_than_its_parts(case: str) -> None:
    answer, code = CASES[case]
    found = verdict_of(database(case))
    assert found.judgement.answer is answer
    assert code in found.judgement.text
    assert found.log_judgement.answer is Answer.SAFE
    assert found.judgement.text in [one.why for one in odd_parts(found)]


def test_what_was_in_a_group_that_was_not_written_whole_is_not_lost() -> None:
    """A power failure; the original has the rows of the log that ends before the group."""
    found = verdict_of(database("cut-in-group-with-internal-commit"))
    assert (found.judgement.answer, found.judgement.reason) == (Answer.SAFE, "unfinished-group")


def test_pages_that_a_compression_has_cut_off_are_not_missed() -> None:
    """The log tells of their changes; the last checkpoint has nothing to write of them."""
    found = verdict_of(database("inplace-compressed"))
    assert (found.judgement.answer, odd_parts(found)) == (Answer.SAFE, [])


def test_an_older_engine_refuses_what_a_newer_one_has_upgraded() -> None:
    path = database("hard-upgraded-and-back")
    found = verdict_of(path)
    assert found.judgement.answer is Answer.SAFE
    assert "Derby 10.16 or newer starts the database; older" in found.judgement.text
    assert "10.16" not in found.log_judgement.text
    assert found.surroundings is not None
    (engine,) = (one for one in found.surroundings.parts if one.part.startswith("Derby"))
    assert (engine.part, "XSLAN" in engine.why) == ("Derby 10.16 or newer", True)
    options = ReadOptions(settings={"derby_version": "10.14"})
    (old,) = tallystick.explain(path, options=options).logs
    assert old.judgement.answer is Answer.REFUSES


def test_a_database_leads_to_the_log_on_its_device(tmp_path: Path) -> None:
    database, device = tmp_path / "ld", tmp_path / "dev"
    shutil.copytree(databases.database("logdevice"), tmp_path, dirs_exist_ok=True)
    properties = database / "service.properties"
    text = properties.read_text("latin-1").replace("/tmp/bugs1/run/d_misc/dev", str(device))
    properties.write_text(text, "latin-1")
    for path in (database, tmp_path):
        found = verdict_of(path)
        assert found.path == f"{device}/log"
        assert found.judgement.answer is Answer.SAFE
        assert found.surroundings is not None
        assert found.surroundings.path == str(database)
    shutil.rmtree(device)
    gone = verdict_of(database)
    assert (gone.judgement.answer, "XSLAB" in gone.judgement.text) == (Answer.REFUSES, True)
    assert f"{device}/log" in odd_parts(gone)[0].why


def test_the_log_folder_alone_as_path_is_judged_with_its_database() -> None:
    found = verdict_of(database("page-older-than-log") / "log")
    assert "XSDB4" in found.judgement.text


def test_a_killed_database_with_all_of_its_parts_is_safe(tmp_path: Path) -> None:
    found = verdict_of(killed(tmp_path))
    assert (found.judgement.answer, odd_parts(found)) == (Answer.SAFE, [])
    assert found.surroundings is not None
    assert [one.part for one in found.surroundings.parts] == [
        "service.properties",
        "Derby 10.14 or newer",
        "seg0",
    ]


# -- one thing wrong in a database that was whole ------------------------------------------------


def redone(path: Path, wanted: Callable[[RedonePage, int], bool]) -> tuple[Path, int, int]:
    """File, offset and size of a page that redo meets and that is on disk at a version."""
    for one in redone_pages(reading_of(path).recovery):
        file = path / one.page.file
        if not file.exists():  # it was dropped
            continue
        pages = PageFile(str(file))
        (head,) = pages.heads([one.page.number])
        if one.page.number and head.version is not None and wanted(one, head.version):
            return file, one.page.number * pages.page_size, pages.page_size
    raise AssertionError("there is no such page")


def is_new(one: RedonePage, version: int) -> bool:
    return one.first == version == 0


def is_old(one: RedonePage, version: int) -> bool:
    return 0 < one.first == version


def is_of_a_table(one: RedonePage, version: int) -> bool:
    """Return whether it is of no container that every boot reads."""
    return is_old(one, version) and one.page.container > 1000


def flipped(data: bytearray, begin: int, size: int) -> bytearray:
    data[begin + size // 2] ^= 1
    return data


def zeroed(data: bytearray, begin: int, size: int) -> bytearray:
    data[begin : begin + size] = bytes(size)
    return data


def cut(data: bytearray, begin: int, _: int) -> bytearray:
    return data[:begin]


def beheaded(data: bytearray, _: int, __: int) -> bytearray:
    data[0x70] ^= 1
    return data


Damage = Callable[[bytearray, int, int], bytearray]

DAMAGED: list[tuple[Callable[[RedonePage, int], bool], Damage, str]] = [
    (is_old, flipped, "XSDG2"),
    (is_old, zeroed, "XSDBB"),
    (is_old, cut, "XSDG0"),
    (is_new, flipped, "XSDG2"),
    (is_new, zeroed, ""),
    (is_new, cut, ""),
    (is_old, beheaded, "XSDB2"),
]
"""A page, what is done to it, and how the original refuses; empty where it boots with all rows."""


@pytest.mark.parametrize(("wanted", "damage", "code"), DAMAGED)
def test_a_page_that_redo_meets_decides(
    wanted: Callable[[RedonePage, int], bool], damage: Damage, code: str, tmp_path: Path
) -> None:
    path = killed(tmp_path)
    file, begin, size = redone(path, wanted)
    file.write_bytes(damage(bytearray(file.read_bytes()), begin, size))
    found = verdict_of(path).judgement
    assert found.answer is (Answer.REFUSES if code else Answer.SAFE)
    assert code in found.text


def test_a_new_page_in_which_its_file_ends_was_there_and_may_have_held_more_than_the_log(
    tmp_path: Path,
) -> None:
    path = killed(tmp_path)
    file, begin, size = redone(path, is_new)
    file.write_bytes(file.read_bytes()[: begin + size // 2])
    found = verdict_of(path).judgement
    assert found.answer is Answer.CANNOT_TELL
    assert "its file ends in it" in found.text


def containers(path: Path, *, made: bool) -> list[Path]:
    """The files of containers that redo makes, or drops."""
    found = reading_of(path).recovery.containers
    files = [path / one.file for one, first in found.items() if first is made]
    return [one for one in files if one.exists()]


def test_a_container_that_redo_makes_may_be_missing_from_a_backup_only(tmp_path: Path) -> None:
    """The original boots each time; in a backup nothing can have been written past the log."""
    path = killed(tmp_path)
    containers(path, made=True)[0].unlink()
    found = verdict_of(path).judgement
    assert (found.answer, "anew" in found.text) == (Answer.CANNOT_TELL, True)
    (path / "BACKUP.HISTORY").write_text("Backup started", "utf-8")
    assert verdict_of(path).judgement.answer is Answer.SAFE


def unallocated(path: Path) -> Path:
    """Let the last log file end with its last record, as one that is written past its end does."""
    reading = reading_of(path)
    stop = reading.recovery.stop
    file = path / f"log/log{stop >> 32}.dat"
    file.write_bytes(file.read_bytes()[: stop & 0xFFFFFFFF])
    return path


SYSTEM = {
    "derby.storage.fileSyncTransactionLog=true": "file-grown",
    "derby.storage.logSwitchInterval=100000": "file-grown",
    "derby.storage.pageSize=4096": "not-preallocated",
}


@pytest.mark.parametrize("setting", SYSTEM)
def test_the_settings_of_the_system_beside_its_databases_are_used(
    setting: str, tmp_path: Path
) -> None:
    path = unallocated(killed(tmp_path))
    assert verdict_of(path).judgement.reason == "not-preallocated"
    (tmp_path / "derby.properties").write_text(setting, "latin-1")
    found = verdict_of(path)
    assert found.judgement.reason == SYSTEM[setting]
    assert found.surroundings is not None
    assert "derby.properties" in [one.part for one in found.surroundings.parts]
    only = tallystick.explain(path, options=ReadOptions(log_only=True)).logs[0]
    assert only.judgement.reason == "not-preallocated"


def test_a_table_without_a_file_that_no_boot_misses_is_told(tmp_path: Path) -> None:
    """The original boots and knows no such table; one that its log names it does not boot."""
    path = killed(tmp_path)
    named = {one.page.container for one in redone_pages(reading_of(path).recovery)}
    tables = {one.number: one.is_table for one in conglomerates(str(path / "seg0/c20.dat"))}
    table = next(one for one, is_table in tables.items() if is_table and one not in named)
    (path / f"seg0/c{table:x}.dat").unlink()
    found = verdict_of(path).judgement
    assert (found.answer, "its table is gone" in found.text) == (Answer.CANNOT_TELL, True)


def test_containers_that_cannot_be_listed_are_no_missing_ones(tmp_path: Path) -> None:
    path = killed(tmp_path)
    (path / "seg0").rename(path / "data")
    (path / "seg0").symlink_to("seg0")
    found = verdict_of(path).judgement
    assert (found.answer, found.reason) == (Answer.CANNOT_TELL, "beside-the-log")


@pytest.mark.parametrize("prop", ["derby.serviceProtocol", "SyscolumnsIndex1Identifier"])
def test_a_database_without_a_property_that_a_boot_needs_is_refused(
    prop: str, tmp_path: Path
) -> None:
    path = killed(tmp_path) / "service.properties"
    lines = path.read_text("latin-1").splitlines()
    path.write_text("\n".join(one for one in lines if not one.startswith(prop)), "latin-1")
    found = verdict_of(path.parent).judgement
    assert (found.answer, prop in found.text) == (Answer.REFUSES, True)
    path.rename(path.with_name("service.propertiesold"))
    assert verdict_of(path.parent).judgement.answer is Answer.REFUSES


def test_properties_that_were_not_written_whole_are_those_from_before(tmp_path: Path) -> None:
    """The original (10.10, 10.14 and 10.16) boots with all rows, or refuses for the old ones."""
    path = killed(tmp_path)
    file, old = path / "service.properties", path / "service.propertiesold"
    content = file.read_bytes()
    old.write_bytes(content)
    for cut in (b"", content[:300], content[: content.rindex(b"#---")]):
        file.write_bytes(cut)
        assert verdict_of(path).judgement.answer is Answer.SAFE
    old.write_bytes(content[:300])
    found = verdict_of(path).judgement
    assert (found.answer, "XCY03" in found.text) == (Answer.REFUSES, True)
    file.write_bytes(content)
    assert verdict_of(path).judgement.answer is Answer.SAFE


@pytest.mark.parametrize(
    ("value", "answer", "text"),
    [("", Answer.REFUSES, "no number"), ("4", Answer.CANNOT_TELL, "c4.dat is missing, and every")],
)
def test_a_property_that_was_cut_names_no_container(
    value: str, answer: Answer, text: str, tmp_path: Path
) -> None:
    """49 where the file ends in the middle of its last property."""
    path = killed(tmp_path) / "service.properties"
    content = path.read_text("latin-1")
    name = "SysconglomeratesIndex1Identifier="
    path.write_text(content[: content.index(name)] + name + value, "latin-1")
    found = verdict_of(path.parent).judgement
    assert (found.answer, text in found.text) == (answer, True)


def test_a_container_that_redo_meets_must_be_there_unless_its_removal_left_its_stub(
    tmp_path: Path,
) -> None:
    path = killed(tmp_path)
    file, _, _ = redone(path, is_of_a_table)
    stub = file.rename(file.with_name(file.name.replace("c", "d", 1)))
    logged(path, number_of(file), (DROP, 0), (REMOVE, 1))
    assert verdict_of(path).judgement.answer is Answer.SAFE
    stub.unlink()
    assert "40XD2" in verdict_of(path).judgement.text


def logged(path: Path, number: int, *steps: tuple[int, int]) -> None:
    """Let the log end with a transaction that does this to a container."""
    container = Container(0, number)
    fields = [
        {"containerId": container, "containerVersion": version, "operation": step}
        | {"createByteArray": None}
        for step, version in steps
    ]
    logged_operations(path, [encode_operation(CONTAINER_CHANGE, one) for one in fields])


def logged_operations(path: Path, operations: list[bytes], *, committed: bool = True) -> None:
    """Let the log end with a transaction of these operations."""
    stop, transaction = reading_of(path).recovery.stop, 99_999
    bodies = [
        encode_body(Group.FIRST | Group.RAWSTORE, transaction, encode_begin(STATUS_USER, None)),
        *(encode_body(Group.RAWSTORE, transaction, one) for one in operations),
    ]
    if committed:
        flags, end = Group.LAST | Group.COMMIT | Group.RAWSTORE, encode_end(STATUS_COMMITTED, None)
        bodies.append(encode_body(flags, transaction, end))
    file, added = path / f"log/log{stop >> 32}.dat", group_at(stop, bodies)
    content, at = file.read_bytes(), stop & 0xFFFFFFFF
    file.write_bytes(content[:at] + added + content[at + len(added) :])


def number_of(file: Path) -> int:
    return int(file.stem[1:], 16)


CREATE, DROP, REMOVE, UNDO = CONTAINER_CREATE, 2, CONTAINER_REMOVE, 0
NAMED: dict[str, Callable[[Path], Path]] = {
    "redo makes it": lambda path: containers(path, made=True)[-1],
    "redo meets it": lambda path: redone(path, is_of_a_table)[0],
    "only the catalogue names it": lambda path: unnamed(path),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("removed", [False, True])
def test_a_container_that_was_dropped_after_the_log_ends_is_of_another_time(
    named: str, removed: bool, tmp_path: Path
) -> None:
    """The log of yesterday over the data of today: the original boots, and has no such table."""
    path = killed(tmp_path)
    file = NAMED[named](path)
    of_container(file, status=3 if removed else 1, version=1)
    if removed:
        file = file.rename(file.with_name(file.name.replace("c", "d", 1)))
    found = verdict_of(path).judgement
    assert (found.answer, "was dropped" in found.text) == (Answer.CANNOT_TELL, True)
    # The next change of a log that goes on tells of it.
    logged(path, number_of(file), (DROP, 0), *([(REMOVE, 1)] if removed else []))
    assert verdict_of(path).judgement.answer is Answer.SAFE


def of_container(file: Path, *, status: int, version: int) -> None:
    """Change the head of a container, which has a checksum of its own."""
    content = bytearray(file.read_bytes())
    head = content[0x6D : 0x6D + 80]
    head[4:8], head[40:48] = status.to_bytes(4), version.to_bytes(8)
    content[0x6D : 0x6D + 80] = summed(bytes(head))
    file.write_bytes(content)


def test_a_container_that_was_made_and_dropped_after_the_log_ends_has_left_its_stub(
    tmp_path: Path,
) -> None:
    path = killed(tmp_path)
    stub = path / "seg0/d7ff0.dat"
    stub.write_bytes(containers(path, made=True)[0].read_bytes())
    found = verdict_of(path).judgement
    assert (found.answer, "created after the end" in found.text) == (Answer.CANNOT_TELL, True)
    (path / "seg0/d10.dat").write_bytes(stub.read_bytes())
    stub.unlink()
    assert verdict_of(path).judgement.answer is Answer.SAFE


def place_of(one: Written) -> int:
    return one.place


def test_pages_and_containers_are_the_same_in_runs_and_record_by_record() -> None:
    for case in (*CASES, "inplace-compressed"):
        log = reading_of(database(case)).log
        plain, slow = recover(log, {}, Runs(log)), recover(log, {}, None)
        assert sorted(redone_pages(plain), key=repr) == sorted(redone_pages(slow), key=repr)
        assert plain.containers == slow.containers
        assert plain.container_versions == slow.container_versions
        scan = reading_of(database(case)).scan
        runs = flushed_pages(scan, plain, Runs(log))
        ranges = flushed_pages(scan, slow, None)
        assert {one.page: one[2:] for one in runs.pages()} == {
            one.page: one[2:] for one in ranges.pages()
        }
        versions = {one.page: one.after for one in (*redone_pages(plain), *runs.pages())}
        rows = sorted(rows_written(scan, plain, Runs(log), versions), key=place_of)
        assert rows == sorted(rows_written(scan, slow, None, versions), key=place_of)
        assert (runs.changed, runs.container_versions, runs.built) == (
            ranges.changed, ranges.container_versions, ranges.built,
        )  # fmt: skip


def test_a_container_of_which_redo_meets_only_the_drop_need_not_be_there(tmp_path: Path) -> None:
    """The original boots: redo of a drop makes the container anew. Its log is an older one."""
    path = killed(tmp_path)
    logged(path, 0x7FFF, (DROP, 0))
    found = verdict_of(path).judgement
    assert (found.answer, "a drop of" in found.text) == (Answer.CANNOT_TELL, True)


STEPS: dict[str, tuple[list[tuple[int, int]], int | None]] = {
    # What Derby logs of a container: the step with its version; that after it, None if it is gone.
    "created": ([(CREATE, 0)], 0),
    "created and taken back": ([(CREATE, 0), (UNDO, 0)], None),
    "dropped": ([(DROP, 0)], 1),
    "dropped and removed": ([(DROP, 0), (REMOVE, 1)], None),
    "a drop taken back": ([(DROP, 0), (UNDO, 1)], 2),
    "dropped twice": ([(DROP, 0), (UNDO, 1), (DROP, 2), (REMOVE, 3)], None),
    "created, dropped, both taken back": ([(CREATE, 0), (DROP, 0), (UNDO, 1), (UNDO, 2)], None),
    "created anew": ([(CREATE, 0), (DROP, 0), (REMOVE, 1), (CREATE, 0)], 0),
    "the log has no creation": ([(UNDO, 0)], None),
    "the log has no drop": ([(UNDO, 1)], 2),
    "the log has neither": ([(UNDO, 1), (UNDO, 2)], None),
    "the log has no drop but the second": ([(UNDO, 1), (DROP, 2), (REMOVE, 3)], None),
    "the log has only that a second drop was taken back": ([(UNDO, 3)], 4),
    "the log has only the end": ([(REMOVE, 1)], None),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_container_is_gone_where_its_last_step_says_so(case: str) -> None:
    """The real Derby logged these, also where the first were in a file that it has given up."""
    steps, version = STEPS[case]
    found = PageVersions([])
    for place, step in enumerate(steps, 1):
        found.note(place, body_of(*step))
    assert found.container_versions == {Container(0, 1264): version}


def body_of(step: int, version: int) -> Body:
    """A change of container 1264, or what takes one back."""
    fields: dict[str, object] = {"containerId": Container(0, 1264), "containerVersion": version}
    operation = CONTAINER_CHANGE if step else CONTAINER_UNDO
    return Body(Group(0), 7, operation, fields | ({"operation": step} if step else {}), 0)


ENCRYPTED: dict[str, tuple[bool, str, bool, str]] = {
    # Whether the log ends before the encryption, a property, whether the new file is in its place;
    # why it is not safe. The original boots the first two with all rows, and the third with neither
    # key where it was encrypted anew.
    "killed after a file": (False, "", True, ""),
    "killed between two names": (False, "", False, ""),
    "killed while it changed the cipher": (
        False, "derby.storage.databaseEncryptionStatus=1\n", True, "is damaged",
    ),
    "committed": (True, "", True, "is damaged"),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", ENCRYPTED)
def test_the_old_file_of_a_container_is_put_back_where_its_encryption_is_undone(
    case: str, tmp_path: Path
) -> None:
    committed, property_, new, why = ENCRYPTED[case]
    path = killed(tmp_path)
    file = unnamed(path)
    old = file.with_name(f"o{file.name[1:]}")
    shutil.copy(file, old)
    file.write_bytes(file.read_bytes()[:4096] + bytes(range(256)) * 16)
    if not new:
        file.unlink()
    assert verdict_of(path).judgement.answer is Answer.CANNOT_TELL  # the log says nothing of it
    operation = encode_operation(ENCRYPT_CONTAINER, {"containerId": Container(0, number_of(file))})
    logged_operations(path, [operation], committed=committed)
    log, undone = reading_of(path).log, set() if committed else {Container(0, number_of(file))}
    assert recover(log).encrypted == recover(log, runs=Runs(log)).encrypted == undone
    with (path / "service.properties").open("a") as properties:
        properties.write(property_)
    found = verdict_of(path).judgement
    assert found.answer is (Answer.CANNOT_TELL if why else Answer.SAFE)
    assert f"seg0/{file.name} {why}" in found.text if why else True
    old.write_bytes(bit_changed(old.read_bytes()))
    text = verdict_of(path).judgement.text
    assert f"seg0/{file.name if why else old.name} is damaged" in text


# -- pages that the log does not write anew -----------------------------------------------------


def unnamed(path: Path) -> Path:
    """The file of a container that neither the log names nor every boot reads."""
    reading = reading_of(path)
    flushed = flushed_pages(reading.scan, reading.recovery, None)
    named = {one.page.container for one in (*redone_pages(reading.recovery), *flushed.pages())}
    named |= read_at_boot(str(path))
    for number in sorted(one.number for one in conglomerates(str(path / "seg0/c20.dat"))):
        file = path / f"seg0/c{number:x}.dat"
        if number not in named and PageFile(str(file)).pages > 1:
            return file
    raise AssertionError("the log names every container")


def bit_changed(content: bytes) -> bytes:
    at = len(content) - 1000
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def summed(page: bytes) -> bytes:
    return page[:-8] + crc32(page[:-8]).to_bytes(8)


def counting_fewer(content: bytes) -> bytes:
    """The first page as it was before a page was taken: the head in it counts as zeros."""
    extent = slice(0x6C + 81 + 24, 0x6C + 81 + 28)
    page = bytearray(content[:4096])
    page[extent] = (int.from_bytes(page[extent]) - 1).to_bytes(4)
    zeros = page[: 0x6C + 1] + bytes(80) + page[0x6C + 81 :]
    page[-8:] = summed(bytes(zeros))[-8:]
    return bytes(page) + content[4096:]


def never_used(content: bytes) -> bytes:
    """The last page as it was made, before it was taken."""
    page = bytes.fromhex("00750000000000") + bytes(4096 - 7)
    return content[:-4096] + summed(page)


UNNAMED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "emptied": (lambda _: b"", "is empty"),
    "cut": (lambda content: content[:4096], "has 1 page of"),
    "cut in its head": (lambda content: content[: 0x6C + 85], "has 0 pages of 1"),
    "cut in the first page": (lambda content: content[: 0x6C + 81 + 32], "has 0 pages of"),
    "cut in a page": (lambda content: content[:-1], "page"),
    "a bit changed": (bit_changed, "XSDG2"),
    "a page zeroed": (lambda content: content[:-4096] + bytes(4096), "XSDBB"),
    "its first page older": (counting_fewer, "which is in use"),
    "its last page older": (never_used, "which is not in use"),
    "the head zeroed": (lambda content: bytes(4096) + content[4096:], "damaged head"),
}


def test_a_page_that_was_made_before_it_is_needed_is_not_counted(tmp_path: Path) -> None:
    path = killed(tmp_path)
    page = bytes.fromhex("00750000000100") + bytes(4096 - 7)
    with unnamed(path).open("ab") as file:
        file.write(summed(page))
    assert verdict_of(path).judgement.answer is Answer.SAFE


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", UNNAMED)
def test_what_the_log_does_not_write_anew_is_looked_at_too(damage: str, tmp_path: Path) -> None:
    """The original boots, or does not, as it comes to it or not; see the differential."""
    change, text = UNNAMED[damage]
    path = killed(tmp_path)
    file = unnamed(path)
    file.write_bytes(change(file.read_bytes()))
    found = verdict_of(path).judgement
    assert (found.answer, found.reason) == (Answer.CANNOT_TELL, "beside-the-log")
    assert f"seg0/{file.name} " in found.text
    assert text in found.text


@pytest.mark.parametrize("number", [16, 209, 560])
def test_what_redo_creates_and_was_filled_without_log_records_is_looked_at(
    number: int, tmp_path: Path
) -> None:
    """The log begins with the database: the original did not boot, or lost tables."""
    name = "cut-in-group-with-internal-commit"
    path = Path(shutil.copytree(database(name), tmp_path / "db"))
    recovery = reading_of(path).recovery
    assert recovery.containers[Container(0, number)]
    assert verdict_of(path).judgement.answer is Answer.SAFE
    file = path / f"seg0/c{number:x}.dat"
    file.write_bytes(bit_changed(file.read_bytes()))
    found = verdict_of(path).judgement
    assert (found.answer, f"seg0/{file.name} is" in found.text) == (Answer.CANNOT_TELL, True)


@pytest.mark.parametrize("is_index", [False, True])
def test_a_table_that_has_other_rows_than_its_index_is_of_another_time(
    is_index: bool, tmp_path: Path
) -> None:
    """As after a container of yesterday that the log does not name: every row was there."""
    path = killed(tmp_path)
    file = without_a_row(path, is_index=is_index)
    text = verdict_of(path).judgement.text
    assert (file.name in text, "same table" in text) == (True, True)


@pytest.mark.parametrize("is_met", [False, True])
def test_a_table_that_has_a_row_where_its_index_does_not_lead_is_of_another_time(
    is_met: bool, tmp_path: Path
) -> None:
    """As where a row was deleted since, and another one added: the original lost a table."""
    path = killed(tmp_path)
    file, at = row_of(path, is_index=False)
    content = bytearray(file.read_bytes())
    content[at + 1] = 0x3F  # its record id
    content[4096:8192] = summed(bytes(content[4096:8192]))
    file.write_bytes(content)
    if is_met:
        unknown(path, file, 1)
    found = verdict_of(path).judgement
    assert ("other rows than" in found.text) is (found.answer is not Answer.SAFE) is not is_met


def without_a_row(path: Path, *, is_index: bool) -> Path:
    """Mark a row of a table or an index as deleted, whose table redo does not meet."""
    file, at = row_of(path, is_index=is_index)
    content = bytearray(file.read_bytes())
    content[at] |= 1
    content[4096:8192] = summed(bytes(content[4096:8192]))
    file.write_bytes(content)
    return file


def row_of(path: Path, *, is_index: bool) -> tuple[Path, int]:
    """The last row of a table or an index, whose table redo does not meet, and where it begins."""
    named = {one.page.container for one in redone_pages(reading_of(path).recovery)}
    groups: dict[bytes, list[Conglomerate]] = {}
    for one in conglomerates(str(path / "seg0/c20.dat")):
        groups.setdefault(one.table_id, []).append(one)
    whole = (group for group in groups.values() if not named & {one.number for one in group})
    found = (one for group in whole for one in group if len(group) > 1)
    for one in found:
        file = path / f"seg0/c{one.number:x}.dat"
        content, is_wanted = bytearray(file.read_bytes()), one.is_table is not is_index
        page = content[4096:8192]
        last = int.from_bytes(page[14:16])
        at = int.from_bytes(page[-8 - 6 * last :][:2])
        pages = PageFile(str(file))
        if is_wanted and last > 1 and (pages.pages, pages.page_size, page[at] & 1) == (2, 4096, 0):
            return file, 4096 + at
    raise AssertionError("redo meets every table")


@pytest.mark.parametrize("is_changed", [False, True])
def test_rows_are_counted_also_where_redo_meets_what_it_has_not_to_change(
    is_changed: bool, tmp_path: Path
) -> None:
    path = databases.copied("hard-upgraded-and-back", tmp_path)
    file = without_a_row(path, is_index=True)
    met(path, file, 1, is_changed=is_changed)  # by a change that adds no row
    assert "same table" in verdict_of(path).judgement.text


def test_a_change_that_cannot_be_followed_adds_no_more_rows_than_versions(
    tmp_path: Path,
) -> None:
    """A leaf of yesterday, where redo changes another one."""
    path = databases.copied("hard-upgraded-and-back", tmp_path)
    file = without_a_row(path, is_index=True)
    unknown(path, file, 1)
    assert verdict_of(path).judgement.answer is Answer.SAFE
    content = bytearray(file.read_bytes())
    page = content[4096:8192]
    at = int.from_bytes(page[-8 - 6 * 2 :][:2])
    assert not page[at] & 1
    content[4096 + at] |= 1
    content[4096:8192] = summed(bytes(content[4096:8192]))
    file.write_bytes(content)
    assert "same table" in verdict_of(path).judgement.text


def met(path: Path, file: Path, number: int, *, is_changed: bool) -> None:
    """Let redo meet a page, which is as the change leaves it, or is changed by it."""
    (head,) = PageFile(str(file)).heads([number])
    assert head.version
    fields = {"pageId": Page(0, number_of(file), number), "doMeSlot": 0, "recordId": 6}
    fields |= {"pageVersion": head.version - (not is_changed), "newValue": 0, "oldValue": 0}
    logged_operations(path, [encode_operation(SET_RESERVED_SPACE, fields)])


def unknown(path: Path, file: Path, number: int) -> None:
    """Let redo change a page by an update of its first row that cannot be followed."""
    (head,) = PageFile(str(file)).heads([number])
    assert head.version
    fields = {"pageId": Page(0, number_of(file), number), "doMeSlot": 0, "recordId": 6}
    fields |= {"pageVersion": head.version}
    logged_operations(path, [encode_operation(UPDATE_ROW, fields)])


def with_links(page: bytes, left: int, right: int) -> bytes:
    """A page of an index with other neighbours."""
    at = page.index(bytes.fromhex("00850008"), 56) + 4  # of the first of two numbers
    one, other = (number.to_bytes(8, signed=True) for number in (left, right))
    return summed(page[:at] + one + page[at + 8 : at + 10] + other + page[at + 18 :])


TREES: dict[str, Callable[[list[bytes]], None]] = {
    # As the original left it, which then had no columns of a table.
    "its root from before it was split": lambda pages: pages.__setitem__(
        1, with_links(pages[2], -1, -1)
    ),
    "a leaf with another neighbour": lambda pages: pages.__setitem__(
        2, with_links(pages[2], -1, 7)
    ),
    "two leaves in each other's place": lambda pages: pages.__setitem__(
        slice(2, 4), [pages[3], pages[2]]
    ),
}


@pytest.mark.parametrize("damage", TREES)
def test_the_pages_of_an_index_are_one_tree(damage: str, tmp_path: Path) -> None:
    path = killed(tmp_path)
    file = path / "seg0/c191.dat"
    content = file.read_bytes()
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    assert PageFile(str(file)).is_tree()
    TREES[damage](pages)
    file.write_bytes(b"".join(pages))
    assert not PageFile(str(file)).is_tree()
    assert "not all that are in use are of one tree" in verdict_of(path).judgement.text
    met(path, file, 2, is_changed=False)
    assert "not all that are in use are of one tree" in verdict_of(path).judgement.text
    met(path, file, 3, is_changed=True)  # a leaf, which leads to no other page
    assert "not all that are in use are of one tree" in verdict_of(path).judgement.text
    met(path, file, 1, is_changed=True)  # by a change that leads to no page
    assert "not all that are in use are of one tree" in verdict_of(path).judgement.text
    unknown(path, file, 1)  # redo may make it one
    assert verdict_of(path).judgement.answer is Answer.SAFE


@pytest.mark.parametrize("number", [0, 1])
def test_pages_of_an_index_are_no_tree_yet_where_it_is_not_known_to_what_redo_leads_them(
    number: int, tmp_path: Path
) -> None:
    """A page is taken, or the first one becomes more than a leaf: a split that is not on disk."""
    path = killed(tmp_path)
    file = path / "seg0/c191.dat"
    content = file.read_bytes()
    root = with_links(content[2 * 4096 : 3 * 4096], -1, -1)
    file.write_bytes(content[:4096] + root + content[2 * 4096 :])
    met(path, file, number, is_changed=True)
    assert "not all that are in use are of one tree" in verdict_of(path).judgement.text
    unknown(path, file, 2)
    assert verdict_of(path).judgement.answer is Answer.SAFE


@pytest.mark.parametrize("changed", [2, 3])
def test_a_leaf_that_redo_changes_may_have_any_neighbours_and_no_place(
    changed: int, tmp_path: Path
) -> None:
    path = killed(tmp_path)
    file = path / "seg0/c191.dat"
    content = file.read_bytes()
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    pages[changed] = with_links(pages[changed], 7, 7)
    file.write_bytes(b"".join(pages))
    assert not PageFile(str(file)).is_tree()
    assert PageFile(str(file)).is_tree([changed])


@pytest.mark.parametrize("left", [4096 * 3, 4096 * 3 + 100])
@pytest.mark.parametrize("cut", [False, True])
def test_pages_that_the_first_page_counts_are_there_also_where_redo_meets_it(
    left: int, cut: bool, tmp_path: Path
) -> None:
    """The file ends before one that redo does not make: the original lost rows, and booted."""
    path = killed(tmp_path)
    file = path / "seg0/c191.dat"
    counted = PageFile(str(file))
    assert counted.pages == 4
    met(path, file, 0, is_changed=True)
    if cut:
        fields = {"pageId": Page(0, number_of(file), 0), "pageVersion": counted_version(file) + 1}
        fields |= {"newHighestPage": 2, "num_pages_truncated": 1}
        logged_operations(path, [encode_operation(COMPRESS_SPACE, fields)])
    assert verdict_of(path).judgement.answer is Answer.SAFE
    file.write_bytes(file.read_bytes()[:left])
    found = verdict_of(path).judgement
    assert ("does not have page 3, which its first page counts" in found.text) is not cut


def counted_version(file: Path) -> int:
    (head,) = PageFile(str(file)).heads([0])
    assert head.version is not None
    return head.version


def test_of_a_large_database_only_what_every_boot_reads_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_EVERY_PAGE_MAX", 1)
    path = killed(tmp_path)
    file = unnamed(path)
    whole = file.read_bytes()
    file.write_bytes(bit_changed(whole))
    assert verdict_of(path).judgement.answer is Answer.SAFE
    file.write_bytes(b"")
    assert "is empty" in verdict_of(path).judgement.text
    file.write_bytes(whole)
    properties = path / "seg0/c10.dat"  # every boot reads it
    properties.write_bytes(bit_changed(properties.read_bytes()))
    assert "seg0/c10.dat is damaged" in verdict_of(path).judgement.text


def test_pages_are_compared_with_all_files_that_lead_to_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transaction holds files back, and that of the checkpoint may name no page itself."""
    reading = reading_of(fixture_dir("derby") / "switch-archive")
    assert [*flushed_pages(reading.scan, reading.recovery, None).pages()]
    monkeypatch.setattr(before_checkpoint, "BYTES_BEFORE", 0)
    assert not [*flushed_pages(reading.scan, reading.recovery, None).pages()]


# -- encrypted databases --------------------------------------------------------------------------

CIPHER = LogCipher("AES/CBC/NoPadding", bytes(range(16)))


def encrypted(path: Path) -> Path:
    """Encrypt the pages of a database as Derby does: with the checksum in front, but the first."""
    for file in (path / "seg0").glob("c*.dat"):
        content, size = bytearray(file.read_bytes()), PageFile(str(file)).page_size
        for begin in range(size, len(content), size):
            page = content[begin : begin + size]
            content[begin : begin + size] = CIPHER.encrypt(bytes(page[-8:] + page[:-8]))
        file.write_bytes(content)
    return path


def parts_of(path: Path, plain: Path, cipher: LogCipher | None) -> list[Part]:
    """The parts of a database, with the log of another one."""
    reading = reading_of(plain)
    flushed = flushed_pages(reading.scan, reading.recovery, None)
    containers = Containers(
        str(path),
        cut=False,
        sealed=cipher is None,
        cipher=cipher,
        written=partial(rows_written, reading.scan, reading.recovery, None),
        followed=partial(RowsAfter, reading.log, reading.recovery, 1),
    )
    return [*containers.parts(reading.recovery, flushed)]


def test_pages_of_an_encrypted_database_are_read_with_its_key(tmp_path: Path) -> None:
    """Of real ones, AES and DES, 152 of 152 pages each are read so."""
    plain = killed(tmp_path)
    path = encrypted(Path(shutil.copytree(plain, tmp_path / "sealed")))
    assert [one.fits for one in parts_of(path, plain, CIPHER)] == [True]
    (sealed,) = parts_of(path, plain, None)
    assert (sealed.fits, "no key was given" in sealed.why) == (None, True)
    other = LogCipher("AES/CBC/NoPadding", bytes(16))
    assert Answer.SAFE not in [one.answer for one in parts_of(path, plain, other)]
    file, _, _ = redone(plain, is_old)
    damaged = path / "seg0" / file.name
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-50] + bytes([content[-50] ^ 1]) + content[-49:])
    assert Answer.SAFE not in [one.answer for one in parts_of(path, plain, CIPHER)]


def test_properties_from_before_a_database_was_encrypted_do_not_open_it(tmp_path: Path) -> None:
    """Derby 10.14 and 10.16 do not boot: XBM0U."""
    path = killed(tmp_path)
    reading = reading_of(path)
    files = replace(reading.log, cipher=CIPHER)  # as an external key, or the rest of them, gives it
    before, *_ = surroundings_of(reading.source, files).parts
    assert (before.part, before.fits, before.answer) == (
        "service.properties", False, Answer.REFUSES
    )  # fmt: skip
    with (path / "service.properties").open("a") as properties:
        properties.write("dataEncryption=true\n")
    assert surroundings_of(reading.source, files).parts[0].fits


def rows_on_pages(path: Path) -> list[Written]:
    """What the log's last changes leave on pages that it names."""
    reading = reading_of(path)
    flushed = flushed_pages(reading.scan, reading.recovery, None)
    named = {one.page for one in (*redone_pages(reading.recovery), *flushed.pages())}
    versions = {}
    for page in (one for one in named if (path / one.file).exists()):
        (head,) = PageFile(str(path / page.file)).heads([page.number])
        if head.version is not None and head.version >= 4:
            versions[page] = head.version
    return [*rows_written(reading.scan, reading.recovery, None, versions)]


@pytest.mark.long
def test_a_page_has_the_row_of_the_last_change_up_to_its_version(tmp_path: Path) -> None:
    """Of another database it may have the same version: Derby boots with the rows that it has."""
    path = killed(tmp_path)
    altered = set[bool]()
    for one in rows_on_pages(path):
        if not one.image:
            continue
        page, row = one.page, read_row(Cursor(bytes(one.image)))
        value = next(field.data for field in row.fields if field.data)
        file = path / page.file
        content, size = file.read_bytes(), PageFile(str(file)).page_size
        begin = page.number * size
        if content[begin : begin + size].count(value) != 1:
            continue
        other = content[begin : begin + size].replace(value, bytes([value[0] ^ 1]) + value[1:])
        file.write_bytes(content[:begin] + summed(other) + content[begin + size :])
        found = verdict_of(path)
        file.write_bytes(content)
        assert found.judgement.answer is Answer.CANNOT_TELL
        assert f"{page} does not have the row" in found.judgement.text
        altered.add(one.leads)
    assert altered == {False, True}
    assert verdict_of(path).judgement.answer is Answer.SAFE


def test_a_page_has_the_row_as_the_change_that_leads_to_its_version_marks_it(
    tmp_path: Path,
) -> None:
    """An index of the catalogue of another database: the original did not know a table."""
    path = killed(tmp_path)
    marks = [one for one in rows_on_pages(path) if one.deleted is not None]
    assert marks
    for one in marks:
        file = path / one.page.file
        content, size = file.read_bytes(), PageFile(str(file)).page_size
        begin = one.page.number * size
        page = bytearray(content[begin : begin + size])
        places = [int.from_bytes(page[at : at + 2]) for at in range(size - 14, 56, -6)]
        at = next(
            at for at in places if Cursor(bytes(page), at + 1).compressed_int() == one.record_id
        )
        page[at] ^= 1
        file.write_bytes(content[:begin] + summed(bytes(page)) + content[begin + size :])
        found = verdict_of(path).judgement
        file.write_bytes(content)
        assert (found.answer, "the log marks there" in found.text) == (Answer.CANNOT_TELL, True)


@pytest.mark.parametrize(
    ("flag", "operation", "stands"),
    [
        (1, LOGICAL_UNDO_OF_ROW, True),
        (1, DELETE, True),
        (1, PHYSICAL_UNDO, False),
        (3, LOGICAL_UNDO_OF_ROW, False),
        (3, None, True),
    ],
)
def test_a_row_stands_after_an_undo_that_leaves_its_fields(
    flag: int, operation: int | None, stands: bool
) -> None:
    """Of the list of tables of another database the last changes were undone: it was `safe`."""
    page = Page(0, 96, 1)
    last = _Last({page: 33 if operation else 32})
    fields = {"pageId": page, "recordId": 33, "insertFlag": flag}
    last.note(1, Body(Group(0), 7, INSERT, fields | {"pageVersion": 31}, 0, b"row"))
    if operation:
        undone = fields | {"pageVersion": 32, "delete": True}
        last.note(2, Body(Group(0), 7, operation, undone, 0))
    rows = [one for one in last.rows() if one.deleted is None]
    assert rows == ([Written(1, page, b"row", not operation, 33)] if stands else [])


@pytest.mark.parametrize("number", [0x7FF0, 0x7FF1])
def test_the_first_page_of_a_table_is_as_the_log_leaves_it(number: int, tmp_path: Path) -> None:
    """The original had rows of another database in a table that was empty.

    What is filled without log records are new pages of a table, and any page of an index.
    """
    path = killed(tmp_path)
    shutil.copy(redone(path, is_of_a_table)[0], path / f"seg0/c{number:x}.dat")
    page = Page(0, number, 1)
    operations = [
        encode_operation(CONTAINER_CHANGE, {
            "containerId": Container(0, number), "containerVersion": 0, "operation": CREATE,
            "createByteArray": bytes(80).hex(),
        }),
        encode_operation(INIT_PAGE, {
            "pageId": page, "pageVersion": 0, "nextRecordId": 6, "initFlag": 0,
            "pageOffset": 4096, "pageFormatId": 117,
        }),
    ]  # fmt: skip
    logged_operations(path, operations)
    found = verdict_of(path).judgement
    is_table = number == 0x7FF0
    assert found.answer is (Answer.CANNOT_TELL if is_table else Answer.SAFE)
    assert ("the log ends with version 1" in found.text) == is_table


def test_a_row_in_the_log_that_cannot_be_decoded_is_none_that_a_page_lacks(tmp_path: Path) -> None:
    """A checksum vouches for the record; Derby does not decode what the page has already."""
    path = killed(tmp_path)
    reading = reading_of(path)
    flushed = flushed_pages(reading.scan, reading.recovery, None)

    def written(
        versions: Mapping[Page, int], _: Callable[[int], PageFile], after: RowsAfter | None
    ) -> list[Written]:
        found = rows_written(reading.scan, reading.recovery, None, versions, after=after)
        return [one._replace(image=b"\x04") for one in found]

    followed = partial(RowsAfter, reading.log, reading.recovery, 1)
    containers = Containers(str(path), cut=False, written=written, followed=followed)
    assert [one.fits for one in containers.parts(reading.recovery, flushed)] == [True]


def test_a_row_stands_on_a_page_the_same_compiled_and_decoded(tmp_path: Path) -> None:
    """Both are asked about what is there, and with each of its bytes changed or cut off."""
    path = killed(tmp_path)
    plain, asked, marked = 0, 0, 0
    for row in rows_on_pages(path):
        ((_, page),) = PageFile(str(path / row.page.file)).pages_at([row.page.number])
        stand = partial(standing, page, row)
        image = bytes(row.image)
        marked += row.deleted is not None
        if row.deleted is not None:
            assert stand(image, row.deleted)
            assert not stand(image, not row.deleted)
        if not image:
            continue
        plain += stand(image)
        asked += not image[0] & stored._CUT  # what is in parts is decoded
        places = range(min(60, len(image)))
        changed = [image[:at] + bytes([image[at] ^ 1]) + image[at + 1 :] for at in places]
        assert all(holds(page, one) for one in (*changed, image[:-1], image[:9]) if stand(one))
    assert (plain == asked > 3, marked > 0) == (True, True)


def standing(page: memoryview, row: Written, image: bytes, mark: int = stored.NO_MARK) -> bool:
    """Whether the compiled comparison finds a row on a page: beside one that it does not have."""
    pages = memoryview(bytes(len(page)) + bytes(page))
    rows, images = (
        np.array([[0, row.record_id], [0, mark]]),
        [memoryview(b"\x00\x07\x00"), memoryview(image)],
    )
    begins = np.array([0, len(page)])
    nothing, found = stored.stand(pages, begins, len(page), images, rows)
    assert not nothing
    return bool(found)


def ways_of(path: Path) -> list[Callable[[], list[Part]]]:
    """How a database is judged: plain pages and rows in columns, or all one by one."""
    reading = reading_of(path)
    scan = reading.scan

    def parts(runs: Runs | None, recovery: Recovery, flushed: PageVersions) -> list[Part]:
        written = partial(rows_written, scan, recovery, runs)
        followed = partial(RowsAfter, reading.log, recovery, 1)
        containers = Containers(str(path), cut=False, written=written, followed=followed)
        return [*containers.parts(recovery, flushed)]

    ways: list[Callable[[], list[Part]]] = []
    for runs in (Runs(reading.log), None):
        recovery = recover(reading.log, {}, runs)
        ways.append(partial(parts, runs, recovery, flushed_pages(scan, recovery, runs)))
    return ways


def damaged_pages(page: bytes) -> Iterator[bytes]:
    """A page with one thing wrong, where a checksum tells it and where none does."""
    yield bytes(flipped(bytearray(page), 0, len(page)))
    yield bytes(len(page))
    for place in (1, 13, 15, 60, len(page) - 40, len(page) - 9):
        yield summed(page[:place] + bytes([page[place] ^ 1]) + page[place + 1 :])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", [*CASES, "inplace-compressed"])
def test_pages_are_judged_the_same_in_columns_and_one_by_one(case: str) -> None:
    columns, one_by_one = ways_of(database(case))
    assert columns() == one_by_one()


def test_a_damaged_page_is_judged_the_same_in_columns_and_one_by_one(tmp_path: Path) -> None:
    path = killed(tmp_path)
    columns, one_by_one = ways_of(path)
    file, begin, size = redone(path, is_of_a_table)
    content = file.read_bytes()
    answers = set[Answer]()
    for page in damaged_pages(content[begin : begin + size]):
        file.write_bytes(content[:begin] + page + content[begin + size :])
        parts = columns()
        assert parts == one_by_one()
        answers |= {one.answer for one in parts}
    assert answers == {Answer.SAFE, Answer.REFUSES, Answer.CANNOT_TELL}


def test_what_plain_pages_have_is_found_in_columns(tmp_path: Path) -> None:
    path = killed(tmp_path)
    reading = reading_of(path)
    runs = Runs(reading.log)
    recovery = recover(reading.log, {}, runs)
    files = {number: PageFile(str(path / f"seg0/c{number:x}.dat")) for number in (0x20, 0x60)}
    plain = {of.of.number: of for of in recovery.by_container() if of.of.number in files}
    versions = {
        Page(0, number, at): version
        for number, of in plain.items()
        for at, (version, _) in of.plain(files[number]).items()
    }
    assert [*rows_written(reading.scan, recovery, runs, versions)]
    assert not [*rows_written(reading.scan, recovery, runs, versions, files.__getitem__)]


def test_a_page_that_redo_meets_is_counted_by_the_first_page_of_its_container(
    tmp_path: Path,
) -> None:
    """Derby 10.10 did not see the columns on it, and failed at the table that they are of."""
    path = killed(tmp_path)
    met: dict[int, set[int]] = {}
    for one in redone_pages(reading_of(path).recovery):
        met.setdefault(one.page.container, set()).add(one.page.number)
    for number, named in met.items():
        file = path / f"seg0/c{number:x}.dat"
        if file.exists() and 0 not in named and PageFile(str(file)).pages - 1 in named:
            file.write_bytes(counting_fewer(file.read_bytes()))
            break
    found = verdict_of(path).judgement
    assert (found.answer, "which is in use" in found.text) == (Answer.CANNOT_TELL, True)


@pytest.mark.parametrize("every_page_max", [1 << 24, 1])
def test_a_page_that_neither_the_log_nor_the_first_page_counts_is_of_a_later_time(
    every_page_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of an older day where its last page was full: the original had 78 of 3,000 rows."""
    monkeypatch.setattr(pages, "_EVERY_PAGE_MAX", every_page_max)
    path = killed(tmp_path)
    pages_met = [one.page for one in redone_pages(reading_of(path).recovery)]
    file = path / "seg0/c490.dat"
    content, size = file.read_bytes(), PageFile(str(file)).page_size
    there = len(content) // size
    assert {one.number for one in pages_met if one.container == 0x490} == {*range(there)}
    ahead = summed(bytes.fromhex("00750000000100") + bytes(size - 7))
    file.write_bytes(content + ahead)  # made before it is needed
    assert verdict_of(path).judgement.answer is Answer.SAFE
    file.write_bytes(content + ahead + content[size : 2 * size])
    found = verdict_of(path).judgement
    says = f"its first page does not count page {there + 1}, which is in use"
    assert (found.answer, says in found.text) == (Answer.CANNOT_TELL, True)


class _Listed(dict[Page, int]):
    """Counts how often all of it is listed."""

    times = 0

    def items(self) -> Any:
        self.times += 1
        return super().items()


def test_what_is_sought_is_listed_once_however_many_pages_there_are() -> None:
    """It was listed anew for each page: 100 s of a log of 100 MB whose pages redo meets."""
    wanted = _Listed({Page(0, 1168, number): 1 for number in range(50)})
    before_checkpoint._Sought(wanted)
    assert wanted.times <= 2
