"""Work of the services and readers under limits of memory and descriptors.

``python -m tests.services.limits KIND SUBJECT FOLDER`` does the work of a subject again and again,
each time in a child with a little more left, until it is done. It prints one JSON line per try:
what is left, and what came of it. `WRONG` are the outcomes that must never be.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import tallystick
from tallystick.errors import TallystickError
from tallystick.services.journal import Journal
from tallystick.services.transactions import TransactionManager
from tallystick.services.write_behind import WriteBehind
from tallystick.storage.local import LOCAL
from tests.services.page_store.test_crash_states import add, small_store
from tests.services.write_behind.kit import Recorder, put, quick, small_log
from tests.systems.live_logs import LIVE
from tests.systems.tally.build import TINY

DONE = "done"
STACK = Path(tempfile.gettempdir()) / f"tallystick-limits-{os.getpid()}"
"""Where a child that hangs says where it is."""
_ENDING_S = 5.0
"""Time in which a thread that nobody needs any more ends."""
WRONG = ("undocumented", "leaked", "killed", "hung", "lost", "refused")
"""An error of no documented class; something left open; the process gone or stuck; acknowledged
data gone; a log that the next opening, without a limit, refuses."""
LOOK_S, SECONDS = 10, 200
"""A child says after so many seconds where it is; one that takes longer than the second hangs."""
STARTING = "the interpreter waits for a thread that it could not start"
"""Outcome: `threading.Thread.start` never returns where the new thread has no memory to begin with,
up to CPython 3.14. Nothing outside of the interpreter can end that wait."""
MEMORY = tuple(int(size * (1 << 20)) for size in (
    0, 0.06, 0.12, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 9, 10, 12, 16, 20, 24, 32, 48, 64, 80,
    96, 128, 144, 192, 256, 384, 512, 1024, 2048,
))  # fmt: skip
"""Bytes of address space that are left, one after the other."""

Acknowledge = Callable[[int], None]


class Work(Protocol):
    """What is done below a folder; numbers are acknowledged as they become durable."""

    def __call__(self, folder: Path, acknowledge: Acknowledge) -> None: ...


@dataclass(frozen=True)
class Subject:
    """Work, what was there before it, and the numbers that are there after it."""

    work: Work
    found: Callable[[Path], set[int]] = lambda _: set()
    prepare: Callable[[Path], None] = lambda _: None


# -- subjects -------------------------------------------------------------------------------------


async def _tasks(log: Journal) -> None:
    """Wait as tasks do, whose groups are written by a thread of the log."""
    await asyncio.gather(*(log.submit(b"%d" % number) for number in range(3000, 3010)))


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        loop = asyncio.new_event_loop()
    except OSError as error:  # asyncio's own, which takes descriptors
        work.close()
        raise MemoryError("no event loop") from error
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def _journal(folder: Path, acknowledge: Acknowledge) -> None:
    with Journal(folder / "log", settings={"segment_size": 256 << 10}) as log:
        for number in range(3):
            log.append(b"%d" % number)
            acknowledge(number)
        log.append_many([b"%d" % number + bytes(900) for number in range(3, 3000)])
        acknowledge(2999)
        log.add(7, b"live")
        _run(_tasks(log))
        log.backup(folder / "copy")
        assert len(list(log.replay())) == 3011
        assert len(list(log.live_records())) == 1
        log.compact(force=True)


def _shared(folder: Path, acknowledge: Acknowledge) -> None:
    with Journal(folder / "log", shared=True, settings={"segment_size": 256 << 10}) as log:
        log.append(b"0")
        acknowledge(0)
        # More than a mailbox takes: it is handed over in a file.
        log.append_many([b"%d" % number + bytes(900) for number in range(1, 1500)])
        acknowledge(1499)
        with log.transaction() as transaction:
            transaction.add(7, b"live")
        log.compact(force=True)
        assert len([one for one in log.replay() if one.type == "append"]) == 1500


def _appended(folder: Path) -> set[int]:
    with Journal(folder / "log", settings={"segment_size": 256 << 10}) as log:
        plain = [one for one in log.replay() if one.type == "append"]
        return {int((one.body or b"").rstrip(b"\0")) for one in plain}


def _open_again(folder: Path, acknowledge: Acknowledge) -> None:
    with Journal(folder / "log", settings={"segment_size": 256 << 10}) as log:
        log.append(b"2999")
        acknowledge(2999)


def _page_store(folder: Path, acknowledge: Acknowledge) -> None:
    with small_store(folder / "store", "tally", cache_bytes=0) as store:
        store.create_table("t")
        for number in range(4):
            add(store, number, 3000)
            acknowledge(number)
        store.checkpoint()
        assert not store.check()


def _stored(folder: Path) -> set[int]:
    with small_store(folder / "store", "tally") as store:
        assert not store.check()
        if "t" not in store.tables():
            return set()
        with store.begin() as tx:
            return {key for key, _ in tx.table("t").items() if key < 900}


def _write_behind(folder: Path, acknowledge: Acknowledge) -> None:
    log = small_log("tally", str(folder / "spool"))
    with WriteBehind(folder / "spool", {"one": Recorder()}, log=log, settings=quick()) as behind:
        for number in range(3):
            behind.commit([put(b"%d" % number, bytes(100_000))], str(number))
            acknowledge(number)


def _pending(folder: Path) -> set[int]:
    log = small_log("tally", str(folder / "spool"))
    with WriteBehind(
        folder / "spool",
        {"one": Recorder()},
        log=log,
        settings=quick(),
        on_incomplete="replay",
    ) as behind:
        assert behind.drain(30)
    return set(range(3))  # what was applied before is not asked again


def _transactions(folder: Path, acknowledge: Acknowledge) -> None:
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(Journal(folder / name, settings=TINY)) for name in "ab"]
        named = {name: one.as_resource(name) for name, one in zip("ab", logs, strict=True)}
        with TransactionManager(
            folder / "tm", named, node="node-1", orphan_interval=0.0, recovery_interval=None
        ) as manager:
            for number in range(2):
                with manager.begin() as tx:
                    for name in "ab":
                        tx[name].add(number, bytes(1000))
                acknowledge(number)


def _committed(folder: Path) -> set[int]:
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(Journal(folder / name, settings=TINY)) for name in "ab"]
        named = {name: one.as_resource(name) for name, one in zip("ab", logs, strict=True)}
        with TransactionManager(
            folder / "tm", named, node="node-1", orphan_interval=0.0, recovery_interval=None
        ) as manager:
            assert manager.recover().clean
        one, other = ({record.record_id for record in log.live_records()} for log in logs)
        assert one == other, "a transaction in part"
        return one


def _live(name: str, folder: Path, acknowledge: Acknowledge) -> None:
    log = LIVE[name](LOCAL, str(folder / "log"))
    try:
        for number in range(1, 40):
            log.put(number)
            acknowledge(number)
    finally:
        log.close()


def _held(name: str, folder: Path) -> set[int]:
    log = LIVE[name](LOCAL, str(folder / "log"))
    try:
        return log.numbers()
    finally:
        log.close()


def _read(name: str, folder: Path, acknowledge: Acknowledge) -> None:
    del acknowledge
    problems: list[Any] = []
    answers = (
        sum(1 for _ in tallystick.scan(folder, problems=problems)),
        tallystick.read_arrow(folder, "records", problems=problems).read_all().num_rows,
        tallystick.read_arrow(folder, "transactions", problems=problems).read_all().num_rows,
        [(one.system, one.judgement.answer) for one in tallystick.explain(folder).logs],
    )
    told = [one for one in problems if one.code not in ("no-log",)]
    known = folder.with_name("answers.json")
    if not known.exists():
        known.write_text(json.dumps(answers))
    if not told and json.loads(json.dumps(answers)) != json.loads(known.read_text()):
        raise AssertionError(f"{name}: {answers} instead of {known.read_text()}")
    if told:
        raise MemoryError(told[0].message)


SUBJECTS: dict[str, Subject] = {
    "journal": Subject(_journal, _appended),
    "journal-shared": Subject(_shared, _appended),
    "journal-recovery": Subject(_open_again, _appended, lambda at: _journal(at, lambda _: None)),
    "page_store": Subject(_page_store, _stored),
    "write_behind": Subject(_write_behind, _pending),
    "transactions": Subject(_transactions, _committed),
    **{f"live-{name}": Subject(partial(_live, name), partial(_held, name)) for name in LIVE},
    **{
        f"read-{name}": Subject(
            partial(_read, name), prepare=partial(_live, name, acknowledge=lambda _: None)
        )
        for name in LIVE
    },
}


# -- tries ----------------------------------------------------------------------------------------


def main(kind: str, name: str, folder: str) -> None:
    """Try with more and more left, until the work is done."""
    subject, root = SUBJECTS[name], Path(folder)
    (root / "first").mkdir(parents=True)
    subject.prepare(root / "first")
    shutil.copytree(root / "first", root / "before")
    for _ in range(2):  # everything is imported and compiled
        subject.work(root / "first", lambda _: None)
        subject.found(root / "first")
        shutil.rmtree(root / "first")
        shutil.copytree(root / "before", root / "first")
    for number, left in enumerate(MEMORY if kind == "memory" else range(64)):
        own = root / str(number)
        shutil.copytree(root / "before", own)
        outcome, text, acknowledged = _in_child(partial(_limited, kind, left, subject, own))
        if outcome not in WRONG:
            again, why, _ = _in_child(partial(_verified, subject, own, acknowledged))
            outcome, text = (outcome, text) if again == DONE else (again, f"{text}; then {why}")
        sys.stdout.write(json.dumps([left, outcome, text[:3000]]) + "\n")
        sys.stdout.flush()
        shutil.rmtree(own)
        if outcome == DONE:
            return


Tell = Callable[[str, str], None]


def _in_child(work: Callable[[Tell, Acknowledge], None]) -> tuple[str, str, list[int]]:
    """Run in a forked child; return its outcome, a text, and what it acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)

        def tell(outcome: str, text: str) -> None:
            os.write(writing, json.dumps([outcome, text[:3000]]).encode() + b"\n")

        faulthandler.dump_traceback_later(LOOK_S, file=STACK.open("w"))
        try:
            work(tell, lambda number: _write(writing, b"%d\n" % number))
        finally:
            os._exit(0)
    os.close(writing)
    data, hung = _read_all(reading, child)
    _, status = os.waitpid(child, 0)
    lines = [json.loads(line) for line in data.splitlines()]
    acknowledged = [one for one in lines if isinstance(one, int)]
    told = [one for one in lines if isinstance(one, list)]
    if hung:
        return STARTING if _is_starting() else "hung", STACK.read_text(), acknowledged
    if os.WIFSIGNALED(status) or not told:
        return "killed", f"status {status}", acknowledged
    return told[0][0], told[0][1], acknowledged


