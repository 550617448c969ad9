"""The live log: transactions, group commit, switch, checkpoint, crashes, faults."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Hashable
from pathlib import Path
from zlib import crc32

import pytest

from tallystick.errors import (
    CorruptLogError,
    LogClosedError,
    LogLockedError,
    LogPoisonedError,
    LogWriteError,
    RecordTooLargeError,
    TallystickError,
    TransactionUsageError,
    UnsupportedFormatError,
)
from tallystick.records import Kind, State, Xid
from tallystick.storage.files import FileSystem
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.field_types import Container, Page
from tallystick.systems.derby.format.layout import (
    CHECKSUM_RECORD_SIZE,
    CONTROL_NAMES,
    FLAG_BETA,
    HEADER_SIZE,
    LENGTH,
    Control,
    Group,
    encode_control,
    split_instant,
)
from tallystick.systems.derby.format.operations import encode_operation
from tallystick.systems.derby.format.record_body import Body
from tallystick.systems.derby.live.files import LogFolder
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.protocol import ReadOptions
from tallystick.testing import (
    SYNCS,
    WRITES,
    FailedSync,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    RecordingFileSystem,
    check_recovery,
    every_fault,
)
from tests.systems.derby.logs import reading_of

FOLDER = "/db/log"
PAGE = Page(0, 1168, 1)


def small(fs: FileSystem) -> LogToFile:
    """A log of small files that keeps them all."""
    return LogToFile(FOLDER, fs=fs, buffer_size=512, switch_interval=4096, archive=True)


def insert(version: int, record_id: int = 6) -> bytes:
    """An insert into page 1 of container 1168."""
    fields = {
        "pageId": PAGE,
        "pageVersion": version,
        "recordId": record_id,
        "undo": None,
        "doMeSlot": 0,
        "insertFlag": 1,
    }
    return encode_operation(operations.INSERT, fields)


def row(text: str) -> bytes:
    """A row image of one field."""
    data = text.encode()
    return b"\0\6\1\x20" + len(data).to_bytes(2) + data


def text_of(body: Body) -> str:
    assert body.optional is not None
    return body.optional[6:].decode()


def put(log: LogToFile, text: str, version: int = 0) -> None:
    """One committed transaction with one insert."""
    number = log.begin()
    log.log(number, insert(version), row(text))
    log.commit(number)


def committed(log: LogToFile) -> list[str]:
    """The inserts of committed transactions, in order of commits."""
    pending: dict[int, list[str]] = {}
    found = []
    for _, body in log.replay():
        assert body.transaction is not None
        if body.operation == operations.INSERT:
            pending.setdefault(body.transaction, []).append(text_of(body))
        elif body.group & Group.LAST:
            mine = pending.pop(body.transaction, [])
            found += mine if body.group & Group.COMMIT else []
    return found


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        ("log", b""),
        ("log", b"\1"),
        ("log", b"\xff\xff\0\0"),
        ("log", insert(0)[:-1]),
        ("log", insert(0) + b"\0"),
        ("log", encode_operation(operations.PHYSICAL_UNDO, {"pageId": PAGE, "pageVersion": 1})),
        ("log", operations.encode_begin(operations.STATUS_USER, None)),
        ("log", operations.encode_end(operations.STATUS_COMMITTED, None)),
        ("compensate", insert(0)),
        ("compensate", operations.encode_end(operations.STATUS_ABORTED, None)),
    ],
)
def test_an_operation_that_no_record_can_have_is_the_callers_error(
    call: str, operation: bytes
) -> None:
    """With it in the log, nobody could open that again."""
    disk = MemoryFileSystem()
    with small(disk) as log:
        number = log.begin()
        place = log.log(number, insert(0), row("kept"))
        with pytest.raises(ValueError, match="operation is"):
            log.compensate(number, operation, place) if call == "compensate" else log.log(
                number, operation
            )
        log.commit(number)
    with small(disk) as log:
        assert committed(log) == ["kept"]


def recover(fs: FileSystem) -> list[Hashable]:
    with small(fs) as log:
        return list(committed(log))


def test_what_was_committed_is_there_after_reopening(tmp_path: Path) -> None:
    folder = str(tmp_path / "db" / "log")
    with LogToFile(folder) as log:
        put(log, "one")
        put(log, "two", 1)
        loser = log.begin()
        log.log(loser, insert(2), row("loser"))
    with LogToFile(folder) as log:
        assert committed(log) == ["one", "two"]
        assert list(log.open_transactions) == [loser]
        assert log.begin() > loser
    reading = reading_of(tmp_path)
    assert reading.recovery.boots is True
    assert [bytes(change.after or b"")[6:] for change in reading.changes()] == [b"one", b"two"]
    assert (tmp_path / "db/log/log1.dat").stat().st_size == 1 << 20


def test_prepared_branch_stays_in_doubt_until_it_is_settled(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    xid = Xid(4661, b"gtrid", b"b1")
    with LogToFile(folder) as log:
        number = log.begin(xid)
        log.log(number, insert(0), row("doubt"))
        log.prepare(number)
    (branch,) = (one for one in reading_of(tmp_path).transactions() if one.state is State.PREPARED)
    assert (branch.format_id, branch.gtrid, branch.bqual) == (4661, b"gtrid", b"b1")
    with LogToFile(folder) as log:
        assert log.open_transactions[number].prepared
        assert log.open_transactions[number].xid == xid
        log.commit(number)
        assert committed(log) == ["doubt"]
    (branch,) = reading_of(tmp_path).transactions()
    assert (branch.state, branch.attributes["phases"]) == (State.COMMITTED, 2)


def test_open_transactions_are_the_same_once_the_log_is_open_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    with LogToFile(folder) as log:
        numbers = [log.begin(), log.begin(Xid(1, b"g", b"b")), log.begin(internal=True)]
        for version, number in enumerate([*numbers, *numbers]):
            log.log(number, insert(version), row("open"))
        log.prepare(numbers[1])
        log.begin()
        before = log.open_transactions
    for _ in range(3):
        with LogToFile(folder) as log:
            assert log.open_transactions == before
            log.checkpoint()
            log.log(numbers[0], insert(9), row("after the checkpoint"))
            before = log.open_transactions


def test_compensated_work_is_no_change(tmp_path: Path) -> None:
    with LogToFile(str(tmp_path / "log")) as log:
        number = log.begin()
        place = log.log(number, insert(0), row("undone"))
        undo = {"pageId": PAGE, "pageVersion": 1, "recordId": 6}
        operation = encode_operation(operations.LOGICAL_UNDO_OF_ROW, undo)
        log.compensate(number, operation, place)
        log.log(number, insert(2), row("kept"))
        log.commit(number)
    assert [change.after for change in reading_of(tmp_path).changes()] == [row("kept")]


def test_checkpoint_moves_the_start_and_removes_files_before_the_oldest_transaction(
    tmp_path: Path,
) -> None:
    with LogToFile(str(tmp_path / "log"), switch_interval=4096, buffer_size=512) as log:
        for index in range(60):
            put(log, f"row {index:060}", index)
        pages: list[str] = []
        log.checkpoint(lambda: pages.append("clean"))
        assert pages == ["clean"]
        open_one = log.begin(Xid(1, b"g"))
        log.log(open_one, insert(60), row("open"))
        for index in range(61, 121):
            put(log, f"row {index:060}", index)
        log.checkpoint()
    reading = reading_of(tmp_path)
    begun = next(one for one in reading.transactions() if one.transaction == open_one)
    assert begun.attributes["first"] == f"({reading.log.first},{begun.evidence[1]})"  # type: ignore[index]
    assert reading.recovery.control == "log.ctrl"
    assert reading.recovery.undo_mark >> 32 == reading.log.first
    assert [one.number for one in reading.recovery.undo] == [open_one]
    assert reading.verdict().differences == ()


def test_switched_files_are_linked_and_end_with_a_marker(tmp_path: Path) -> None:
    with LogToFile(str(tmp_path / "log"), switch_interval=4096, archive=True) as log:
        for index in range(100):
            put(log, f"{index:0100}", index)
    reading = reading_of(tmp_path)
    assert len(reading.log.files) > 3
    assert len(list(reading.changes())) == 100
    whats = [span.what for file in reading.files()[:2] for span in file.spans]
    assert whats == ["file header", "records", "end marker"] * 2


async def test_tasks_commits_share_flushes_and_switch_files(tmp_path: Path) -> None:
    folder = tmp_path / "db" / "log"

    async def commit(log: LogToFile, text: str) -> None:
        number = log.begin()
        log.log(number, insert(0), row(text))
        await log.submit_commit(number)

    async def run(log: LogToFile) -> None:
        for turn in range(10):
            await asyncio.gather(*(commit(log, f"{turn} {one}") for one in range(20)))

    with LogToFile(str(folder), switch_interval=4096, archive=True) as log:
        await run(log)
        assert log.counters.records >= 200
        assert log.counters.groups <= 40
        found = committed(log)
    assert sorted(found) == sorted(f"{turn} {one}" for turn in range(10) for one in range(20))
    assert len(list(folder.glob("log*.dat"))) > 3
    assert reading_of(tmp_path).recovery.boots is True


def test_large_record_needs_no_buffer(tmp_path: Path) -> None:
    with LogToFile(str(tmp_path / "log")) as log:
        put(log, "x" * 60_000)
    with LogToFile(str(tmp_path / "log")) as log:
        assert committed(log) == ["x" * 60_000]


def test_encrypted_log_is_written_and_read_with_its_key(tmp_path: Path) -> None:
    key = bytes(range(16))
    cipher = LogCipher("AES/CBC/NoPadding", key)
    for text in ("one", "two"):
        with LogToFile(str(tmp_path / "log"), cipher=cipher) as log:
            put(log, text)
            assert committed(log)[-1] == text
    options = ReadOptions(encryption_key=key, settings={"encryptionAlgorithm": "AES/CBC/NoPadding"})
    reading = reading_of(tmp_path, options)
    assert [change.after for change in reading.changes()] == [row("one"), row("two")]
    assert b"one" not in (tmp_path / "log/log1.dat").read_bytes()


def test_wrong_use_is_refused_and_the_log_goes_on(tmp_path: Path) -> None:
    with LogToFile(str(tmp_path / "log")) as log:
        with pytest.raises(TransactionUsageError):
            log.commit(77)
        with pytest.raises(LogWriteError, match="XSLB6"):
            log.append(b"")
        with pytest.raises(RecordTooLargeError):
            log.append(bytes(0x0FFFFFFF))
        with pytest.raises(LogLockedError):
            LogToFile(str(tmp_path / "log"))
        put(log, "still fine")
    log.close()
    with pytest.raises(LogClosedError):
        log.begin()


def test_damage_before_whole_groups_is_refused_not_overwritten() -> None:
    fs = MemoryFileSystem()
    with small(fs) as log:
        for index in range(5):
            put(log, f"row {index}", index)
    file = fs.open(f"{FOLDER}/log1.dat")
    file.pwrite(b"\xff", 24 + 37 + 20)
    with pytest.raises(CorruptLogError):
        small(fs)
    assert file.pread(1, 24 + 37 + 20) == b"\xff"


@pytest.mark.parametrize("before", [0, 60], ids=["new log", "new file"])
def test_what_follows_a_torn_first_group_of_a_file_is_kept(before: int) -> None:
    """The engine goes on after the checksum record, whose CRC then covers what is written."""
    fs = MemoryFileSystem()
    log = small(fs)
    for index in range(before):
        put(log, f"{index:0100}", index)
    if before:
        log.switch_log_file()
    number = log.end >> 32
    put(log, "torn", 1000)
    path = f"{FOLDER}/log{number}.dat"
    contents = fs.contents()
    torn = bytearray(contents[path])
    torn[120:] = bytes(len(torn) - 120)
    fs = MemoryFileSystem({**contents, path: torn})
    with small(fs) as log:
        put(log, "acknowledged", 1001)
    found = recover(fs)
    assert found[before:] == ["acknowledged"]


def test_a_record_that_cannot_be_read_in_a_whole_group_is_refused() -> None:
    """Nothing tears it: the group's CRC holds. What was written after it would be lost with it."""
    fs = MemoryFileSystem()
    with small(fs) as log:
        put(log, "one")
        end = split_instant(log.end)[1]
    path = f"{FOLDER}/log1.dat"
    data = bytearray(fs.contents()[path])
    group = HEADER_SIZE + CHECKSUM_RECORD_SIZE
    data[end - 4 : end] = bytes(4)  # the trailing length of the last record
    data[group - 12 : group - 4] = crc32(data[group:end]).to_bytes(8)
    with pytest.raises(CorruptLogError, match="cannot be read"):
        small(MemoryFileSystem({**fs.contents(), path: data}))


