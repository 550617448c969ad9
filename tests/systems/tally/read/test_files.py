"""The files of a log whose folder changes while it is looked at."""

from __future__ import annotations

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.systems.tally.read.files import read_folder, readable_folder
from tallystick.testing import MemoryFileSystem
from tests.systems.tally.build import FOLDER, every_kind


class Renaming(MemoryFileSystem):
    """Lists spare segments that have got another name by the time they are opened."""

    stale = 0
    """Listings that have one."""
    same_name = False

    def list(self, path: str) -> list[str]:
        names = super().list(path)
        self.stale -= 1
        if self.stale < 0:
            return names
        return [*names, f"spare-{0 if self.same_name else self.stale}.new"]


def renaming(stale: int) -> Renaming:
    found = Renaming()
    found.__dict__ |= every_kind().__dict__
    found.stale = stale
    return found


@pytest.mark.parametrize("stale", [1, 2, 5])
def test_a_file_that_got_another_name_is_not_called_unreadable(stale: int) -> None:
    fs = renaming(stale)
    catalog, _ = readable_folder(fs, FOLDER)
    assert catalog.segments == read_folder(fs, FOLDER)[0].segments
    assert catalog.segments
    assert not catalog.findings


def test_a_folder_is_not_listed_again_for_a_spare_alone() -> None:
    fs = renaming(10**6)
    read_folder(fs, FOLDER)
    assert fs.stale == 10**6 - 2  # to read it, and to see that the spare has gone


def test_a_file_that_is_still_listed_is_unreadable() -> None:
    fs = renaming(10**6)
    fs.same_name = True
    with pytest.raises(LogUnreadableError, match="spare-0"):
        readable_folder(fs, FOLDER)
