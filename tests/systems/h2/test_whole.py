"""H2 databases of more than one plain file: encrypted, split, with large objects in files.

In: databases below ``left``, made by H2; what the engine makes of a copy stands beside each. Out:
the answers about the database, and what is no log.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import tallystick
from tallystick.errors import LogUnreadableError
from tallystick.reading.discovery import discover
from tallystick.records import Answer, Finding, Severity
from tallystick.storage.local import LOCAL
from tallystick.systems.folders import logs_in
from tallystick.systems.h2.format import secure
from tallystick.systems.h2.format.catalogue import Catalogue
from tallystick.systems.h2.format.entries import TABLE_META, Entry, Type
from tallystick.systems.h2.format.layout import MAGIC
from tallystick.systems.h2.format.numbers import encode_var_int, encode_var_long
from tallystick.systems.h2.format.secure import decrypted
from tallystick.systems.h2.format.values.types import CLOB, LOB_IN_FILE
from tallystick.systems.h2.read.surroundings import LobFile, surroundings_of
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.registry import systems
from tests.systems.h2.kit import fixture, reading_of
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


@pytest.mark.parametrize("linked", [False, True], ids=["gone", "a link to nothing"])
@pytest.mark.parametrize("lost", ["test.lobs.db/2.t3.lob.db", "test.lobs.db"])
def test_a_missing_file_of_a_large_object_is_a_loss(
    lost: str, linked: bool, tmp_path: Path
) -> None:
    folder = unpacked("lob-files-1.2.tgz", tmp_path)  # 1.2.147: "File not found", error 90124
    path = folder / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if linked:
        path.symlink_to("gone")
    assert answer_of(folder) == (Answer.LOSES, "part-lost")
    alone = tallystick.explain(folder, options=ReadOptions(log_only=True))
    assert [one.judgement.answer for one in alone.logs] == [Answer.SAFE]


def test_files_of_large_objects_that_only_the_log_names_belong_to_it(tmp_path: Path) -> None:
    """1.2.147 reads both rows; without their folder neither: "File not found", error 90124."""
    folder = unpacked("lob-files-1.2-killed.tgz", tmp_path)
    (log,) = tallystick.explain(folder).logs
    assert (log.judgement.answer, log.judgement.reason) == (Answer.SAFE, "flushed-end")
    assert log.surroundings is not None
    assert [(part.part, part.fits) for part in log.surroundings.parts] == [("db.lobs.db", True)]
    shutil.rmtree(folder / "db.lobs.db")
    assert answer_of(folder) == (Answer.LOSES, "part-lost")


CUT_LOBS = {
    "emptied": b"",
    "of marks only": MAGIC * 3,
    "of another kind": b"H:2,block:5".ljust(9072),
}


@pytest.mark.parametrize("kind", [*CUT_LOBS, "cut in a block", "cut after a block"])
def test_a_file_of_a_large_object_that_does_not_have_all_of_it_is_a_loss(
    kind: str, tmp_path: Path
) -> None:
    folder = unpacked("lob-files-1.2.tgz", tmp_path)
    path = folder / "test.lobs.db/2.t3.lob.db"
    whole = path.read_bytes()
    cut = {"cut in a block": whole[:9000], "cut after a block": whole[: 48 + 8208 + 816 - 816]}
    path.write_bytes((CUT_LOBS | cut)[kind])
    (log,) = tallystick.explain(folder).logs
    assert (log.judgement.answer, log.judgement.reason) == (Answer.LOSES, "part-lost")
    assert "2.t3.lob.db" in log.judgement.text


def block(content: bytes, *head: int) -> bytes:
    data = struct.pack(f">{len(head)}i", *head) + content
    return data.ljust(-(-(len(data) + 2) // 16) * 16, b"\0")


LETTERS = "ä\U0001f600x€".encode()
"""Five letters as Java counts them."""
WHOLE = [block(bytes(8192), 8192)] * 2
PACKED = [block(b"xyz", 3, 8192), block(b"xy", 2, 8192)]
LOB_FILES = {
    "whole blocks": ([*WHOLE, block(b"x", 1)], LobFile(3, 7, 16_385), True),
    "one whole block fewer": (WHOLE, LobFile(3, 7, 16_385), False),
    "of another that is longer": (WHOLE, LobFile(3, 7, 16_000), False),
    "one block": ([block(b"xyz", 3)], LobFile(3, 7, 3), True),
    "a block that fills its place": ([block(bytes(12), 12)], LobFile(3, 7, 12), True),
    "one block of another": ([block(b"xyz", 3)], LobFile(3, 7, 2), False),
    "letters": ([block(LETTERS, 10)], LobFile(3, 7, 5, text=True), True),
    "letters cut by a block": (
        [block(LETTERS[:4], 4), block(LETTERS[4:], 6)], LobFile(3, 7, 5, text=True), True
    ),
    "fewer letters": ([block(LETTERS, 10)], LobFile(3, 7, 6, text=True), False),
    "compressed blocks": (PACKED, LobFile(3, 7, 16_384, packed=True), True),
    "compressed, one block fewer": (PACKED[:1], LobFile(3, 7, 16_384, packed=True), False),
    "compressed letters": (PACKED, LobFile(3, 7, 9000, True, True), True),
    "fewer compressed letters": (PACKED, LobFile(3, 7, 17_000, True, True), False),
    "plain blocks for compressed ones": (WHOLE[:1], LobFile(3, 7, 8192, packed=True), False),
    "of no length that is known": (WHOLE, LobFile(3, 7, -1), True),
    "nothing": ([], LobFile(3, 7, 0), True),
    "no block": ([], LobFile(3, 7, 5), False),
    "a negative length": ([block(b"x", -1)], LobFile(3, 7, 5), False),
}  # fmt: skip


@pytest.mark.parametrize("name", LOB_FILES)
def test_the_blocks_of_a_large_object_fill_its_file(name: str, tmp_path: Path) -> None:
    blocks, lob, whole = LOB_FILES[name]
    (tmp_path / "db.lobs.db").mkdir()
    (tmp_path / "db.lobs.db/7.t3.lob.db").write_bytes(MAGIC * 3 + b"".join(blocks))
    source = LogSource("h2", str(tmp_path), (f"{tmp_path}/db.h2.db",))
    found = surroundings_of(source, [lob])
    assert found is not None
    assert [part.fits for part in found.parts] == [whole]


def encrypted(clear: bytes, cipher: secure._Cipher) -> bytes:
    """A file that H2 writes with a cipher, marks and all."""
    salt = bytes(range(16))
    key = secure._file_key(PASSWORD, salt)
    data = clear[32:]
    places = b"".join(at.to_bytes(8, "big") for at in range(32 >> 3, len(clear) >> 3))
    vectors = cipher(hashlib.sha256(key).digest()[:16], places, False)
    mixed = int.from_bytes(data) ^ int.from_bytes(vectors)
    return MAGIC + salt + cipher(key[:16], mixed.to_bytes(len(data)), False)


@pytest.mark.parametrize("cipher", [secure._aes, secure._xtea])
@pytest.mark.parametrize(
    ("size", "password", "fits"),
    [
        (None, PASSWORD, True),
        (-16, PASSWORD, False),
        (-3, PASSWORD, False),
        (48 + 8208, PASSWORD, False),
        (48, PASSWORD, False),
        (None, "another", False),
        (None, None, False),
    ],
)
def test_an_encrypted_file_of_a_large_object_is_looked_at_as_a_clear_one(
    size: int | None, password: str | None, fits: bool, cipher: secure._Cipher, tmp_path: Path
) -> None:
    (tmp_path / "db.lobs.db").mkdir()
    data = encrypted(MAGIC * 3 + b"".join([*WHOLE, block(b"x", 1)]), cipher)[:size]
    (tmp_path / "db.lobs.db/7.t3.lob.db").write_bytes(data)
    source = LogSource("h2", str(tmp_path), (f"{tmp_path}/db.h2.db",))
    found = surroundings_of(source, [LobFile(3, 7, 16_385)], password)
    assert found is not None
    assert [part.fits for part in found.parts] == [fits]


@pytest.mark.parametrize("lost", [None, 1, 2])
def test_files_of_large_objects_have_parts_in_a_split_database(
    lost: int | None, tmp_path: Path
) -> None:
    (tmp_path / "db.lobs.db").mkdir()
    data, size = MAGIC * 3 + b"".join(WHOLE), 1 << 13
    for number, at in enumerate(range(0, len(data), size)):
        name = f"7.t3.lob.db.{number}.part" if number else "7.t3.lob.db"
        if number != lost:
            (tmp_path / "db.lobs.db" / name).write_bytes(data[at : at + size])
    source = LogSource("h2", str(tmp_path), (f"{tmp_path}/db.h2.db",))
    found = surroundings_of(source, [LobFile(3, 7, 16_384)])
    assert found is not None
    assert [part.fits for part in found.parts] == [lost is None]


def stored_in_file(number: int) -> bytes:
    """A row of one CLOB in a file of table 3."""
    head = encode_var_int(1) + bytes([CLOB]) + encode_var_int(LOB_IN_FILE)
    return head + encode_var_int(3) + encode_var_int(number) + encode_var_long(5) + b"\0"


def test_large_objects_of_rows_that_are_redone_are_looked_for() -> None:
    result = fixture("committed-512")._result
    assert not isinstance(result, Finding)
    assert result.redo is not None
    table = next(one.index for one in result.redo.tables.meta.values() if one.index > 0)

    def change(code: Type, key: int = 0, of: int = table) -> Entry:
        return Entry(1, 0, code, 0, table=of, key=key, row=stored_in_file(key))

    def found(*entries: Entry) -> list[int]:
        assert result.redo is not None
        return sorted(one.number for one in result.redo.lob_files_of(entries))

    added = [change(Type.ADD, key) for key in (1, 2)]
    assert found(*added) == [1, 2]
    assert found(*added, change(Type.REMOVE, 2)) == [1]
    assert found(*added, change(Type.TRUNCATE)) == []
    assert found(change(Type.ADD, 1, 987_654)) == []  # its table was dropped
    result.redo.catalogue = Catalogue({})
    result.redo.catalogue.apply(Entry(1, 0, Type.ADD, 100, table=TABLE_META, key=table + 1))
    later = dataclasses.replace(change(Type.ADD, 3), start=200)
    assert found(*added, later) == [3]  # the number was given to another table in between
    assert found(Entry(1, 0, Type.ADD, 0, table=table, row=b"\1")) == []


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


@pytest.mark.parametrize(
    ("name", "there"),
    [("DB.H2.DB", "DB.h2.db"), ("db.H2.db", "db.h2.db")],
)
def test_a_file_whose_end_is_not_in_small_letters_is_not_opened(
    name: str, there: str, tmp_path: Path
) -> None:
    """1.3.176 and 1.4.200 make an empty database beside it."""
    (tmp_path / name).write_bytes(base("committed-2048"))
    assert answer_of(tmp_path) == (Answer.CANNOT_TELL, "beside-the-log")
    (tmp_path / name).rename(tmp_path / there)
    assert answer_of(tmp_path)[0] is Answer.SAFE


def test_parts_that_were_joined_and_left_are_not_opened_without_split(tmp_path: Path) -> None:
    """1.4.200 opens the joined file alone with every row, and with split: nothing."""
    folder = unpacked("split-files.txz", tmp_path)
    first, count = folder / "test.h2.db", len([*folder.glob("*.part")])
    parts = [folder / f"{first.name}.{number}.part" for number in range(1, count + 1)]
    first.write_bytes(b"".join(one.read_bytes() for one in (first, *parts)))
    found = tallystick.explain(folder).logs[0].judgement
    assert (found.answer, found.reason) == (Answer.CANNOT_TELL, "beside-the-log")
    assert "it opens the first file alone" in found.text
    for one in parts:
        one.unlink()
    assert answer_of(folder)[0] is Answer.SAFE


def test_parts_in_large_letters_are_found_and_named(tmp_path: Path) -> None:
    """1.3.176 does not open it."""
    folder = unpacked("split-files.txz", tmp_path)
    for one in folder.glob("*.part"):
        one.rename(one.with_suffix(".PART"))
    (log,) = tallystick.explain(folder).logs
    assert log.judgement.answer is Answer.CANNOT_TELL
    assert log.surroundings is not None
    (part,) = (one for one in log.surroundings.parts if one.part == "file names")
    assert "test.h2.db.1.part" in part.why


def _beginning(text: bytes) -> Callable[[bytes], bytes]:
    return lambda content: text + content[len(text) :]


@pytest.mark.parametrize(
    "change",
    [_beginning(bytes(4096)), _beginning(bytes(512)), _beginning(b"text " * 40), _beginning(b"-+")],
)
@pytest.mark.parametrize("secret", [False, True])
def test_a_database_that_begins_with_anything_else_is_not_passed_over(
    change: Callable[[bytes], bytes], secret: bool, tmp_path: Path
) -> None:
    """1.3.176 and 1.4.200, 90048: also of an encrypted one, whose other marks nobody reads."""
    clear = bytes(base("committed-2048"))
    content = clear[:32] + bytes(range(128, 256)) * (len(clear) // 128) if secret else clear
    (tmp_path / "db.h2.db").write_bytes(change(content))
    (tmp_path / "._db.h2.db").write_bytes(b"\0\5\x16\7" + bytes(4092))
    (log,) = tallystick.explain(tmp_path).logs
    assert (log.judgement.answer, log.judgement.reason) == (Answer.REFUSES, "does-not-open")
    assert "90048" in log.judgement.text


def test_an_empty_file_beside_the_other_store_is_no_log(tmp_path: Path) -> None:
    """1.4.200 opens db.mv.db, and leaves the other one as it is."""
    (tmp_path / "db.h2.db").write_bytes(b"")
    (tmp_path / "db.mv.db").write_bytes(b"H:2,block:5\n" * 400)
    assert not discover(tmp_path).logs
    (tmp_path / "full.h2.db").write_bytes(base("clean-512"))
    (tmp_path / "full.mv.db").write_bytes(b"H:2,block:5\n" * 400)
    (found,) = logs_in(str(tmp_path), LOCAL, systems())
    assert [Path(file).name for file in found.files] == ["full.h2.db"]
    (tmp_path / "full.h2.db").unlink()
    (tmp_path / "db.mv.db").unlink()
    assert len(discover(tmp_path).logs) == 1


def test_what_a_killed_sort_left_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "db.h2.db").write_bytes(base("clean-512"))
    (tmp_path / "db.2119707365.0.temp.db").write_bytes(base("clean-512")[:2048])
    found = discover(tmp_path)
    assert [Path(log.files[0]).name for log in found.logs] == ["db.h2.db"]


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (Path.mkdir, Answer.CANNOT_TELL),
        (lambda path: path.symlink_to("/unmounted/disk/file"), Answer.CANNOT_TELL),
        (lambda path: path.symlink_to(path.name), Answer.CANNOT_TELL),
        (lambda path: path.write_text("of a killed engine"), Answer.SAFE),
    ],
)
def test_a_database_whose_lock_cannot_be_written_opens_without_one_alone(
    make: Callable[[Path], object], answer: Answer, tmp_path: Path
) -> None:
    """1.3.176 and 1.4.200: 8000; with FILE_LOCK=NO they open it."""
    (tmp_path / "db.h2.db").write_bytes(base("committed-2048"))
    make(tmp_path / "db.lock.db")
    (one,) = tallystick.explain(tmp_path).logs
    assert one.judgement.answer is answer


@pytest.mark.parametrize(("beside", "parts"), [("db.mv.db", ["db.mv.db"]), ("other.mv.db", [])])
def test_the_file_that_h2_1_4_opens_in_place_of_a_page_store_is_named(
    beside: str, parts: list[str], tmp_path: Path
) -> None:
    """1.4.200 opens db.mv.db by default, and not db.h2.db."""
    (tmp_path / "db.h2.db").write_bytes(base("committed-2048"))
    (tmp_path / beside).write_bytes(b"H:2,blockSize:1000".ljust(4096))
    (one,) = tallystick.explain(tmp_path).logs
    assert one.judgement.answer is Answer.SAFE
    found = one.surroundings.parts if one.surroundings else ()
    assert [part.part for part in found] == parts
    assert all("MV_STORE=FALSE" in part.why for part in found)


def test_a_folder_in_the_place_of_the_other_store_keeps_the_log_from_being_redone(
    tmp_path: Path,
) -> None:
    """1.3.176 and 1.4.200, with MV_STORE=FALSE: 90097. 1.2.147 and 1.3.160 open the database."""
    (tmp_path / "db.h2.db").write_bytes(base("committed-2048"))
    (tmp_path / "db.mv.db").mkdir()
    (one,) = tallystick.explain(tmp_path).logs
    assert one.judgement.answer is Answer.CANNOT_TELL
    assert "90097" in one.judgement.text


@pytest.mark.parametrize(
    "end",
    [
        lambda data: data[:-1],
        lambda data: data + b"\n",
        lambda data: data + bytes(3000),
    ],
    ids=["a byte less", "a line's end", "zeros of half a page"],
)
def test_what_is_no_whole_page_at_the_end_of_a_file_is_none_of_the_database(
    end: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """1.3.176 and 1.4.200 count whole pages; one that a log lists and that is cut is missing."""
    (tmp_path / "db.h2.db").write_bytes(end(bytes(base("committed-2048"))))
    (one,) = tallystick.explain(tmp_path).logs
    assert one.judgement.answer is Answer.SAFE


def test_a_page_store_with_the_name_of_the_other_store_is_told(tmp_path: Path) -> None:
    """1.4.200 refuses it (90030); 1.3.176 makes a new database beside it."""
    (tmp_path / "bank.mv.db").write_bytes(base())
    (found,) = tallystick.explain(tmp_path).logs
    assert found.judgement.answer is Answer.CANNOT_TELL
    assert found.judgement.decided_by == "whether it is renamed to bank.h2.db"


def test_a_number_that_begins_with_a_zero_is_none_of_a_part(tmp_path: Path) -> None:
    """1.3.176 takes the parts before it for the database: 90030."""
    folder = unpacked("split-files.txz", tmp_path)
    (folder / "test.h2.db.2.part").rename(folder / "test.h2.db.02.part")
    (found,) = tallystick.explain(folder).logs
    assert found.judgement.answer is Answer.CANNOT_TELL
    assert found.surroundings is not None
    assert [one.part for one in found.surroundings.parts if not one.there] == ["test.h2.db.2.part"]


@pytest.mark.parametrize("source", ["test.h2.db.9.part", "test.h2.db"])
def test_a_part_far_behind_the_last_one_is_none_that_is_opened(source: str, tmp_path: Path) -> None:
    """1.3.176 opens it with split:19: 6,000 rows of 6,000, as its last part may be short."""
    folder = unpacked("split-files.txz", tmp_path)
    assert (folder / "test.h2.db.10.part").stat().st_size < (folder / "test.h2.db").stat().st_size
    shutil.copyfile(folder / source, folder / "test.h2.db.15.part")
    assert answer_of(folder) == (Answer.CANNOT_TELL, "beside-the-log")


def test_one_packed_part_among_others_is_not_found(tmp_path: Path) -> None:
    """1.3.176 takes the parts before it for the database: 90030."""
    folder = unpacked("split-files.txz", tmp_path)
    part = folder / "test.h2.db.3.part"
    with gzip.open(f"{part}.gz", "wb") as packed:
        packed.write(part.read_bytes())
    part.unlink()
    assert answer_of(folder) == (Answer.CANNOT_TELL, "beside-the-log")


def test_a_folder_of_parts_that_a_database_links_to_is_none(tmp_path: Path) -> None:
    folder = unpacked("split-files.txz", tmp_path)
    (tmp_path / "disk").mkdir()
    for number in (2, 3):
        part = folder / f"test.h2.db.{number}.part"
        part.rename(tmp_path / "disk" / part.name)
        part.symlink_to(tmp_path / "disk" / part.name)
    (found,) = tallystick.explain(tmp_path).logs
    assert found.judgement.answer is Answer.SAFE


APPLE_DOUBLE = bytes.fromhex("0005160700020000").ljust(4096, b"\0")


@pytest.mark.parametrize("make", [shutil.copyfile, lambda _, to: to.write_bytes(APPLE_DOUBLE)])
def test_what_desktops_put_beside_parts_is_no_part(
    make: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    """1.3.176 opens the database, and none of them."""
    folder = unpacked("split-files.txz", tmp_path)
    for one in list(folder.iterdir()):
        make(one, one.with_name(f"._{one.name}"))
    answers = [one.judgement.answer for one in tallystick.explain(folder).logs]
    assert answers == [Answer.SAFE] * (1 + (make is shutil.copyfile))


@pytest.mark.parametrize(
    ("name", "first"), [("split-files.txz", "test.h2.db"), ("lob-files-1.2.tgz", "test.h2.db")]
)
@pytest.mark.parametrize("copied", ["test.h2.db~", "test.h2.db.bak", "test.h2 (1).db"])
def test_a_copy_beside_parts_or_large_objects_is_none_of_theirs_and_not_judged_by_them(
    name: str, first: str, copied: str, tmp_path: Path
) -> None:
    """H2 opens the database whole, and the copy under no name that it has."""
    folder = unpacked(name, tmp_path)
    shutil.copyfile(folder / first, folder / copied)
    answers = {
        Path(one.surroundings.path).name: (one.judgement.answer, one.judgement.decided_by)
        for one in tallystick.explain(folder).logs
        if one.surroundings is not None
    }
    assert answers == {
        first: (Answer.SAFE, ""),
        copied: (Answer.CANNOT_TELL, "under which name, and with which files, it is opened"),
    }


@pytest.mark.parametrize(
    ("target", "name", "answer"),
    [
        ("../disk/bank.h2.db", "", Answer.SAFE),
        ("../disk/real", "", Answer.CANNOT_TELL),  # refused: 90138
        ("data.bin", "", Answer.CANNOT_TELL),  # da.h2.db is made
        ("../disk/bank.h2.db", "split-files.txz", Answer.CANNOT_TELL),
        ("../disk/test.h2.db", "lob-files-1.2.tgz", Answer.CANNOT_TELL),
    ],
)
def test_the_target_of_a_link_names_the_database(
    target: str, name: str, answer: Answer, tmp_path: Path
) -> None:
    """As 1.2.147, 1.3.176 and 1.4.200 follow it."""
    folder = tmp_path / "db"
    folder.mkdir()
    (tmp_path / "disk").mkdir()
    first = (unpacked(name, folder) if name else folder) / "test.h2.db"
    if not name:
        first.write_bytes(base("clean-512"))
    first.rename(folder / target)
    first.symlink_to(target)
    (found,) = tallystick.explain(folder if "/" in target else first).logs
    assert found.judgement.answer is answer