def test_control_files_without_a_log_file_are_refused() -> None:
    fs = MemoryFileSystem()
    with small(fs) as log:
        put(log, "one")
    fs.remove(f"{FOLDER}/log1.dat")
    before = fs.contents()
    with pytest.raises(CorruptLogError, match="no log file"):
        small(fs)
    assert fs.contents() == before


@pytest.mark.long
@pytest.mark.parametrize("write_sync", [True, False], ids=["write-sync", "file-sync"])
def test_every_crash_keeps_what_was_acknowledged_and_nothing_else(write_sync: bool) -> None:
    fs = RecordingFileSystem()
    log = LogToFile(
        FOLDER, fs=fs, buffer_size=512, switch_interval=2048, archive=True, write_sync=write_sync
    )
    for index in range(14):
        item = f"item {index:0{180 if index % 5 else 900}}"
        fs.submitted(item)
        put(log, item, index)
        fs.acknowledged(item)
        if index == 9:
            log.checkpoint()
    log.close()

    def reopened(state: FileSystem) -> list[Hashable]:
        with LogToFile(
            FOLDER,
            fs=state,
            buffer_size=512,
            switch_interval=2048,
            archive=True,
            write_sync=write_sync,
        ) as log:
            return list(committed(log))

    report = check_recovery(fs, reopened, limit=40, writer_of=lambda _: 0, again=4)
    assert report.states > 150, str(report)


