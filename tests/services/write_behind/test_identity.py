"""The identity of a service is in a file, in its log and in the tables of targets.

What is lost or exchanged of these is reported, and nothing is applied twice or skipped.
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
    """Make a database in which an entry applied twice would show."""
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
    """Make a service that has applied some transactions and was closed."""
    with service(folder, engine, system) as behind:
        for _ in range(commits):
            behind.commit([put(b"k")])
        assert behind.drain(20)


@pytest.mark.parametrize("system", SYSTEMS)
def test_lost_identity_of_a_used_log_is_reported_and_not_recreated(
    tmp_path: Path, system: str
) -> None:
    engine, folder = shop(tmp_path), tmp_path / "spool"
    worked(folder, engine, system)
    kept = (folder / "identity").read_bytes()
    (folder / "identity").unlink()
    with pytest.raises(CorruptLogError, match=r"is lost.*tallystick_applied") as raised:
        service(folder, engine, system)
    assert not (folder / "identity").exists()
    if system == "tally":
        assert kept.split()[0].decode() in str(raised.value), "the advice names what to write"
    (folder / "identity").write_bytes(kept)
    worked(folder, engine, system)
    assert len(orders(engine)) == 6


@pytest.mark.parametrize("system", SYSTEMS)
def test_service_that_crashed_before_its_first_transaction_gets_an_identity(
    tmp_path: Path, system: str
) -> None:
    with WriteBehind(tmp_path, {"one": Recorder()}, system=system):
        pass
    (tmp_path / "identity").unlink()
    with WriteBehind(tmp_path, {"one": Recorder()}, system=system) as behind:
        behind.commit([put(b"k")])


def test_identity_is_that_of_the_log_and_is_kept_by_the_target(tmp_path: Path) -> None:
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


def test_new_log_under_an_old_identity_is_refused(tmp_path: Path) -> None:
    engine, folder = shop(tmp_path), tmp_path / "spool"
    worked(folder, engine, "tally")
    shutil.rmtree(folder / "log")
    worked(tmp_path / "new", engine, "tally")
    shutil.copytree(tmp_path / "new" / "log", folder / "log")
    with pytest.raises(CorruptLogError, match="that of another log"):
        service(folder, engine, "tally")


@pytest.mark.parametrize("system", SYSTEMS)
def test_log_older_than_its_target_stops_and_skips_nothing(tmp_path: Path, system: str) -> None:
    engine, folder = shop(tmp_path), tmp_path / "spool"
    worked(folder, engine, system, 1)
    shutil.copytree(folder, tmp_path / "copy")
    worked(folder, engine, system, 5)
    shutil.rmtree(folder)
    shutil.move(tmp_path / "copy", folder)
    behind = service(folder, engine, system)
    number = behind.commit([put(b"k")])
    assert number in orders(engine), "its number was used before"
    with pytest.raises(LogClosedError, match="TargetAheadError"):
        while True:
            behind.commit([put(b"k")])
    assert behind.find(number) is not None
    behind.close()
    with pytest.raises(TargetAheadError, match="two moments"):
        WriteBehind(folder, {"shop": target(engine)}, system=system, on_incomplete="replay")
    assert len(orders(engine)) == 6


def test_target_compares_numbers_after_old_ones_are_deleted(tmp_path: Path) -> None:
    engine = shop(tmp_path)
    worked(tmp_path / "spool", engine, "tally", 3)
    with service(tmp_path / "spool", engine, "tally") as behind:
        behind.commit([put(b"k")])
        assert behind.drain(20)
        behind._marks.settle("shop", 5_000, behind._workers["shop"].target.settled, 4)
    with engine.connect() as connection:
        held = connection.execute(sa.text("SELECT number FROM tallystick_applied")).scalars().all()
    assert [one for one in held if one >= 0] == [4]
    late = target(engine)
    late.given(3)
    late.open((tmp_path / "spool" / "identity").read_text().split()[0])
    with pytest.raises(TargetAheadError, match="never had"):
        late.apply([])


def test_two_targets_with_one_table_of_numbers_are_refused(tmp_path: Path) -> None:
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
