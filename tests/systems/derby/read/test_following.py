"""A step of a stream reads what is new and what its commits began with, and says what all say."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tallystick.errors import CorruptLogError, LogUnreadableError, TallystickError
from tallystick.records import Change, Outcome
from tallystick.storage.crc import crc32
from tallystick.storage.source import ByteSource, open_source
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Page
from tallystick.systems.derby.format.layout import (
    CHECKSUM_RECORD_SIZE,
    Group,
    encode_checksum_body,
    encode_header,
    encode_record,
    make_instant,
)
from tallystick.systems.derby.format.operations import encode_begin, encode_end, encode_operation
from tallystick.systems.derby.format.record_body import encode_body
from tallystick.systems.derby.read import files
from tallystick.systems.derby.read.changes import committed_between
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.protocol import LogSource, ReadOptions
from tests.fuzz.mutate import Mutator
from tests.kit import read_in_runs
from tests.systems.derby.logs import CASES, log_bytes, reading, reading_of
from tests.systems.derby.mixed import MixedLog, written

FILES, GROUPS = 64, 3
LONG = 9999
"""The number of a transaction that is open from the first file to the last."""


def _insert(number: int, version: int) -> bytes:
    place = {"pageId": Page(0, 1168, 1), "pageVersion": version, "recordId": 7}
    fields = place | {"undo": None, "doMeSlot": 0, "insertFlag": 1}
    operation = encode_operation(operations.INSERT, fields)
    return encode_body(Group.RAWSTORE, number, operation, optional=b"\0\6\1\x20\0\4abcd")


def _begin(number: int) -> bytes:
    return encode_body(Group.RAWSTORE | Group.FIRST, number, encode_begin(0, None))


def _commit(number: int) -> bytes:
    group = Group.RAWSTORE | Group.LAST | Group.COMMIT
    return encode_body(group, number, encode_end(operations.STATUS_COMMITTED, None))


def _group(file: int, position: int, bodies: Iterable[bytes]) -> bytes:
    found = b""
    for body in bodies:
        place = position + CHECKSUM_RECORD_SIZE + len(found)
        found += encode_record(make_instant(file, place), body)
    checksum = encode_checksum_body(len(found), crc32(found))
    return encode_record(make_instant(file, position), checksum) + found


def short_transactions(folder: Path, *, long: bool = False) -> DerbyReading:
    """A log of many files, of transactions of four records; one of them goes on in the next group.

    With ``long`` another one writes to each file, and commits at the end.
    """
    end, found, number = 0, {}, 1
    for file in range(1, FILES + 1):
        data = encode_header(file, end)
        for group in range(GROUPS):
            rows = [_insert(number, 1), _commit(number)] if number > 1 else []
            for one in range(number + 1, number + 4):
                rows += [_begin(one), _insert(one, 1), _insert(one, 2), _commit(one)]
            number += 4
            rows += [_begin(number), _insert(number, 1)]
            if long and group == 0:
                rows += [_begin(LONG)] * (file == 1) + [_insert(LONG, file)]
            if long and file == FILES and group == GROUPS - 1:
                rows.append(_commit(LONG))
            data += _group(file, len(data), rows)
        end = make_instant(file, len(data))
        found[f"log{file}.dat"] = data + bytes(4 if file < FILES else 500)
    return reading_of(written(found, folder))


def ends_of(log: DerbyReading) -> list[int]:
    """Where the valid records of a log end, as instants."""
    ranges = (one for one in log.scan.ranges() if one.envelope is not None)
    return [one.place + one.length for one in ranges if one.outcome is Outcome.VALID]


class Opened:
    """Counts the log files that are opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []

        def noted(path: str) -> ByteSource:
            self.names += [Path(path).name] if path.endswith(".dat") else []
            return open_source(path)

        monkeypatch.setattr(files, "open_source", noted)


@pytest.mark.parametrize("long", [False, True])
def test_step_opens_the_files_of_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    whole = short_transactions(tmp_path / "log", long=long)
    ends, opened = ends_of(whole), Opened(monkeypatch)
    count = 0
    first = len(ends) // 2
    for index in range(first, len(ends) - 200, 100):
        opened.names.clear()
        log = DerbyReading(whole.source, ReadOptions())
        count += len(list(log.changes_between(ends[index], ends[index + 100])))
        # A process looks at all files once, for the names of tables.
        assert len(opened.names) <= (5 if index > first else 2 * FILES + 5)
    assert count > 200


def test_step_goes_back_to_the_beginning_of_what_it_commits(tmp_path: Path) -> None:
    log = short_transactions(tmp_path / "log", long=True)
    ends = ends_of(log)
    found = list(log.changes_between(ends[-20], ends[-1]))
    assert len([one for one in found if one.transaction == str(LONG)]) == FILES
    assert found == list(
        committed_between(log.scan, log.source.path, log._names(), ends[-20], ends[-1], ends[-20])
    )


