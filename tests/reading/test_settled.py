"""Logs that are written while they are read: what changes is not called damage."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tallystick.errors import LogBeingWrittenError, LogUnreadableError
from tallystick.reading import explain, inspect, read_arrow, scan, verify
from tallystick.reading.results import headline, is_severe
from tallystick.reading.settled import Observer, settled_findings
from tallystick.records import Answer, Finding, Outcome, Record, Severity, Verdict
from tallystick.systems.findings import BEING_WRITTEN
from tallystick.systems.protocol import Folder, LogReading, LogSource, Reading, ReadOptions, System
from tests.systems.live_logs import LIVE

ROOT = Path(__file__).parents[2]
OLD_S = 1_700_000_000


# -- real writers -------------------------------------------------------------------------


@contextmanager
def writer(name: str, folder: Path) -> Iterator[Callable[[], None]]:
    """A process that writes the log; the function has it write more, and waits until it does."""
    command = [sys.executable, "-m", "tests.reading.live_writer", name, str(folder)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def progress() -> None:
            stdin.write(b"\n")
            stdin.flush()
            assert stdout.readline(), "the writer ended"

        try:
            progress()
            yield progress
        finally:
            process.kill()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LIVE)
def test_a_log_that_recycles_files_while_it_is_read_is_never_called_damaged(
    name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "log"
    seen: list[Finding] = []
    corrupt = 0
    with writer(name, folder) as progress:
        for _ in range(3):
            progress()
            seen += verify(folder).findings
            progress()
            explained = explain(folder)
            seen += [one for ones in explained.findings for one in ones] + explained.problems
            progress()
            seen += [one for log in inspect(folder).logs for one in log.findings]
            problems: list[Finding] = []
            progress()
            corrupt += sum(
                one.outcome is Outcome.CORRUPT for one in scan(folder, problems=problems)
            )
            for table in ("records", "transactions", "findings"):
                progress()
                read = read_arrow(folder, table, problems=problems).read_all()
                if table == "records":
                    corrupt += read.column("outcome").to_pylist().count("corrupt")
            seen += problems
    at_rest = {one.code for one in verify(folder).findings}  # of the test's own table of H2
    assert {one.code for one in seen if is_severe(one)} <= at_rest
    assert corrupt == 0 or any(map(is_severe, seen))
    assert explained.logs


# -- a log that changes at given moments --------------------------------------------------


class _Reading(Reading):
    """A reading that changes files, and finds what the script says."""

    def __init__(self, source: LogSource, system: _Scripted) -> None:
        self.source = source
        self.clock = SimpleNamespace(value="none")
        self._system = system
        self._step = system.next_step()

    def findings(self) -> Sequence[Finding]:
        return self._step

    def verdict(self) -> Verdict:
        strict = {"records": {}, "transactions": {"committed": 1}, "in_doubt": [], "lost": [1]}
        return Verdict("scripted", self.source.path, "1", {}, strict)

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        del salvage
        for number in range(3):
            bad = number == 1 and bool(self._step)
            outcome = Outcome.CORRUPT if bad else Outcome.VALID
            yield cast(
                Record, SimpleNamespace(outcome=outcome, file=self.source.files[0], body=b"x")
            )


class _Scripted(System):
    """A system whose readings find what ``steps`` say, and write to the file at the same time."""

    def script(self, folder: Path, steps: list[tuple[bool, list[Finding]]]) -> _Scripted:
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "readings", 0)
        object.__setattr__(self, "folder", folder)
        (folder / "a.log").write_bytes(b"first")
        os.utime(folder / "a.log", (OLD_S, OLD_S))
        return self

    def next_step(self) -> list[Finding]:
        steps = cast(Any, self).steps
        number = cast(Any, self).readings
        changes, findings = steps[min(number, len(steps) - 1)]
        object.__setattr__(self, "readings", number + 1)
        if changes:
            (cast(Any, self).folder / "a.log").write_bytes(b"more" * (number + 2))
        return list(findings)

    def detect(self, folder: Folder) -> list[LogSource]:
        files = tuple(one.path for one in folder.entries)
        return [LogSource(self.name, folder.path, files)] if files else []

    def read(self, source: LogSource, options: ReadOptions) -> LogReading:
        del options
        return cast(LogReading, _Reading(source, self))


def _damage(file: str | None) -> Finding:
    return Finding("torn", Severity.DAMAGE, "scripted", "log", "damaged", file=file, offset=7)


def _observer(tmp_path: Path, steps: list[tuple[bool, list[Finding]]]) -> tuple[Observer, Any]:
    system = _Scripted(name="scripted", title="", detector="", reader="").script(tmp_path, steps)
    source = LogSource("scripted", str(tmp_path), (str(tmp_path / "a.log"),))
    return Observer(source, {"scripted": system}), system


def test_damage_of_a_log_that_does_not_change_is_told_after_one_reading(tmp_path: Path) -> None:
    damage = _damage(str(tmp_path / "a.log"))
    observer, system = _observer(tmp_path, [(False, [damage])])
    seen = observer.observe(lambda reading: reading.verdict())
    assert (seen.findings, seen.settled, system.readings) == ([damage], True, 1)
    assert seen.value.strict["lost"] == [1]


def test_what_was_seen_under_change_is_read_again(tmp_path: Path) -> None:
    damage = _damage(str(tmp_path / "a.log"))
    observer, system = _observer(tmp_path, [(True, [damage]), (False, [])])
    seen = observer.observe(lambda _: None)
    assert (seen.findings, seen.settled, system.readings) == ([], True, 2)


def test_an_answer_other_than_safe_is_read_again_though_nothing_was_found(tmp_path: Path) -> None:
    observer, system = _observer(tmp_path, [(True, []), (False, [])])
    seen = observer.observe(lambda reading: reading.verdict())
    assert seen.value.judgement.answer is Answer.CANNOT_TELL
    assert (seen.settled, system.readings) == (True, 2)


def test_an_answer_of_a_log_that_keeps_changing_is_being_written(tmp_path: Path) -> None:
    observer, _ = _observer(tmp_path, [(True, [])])
    seen = observer.observe(lambda reading: reading.verdict())
    assert seen.value.judgement.reason == BEING_WRITTEN.code


def test_what_keeps_changing_is_being_written(tmp_path: Path) -> None:
    observer, system = _observer(tmp_path, [(True, [_damage(str(tmp_path / "a.log"))])])
    seen = observer.observe(lambda reading: reading.verdict())
    assert [one.code for one in seen.findings] == [BEING_WRITTEN.code]
    assert not seen.settled
    assert system.readings > 3
    assert seen.value.strict["lost"] == []
    assert headline(seen.value) == (
        "What a restart would do cannot be told: the log is being written."
    )


def test_damage_in_a_file_that_stays_as_it_is_stands_while_others_change(tmp_path: Path) -> None:
    quiet = tmp_path / "b.log"
    quiet.write_bytes(b"damaged long ago")
    os.utime(quiet, (OLD_S, OLD_S))
    damage, passing = _damage(str(quiet)), _damage(str(tmp_path / "a.log"))
    observer, _ = _observer(tmp_path, [(True, [damage, passing])])
    files = (str(tmp_path / "a.log"), str(quiet))
    observer = Observer(LogSource("scripted", str(tmp_path), files), observer.known)
    seen = observer.observe(lambda reading: reading.verdict())
    assert [one.code for one in seen.findings] == ["torn", BEING_WRITTEN.code]
    assert seen.findings[0] == damage
    assert seen.value.strict["lost"] == [1]


def test_a_file_that_was_written_in_the_same_tick_is_looked_at_again(tmp_path: Path) -> None:
    """Its time stamp cannot show whether it changed after it was read."""
    observer, system = _observer(tmp_path, [(False, [_damage(str(tmp_path / "a.log"))])])
    (tmp_path / "a.log").write_bytes(b"just now")
    assert observer.observe(lambda _: None).settled
    assert system.readings > 1


def _corrupt(records: Iterator[Record]) -> list[bool]:
    return [one.outcome is Outcome.CORRUPT for one in records]


def _stream(observer: Observer) -> Iterator[Record]:
    return observer.stream(
        lambda reading: reading.records(),
        lambda one: [one.file] if one.outcome is Outcome.CORRUPT else [],
        lambda _: 1,
    )


def test_records_of_a_log_that_is_written_are_held_until_they_stand(tmp_path: Path) -> None:
    damage = _damage(str(tmp_path / "a.log"))
    observer, system = _observer(tmp_path, [(True, [damage]), (False, [])])
    (tmp_path / "a.log").write_bytes(b"just now")
    assert _corrupt(_stream(observer)) == [False, False, False]
    assert system.readings == 2


def test_damaged_records_of_a_log_at_rest_are_given_at_once(tmp_path: Path) -> None:
    observer, system = _observer(tmp_path, [(False, [_damage(None)])])
    assert _corrupt(_stream(observer)) == [False, True, False]
    assert system.readings == 1


def test_records_that_were_handed_out_are_not_repeated(tmp_path: Path) -> None:
    observer, system = _observer(tmp_path, [(True, [_damage(None)]), (False, [])])
    stream = _stream(observer)
    assert next(stream).outcome is Outcome.VALID
    with pytest.raises(LogBeingWrittenError, match="being written"):
        next(stream)
    assert system.readings == 1


def test_a_log_that_cannot_be_read_is_an_error_at_once(tmp_path: Path) -> None:
    observer, system = _observer(tmp_path, [(False, [])])

    def fails(_: LogReading) -> None:
        raise LogUnreadableError("cannot read", file=str(tmp_path / "a.log"))

    with pytest.raises(LogUnreadableError) as raised:
        observer.observe(fails)
    assert not isinstance(raised.value, LogBeingWrittenError)
    assert system.readings == 1


@pytest.mark.parametrize("changes", [True, False])
def test_a_reader_that_stumbles_over_a_change_reads_again_and_over_none_fails(
    tmp_path: Path, changes: bool
) -> None:
    """A file that is opened twice may be another one the second time: a record of it is none."""
    observer, system = _observer(tmp_path, [(changes, []), (False, [])])

    def stumbles(reading: LogReading) -> list[Record]:
        if system.readings == 1:
            raise ValueError("0 is not a valid RecordType")
        return list(reading.records())

    if changes:
        assert len(observer.observe(stumbles).value) == 3
    else:
        with pytest.raises(ValueError, match="RecordType"):
            observer.observe(stumbles)


@pytest.mark.parametrize("changes", [True, False])
def test_so_does_a_stream(tmp_path: Path, changes: bool) -> None:
    observer, system = _observer(tmp_path, [(changes, []), (False, [])])
    (tmp_path / "a.log").write_bytes(b"just now")

    def stumbles(reading: LogReading) -> Iterator[Record]:
        for number, one in enumerate(reading.records()):
            if number == 1 and system.readings == 1:
                raise ValueError("0 is not a valid RecordType")
            yield one

    items = observer.stream(stumbles, lambda _: [], lambda _: 1)
    assert len(list(items)) == 3
    os.utime(tmp_path / "a.log", (OLD_S, OLD_S))
    object.__setattr__(system, "readings", 0)
    object.__setattr__(system, "steps", [(False, [])])
    with pytest.raises(ValueError, match="RecordType"):
        list(observer.stream(stumbles, lambda _: [], lambda _: 1))


def test_a_reading_that_is_there_is_settled_too(tmp_path: Path) -> None:
    damage = _damage(str(tmp_path / "a.log"))
    observer, system = _observer(tmp_path, [(True, [damage]), (False, [])])
    (tmp_path / "a.log").write_bytes(b"just now")
    reading = system.read(observer.source, ReadOptions())
    assert settled_findings(reading, observer.known, ReadOptions()) == []
