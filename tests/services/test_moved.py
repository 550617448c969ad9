"""A folder is renamed, or the working directory changes, under an open log: nothing is lost.

Each log and each service, and what can happen to the path by which it was opened. Afterwards it
goes on in its own files, refuses what needs another one where the folder was moved, and holds
everything that it has acknowledged when it is opened by its new path.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest

from tallystick.errors import LogPoisonedError, LogWriteError, TallystickError
from tallystick.roles import PersistEntry
from tallystick.services.journal import Journal
from tallystick.services.transactions import TransactionManager
from tallystick.services.write_behind import WriteBehind
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.cloudtran.format.entries import Operation, OperationKind
from tallystick.systems.jboss.live.settings import JournalSettings
from tests.services.page_store.test_crash_states import small_store
from tests.services.write_behind.kit import Recorder, quick, small_log
from tests.services.write_behind.kit import put as operation
from tests.systems.live_logs import LIVE, CloudTran, Live
from tests.systems.tally.build import TINY

PUTS = 90
"""More than the files hold that a log has when it is opened."""
FEW = 10
"""For those that stay in their first file, or refuse more."""


class Subject(Protocol):
    """Something that is open at a path."""

    def put(self, number: int) -> None: ...

    def checkpoint(self) -> None: ...

    def numbers(self) -> set[int]: ...

    def close(self) -> None: ...


class Log:
    """A live log of one system."""

    def __init__(self, made: Callable[[FileSystem, str], Live], path: str) -> None:
        self._log = made(LOCAL, path)
        self.put, self.numbers, self.close = self._log.put, self._log.numbers, self._log.close

    def checkpoint(self) -> None:
        """It has none."""


class OfJournal:
    """Plain records of a journal."""

    def __init__(self, path: str, **options: Any) -> None:
        self._log = Journal(path, **options)
        self.close = self._log.close

    def put(self, number: int) -> None:
        self._log.append(b"%d" % number + bytes(900))

    def checkpoint(self) -> None:
        self._log.reclaim()
        self._log.compact(force=True)

    def numbers(self) -> set[int]:
        if self._log.system == "tally":
            bodies = [one.body or b"" for one in self._log.replay()]
        else:  # its replay reads by path, and refuses where that leads elsewhere
            bodies = [one.body for one in self._log.live_records()]
        return {int(body.rstrip(b"\0")) for body in bodies if body}


class OfStore:
    """Rows of a page store."""

    def __init__(self, system: str, path: str) -> None:
        self._store = small_store(path, system)
        self._store.create_table("t")
        self.checkpoint, self.close = self._store.checkpoint, self._store.close

    def put(self, number: int) -> None:
        with self._store.begin() as tx:
            tx.table("t")[number] = bytes(800)

    def numbers(self) -> set[int]:
        with self._store.begin(read_only=True) as tx:
            return {key for key, _ in tx.table("t").items()}


class OfWriteBehind:
    """Transactions that their target does not take."""

    def __init__(self, system: str, path: str) -> None:
        target = Recorder()
        target.fail = self._fail
        self._service = WriteBehind(
            path, {"one": target}, log=small_log(system, path), settings=quick(close_timeout=0.1),
            on_incomplete="replay", disposer="delete",
        )  # fmt: skip
        self.close = self._service.close

    def _fail(self, entry: PersistEntry) -> None:
        raise ConnectionError(f"{entry.number}: the target is down")

    def put(self, number: int) -> None:
        self._service.commit([operation(b"%d" % number, bytes(20_000))], str(number))

    def checkpoint(self) -> None:
        """It has none."""

    def numbers(self) -> set[int]:
        return {int(one.reference) for one in self._service.pending()}


class OfManager:
    """Transactions over two journals that stay where they are."""

    def __init__(self, path: str) -> None:
        place = Path(path).absolute().parent
        while not (place / "fixed").exists():
            place = place.parent
        self._journals = {name: Journal(place / "fixed" / name) for name in "ab"}
        self._manager = TransactionManager(path, dict(self._journals), recovery_interval=None)

    def put(self, number: int) -> None:
        with self._manager.begin() as tx:
            for name in "ab":
                tx[name].add(number, b"x")

    def checkpoint(self) -> None:
        self._manager.recover()

    def numbers(self) -> set[int]:
        assert self._manager.recover().clean
        one, other = (
            {record.record_id for record in log.live_records()} for log in self._journals.values()
        )
        assert one == other
        return one

    def close(self) -> None:
        self._manager.close()
        for one in self._journals.values():
            one.close()


class LargeCloudTran(CloudTran):
    """Entries of which a few fill a file."""

    def put(self, number: int) -> None:
        operation = Operation(None, OperationKind.INSERT, "orders", b"key", random_body(number))
        given, ticket = self.log.persisting(["a", "b"], [operation], str(number))
        self._given[number] = given
        ticket.wait()


def random_body(number: int) -> bytes:
    """A body that does not become smaller when it is packed."""
    return Random(number).randbytes(60_000)


SUBJECTS: dict[str, tuple[Callable[[str], Subject], bool]] = {
    **{name: (partial(Log, LIVE[name]), True) for name in LIVE},
    "bitronix": (partial(Log, LIVE["bitronix"]), False),
    "h2": (partial(Log, LIVE["h2"]), False),
    "cloudtran": (partial(Log, LargeCloudTran), True),
    "journal": (partial(OfJournal, settings=TINY), True),
    "journal of jboss": (
        partial(OfJournal, system="jboss", settings=JournalSettings(file_size=4096)),
        True,
    ),
    "shared journal": (partial(OfJournal, shared=True, settings=TINY), True),
    "page store": (partial(OfStore, "tally"), False),
    "page store of h2": (partial(OfStore, "h2"), False),
    "write-behind": (partial(OfWriteBehind, "tally"), True),
    "write-behind of cloudtran": (partial(OfWriteBehind, "cloudtran"), True),
    "manager": (OfManager, False),
}
"""What opens each at a path, and whether it needs another file for `PUTS`."""


# -- what happens to the path ----------------------------------------------------------------------


def to_another_folder(place: Path) -> Path:
    """Change the working directory of a log that was opened as ``data/log``."""
    os.chdir(place / "other")
    return place / "data" / "log"


def renamed(place: Path) -> Path:
    """Rename the folder of the log."""
    (place / "data" / "log").rename(place / "data" / "log.old")
    return place / "data" / "log.old"


def replaced(place: Path) -> Path:
    """Rename it, and make an empty one of its name."""
    found = renamed(place)
    (place / "data" / "log").mkdir()
    return found


def above_replaced(place: Path) -> Path:
    """The same with the folder in which it is."""
    (place / "data").rename(place / "data.old")
    (place / "data" / "log").mkdir(parents=True)
    return place / "data.old" / "log"


def link_switched(place: Path) -> Path:
    """Point the symbolic link on the way to another folder."""
    (place / "current").unlink()
    (place / "current").symlink_to(place / "other")
    (place / "other" / "log").mkdir()
    return place / "data" / "log"


CHANGES = (to_another_folder, renamed, replaced, above_replaced, link_switched)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", SUBJECTS)
def test_whatever_becomes_of_the_path_nothing_is_lost(
    name: str, change: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old object goes on, refuses without harm, closes; the new path has everything."""
    open_it, needs_files = SUBJECTS[name]
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "other", "fixed"):
        (tmp_path / folder).mkdir()
    (tmp_path / "current").symlink_to("data")
    subject = open_it("current/log" if change is link_switched else "data/log")
    subject.put(1)
    now = change(tmp_path)
    before = set(files_below(tmp_path)) - set(files_below(now))
    acknowledged, refusals = {1}, list[LogWriteError]()
    for number in range(2, PUTS if needs_files else FEW):
        try:
            subject.put(number)
            acknowledged.add(number)
        except LogWriteError as error:
            refusals.append(error)
            if len(refusals) == 3:
                break
    if change is to_another_folder:
        assert not refusals
    elif needs_files:
        assert refusals, "none of them needed another file"
        assert "was moved" in str(refusals[0])
    with contextlib.suppress(LogWriteError):
        subject.checkpoint()
    assert acknowledged <= subject.numbers()
    with contextlib.suppress(LogWriteError):
        subject.close()
    elsewhere = set(files_below(tmp_path)) - set(files_below(now)) - before
    assert {path for path in elsewhere if "fixed" not in path.parts} == set()
    again = open_it(str(now))
    try:
        assert again.numbers() == acknowledged
        again.put(1000)
    finally:
        again.close()


