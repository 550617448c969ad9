"""What an encrypted log seals stands in no file that anything leaves, at no time."""

from __future__ import annotations

import base64
import gzip
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tallystick import Journal, PageStore, TransactionManager, WriteBehind
from tallystick.disposal.disposers import CompressDisposer, MoveDisposer
from tallystick.errors import UnsupportedFormatError
from tallystick.storage.shared.mailbox import REQUEST_MAX
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.persist_log import TallyPersistLog
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.salvage import salvage
from tallystick.systems.tally.live.settings import Settings

SECRET = b"TOPSECRETBODY"
KEY = bytes(range(32))
SETTINGS = Settings(segment_size=64 << 10, preallocate=False, idle_mark_s=None)
SEALED: dict[str, Any] = {"key": lambda: KEY, "settings": SETTINGS}
FORMS = (SECRET, SECRET.hex().encode(), base64.b64encode(SECRET)[:-2], KEY, KEY.hex().encode())

Look = Callable[[], None]


def in_clear(folder: Path) -> list[str]:
    """Return the files below a folder that hold the secret or the key, packed or not."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if path.suffix == ".gz":
                data += gzip.decompress(data)
            found += [path.name for form in FORMS if form in data]
    return found


def use(journal: Journal, start: int) -> None:
    """Hand bodies over in every way that a journal has."""
    journal.append(SECRET)
    journal.append_many([SECRET * 9, SECRET])
    journal.add(start, SECRET)
    journal.update(start, SECRET * 5)
    journal.append(SECRET * (REQUEST_MAX // len(SECRET) + 10))  # through a file of its own
    with journal.transaction() as tx:
        tx.append(SECRET)
        tx.add(start + 1, SECRET)
        tx.delete(start)
    with journal.transaction() as tx:
        tx.add(start + 2, SECRET)
        tx.prepare(b"extra " + SECRET)


def of_a_journal(root: Path, look: Look) -> None:
    with Journal(root / "log", **SEALED) as journal:
        use(journal, 1)
        look()
        for _ in range(5):
            journal.append_many([SECRET * 2000] * 4)
            journal.checkpoint()
        journal.compact(force=True)
        look()
        journal.backup(root / "copy")
    salvage(str(root / "log"), str(root / "salvaged"), **SEALED)
    with Journal(root / "copy", **SEALED) as journal:
        assert any(one.body == SECRET for one in journal.live_records())


def of_a_shared_journal(root: Path, look: Look) -> None:
    """Leader and member; copies of the state are made every two segments."""
    shared = {"shared": True, **SEALED}
    with Journal(root / "log", **shared) as leader, Journal(root / "log", **shared) as member:
        for number, journal in enumerate((leader, member)):
            use(journal, 10 * number)
            look()
        for _ in range(6):
            member.append(SECRET * 4000)
        member.compact(force=True)
        member.backup(root / "copy")
        look()
        bodies = [one.body for one in leader.replay() if one.body]
    assert sum(SECRET in body for body in bodies) > 20


def of_processes_that_are_killed(root: Path, look: Look) -> None:
    """A leader that is killed with requests of its members in its memory, and a member."""
    shared = {"shared": True, **SEALED}
    for _ in range(2):
        ready, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                with Journal(root / "log", **shared) as journal:
                    for number in range(1000):
                        if number == 20:
                            os.write(write, b".")
                        journal.append(SECRET * (1 + number % 7))
            finally:
                os._exit(1)
        os.close(write)
        assert os.read(ready, 1) == b"."
        os.close(ready)
        with Journal(root / "log", **shared) as member:
            member.append(SECRET * 3000)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            look()
            member.append(SECRET)
            look()


def of_a_resource(root: Path, look: Look) -> None:
    with (
        Journal(root / "log", **SEALED) as journal,
        TransactionManager(
            root / "manager", resources={"log": journal.as_resource("log")}
        ) as manager,
    ):
        with manager.begin() as tx:
            tx["log"].add(1, SECRET)
        look()


def of_write_behind(root: Path, look: Look) -> None:
    """Its log, and what its disposer has archived, packed or not."""
    kept = replace(SETTINGS, recycle=False)
    for folder, kind in (("one", MoveDisposer), ("two", CompressDisposer)):
        applied: list[object] = []
        log = TallyLog(str(root / folder / "log"), key=lambda: KEY, settings=kept)
        with WriteBehind(
            root / folder,
            targets={"out": applied.append},
            log=TallyPersistLog(log),
            disposer=kind(str(root / "archive")),
        ) as service:
            for _ in range(40):
                with service.begin() as tx:
                    tx.send("topic", SECRET * 500)
            look()
            while len(applied) < 40:
                time.sleep(0.01)
        look()
    archived = {path.suffix for path in (root / "archive").iterdir()}
    assert archived == {".tally", ".gz"}


CASES = {
    "a journal": of_a_journal,
    "a shared journal": of_a_shared_journal,
    "processes that are killed": of_processes_that_are_killed,
    "a resource": of_a_resource,
    "write-behind": of_write_behind,
}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("case", CASES)
def test_no_file_holds_what_is_sealed(case: str, tmp_path: Path) -> None:
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        assert in_clear(tmp_path) == [], f"look {looks}"

    CASES[case](tmp_path, look)
    look()
    assert looks > 1


def test_the_search_finds_what_a_log_without_a_key_leaves(tmp_path: Path) -> None:
    open_ = {"shared": True, "settings": SETTINGS}
    with Journal(tmp_path / "log", **open_) as one, Journal(tmp_path / "log", **open_) as two:  # type: ignore[arg-type]
        two.append(SECRET)
        one.append(SECRET)
        names = in_clear(tmp_path)
    assert "shared.1" in names
    (tmp_path / "packed.gz").write_bytes(gzip.compress(SECRET))
    assert "packed.gz" in in_clear(tmp_path)


def test_a_page_store_refuses_an_encrypted_log_as_its_pages_are_not(tmp_path: Path) -> None:
    def open_sealed(folder: Path, fs: object) -> TallyUndoRedoLog:
        del fs
        return TallyUndoRedoLog(TallyLog(str(folder), key=lambda: KEY, settings=SETTINGS))

    with pytest.raises(UnsupportedFormatError, match="plain text"):
        PageStore(tmp_path / "store", open_log=open_sealed)
    PageStore(tmp_path / "other").close()
