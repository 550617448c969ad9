"""What the operating system refuses while a log or a service opens is a documented error."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from tallystick.errors import (
    LogFullError,
    LogUnreadableError,
    LogWriteError,
    TallystickError,
    TransactionUsageError,
)
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tallystick.services.write_behind import WriteBehind
from tallystick.storage.local import LOCAL
from tallystick.systems.registry import open_decision_log, open_persist_log
from tests.systems.live_logs import LIVE

Open = Callable[[str], Any]


def _live(name: str) -> Open:
    return lambda path: LIVE[name](LOCAL, path)


OPENERS: dict[str, Open] = {
    "Journal": Journal,
    "Journal over jboss": lambda path: Journal(path, system="jboss"),
    "TransactionManager": lambda path: TransactionManager(path, {}, recovery_interval=None),
    "PageStore": PageStore,
    "PageStore over h2": lambda path: PageStore(path, system="h2"),
    "WriteBehind": lambda path: WriteBehind(path, {}),
    "WriteBehind over cloudtran": lambda path: WriteBehind(path, {}, system="cloudtran"),
} | {name: _live(name) for name in LIVE}

EVERY_OPENER = pytest.mark.parametrize("name", OPENERS)


def _refused(name: str, path: str) -> TallystickError:
    """Open, expecting to be refused; the error has a place and advice."""
    with pytest.raises(TallystickError) as caught:
        OPENERS[name](path).close()
    assert caught.value.file
    assert caught.value.advice
    return caught.value


def _outcome(name: str, path: str, limit: contextlib.AbstractContextManager[Any]) -> Any:
    """Open under a limit; return the documented error, or None after closing without the limit."""
    try:
        with limit:
            opened = OPENERS[name](path)
    except TallystickError as error:
        return error
    opened.close()
    return None


@pytest.fixture(scope="module", autouse=True)
def _everything_is_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Importing needs descriptors and permissions too, also what only recovery imports."""
    for number, opener in enumerate(OPENERS.values()):
        path = str(tmp_path_factory.mktemp(f"first{number}") / "log")
        for _ in range(2):
            opener(path).close()


def _file_in_the_way(folder: Path) -> str:
    (folder / "log").write_bytes(b"a file")
    return str(folder / "log")


def _file_above(folder: Path) -> str:
    return _file_in_the_way(folder) + "/deep"


PLACES: dict[str, Callable[[Path], str]] = {
    "a NUL in the path": lambda folder: f"{folder}/a\0b",
    "a surrogate in the path": lambda folder: f"{folder}/a\ud800b",
    "a long name": lambda folder: f"{folder}/{'n' * 300}",
    "a long path": lambda folder: f"{folder}/" + "deep/" * 1_000,
    "a file in place of the folder": _file_in_the_way,
    "a file above the folder": _file_above,
    "a file system without files": lambda _: "/proc/log",
}


@pytest.mark.sampled(30)
@EVERY_OPENER
@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_cannot_be_is_a_documented_error(
    name: str, place: str, tmp_path: Path
) -> None:
    assert isinstance(_refused(name, PLACES[place](tmp_path)), LogUnreadableError)


@contextlib.contextmanager
def _as_nobody() -> Iterator[None]:
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


@pytest.mark.parametrize("name", [one for one in OPENERS if one not in LIVE])
def test_an_empty_path_is_refused_and_nothing_is_made_in_the_current_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a setting that was not set: ``os.environ.get("LOG_FOLDER", "")``."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="path is empty"):
        OPENERS[name]("")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["s3://bucket/log", "file:///tmp/log"])
@pytest.mark.parametrize("name", [one for one in OPENERS if one not in LIVE])
def test_a_url_is_no_place_for_a_log_and_no_folder_of_its_name_is_made(
    name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers take one, so that a program may have one in its settings."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is a URL"):
        OPENERS[name](url)
    assert list(tmp_path.iterdir()) == []


