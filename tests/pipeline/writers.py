"""Logs at work beside a stream: they grow, roll, are used again or moved away.

Each writer numbers what it appends, and lets no file go that the stream has not read: the native
log asks its reader's hold, and the others, whose files are written again in place, wait until the
stream has committed all other files. Before that they are copied aside, so that a batch can
read everything there ever was.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.disposal.disposers import MoveDisposer
from tallystick.disposal.retention import KeepForReader, ReaderOffset
from tallystick.disposal.worker import LogDisposer, Postponed
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.source.positions import UNREAD, Position, reader_offset
from tallystick.pipeline.source.tailer import Tailer
from tallystick.systems.bitronix.format.layout import ACTIVE, COMMITTED, COMMITTING
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.jboss.format.bodies import UID_SIZE, ObjectState, pack_object_state
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.tally.format.layout import SEGMENT_SIZE_MIN, segment_name
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings
from tests.pipeline.streaming import Stream

PAUSE_SECONDS = 0.1
FILE_BYTES = 16 << 10
ROLL_ROOM = 2_000
"""Bytes left in a file of a pair when its change is near."""

RING_RECORDS = 100
"""Records of the ring's files, which have space for a few more."""

OPEN_DECISIONS = 3

LIVE_RECORDS = 40
"""Records of the journal that are not deleted yet: they keep its files."""


def committed(checkpoint: Path) -> Position:
    """How far the stream came with the last step that Spark's checkpoint says is done."""
    steps = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    if not steps:
        return {}
    lines = (checkpoint / "offsets" / str(max(steps))).read_text().splitlines()
    position: Position = json.loads(lines[2])
    return position


class _Stopped(Exception):  # noqa: N818 - the writer is told to stop
    """Raised where a file would have to go before the stream has read it."""


@dataclass
class Writer(ABC):
    """Writes to ``home/log`` in a thread, until stopped, for streams that must not miss a file.
    ``written`` counts what it numbered, ``limit`` is where it waits, ``changed`` counts how often
    files were given up."""

    home: Path
    streams: list[Stream]
    limit: int = 0
    written: int = 0
    changed: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def path(self) -> str:
        return str(self.home / "log")

    def start(self) -> None:
        """Write in a thread until stopped."""
        self.home.mkdir(parents=True)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Leave the log closed."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        choice = random.Random(1)
        write, close = self.open()
        with ExitStack() as stack, suppress(_Stopped):
            stack.callback(close)
            while not self._stopped.wait(PAUSE_SECONDS):
                for _ in range(min(choice.randint(1, 5), self.limit - self.written)):
                    write(self.written)
                    self.written += 1

    @abstractmethod
    def open(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Open the log: a function that writes the record of a number, and one that closes."""

    def archives(self) -> list[Path]:
        """Folders that hold what was given up, to be read as what they are."""
        return sorted((self.home / "archive").glob("*"))

    def set_aside(self) -> None:
        """Wait until all streams have read all files but the newest, and copy them all."""
        tailer = Tailer(SourceOptions((self.path,)))
        while True:
            ((key, newest),) = tailer.latest().items()
            done = [committed(one.checkpoint) for one in self.streams]
            if all(one.get(key, UNREAD)["number"] >= newest["number"] for one in done):
                shutil.copytree(self.path, self.home / "archive" / f"{self.changed:04}")
                self.changed += 1
                return
            if self._stopped.wait(PAUSE_SECONDS):
                raise _Stopped


class NativeWriter(Writer):
    """Rolls now and then; segments are moved away once the stream is through with them."""

    settings = Settings(segment_size=4 * SEGMENT_SIZE_MIN, recycle=False, spares=0)

    def open(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        log = self._open()
        choice = random.Random(2)

        def write(number: int) -> None:
            log.append(f"record {number}".encode()).wait()
            if choice.random() < 0.03:
                log.roll()
                self._dispose(log)

        return write, log.close

    def dispose(self) -> None:
        """Once more, after the stream has read everything."""
        with self._open() as log:
            self._dispose(log)

    def archives(self) -> list[Path]:
        return [self.home / "archive"]

    def _open(self) -> TallyLog:
        log = TallyLog(self.path, settings=self.settings)
        readers = [KeepForReader(offset, MoveDisposer("nowhere")) for offset in self._offsets()]
        log.ask_before_reclaiming(lambda path: all(one.agrees(path) for one in readers))
        return log

    def _offsets(self) -> list[ReaderOffset]:
        """How far each stream has read."""
        return [reader_offset(str(one.hold), self.path) for one in self.streams]

    def _disposer(self) -> LogDisposer:
        disposer: LogDisposer = MoveDisposer(str(self.home / "archive"))
        for offset in self._offsets():
            disposer = KeepForReader(offset, disposer)
        return disposer

    def _dispose(self, log: TallyLog) -> None:
        log.reclaim(log.next_lsn)
        for number in range(log.first_segment):
            path = Path(self.path, segment_name(number))
            if path.exists():
                try:
                    self._disposer().dispose(str(path))
                except Postponed:
                    return
                self.changed += 1


class JournalWriter(Writer):
    """The ring of files: records are added and deleted, and emptied files used again."""

    def open(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        journal = JBossRecordJournal(self.path, JournalSettings(file_size=FILE_BYTES))

        def write(number: int) -> None:
            if number % RING_RECORDS == RING_RECORDS - 1:
                self.set_aside()
                journal.journal.force_move_next_file()
            journal.add(number + 1, f"record {number}".encode()).wait()
            if number >= LIVE_RECORDS:
                journal.delete(number + 1 - LIVE_RECORDS).wait()

        return write, journal.close


class StatesWriter(Writer):
    """Objects of Narayana's store, which come and change; of their table all files are needed."""

    def open(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        settings = JournalSettings(prefix="jbossts", extension="txlog", file_size=FILE_BYTES)
        journal = JBossRecordJournal(self.path, settings)

        def write(number: int) -> None:
            journal.add(number + 1, _state(number, f"record {number}")).wait()
            if number >= LIVE_RECORDS and number % 3 == 0:
                changed = number - LIVE_RECORDS
                journal.update(changed + 1, _state(changed, f"later {changed}")).wait()

        return write, journal.close


def _state(number: int, text: str) -> bytes:
    uid = number.to_bytes(UID_SIZE, "big")
    return pack_object_state(ObjectState(uid, "Test/Kind", text.encode()))


class DecisionWriter(Writer):
    """The pair of files: each decision is closed a little later, so some are carried over."""

    def open(self) -> tuple[Callable[[int], None], Callable[[], None]]:
        journal = DiskJournal(self.path, max_log_size=FILE_BYTES)
        names = {"jdbc/a", "jdbc/b"}
        near = [0]

        def write(number: int) -> None:
            if journal.active.free_bytes < ROLL_ROOM and near != [journal.active.timestamp]:
                near[:] = [journal.active.timestamp]
                self.set_aside()
            journal.log(ACTIVE, _gtrid(number), set())
            journal.log_forced(COMMITTING, _gtrid(number), names).wait()
            if number >= OPEN_DECISIONS:
                journal.log(COMMITTED, _gtrid(number - OPEN_DECISIONS), names)

        return write, journal.close


def _gtrid(number: int) -> bytes:
    return b"site-1" + number.to_bytes(12, "big")
