"""The live journal: what it leaves on disk, what it survives, and the defects it avoids."""

from __future__ import annotations

import fcntl
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tallystick.errors import (
    CorruptLogError,
    LogClosedError,
    LogFormatError,
    LogFullError,
    LogLockedError,
    RecordTooLargeError,
    TallystickError,
)
from tallystick.reading.survey import survey
from tallystick.records import Severity
from tallystick.storage.local import LocalFileSystem
from tallystick.systems.bitronix.format.layout import (
    ACTIVE,
    COMMITTED,
    COMMITTING,
    HEADER_LENGTH,
    MEGABYTE,
    PREPARED,
    ROLLEDBACK,
    UNKNOWN,
    FileHeader,
)
from tallystick.systems.bitronix.live import log as live
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.bitronix.live.sharded import ShardedJournal, open_journal
from tallystick.systems.bitronix.reader import BitronixReading, merge_records
from tallystick.testing import (
    Fault,
    FaultyFileSystem,
    RecordingFileSystem,
)
from tests.services.test_finalizers import Nesting
from tests.systems.bitronix.logs import (
    NAMES,
    SMALL,
    file_bytes,
    gtrid,
    number_of,
    open_numbers,
    reading_of,
    record,
)


def headers(folder: Path) -> list[FileHeader]:
    found = [FileHeader.decode((folder / f"btm{n}.tlog").read_bytes()) for n in (1, 2)]
    return [one for one in found if one is not None]


# -- what is on disk -----------------------------------------------------------------------------


def test_files_are_made_in_full_and_part_1_is_in_use(tmp_path: Path) -> None:
    with DiskJournal(str(tmp_path / "new" / "folder"), max_log_size=MEGABYTE) as journal:
        assert Path(journal.active.path).name == "btm1.tlog"
    one, two = headers(tmp_path / "new" / "folder")
    assert one.timestamp > two.timestamp
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "new" / "folder").iterdir()}
    assert sizes == {"btm1.tlog": 21 + MEGABYTE, "btm2.tlog": 21 + MEGABYTE}


def test_state_is_unclean_while_open_and_clean_after(tmp_path: Path) -> None:
    with DiskJournal(str(tmp_path)):
        assert [one.state for one in headers(tmp_path)] == [-1, 0]
    assert [one.state for one in headers(tmp_path)] == [0, 0]


def test_a_written_journal_is_read_without_findings(tmp_path: Path) -> None:
    with DiskJournal(str(tmp_path), max_log_size=SMALL) as journal:
        for number in range(60):
            journal.log(ACTIVE, gtrid(number), ())
            journal.log_forced(COMMITTING, gtrid(number), NAMES).wait()
            if number % 30:
                journal.log(COMMITTED, gtrid(number), NAMES)
    reading = reading_of(tmp_path)
    verdict = reading.verdict()
    assert not [one for one in reading.findings() if one.severity is not Severity.INFO]
    assert verdict.differences == ()
    assert verdict.engine["2.1.4"]["open"]["dangling"] == verdict.strict["dangling"]
    assert {one["gtridSequence"] for one in verdict.strict["dangling"]} == {0, 30}


def test_records_of_one_run_are_in_one_order(tmp_path: Path) -> None:
    for first in (0, 100):
        with DiskJournal(str(tmp_path)) as journal:
            for number in range(first, first + 10):
                journal.log(PREPARED, gtrid(number), NAMES)
    with DiskJournal(str(tmp_path)) as journal:
        found = list(journal.unsafe_read_records())
    stamps = [(one.time, one.sequence_number) for one in found]
    assert stamps == sorted(set(stamps))
    assert len(found) == 20


def test_only_forced_records_cost_a_sync() -> None:
    fs = FaultyFileSystem(RecordingFileSystem(), Fault(9999, calls={"datasync"}))
    journal = DiskJournal("/log", fs=fs)
    before = _syncs(fs)
    for number in range(20):
        journal.log(ACTIVE, gtrid(number), ())
        journal.log_forced(COMMITTING, gtrid(number), NAMES).wait()
        journal.log(COMMITTED, gtrid(number), NAMES)
    assert _syncs(fs) - before == 20


