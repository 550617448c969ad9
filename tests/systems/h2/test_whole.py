"""H2 databases of more than one plain file: encrypted, split, with large objects in files.

In: databases below ``left``, made by H2; what the engine makes of a copy stands beside each. Out:
the answers about the database, and what is no log.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

import tallystick
from tallystick.errors import LogUnreadableError
from tallystick.reading.discovery import discover
from tallystick.records import Answer, Severity
from tallystick.systems.h2.format.secure import decrypted
from tallystick.systems.protocol import ReadOptions
from tests.systems.h2.kit import reading_of
from tests.systems.h2.test_left import LEFT
from tests.systems.h2.verdict.test_damage import base

PASSWORD = "geheimß"
ENCRYPTED = {
    "aes-1.4.200-close": "log-closed",
    "aes-1.4.200-halt": "flushed-end",
    "xtea-1.3.176-halt": "flushed-end",
}


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(LEFT / name) as archive:
        archive.extractall(folder, filter="data")
    return folder


def answer_of(folder: Path) -> tuple[Answer, str]:
    (log,) = tallystick.explain(folder).logs
    return log.judgement.answer, log.judgement.reason


@pytest.mark.parametrize("name", ENCRYPTED)
@pytest.mark.parametrize("password", [None, "geheim"])
def test_an_encrypted_database_is_not_judged_without_its_password(
    name: str, password: str | None
) -> None:
    one = reading_of(LEFT / f"{name}.h2.db.gz", boot_password=password)
    assert (one.judgement.answer, one.judgement.reason) == (Answer.CANNOT_TELL, "encrypted")
    assert "password" in one.judgement.decided_by
    assert [found.code for found in one.findings()] == ["encrypted"]


@pytest.mark.parametrize("name", ENCRYPTED)
def test_an_encrypted_database_is_read_with_its_password(name: str) -> None:
    """The engine opens each of them: 9 rows of 9."""
    one = reading_of(LEFT / f"{name}.h2.db.gz", boot_password=PASSWORD)
    assert (one.judgement.answer, one.judgement.reason) == (Answer.SAFE, ENCRYPTED[name])
    rows = [change.values for change in one.changes() if change.collection == "PUBLIC.T"]
    assert len(rows) == (9 if name.endswith("halt") else 0)
    assert [table.name for table in one.collections() if table.name == "PUBLIC.T"]


def test_a_damaged_encrypted_file_does_not_fail() -> None:
    for size in (0, 48, 63, 64, 100):
        assert decrypted(bytes(size), PASSWORD) is None


def test_parts_of_a_split_database_are_one_log(tmp_path: Path) -> None:
    """1.3.176 opens it with split:19: 6,000 rows of 6,000."""
    folder = unpacked("split-files.txz", tmp_path)
    found = discover(folder)
    assert [len(log.files) for log in found.logs] == [11]
    assert not found.others
    (log,) = tallystick.explain(folder).logs
    assert log.judgement.answer is Answer.SAFE
    assert log.surroundings is not None
    assert [part.fits for part in log.surroundings.parts] == [True] * 10


def test_a_closed_split_database_is_safe(tmp_path: Path) -> None:
    data, size = bytes(base("clean-512")), 1 << 14
    for number, at in enumerate(range(0, len(data), size)):
        name = f"db.h2.db.{number}.part" if number else "db.h2.db"
        (tmp_path / name).write_bytes(data[at : at + size])
    assert answer_of(tmp_path) == (Answer.SAFE, "log-closed")


MISSING = {
    "test.h2.db.4.part": Answer.CANNOT_TELL,  # opens, with 4,755 rows of 6,000
    "test.h2.db": Answer.REFUSES,  # "Expected file length: 0"
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_part_is_named(name: str, tmp_path: Path) -> None:
    folder = unpacked("split-files.txz", tmp_path)
    (folder / name).unlink()
    (log,) = tallystick.explain(folder).logs
    assert log.judgement.answer is MISSING[name]
    assert log.surroundings is not None
    assert [part.part for part in log.surroundings.parts if not part.there] == [name]


def test_a_part_of_another_size_is_refused(tmp_path: Path) -> None:
    folder = unpacked("split-files.txz", tmp_path)
    with (folder / "test.h2.db.3.part").open("ab") as part:
        part.write(bytes(1))
    assert answer_of(folder) == (Answer.REFUSES, "part-refused")


def test_files_of_large_objects_belong_to_the_database(tmp_path: Path) -> None:
    folder = unpacked("lob-files-1.2.tgz", tmp_path)
    (log,) = tallystick.explain(folder).logs  # 1.2.147 opens it: 3 rows, each with its text
    assert (log.judgement.answer, log.judgement.reason) == (Answer.SAFE, "log-closed")
    assert log.surroundings is not None
    assert [(part.part, part.fits) for part in log.surroundings.parts] == [("test.lobs.db", True)]


@pytest.mark.parametrize("lost", ["test.lobs.db/2.t3.lob.db", "test.lobs.db"])
def test_a_missing_file_of_a_large_object_is_a_loss(lost: str, tmp_path: Path) -> None:
    folder = unpacked("lob-files-1.2.tgz", tmp_path)  # 1.2.147: "File not found", error 90124
    path = folder / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert answer_of(folder) == (Answer.LOSES, "part-lost")
    alone = tallystick.explain(folder, options=ReadOptions(log_only=True))
    assert [one.judgement.answer for one in alone.logs] == [Answer.SAFE]


def test_a_database_of_h2_1_1_is_no_log(tmp_path: Path) -> None:
    folder = unpacked("database-1.1.tgz", tmp_path)  # 1.1.119 opens it: 50 rows of 50
    assert not discover(folder).logs
    (problem,) = tallystick.explain(folder).problems
    named = "test.data.db (of a database of H2 1.0 or 1.1, another format"
    assert named in (problem.found or "")
    assert problem.severity is Severity.WARNING


def test_a_path_as_in_the_address_of_a_database_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "test.h2.db").write_bytes(base("clean-512"))
    (tmp_path / "other.h2.db").write_bytes(base("clean-512"))
    found = discover(tmp_path / "test")  # jdbc:h2:.../test
    assert [Path(one.files[0]).name for one in found.logs] == ["test.h2.db"]
    (tmp_path / "other").mkdir()
    assert not discover(tmp_path / "other").logs  # what is there is what is meant
    with pytest.raises(LogUnreadableError):
        discover(tmp_path / "nothing")


def test_an_empty_file_beside_the_other_store_is_no_log(tmp_path: Path) -> None:
    """1.4.200 opens db.mv.db, and leaves the other one as it is."""
    (tmp_path / "db.h2.db").write_bytes(b"")
    (tmp_path / "db.mv.db").write_bytes(b"H:2,block:5\n" * 400)
    assert not discover(tmp_path).logs
    (tmp_path / "db.mv.db").unlink()
    assert len(discover(tmp_path).logs) == 1


def test_what_a_killed_sort_left_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "db.h2.db").write_bytes(base("clean-512"))
    (tmp_path / "db.2119707365.0.temp.db").write_bytes(base("clean-512")[:2048])
    found = discover(tmp_path)
    assert [Path(log.files[0]).name for log in found.logs] == ["db.h2.db"]