@EVERY_OPENER
def test_a_folder_that_may_not_be_written_is_a_documented_error(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        with _as_nobody():
            error = _refused(name, f"{folder}/log")
            assert isinstance(error, LogUnreadableError)
            assert "permission" in (error.advice or "")
            assert "permission" in (_refused(name, folder).advice or "")
        Path(folder).chmod(0o700)


@pytest.mark.sampled(4)
@EVERY_OPENER
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_any_write_that_fails_while_opening_is_a_documented_error(
    name: str, code: int, tmp_path: Path
) -> None:
    write = os.pwrite
    for allowed in (0, 1, 2, 3, 5, 8):
        left = [allowed]

        def pwrite(fd: int, data: Any, offset: int, left: list[int] = left) -> int:
            if not left[0]:
                raise OSError(code, os.strerror(code))
            left[0] -= 1
            return write(fd, data, offset)

        path = str(tmp_path / str(allowed))
        error = _outcome(name, path, mock.patch.object(os, "pwrite", pwrite))
        if error is None:
            break
        assert error.file
        assert isinstance(error, LogUnreadableError if code == errno.EIO else LogFullError)
        OPENERS[name](path).close()  # made space, and opened again


@contextlib.contextmanager
def _descriptors(left: int) -> Iterator[None]:
    """Leave this process so many descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(left):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.sampled(5)
@EVERY_OPENER
def test_any_descriptor_that_is_missing_while_opening_is_a_documented_error(
    name: str, tmp_path: Path
) -> None:
    for left in range(12):
        path = str(tmp_path / str(left))
        error = _outcome(name, path, _descriptors(left))
        if error is None:
            break
        assert error.file
        assert "ulimit" in (error.advice or "")
        OPENERS[name](path).close()
    assert left


def test_a_coordinator_starts_where_there_is_little_room(tmp_path: Path) -> None:
    with TransactionManager(tmp_path / "tm", {}):
        pass
    used = sum(path.stat().st_blocks * 512 for path in (tmp_path / "tm").rglob("*"))
    assert used < 6 << 20


@pytest.mark.sampled(18)
@pytest.mark.parametrize(
    ("by", "module", "asked", "replaced"),
    [
        ("gevent", "gevent.monkey", "is_module_patched", "threading"),
        ("gevent", "gevent.monkey", "is_module_patched", "socket"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched", "socket"),
    ],
)
@EVERY_OPENER
def test_nothing_is_opened_where_greenlets_have_replaced_threads_or_sockets(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    by: str,
    module: str,
    asked: str,
    replaced: str,
) -> None:
    patched, monkey = {replaced}, ModuleType(module)
    monkeypatch.setattr(monkey, asked, patched.__contains__, raising=False)
    monkeypatch.setitem(sys.modules, module, monkey)
    with pytest.raises(LogWriteError, match=f"{by} has replaced the threads or sockets"):
        OPENERS[name](str(tmp_path / "log"))
    assert not (tmp_path / "log").exists()
    patched.clear()  # imported, and not applied
    OPENERS[name](str(tmp_path / "log")).close()


_WRONG: dict[str, Callable[[Path, Any], object]] = {
    "write-behind, a disposer": lambda path, log: WriteBehind(path, {}, log=log, disposer="no"),
    "write-behind, a setting": lambda path, log: WriteBehind(path, {}, log=log, settings={"no": 1}),
    "write-behind, a target": lambda path, log: WriteBehind(path, {"one": 7}, log=log),
    "write-behind, a choice": lambda path, log: WriteBehind(path, {}, log=log, on_incomplete="no"),
    "manager, a time": lambda path, log: TransactionManager(path, {}, log=log, timeout=-1),
    "manager, a resource": lambda path, log: TransactionManager(path, {"one": ""}, log=log),
    "manager, a node": lambda path, log: TransactionManager(path, {}, log=log, node=""),
    "manager, shared": lambda path, log: TransactionManager(path, {}, log=log, shared=True),
}


@pytest.mark.parametrize("what", _WRONG)
def test_a_log_that_is_given_with_wrong_arguments_is_closed(tmp_path: Path, what: str) -> None:
    open_log: Callable[[Path], Any]
    open_log = open_persist_log if what.startswith("write") else open_decision_log
    with pytest.raises((TypeError, ValueError, TransactionUsageError)):
        _WRONG[what](tmp_path / "service", open_log(tmp_path / "log"))
    open_log(tmp_path / "log").close()


@pytest.mark.parametrize("call", [
    lambda _: Journal("log"), lambda _: PageStore("store"), lambda _: WriteBehind("spool", {}),
    lambda _: TransactionManager("coordinator", {}), lambda log: log.backup("copy"),
])  # fmt: skip
def test_a_relative_path_in_a_folder_that_was_removed_is_refused_in_a_sentence(
    call: Callable[[Journal], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    with Journal(tmp_path / "log") as log:
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        with pytest.raises(LogUnreadableError, match="working directory was removed"):
            call(log)