def test_forced_write_disabled_syncs_only_at_both_ends() -> None:
    fs = FaultyFileSystem(RecordingFileSystem(), Fault(9999, calls={"datasync"}))
    journal = DiskJournal("/log", fs=fs, forced_write_enabled=False)
    before = _syncs(fs)
    for number in range(20):
        journal.log_forced(COMMITTING, gtrid(number), NAMES).wait()
    journal.force()
    assert _syncs(fs) == before


def test_without_batching_every_forced_record_has_its_sync() -> None:
    fs = FaultyFileSystem(RecordingFileSystem(), Fault(9999, calls={"datasync"}))
    journal = DiskJournal("/log", fs=fs, force_batching_enabled=False)
    before = _syncs(fs)
    tickets = [journal.log_forced(COMMITTING, gtrid(number), NAMES) for number in range(5)]
    assert all(one.done() for one in tickets)
    assert _syncs(fs) - before == 5


@pytest.mark.timeout(30)
def test_a_forced_record_of_a_finalizer_waits_for_no_lock_of_its_own_thread() -> None:
    fs = Nesting()
    with DiskJournal("/log", fs=fs, force_batching_enabled=False) as journal:
        outer, inner = (partial(journal.log_forced, COMMITTING, gtrid(n), NAMES) for n in (1, 2))
        fs.nest(outer, inner)
    with DiskJournal("/log", fs=fs) as journal:
        assert open_numbers(journal) == {1, 2}


def _syncs(fs: FaultyFileSystem) -> int:
    return fs._calls


def test_status_filter_keeps_what_decides_and_what_closes(tmp_path: Path) -> None:
    with DiskJournal(str(tmp_path), filter_log_status=True) as journal:
        for status in (ACTIVE, PREPARED, ROLLEDBACK, COMMITTING, ROLLEDBACK, UNKNOWN):
            journal.log(status, gtrid(1), NAMES)
        found = [one.status for one in journal.unsafe_read_records()]
        assert found == [COMMITTING, ROLLEDBACK, UNKNOWN]
        assert open_numbers(journal) == set()


# -- swapping ------------------------------------------------------------------------------------


def test_a_swap_carries_open_decisions_and_gives_a_real_timestamp(tmp_path: Path) -> None:
    with DiskJournal(str(tmp_path), max_log_size=SMALL) as journal:
        journal.log_forced(COMMITTING, gtrid(1000), NAMES).wait()
        journal.log(COMMITTED, gtrid(1000), NAMES[:1])
        used = [journal.active.path]
        for number in range(100):
            journal.log(PREPARED, gtrid(number), NAMES)
            journal.force()
            if journal.active.path != used[-1]:
                used.append(journal.active.path)
                one, two = headers(tmp_path)
                later = one if journal.active.path.endswith("1.tlog") else two
                assert later.timestamp == max(one.timestamp, two.timestamp) > SMALL + 21
        assert len(used) > 3
        assert open_numbers(journal) == {1000}
    assert reading_of(tmp_path).verdict().strict["dangling"][0]["uniqueNames"] == ["jms/b"]


def test_a_swap_and_an_opening_keep_a_decision_after_an_outcome_of_the_same_gtrid(
    tmp_path: Path,
) -> None:
    with DiskJournal(str(tmp_path), max_log_size=SMALL) as journal:
        journal.log_forced(UNKNOWN, gtrid(1000), NAMES[:1]).wait()
        journal.log_forced(COMMITTING, gtrid(1000), NAMES).wait()
    for _ in range(2):
        with DiskJournal(str(tmp_path), max_log_size=SMALL) as journal:
            used = journal.active.path
            while journal.active.path == used:
                journal.log_forced(PREPARED, gtrid(1), NAMES).wait()
            assert dict(journal.collect_dangling_records())[gtrid(1000)].unique_names == NAMES
            assert list(journal.heuristic_records()) == [gtrid(1000)]


