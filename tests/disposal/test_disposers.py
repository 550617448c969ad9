"""Each disposer takes the file away, and refuses to replace another one."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.disposal.archive import ArchiveDisposer
from tallystick.disposal.disposers import (
    CommandDisposer,
    CompressDisposer,
    DeleteDisposer,
    MoveDisposer,
    disposer_of,
)
from tallystick.disposal.worker import LogDisposer
from tests.disposal.kit import CONTENT, check_copies


def test_delete_and_command_take_the_file_away(file: Path) -> None:
    DeleteDisposer().dispose(str(file))
    assert not file.exists()
    file.write_bytes(b"again")
    CommandDisposer(["rm"]).dispose(str(file))
    assert not file.exists()


def test_move_accepts_an_identical_copy_and_refuses_another(file: Path, tmp_path: Path) -> None:
    disposer = MoveDisposer(str(tmp_path / "kept"))
    disposer.dispose(str(file))
    assert (tmp_path / "kept" / file.name).read_bytes() == CONTENT
    check_copies(disposer, file)


def test_compress_leaves_a_file_that_readers_take(file: Path, tmp_path: Path) -> None:
    disposer = CompressDisposer(str(tmp_path / "kept"))
    disposer.dispose(str(file))
    packed = tmp_path / "kept" / f"{file.name}.gz"
    assert gzip.decompress(packed.read_bytes()) == CONTENT
    assert packed.stat().st_size < len(CONTENT)
    check_copies(disposer, file)


@pytest.mark.parametrize("make", [MoveDisposer, CompressDisposer, ArchiveDisposer])
def test_what_is_kept_stays_the_owners_alone(
    file: Path, tmp_path: Path, make: Callable[[str], LogDisposer]
) -> None:
    before = os.umask(0)
    try:
        make(str(tmp_path / "kept")).dispose(str(file))
    finally:
        os.umask(before)
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_a_planted_link_is_not_written_through(file: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "kept" / f".{file.name}.part").symlink_to(tmp_path / "precious")
    MoveDisposer(str(tmp_path / "kept")).dispose(str(file))
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "kept" / file.name).read_bytes() == CONTENT


class Own:
    """A disposer as a user would write it."""

    def dispose(self, path: str) -> None:
        Path(path).unlink()


@pytest.mark.parametrize("disposer", [Own, Own(), f"{__name__}.Own", Own().dispose, "delete"])
def test_disposer_may_be_a_class_an_object_a_function_or_a_name(
    disposer: LogDisposer | str, file: Path
) -> None:
    disposer_of(disposer).dispose(str(file))
    assert not file.exists()


class Demanding:
    """A disposer that cannot be made from its name alone."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket


@pytest.mark.parametrize(
    "name", ["nothing", "no.such.module.Class", "os.sep", f"{__name__}.Demanding"]
)
def test_name_that_leads_to_no_disposer_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        disposer_of(name)


@pytest.mark.parametrize("make", [MoveDisposer, CompressDisposer, ArchiveDisposer])
def test_a_file_is_not_taken_for_the_copy_of_itself(
    file: Path, tmp_path: Path, make: Callable[[str], LogDisposer]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(file.parent)
    for folder in (str(file.parent), str(link)):
        with pytest.raises(FileExistsError, match="already"):
            make(folder).dispose(str(file))
    with pytest.raises(FileExistsError, match="already"):
        ArchiveDisposer(f"file://{file.parent}").dispose(str(file))
    assert file.read_bytes() == CONTENT
