"""The originals and we in turns over the same log, for many rounds of random work.

Every turn ends in order or by a kill at any point, theirs and ours alike. After each turn the next
owner must find everything that was answered for, and nothing that was never asked for. The
short versions run with the interop tests, the long ones with the soak tests.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tallystick.systems.bitronix.format.layout import COMMITTED, COMMITTING, MEGABYTE
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.jboss.format.bodies import object_state
from tallystick.systems.jboss.live.log import CircularJournal, JournalSettings
from tallystick.testing import Reporter, run_and_kill
from tests.interop.bitronix.original import on_each_line, original
from tests.interop.bitronix.test_interop import LONG_NAMES, gtrid
from tests.interop.derby.real import derby, rows_in_log, rows_of
from tests.interop.derby.test_real_derby import WORK, append
from tests.interop.h2.test_h2 import SESSION, Ours, Rows, _classpath, _predicted, h2
from tests.interop.h2.test_recovered_pages import rows_of_h2
from tests.interop.java import run_java
from tests.interop.jboss.original import real_journal
from tests.interop.jboss.test_interop import FILE_SIZE, Work, ours, play_ours, theirs
from tests.interop.jboss.test_narayana import SETTINGS as NARAYANA
from tests.interop.jboss.test_narayana import live_objects, states, store


def rounds(short: int, long: int) -> pytest.MarkDecorator:
    values = [
        pytest.param(short, id="short", marks=pytest.mark.interop),
        pytest.param(long, id="long", marks=pytest.mark.soak),
    ]
    return pytest.mark.parametrize("rounds", values)


# -- Bitronix --------------------------------------------------------------------------------


@dataclass
class Decisions:
    """What a journal must and may hold: numbers of open decisions."""

    sure: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    next: int = 0

    def check(self, found: set[int], at: str) -> None:
        assert self.sure <= found <= self.asked, at
        self.sure, self.asked = set(found), set(found)

    def numbers(self, count: int) -> Iterator[int]:
        for _ in range(count):
            self.next += 1
            self.asked.add(self.next)
            yield self.next

    def oldest(self, kept: int) -> list[int]:
        """Decisions that are to be closed: from now on they may be there or not."""
        gone = sorted(self.sure)[: max(0, len(self.sure) - kept)]
        self.sure.difference_update(gone)
        return gone


def _numbers(keys: set[bytes]) -> set[int]:
    return {int.from_bytes(key[-4:], "big") for key in keys}


def _their_turn(folder: Path, line: str, model: Decisions, rng: random.Random, at: str) -> None:
    with original(folder, line) as real:
        real.open()
        model.check(_numbers(set(real.dangling())), at)
        end = rng.choice(["close", "halt", "kill"])
        killer = threading.Timer(rng.uniform(0.01, 0.4), real._process.kill)
        if end == "kill":
            killer.start()
        with contextlib.suppress(AssertionError, OSError) if end == "kill" else _nothing():
            for number in model.numbers(4000 if end == "kill" else rng.randrange(400)):
                real.log(COMMITTING, gtrid(number), LONG_NAMES[:2])
                real.force()
                model.sure.add(number)
                for old in model.oldest(20):
                    real.log(COMMITTED, gtrid(old), LONG_NAMES[:2])
            getattr(real, end)() if end != "kill" else killer.join()


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


def _our_turn(folder: Path, model: Decisions, rng: random.Random, at: str) -> None:
    with DiskJournal(str(folder), max_log_size=MEGABYTE) as journal:
        model.check(_numbers(set(journal.collect_dangling_records())), at)
    first = model.next

    def work(reporter: Reporter) -> None:
        own = Decisions(set(model.sure), set(model.asked), first)
        journal = DiskJournal(str(folder), max_log_size=MEGABYTE)
        for number in own.numbers(5000):
            reporter.submitted([number, 1])
            journal.log_forced(COMMITTING, gtrid(number), LONG_NAMES[:2]).wait()
            own.sure.add(number)
            reporter.acknowledged([number, 1])
            for old in own.oldest(20):
                reporter.submitted([old, 0])
                journal.log(COMMITTED, gtrid(old), LONG_NAMES[:2])

    killed = run_and_kill(work, after=rng.randrange(1, 1500), seconds=rng.uniform(0, 0.002))
    asked = [(int(number), made) for number, made in map(tuple, map(_pair, killed.submitted))]
    model.asked |= {number for number, made in asked if made}
    model.sure |= {_pair(one)[0] for one in killed.acknowledged}
    model.sure -= {number for number, made in asked if not made}
    model.next = max(model.asked, default=model.next)


def _pair(item: object) -> tuple[int, int]:
    assert isinstance(item, tuple)
    return int(item[0]), int(item[1])


@rounds(4, 40)
@on_each_line
def test_bitronix(tmp_path: Path, line: str, rounds: int) -> None:
    model, rng = Decisions(), random.Random(rounds)
    for number in range(rounds):
        _their_turn(tmp_path, line, model, rng, f"round {number}, theirs")
        _our_turn(tmp_path, model, rng, f"round {number}, ours")
    with DiskJournal(str(tmp_path)) as journal:
        model.check(_numbers(set(journal.collect_dangling_records())), "at the end")


# -- Artemis and HornetQ ---------------------------------------------------------------------


def _script(work: Work, count: int) -> tuple[list[str], list[set[int]]]:
    """Lines, and the ids that are live before each of them and after the last."""
    lines: list[str] = []
    live = [_live(work)]
    for _ in range(count):
        lines.append(work.line())
        live.append(_live(work))
    return lines, live


def _live(work: Work) -> set[int]:
    return set(work.live).union(*(deleted for _, deleted in work.open.values()))


def _resume(work: Work, found: set[int]) -> None:
    work.open.clear()
    work.live = sorted(found)


def _play_and_kill(name: str, folder: Path, lines: list[str], after: int) -> tuple[int, int]:
    """Let the original do some lines and kill it after one that it has not confirmed."""
    with real_journal(name, folder, file_size=FILE_SIZE) as real:
        real.load()
        for line in lines[:after]:
            real.tell(line)
        assert real.process.stdin is not None
        real.process.stdin.write("".join(line + "\n" for line in lines[after : after + 3]))
        real.process.stdin.flush()
        real.kill()
    return after, min(after + 3, len(lines))


def _play_and_die(
    folder: Path, lines: list[str], after: int, rng: random.Random
) -> tuple[int, int]:
    def work(reporter: Reporter) -> None:
        journal = CircularJournal(str(folder), JournalSettings(file_size=FILE_SIZE))
        for number, line in enumerate(lines, 1):
            reporter.submitted(number)
            play_ours(journal, [line])
            reporter.acknowledged(number)

    killed = run_and_kill(work, after=after, seconds=rng.uniform(0, 0.002))
    return len(killed.acknowledged), len(killed.submitted)


@rounds(4, 40)
@pytest.mark.parametrize("name", ["artemis", "hornetq"])
def test_journals(name: str, tmp_path: Path, rounds: int) -> None:
    work, rng = Work(rounds), random.Random(rounds)
    for number in range(rounds):
        lines, live = _script(work, rng.randrange(20, 250))
        after = rng.randrange(1, len(lines))
        if number % 2:
            least, most = _play_and_die(tmp_path, lines, after, rng)
        else:
            least, most = _play_and_kill(name, tmp_path, lines, after)
        found = {one[0] for one in ours(tmp_path).live}
        assert found in live[least : most + 1], f"round {number}"
        assert theirs(name, tmp_path).live == ours(tmp_path).live, f"round {number}"
        _resume(work, found)


# -- Narayana --------------------------------------------------------------------------------


@rounds(2, 12)
def test_narayana(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    expected: set[str] = set()
    for number in range(rounds):
        listed = states(run_java("Store", "write", tmp_path, 20, classpath=store()))
        assert expected <= set(listed), f"round {number}"
        assert set(live_objects(tmp_path)) == set(listed), f"round {number}"
        with CircularJournal(str(tmp_path), NARAYANA) as journal:
            live, _ = journal.contents()
            for record_id in rng.sample(sorted(live), len(live) // 2):
                state = object_state(live[record_id][-1].body or b"")
                journal.append_delete_record(record_id).wait()
                if state is not None:
                    del listed[state.uid_text]
        expected = set(listed)
        assert set(states(run_java("Store", "list", tmp_path, classpath=store()))) == expected


# -- H2 --------------------------------------------------------------------------------------


def _put_and_die(path: Path, rows: Rows, rng: random.Random) -> Rows:
    """Our commits until we are killed; returns the rows that must be there then, or fails."""
    changes = [(rng.randrange(2700), f"ours {rng.random()}") for _ in range(400)]
    table = Ours(path, carry=True)
    table.die()

    def work(reporter: Reporter) -> None:
        own, mine = dict(rows), Ours(path, carry=True)
        for at, (number, text) in enumerate(changes):
            reporter.submitted(at)
            if number in own:
                mine.log.log_add_or_remove_row(SESSION, mine.table, number, None)
            mine.log.log_add_or_remove_row(SESSION, mine.table, number, encode_row([number, text]))
            mine.log.commit(SESSION).wait()
            own[number] = text
            reporter.acknowledged(at)

    killed = run_and_kill(work, after=rng.randrange(200), seconds=rng.uniform(0, 0.002))
    found = _predicted(path)
    possible = []
    for count in range(len(killed.acknowledged), len(killed.submitted) + 1):
        possible.append(rows | dict(changes[:count]))
    assert found in possible
    return found


@rounds(2, 20)
@pytest.mark.parametrize("page_size", [512, 4096])
def test_h2(tmp_path: Path, rounds: int, page_size: int) -> None:
    path, rng = tmp_path / "db.h2.db", random.Random(rounds)
    h2("create", path, page_size)
    for number in range(rounds):
        run_java(
            "KilledH2", path, rng.randrange(1 << 30), rng.randrange(300), classpath=_classpath()
        )
        rows = _put_and_die(path, _predicted(path), rng)
        assert rows_of_h2(path) == rows, f"round {number}"


# -- Derby -----------------------------------------------------------------------------------


@rounds(2, 25)
def test_derby(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    database = tmp_path / "db"
    derby(database, *WORK, "halt")
    expected = rows_in_log(database)
    for number in range(rounds):
        mine = [10_000 + 100 * number + one for one in range(rng.randrange(1, 20))]
        append(database, mine, close=rng.random() < 0.3)
        theirs_first = mine[0] + 50
        victim = rng.choice(sorted(expected))
        steps = [f"insert:{theirs_first + one}" for one in range(rng.randrange(1, 10))]
        expected |= {row: f"ours {row}" for row in mine}
        expected |= {int(step[7:]): f"derby {step[7:]}" for step in steps}
        del expected[victim]
        steps += [f"delete:{victim}", f"rolledback:{theirs_first + 40}", "rows"]
        if rng.random() < 0.3:
            steps.insert(0, "checkpoint")
        shown = rows_of(derby(database, *steps, rng.choice(["halt", "shutdown"]))["ROWS"])
        assert shown == expected, f"round {number}"
        assert rows_in_log(database) == expected, f"round {number}"
