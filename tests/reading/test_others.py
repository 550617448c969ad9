"""Files that are no log are named as what they are."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tallystick.reading import explain, scan
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