def _run(fs: FileSystem, items: list[str]) -> list[str]:
    """Commit the items; returns those acknowledged. Errors of ours end the run."""
    acknowledged: list[str] = []
    try:
        log = small(fs)
        for index, item in enumerate(items):
            put(log, item, index)
            acknowledged.append(item)
            if index == 6:
                log.checkpoint()
        log.close()
    except (TallystickError, OSError):
        pass
    return acknowledged


ITEMS = [f"item {index:0200}" for index in range(30)]


@pytest.mark.parametrize("size", [10, 2000], ids=["inside", "beyond"])
@pytest.mark.parametrize("sync", [True, False], ids=["write-sync", "file-sync"])
def test_four_zeros_left_of_a_torn_group_prove_no_next_file(size: int, sync: bool) -> None:
    """The log ends by chance four bytes before the end that the torn group gave the file."""
    path = f"{FOLDER}/log1.dat"

    def put_and_killed(files: dict[str, bytes], text: str) -> tuple[dict[str, bytes], int]:
        fs = MemoryFileSystem(files)
        log = LogToFile(FOLDER, fs=fs, switch_interval=4096, archive=True, write_sync=sync)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log, "switch_log_file", lambda *_: None)  # killed before that
            put(log, text)
            return dict(fs.contents()), split_instant(log.end)[1]

    before, end = put_and_killed({}, "x" * 3000)
    _, wanted = put_and_killed(before, "y" * size)
    torn = before[path][:end].ljust(wanted + LENGTH.size, b"t")
    after, reached = put_and_killed(before | {path: torn}, "y" * size)
    assert reached == wanted
    assert recover(MemoryFileSystem(after)) == ["x" * 3000, "y" * size]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_any_failing_call_loses_nothing_that_was_acknowledged(error: int) -> None:
    for faulty in every_fault(MemoryFileSystem, lambda n: Fault(n, error=error, partial=0.5)):
        acknowledged = _run(faulty, ITEMS)
        found = recover(_after_crash(faulty))
        assert found == ITEMS[: len(found)]
        assert len(acknowledged) <= len(found) <= len(acknowledged) + 1


