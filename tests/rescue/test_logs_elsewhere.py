"""A copy stands alone: of a database whose log lies elsewhere it has the log in its own folder.

Started, it writes to no file of the original.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
from pathlib import Path

import pytest

import tallystick
from tallystick.errors import LogWriteError
from tallystick.records import Answer
from tallystick.rescue import Repair, repair, salvage
from tests.rescue.kit import CONTROL, MIRROR, SETTINGS, content, name_device, names, on_device
from tests.systems.derby.databases import killed


def _without_device(settings: Path) -> bytes:
    return re.sub(rb"(?m)^logDevice=.*\n", b"", settings.read_bytes())


def _started_alone(copy: Path, real: Path) -> None:
    """Check that a copy of a database is whole and has files of its own."""
    (found,) = tallystick.explain(copy).logs
    assert (found.path, found.judgement.answer) == (f"{copy}/log", Answer.SAFE)
    assert not [one for one in copy.rglob("*") if one.is_symlink()]
    mended = content(copy / "log")
    assert mended == content(real) | {CONTROL: (real / MIRROR).read_bytes()}


def _moved(found: Repair) -> list[tuple[str, str]]:
    return [(one.path, one.origin) for one in found.own_logs]


@pytest.mark.parametrize("given", ["tree", "database"])
def test_the_log_on_a_device_is_copied_into_the_database(given: str, tmp_path: Path) -> None:
    tree, device = tmp_path / "tree", tmp_path / "dev"
    tree.mkdir()
    database = on_device(tree, device)
    before = content(tmp_path)
    settings = _without_device(database / SETTINGS)
    found = repair(tree if given == "tree" else database, tmp_path / "copy")
    copy = tmp_path / "copy/ld" if given == "tree" else tmp_path / "copy"
    assert found.exit_code == 0
    assert (copy / SETTINGS).read_bytes() == settings
    _started_alone(copy, device / "log")
    name = "ld" if given == "tree" else "."
    assert _moved(found) == [(name, str(device / "log"))]
    file = os.path.normpath(f"{name}/log/{CONTROL}")
    assert [one.file for one in found.mends] == [file]
    (log,) = found.logs
    assert log.before is not None
    assert (log.path, log.before.answer) == (os.path.normpath(f"{name}/log"), Answer.SAFE)
    assert {name: one for name, one in content(tmp_path).items() if name in before} == before


def test_a_device_in_the_tree_is_mended_in_both_places(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    on_device(tree, tree / "dev")
    found = repair(tree, tmp_path / "copy")
    assert found.left == []
    assert [one.file for one in found.mends] == [f"dev/log/{CONTROL}", f"ld/log/{CONTROL}"]
    assert {one.path: one.before is not None for one in found.logs} == {
        "dev/log": True, "ld/log": True,
    }  # fmt: skip
    _started_alone(tmp_path / "copy/ld", tree / "dev/log")


def test_two_databases_that_name_one_device_both_stand_alone(tmp_path: Path) -> None:
    tree, device = tmp_path / "tree", tmp_path / "dev"
    tree.mkdir()
    shutil.copytree(on_device(tree, device), tree / "second")
    found = repair(tree, tmp_path / "copy")
    assert _moved(found) == [(name, str(device / "log")) for name in ("ld", "second")]
    for name in ("ld", "second"):
        _started_alone(tmp_path / "copy" / name, device / "log")


def test_a_log_that_no_boot_reads_is_left_out_of_the_copy(tmp_path: Path) -> None:
    device = tmp_path / "dev"
    database = on_device(tmp_path, device)
    (database / "log").mkdir()
    (database / "log/log2.dat").write_bytes(b"old")
    (device / "log/notes.txt").write_text("of another program")
    found = repair(database, tmp_path / "copy")
    assert names(tmp_path / "copy/log") == sorted({*names(device / "log")} - {"notes.txt"})
    assert found.own_logs[0].text.endswith("in its own folder log was in no use and is not copied")


def test_of_a_device_without_a_log_the_copy_has_none(tmp_path: Path) -> None:
    """The copy does not start either: its log would begin anew where the device is back."""
    on_device(tmp_path, tmp_path / "dev")
    shutil.rmtree(tmp_path / "dev")
    (tmp_path / "ld/log").mkdir()
    other = on_device(tmp_path, tmp_path / "elsewhere", "other")
    shutil.copytree(tmp_path / "elsewhere/log", other / "log")
    found = repair(tmp_path, tmp_path.with_name(tmp_path.name + "-copy"))
    copy = Path(found.copy)
    assert not (copy / "ld/log").exists()
    assert b"logDevice" not in (copy / "ld" / SETTINGS).read_bytes()
    answers = {one.path: one.after.answer for one in found.logs}
    assert answers["ld/log"] is Answer.REFUSES
    assert "no log is there" in found.own_logs[0].text


def test_both_files_of_properties_lead_nowhere_else(tmp_path: Path) -> None:
    device = tmp_path / "dev"
    database = on_device(tmp_path, device)
    shutil.copy(database / SETTINGS, database / "service.propertiesold")
    settings = _without_device(database / SETTINGS)
    (database / SETTINGS).write_bytes(gzip.compress((database / SETTINGS).read_bytes()))
    (database / SETTINGS).rename(database / f"{SETTINGS}.gz")
    repair(database, tmp_path / "copy")
    for name in (SETTINGS, "service.propertiesold"):
        assert (tmp_path / "copy" / name).read_bytes() == settings
    assert not (tmp_path / "copy" / f"{SETTINGS}.gz").exists()
    _started_alone(tmp_path / "copy", device / "log")


def test_a_copy_on_the_device_is_refused(tmp_path: Path) -> None:
    database = on_device(tmp_path, tmp_path / "dev")
    with pytest.raises(LogWriteError, match="inside"):
        repair(database, tmp_path / "dev/log/copy")
    with pytest.raises(LogWriteError, match="among the logs"):
        salvage(database, tmp_path / "dev/log/copy", "derby-import")
    assert "copy" not in names(tmp_path / "dev/log")


def test_a_device_that_is_whole_is_copied_beside_another_damaged_database(tmp_path: Path) -> None:
    tree, device = tmp_path / "tree", tmp_path / "dev"
    tree.mkdir()
    on_device(tree, device)
    shutil.copy(device / "log" / MIRROR, device / "log" / CONTROL)
    assert repair(tree, tmp_path / "none").own_logs == []
    assert not (tmp_path / "none").exists()
    (killed(tree) / "log" / CONTROL).write_bytes(b"")
    found = repair(tree, tmp_path / "copy")
    assert _moved(found) == [("ld", str(device / "log"))]
    _started_alone(tmp_path / "copy/ld", device / "log")


@pytest.mark.parametrize("given", ["tree", "database"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_log_behind_a_link_is_a_folder_of_the_copy(
    inside: bool, given: str, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    killed(tree).rename(tree / "db")
    real = (tree if inside else tmp_path) / "zlog"
    (tree / "db/log").rename(real)
    (tree / "db/log").symlink_to(os.path.relpath(real, tree / "db"))
    (real / CONTROL).unlink()
    before = content(real)
    found = repair(tree if given == "tree" else tree / "db", tmp_path / "copy")
    assert (found.left, found.exit_code) == ([], 0)
    assert all(one.before is not None for one in found.logs)
    _started_alone(tmp_path / "copy" / ("db" if given == "tree" else ""), real)
    assert content(real) == before
    assert found.own_logs == []


def test_a_journal_of_a_broker_behind_a_link_is_a_folder_of_the_copy(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "br").mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/activemq-data-1.amq").write_bytes(b"\0" * 100)
    (tree / "br/journal").symlink_to(tmp_path / "disk")
    (killed(tree) / "log" / CONTROL).write_bytes(b"")
    repair(tree, tmp_path / "copy")
    assert not (tmp_path / "copy/br/journal").is_symlink()
    assert names(tmp_path / "copy/br/journal") == ["activemq-data-1.amq"]


def test_a_folder_of_a_log_that_is_missing_is_the_same_one_in_the_copy(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("gone", "link", "damaged"):
        killed(tree).rename(tree / name)
    shutil.rmtree(tree / "gone/log")
    shutil.rmtree(tree / "link/log")
    (tree / "link/log").symlink_to("moved/log")
    (tree / "damaged/log" / CONTROL).write_bytes(b"")
    found = repair(tree, tmp_path / "copy")
    assert {one.path: one.before is not None for one in found.logs} == {
        "gone/log": True, "link/log": True, "damaged/log": True,
    }  # fmt: skip


@pytest.mark.parametrize("link", [True, False])
def test_a_device_in_a_tree_that_is_named_otherwise_is_one_log(
    link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path that is given is relative, or the database names the device through a link."""
    monkeypatch.chdir(tmp_path)
    Path("tree").mkdir()
    database = on_device(tmp_path / "tree", tmp_path / "tree/dev")
    if link:
        Path("way").symlink_to("tree/dev")
        (database / SETTINGS).write_bytes(_without_device(database / SETTINGS))
        name_device(database / SETTINGS, tmp_path / "way")
    tree = tmp_path / "tree" if link else Path("tree")
    (log,) = tallystick.explain(tree).logs
    assert log.surroundings is not None
    assert log.surroundings.path == str(tree / "ld")
    assert repair(tree, "copy").left == []
    _started_alone(tmp_path / "copy/ld", tmp_path / "tree/dev/log")