def _write(pipe: int, line: bytes) -> None:
    os.write(pipe, line)


def _is_starting() -> bool:
    """Return whether a thread of the child waited within `threading.Thread.start` when asked."""
    for thread in STACK.read_text().split("(most recent call first)"):
        frames = [line for line in thread.splitlines() if line.startswith("  File")]
        if [line.rpartition(" ")[2] for line in frames[:3]] == ["wait", "wait", "start"]:
            return True
    return False


def _read_all(pipe: int, child: int) -> tuple[bytes, bool]:
    data, hung, waited = b"", False, 0
    while True:
        ready, _, _ = select.select([pipe], [], [], LOOK_S / 2)
        waited = 0 if ready else waited + LOOK_S // 2
        if not ready and not hung and (waited > SECONDS or (waited > LOOK_S and _is_starting())):
            os.kill(child, signal.SIGKILL)
            hung = True
        piece = os.read(pipe, 1 << 16) if ready else b""
        data += piece
        if ready and not piece:
            os.close(pipe)
            return data, hung


def _limited(
    kind: str, left: int, subject: Subject, folder: Path, tell: Tell, acknowledge: Acknowledge
) -> None:
    gc.collect()
    before = _open_things()
    outcome, text = "undocumented", ""
    try:
        with _limit(kind, left):
            subject.work(folder, acknowledge)
        outcome = DONE
    except (TallystickError, MemoryError) as error:
        outcome, text = type(error).__name__, str(error)
        del error
    except BaseException:
        text = traceback.format_exc()
    gc.collect()
    if outcome != "undocumented" and (left_over := _left_over(before)):
        outcome, text = "leaked", f"{sorted(left_over)} after {outcome} {text}"
    tell(outcome, text)


