"""What an encrypted log seals stands in no file that anything leaves, at no time."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from traceback import format_exception
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from tallystick import Journal, PageStore, TransactionManager, WriteBehind, scan
from tallystick.cli import tallystick
from tallystick.convert import convert
from tallystick.disposal.disposers import CompressDisposer, MoveDisposer
from tallystick.errors import TallystickError, UnsupportedFormatError
from tallystick.roles import Operation, OperationCode
from tallystick.storage.shared.mailbox import REQUEST_MAX
from tallystick.storage.source import open_source
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import NATIVE
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


def _behind(root: Path) -> None:
    """An encrypted persist log with pending entries."""
    log = TallyLog(str(root), key=lambda: KEY, settings=replace(SETTINGS, recycle=False))
    with closing(TallyPersistLog(log)) as entries:
        for _ in range(40):
            insert = Operation(OperationCode.INSERT, "orders", b"key", SECRET * 500)
            entries.persisting(["out"], [insert])[1].wait()


def of_conversions(root: Path, look: Look) -> None:
    """Converted to be encrypted again, looked at before and after the new log has its name."""
    with Journal(root / "log", **SEALED) as journal:
        use(journal, 1)
        journal.append_many([SECRET * 2000] * 4)
    _behind(root / "entries")
    options = ReadOptions(encryption_key=KEY)
    with mock.patch("tallystick.convert.command.complete", side_effect=lambda *_: look()):
        for name in ("log", "entries"):
            convert(
                root / name,
                root / f"{name} half",
                NATIVE,
                options=options,
                key_to=KEY,
                service=True,
            )
    for name in ("log", "entries"):
        convert(root / name, root / f"{name} 2", NATIVE, options=options, key_to=KEY, service=True)
    look()
    with Journal(root / "log 2", **SEALED) as journal:
        assert any(one.body == SECRET for one in journal.live_records())


def of_conversions_that_are_killed(root: Path, look: Look) -> None:
    """What a kill leaves of the unfinished folder: the copy of the source, and the new log."""
    _behind(root / "entries")
    options = ReadOptions(encryption_key=KEY)
    pid = os.fork()
    if pid == 0:
        try:
            with mock.patch("tallystick.convert.command.differences", side_effect=_killed):
                convert(root / "entries", root / "to", NATIVE, options=options, key_to=KEY)
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    assert len(list((root / "to.converting").rglob("*.tally"))) > 1
    look()


def _killed(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def of_reading(root: Path, look: Look) -> None:
    """What commands without the key leave: reports and errors, and unpacked archives."""
    with Journal(root / "log", **SEALED) as journal:
        use(journal, 1)
    (root / "archive").mkdir()
    for path in (root / "log").glob("*.tally"):
        (root / "archive" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    (root / "tmp").mkdir()
    for name in ("log", "archive"):
        for command in ("inspect", "explain", "triage", "verify", "dump"):
            answer = CliRunner().invoke(tallystick, [command, str(root / name), "--json"])
            text = f"{answer.output}\n{''.join(format_exception(answer.exception))}"
            (root / f"{command} {name}.txt").write_text(text)
        look()
    files = [str(one) for one in (root / "archive").iterdir()]
    with mock.patch.dict(os.environ, TMPDIR=str(root / "tmp")):
        for file in files:
            with open_source(file) as source:
                assert len(source.data)
                look()


def of_what_fails(root: Path, look: Look) -> None:
    """Errors that a log with damage in it raises, with their tracebacks, and what is logged."""
    with Journal(root / "log", **SEALED) as journal:
        use(journal, 1)
    (path,) = (root / "log").glob("0*.tally")
    content = bytearray(path.read_bytes())
    place = len(content.rstrip(b"\0")) - 20
    content[place] ^= 1
    path.write_bytes(content)
    for key in (KEY, bytes(32)):
        try:
            Journal(root / "log", key=partial(bytes, key), settings=SETTINGS).close()
            tuple(scan(root / "log", options=ReadOptions(encryption_key=key)))
        except TallystickError as error:
            (root / f"{key[1]}.txt").write_text("".join(format_exception(error)))
        look()


CASES = {
    "a journal": of_a_journal,
    "a shared journal": of_a_shared_journal,
    "processes that are killed": of_processes_that_are_killed,
    "a resource": of_a_resource,
    "write-behind": of_write_behind,
    "conversions": of_conversions,
    "conversions that are killed": of_conversions_that_are_killed,
    "reading": of_reading,
    "what fails": of_what_fails,
}


@pytest.mark.sampled(4)
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


def test_what_was_written_before_the_key_was_given_is_told_and_sealed_by_a_conversion(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def findings(name: str) -> list[str]:
        answer = CliRunner().invoke(tallystick, ["verify", str(tmp_path / name), "--json"])
        return [json.loads(line)["code"] for line in answer.output.splitlines()]

    with Journal(tmp_path / "log", settings=SETTINGS) as journal:
        use(journal, 1)
        number = journal.append(SECRET)
    assert "clear-text" not in findings("log"), "it is no encrypted log"
    for _ in range(2):
        caplog.clear()
        with Journal(tmp_path / "log", **SEALED) as journal:
            journal.append(SECRET)
        assert f"{number} records are in clear text" in caplog.text
        assert "clear-text" in findings("log")
    convert(
        tmp_path / "log", tmp_path / "new", NATIVE,
        options=ReadOptions(encryption_key=KEY), key_to=KEY,
    )  # fmt: skip
    caplog.clear()
    with Journal(tmp_path / "new", **SEALED) as journal:
        journal.append(SECRET)
    assert "clear text" not in caplog.text
    assert "clear-text" not in findings("new")
    assert in_clear(tmp_path / "log")
    assert in_clear(tmp_path / "new") == []


def test_a_page_store_refuses_an_encrypted_log_as_its_pages_are_not(tmp_path: Path) -> None:
    def open_sealed(folder: Path, fs: object) -> TallyUndoRedoLog:
        del fs
        return TallyUndoRedoLog(TallyLog(str(folder), key=lambda: KEY, settings=SETTINGS))

    with pytest.raises(UnsupportedFormatError, match="plain text"):
        PageStore(tmp_path / "store", open_log=open_sealed)
    PageStore(tmp_path / "other").close()
