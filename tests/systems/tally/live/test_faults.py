"""Every fault point, for every n: what was acknowledged is there, and nothing else is believed."""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Callable, Iterator

import pytest

from tallystick.errors import LogPoisonedError, LogUnreadableError, TallystickError
from tallystick.services.journal import Journal
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.format.layout import CONTROL_NAME, COPY_OFFSET, DATA_OFFSET, SUFFIX
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.journal import TallyJournal
from tallystick.systems.tally.live.shared.replica import Replica
from tallystick.systems.tally.live.tail import Tail
from tallystick.testing import (
    CHANGES,
    READS,
    WRITES,
    FailedSync,
    Fault,
    FaultyFileSystem,
    MemoryFileSystem,
    every_fault,
)
from tests.systems.tally.build import FOLDER, TINY, say
from tests.systems.tally.script import Live, Script, recover, short_script


def _run(fs: FaultyFileSystem) -> tuple[list[Live], int]:
    """Run the script until the fault strikes; the models and the last step acknowledged."""
    done = [0]
    script = None
    try:
        script = Script(Journal(FOLDER, fs=fs, settings=TINY), after=done.append)
        short_script(script)
        script.journal.close()
    except (TallystickError, OSError):
        assert fs.struck, "an error without a fault"
    return (script.models if script else [{}]), done[-1]


def _check(fs: FaultyFileSystem) -> None:
    models, acknowledged = _run(fs)
    inner = fs.inner
    assert isinstance(inner, MemoryFileSystem)
    found = recover(MemoryFileSystem(_contents(inner)))
    assert found in models[acknowledged:], f"step {acknowledged} was acknowledged"


def _contents(fs: MemoryFileSystem) -> dict[str, bytes]:
    files = {}
    for name in fs.list(FOLDER):
        file = fs.open(f"{FOLDER}/{name}")
        files[f"{FOLDER}/{name}"] = file.pread(file.size(), 0)
        file.close()
    return files


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("error", "partial"), [(errno.EIO, 0.0), (errno.ENOSPC, 0.5)], ids=["EIO", "ENOSPC"]
)
def test_every_change_that_fails(
    error: int, partial: float, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = 0
    faults = every_fault(
        MemoryFileSystem, lambda nth: Fault(nth, calls=CHANGES, error=error, partial=partial)
    )
    for fs in faults:
        _check(fs)
        tried += 1
    say(capsys, f"tally: {tried} failing changes with {errno.errorcode[error]}")
    assert tried > 100


@pytest.mark.long
@pytest.mark.parametrize("how", [FailedSync.ORDERED, FailedSync.REVERTED])
def test_every_sync_that_fails_and_forgets(how: FailedSync) -> None:
    for fs in every_fault(MemoryFileSystem, lambda nth: Fault(nth, calls={"datasync"}, sync=how)):
        _check(fs)


def test_every_read_that_fails_while_opening_leaves_the_log_as_it_was() -> None:
    inner = MemoryFileSystem()
    script = Script(Journal(FOLDER, fs=inner, settings=TINY))
    short_script(script)
    script.journal.close()
    before = _contents(inner)
    for nth in range(1, 100):
        fs = FaultyFileSystem(MemoryFileSystem(before), Fault(nth, calls=READS))
        try:
            Journal(FOLDER, fs=fs, settings=TINY).close()
        except (LogUnreadableError, OSError, TallystickError):
            assert fs.struck
            assert recover(MemoryFileSystem(_contents(fs.inner))) == script.models[-1]  # type: ignore[arg-type]
        if not fs.struck:
            return
    raise AssertionError("more than 99 reads to open a small log")


def test_short_writes_and_interrupted_calls_change_nothing() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), short_writes=True)
    script = Script(Journal(FOLDER, fs=fs, settings=TINY))
    short_script(script)
    script.journal.close()
    assert recover(MemoryFileSystem(_contents(fs.inner))) == script.models[-1]  # type: ignore[arg-type]


