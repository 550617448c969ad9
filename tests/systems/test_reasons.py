"""Every reason of every system occurs, and no log is safe once the proof of it is taken away.

Each row changes one log that its system wrote, in the one thing that a reason stands on. Together
with the fixtures as they are, the rows give every reason of every table; docs/verdicts.md lists
them.
"""

from __future__ import annotations

import gzip
import runpy
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

import tallystick
from tallystick.records import Answer, Judgement
from tallystick.systems.answers import NO_REASONS
from tallystick.systems.bitronix.format.layout import (
    COMMITTING,
    HEADER_LENGTH,
    PREPARING,
    STATE_HEADER,
    TIMESTAMP_HEADER,
)
from tallystick.systems.cloudtran.format.layout import HEADER_SIZE
from tallystick.systems.derby.format.layout import (
    CHECKSUM_OPERATION,
    FLAG_DURABILITY_TEST,
    HEADER,
    make_instant,
)
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.derby.read.spans import ByteRange
from tallystick.systems.derby.reader import DerbyReading
from tallystick.systems.h2.format import layout as h2
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.reader import H2Reading
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.systems.registry import system, systems
from tallystick.systems.tally.format.layout import CONTROL_NAME, archive_name
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tests.fixtures import fixture_dir
from tests.systems.bitronix import logs as bitronix
from tests.systems.derby.live.test_log import insert, row
from tests.systems.derby.verdict.test_damage import control
from tests.systems.jboss import build as jboss
from tests.systems.jboss.format.test_participants import branch, state

ROOT = Path(__file__).parents[2]
Change = Callable[[Path], object]
SYNC_SETTING = {"derby.storage.fileSyncTransactionLog": "true"}


@dataclass(frozen=True)
class Row:
    """A log of a fixture, what is changed in it, and the reason that is then given."""

    system: str
    case: str
    change: Change
    reason: str
    settings: Mapping[str, str] = field(default_factory=dict)


# -- changes -------------------------------------------------------------------------------------


@contextmanager
def edited(path: Path) -> Iterator[bytearray]:
    data = bytearray(path.read_bytes())
    yield data
    path.write_bytes(data)


def put(name: str, offset: int, value: bytes) -> Change:
    """Write ``value`` at ``offset`` of the file, counted from its end if it is negative."""

    def change(folder: Path) -> None:
        with edited(folder / name) as data:
            place = offset % len(data)
            data[place : place + len(value)] = value

    return change


def cut(name: str, size: int) -> Change:
    """Take ``size`` bytes from the end of the file."""

    def change(folder: Path) -> None:
        with edited(folder / name) as data:
            del data[-size:]

    return change


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def as_it_is(_folder: Path) -> None:
    """Change nothing."""


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.rglob(pattern))


def two_journals(folder: Path) -> None:
    """Write two files of Bitronix of which the older one has room."""
    for number in (1, 2):
        gtrid = bitronix.gtrid(number)
        decided = [bitronix.record(one, number, "a", gtrid=gtrid) for one in (8, 3)]
        content = bitronix.file_bytes(decided, 5_000 + number)
        (folder / f"btm{number}.tlog").write_bytes(content)


def not_counted(status: int, state_: int = -1) -> Change:
    """Write a journal of which the header does not count the last record, of that status."""

    def change(folder: Path) -> None:
        last = bitronix.record(status, 2, "a", "b", gtrid=bitronix.gtrid(2))
        counted = bitronix.file_bytes([], 6_000, state=state_)[:HEADER_LENGTH]
        content = counted + last.encode()
        (folder / "btm1.tlog").write_bytes(content.ljust(bitronix.PAIR_SIZE, b"\0"))
        (folder / "btm2.tlog").write_bytes(bitronix.file_bytes([], 5_000))

    return change


STATES = "StateManager/BasicAction/TwoPhaseCoordinator/AtomicAction"
"""Where a store of files of Narayana keeps transactions."""


def object_store(cut: int | None = None, end: str = "", below: str = "") -> Change:
    """Write a state to a store of files, cut, or under a name with that end."""

    def change(folder: Path) -> None:
        place = folder / STATES / below
        place.mkdir(parents=True)
        (place / f"0_0_0_0_7{end}").write_bytes(state(branch())[:cut])

    return change


