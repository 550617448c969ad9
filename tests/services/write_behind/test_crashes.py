"""Write-behind after a crash: what was acknowledged is in the targets, once, in order."""

from __future__ import annotations

import posixpath
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from tallystick.roles import PersistEntry
from tallystick.services.write_behind import WriteBehind
from tallystick.services.write_behind.targets.sql import SqlTarget
from tallystick.storage.files import FileSystem, read_file
from tallystick.testing import RecordingFileSystem, Reporter, check_kills, check_recovery
from tests.services.write_behind.kit import SYSTEMS, put, quick, small_log

KEYS = 3


class FileTarget:
    """A store in a file of the same disk: a line per transaction, synced, numbers kept."""

    batch_max = 1

    def __init__(self, fs: FileSystem, path: str) -> None:
        if not fs.exists(path):
            fs.create(path).close()
            fs.sync_dir(posixpath.dirname(path))
        self.lines = read_file(fs, path).rpartition(b"\n")[0].decode().split()
        self._file = fs.open(path)
        self._end = sum(len(line) + 1 for line in self.lines)

    def open(self, log_id: str) -> None:
        """Do nothing: the file is for one log."""

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        held = {int(line.partition(":")[0]) for line in self.lines}
        for entry in entries:
            if entry.number not in held:
                self._append(f"{entry.number}:{entry.reference}")

    def _append(self, line: str) -> None:
        self._file.pwrite(f"{line}\n".encode(), self._end)
        self._file.datasync()
        self._end += len(line) + 1
        self.lines.append(line)

    def settled(self, below: int) -> None:
        """Do nothing: numbers are never forgotten."""

    def close(self) -> None:
        self._file.close()

    @property
    def references(self) -> list[str]:
        return [line.partition(":")[2] for line in self.lines]


def recorded_run(system: str, commits: int) -> RecordingFileSystem:
    recording = RecordingFileSystem()
    target = FileTarget(recording, "/target")
    log = small_log(system, "/spool", recording)
    with WriteBehind("/spool", {"file": target}, log=log, settings=quick(), fs=recording) as behind:
        for index in range(commits):
            recording.submitted(str(index))
            behind.commit([put(b"%d" % (index % KEYS))], str(index))
            recording.acknowledged(str(index))
    assert sorted(target.references) == sorted(map(str, range(commits)))
    return recording


def recovered(system: str, fs: FileSystem) -> list[str]:
    """Return what the target holds after replay; nothing may be there twice."""
    target = FileTarget(fs, "/target")
    log = small_log(system, "/spool", fs)
    with WriteBehind(
        "/spool", {"file": target}, log=log, settings=quick(), on_incomplete="replay", fs=fs
    ) as behind:
        assert behind.drain(10)
    assert len(set(target.references)) == len(target.references)
    return target.references


def key_of(reference: object) -> int:
    return int(str(reference)) % KEYS


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_crash_leaves_the_target_with_what_was_acknowledged(system: str) -> None:
    recording = recorded_run(system, 2)
    check_recovery(recording, lambda fs: recovered(system, fs), limit=8, writer_of=key_of)


@pytest.mark.soak
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_crash_of_a_longer_run_and_of_its_recovery(system: str) -> None:
    recording = recorded_run(system, 12)
    check_recovery(
        recording, lambda fs: recovered(system, fs), limit=100, writer_of=key_of, again=10
    )


class Shop:
    """Run a service that counts in SQLite: an entry applied twice would show."""

    def __init__(self, folder: Path, system: str) -> None:
        self.folder = folder
        self.system = system
        with sqlite3.connect(folder / "target.db") as connection:
            connection.execute("CREATE TABLE counts (reference TEXT PRIMARY KEY, n INTEGER)")
        connection.close()

    def open(self) -> WriteBehind:
        engine = sa.create_engine(f"sqlite:///{self.folder / 'target.db'}", poolclass=sa.NullPool)
        return WriteBehind(
            self.folder / "spool",
            {"db": SqlTarget(engine, apply=_count)},
            log=small_log(self.system, str(self.folder / "spool")),
            settings=quick(),
            on_incomplete="replay",
        )

    def work(self, reporter: Reporter) -> None:
        with self.open() as behind:
            start = self.rows()
            for index in range(start, start + 10_000):
                reference = f"{index}-{start}"
                reporter.submitted(reference)
                behind.commit([put(b"%d" % (index % KEYS))], reference)
                reporter.acknowledged(reference)

    def recover(self) -> list[str]:
        with self.open() as behind:
            assert behind.drain(30)
        connection = sqlite3.connect(self.folder / "target.db")
        found = connection.execute("SELECT reference, n FROM counts ORDER BY rowid").fetchall()
        connection.close()
        assert {n for _, n in found} <= {1}, "something was applied twice"
        return [reference for reference, _ in found]

    def rows(self) -> int:
        connection = sqlite3.connect(self.folder / "target.db")
        (count,) = connection.execute("SELECT count(*) FROM counts").fetchone()
        connection.close()
        return int(count)


def _count(connection: sa.Connection, entry: PersistEntry) -> None:
    connection.execute(
        sa.text(
            "INSERT INTO counts VALUES (:reference, 1)"
            " ON CONFLICT (reference) DO UPDATE SET n = n + 1"
        ),
        {"reference": entry.reference},
    )


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_process_loses_nothing_and_repeats_nothing(system: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, system)
    assert check_kills(shop.work, shop.recover, kills=6, after_max=120) > 0


@pytest.mark.soak
@pytest.mark.parametrize("system", SYSTEMS)
def test_process_killed_many_times(system: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, system)
    assert check_kills(shop.work, shop.recover, kills=150, after_max=400) > 0
