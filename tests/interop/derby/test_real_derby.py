"""The real Derby boots what we wrote, and we read what it wrote."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import pytest

from tallystick.records import State
from tallystick.systems.derby.format.layout import split_instant
from tallystick.systems.derby.live.log import LogToFile
from tests.interop.derby.real import VERSIONS, derby, heap_of, insert, rows_in_log, rows_of
from tests.interop.derby.regroup import regroup
from tests.systems.derby.logs import reading_of

pytestmark = pytest.mark.interop

WORK = ["create", "insert:1", "insert:2", "update:1", "rolledback:50", "insert:3", "delete:2"]


def forget(database: Path) -> None:
    """A killed process leaves its lock file behind."""
    for lock in database.glob("*.lck"):
        lock.unlink()


def append(database: Path, rows: list[int], *, close: bool) -> None:
    """Continue the log with one transaction for each row; killed or closed at the end."""
    forget(database)
    log = LogToFile(str(database / "log"))
    heap = heap_of(reading_of(database))
    for row in rows:
        number = log.begin()
        heap = insert(log, number, heap, row)
        log.commit(number)
    unfinished = log.begin()
    insert(log, unfinished, heap, 9999)
    if close:
        log.close()
    else:
        log._folder.close()  # the process is gone: nothing more is flushed


@pytest.mark.sampled(3)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("end", ["shutdown", "halt"])
@pytest.mark.parametrize("close", [True, False], ids=["closed", "killed"])
def test_derby_shows_the_rows_that_we_appended(
    tmp_path: Path, end: str, close: bool, version: str
) -> None:
    database, real = tmp_path / "db", partial(derby, version=version)
    before = rows_of(real(database, *WORK, "rows", end)["ROWS"])
    append(database, [100, 101, 102], close=close)
    shown = rows_of(real(database, "rows", "insert:4", "rows", "shutdown")["ROWS"])
    ours = {row: f"ours {row}" for row in (100, 101, 102)}
    assert shown == before | ours | {4: "derby 4"}


@pytest.mark.parametrize("version", VERSIONS)
def test_verdict_on_a_killed_log_is_what_derby_then_recovers(tmp_path: Path, version: str) -> None:
    database, real = tmp_path / "db", partial(derby, version=version)
    real(database, *WORK, "prepared:70", "open:60", "prepared:71", "insert:5", "halt")
    reading = reading_of(database)
    expected = rows_in_log(database)
    in_doubt = set(reading.verdict().strict["in_doubt"])
    losers = {one.number for one in reading.recovery.undo}
    states = [one.state for one in reading.transactions()]
    assert states.count(State.PREPARED) == 2
    assert len(losers) == 1
    found = real(database, "rows", "recover", "halt")
    assert rows_of(found["ROWS"]) == expected | {70: "in doubt", 71: "in doubt"}
    assert set(found["RECOVER"].split("|")) == in_doubt
    after = reading_of(database)
    assert set(after.verdict().strict["in_doubt"]) == in_doubt
    ended = {one.transaction for one in after.transactions() if one.state is State.ROLLED_BACK}
    assert losers <= ended


@pytest.mark.parametrize("version", VERSIONS)
def test_derby_accepts_our_commit_of_its_branch_in_doubt(tmp_path: Path, version: str) -> None:
    database = tmp_path / "db"
    derby(database, *WORK, "prepared:70", "halt", version=version)
    forget(database)
    with LogToFile(str(database / "log")) as log:
        (branch,) = (one for one in log.open_transactions.values() if one.prepared)
        log.commit(branch.number)
    found = derby(database, "recover", "rows", "halt", version=version)
    assert found["RECOVER"] == ""
    assert rows_of(found["ROWS"])[70] == "in doubt"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("per_group", [1, 3, 7, 0])
def test_derby_boots_its_log_regrouped_by_us(tmp_path: Path, per_group: int, version: str) -> None:
    database, real = tmp_path / "db", partial(derby, version=version)
    real(database, *WORK, "checkpoint", "insert:6", "rolledback:51", "open:61", "insert:7", "halt")
    expected = rows_in_log(database)
    regroup(database, per_group)
    assert rows_in_log(database) == expected
    assert reading_of(database).recovery.boots is True
    found = real(database, "rows", "insert:8", "rows", "shutdown")
    assert rows_of(found["ROWS"]) == expected | {8: "derby 8"}


@pytest.mark.parametrize("version", VERSIONS)
def test_alternating_rounds(tmp_path: Path, version: str) -> None:
    chance = random.Random(20)
    database, real = tmp_path / "db", partial(derby, version=version)
    real(database, *WORK, "halt")
    expected = rows_in_log(database)
    for turn in range(6):
        new = 200 + 10 * turn
        append(database, [new, new + 1], close=chance.random() < 0.5)
        victim = chance.choice(sorted(expected))
        steps = [f"insert:{new + 2}", f"delete:{victim}", f"rolledback:{new + 3}", "rows"]
        end = chance.choice(["halt", "shutdown"])
        shown = rows_of(real(database, *steps, end)["ROWS"])
        expected |= {new: f"ours {new}", new + 1: f"ours {new + 1}", new + 2: f"derby {new + 2}"}
        del expected[victim]
        assert shown == expected, f"round {turn}"
        assert rows_in_log(database) == expected, f"round {turn}"


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_trials_on_a_killed_log(tmp_path: Path, version: str) -> None:
    seed = 7
    chance = random.Random(seed)
    origin = tmp_path / "db"
    inserts = [f"insert:{row}" for row in range(10, 40)]
    derby(origin, *WORK, "checkpoint", *inserts, "halt", version=version)
    forget(origin)
    content = (origin / "log/log1.dat").read_bytes()
    recovery = reading_of(origin).recovery
    begin, end = split_instant(recovery.undo_mark)[1], split_instant(recovery.log_end)[1]
    trials: dict[str, Path] = {}
    for index in range(25):
        place = tmp_path / f"trial-{index:02}"
        shutil.copytree(origin, place)
        damaged = bytearray(content)
        at = chance.randrange(begin, end)
        if index % 5 == 4:
            del damaged[at:]
        else:
            damaged[at] ^= 1 << chance.randrange(8)
        (place / "log/log1.dat").write_bytes(damaged)
        trials[str(place)] = place
    ours = {name: (reading_of(place).recovery.boots, place) for name, place in trials.items()}
    rows = {name: rows_in_log(place) for name, (boots, place) in ours.items() if boots}
    real = derby("boot-each", *trials, version=version)
    for name in trials:
        booted = not real[name].startswith("NOBOOT")
        assert ours[name][0] is booted, f"seed {seed}, {name}: {real[name]}"
        if booted:
            assert rows_of(real[name]) == rows[name], f"seed {seed}, {name}"


@pytest.mark.parametrize(
    "build",
    [
        ["create index i on n(v)"],
        ["alter table n alter column id not null", "alter table n add primary key(id)"],
        ["create index i on n(v)", "call SYSCS_UTIL.SYSCS_COMPRESS_TABLE('APP','N',0)"],
    ],
    ids=["index", "primary-key", "compress"],
)
def test_index_built_without_log_records_is_no_damage(tmp_path: Path, build: list[str]) -> None:
    database = tmp_path / "db"
    inserts = [f"insert:{row}" for row in range(50)]
    derby(database, "create", *inserts, *(f"sql:{one}" for one in build), "insert:99", "halt")
    reading = reading_of(database)
    verdict = reading.verdict()
    assert reading.recovery.gaps
    assert reading.recovery.boots is True
    assert set(verdict.strict["findings"]) == {"unlogged-build"}
    assert verdict.differences == ()
    expected = rows_in_log(database) if "compress" not in " ".join(build).lower() else None
    forget(database)
    LogToFile(str(database / "log")).close()
    shown = rows_of(derby(database, "rows", "shutdown")["ROWS"])
    assert shown == {row: f"derby {row}" for row in (*range(50), 99)}
    assert expected is None or shown == expected


def test_derby_reads_the_record_that_ends_at_the_oldest_begin(tmp_path: Path) -> None:
    database = tmp_path / "db"
    derby(database, "create", "insert:1", "open:60", "insert:2", "halt")
    forget(database)
    path = database / "log/log1.dat"
    content = bytearray(path.read_bytes())
    oldest = min(one.first for one in reading_of(database).recovery.undo)
    content[split_instant(oldest)[1] - 1] += 1
    path.write_bytes(content)
    reading = reading_of(database)
    assert reading.recovery.boots is False
    (answer,) = derby("boot-each", str(database)).values()
    assert answer.startswith("NOBOOT")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("begun", [False, True])
def test_a_dropped_commit_is_no_loss_where_a_checkpoint_has_written_its_changes(
    tmp_path: Path, version: str, begun: bool
) -> None:
    """The log ends before the last checkpoint; what began before its end is taken back."""
    database = tmp_path / "db"
    # Of the group in which the oldest begin is no checksum is read.
    inserts = ["insert:2", "insert:3"]
    steps = ["open:61", *inserts] if begun else [*inserts, "open:61"]
    rest = ["checkpoint", "commit", "halt"]
    derby(database, "create", "insert:1", "open:60", *steps, *rest, version=version)
    forget(database)
    path = database / "log/log1.dat"
    content = bytearray(path.read_bytes())
    content[content.rindex(b"derby 3")] ^= 1
    path.write_bytes(content)
    reading = reading_of(database)
    assert reading.recovery.log_end < reading.recovery.redo_mark
    found = reading.judgement
    shown = rows_of(derby("boot-each", str(database), version=version)[str(database)])
    assert (61 not in shown) is begun
    assert shown.keys() - {61} == {1, 2, 3}
    assert (found.reason == "commits-dropped") is begun