def empty_store(folder: Path) -> None:
    """Make a store of files without a state."""
    (folder / STATES).mkdir(parents=True)


def damaged_block(folder: Path) -> None:
    """Flip a byte in the data of the last block of a block log."""
    path = newest(folder, "*.ctlog")
    with edited(path) as data:
        last = data.rfind(b"\x89TXL", 0, len(data.rstrip(b"\0")) - HEADER_SIZE)
        data[last + HEADER_SIZE + 30] ^= 0xFF


def cut_in_a_sector(folder: Path) -> None:
    """Take the last byte of a block log."""
    with edited(newest(folder, "*.ctlog")) as data:
        del data[-1:]


def without_closing_block(folder: Path) -> None:
    path = newest(folder, "*.ctlog")
    with edited(path) as data:
        del data[data.rfind(b"\x89TXL", 0, len(data.rstrip(b"\0")) - HEADER_SIZE) :]


# -- Derby ---------------------------------------------------------------------------------------


def odd_mark(folder: Path) -> None:
    """Put a mark beside a block log that is none."""
    log = newest(folder, "*.ctlog")
    (log.parent / "translog.mark").write_bytes(b"serial")


def two_serials(folder: Path) -> None:
    """Give a file of a block log the name of an earlier one."""
    path = newest(folder, "*.ctlog")
    path.rename(path.with_name(path.name.replace("-0000000001-", "-0000000000-")))


def derby_ranges(folder: Path) -> list[ByteRange]:
    files = tuple(sorted(str(path) for path in (folder / "log").iterdir()))
    return list(
        DerbyReading(LogSource("derby", str(folder / "log"), files), ReadOptions()).scan.ranges()
    )


def last_group(folder: Path) -> tuple[Path, int, int]:
    """Return file, begin and end of the last group, with its checksum record."""
    *_, one = (
        each
        for each in derby_ranges(folder)
        if each.body is not None and each.body.operation == CHECKSUM_OPERATION
    )
    assert one.body is not None
    assert one.envelope is not None
    return Path(one.file.path), one.offset, one.envelope.end + one.body.fields["dataLength"]


