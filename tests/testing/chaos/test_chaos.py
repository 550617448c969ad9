"""The kit finds what is torn, falsely clean, falsely reported or never settled: here, two files."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import InDoubtError, RolledBackError
from tallystick.testing import TcpProxy
from tallystick.testing.chaos import FORK, KILL, STOP, Away, Chaos, Scenario
from tallystick.testing.chaos.process import Ended


class Files:
    """Two places that each keep a number; with ``log`` a decision before the two writes."""

    def __init__(self, folder: Path, *, log: bool = True, recovers: bool = True) -> None:
        self.folder = folder
        self._log = log
        self._recovers = recovers

    def work(self, number: int, on_step: Callable[[str], None]) -> None:
        on_step("before")
        if self._log:
            self._write("log", number)
        on_step("decided")
        self._write("one", number)
        on_step("half")
        self._write("two", number)
        on_step("done")

    def recover(self) -> bool:
        if self._recovers:
            for path in self.folder.glob("log-*"):
                for place in ("one", "two"):
                    self._write(place, int(path.name.partition("-")[2]))
        return True

    def look(self, number: int) -> bool:
        there = [(self.folder / f"{place}-{number}").exists() for place in ("one", "two")]
        assert len(set(there)) == 1, f"torn: {there}"
        return there[0]

    def _write(self, place: str, number: int) -> None:
        (self.folder / f"{place}-{number}").touch()

    def scenario(self, **settings: Any) -> Scenario:
        calls = {"work": self.work, "recover": self.recover, "look": self.look} | settings
        return Scenario(**calls)


@pytest.mark.long
def test_what_is_right_passes_every_fault_of_the_process(tmp_path: Path) -> None:
    report = Chaos().run(Files(tmp_path).scenario())
    assert report.steps == ["before", "decided", "half", "done"]
    assert report.trials == 1 + 4 * 4
    assert report.ended[Ended.UNKNOWN] == 4  # the kills
    assert str(report).startswith("17 trials at 4 steps")


def test_a_torn_transaction_is_found_with_the_line_that_repeats_it(tmp_path: Path) -> None:
    scenario = Files(tmp_path, log=False).scenario()
    with pytest.raises(AssertionError) as found:
        Chaos(faults=["kill"]).run(scenario)
    assert "torn: [True, False]" in str(found.value)
    assert str(found.value).endswith("--chaos-fault 'kill' --chaos-step 2")
    again = Chaos(faults=["kill"], step=2)
    with pytest.raises(AssertionError, match="torn"):
        again.run(scenario)
    other = tmp_path / "other"
    other.mkdir()
    Chaos(faults=["kill"], step=1).run(Files(other, log=False).scenario())  # nothing torn there


def test_recovery_that_calls_clean_what_is_torn_is_found_while_the_fault_lasts(
    tmp_path: Path,
) -> None:
    away: list[int] = []
    files = Files(tmp_path, recovers=False)

    def mend() -> None:
        files._recovers = True

    fault = Away("away", lambda: away.append(1), mend)

    def work(number: int, on_step: Callable[[str], None]) -> None:
        on_step("before")
        files._write("log", number)
        if number == 1:
            files._write("one", number)
            files._write("two", number)
        else:
            files._write("one", number)
            raise InDoubtError("left to recovery")

    with pytest.raises(AssertionError, match="recovery called this clean: torn"):
        Chaos(faults=["away"]).run(files.scenario(work=work, faults=[fault]))
    assert away


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (None, "reported committed, and it is not there"),
        (RolledBackError("no"), "reported rolled back, and it is there"),
    ],
)
def test_a_false_report_is_found(tmp_path: Path, lie: Exception | None, message: str) -> None:
    files = Files(tmp_path)

    def work(number: int, on_step: Callable[[str], None]) -> None:
        on_step("before")
        if lie is not None or number == 1:
            files._write("log", number)
        if lie is not None and number > 1:
            raise lie

    with pytest.raises(AssertionError, match=message):
        Chaos(faults=["stop"]).run(files.scenario(work=work))


def test_recovery_that_never_becomes_clean_is_found(tmp_path: Path) -> None:
    clean = [True]
    fault = Away("away", clean.clear, lambda: None)
    files = Files(tmp_path)
    scenario = files.scenario(recover=lambda: bool(clean), faults=[fault], settle=0.3)
    with pytest.raises(AssertionError, match=r"recovery has not become clean.*step 0 \(before\)"):
        Chaos(faults=["away"]).run(scenario)


def test_what_changes_after_it_was_settled_is_found(tmp_path: Path) -> None:
    files = Files(tmp_path)

    def work(number: int, on_step: Callable[[str], None]) -> None:
        files.work(number, on_step)
        if number == 3:
            for path in tmp_path.glob("*-1"):
                path.unlink()

    with pytest.raises(AssertionError, match="trial 1 changed after its end"):
        Chaos(faults=["stop"]).run(files.scenario(work=work))


def test_work_that_hangs_is_ended_and_settled(tmp_path: Path) -> None:
    files = Files(tmp_path)
    fault = Away("away", (tmp_path / "hang").touch, (tmp_path / "hang").unlink)

    def work(number: int, on_step: Callable[[str], None]) -> None:
        files.work(number, on_step)
        while (tmp_path / "hang").exists():
            time.sleep(0.01)

    report = Chaos(faults=["away"], step=3).run(files.scenario(work=work, faults=[fault], limit=5))
    assert report.ended == {Ended.COMMITTED: 1, Ended.HUNG: 1}


def test_the_child_of_a_fork_unwinds_and_the_parent_goes_on(tmp_path: Path) -> None:
    files = Files(tmp_path)

    def work(number: int, on_step: Callable[[str], None]) -> None:
        try:
            files.work(number, on_step)
        finally:
            (tmp_path / f"unwound-{number}-{os.getpid()}").touch()

    report = Chaos(faults=[FORK.name], step=2).run(files.scenario(work=work))
    assert report.ended == {Ended.COMMITTED: 2}
    assert len(list(tmp_path.glob("unwound-2-*"))) == 2


def test_a_full_disk_refuses_what_python_writes(tmp_path: Path) -> None:
    files = Files(tmp_path)

    def work(number: int, on_step: Callable[[str], None]) -> None:
        with (tmp_path / "data").open("wb") as data:
            on_step("before")
            try:
                os.pwrite(data.fileno(), b"x", 0)
            except OSError as error:
                raise RolledBackError(str(error)) from error
        files._write("log", number)

    report = Chaos(faults=["disk full"]).run(files.scenario(work=work))
    assert report.ended == {Ended.COMMITTED: 1, Ended.ROLLED_BACK: 1}


@pytest.mark.long
def test_trials_by_chance_are_the_same_for_a_seed(tmp_path: Path) -> None:
    def struck(seed: int) -> list[str]:
        found: list[str] = []
        folder = tmp_path / str(time.monotonic_ns())
        folder.mkdir()
        faults = [Away(f"away {n}", partial(found.append, n), lambda: None) for n in "abc"]
        names = [fault.name for fault in faults]
        Chaos(faults=names, seed=seed).run(Files(folder).scenario(faults=faults), sample=5)
        return found

    assert struck(1) == struck(1) != struck(2)


def test_a_fault_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no such fault: \['kil'\]; there are .*'kill'"):
        Chaos(faults=["kil"]).run(Files(tmp_path).scenario())


def test_the_faults_of_a_proxy_reach_what_passes() -> None:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(ConnectionResetError):
                while data := client.recv(100):
                    client.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    with TcpProxy(listener.getsockname()[1]) as proxy:
        scenario = Scenario(lambda *_: None, lambda: True, lambda _: True, {"db": proxy})
        faults = {fault.name: fault for fault in scenario.every_fault()}
        assert {"half-open db", "cut db", "refused commit db", "refused prepare db"} < set(faults)

        def ask(text: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=1.0) as client:
                client.sendall(text)
                return client.recv(100)

        nobody: Any = None
        assert ask(b"COMMIT PREPARED") == b"COMMIT PREPARED"
        faults["refused commit db"].strike(nobody)
        assert ask(b"COMMIT PREPARED") == b"COMMIQ PREPARED"
        faults["refused commit db"].mend()
        faults["half-open db"].strike(nobody)
        with pytest.raises(TimeoutError):
            ask(b"COMMIT")
        faults["half-open db"].mend()
        assert ask(b"COMMIT") == b"COMMIT"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_the_faults_of_a_process_are_known_by_name() -> None:
    assert [fault.name for fault in (KILL, STOP, FORK)] == ["kill", "stop", "fork"]