READERS: dict[str, Callable[[Journal], int]] = {
    "replay": lambda log: len(list(log.replay())),
    "replay from the middle": lambda log: len(list(log.replay(40))),
    "live records": lambda log: len(list(log.live_records())),
    "compact": lambda log: log.compact(force=True),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("reader", READERS)
def test_what_a_failing_disk_does_not_give_back_is_an_error_and_never_left_out(
    reader: str, lasting: bool
) -> None:
    whole = _many_segments()
    expected = READERS[reader](Journal(FOLDER, fs=MemoryFileSystem(whole), settings=TINY))
    for number in itertools.count(1):
        fs = FaultyFileSystem(MemoryFileSystem(whole))
        log = Journal(FOLDER, fs=fs, settings=TINY)
        fs.fault = Fault(number, calls=READS, lasting=lasting)
        try:
            assert READERS[reader](log) == expected
        except TallystickError:
            assert fs.struck, "an error without a fault"
        if not fs.struck or number > 60:
            break
        fs.fault = None
        with contextlib.suppress(LogPoisonedError):
            log.close()
    assert number > 20


def _tail_of(log: Journal, fs: FileSystem) -> Iterator[int | None]:
    """Return the LSNs that the log's own process reads, from the first record on."""
    engine = log._engine
    assert isinstance(engine, TallyJournal)
    tail = engine.tail(0)
    tail._fs = fs
    return (one.sequence for one in tail.read())


def _tail_elsewhere(log: Journal, fs: FileSystem) -> Iterator[int | None]:
    """Return those that another process reads."""
    del log
    return (one.sequence for one in Tail(FOLDER, fs=fs).read())


def _replica(log: Journal, fs: FileSystem) -> Iterator[int | None]:
    """Return the ids that are live to a member of a shared log, which has read a part before."""
    engine = log._engine
    assert isinstance(engine, TallyJournal)
    replica = Replica(fs, FOLDER, None)
    replica.read(engine.log.durable_lsn // 2)
    state = replica.read(engine.log.durable_lsn)
    return iter(sorted(state.live))


ONWARD_READERS = [_tail_of, _tail_elsewhere, _replica]
GIVES_BACK: dict[str, Callable[[str, bytes], bytes]] = {
    "nothing": lambda *_: b"",
    "its head": lambda _, data: data[:DATA_OFFSET],
    "a half": lambda _, data: data[: len(data) // 2],
    "zeros": lambda _, data: data[:DATA_OFFSET] + bytes(len(data) - DATA_OFFSET),
}


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("reader", ONWARD_READERS)
def test_a_failing_disk_leaves_nothing_out_for_those_who_read_on(
    reader: Callable[[Journal, FileSystem], Iterator[int | None]], lasting: bool
) -> None:
    memory = MemoryFileSystem(_many_segments())
    with Journal(FOLDER, fs=memory, settings=TINY) as log:
        expected = list(reader(log, memory))
        for number in itertools.count(1):
            fs = FaultyFileSystem(memory, Fault(number, calls=READS, lasting=lasting))
            found: list[int | None] = []
            try:
                found.extend(reader(log, fs))
                assert found == expected
            except TallystickError:
                assert fs.struck, "an error without a fault"
                assert found == expected[: len(found)]
            if not fs.struck or number > 60:
                break
    assert number > 20


@pytest.mark.parametrize("given", GIVES_BACK)
@pytest.mark.parametrize("reader", ONWARD_READERS)
def test_a_segment_that_gives_back_less_is_told_to_those_who_read_on(
    reader: Callable[[Journal, FileSystem], Iterator[int | None]], given: str
) -> None:
    whole = _many_segments()
    memory = MemoryFileSystem(whole)
    with Journal(FOLDER, fs=memory, settings=TINY) as log:
        expected = list(reader(log, memory))
        segments = [path for path in whole if path.endswith(SUFFIX)]
        assert len(segments) > 4
        for path in segments:
            fs = MemoryFileSystem(whole | {path: GIVES_BACK[given](path, whole[path])})
            found: list[int | None] = []
            with contextlib.suppress(TallystickError):
                found.extend(reader(log, fs))
                assert found == expected, path
            assert found == expected[: len(found)]


def _many_segments() -> dict[str, bytes]:
    fs = MemoryFileSystem()
    with Journal(FOLDER, fs=fs, settings=TINY) as log:
        for number in range(1, 60):
            log.add(number, bytes(900))
        for number in range(1, 60, 2):
            log.delete(number)
    return fs.contents()


def test_no_failed_write_of_a_recovery_damages_the_only_whole_copy_of_the_control_block() -> None:
    made = MemoryFileSystem()
    with TallyLog(FOLDER, settings=TINY, fs=made) as log:
        log.append(b"one").wait()
    with contextlib.closing(made.open(f"{FOLDER}/{CONTROL_NAME}")) as control:
        control.pwrite(b"damaged", COPY_OFFSET)  # the last write to it has failed half way
    contents = made.contents()

    def torn(nth: int) -> Fault:
        return Fault(nth, calls=WRITES, partial=0.5)

    for fs in every_fault(lambda: MemoryFileSystem(contents), torn):
        with contextlib.suppress(TallystickError), TallyLog(FOLDER, settings=TINY, fs=fs):
            pass
        assert isinstance(fs.inner, MemoryFileSystem)
        with TallyLog(FOLDER, settings=TINY, fs=MemoryFileSystem(fs.inner.contents())) as log:
            assert log.next_lsn == 2
