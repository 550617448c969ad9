"""The identity of a service stands in a file, in its log and in what targets keep.

What is lost or exchanged of these is told, and nothing is applied twice or passed over for it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from tallystick.errors import CorruptLogError, LogClosedError
from tallystick.services.write_behind import TargetAheadError, WriteBehind
from tallystick.services.write_behind.targets.sql import SqlTarget
from tests.services.write_behind.kit import SYSTEMS, Recorder, put, quick


def shop(folder: Path) -> sa.Engine:
    """A database with a table of orders that an entry applied twice would show in."""
    engine = sa.create_engine(f"sqlite:///{folder / 'shop.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE IF NOT EXISTS orders (id INTEGER, state TEXT)"))
    return engine


def target(engine: sa.Engine) -> SqlTarget:
    insert = sa.text("INSERT INTO orders VALUES (:id, 'new')")
    return SqlTarget(
        engine, apply=lambda connection, entry: connection.execute(insert, {"id": entry.number})
    )


def orders(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(sa.text("SELECT id FROM orders ORDER BY id")).scalars())


def service(folder: Path, engine: sa.Engine, system: str) -> WriteBehind:
    return WriteBehind(folder, {"shop": target(engine)}, system=system, settings=quick())


def worked(folder: Path, engine: sa.Engine, system: str, commits: int = 3) -> None:
    """A service that has applied some transactions and was closed."""
    with service(folder, engine, system) as behind:
        for _ in range(commits):
            behind.commit([put(b"k")])
        assert behind.drain(20)


@pytest.mark.parametrize("system", SYSTEMS)
def test_lost_identity_of_a_used_log_is_told_and_not_made_anew(tmp_path: Path, system: str) -> None:
    engine, home = shop(tmp_path), tmp_path / "spool"
    worked(home, engine, system)
    kept = (home / "identity").read_bytes()
    (home / "identity").unlink()
    with pytest.raises(CorruptLogError, match=r"is lost.*tallystick_applied") as told:
        service(home, engine, system)
    assert not (home / "identity").exists()
    if system == "tally":
        assert kept.split()[0].decode() in str(told.value), "the advice names what to write"
    (home / "identity").write_bytes(kept)
    worked(home, engine, system)
    assert len(orders(engine)) == 6


@pytest.mark.parametrize("system", SYSTEMS)
def test_home_that_crashed_before_its_first_transaction_gets_an_identity(
    tmp_path: Path, system: str
) -> None:
    with WriteBehind(tmp_path, {"one": Recorder()}, system=system):
        pass
    (tmp_path / "identity").unlink()
    with WriteBehind(tmp_path, {"one": Recorder()}, system=system) as behind:
        behind.commit([put(b"k")])


def test_identity_is_the_name_of_the_log_and_stands_in_the_target(tmp_path: Path) -> None:
    engine = shop(tmp_path)
    worked(tmp_path / "spool", engine, "tally")
    with engine.connect() as connection:
        (held,) = connection.execute(sa.text("SELECT DISTINCT log FROM tallystick_applied"))
    identity, system = (tmp_path / "spool" / "identity").read_text().split()
    assert (identity, system) == (held[0], "tally")


def test_identity_of_another_service_is_refused(tmp_path: Path) -> None:
    engine = shop(tmp_path)
    for name in ("one", "two"):
        worked(tmp_path / name, engine, "tally")
    shutil.copy(tmp_path / "one" / "identity", tmp_path / "two" / "identity")
    with pytest.raises(CorruptLogError, match="that of another log"):
        service(tmp_path / "two", engine, "tally")


def test_log_that_was_made_anew_below_an_old_identity_is_refused(tmp_path: Path) -> None:
    engine, home = shop(tmp_path), tmp_path / "spool"
    worked(home, engine, "tally")
    shutil.rmtree(home / "log")
    with pytest.raises(CorruptLogError, match="that of another log"):
        service(home, engine, "tally")


@pytest.mark.parametrize("system", SYSTEMS)
def test_log_that_is_older_than_its_target_stops_and_passes_nothing_over(
    tmp_path: Path, system: str
) -> None:
    engine, home = shop(tmp_path), tmp_path / "spool"
    worked(home, engine, system, 1)
    shutil.copytree(home, tmp_path / "copy")
    worked(home, engine, system, 5)
    shutil.rmtree(home)
    shutil.move(tmp_path / "copy", home)
    behind = service(home, engine, system)
    number = behind.commit([put(b"k")])
    assert number in orders(engine), "its number was used before"
    with pytest.raises(LogClosedError, match="TargetAheadError"):
        while True:
            behind.commit([put(b"k")])
    assert behind.find(number) is not None
    behind.close()
    assert len(orders(engine)) == 6


def test_target_compares_numbers_also_once_old_ones_are_forgotten(tmp_path: Path) -> None:
    engine = shop(tmp_path)
    worked(tmp_path / "spool", engine, "tally", 3)
    with service(tmp_path / "spool", engine, "tally") as behind:
        behind.commit([put(b"k")])
        assert behind.drain(20)
        behind._marks.settle("shop", 5_000, behind._workers["shop"].target.settled, 4)
    with engine.connect() as connection:
        held = connection.execute(sa.text("SELECT number FROM tallystick_applied")).scalars().all()
    assert held == [4]
    late = target(engine)
    late.given(3)
    late.open((tmp_path / "spool" / "identity").read_text().split()[0])
    with pytest.raises(TargetAheadError, match="never had"):
        late.apply([])


def test_two_targets_that_would_take_each_others_numbers_are_refused(tmp_path: Path) -> None:
    engine, again = shop(tmp_path), sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    for other in (engine, again):
        with pytest.raises(ValueError, match="one table"):
            WriteBehind(tmp_path / "spool", {"one": target(engine), "two": target(other)})
    assert not (tmp_path / "spool").exists()
    insert = sa.text("INSERT INTO orders VALUES (:id, 'new')")
    beside = SqlTarget(
        again,
        apply=lambda connection, entry: connection.execute(insert, {"id": -entry.number}),
        applied_table="applied_beside",
    )
    in_memory = [SqlTarget(sa.create_engine("sqlite://")) for _ in range(2)]
    targets = {"one": target(engine), "two": beside, "three": in_memory[0], "four": in_memory[1]}
    with WriteBehind(tmp_path / "spool", targets) as behind:
        number = behind.commit([put(b"k")], targets=["one", "two"])
        assert behind.wait(number, 20)
    assert orders(engine) == [-1, 1]