def test_open_decisions_that_fill_the_journal_refuse_and_can_be_closed(tmp_path: Path) -> None:
    with DiskJournal(str(tmp_path), max_log_size=SMALL) as journal:
        numbers = itertools.count()
        with pytest.raises(LogFullError, match="open decisions leave no space"):
            while True:
                journal.log_forced(COMMITTING, gtrid(next(numbers)), NAMES).wait()
        known = open_numbers(journal)
        assert len(known) > 10
        for number in sorted(known):
            journal.log(COMMITTED, gtrid(number), NAMES[:1])
        journal.force()
        assert open_numbers(journal) == known
        for number in sorted(known):
            journal.log(COMMITTED, gtrid(number), NAMES)
        journal.log_forced(COMMITTING, gtrid(5000), NAMES).wait()
        assert open_numbers(journal) == {5000}


def test_records_that_cannot_be_read_back_are_refused(tmp_path: Path) -> None:
    with DiskJournal(str(tmp_path), max_log_size=SMALL) as journal:
        for key, names in ((bytes(128), []), (b"x", ["\u00fc"]), (b"x", ["n" * SMALL])):
            with pytest.raises(RecordTooLargeError):
                journal.log(COMMITTING, key, names)
        journal.log_forced(COMMITTING, gtrid(1), NAMES).wait()
        assert open_numbers(journal) == {1}


def test_migration_copies_decisions_and_takes_nothing(tmp_path: Path) -> None:
    with (
        DiskJournal(str(tmp_path / "a")) as source,
        DiskJournal(str(tmp_path / "b")) as target,
    ):
        source.log_forced(COMMITTING, gtrid(1), NAMES).wait()
        source.migrate_to(target)
        with pytest.raises(ValueError, match="itself"):
            source.migrate_to(source)
        assert open_numbers(source) == open_numbers(target) == {1}


# -- opening what is there -----------------------------------------------------------------------


def _write(folder: Path, one: bytes | None, two: bytes | None) -> None:
    for number, content in ((1, one), (2, two)):
        if content is not None:
            (folder / f"btm{number}.tlog").write_bytes(content)


def test_a_stale_timestamp_is_put_right(tmp_path: Path) -> None:
    """What 2.1.4 leaves after its first change of files, and then opens wrongly itself."""
    old = [record(COMMITTING, 1, "a"), *(record(0, n, gtrid=gtrid(n)) for n in range(2, 9))]
    new = [old[0], record(COMMITTING, 9, "b", gtrid=gtrid(9))]
    _write(tmp_path, file_bytes(old, 50_000), file_bytes(new, HEADER_LENGTH + old[0].size))
    with DiskJournal(str(tmp_path)) as journal:
        assert len(journal.collect_dangling_records()) == 2
    reading = reading_of(tmp_path)
    assert [one.code for one in reading.findings()] == []
    assert len(reading.verdict().engine["2.1.4"]["open"]["dangling"]) == 2


def test_decisions_dropped_at_a_swap_are_found_again(tmp_path: Path) -> None:
    old = [record(COMMITTING, n, "a", gtrid=gtrid(n)) for n in (1, 2)]
    new = [old[0], record(COMMITTING, 9, "b", gtrid=gtrid(9))]
    _write(tmp_path, file_bytes(old, 50_000), file_bytes(new, 60_000))
    for _ in range(2):
        with DiskJournal(str(tmp_path)) as journal:
            assert open_numbers(journal) == {1, 2, 9}
    assert len(reading_of(tmp_path).verdict().engine["2.1.4"]["open"]["dangling"]) == 3