def test_step_whose_commit_has_no_beginning_any_more_raises(tmp_path: Path) -> None:
    ends = ends_of(short_transactions(tmp_path / "log", long=True))
    (tmp_path / "log" / "log1.dat").unlink()
    log = reading_of(tmp_path / "log")
    assert list(log.changes_between(ends[-200], ends[-100]))
    for changes in (
        log.changes_between(ends[-20], ends[-1]),
        committed_between(log.scan, log.source.path, log._names(), ends[-20], ends[-1], ends[-20]),
    ):
        with pytest.raises(LogUnreadableError, match="the beginning of a transaction is gone"):
            list(changes)


def test_damage_before_and_well_after_a_step_does_not_stop_it(tmp_path: Path) -> None:
    whole = short_transactions(tmp_path / "log")
    ends = ends_of(whole)
    after, until = ends[len(ends) // 2], ends[len(ends) // 2 + 50]
    expected = list(whole.changes_between(after, until))
    for number in (3, FILES - 3):
        path = tmp_path / "log" / f"log{number}.dat"
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
    log = reading_of(tmp_path / "log")
    assert list(log.changes_between(after, until)) == expected
    with pytest.raises(CorruptLogError, match="damaged"):
        list(log.changes_between(after, ends[-1]))


def test_damage_right_after_a_step_does_not_stop_it_either(tmp_path: Path) -> None:
    """The stream tells of it, at the look that finds it: `test_data_loss`."""
    whole = short_transactions(tmp_path / "log")
    ends = ends_of(whole)
    path = tmp_path / "log" / f"log{FILES}.dat"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    log = reading_of(tmp_path / "log")
    reached = [end for end in ends if end <= log.scan.believed_until(make_instant(FILES, 24))]
    expected = list(whole.changes_between(reached[-100], reached[-1]))
    assert list(log.changes_between(reached[-100], reached[-1])) == expected


Outcomes = tuple[list[Change], TallystickError | None]


def outcome(changes: Iterator[Change]) -> Outcomes:
    """The changes, and the error after them."""
    found: list[Change] = []
    try:
        found += changes  # what came before an error is kept
    except TallystickError as error:
        return found, error
    return found, None


def same_steps(log: DerbyReading, chance: random.Random, cuts: int) -> int:
    """Check that steps give what a reading of all files gives; return how many need not."""
    ends = ends_of(log)
    differ = 0
    for _ in range(cuts if len(ends) > 1 else 0):
        begin = chance.randrange(len(ends) - 1)
        stop = chance.choice((begin + 1, min(begin + 9, len(ends) - 1), len(ends) - 1))
        after, until = ends[begin], ends[stop]
        all_files = outcome(
            committed_between(log.scan, log.source.path, log._names(), after, until, after)
        )
        fresh = DerbyReading(log.source, log._options)
        step = outcome(chance.choice((fresh, log)).changes_between(after, until))
        if repr(step) != repr(all_files):
            assert isinstance(all_files[1], CorruptLogError)
            place = damage_of(log, all_files[1])
            assert place < after or (place >= until and step == (all_files[0], None))
            differ += 1
    return differ


def damage_of(log: DerbyReading, error: CorruptLogError) -> int:
    """The instant of the damage."""
    (number,) = (one.number for one in log.log.files.values() if one.path == error.file)
    return make_instant(number, error.offset or 0)


@pytest.fixture(params=[0, 1 << 40], ids=["runs", "records"])
def pays_from(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have records read in runs, or one by one."""
    size: int = request.param
    read_in_runs(monkeypatch, always=not size)
    return size


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("pays_from")
def test_steps_of_fixtures_are_those_of_all_files(case: str) -> None:
    assert same_steps(reading(case), random.Random(case), 3) == 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.usefixtures("pays_from")
def test_steps_of_mixed_logs_are_those_of_all_files(tmp_path: Path, seed: int) -> None:
    made = MixedLog(
        seed, 1 + seed, 400, checkpoints=seed % 2 > 0, reboots=seed % 3 == 2, gaps=False
    )
    log = reading_of(written(made.files, tmp_path / "log"))
    assert same_steps(log, random.Random(seed), 6) == 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.usefixtures("pays_from")
def test_steps_of_mutants_are_those_of_all_files(tmp_path: Path, seed: int) -> None:
    small = {"log1.dat": log_bytes("xa-indoubt").rstrip(b"\0") + bytes(600)}
    made = MixedLog(seed, 4, 300, checkpoints=True, reboots=False, gaps=False).files
    pool, chance = [small, made], random.Random(seed)
    mutator = Mutator("derby", pool, lambda data, _: chance.randbytes(len(data)))
    mutant = mutator.mutant(pool[seed % 4 > 0], seed)
    folder = written(mutant, tmp_path / "log")
    paths = tuple(str(folder / name) for name in sorted(mutant))
    same_steps(DerbyReading(LogSource("derby", str(folder), paths), ReadOptions()), chance, 4)