@contextlib.contextmanager
def _limit(kind: str, left: int) -> Iterator[None]:
    which = resource.RLIMIT_AS if kind == "memory" else resource.RLIMIT_NOFILE
    soft, hard = resource.getrlimit(which)
    taken: list[int] = []
    if kind == "memory":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    else:
        used = 1 + max(int(one.name) for one in Path("/proc/self/fd").iterdir())
        while (one := os.dup(0)) < used:  # a number below is free
            taken.append(one)
        os.close(one)
    resource.setrlimit(which, (used + left, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))
        for one in taken:
            os.close(one)


def _left_over(before: set[str]) -> set[str]:
    """Return what was not open before; threads that serve the whole process end by themselves."""
    until = time.monotonic() + _ENDING_S
    while (left := _open_things() - before) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def _open_things() -> set[str]:
    """Return open files, and threads that still run."""
    links = set()
    for one in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            links.add(f"{one} {os.readlink(f'/proc/self/fd/{one}')}")  # noqa: PTH115
    listing = {one for one in links if "/proc/" in one}
    names = {thread.name for thread in threading.enumerate() if thread.is_alive()}
    return {one for one in links - listing if "eventpoll" not in one} | names


def _verified(
    subject: Subject, folder: Path, acknowledged: list[int], tell: Tell, _: Acknowledge
) -> None:
    try:
        found = subject.found(folder)
    except BaseException:
        tell("refused", traceback.format_exc())
        return
    lost = set(acknowledged) - found
    tell("lost" if lost else DONE, f"lost {sorted(lost)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
