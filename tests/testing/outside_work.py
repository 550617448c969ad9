"""Runs of the services that are recorded: ``python -m tests.testing.outside_work SERVICE FOLDER``.

Each is one thread's, so that it makes the same calls each time. It works below FOLDER/disk through
the real file system, and reports items to FOLDER/marks.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tallystick.roles.decision_log import DecisionOutcome
from tallystick.services.journal import Journal
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.coordinator_dir import open_coordinator_dir
from tallystick.services.write_behind import WriteBehind
from tallystick.storage.files import Bytes, File, FileSystem
from tallystick.storage.group.tasks import TaskFlusher
from tallystick.storage.local import LOCAL, LocalFile, LocalFileSystem
from tallystick.storage.local.file import AppendedFile
from tests.services.page_store.test_crash_states import add, small_store
from tests.services.write_behind.kit import put, quick, small_log
from tests.services.write_behind.test_crashes import FileTarget
from tests.systems.tally.build import TINY
from tests.systems.tally.script import Script, short_script
from tests.testing.outside import DISK, MARKS, Shape

Mark = Callable[[Any], None]


def journal(fs: FileSystem, root: str, submitted: Mark, acknowledged: Mark) -> None:
    """Every operation of a journal; items are the numbers of the steps."""
    log = Journal(f"{root}/log", fs=fs, settings=TINY)
    short_script(Script(log, submitted, acknowledged))
    log.close()


def page_store(fs: FileSystem, root: str, submitted: Mark, acknowledged: Mark) -> None:
    """Transactions of a page store over checkpoints and an orderly restart."""
    for first in (0, 5):
        with small_store(f"{root}/store", "tally", cache_bytes=0, fs=fs) as store:
            store.create_table("t")
            for number in range(first, first + 5):
                submitted(number)
                add(store, number, 700)
                acknowledged(number)
                if number % 3 == 0:
                    store.checkpoint()


def coordinator(fs: FileSystem, root: str, submitted: Mark, acknowledged: Mark) -> None:
    """Decisions of a coordinator: `d` decided, `c` closed and known as closed, durably."""
    del fs  # it knows one file system
    for first in (0, 4):
        directory = open_coordinator_dir(f"{root}/tm", "node-1", None)
        directory.identities[f"db{first}"] = f"identity of {first}"
        for number in range(first, first + 4):
            gtrid = b"g%d" % number
            submitted(f"d{number}")
            directory.decisions.decide(gtrid, ("a", "b")).wait()
            acknowledged(f"d{number}")
            if number % 2:
                submitted(f"c{number}")
                directory.closed.add(gtrid)
                directory.closed.sync()
                acknowledged(f"c{number}")
                directory.decisions.finish(gtrid, ("a", "b"), DecisionOutcome.COMMITTED)
        directory.close()


def write_behind(fs: FileSystem, root: str, submitted: Mark, acknowledged: Mark) -> None:
    """Transactions of write-behind, whose target is a file of the same disk."""
    target = FileTarget(fs, f"{root}/target")
    log = small_log("tally", f"{root}/spool", fs)
    options: Any = {"log": log, "settings": quick(), "fs": fs}
    with WriteBehind(f"{root}/spool", {"file": target}, **options) as behind:
        for number in range(6):
            submitted(str(number))
            behind.commit([put(b"%d" % (number % 3))], str(number))
            acknowledged(str(number))
            assert IN_TURNS not in os.environ or behind.drain(60)


def transactions(fs: FileSystem, root: str, submitted: Mark, acknowledged: Mark) -> None:
    """Global transactions over two journals."""
    del fs
    journals = [Journal(f"{root}/{name}", settings=TINY) for name in "ab"]
    resources = {name: one.as_resource(name) for name, one in zip("ab", journals, strict=True)}
    with TransactionManager(
        f"{root}/tm", resources, node="node-1", orphan_interval=0.0, recovery_interval=None
    ) as manager:
        for number in range(4):
            submitted(number)
            with manager.begin() as tx:
                for name in "ab":
                    tx[name].add(number, b"%d" % number)
            acknowledged(number)
    for one in journals:
        one.close()


SERVICES = {
    one.__name__: one for one in (journal, page_store, coordinator, write_behind, transactions)
}


IN_TURNS = "TALLYSTICK_TEST_IN_TURNS"
"""Environment variable: set, no service does two things at once, so that two runs are alike."""
SPIED = "TALLYSTICK_TEST_SPIED"
"""Environment variable: set, the calls of the seam are reported to the marks as well."""


def work(service: str, fs: FileSystem, root: str, submitted: Mark, acknowledged: Mark) -> None:
    """Run a service; what the task flusher would do at some later moment, at once, if in turns."""
    with contextlib.ExitStack() as stack:
        if IN_TURNS in os.environ:
            stack.enter_context(patch.object(TaskFlusher, "request", lambda one: one._flush()))
        SERVICES[service](fs, root, submitted, acknowledged)


def spy(tell: Callable[[Shape], None]) -> None:
    """Have every call of `LocalFile` and `LocalFileSystem` that changes something told."""

    def spied(owner: type, name: str, shape: Callable[..., Shape]) -> None:
        real = getattr(owner, name)

        def call(self: Any, *arguments: Any) -> Any:
            answer = real(self, *arguments)
            tell(shape(self, *arguments))
            return answer

        setattr(owner, name, call)

    def written(file: LocalFile, data: Bytes, at: int) -> Shape:
        return "write", file.path, at, len(data)

    real_append = LocalFileSystem.open_to_append

    def open_to_append(fs: LocalFileSystem, path: str) -> File:
        is_new = not fs.exists(path)
        file = real_append(fs, path)
        if is_new:
            tell(("create", path, 0, 0))
        return file

    LocalFileSystem.open_to_append = open_to_append  # type: ignore[method-assign, assignment]
    spied(AppendedFile, "pwrite", written)
    spied(LocalFile, "pwrite", written)
    spied(
        LocalFile,
        "pwritev",
        lambda file, parts, at: ("write", file.path, at, sum(len(part) for part in parts)),
    )
    spied(LocalFile, "truncate", lambda file, size: ("truncate", file.path, size, 0))
    spied(LocalFile, "datasync", lambda file: ("sync", file.path, 0, 0))
    spied(LocalFileSystem, "create", lambda _, path: ("create", path, 0, 0))
    spied(LocalFileSystem, "rename", lambda _, old, new: ("rename", f"{old} -> {new}", 0, 0))
    spied(LocalFileSystem, "remove", lambda _, path: ("remove", path, 0, 0))
    spied(LocalFileSystem, "sync_dir", lambda _, path: ("sync_dir", path, 0, 0))


def main(name: str, folder: str) -> None:
    """Run a service below ``folder``."""
    marks = os.open(Path(folder) / MARKS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def mark(kind: str) -> Mark:
        def tell(item: Any) -> None:
            os.write(marks, f"{kind} {item}\n".encode())

        return tell

    if SPIED in os.environ:
        disk = f"{folder}/{DISK}"
        spy(lambda shape: mark("c")(json.dumps(shape).replace(disk, "")))
    work(name, LOCAL, f"{folder}/{DISK}", mark("s"), mark("a"))


if __name__ == "__main__":
    main(*sys.argv[1:])