def _after_crash(faulty: FaultyFileSystem) -> FileSystem:
    """The files that the next process finds; the locks of the dead one are gone."""
    inner = faulty.inner
    assert isinstance(inner, MemoryFileSystem)
    return MemoryFileSystem(inner.contents())


@pytest.mark.parametrize("sync", [FailedSync.ORDERED, FailedSync.REVERTED])
def test_failed_sync_poisons_and_is_never_repeated(sync: FailedSync) -> None:
    for faulty in every_fault(MemoryFileSystem, lambda n: Fault(n, calls={"datasync"}, sync=sync)):
        acknowledged = _run(faulty, ITEMS)
        assert set(acknowledged) <= set(recover(_after_crash(faulty)))


def test_poisoned_log_refuses_everything() -> None:
    faulty = FaultyFileSystem(MemoryFileSystem(), Fault(20, calls=WRITES | SYNCS, lasting=True))
    log = LogToFile(FOLDER, fs=faulty)
    with pytest.raises(LogPoisonedError, match="XSLAA"):
        for index in range(20):
            put(log, "x", index)
    with pytest.raises(LogPoisonedError):
        log.begin()
    with pytest.raises(LogPoisonedError):
        log.checkpoint()
    log.close()


class _Removals(MemoryFileSystem):
    """Remembers what is removed, in order."""

    def __init__(self, names: list[str]) -> None:
        super().__init__({f"{FOLDER}/{name}": b"" for name in names})
        self.removed: list[str] = []

    def remove(self, path: str) -> None:
        super().remove(path)
        self.removed.append(path.rpartition("/")[2])


