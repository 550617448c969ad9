"""Many plain records at once: their groups, what waits for the disk, and the segment to come."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import RecordTooLargeError
from tallystick.storage.crc import crc32
from tallystick.storage.local import LOCAL
from tallystick.systems.tally.format.bodies import Ending, encode_ending, encode_names
from tallystick.systems.tally.format.columns import UnplacedRecord, decode_columns
from tallystick.systems.tally.format.entries import encode_entry
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live import items as bulk
from tallystick.systems.tally.live.items import Columnar, Item, UnplacedEntry, UnplacedMarks
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.journal import open_journal
from tallystick.systems.tally.live.roles.record_journal import TallyRecordJournal
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing import MemoryFileSystem
from tests.systems.tally.build import FOLDER, TINY, bodies, reading

LIMIT = 4096
BODIES = st.lists(st.binary(max_size=300), max_size=80)
SETTINGS = Settings(segment_size=16 << 10, idle_mark_s=None)


def groups(given: Sequence[bytes], limit: int = LIMIT) -> list[Columnar]:
    return list(bulk.columnar(given, limit, lambda _: None))


def of(group: Columnar) -> list[bytes]:
    """The bodies in a group."""
    payload = group.payload
    data = b"".join(payload.buffers)
    assert len(data) == payload.size
    return [one.body for one in decode_columns(data, group.record_count, payload.columns).records()]


@given(BODIES, st.sampled_from([1, 64, 1000, 1 << 20]))
def test_groups_hold_the_bodies_in_order_whatever_is_joined_at_once(
    given: list[bytes], piece: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "PIECE_BYTES", piece)
        found = groups(given)
    assert [body for group in found for body in of(group)] == given
    for group in found:
        assert group.payload.size <= LIMIT or group.record_count == 1
        assert group.payload.crc == crc32(b"".join(group.payload.buffers))


@given(BODIES)
def test_groups_are_the_same_without_numpy(given: list[bytes]) -> None:
    plain = list(bulk._plain_groups(given, LIMIT))
    assert [of(group) for group in plain] == [of(group) for group in groups(given)]


ROWS = st.dictionaries(
    st.tuples(st.integers(1, 1 << 20), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.none() | st.binary(max_size=50),
    max_size=9,
)


@given(st.lists(st.tuples(st.integers(1, 1 << 40), ROWS), min_size=1, max_size=9))
def test_whole_transactions_are_encoded_as_their_records_are(
    given: list[tuple[int, dict[tuple[int, int], bytes | None]]],
) -> None:
    whole = [
        bulk.CommittedRows(transaction, rows, bulk.size_of_rows(rows))
        for transaction, rows in given
    ]
    payload, counts = bulk.encode_committed(whole, 77)
    records: list[UnplacedRecord] = []
    for item, count in zip(whole, counts, strict=True):
        records += bulk.rows_of(item)
        ending = Ending(((77, len(item.rows)),) if item.rows else ())
        records.append(UnplacedRecord(Code.COMMIT, encode_ending(ending), item.transaction))
        assert count == len(records)
    data = b"".join(payload.buffers)
    assert list(decode_columns(data, counts[-1], payload.columns).records()) == records
    assert len(data) == payload.size <= sum(item.size for item in whole)


@given(st.integers(1, 1 << 40), ROWS)
def test_a_transaction_by_itself_is_encoded_as_among_others(
    transaction: int, rows: dict[tuple[int, int], bytes | None]
) -> None:
    item = bulk.CommittedRows(transaction, rows, bulk.size_of_rows(rows))
    payload, counts = bulk.encode_committed([item], 77)
    count, columns, *buffers = bulk.encode_one_committed(item, 77)
    assert [count, columns, *buffers] == [counts[-1], payload.columns, *payload.buffers]


PERSISTED = [((1, 3), {"a"}), ((3, 9, 1), {"a", "b"}), ((2,), {"b"})]
"""Numbers, one of them of no entry, with the targets that hold them."""


def test_entries_and_marks_are_written_and_applied_as_their_records_are(tmp_path: Path) -> None:
    body = encode_entry(("a", "b"), "", ())
    items: list[Item] = [UnplacedEntry(number, body, ("a", "b")) for number in (1, 2, 3, 4)]
    records: list[Item] = [UnplacedRecord(Code.PERSISTING, body, None, n) for n in (1, 2, 3, 4)]
    for numbers, names in PERSISTED:
        mark = encode_names(names)
        items.append(UnplacedMarks(numbers, mark, frozenset(names)))
        records += [UnplacedRecord(Code.PERSISTED, mark, None, number) for number in numbers]
    found = []
    for number, every in enumerate((items, records)):
        with _open_log(tmp_path / str(number)) as log:
            lsns = [ticket.wait() for ticket in [log.submit(one) for one in every]]
            with log.state() as state:
                pending = {key: one.remaining for key, one in state.pending.items()}
                found.append((lsns[-1], state.next_key, pending))
        with _open_log(tmp_path / str(number)) as log, log.state() as state:
            pending = {key: one.remaining for key, one in state.pending.items()}
            found.append((log.next_lsn - 1, state.next_key, pending))
    both = frozenset(("a", "b"))
    assert found == [(10, 10, {2: frozenset("a"), 4: both})] * 4


def _open_log(path: Path) -> contextlib.closing[TallyLog]:
    return contextlib.closing(TallyLog(str(path), settings=SETTINGS))


def test_what_a_transaction_has_logged_before_counts_in_its_commit_record(tmp_path: Path) -> None:
    log = TallyUndoRedoLog(TallyLog(str(tmp_path)))
    log.log_row(7, 1, 1, b"before")
    log.commit_rows(7, {(1, 2): b"after"})
    log.commit_rows(8, {(1, 3): b"whole"})
    assert log.log.next_lsn == 6
    with log.log.state() as state:
        assert not state.open
    log.close()
    assert not reading(LOCAL, folder=str(tmp_path)).findings()


def test_a_group_has_few_buffers_so_that_one_call_writes_it() -> None:
    (group,) = groups([bytes(3)] * 500_000, bulk.BULK_BYTES)
    assert len(group.payload.buffers) < 100


@pytest.mark.parametrize(
    "settings", [TINY, Settings(16 << 10, compression="zlib", compress_min=1)], ids=["", "packed"]
)
def test_bulk_groups_are_read_back_whole(settings: Settings) -> None:
    fs = MemoryFileSystem()
    journal = open_journal(FOLDER, settings=settings, fs=fs)
    given = [b"%d" % number * (number % 30) for number in range(2000)]
    assert journal.append_many(given) == range(1, 2001)
    journal.close()
    one = reading(fs)
    assert not one.findings()
    assert bodies(one.records()) == given


def test_few_groups_are_held_at_a_time_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BULK_BYTES", 512 << 10)
    settings = Settings(segment_size=64 << 20, preallocate=False, idle_mark_s=None)
    journal = open_journal(str(tmp_path / "log"), settings=settings)
    given = [bytes(4000)] * 5000
    tracemalloc.start()
    try:
        journal.append_many(given)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        journal.close()
    assert peak < 5 * (512 << 10)


def spares(fs: MemoryFileSystem) -> list[str]:
    return [name for name in fs.list(FOLDER) if name.startswith("spare")]


def test_the_next_segment_is_made_ahead_for_what_does_not_fit_in_this_one() -> None:
    fs = MemoryFileSystem()
    journal = open_journal(FOLDER, settings=SETTINGS, fs=fs)
    assert isinstance(journal.log, TallyLog)
    journal.log.reserve_ahead(4000)
    journal.append_many([bytes(100)] * 40)
    assert journal.log.last_segment == 1
    assert journal.log._appender._segments._job is None
    assert not spares(fs)
    journal.log.reserve_ahead(5000)
    journal.close()  # waits for the thread that makes it
    assert len(spares(fs)) == 1


def test_the_sizes_of_the_first_bodies_tell_whether_the_next_segment_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = MemoryFileSystem()
    journal = open_journal(FOLDER, settings=SETTINGS, fs=fs)
    expected: list[int] = []
    monkeypatch.setattr(journal.log, "reserve_ahead", expected.append)
    journal.append_many([bytes(3)] * 1500)
    journal.append_many([])
    journal.close()
    assert expected == [4500, 0]


def test_the_end_of_a_transaction_of_very_many_segments_is_refused_or_fits(tmp_path: Path) -> None:
    """Each segment takes a place in its commit record."""
    settings = Settings(segment_size=16 << 10, preallocate=False, idle_mark_s=None)
    for segments, fits in ((450, True), (1000, False)):
        path = str(tmp_path / str(segments))
        log = TallyLog(path, settings=settings)
        journal = TallyRecordJournal(log)
        journal.add_in(7, 1, b"body")
        with log.state() as state:  # as if it had records there
            state.open[7].counts.update(dict.fromkeys(range(10_000, 10_000 + segments), 0))
        large = log.append(bytes(log.capacity - 900))
        commit = journal.commit(7)
        assert large.wait() == 2
        with contextlib.nullcontext() if fits else pytest.raises(RecordTooLargeError):
            commit.wait()
        journal.close()
        with TallyLog(path, settings=settings) as again:
            assert again.next_lsn == (4 if fits else 3)
