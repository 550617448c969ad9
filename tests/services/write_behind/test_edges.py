"""Edge cases: targets that hang, two owners, discards before a crash, very large numbers.

A crash is a copy of the directory while its service runs: it holds what a kill would leave.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from tallystick.errors import IncompleteLogError, LogLockedError, TransactionUsageError
from tallystick.roles import PersistEntry, PersistLog
from tallystick.services.write_behind import TargetDownError, WriteBehind
from tallystick.services.write_behind.targets.sql import SqlTarget
from tallystick.systems.cloudtran.live.role import CloudtranPersistLog
from tallystick.systems.tally.live.roles import TallyPersistLog
from tests.services.write_behind.kit import SYSTEMS, Recorder, put, quick, small_log


def counting(folder: Path) -> SqlTarget:
    """Make a database that gets a row each time an entry is applied."""
    engine = sa.create_engine(f"sqlite:///{folder / 'shop.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE IF NOT EXISTS applied (number INTEGER)"))
    insert = sa.text("INSERT INTO applied VALUES (:number)")
    return SqlTarget(
        engine,
        apply=lambda connection, entry: connection.execute(insert, {"number": entry.number}),
    )


def applied(folder: Path) -> list[int]:
    engine = sa.create_engine(f"sqlite:///{folder / 'shop.db'}")
    with engine.connect() as connection:
        query = sa.text("SELECT number FROM applied ORDER BY number")
        return list(connection.execute(query).scalars())


def crashed(folder: Path) -> Path:
    """Copy what a kill would leave of a service directory at this moment."""
    copy = folder.with_name(f"{folder.name}-crashed")
    shutil.copytree(folder, copy)
    return copy


# -- times -------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["5", b"5", True, float("nan")])
def test_a_wrong_timeout_is_refused_and_closes_nothing(tmp_path: Path, wrong: float) -> None:
    with WriteBehind(tmp_path / "log", {"one": lambda _: None}) as behind:
        calls: list[Callable[[float], object]] = [
            behind.close, behind.drain, behind.replay, lambda one: behind.wait(1, one)
        ]  # fmt: skip
        for call in calls:
            with pytest.raises((TypeError, ValueError), match="timeout is"):
                call(wrong)
        behind.commit([put(b"k")])
        assert behind.drain()
    WriteBehind(tmp_path / "log", {"one": lambda _: None}).close()


def test_a_limit_that_is_infinite_or_over_is_one(tmp_path: Path) -> None:
    settings = quick(busy_timeout=float("inf"), close_timeout=float("inf"), backlog_max=1)
    behind = WriteBehind(tmp_path / "log", {"one": lambda _: None}, settings=settings)
    for number in range(20):  # each waits for the one before it
        behind.commit([put(b"%d" % number)])
    assert behind.drain(float("inf"))
    assert behind.drain(-0.5)
    behind.close()


# -- targets -----------------------------------------------------------------------------


def test_target_that_hangs_does_not_keep_the_service_from_closing(tmp_path: Path) -> None:
    hanging, other = Recorder(), Recorder()
    hanging.gate.clear()
    behind = WriteBehind(
        tmp_path, {"hanging": hanging, "other": other}, settings=quick(close_timeout=0.2)
    )
    numbers = [behind.commit([put(b"%d" % index)]) for index in range(5)]
    began = time.monotonic()
    behind.close()
    assert time.monotonic() - began < 10
    assert other.numbers == numbers
    hanging.gate.set()  # it returns after the service has closed
    with pytest.raises(IncompleteLogError, match="5 transactions"):
        WriteBehind(tmp_path, {"hanging": hanging, "other": other})
    late, again = Recorder(), Recorder()
    with WriteBehind(tmp_path, {"hanging": late, "other": again}, on_incomplete="replay") as opened:
        assert opened.drain(20)
    assert (late.numbers, again.numbers) == (numbers, [])


@pytest.mark.parametrize("where", ["a function", "a coroutine function", "the disposer"])
def test_nothing_waits_for_the_thread_that_it_was_called_in(tmp_path: Path, where: str) -> None:
    refused = threading.Event()

    def close(*_: object) -> None:
        if not refused.is_set():
            calls: list[Callable[[], object]] = [behind.close]
            if where != "the disposer":
                calls += [behind.drain, behind.replay, lambda: behind.wait(1)]
                assert not behind.drain(0.0)
            for call in calls:
                with pytest.raises(TransactionUsageError, match="of a write-behind service was"):
                    call()
            refused.set()

    async def close_awaited(_: PersistEntry) -> None:
        close()

    class Closing:
        def dispose(self, path: str) -> None:
            close()
            Path(path).unlink()

    target = {"a function": close, "a coroutine function": close_awaited}.get(where, Recorder())
    with WriteBehind(
        tmp_path,
        {"one": target},
        log=small_log("tally", str(tmp_path)),
        disposer=Closing() if where == "the disposer" else None,
        settings=quick(),
    ) as behind:
        for number in range(6):
            behind.commit([put(b"%d" % number, bytes(100_000))])
        assert refused.wait(60)
        assert behind.drain(60)


class Liar(Recorder):
    """A target that applies, and then reports failure a few times."""

    def __init__(self, target: SqlTarget, error: Exception, times: int) -> None:
        super().__init__(target.batch_max)
        self.target, self.error, self.times = target, error, times

    def open(self, log_id: str) -> None:
        self.target.open(log_id)

    def apply(self, entries: Sequence[PersistEntry]) -> None:
        self.target.apply(entries)
        if self.times:
            self.times -= 1
            raise self.error


@pytest.mark.parametrize("error", [TargetDownError("gone"), OSError("broken"), ValueError("no")])
def test_target_that_applies_and_then_fails_holds_everything_once(
    tmp_path: Path, error: Exception
) -> None:
    liar = Liar(counting(tmp_path), error, 3)
    with WriteBehind(tmp_path / "spool", {"shop": liar}, settings=quick(attempts_max=6)) as behind:
        numbers = [behind.commit([put(b"%d" % (index % 3))]) for index in range(20)]
        assert behind.drain(20)
    assert liar.times == 0
    assert applied(tmp_path) == numbers


# -- directories ---------------------------------------------------------------------------

_SECOND = """
import sys
from tallystick.services.write_behind import WriteBehind
WriteBehind(sys.argv[1], {"one": print}, system=sys.argv[2], on_incomplete="replay")
"""


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files but the one that an idle owner may change at any moment."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "control.tally"]
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize("system", SYSTEMS)
def test_second_process_is_refused_and_changes_nothing(tmp_path: Path, system: str) -> None:
    one = Recorder()
    one.gate.clear()
    with WriteBehind(tmp_path, {"one": one}, system=system, settings=quick()) as behind:
        behind.commit([put(b"k")])
        before = contents(tmp_path)
        with pytest.raises(LogLockedError):
            WriteBehind(tmp_path, {"one": one}, system=system, on_incomplete="replay")
        second = subprocess.run(
            [sys.executable, "-c", _SECOND, str(tmp_path), system],
            capture_output=True, check=False, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        assert b"LogLockedError" in second.stderr
        assert not second.stdout, "nothing was applied"
        assert contents(tmp_path) == before
        one.gate.set()


# -- operators ---------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_transaction_discarded_before_a_crash_stays_discarded(tmp_path: Path, system: str) -> None:
    folder, one = tmp_path / "spool", Recorder()
    poison = threading.Event()

    def fail(entry: PersistEntry) -> None:
        if entry.operations[0].value == b"bad":
            poison.set()
            raise ValueError("bad")

    one.fail = fail
    with WriteBehind(folder, {"one": one}, system=system, settings=quick()) as behind:
        bad = behind.commit([put(b"k", b"bad")])
        later = behind.commit([put(b"k", b"good")])
        other = behind.commit([put(b"z", b"good")])
        assert poison.wait(20)
        assert behind.wait(other, 20)
        before = crashed(folder)
        one.gate.clear()  # the later one stays in the log until the copy is made
        behind.discard(bad)
        after = crashed(folder.rename(tmp_path / "given-up"))
        (tmp_path / "given-up").rename(folder)
        one.gate.set()
        assert behind.wait(later, 20)
    for folder, left in ((before, [bad, later]), (after, [later])):
        with WriteBehind(folder, {"one": one}, system=system, on_incomplete="hold") as opened:
            found = [pending.number for pending in opened.pending()]
            assert [number for number in found if number != other] == left


# -- numbers -----------------------------------------------------------------------------


def go_far(log: PersistLog, number: int) -> None:
    """Set the next number of the log, as if all numbers below were given."""
    if isinstance(log, TallyPersistLog):
        log._next = number
    elif isinstance(log, CloudtranPersistLog):
        log._log._next_number = number


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("first", [(1 << 31) - 2, (1 << 32) - 2, (1 << 53) - 2])
def test_numbers_grow_past_the_size_of_an_integer(tmp_path: Path, system: str, first: int) -> None:
    folder, target = tmp_path / "spool", counting(tmp_path)
    numbers = list(range(first, first + 6))
    with WriteBehind(folder, {"shop": target}, system=system, settings=quick()) as behind:
        go_far(behind._log, first)
        assert [behind.commit([put(b"k")]) for _ in numbers] == numbers
        assert behind.drain(20)
        marks_lost = crashed(folder)
    with WriteBehind(
        marks_lost, {"shop": counting(tmp_path)}, system=system, on_incomplete="replay"
    ) as again:
        last = again.commit([put(b"k")])
        assert again.drain(20)
    assert last == numbers[-1] + 1
    assert applied(tmp_path) == [*numbers, last]
