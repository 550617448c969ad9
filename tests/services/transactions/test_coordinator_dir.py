"""The directory of a coordinator: what is missing from it is noticed before anything is undone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import CorruptLogError, TransactionUsageError
from tallystick.indoubt.doctor import examine
from tallystick.indoubt.listing import list_in_doubt
from tallystick.indoubt.settle import settle
from tallystick.services.page_store import PageStore
from tallystick.services.transactions.manager import TransactionManager
from tallystick.services.transactions.recovery import LOST
from tests.services.test_recovered import without_its_proof

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


def fresh(folder: Path) -> None:
    """Leave what an empty volume has of its own, and that of a file server."""
    emptied(folder)
    (folder / "lost+found").mkdir()
    (folder / ".snapshot").mkdir()


def packed(folder: Path) -> None:
    """Leave the files as somebody packs them who needs room."""
    for file in folder.glob("*.tally"):
        file.rename(f"{file}.gz")


LOSSES = [shutil.rmtree, emptied, fresh, packed]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_coordinator_without_its_decisions_does_not_start_with_none(
    tmp_path: Path, lose: Callable[[Path], None], shared: bool
) -> None:
    """It would roll back branches that it had decided to commit."""
    decided(tmp_path, shared=shared)
    lose(tmp_path / "decisions")
    left = list(tmp_path.rglob("*"))
    with pytest.raises(CorruptLogError, match="decisions of this coordinator are missing"):
        opened(tmp_path, "shop", shared=shared)
    assert [*tmp_path.rglob("*")] == left


@pytest.mark.parametrize("lose", LOSSES)
def test_doctor_tells_that_the_decisions_are_gone(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    decided(tmp_path, shared=False)
    lose(tmp_path / "decisions")
    (one,) = [one for one in examine(str(tmp_path), {}) if one.what == "decision log"]
    assert one.level.value == "problem"
    assert "the decisions are missing" in one.found


@pytest.mark.parametrize("node", ["", "\xe9", "n" * 200, "a\nb"])
def test_a_refused_node_id_leaves_nothing_behind(tmp_path: Path, node: str, shared: bool) -> None:
    with pytest.raises(TransactionUsageError, match="cannot be a node id"):
        opened(tmp_path / "new", node, shared=shared)
    assert not (tmp_path / "new").exists()
    opened(tmp_path / "new", "orders", shared=shared).close()


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


# -- a decision log whose end is damaged -----------------------------------------------------------


BEFORE, AFTER = "before decision", "after decision"


class Stopped(BaseException):
    """The process ends here."""


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, PageStore]]:
    found = {name: PageStore(tmp_path / name) for name in "ab"}
    for store in found.values():
        store.create_table("t")
    yield found
    for store in found.values():
        store.close()


Resources = dict[str, Any]


@pytest.fixture
def resources(stores: dict[str, PageStore]) -> Resources:
    return {name: store.as_resource(name) for name, store in stores.items()}


@contextmanager
def stopped(path: Path, resources: Resources, at: str) -> Iterator[bytes]:
    """Have a coordinator open whose commit over both stores ended at a step; give its id."""

    def stop(step: str) -> None:
        if step == at:
            raise Stopped

    with TransactionManager(
        path, resources, node="shop", on_step=stop, recovery_interval=None
    ) as manager:
        tx = manager.begin()
        for name in "ab":
            tx[name].table("t")[len(at)] = b"row"
        with pytest.raises(Stopped):
            tx.commit()
        yield tx.gtrid


@pytest.fixture
def damaged(tmp_path: Path, resources: Resources) -> Path:
    """A coordinator as a process leaves it that was killed after it had decided, its log hurt."""
    with stopped(tmp_path / "live", resources, AFTER):
        shutil.copytree(tmp_path / "live", tmp_path / "left")
    without_its_proof(tmp_path / "left")
    return tmp_path / "left"


def test_what_a_damaged_log_may_have_decided_is_never_rolled_back(
    damaged: Path, stores: dict[str, PageStore], resources: Resources
) -> None:
    path = damaged
    for _ in range(2):  # the second opening finds a log that is whole again
        (one,) = list_in_doubt([str(path)], resources).transactions
        assert (one.resolution, one.alarm) == ("rollback", "doubtful-abort")
        with TransactionManager(path, resources, node="shop", recovery_interval=None) as manager:
            report = manager.recover()
            assert not report.rolled_back
            assert not report.clean
            assert {(one.resource, one.why) for one in report.left} == {("a", LOST), ("b", LOST)}
        assert all(store.in_doubt() for store in stores.values())
    settle(str(path), resources, one.gtrid, commit=True)
    with TransactionManager(path, resources, node="shop", recovery_interval=None) as manager:
        assert manager.recover().clean
        with manager.begin() as tx:
            tx["a"].table("t")[2] = b"later"
            with pytest.raises(KeyError):
                assert tx["b"].table("t")[2]
    for store in stores.values():
        with store.begin(read_only=True) as read:
            assert read.table("t")[len(AFTER)] == b"row"


def test_what_is_begun_after_the_damage_is_presumed_aborted(
    damaged: Path, resources: Resources
) -> None:
    with stopped(damaged, resources, BEFORE) as gtrid:
        pass
    with TransactionManager(damaged, resources, node="shop", recovery_interval=None) as manager:
        report = manager.recover()
        assert {xid.gtrid for _, xid in report.rolled_back} == {gtrid}
        assert len(report.left) == 2


@pytest.mark.parametrize("content", [b"", b"soon\n"])
def test_a_damaged_note_of_lost_decisions_is_refused(tmp_path: Path, content: bytes) -> None:
    decided(tmp_path, shared=False)
    (tmp_path / "lost-before").write_bytes(content)
    with pytest.raises(CorruptLogError, match="may be lost cannot be read"):
        opened(tmp_path, "shop")