def test_files_after_the_end_are_removed_by_number_the_newest_first() -> None:
    """A crash in between leaves no gap, which would look like a lost file."""
    fs = _Removals([f"log{number}.dat" for number in range(7, 13)])
    folder = LogFolder(FOLDER, fs)
    folder.remove_after(8)
    folder.close()
    assert fs.removed == ["log12.dat", "log11.dat", "log10.dat", "log9.dat"]


def test_threads_share_flushes_and_return_only_when_their_record_is_durable() -> None:
    fs = _CountingFileSystem()
    log = LogToFile(FOLDER, fs=fs, archive=True)
    synced_before = fs.syncs

    def work(name: int) -> None:
        for index in range(20):
            number = log.begin()
            log.log(number, insert(0), row(f"{name}/{index}"))
            log.commit(number)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fs.syncs - synced_before < 16 * 20 // 2
    log.close()
    with LogToFile(FOLDER, fs=fs, archive=True) as log:
        found = committed(log)
    assert len(found) == 320
    for name in range(16):
        mine = [text for text in found if text.startswith(f"{name}/")]
        assert mine == [f"{name}/{index}" for index in range(20)]


class _CountingFileSystem(MemoryFileSystem):
    """Counts syncs, and lets others run while one is under way."""

    syncs = 0

    def apply(self, call: str, *arguments: object) -> None:
        if call == "datasync":
            self.syncs += 1
            threading.Event().wait(0.001)
        super().apply(call, *arguments)


def test_kinds_of_a_transactions_records(tmp_path: Path) -> None:
    with LogToFile(str(tmp_path / "log")) as log:
        put(log, "one")
        aborted = log.begin()
        log.abort(aborted)
    kinds = [record.kind for record in reading_of(tmp_path).records()]
    once = [Kind.CONTROL, Kind.BEGIN, Kind.ADD, Kind.COMMIT]
    assert kinds == [*once, Kind.CONTROL, Kind.BEGIN, Kind.ROLLBACK]


def creation(container: int) -> bytes:
    fields = {
        "containerId": Container(PAGE.segment, container),
        "containerVersion": 0,
        "operation": operations.CONTAINER_CREATE,
        "createByteArray": "",
    }
    return encode_operation(operations.CONTAINER_CHANGE, fields)


@pytest.mark.parametrize("created", [True, False])
@pytest.mark.parametrize("between", [True, False])
def test_page_that_was_filled_without_log_records_is_no_reason_to_refuse(
    tmp_path: Path, created: bool, between: bool
) -> None:
    folder = str(tmp_path / "log")
    with LogToFile(folder) as log:
        builder = log.begin()
        if created:
            log.log(builder, creation(PAGE.container))
        log.log(builder, insert(1), row("before"))
        log.commit(builder)
        if between:  # so the builder's work was done, and nothing explains what is missing
            put(log, "between", 2)
        put(log, "after", 52)
    with LogToFile(folder) as log:
        assert committed(log) == ["before", *["between"] * between, "after"]
    reading = reading_of(tmp_path)
    (gap,) = reading.recovery.gaps
    assert (gap.after_first, gap.before_second) == (2 + between, 52)
    assert gap.file == "seg0/c490.dat"
    verdict = reading.verdict()
    assert verdict.strict["lost"]["records"] == 0
    assert not any(one.refuses for one in verdict.differences)
    if created and not between:
        assert reading.recovery.boots is True
        assert list(verdict.strict["findings"]) == ["unlogged-build"]
        assert verdict.differences == ()
    else:
        assert reading.recovery.boots is None
        (finding,) = reading.findings()
        assert finding.code == "page-gap"
        assert "seg0/c490.dat" in finding.message