@pytest.mark.parametrize("name", [name for name, (_, needs) in SUBJECTS.items() if needs])
def test_a_folder_that_is_moved_back_is_written_again(name: str, tmp_path: Path) -> None:
    open_it, _ = SUBJECTS[name]
    subject = open_it(str(tmp_path / "log"))
    acknowledged = set()
    (tmp_path / "log").rename(tmp_path / "away")
    with pytest.raises(LogWriteError, match="was moved"):
        for number in range(1, PUTS):
            subject.put(number)
            acknowledged.add(number)
    (tmp_path / "away").rename(tmp_path / "log")
    for number in range(PUTS, 2 * PUTS):
        subject.put(number)
        acknowledged.add(number)
    subject.close()
    again = open_it(str(tmp_path / "log"))
    try:
        assert again.numbers() == acknowledged
    finally:
        again.close()


def test_a_folder_that_was_deleted_is_not_called_moved(tmp_path: Path) -> None:
    log = Journal(tmp_path / "log", settings=TINY)
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(LogPoisonedError, match="was deleted"):
        log.append(bytes(900))
    with contextlib.suppress(LogPoisonedError):
        log.close()


def _refuses_after(change: Callable[[Path], None], name: str, place: Path) -> None:
    """Change the folder of a log that is open: what is put later is refused, each time."""
    open_it, _ = SUBJECTS[name]
    (place / "fixed").mkdir()
    subject = open_it(str(place / "log"))
    try:
        subject.put(1)
        change(place / "log")
        for number in (2, 3):
            with pytest.raises((TallystickError, OSError)):
                subject.put(number)
    finally:
        with contextlib.suppress(TallystickError, OSError):
            subject.close()


def _cut(folder: Path) -> None:
    for path in files_below(folder):
        if not path.name.startswith("shared."):  # mapped: the process would be ended (SIGBUS)
            os.truncate(path, 0)  # as `> FILE` and logrotate's copytruncate do


@pytest.mark.both_cores
@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_is_acknowledged_into_files_that_were_deleted(name: str, tmp_path: Path) -> None:
    _refuses_after(shutil.rmtree, name, tmp_path)


# What grows with each write cannot tell: CloudTran's files begin empty.
@pytest.mark.both_cores
@pytest.mark.parametrize("name", [name for name in SUBJECTS if "cloudtran" not in name])
def test_nothing_is_acknowledged_into_files_that_another_program_has_cut(
    name: str, tmp_path: Path
) -> None:
    _refuses_after(_cut, name, tmp_path)
