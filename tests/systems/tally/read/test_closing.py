"""A native log is closed split by split: what crosses an edge, and what refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.storage.files import FileSystem
from tallystick.systems.protocol import NotClosedInPartsError
from tallystick.systems.rests import unpacked
from tallystick.systems.tally.format.bodies import Ending, encode_ending
from tallystick.systems.tally.format.columns import UnplacedRecord
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.live.items import UnplacedEnding
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.read.closing import Rest
from tallystick.systems.tally.reader import TallyReading
from tallystick.testing import MemoryFileSystem
from tests.kit import closed_alike
from tests.systems.tally.build import (
    FOLDER,
    TINY,
    XID,
    every_item,
    every_kind,
    reading,
    segments_of_plain,
    tiny_log,
)
from tests.systems.tally.script import Script, short_script

SIZES = (1, 2_000, 5_000, 1 << 20)


def _rests(one: TallyReading, size: int = 1) -> Iterator[bytes | None]:
    for split in one.splits(size):
        closed = one.close_split(split, 100)
        list(closed.batches)
        yield closed.rest()


def _alike(fs: FileSystem, key: bytes | None = None, folder: str = FOLDER) -> list[bool]:
    return [closed_alike(reading(fs, key, folder), size) for size in SIZES]


def interleaved(rounds: int = 40, size: int = 700) -> MemoryFileSystem:
    """Transactions that overlap and cross segments: committed, prepared, rolled back, left open."""
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for number in range(1, rounds):
        log.submit(UnplacedRecord(Code.BEGIN, b"", number))
        for key in range(3):
            log.submit(UnplacedRecord(Code.ADD, bytes(size), number - key, number)).wait()
        if number % 3 == 2:
            log.submit(UnplacedEnding(Code.PREPARE, number - 1, XID, b"name"))
        end = UnplacedRecord(Code.ROLLBACK, b"", number - 2)
        log.submit(UnplacedEnding(Code.COMMIT, number - 2) if number % 5 else end).wait()
    log.close()
    return fs


def test_transactions_that_cross_edges_are_closed_by_the_fold() -> None:
    fs = interleaved()
    assert _alike(fs) == [True] * len(SIZES)
    rests = [unpacked(rest, Rest.built) for rest in _rests(reading(fs)) if rest is not None]
    handed = {record.transaction for rest in rests for record in rest.records}
    closed = sum(last - first + 1 for rest in rests for first, last in rest.closed)
    assert len(rests) > 20
    assert closed + len(handed) >= 39


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_every_kind_of_record_is_closed_in_parts(compression: str) -> None:
    fs = MemoryFileSystem()
    log = TallyLog(FOLDER, settings=replace(TINY, compression=compression), fs=fs)
    for round_ in range(30):
        for item in every_item():
            log.submit(item)
        log.append(bytes(round_)).wait()
    log.close()
    _alike(fs)  # transaction 8 is used again while it is prepared
    assert _alike(every_kind()) == [True] * len(SIZES)
    assert _alike(segments_of_plain()) == [True] * len(SIZES)


def test_a_journal_that_was_compacted_and_a_page_store_are_closed_in_parts() -> None:
    fs = MemoryFileSystem()
    journal = Journal(FOLDER, fs=fs, settings=TINY)
    short_script(Script(journal))
    journal.close()
    assert _alike(fs) == [True] * len(SIZES)
    fs = MemoryFileSystem()
    with PageStore(FOLDER, fs=fs) as store:
        store.create_table("rows")
        for key in range(50):
            with store.begin() as transaction:
                transaction.table("rows")[key] = bytes(200)
    folder = next(path.rpartition("/")[0] for path in fs.contents() if path.endswith("1.tally"))
    assert _alike(fs, folder=folder) == [True] * len(SIZES)


def test_a_log_that_is_written_is_closed_up_to_its_end() -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    for number in range(30):
        log.submit(UnplacedRecord(Code.ADD, bytes(900), number // 4, number)).wait()
    assert _alike(fs) == [True] * len(SIZES)
    log.close()


def test_bodies_that_no_row_has_are_not_handed_on() -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    log.submit(UnplacedRecord(Code.ADD, bytes(5_000), 1, 1)).wait()
    log.submit(UnplacedRecord(Code.ROLLBACK, b"", 1)).wait()
    log.close()
    (rest,) = filter(None, _rests(reading(fs)))
    assert len(rest) < 1_000
    assert _alike(fs) == [True] * len(SIZES)


def test_a_transaction_that_lacks_elements_has_to_be_read_whole() -> None:
    fs = MemoryFileSystem()
    log = tiny_log(fs)
    log.submit(UnplacedRecord(Code.ADD, b"one", 5, 1)).wait()
    log.submit(UnplacedRecord(Code.COMMIT, encode_ending(Ending(((1, 2),))), 5)).wait()
    log.close()
    assert _alike(fs) == [False] * len(SIZES)


def test_damage_has_to_be_read_whole() -> None:
    fs = interleaved(12)
    files = fs.contents()
    bodies = [record for record in reading(fs).records() if record.length > 100]
    for record in bodies[:-1:5]:
        damaged = bytearray(files[record.file])
        damaged[record.offset] ^= 4
        assert _alike(MemoryFileSystem(files | {record.file: damaged})) == [False] * len(SIZES)


def test_an_encrypted_log_is_read_whole_without_its_key() -> None:
    key = bytes(range(32))
    fs = MemoryFileSystem()
    log = TallyLog(FOLDER, settings=TINY, fs=fs, key=lambda: key)
    for item in every_item():
        log.submit(item)
    log.close()
    assert _alike(fs, key) == [True] * len(SIZES)
    assert _alike(fs) == [False] * len(SIZES)


def test_rests_that_are_no_chain_are_refused() -> None:
    one = reading(interleaved())
    rests = [rest for rest in _rests(one) if rest is not None]
    swapped = [rests[1], rests[0], *rests[2:]]
    for wrong in (rests[1:], rests[:3] + rests[4:], swapped, []):
        with pytest.raises(NotClosedInPartsError, match="not closed in parts"):
            list(one.close_rests(wrong, 100))


def test_a_number_that_stands_for_two_transactions_is_refused() -> None:
    one = reading(interleaved())
    rests = [unpacked(rest, Rest.built) for rest in _rests(one) if rest is not None]
    number = rests[0].records[0].transaction
    assert number is not None
    rests[1] = rests[1]._replace(closed=[(number, number)])
    with pytest.raises(NotClosedInPartsError, match="used twice"):
        list(one.close_rests([rest.packed() for rest in rests], 100))