def test_a_torn_tail_is_cut(tmp_path: Path) -> None:
    records = [record(COMMITTING, n, "a", gtrid=gtrid(n)) for n in (1, 2, 3)]
    whole = file_bytes(records, 9_000)
    torn = bytearray(whole)
    place = HEADER_LENGTH + 2 * records[0].size
    torn[place + 20 : place + records[2].size] = bytes(records[2].size - 20)
    _write(tmp_path, bytes(torn), file_bytes([], 8_000))
    with DiskJournal(str(tmp_path)) as journal:
        assert open_numbers(journal) == {1, 2}
        journal.log_forced(COMMITTING, gtrid(4), NAMES).wait()
    assert [one.code for one in reading_of(tmp_path).findings()] == []


@pytest.mark.parametrize("place", [30, 100, 130], ids=["first", "second", "third"])
def test_damage_to_what_was_acknowledged_refuses(tmp_path: Path, place: int) -> None:
    content = bytearray(file_bytes([record(8, n, "a", gtrid=gtrid(n)) for n in (1, 2, 3)], 9_000))
    content[place] ^= 1
    _write(tmp_path, bytes(content), file_bytes([], 8_000))
    with pytest.raises(CorruptLogError, match="skip_corrupted"):
        DiskJournal(str(tmp_path))
    with DiskJournal(str(tmp_path), skip_corrupted_logs=True) as journal:
        assert len(open_numbers(journal)) == 2
    with DiskJournal(str(tmp_path)) as journal:
        assert len(open_numbers(journal)) == 2


@pytest.mark.parametrize(
    ("one", "two", "error"),
    [
        (file_bytes([], 9_000), None, CorruptLogError),
        (None, file_bytes([], 9_000), CorruptLogError),
        (file_bytes([], 9_000), file_bytes([], 8_000, size=5000), CorruptLogError),
        (b"", b"", LogFormatError),
        (file_bytes([], 9_000), bytes(20), LogFormatError),
    ],
    ids=["no second", "no first", "lengths", "empty", "short"],
)
def test_half_a_journal_refuses(
    tmp_path: Path, one: bytes | None, two: bytes | None, error: type[TallystickError]
) -> None:
    _write(tmp_path, one, two)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(error):
        DiskJournal(str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("size", [None, 5000], ids=["missing", "longer"])
def test_skipping_opens_half_a_journal(tmp_path: Path, size: int | None) -> None:
    two = None if size is None else file_bytes([], 8_000, size=size)
    _write(tmp_path, file_bytes([record(8, 1, "a")], 9_000), two)
    with DiskJournal(str(tmp_path), skip_corrupted_logs=True) as journal:
        assert open_numbers(journal) == {1}
    with DiskJournal(str(tmp_path)) as journal:
        assert open_numbers(journal) == {1}


@pytest.mark.parametrize("name", ["btm1.tlog", "btm2.tlog"])
def test_a_lock_of_the_originals_kind_refuses(tmp_path: Path, name: str) -> None:
    """In a child process, since such locks do not exclude their own process."""
    DiskJournal(str(tmp_path)).close()
    import os

    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with (tmp_path / name).open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 4, 0)
            os.write(ready[1], b"x")
            os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        with pytest.raises(LogLockedError):
            DiskJournal(str(tmp_path))
    finally:
        os.write(go[1], b"x")
        os.waitpid(child, 0)
    DiskJournal(str(tmp_path)).close()


class _Overtaken(LocalFileSystem):
    """A file system whose owner finds no file, and whom another owner then overtakes."""

    def __init__(self, other: Callable[[], object], call: str) -> None:
        super().__init__()
        self.other, self.call = other, call

    def mkdir(self, path: str) -> None:
        self._meet("mkdir")
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._meet("rename")
        super().rename(source, target)

    def _meet(self, call: str) -> None:
        if call == self.call:
            self.call = ""
            self.other()


