"""The directory of a coordinator: what is missing from it is noticed before anything is undone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError
from tallystick.indoubt.doctor import examine
from tallystick.services.transactions.manager import TransactionManager

GTRID = b"shop" + b"0" * 12


@pytest.fixture(params=[False, True], ids=["alone", "shared"])
def shared(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def opened(path: Path, node: str | None = None, *, shared: bool = False) -> TransactionManager:
    return TransactionManager(path, {}, node=node, shared=shared, recovery_interval=None)


def decided(path: Path, *, shared: bool) -> None:
    """Leave a coordinator with a decision that is not closed."""
    with opened(path, "shop", shared=shared) as manager:
        manager.decisions.decide(GTRID, ("pg", "maria")).wait()


def emptied(folder: Path) -> None:
    """Leave the folder, as a volume does that was not mounted."""
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize("lose", [shutil.rmtree, emptied])
def test_a_coordinator_without_its_decisions_does_not_start_with_none(
    tmp_path: Path, lose: Callable[[Path], None], shared: bool
) -> None:
    """It would roll back branches that it had decided to commit."""
    decided(tmp_path, shared=shared)
    lose(tmp_path / "decisions")
    with pytest.raises(CorruptLogError, match="decisions of this coordinator are missing"):
        opened(tmp_path, "shop", shared=shared)
    assert not list((tmp_path / "decisions").glob("*"))


@pytest.mark.parametrize(
    ("lose", "level", "found"),
    [(shutil.rmtree, "warning", "or it is lost"), (emptied, "problem", "the folder is empty")],
)
def test_doctor_tells_that_the_decisions_are_gone(
    tmp_path: Path, lose: Callable[[Path], None], level: str, found: str
) -> None:
    decided(tmp_path, shared=False)
    lose(tmp_path / "decisions")
    (one,) = [one for one in examine(str(tmp_path), {}) if one.what == "decision log"]
    assert one.level.value == level
    assert found in one.found


def test_a_lost_node_id_is_not_made_up(tmp_path: Path, shared: bool) -> None:
    """Branches in doubt are found by it: another one would find none."""
    decided(tmp_path, shared=shared)
    (tmp_path / "node").unlink()
    for node in (None, "other"):
        with pytest.raises(CorruptLogError, match="belong to node 'shop'"):
            opened(tmp_path, node, shared=shared)
    with opened(tmp_path, "shop", shared=shared) as manager:
        assert list(manager.decisions.open_decisions()) == [GTRID]


def test_a_coordinator_that_was_killed_while_it_was_made_starts(
    tmp_path: Path, shared: bool
) -> None:
    opened(tmp_path, "shop", shared=shared).close()
    (tmp_path / "node").unlink()
    opened(tmp_path, shared=shared).close()
