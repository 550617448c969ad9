"""Pages and log of a store that were brought together from two moments are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError
from tallystick.services.page_store import PageStore


def _work(path: Path, number: int, copy: Path | None = None) -> None:
    """Change rows; copy the folder as a crash after them leaves it, or close."""
    with PageStore(path) as store:
        if "t" not in store.tables():
            store.create_table("t")
        for key in range(40):
            with store.begin() as tx:
                tx.table("t")[key] = b"%d" % number
        if copy is not None:
            shutil.copytree(path, copy)


@pytest.fixture
def moments(tmp_path: Path) -> dict[str, Path]:
    """A store on Monday, after Tuesday's work, and killed later on; a restored Monday goes on."""
    found = {name: tmp_path / name for name in ("monday", "tuesday", "killed", "restored")}
    path = tmp_path / "store"
    _work(path, 1)
    shutil.copytree(path, found["monday"])
    _work(path, 2)
    shutil.copytree(path, found["tuesday"])
    _work(path, 3, found["killed"])
    shutil.copytree(found["monday"], found["restored"])
    _work(found["restored"], 4)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("pages", "log"),
    [
        ("monday", "tuesday"), ("monday", "killed"), ("tuesday", "monday"), ("killed", "monday"),
        ("restored", "tuesday"), ("tuesday", "restored"), ("restored", "killed"),
    ],
)  # fmt: skip
def test_pages_and_log_of_two_moments_are_refused(
    moments: dict[str, Path], tmp_path: Path, pages: str, log: str
) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(moments[log], mixed)
    shutil.copy(moments[pages] / "pages", mixed / "pages")
    with pytest.raises(CorruptLogError, match="of different moments"):
        PageStore(mixed)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("pages", "log", "number"),
    [
        ("monday", "monday", 1), ("tuesday", "tuesday", 2), ("killed", "killed", 3),
        ("tuesday", "killed", 3), ("restored", "restored", 4),
    ],
)  # fmt: skip
def test_pages_and_the_log_that_goes_on_from_them_are_opened(
    moments: dict[str, Path], tmp_path: Path, pages: str, log: str, number: int
) -> None:
    """The log says all that has become of the pages since its section began."""
    mixed = tmp_path / "mixed"
    shutil.copytree(moments[log], mixed)
    shutil.copy(moments[pages] / "pages", mixed / "pages")
    for _ in range(2):
        with PageStore(mixed) as store, store.begin() as tx:
            assert set(tx.table("t").values()) == {b"%d" % number}