def test_owner_that_found_no_files_replaces_none_of_another_owner(tmp_path: Path) -> None:
    first: list[DiskJournal] = []

    def overtake() -> None:
        first.append(DiskJournal(str(tmp_path / "journal")))
        first[0].log_forced(COMMITTING, b"gtrid", ["a"]).wait()

    with pytest.raises(LogLockedError):
        DiskJournal(str(tmp_path / "journal"), fs=_Overtaken(overtake, "mkdir"))
    first[0].log_forced(COMMITTING, b"later", ["a"]).wait()
    first[0].close()
    with DiskJournal(str(tmp_path / "journal")) as journal:
        assert journal.collect_dangling_records().keys() == {b"gtrid", b"later"}


def test_journal_that_is_being_made_is_made_by_one_owner(tmp_path: Path) -> None:
    def second() -> None:
        with pytest.raises(LogLockedError):
            DiskJournal(str(tmp_path))

    fs = _Overtaken(second, "rename")
    with DiskJournal(str(tmp_path), fs=fs) as journal:
        assert not fs.call, "both have met"
        journal.log_forced(COMMITTING, b"gtrid", ["a"]).wait()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["btm1.tlog", "btm2.tlog"]


def test_a_journal_of_the_boot_clock_goes_on_in_it(tmp_path: Path) -> None:
    _write(tmp_path, file_bytes([record(0, 1)], 9_000), file_bytes([], 8_000))
    with DiskJournal(str(tmp_path)) as journal:
        journal.log(PREPARED, gtrid(1), NAMES)
        times = [one.time for one in journal.unsafe_read_records()]
    assert max(times) < live.milliseconds(False) // 2


def test_a_closed_journal_refuses(tmp_path: Path) -> None:
    journal = DiskJournal(str(tmp_path))
    journal.close()
    journal.close()
    for call in (
        lambda: journal.log(ACTIVE, gtrid(1), ()),
        journal.force,
        lambda: journal.log_forced(COMMITTING, gtrid(1), NAMES),
    ):
        with pytest.raises(LogClosedError):
            call()


# -- several pairs -------------------------------------------------------------------------------


def test_several_pairs_merge_by_time_and_number(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path), pairs=3, max_log_size=8_192)
    assert isinstance(journal, ShardedJournal)
    for number in range(60):
        journal.log(COMMITTING, gtrid(number), NAMES)
        if number % 2:
            journal.log(COMMITTED, gtrid(number), NAMES)
    merged = [(one.time, one.sequence_number) for one in journal.unsafe_read_records()]
    assert merged == sorted(merged)
    assert len(merged) == 90
    assert all(one.active.position > HEADER_LENGTH for one in journal.journals)
    journal.close()
    journal = open_journal(str(tmp_path), pairs=3)
    assert {number_of(one) for one in journal.collect_dangling_records()} == set(range(0, 60, 2))
    journal.close()


def test_several_pairs_are_read_in_one_order(tmp_path: Path) -> None:
    """Also where pairs have changed files, and copied what was open."""
    journal = open_journal(str(tmp_path), pairs=3, max_log_size=2_048)
    for number in range(120):
        journal.log(COMMITTING, gtrid(number), NAMES)
        if number % 10:
            journal.log(COMMITTED, gtrid(number), NAMES)
    journal.close()
    found = survey(str(tmp_path))
    readings = [found.read(one) for one in found.logs]
    alone = [record for reading in readings for record in reading.records()]
    assert all(isinstance(reading, BitronixReading) for reading in readings)
    records = list(merge_records(one for one in readings if isinstance(one, BitronixReading)))
    assert len(records) == len(alone) > 0
    places = [(one.time, one.sequence, one.attributes["pair"]) for one in records]
    assert places == sorted(places)
    assert {pair for _, _, pair in places} == {0, 1, 2}


def test_several_pairs_are_found_as_so_many_journals(tmp_path: Path) -> None:
    from tallystick.reading.discovery import discover

    open_journal(str(tmp_path), pairs=3, max_log_size=8_192).close()
    found = discover(tmp_path)
    assert [len(log.files) for log in found.logs] == [2, 2, 2]
    assert len({log.name for log in found.logs}) == 3
