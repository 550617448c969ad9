"""Changes of the historic systems, followed at any pace: what a batch gives, once and in order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import CorruptLogError, LogUnreadableError
from tallystick.pipeline.options import Limit, SourceOptions
from tallystick.pipeline.planning import find
from tallystick.pipeline.source.file_ranges import file_ranges, read
from tallystick.pipeline.source.positions import Position
from tallystick.pipeline.source.tailer import Tailer
from tallystick.records import Change
from tallystick.roles.persist_log import Operation, OperationCode
from tallystick.systems.bitronix.live.role import BitronixDecisionLog
from tallystick.systems.cloudtran.live.role import CloudtranPersistLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.jboss.live.log import CircularJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import system
from tests.pipeline.derby_steps import DerbySteps, Steps, write_steps

Row = dict[str, Any]
NO_LIMIT = Limit()


class JournalSteps:
    """Records in and out of transactions, over small files."""

    def __init__(self, path: Path) -> None:
        self.log = CircularJournal(str(path), settings=JournalSettings(file_size=4096))
        self.open: dict[int, bool] = {}

    def step(self, number: int, choice: random.Random) -> None:
        roll, body = choice.random(), b"%d" % number + bytes(choice.randrange(300))
        if roll < 0.2 and len(self.open) < 4:
            self.log.append_add_record_transactional(number, number, 1, body)
            self.open[number] = False
        elif roll < 0.6 and (free := [one for one, prepared in self.open.items() if not prepared]):
            self.log.append_add_record_transactional(choice.choice(free), number, 1, body)
        elif roll < 0.8 and self.open:
            ours = choice.choice([*self.open])
            if not self.open[ours] and choice.random() < 0.3:
                self.log.append_prepare_record(ours, b"extra").wait()
                self.open[ours] = True
            else:
                del self.open[ours]
                end = choice.choice(
                    [self.log.append_commit_record, self.log.append_rollback_record]
                )
                end(ours).wait()
        else:
            self.log.append_add_record(number, 1, body).wait()
            if choice.random() < 0.3:
                self.log.append_delete_record(number).wait()

    def close(self) -> None:
        self.log.close()


class PersistSteps:
    """Entries that persist, and reach their targets."""

    def __init__(self, path: Path) -> None:
        self.log = CloudtranPersistLog(str(path), settings=LogSettings(file_size_mb=1))
        self.pending: list[int] = []

    def step(self, number: int, choice: random.Random) -> None:
        body = b"%d" % number + bytes(choice.randrange(900))
        wanted = [Operation(OperationCode.INSERT, "T", b"%d" % number, body)] * choice.randint(1, 3)
        one, ticket = self.log.persisting(["a"], wanted)
        ticket.wait()
        self.pending.append(one)
        if choice.random() < 0.5:
            self.log.persisted(self.pending.pop(0), ["a"])

    def close(self) -> None:
        self.log.close()


MAKERS: dict[str, Callable[[Path], Steps]] = {
    "derby": DerbySteps,
    "jboss": JournalSteps,
    "cloudtran": PersistSteps,
}


def _expected(path: Path) -> list[Change]:
    (source,) = find([str(path)]).logs
    return list(system(source.system).read(source, ReadOptions()).changes())


class Follower:
    """A stream of changes, with its position kept as a checkpoint keeps it."""

    def __init__(self, path: Path, limit: Limit = NO_LIMIT) -> None:
        self.options = SourceOptions((str(path),), table="changes")
        self.limit = limit
        self.tailer = Tailer(self.options)
        self.position: Position = {}
        self.rows: list[Row] = []

    def follow(self) -> bool:
        """Take one step; return whether it moved."""
        end = self.tailer.advance(self.position, self.limit)
        found = file_ranges(self.options, self.position, end)
        self.rows += [row for one in read(found, self.options) for row in one.to_pylist()]
        moved, self.position = end != self.position, json.loads(json.dumps(end))
        return moved

    def keys(self) -> list[tuple[Any, ...]]:
        """What tells the rows apart."""
        names = ("commit_sequence", "ordinal", "key", "transaction", "gtrid", "after")
        return [tuple(row[name] for name in names) for row in self.rows]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("limit", [Limit(), Limit(rows=9), Limit(bytes=3_000)])
@pytest.mark.parametrize("name", MAKERS)
def test_committed_changes_come_once_and_in_order(tmp_path: Path, name: str, limit: Limit) -> None:
    steps, choice = MAKERS[name](tmp_path / "log"), random.Random(3)
    stream = Follower(tmp_path / "log", limit)
    for number in range(1, 161):
        steps.step(number, choice)
        if number % 20 == 0:
            stream.follow()
        if number == 80:
            stream.tailer = Tailer(stream.options)
    steps.close()
    while stream.follow():
        pass
    expected = _expected(tmp_path / "log")
    assert len({one.file for one in expected}) > 1 or name == "cloudtran"
    assert stream.keys() == [
        (one.commit_sequence, one.ordinal, one.key, one.transaction, one.gtrid, one.after)
        for one in expected
    ]
    assert len(expected) > 20


def test_a_derby_log_file_may_go_once_it_was_read_to_its_end(tmp_path: Path) -> None:
    steps, stream = DerbySteps(tmp_path), Follower(tmp_path)
    write_steps(steps, 1, 60)
    for one in [*steps.open]:
        steps.log.commit(one)
    steps.open.clear()
    read = [*tmp_path.glob("log*.dat")]
    steps.log.switch_log_file()
    stream.follow()
    count = len(stream.rows)
    assert str(max(read)) == next(iter(stream.position.values()))["file"]
    write_steps(steps, 61, 80)
    for path in read:
        path.unlink()
    assert stream.follow()
    assert len(stream.rows) > count
    assert len({(row["commit_sequence"], row["ordinal"]) for row in stream.rows}) == len(
        stream.rows
    )
    steps.close()


def test_a_derby_log_file_that_goes_unread_ends_the_stream(tmp_path: Path) -> None:
    steps, stream = DerbySteps(tmp_path), Follower(tmp_path, Limit(rows=5))
    write_steps(steps, 1, 120)
    stream.follow()
    stream.limit = Limit()
    steps.close()
    Path(tmp_path, "log1.dat").unlink()
    with pytest.raises(LogUnreadableError, match="given up before they were read"):
        stream.follow()


def test_a_journal_whose_files_were_reused_or_compacted_unread_ends_the_stream(
    tmp_path: Path,
) -> None:
    settings = JournalSettings(file_size=4096)
    for compacted in (False, True):
        path = tmp_path / str(compacted)
        with CircularJournal(str(path), settings) as log:
            stream = Follower(path)
            for number in range(1, 10):
                log.append_add_record(number, 1, bytes(300)).wait()
            stream.follow()
            assert len(stream.rows) == 9
            for number in range(10, 200):
                log.append_add_record(number, 1, bytes(300)).wait()
                log.append_delete_record(number).wait()
            for number in range(1, 10):
                log.append_delete_record(number).wait()
            log.compact() if compacted else log.check_and_reclaim_files()
            log.append_add_record(500, 1, b"last").wait()
            with pytest.raises(LogUnreadableError, match="may have been given up"):
                stream.follow()


def test_a_stream_that_may_restart_goes_on_with_what_is_there(tmp_path: Path) -> None:
    with CircularJournal(str(tmp_path), JournalSettings(file_size=4096)) as log:
        stream = Follower(tmp_path)
        log.append_add_record(1, 1, bytes(300)).wait()
        stream.follow()
        for number in range(2, 200):
            log.append_add_record(number, 1, bytes(300)).wait()
            log.append_delete_record(number - 1).wait()
        log.compact()
        with pytest.raises(LogUnreadableError, match="may have been given up"):
            stream.follow()
        stream.options = replace(stream.options, on_rewrite="restart")
        stream.tailer = Tailer(stream.options)
        stream.follow()
        assert {"198", "199"} <= {row["key"] for row in stream.rows}


@pytest.mark.parametrize("name", ["derby", "jboss"])
def test_damage_ends_a_stream_of_changes(tmp_path: Path, name: str) -> None:
    steps, stream = MAKERS[name](tmp_path), Follower(tmp_path)
    write_steps(steps, 1, 60)
    steps.close()
    file = max(tmp_path.glob("*.dat" if name == "derby" else "*.amq"), key=_content)
    data = bytearray(file.read_bytes())
    at = data.index(bytes(40), len(data) // 4)
    data[at - 60 : at + 40] = b"\xa5" * 100
    file.write_bytes(data)
    with pytest.raises((CorruptLogError, LogUnreadableError)):
        stream.follow()


def _content(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0J"))


def test_a_log_of_decisions_is_followed_and_has_no_changes(tmp_path: Path) -> None:
    log = BitronixDecisionLog(str(tmp_path / "btm"))
    log.decide(bytes(40), ["a"]).wait()
    log.close()
    stream = Follower(tmp_path)
    assert stream.follow()
    assert stream.rows == []
