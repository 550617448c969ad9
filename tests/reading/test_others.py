"""Files that are no log are named as what they are."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick import PageStore
from tallystick.reading import explain, scan, triage, verify
from tallystick.records import Answer, Finding
from tests.fixtures import fixture_dir


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (bytes(100), "only zeros"),
        (bytes(1 << 20), "zeros in its first 65536 bytes"),
        (b"nothing of the kind", "content of no known log"),
    ],
)
@pytest.mark.parametrize("name", ["log1.dat", "a.bin"])
def test_a_file_that_is_no_log_is_named(
    tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for where in (tmp_path, path):
        (problem,) = explain(where).problems
        assert (problem.code, problem.found) == ("no-log", f"1 other file: {name} ({text})")


def test_of_many_files_the_first_are_named(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.bin").touch()
    (problem,) = explain(tmp_path).problems
    assert (problem.found or "").startswith("9 other files: 0.bin (empty), 1.bin (empty)")
    assert (problem.found or "").endswith(" and 3 more")


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"garbage", "cannot read: the packed data is damaged"), (b"", "empty")],
)
@pytest.mark.parametrize("name", ["log1.dat.gz", "a.zst"])
def test_a_packed_file_that_cannot_be_unpacked_is_named(
    tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    (tmp_path / name).write_bytes(content)
    found = next(one.found for one in explain(tmp_path).problems if one.code == "no-log")
    assert (found or "").startswith("1 other file: ")
    assert text in (found or "")


def _tar(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("log")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _zip(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("log", data)
    return buffer.getvalue()


ARCHIVES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "log": (gzip.compress, "packed with gzip"),
    "log.xz": (lzma.compress, "packed with xz"),
    "log.bz2": (bz2.compress, "packed with bzip2"),
    "log.tar": (_tar, "a tar archive"),
    "log.tgz": (lambda data: gzip.compress(_tar(data)), "packed with gzip"),
    "log.tar.gz": (lambda data: gzip.compress(_tar(data)), "a tar archive"),
    "log.gz": (lambda data: gzip.compress(lzma.compress(data)), "packed with xz"),
    "log.zip": (_zip, "a zip archive"),
    "translog-0000000001-20130701T100000Z.ctlog": (_zip, "a zip archive"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_named_and_no_log_inside_it_is_taken_for_a_damaged_one(
    tmp_path: Path, name: str
) -> None:
    pack, text = ARCHIVES[name]
    (log,) = (fixture_dir("cloudtran") / "normal" / "log").iterdir()
    (tmp_path / name).write_bytes(pack(log.read_bytes()))
    found = explain(tmp_path)
    assert not found.logs
    (problem,) = found.problems
    assert (problem.found or "").endswith(f" ({text}: unpack it first)")


@pytest.mark.parametrize("cut", [100, 2_000])
def test_a_cut_packed_log_is_read_as_far_as_it_goes_and_marked(tmp_path: Path, cut: int) -> None:
    case = fixture_dir("jboss") / "g3-artemis-main" / "tx-commit"
    for path in case.glob("*.gz"):
        data = gzip.compress(gzip.decompress(path.read_bytes()), 0)
        (tmp_path / path.name).write_bytes(data[:-cut])
    whole = {one.sequence or one.offset for one in scan(case)}
    problems: list[Finding] = []
    part = {one.sequence or one.offset for one in scan(tmp_path, problems=problems)}
    assert part
    assert part <= whole
    found = explain(tmp_path)
    assert {"packed-damaged"} <= {one.code for ones in found.findings for one in ones}
    assert found.exit_code == 1
    (verdict,) = found.logs
    assert verdict.judgement.answer is Answer.CANNOT_TELL
    assert "is cut" in verdict.judgement.text


def test_a_backup_of_a_page_store_is_named_with_what_to_type(tmp_path: Path) -> None:
    backup = tmp_path / "a backup"
    with PageStore(tmp_path / "store") as store:
        store.create_table("t")
        store.backup(backup)
    for problems in (
        verify(backup).findings, explain(backup).problems, triage(backup).problems
    ):  # fmt: skip
        (problem,) = problems
        assert problem.code == "no-log"
        assert problem.message.startswith(f"{backup} is a backup of a page store")
        assert problem.advice is not None
        assert f"tallystick store check '{backup}'" in problem.advice
    (backup / "backup").write_bytes(b"something else")
    (problem,) = explain(backup).problems
    assert "page store" not in problem.message
