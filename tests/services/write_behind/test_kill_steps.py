"""Killed before every step of commits, of applying, of disposal and of replay.

After each kill the service is opened again and replays: every transaction that was acknowledged
is in the target once, those in flight once or never, those of one key in order; and log files are
in the log or where the disposer puts them, never lost and never twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from tallystick.disposal.disposers import MoveDisposer
from tallystick.disposal.worker import LogDisposer
from tallystick.roles import PersistEntry
from tallystick.services.write_behind import TargetDownError, WriteBehind
from tallystick.services.write_behind.targets.sql import SqlTarget
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tests.servers import Server
from tests.services.write_behind.kit import SYSTEMS, put, quick, small_log
from tests.services.write_behind.steps import Steps, run_until_step

KEYS = 2
COMMITS = 8
BODY = bytes(100_000)


@dataclass
class Shop:
    """A service over a database: an entry applied twice would show."""

    folder: Path
    system: str
    url: str

    def prepare(self) -> None:
        """Create the tables anew."""
        with self.engine().begin() as connection:
            for table in ("counts", "tallystick_applied"):
                connection.execute(sa.text(f"DROP TABLE IF EXISTS {table}"))
            place = "SERIAL" if self.url.startswith("postgres") else "INTEGER"
            connection.execute(
                sa.text(
                    f"CREATE TABLE counts (place {place} PRIMARY KEY,"
                    " reference VARCHAR(40) UNIQUE, n INTEGER)"
                )
            )

    def engine(self) -> sa.Engine:
        return sa.create_engine(self.url, poolclass=sa.NullPool)

    def target(self, steps: Steps | None = None) -> SqlTarget:
        """Return the engine; each transaction is a step before and after its commit."""
        engine = self.engine()
        if steps is not None:
            sa.event.listen(engine, "begin", lambda _: steps.step())
            sa.event.listen(engine, "commit", lambda _: steps.step())
            sa.event.listen(engine, "close", lambda *_: steps.step())
        return SqlTarget(engine, apply=_count)

    def open(self, fs: FileSystem, target: object, on_incomplete: str = "replay") -> WriteBehind:
        spool = str(self.folder / "spool")
        disposer: LogDisposer = MoveDisposer(str(self.folder / "moved"))
        return WriteBehind(
            spool,
            {"db": target},
            log=small_log(self.system, spool, fs),
            settings=quick(),
            disposer=disposer,
            on_incomplete=on_incomplete,
            fs=fs,
        )

    def work(self, steps: Steps, run: int) -> None:
        """Commit, apply, dispose of files."""
        with self.open(steps, self.target(steps)) as behind:
            for index in range(COMMITS):
                behind.commit([put(b"%d" % (index % KEYS), BODY)], f"{run}-{index}")
                steps.tell(f"{run}-{index}")
            behind.drain(10)

    def leave(self, run: int) -> None:
        """Commit while the target is away."""
        with self.open(LOCAL, _away) as behind:
            for index in range(COMMITS):
                behind.commit([put(b"%d" % (index % KEYS), BODY)], f"{run}-{index}")
            behind.close(0.0)

    def replay(self, steps: Steps) -> None:
        """Apply what was left to the target."""
        with self.open(steps, self.target(steps), "hold") as behind:
            assert behind.replay(30) == []

    def check(self, reported: list[str], run: int) -> None:
        """Recover, and check everything."""
        with self.open(LOCAL, self.target()) as behind:
            assert behind.drain(30)
        with self.engine().connect() as connection:
            rows = connection.execute(
                sa.text("SELECT reference, n FROM counts WHERE reference LIKE :run ORDER BY place"),
                {"run": f"{run}-%"},
            ).all()
        found = [int(reference.partition("-")[2]) for reference, _ in rows]
        assert all(n == 1 for _, n in rows), "something was applied twice"
        acknowledged = [int(one.partition("-")[2]) for one in reported]
        assert set(acknowledged) <= set(found) <= {*acknowledged, len(acknowledged)}
        for key in range(KEYS):
            own = [index for index in found if index % KEYS == key]
            assert own == sorted(own)
        self.check_files()

    def check_files(self) -> None:
        log = {path.name for path in (self.folder / "spool" / "log").iterdir()}
        moved = [path.name for path in (self.folder / "moved").glob("*")]
        assert not log & set(moved)
        assert not [name for name in moved if name.endswith(".part")]


def _count(connection: sa.Connection, entry: PersistEntry) -> None:
    connection.execute(
        sa.text(
            "INSERT INTO counts (reference, n) VALUES (:reference, 1)"
            " ON CONFLICT (reference) DO UPDATE SET n = counts.n + 1"
        ),
        {"reference": entry.reference},
    )


def _away(_: PersistEntry) -> None:
    raise TargetDownError("away")


def _committing(shop: Shop, nth: int) -> bool:
    reported, killed = run_until_step(nth, lambda steps: shop.work(steps, nth))
    shop.check(reported, nth)
    return killed


def _replaying(shop: Shop, nth: int) -> bool:
    shop.leave(nth)
    _, killed = run_until_step(nth, shop.replay)
    shop.check([f"{nth}-{index}" for index in range(COMMITS)], nth)
    return killed


def _kill_at(shop: Shop, work: Callable[[Shop, int], bool], first: int, every: int) -> int:
    """Kill before every so-many-th step until the work completes; return the number of kills."""
    shop.prepare()
    kills = 0
    while work(shop, first + every * kills):
        kills += 1
    return kills


WORKS = {"committing": _committing, "replaying": _replaying}


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_before_some_steps(tmp_path: Path, system: str, work: str) -> None:
    shop = Shop(tmp_path, system, f"sqlite:///{tmp_path / 'target.db'}")
    assert _kill_at(shop, WORKS[work], first=3, every=11) > 1


@pytest.mark.soak
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_before_every_step(
    tmp_path: Path, system: str, work: str, record_property: Callable[[str, object], None]
) -> None:
    shop = Shop(tmp_path, system, f"sqlite:///{tmp_path / 'target.db'}")
    kills = _kill_at(shop, WORKS[work], first=1, every=1)
    record_property("figure", f"{kills} kills")


@pytest.mark.soak
@pytest.mark.postgres
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_before_every_step_over_postgres(
    tmp_path: Path,
    system: str,
    work: str,
    postgres_server: Server,
    record_property: Callable[[str, object], None],
) -> None:
    url = postgres_server.url.replace("postgresql:", "postgresql+psycopg:", 1)
    kills = _kill_at(Shop(tmp_path, system, url), WORKS[work], first=1, every=1)
    record_property("figure", f"{kills} kills")