@pytest.mark.parametrize(
    ("control", "found"),
    [(Control(0, minor=17), "10.17"), (Control(0, flags=FLAG_BETA), "10.14 beta")],
)
def test_version_that_is_not_written_is_named_and_not_called_damage(
    tmp_path: Path, control: Control, found: str
) -> None:
    folder = tmp_path / "log"
    with LogToFile(str(folder)) as log:
        put(log, "one")
    for name in CONTROL_NAMES:
        (folder / name).write_bytes(encode_control(control))
    before = (folder / "log1.dat").read_bytes()
    with pytest.raises(UnsupportedFormatError) as caught:
        LogToFile(str(folder))
    assert (folder / "log1.dat").read_bytes() == before
    assert caught.value.found == found


# -- what an error leaves ------------------------------------------------------------------------


def test_a_checkpoint_whose_pages_cannot_be_written_leaves_no_transaction() -> None:
    fs = MemoryFileSystem()
    log = LogToFile(FOLDER, fs=fs, switch_interval=4096)

    def clean() -> None:
        raise OSError(errno.ENOSPC, "no space for the pages")

    with pytest.raises(OSError, match="no space for the pages"):
        log.checkpoint(clean)
    assert not log.open_transactions
    log.switch_log_file()
    log.checkpoint()
    assert "log1.dat" not in fs.list(FOLDER)
    log.close()
    assert not LogToFile(FOLDER, fs=fs).open_transactions


def test_a_close_that_cannot_write_the_rest_releases_the_log() -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    log = LogToFile(FOLDER, fs=fs)
    log.commit(log.begin())
    log.begin()
    fs.fault = Fault(1, calls=WRITES, error=errno.EIO)
    with pytest.raises(LogPoisonedError):
        log.close()
    with LogToFile(FOLDER, fs=fs) as again:
        assert not again.open_transactions


def test_the_newer_of_two_checkpoints_is_the_one_that_the_control_file_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = MemoryFileSystem()
    log = LogToFile(FOLDER, fs=fs, switch_interval=4096)
    write_control, threads = LogFolder.write_control, list[threading.Thread]()

    def another() -> None:
        log.switch_log_file()
        log.checkpoint()

    def overtaken(self: LogFolder, control: Control) -> None:
        if not threads:
            threads.append(threading.Thread(target=another))
            threads[0].start()
            threads[0].join(0.2)
        write_control(self, control)

    monkeypatch.setattr(LogFolder, "write_control", overtaken)
    log.checkpoint()
    threads[0].join()
    log.close()
    LogToFile(FOLDER, fs=fs).close()


def test_appends_beside_a_failing_write_leave_a_log_that_can_be_opened() -> None:
    fs = MemoryFileSystem()
    log = LogToFile(FOLDER, fs=fs, buffer_size=400)
    log.commit(log.begin())
    log.append(b"x" * 200)
    file = log._access._file
    inside, write, failed = threading.Event(), file.pwrite, threading.Event()

    def failing(data: bytes | memoryview, offset: int) -> None:
        if not inside.is_set():
            inside.set()
            failed.wait(0.3)  # until the buffers of the other thread are full
            raise OSError(errno.ENOSPC, "no space")
        write(data, offset)

    def append() -> None:
        inside.wait()
        with pytest.raises(LogPoisonedError):
            for _ in range(20):
                log.append(b"y" * 200)

    file.pwrite = failing  # type: ignore[method-assign]
    other = threading.Thread(target=append)
    other.start()
    with pytest.raises(LogPoisonedError):
        log.flush(log.end - 1)
    other.join()
    log.close()
    with LogToFile(FOLDER, fs=fs) as again:
        assert not again.open_transactions