def torn_group(folder: Path) -> None:
    """Zero the log from the first sector inside its last group on."""
    path, begin, end = last_group(folder)
    sector = -(-(begin + 40) // 512) * 512
    assert sector < end
    with edited(path) as data:
        data[sector:] = bytes(len(data) - sector)


def flipped_group(folder: Path) -> None:
    """Flip the last byte of the last group."""
    path, _, end = last_group(folder)
    with edited(path) as data:
        data[end - 1] ^= 0xFF


def page_gap(folder: Path) -> None:
    """Write two changes of a page with versions between them that the log does not have."""
    with LogToFile(str(folder / "log")) as log:
        for version in (1, 52):
            transaction = log.begin()
            log.log(transaction, insert(version), row(f"version {version}"))
            log.commit(transaction)


def early_group(folder: Path) -> None:
    """Flip a byte in the middle of what a boot redoes."""
    path, begin, _ = last_group(folder)
    with edited(path) as data:
        data[begin // 2] ^= 0xFF


def from_checkpoint_on(folder: Path) -> None:
    checkpoint = int.from_bytes((folder / "log/log.ctrl").read_bytes()[8:16])
    with edited(folder / f"log/log{checkpoint >> 32}.dat") as data:
        place = checkpoint & 0xFFFFFFFF
        data[place:] = bytes(len(data) - place)


def unlinked_file(folder: Path) -> None:
    """Add a log file whose header names another end of the one before it."""
    path = newest(folder / "log", "log[0-9]*.dat")
    number = int(path.name[3:-4])
    head = bytearray(path.read_bytes()[: HEADER.size])
    head[8:16] = (number + 1).to_bytes(8, "big")
    (folder / f"log/log{number + 1}.dat").write_bytes(bytes(head) + bytes(1000))


def begun_file(beyond: int) -> Change:
    """Add a log file of a header and zeros: the file before it will end so many bytes further."""

    def change(folder: Path) -> None:
        unlinked_file(folder)
        path, _, end = last_group(folder)
        with edited(folder / "log" / f"log{int(path.name[3:-4]) + 1}.dat") as data:
            data[16:24] = make_instant(int(path.name[3:-4]), end + beyond).to_bytes(8)

    return change


def ends_and_begun_file(beyond: int) -> Change:
    """Cut the last file after its last record, without a mark, and add one as `begun_file` does."""

    def change(folder: Path) -> None:
        cut_to(lambda end: end)(folder)
        begun_file(beyond)(folder)

    return change


def marked_and_begun_file(size: int) -> Change:
    """End the last file with its mark, and add one of a header and so many bytes more."""

    def change(folder: Path) -> None:
        begun_file(0)(folder)
        path, _, end = last_group(folder)
        with edited(path) as data:
            data[end:] = bytes(4)
        with edited(folder / "log" / f"log{int(path.name[3:-4]) + 1}.dat") as data:
            data[HEADER.size :] = b"\1" * size

    return change


def never_synced(flags: int) -> Change:
    """Cut the log after its last record, with those flags in the control files."""

    def change(folder: Path) -> None:
        cut_to(lambda end: end)(folder)
        for name in ("log.ctrl", "logmirror.ctrl"):
            with edited(folder / "log" / name) as data:
                data[:] = control(flags=flags)(data) or b""

    return change


def cut_to(size: Callable[[int], int]) -> Change:
    """Cut the last file to a size that is told from where its last record ends."""

    def change(folder: Path) -> None:
        path, _, end = last_group(folder)
        with edited(path) as data:
            del data[size(end) :]

    return change


def older_control(folder: Path) -> None:
    """Let log.ctrl name an earlier place than its mirror, which is written after it."""
    begin = next(one for one in derby_ranges(folder) if one.envelope is not None)
    with edited(folder / "log/log.ctrl") as data:
        data[:] = control(checkpoint=begin.place)(data) or b""


def control_without_checkpoint(folder: Path) -> None:
    """Let both control files name a place where no checkpoint is recorded."""
    *_, last = (one for one in derby_ranges(folder) if one.envelope is not None)
    for name in ("log.ctrl", "logmirror.ctrl"):
        with edited(folder / "log" / name) as data:
            data[:] = control(checkpoint=last.place)(data) or b""


def without_last_file(folder: Path) -> None:
    """Take the last file away, and let recovery start at the first one."""
    (folder / "log/log5.dat").unlink()
    for name in ("log.ctrl", "logmirror.ctrl"):
        with edited(folder / "log" / name) as data:
            data[:] = control(checkpoint=0)(data) or b""


# -- H2 ------------------------------------------------------------------------------------------


def h2_file(folder: Path) -> Path:
    (path,) = folder.glob("*.db")
    return path


def h2_change(change: Callable[[H2Reading, bytearray], object]) -> Change:
    def apply(folder: Path) -> None:
        path = h2_file(folder)
        reading = H2Reading(LogSource("h2", str(folder), (str(path),)), ReadOptions())
        with edited(path) as data:
            change(reading, data)

    return apply


def zeroed(*, trunk: bool = False, first: int = 0, last: int | None = None) -> Change:
    """Zero data pages of the log from the first to the last one, and its first trunk page."""

    def change(reading: H2Reading, data: bytearray) -> None:
        assert reading._log is not None
        stream = reading._log.stream
        size = stream.pages.page_size
        trunks = [one.page for one in stream.chain.trunks[:1]] if trunk else []
        dropped = stream.dropped if trunk else []
        for page in [*trunks, *dropped, *stream.data_pages[first:last]]:
            data[page * size : (page + 1) * size] = bytes(size)

    return h2_change(change)


def flip_last_page(reading: H2Reading, data: bytearray) -> None:
    """Damage the checksum of the last log page."""
    assert reading._log is not None
    stream = reading._log.stream
    data[stream.data_pages[-1] * stream.pages.page_size + 1] ^= 1


def _created(key: int, pages: int) -> Callable[[H2Reading, bytearray], None]:
    """Leave headers without a log, and empty pages."""

    def change(_reading: H2Reading, data: bytearray) -> None:
        header = h2.encode_variable_header(h2.VariableHeader(1, key, 0, 0), 512)
        first = h2.encode_static_header(h2.StaticHeader(512))
        data[:] = (first + header * 2).ljust(pages * 512, b"\0")[: pages * 512]

    return change


def _named_log(_reading: H2Reading, data: bytearray) -> None:
    """Let both copies of the header name a log where there is none."""
    size = int.from_bytes(data[h2.PAGE_SIZE_OFFSET : h2.PAGE_SIZE_OFFSET + 4])
    for page in h2.VARIABLE_HEADER_PAGES:
        place = slice(page * size, (page + 1) * size)
        found = h2.decode_variable_header(bytes(data[place]))
        assert found is not None
        changed = h2.VariableHeader(found.write_counter, found.log_key, 9, 10)
        data[place] = h2.encode_variable_header(changed, size)


def _closed_in(*copies: int, key_added: int = 0) -> Callable[[H2Reading, bytearray], None]:
    """Let copies of the header name no log; the log stays where it is."""

    def change(_reading: H2Reading, data: bytearray) -> None:
        size = int.from_bytes(data[h2.PAGE_SIZE_OFFSET : h2.PAGE_SIZE_OFFSET + 4])
        found = h2.decode_variable_header(bytes(data[size : 2 * size]))
        assert found is not None
        closed = h2.VariableHeader(found.write_counter, found.log_key + key_added, 0, 0)
        for copy in copies:
            data[copy * size : (copy + 1) * size] = h2.encode_variable_header(closed, size)

    return change


def _older_header(_reading: H2Reading, data: bytearray) -> None:
    """Let the second copy of the header be written later than the first one."""
    found = h2.decode_variable_header(bytes(data[1024:1536]))
    assert found is not None
    counted = h2.VariableHeader(
        found.write_counter + 1, found.log_key, found.first_trunk, found.first_data
    )
    data[1024:1536] = h2.encode_variable_header(counted, 512)


def _later_log(_reading: H2Reading, data: bytearray) -> None:
    """Append a trunk page, and a data page, of a log that is later than that in the header."""
    found, number = h2.decode_variable_header(bytes(data[512:1024])), len(data) // 512
    assert found is not None
    key = found.log_key + 1000
    data += h2.encode_trunk(h2.Trunk(number, 0, key, 0, (number + 1,)), 512)
    data += h2.encode_data(number + 1, number, key, b"", 512)


def _page_begun_at_the_end(reading: H2Reading, data: bytearray) -> None:
    """Let the page with which the log would go on hold something."""
    assert reading._log is not None
    stream = reading._log.stream
    data[stream.fault_page * stream.pages.page_size + 100] = 1


def _record_after_fill(reading: H2Reading, data: bytearray) -> None:
    """Put a prepare without a name on the last byte but two of the last log page."""
    assert reading._log is not None
    stream = reading._log.stream
    end = (stream.data_pages[-1] + 1) * stream.pages.page_size
    data[end - 3] = Type.PREPARE_COMMIT


def _other_inner_magic(_reading: H2Reading, data: bytearray) -> None:
    data[h2.INNER_MAGIC_OFFSET] ^= 1


# -- JBoss ---------------------------------------------------------------------------------------


def copied_file(folder: Path) -> None:
    shutil.copy(folder / "activemq-data-1.amq", folder / "activemq-data-9.amq")


def renamed_to_unfinished(folder: Path) -> None:
    """A file with records has the name of one that is being created, which a load deletes."""
    shutil.copy(folder / "activemq-data-1.amq", folder / "activemq-data-3.amq.tmp")


def zeroed_record(folder: Path) -> None:
    """Zero the last record of a file that is filled with J."""
    with edited(folder / "hornetq-data-1.hq") as data:
        end = len(data.rstrip(b"J"))
        data[end - 20 : end] = bytes(20)


def forced_change_of_files(folder: Path) -> None:
    """Three files; the second one begins, some ids later, although the first has space."""
    items = {1: [jboss.add(1)], 2: [jboss.add(50)], 3: []}
    files = {number: jboss.image("g3", number, ones) for number, ones in items.items()}
    jboss.write(folder, "g3", files)


def journal(*counts: int) -> Change:
    """Make a journal of files with so many records; 37 fill one."""

    def change(folder: Path) -> None:
        items = {one: [jboss.add(number) for number in range(n)] for one, n in enumerate(counts, 1)}
        jboss.write(
            folder, "g3", {one: jboss.image("g3", one, found) for one, found in items.items()}
        )

    return change


def added_twice(folder: Path) -> None:
    files = {1: [jboss.add(1), jboss.add(1)], 2: []}
    jboss.write(folder, "g3", {one: jboss.image("g3", one, items) for one, items in files.items()})


# -- the native log ------------------------------------------------------------------------------


IDLE = Settings(idle_mark_s=None, segment_size=1 << 16)


SIZES = (100, 300, 3000)


def native(
    folder: Path, *, close: bool, key: bytes | None = None, sizes: Iterable[int] = SIZES
) -> None:
    """Write a log of some groups, and copy it before or after it is closed."""
    log = TallyLog(str(folder / "live"), settings=IDLE, key=None if key is None else lambda: key)
    for size in sizes:
        log.append_durably(bytes([65]) * size)
    if close:
        log.close()
    copy = folder / "copy"
    copy.mkdir()
    for path in (folder / "live").glob("*.tally"):
        shutil.copy(path, copy)
    log.close()
    shutil.rmtree(folder / "live")


def crashed(folder: Path) -> None:
    native(folder, close=False)


def closed(folder: Path) -> None:
    native(folder, close=True)


def without_control(*sizes: int) -> Change:
    """Return a change that leaves a log of these groups whose control block is not there."""

    def apply(folder: Path) -> None:
        native(folder, close=False, sizes=sizes)
        (folder / "copy" / CONTROL_NAME).unlink()

    return apply


def edited_group(folder: Path, change: Callable[[bytearray, int, int], None]) -> None:
    """Change the last group of a log, given its begin and end."""
    crashed(folder)
    (path,) = (folder / "copy").glob("0*.tally")
    with edited(path) as data:
        begin = data.rindex(b"A" * 3000)
        change(data, begin, begin + 3000)


def cut_group(folder: Path) -> None:
    def change(data: bytearray, begin: int, _end: int) -> None:
        sector = -(-begin // 512) * 512
        data[sector : sector + 512] = bytes(512)

    edited_group(folder, change)


def flipped_last_group(folder: Path) -> None:
    def change(data: bytearray, begin: int, _end: int) -> None:
        data[begin] ^= 1

    edited_group(folder, change)


def overwritten_last_group(folder: Path) -> None:
    """Leave nothing of the last group, as flash does that has lost it."""

    def change(data: bytearray, begin: int, end: int) -> None:
        first = begin - 128 & ~511
        data[first : end + 512] = b"\xff" * (end + 512 - first)

    edited_group(folder, change)


def misplaced_last_group(folder: Path) -> None:
    """Have the last group stand where the head of the segment does, which has a second copy."""

    def change(data: bytearray, begin: int, end: int) -> None:
        first, after = begin - 128 & ~511, -(-end // 512) * 512 + 512
        data[:512] = data[first : first + 512]
        data[first:after] = bytes(after - first)

    edited_group(folder, change)


def closed_before_rot(folder: Path) -> None:
    """Leave a closed log behind whose end something was written."""
    closed(folder)
    (path,) = (folder / "copy").glob("0*.tally")
    with edited(path) as data:
        used = len(data.rstrip(b"\0"))
        end = -(-used // 512) * 512
        data[end : end + 100] = b"\xff" * 100


def archived(folder: Path) -> None:
    """Leave the sealed segments of a log behind, as a disposer names them."""
    log = TallyLog(str(folder / "live"), settings=IDLE)
    for _ in range(4):
        log.append_durably(b"A" * 3000)
        log.roll()
    identity = log.identity
    log.close()
    copy = folder / "copy"
    copy.mkdir()
    for path in sorted((folder / "live").glob("0*.tally"))[:4]:
        shutil.copy(path, copy / archive_name(identity, path.name))
    shutil.rmtree(folder / "live")


def archived_with_a_gap(folder: Path) -> None:
    archived(folder)
    sorted((folder / "copy").iterdir())[1].unlink()


def archived_before_names(folder: Path) -> None:
    archived(folder)
    for path in (folder / "copy").iterdir():
        path.rename(path.with_name(path.name.partition("-")[2]))


def archived_with_a_torn_end(folder: Path) -> None:
    """Cut the only group of the last segment, and the index that proves it."""
    archived(folder)
    last = sorted((folder / "copy").iterdir())[-1]
    with edited(last) as data:
        begin = data.index(b"A" * 3000)
        data[begin:] = bytes(len(data) - begin)


def damaged_first_group(folder: Path) -> None:
    closed(folder)
    (path,) = (folder / "copy").glob("0*.tally")
    with edited(path) as data:
        data[data.index(b"A" * 100)] ^= 1


def sealed(folder: Path) -> None:
    native(folder, close=True, key=bytes(32))


# -- the rows ------------------------------------------------------------------------------------

NONE = ""
"""In place of a fixture: the change makes the log."""
ARTEMIS, HORNETQ = "g3-artemis-main/basic", "g2-hornetq-2.1.2/basic"
ODD_STATE = put("btm1.tlog", STATE_HEADER, b"\7")
SINCE_1970 = put("btm1.tlog", TIMESTAMP_HEADER, (1_700_000_000_000).to_bytes(8, "big"))
LAST_BYTE = put("log/log1.dat", -1, b"\1")

PROOFS = [
    # a log that is safe, and the same log without the proof
    (Row("bitronix", "committed-2pc", as_it_is, "closed-header"), ODD_STATE, "no-proof"),
    (Row("bitronix", "crash-before-commit", as_it_is, "unclean-header"), ODD_STATE, "no-proof"),
    (
        Row("bitronix", NONE, not_counted(PREPARING), "notes-not-counted"),
        not_counted(PREPARING, 7),
        "no-proof",
    ),
    (
        Row("cloudtran", "all-complete", as_it_is, "closing-block"),
        without_closing_block,
        "last-block-whole",
    ),
    (Row("cloudtran", "normal", as_it_is, "last-block-whole"), damaged_block, "start-stops"),
    (Row("cloudtran", "normal", as_it_is, "last-block-whole"), cut_in_a_sector, "odd-size"),
    (Row("derby", "halted", as_it_is, "zeros-to-the-end"), LAST_BYTE, "odd-group"),
    (
        Row("derby", "halted", cut_to(lambda _: 100_000), "zeros-to-the-end"),
        cut_to(lambda _: 99_999),
        "odd-size",
    ),
    (Row("derby", "halted", torn_group, "unfinished-group"), flipped_group, "odd-group"),
    (Row("derby", "halted", begun_file(100), "file-begun"), begun_file(-100), "files-after-end"),
    (Row("derby", "halted", begun_file(0), "file-begun"), begun_file(-1), "files-after-end"),
    (
        Row("derby", "halted", ends_and_begun_file(0), "file-begun"),
        ends_and_begun_file(-1),
        "files-after-end",
    ),
    (
        Row("derby", "halted", marked_and_begun_file(0), "file-begun"),
        marked_and_begun_file(24),
        "odd-group",
    ),
    (
        Row("derby", "halted", never_synced(FLAG_DURABILITY_TEST), "never-synced"),
        never_synced(0),
        "not-preallocated",
    ),
    (
        Row("derby", "halted-filesync", as_it_is, "file-grown", SYNC_SETTING),
        cut("log/log1.dat", 1),
        "odd-group",
    ),
    (Row("h2", "clean-512", as_it_is, "log-closed"), h2_change(_named_log), "damaged"),
    (
        Row("h2", "clean-512", h2_change(lambda _, data: data.extend(bytes(512))), "log-closed"),
        h2_change(lambda _, data: data.extend(b"\b" + bytes(511))),
        "log-not-named",
    ),
    (
        Row("h2", "large-log-512", as_it_is, "flushed-end"),
        h2_change(flip_last_page),
        "changes-lost",
    ),
    (
        Row("h2", "large-log-512", zeroed(first=-1), "full-last-page"),
        zeroed(first=-2, last=-1),
        "changes-lost",
    ),
    (
        Row("h2", "indoubt-one-2048", as_it_is, "ends-in-prepare"),
        h2_change(_page_begun_at_the_end),
        "no-proof",
    ),
    (
        Row("h2", "committed-2048", zeroed(), "log-begun"),
        zeroed(first=0, last=1),
        "changes-lost",
    ),
    (
        Row("h2", "committed-2048", zeroed(trunk=True), "log-freed"),
        zeroed(trunk=True, last=-2),
        "changes-lost",
    ),
    (
        Row("h2", "clean-512", h2_change(_created(0, 5)), "being-created"),
        h2_change(_created(3, 4)),
        "changes-lost",
    ),
    (Row("jboss", NONE, journal(37, 0), "next-file"), journal(37), "next-file-missing"),
    (Row("jboss", NONE, journal(9), "room-ahead"), journal(37), "next-file-missing"),
    (Row("jboss", NONE, object_store(), "states-whole"), object_store(cut=-1), "state-cut"),
    (Row("jboss", NONE, empty_store, "no-state"), object_store(end="#"), "state-passed-over"),
    (Row("tally", NONE, archived, "archived-segments"), archived_with_a_gap, "archive-gap"),
    (Row("tally", NONE, without_control(), "never-used"), without_control(100), "refused"),
    (Row("tally", NONE, closed, "durable-mark"), crashed, "last-group-whole"),
    (Row("tally", NONE, crashed, "last-group-whole"), flipped_last_group, "odd-group"),
    (Row("tally", NONE, crashed, "last-group-whole"), overwritten_last_group, "odd-end"),
    (Row("tally", NONE, crashed, "last-group-whole"), misplaced_last_group, "misplaced-group"),
    (Row("tally", NONE, closed, "durable-mark"), closed_before_rot, "odd-end"),
    (Row("tally", NONE, cut_group, "last-group-cut"), flipped_last_group, "odd-group"),
]
OTHERS = [
    Row("cloudtran", "normal", odd_mark, "mark-damaged"),
    Row("cloudtran", "normal", two_serials, "other-file"),
    Row("bitronix", "wide", SINCE_1970, "lines-differ"),
    Row("bitronix", NONE, two_journals, "other-time"),
    Row("bitronix", NONE, not_counted(COMMITTING), "decision-not-counted"),
    Row("derby", "halted", put("log/log1.dat", 0, bytes(4)), "no-boot"),
    Row("derby", NONE, page_gap, "boot-depends"),
    Row("derby", "halted", without("log/log1.dat"), "new-log"),
    Row("derby", "halted", from_checkpoint_on, "checkpoint-past-end"),
    Row("derby", "large", early_group, "commits-dropped"),
    Row("derby", "switch-archive", without_last_file, "last-file-missing"),
    Row("derby", "halted", unlinked_file, "files-after-end"),
    Row("derby", "halted", cut_to(lambda end: end + 3), "odd-size"),
    Row("derby", "halted", cut_to(lambda _: 90_000), "odd-size"),
    Row("derby", "halted", older_control, "older-control"),
    Row("derby", "halted", control_without_checkpoint, "no-checkpoint"),
    Row("h2", "clean-512", h2_change(_created(0, 1)), "header-only"),
    Row("h2", "large-log-512", h2_change(_older_header), "older-header"),
    Row("h2", "large-log-512", h2_change(_later_log), "later-log"),
    Row("h2", "clean-512", h2_change(_other_inner_magic), "encrypted"),
    Row("h2", "large-log-512", h2_change(_closed_in(1)), "closed-in-one-copy"),
    Row("h2", "large-log-512", h2_change(_closed_in(1, 2)), "log-not-named"),
    Row("h2", "large-log-512", h2_change(_closed_in(1, 2, key_added=1000)), "log-not-named"),
    Row("h2", "large-log-512", h2_change(_record_after_fill), "record-after-fill"),
    Row("jboss", HORNETQ, put("hornetq-data-2.hq", 0, b"J" * 16), "load-refused"),
    Row("jboss", ARTEMIS, copied_file, "same-file-id"),
    Row("jboss", ARTEMIS, put("activemq-data-2.amq", 8, b"\xff" * 8), "odd-id"),
    Row("jboss", HORNETQ, zeroed_record, "odd-end"),
    Row("jboss", ARTEMIS, renamed_to_unfinished, "compaction-pending"),
    Row("jboss", NONE, forced_change_of_files, "room-left"),
    Row("jboss", NONE, added_twice, "odd-record"),
    Row("jboss", NONE, object_store(end="#"), "state-passed-over"),
    Row("jboss", NONE, object_store(end=".bak", below="#7#"), "recovery-ends"),
    Row("jboss", NONE, object_store(cut=0), "state-cut"),
    Row("jboss", NONE, object_store(below="Expired"), "state-expired"),
    Row("jboss", NONE, journal(37, 0, 0), "empty-after-full"),
    Row("tally", NONE, archived_before_names, "archive-unnamed"),
    Row("tally", NONE, archived_with_a_torn_end, "archive-end"),
    Row("tally", NONE, damaged_first_group, "refused"),
    Row("tally", NONE, overwritten_last_group, "odd-end"),
    Row("tally", NONE, misplaced_last_group, "misplaced-group"),
    Row("tally", NONE, sealed, "encrypted"),
]


def made(row: Row, change: Change, folder: Path) -> Judgement:
    """Return the judgement of a copy of the fixture, unpacked and changed."""
    if row.case:
        source = fixture_dir(row.system) / row.case
        for path in (one for one in source.rglob("*") if one.is_file()):
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes()
            packed = path.suffix == ".gz"
            target.with_suffix("" if packed else path.suffix).write_bytes(
                gzip.decompress(content) if packed else content
            )
    change(folder)
    options = ReadOptions(settings=row.settings)
    logs = list(tallystick.explain(folder, options=options).logs)
    assert [one.system for one in logs] == [row.system]
    return logs[0].judgement


@cache
def fixture_reasons(name: str) -> frozenset[str]:
    """Return the reasons that the fixtures of a system have as they are."""
    if name == "tally":
        return frozenset()
    return frozenset(one.judgement.reason for one in tallystick.explain(fixture_dir(name)).logs)


@pytest.mark.sampled(17)
@pytest.mark.parametrize("case", PROOFS, ids=lambda case: f"{case[0].system}-{case[0].reason}")
def test_without_its_proof_a_safe_log_gets_another_answer(
    case: tuple[Row, Change, str], tmp_path: Path
) -> None:
    row, removal, reason = case
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with_proof = made(row, row.change, tmp_path / "a")
    assert (with_proof.answer, with_proof.reason) == (Answer.SAFE, row.reason), with_proof.text
    without_it = made(row, removal, tmp_path / "b")
    assert without_it.reason == reason, without_it.text
    assert without_it.words != with_proof.words


def test_every_reason_of_a_safe_answer_has_such_a_case() -> None:
    safe = {
        (one.name, row.code)
        for one in systems()
        for row in one.reason_table.values()
        if row.answer is Answer.SAFE
    }
    assert {(row.system, row.reason) for row, _, _ in PROOFS} == safe


@pytest.mark.sampled(15)
@pytest.mark.parametrize("row", OTHERS, ids=lambda row: f"{row.system}-{row.reason}")
def test_no_other_log_is_safe(row: Row, tmp_path: Path) -> None:
    found = made(row, row.change, tmp_path)
    assert found.reason == row.reason, found.text
    assert found.answer is system(row.system).reason_table[row.reason].answer
    assert found.answer is not Answer.SAFE
    assert bool(found.decided_by) is (found.answer is Answer.CANNOT_TELL)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [one.name for one in systems()])
def test_every_reason_occurs(name: str) -> None:
    shown = {row.reason for row in OTHERS if row.system == name} | fixture_reasons(name)
    shown |= {
        code
        for row, _, without_it in PROOFS
        if row.system == name
        for code in (row.reason, without_it)
    }
    assert set(system(name).reason_table) - set(NO_REASONS) <= shown


def test_the_page_is_generated_from_the_tables() -> None:
    generated = runpy.run_path(str(ROOT / "scripts" / "findings_page.py"))["reasons_of"]
    text = (ROOT / "docs" / "verdicts.md").read_text("utf-8")
    assert generated(text) == text, "run: python scripts/findings_page.py"
