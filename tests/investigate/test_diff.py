"""Two copies of a log: the same, cut, extended, and gone different ways from a known place."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from tallystick import Journal, scan
from tallystick.investigate.diff import diff
from tests.fixtures import cases, fixture_dir
from tests.indoubt.estates import EXAMPLES

ESTATE = EXAMPLES / "mid-phase-two"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", ["bitronix", "cloudtran", "derby", "h2", "jboss"])
def test_a_copy_of_each_fixture_is_the_same(system: str, tmp_path: Path) -> None:
    for case in cases(system)[:6]:
        path = fixture_dir(system) / case
        shutil.copytree(path, tmp_path / case)
        for one in diff(path, tmp_path / case, problems=[]):
            assert one.same, one.to_dict()


def test_a_whole_estate_is_compared_log_by_log() -> None:
    assert [one.same for one in diff(ESTATE, ESTATE)] == [True] * 4
    others = list(diff(ESTATE, EXAMPLES / "orphan"))
    assert {one.system for one in others if not one.same} == {"bitronix", "derby", "h2", "jboss"}
    alone = list(diff(ESTATE, ESTATE / "derby"))
    assert {side.log is None for one in alone for side in one.sides} == {True, False}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("derby", "derby/log"), ("derby/log/log1.dat.gz", "derby"), ("h2", "h2/bank.h2.db.gz"),
        ("artemis", "elsewhere/under/another/name"), ("bitronix", "."),
    ],
)  # fmt: skip
def test_the_only_log_of_its_system_is_compared_wherever_it_lies(
    tmp_path: Path, a: str, b: str
) -> None:
    shutil.copytree(ESTATE, tmp_path, dirs_exist_ok=True)
    shutil.copytree(ESTATE / "artemis", tmp_path / "elsewhere/under/another/name")
    if b == ".":
        shutil.rmtree(tmp_path / "elsewhere")
    for first, second in ((a, b), (b, a)):
        found = [one for one in diff(tmp_path / first, tmp_path / second) if one.records]
        assert [one.same for one in found] == [True], [one.to_dict() for one in found]


def test_of_several_copies_none_is_chosen(tmp_path: Path) -> None:
    for name in ("one", "other"):
        shutil.copytree(ESTATE / "bitronix", tmp_path / name / "bitronix")
    found = list(diff(ESTATE / "bitronix", tmp_path))
    assert [[side.log is None for side in one.sides].count(True) for one in found] == [1, 1, 1]


def written(path: Path, *bodies: bytes, rollback: bool = False) -> None:
    with Journal(path) as journal:
        for number, body in enumerate(bodies):
            with journal.transaction() as transaction:
                transaction.add(int(body) if body.isdigit() else 1000 + number, body)
                if rollback:
                    transaction.rollback()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    written(tmp_path / "a", b"1", b"2", b"3")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return tmp_path


def test_an_extended_copy_has_alone_what_was_added(log: Path) -> None:
    count = len(list(scan(log / "a")))
    written(log / "b", b"4", b"5")
    (found,) = diff(log / "a", log / "b")
    a, b = found.sides
    assert (found.records, found.rows, found.same) == (count, 3, False)
    assert not a.alone
    assert (b.ends, b.rows) == ({"commit": 2}, {"committed": 2})
    assert [one.change.key for one in b.shown] == ["4", "5"]
    (back,) = diff(log / "b", log / "a")
    assert (back.sides[0].to_dict(), back.sides[1].to_dict()) == (b.to_dict(), a.to_dict())


def test_copies_that_went_different_ways_part_at_the_last_record_of_both(log: Path) -> None:
    last = list(scan(log / "a"))[-1]
    written(log / "a", b"7", rollback=True)
    written(log / "b", b"8", b"9")
    (found,) = diff(log / "a", log / "b")
    assert found.last is not None
    assert (found.last.file, found.last.offset) == (last.file, last.offset)
    assert found.sides[0].rows == {"undone": 1}
    assert found.sides[1].rows == {"committed": 2}
    assert (found.sides[0].ends, found.sides[1].ends) == ({"rollback": 1}, {"commit": 2})


def test_a_copy_that_gave_up_its_beginning_is_compared_from_where_it_begins(
    tmp_path: Path,
) -> None:
    from tallystick.systems.tally.live.settings import Settings

    small = Settings(segment_size=32 << 10, preallocate=False, idle_mark_s=None)
    with Journal(tmp_path / "a", settings=small) as journal:
        for number in range(60):
            journal.append(b"%d" % number * 1000)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with Journal(tmp_path / "b", settings=small) as journal:
        journal.checkpoint(40)
    (found,) = diff(tmp_path / "a", tmp_path / "b")
    a, b = found.sides
    assert 0 < a.earlier < 40
    assert (a.records, b.earlier) == (0, 0)
    assert found.records >= 60 - a.earlier


@pytest.mark.parametrize("system", ["bitronix", "derby", "h2", "jboss", "cloudtran"])
def test_a_copy_that_is_cut_begins_as_the_whole_does(system: str, tmp_path: Path) -> None:
    """Of each system a case of which all bytes after some record are gone."""
    folder = fixture_dir(system)
    case = next(one for one in cases(system) if len(list(scan(folder / one, problems=[]))) > 8)
    shutil.copytree(folder / case, tmp_path / "cut")
    for packed in (tmp_path / "cut").rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    records = [one for one in scan(tmp_path / "cut", problems=[]) if one.outcome == "valid"]
    target = records[len(records) * 2 // 3]
    path = Path(target.file)
    content = path.read_bytes()
    end = target.offset + 64 if system == "h2" else len(content)  # its pages are in no order
    path.write_bytes(content[: target.offset] + bytes(end - target.offset) + content[end:])
    found = list(diff(folder / case, tmp_path / "cut", problems=[]))
    one = next(each for each in found if not each.same)
    assert one.records > 0 or system == "cloudtran"
    assert one.sides[0].records > 0
