"""What every mutant of a log must satisfy: reading it, explaining it, and opening it for writing.

In: the files of a mutant. Out: what was reached, or a `BrokenPropertyError` that names it:

* only errors of `tallystick.errors` come out, and no warning;
* the processor time is bounded by the size, and so is the memory;
* the input stays as it is, and no file comes beside it;
* the spans tile every file;
* `scan` and `read_arrow` tell the same of every record, and both end with an error or neither does;
* the text of `explain` holds no control character;
* what a log acknowledges after it was opened is there when it is opened again.

What costs most is checked of a part of the mutants, chosen by their content: every second is
opened, every eighth read with attributes, every sixteenth in splits, as every table, and explained.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tallystick.arrow.schemas import RECORDS, plain, record_batches
from tallystick.errors import TallystickError
from tallystick.printable import printable
from tallystick.reading.names import log_name
from tallystick.reading.results import headline
from tallystick.reading.survey import Survey, survey
from tallystick.reading.tables import TABLES, batches_of, salvaged_batches
from tallystick.systems.protocol import AttributeBatches, LogReading
from tallystick.systems.registry import NATIVE
from tallystick.testing import MemoryFileSystem, check_tiling
from tests.fuzz import bundle, openers
from tests.fuzz.bundle import Bundle
from tests.kit import same_rows

SECONDS = 2.0
SECONDS_PER_MIB = 60.0
COMPILING_S = 60.0
"""Processor time that a mutant may take: for itself, and for each MiB of its files.

Kernels run as plain Python here, and instrumented; a loop over pairs of bytes still is far beyond.
Where they are compiled, the first mutants also pay for that.
"""
MEMORY = 192 << 20
"""Bytes by which a mutant may raise the peak of the process; they hold 1 MiB of files at most."""
DERBY = "derby"
"""For its records no fields are decoded: a body that a right CRC covers is taken as it is."""
ALONE = (NATIVE, DERBY, "cloudtran")
"""Systems of which a part is read without what is before it; damage there leaves nothing out."""
THREAD_S = 60.0
"""Time that a thread of a closed log may take to end."""
FAR_PAST_S = 1_000_000_000


class TooSlowError(BaseException):
    """The limit of processor time was reached; no handler of the code under test catches it."""


class BrokenPropertyError(Exception):
    """A property that does not hold.

    Attributes:
        key: the same for mutants that break it at the same place.
    """

    def __init__(self, what: str, error: BaseException | None = None) -> None:
        super().__init__(what)
        self.key = f"{what} at {_place(error)}" if error is not None else what


def _place(error: BaseException) -> str:
    """Return the innermost line of our own code in the trace of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [one for one in frames if "/tallystick/" in one.filename] or frames
    where = ours[-1]
    return f"{type(error).__name__} {Path(where.filename).name}:{where.lineno} {where.name}"


@dataclass
class Counters:
    """How far the mutants came."""

    reached: dict[str, int] = field(default_factory=dict)

    def add(self, what: str, count: int = 1) -> None:
        """Count something that was reached."""
        self.reached[what] = self.reached.get(what, 0) + count


_TURNS = (0, 2, 1, 3, 5, 7, 9, 11)
"""Turns with which everything is checked, each opener too."""


def broken(system: str, files: Bundle, *, compiled: bool = False) -> dict[str, int]:
    """Return the properties that a mutant breaks, each with a turn that shows it."""
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(system, Path(folder), compiled=compiled)
        for turn in _TURNS:
            try:
                checker.check(files, turn)
            except BrokenPropertyError as error:
                found.setdefault(error.key, turn)
    return found


class Checker:
    """Checks the properties of mutants of one system.

    Args:
        system: Its name.
        folder: An empty folder, best in memory, that is emptied again after each mutant.
        compiled: Kernels run compiled.
    """

    def __init__(self, system: str, folder: Path, *, compiled: bool = False) -> None:
        self.system = system
        self._seconds = COMPILING_S if compiled else SECONDS
        self.counters = Counters()
        self._folder = folder

    def check(self, files: Bundle, turn: int | None = None) -> None:
        """Check one mutant.

        Args:
            files: The mutant.
            turn: Chooses what is checked of a part of the mutants only; by their content where
                None.

        Raises:
            BrokenPropertyError: a property does not hold.
        """
        if turn is None:
            turn = zlib.crc32(b"".join(files.values()))
        size, threads = sum(map(len, files.values())), threading.enumerate()
        with self._bounded(size), warnings.catch_warnings():
            warnings.simplefilter("error")
            self._read(files, turn)
            if turn & 1:
                self._open(files, turn >> 1)
        _require_no_thread(threads)

    # -- bounds ---------------------------------------------------------------------------

    @contextmanager
    def _bounded(self, size: int) -> Iterator[None]:
        limit = self._seconds + size / (1 << 20) * SECONDS_PER_MIB
        resident = _peak_bytes(reset=True)
        before = signal.signal(signal.SIGPROF, _too_slow)
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            yield
        except TooSlowError as error:
            raise BrokenPropertyError(
                f"more than {limit:.1f} s of processor time", error
            ) from error
        except BrokenPropertyError:
            raise
        except Exception as error:
            raise BrokenPropertyError("an error that is not documented", error) from error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
        grown = _peak_bytes() - resident
        if grown > MEMORY:
            raise BrokenPropertyError(f"{grown >> 20} MiB of memory for {size} bytes")

    # -- reading --------------------------------------------------------------------------

    def _read(self, files: Bundle, turn: int) -> None:
        bundle.write(files, self._folder)
        for path in self._folder.rglob("*"):  # nothing is taken for a log that is being written
            os.utime(path, (FAR_PAST_S, FAR_PAST_S))
        try:
            try:
                found = survey(self._folder)
            except TallystickError:
                return
            for source in found.logs:
                self.counters.add("logs" if source.system == self.system else "logs of others")
                try:
                    self._one_log(found, source, turn)
                except TallystickError:
                    self.counters.add("logs that end with an error")
            if turn % 16 == 5:
                self._explained()
            self._untouched(files)
        finally:
            for path in list(self._folder.iterdir()):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _one_log(self, found: Survey, source: Any, turn: int) -> None:
        reading = found.read(source)
        for file in reading.files():
            check_tiling(file)
        if source.system == DERBY and any(one.type == "sealed" for one in reading.records()):
            self.counters.add("logs not compared")
        else:
            records = _same_either_way(reading, attributes=turn % 8 == 3)
            self.counters.add("records", records)
        if turn % 16 == 0 and not (source.system in ALONE and reading.findings()):
            same_rows(reading, rows=1 + turn % 7)
        verdict = reading.verdict()
        headline(verdict)
        if turn % 16 == 2:
            json.dumps(verdict.to_dict())
            for _ in salvaged_batches(reading):
                pass
            for table in TABLES:
                for _ in batches_of(reading, table):
                    pass

    def _explained(self) -> None:
        self.counters.add("explained")
        text = _command_text("explain", str(self._folder)).replace("\n", "")
        if printable(text) != text:
            raise BrokenPropertyError("the text of explain holds control characters")

    def _untouched(self, files: Bundle) -> None:
        left = {
            str(path.relative_to(self._folder)): path.read_bytes()
            for path in self._folder.rglob("*")
            if path.is_file()
        }
        if left != files:
            raise BrokenPropertyError("reading changed the files")

    # -- opening for writing --------------------------------------------------------------

    def _open(self, files: Bundle, turn: int) -> None:
        candidates = openers.OPENERS[self.system]
        opener = candidates[turn % len(candidates)]
        fs = bundle.in_memory(files, openers.FOLDER)
        if not self._written(fs, opener):
            return
        self.counters.add("opened for writing")
        try:
            log = opener(fs)
        except TallystickError as error:
            raise BrokenPropertyError(
                f"{opener.__name__}: refused after its own write", error
            ) from error
        try:
            held = log.holds()
        except TallystickError:  # what the mutant holds beside the item cannot be read
            self.counters.add("refused the reading")
            return
        finally:
            _closed(log)
        if not held:
            raise BrokenPropertyError(f"{opener.__name__}: an acknowledged item is lost")

    def _written(self, fs: MemoryFileSystem, opener: Callable[..., openers.Opener]) -> bool:
        try:
            log = opener(fs)
        except TallystickError:
            self.counters.add("refused for writing")
            return False
        try:
            log.write()
        except TallystickError:
            self.counters.add("refused the write")
            return False
        finally:
            _closed(log)
        return True


def _require_no_thread(before: list[threading.Thread]) -> None:
    for one in threading.enumerate():
        if one not in before:
            one.join(THREAD_S)
            if one.is_alive():
                raise BrokenPropertyError(f"the thread {one.name} is left")


def _closed(log: openers.Opener) -> None:
    try:
        log.close()
    except TallystickError:
        log.close()


def _too_slow(*_: object) -> None:
    raise TooSlowError


def _peak_bytes(*, reset: bool = False) -> int:
    """Return the largest resident size since the last reset, which is the present one after it."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _command_text(command: str, *arguments: str) -> str:
    from click.testing import CliRunner

    from tallystick.cli import tallystick

    answer = CliRunner().invoke(tallystick, [command, *arguments])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return str(answer.output)


def _same_either_way(reading: LogReading, *, attributes: bool) -> int:
    """Compare records one by one with their batches; return how many there are.

    Raises:
        TallystickError: both ways end with it.
    """
    name, clock = log_name(reading.source), reading.clock.value
    one_by_one, error = _rows(lambda: record_batches(reading.records(), name, clock))
    ways: list[tuple[Callable[[], Iterable[pa.RecordBatch]], list[str]]] = [
        (lambda: map(plain, reading.batches()), ["attributes", "log"])
    ]
    if attributes or isinstance(reading, AttributeBatches):
        ways.append((lambda: batches_of(reading, "records"), []))
    for way, without in ways:
        batches, other = _rows(way)
        if type(error) is not type(other):
            raise BrokenPropertyError(
                f"records end with {type(error)}, batches with {type(other)}", other or error
            )
        if error is None:
            _require_same(batches.drop(without), one_by_one.drop(without))
    if error is not None:
        raise error
    return int(one_by_one.num_rows)


def _rows(way: Callable[[], Iterable[pa.RecordBatch]]) -> tuple[pa.Table, TallystickError | None]:
    taken: list[pa.RecordBatch] = []
    try:
        taken.extend(way())
    except TallystickError as error:
        return pa.Table.from_batches(taken, RECORDS), error
    return pa.Table.from_batches(taken, RECORDS), None


def _require_same(ours: pa.Table, expected: pa.Table) -> None:
    if ours.equals(expected):
        return
    if ours.num_rows != expected.num_rows:
        raise BrokenPropertyError("batches have other rows than records")
    for one, other in zip(ours.to_pylist(), expected.to_pylist(), strict=True):
        differing = [name for name in other if one[name] != other[name]]
        if differing:
            raise BrokenPropertyError(
                f"batches differ from records in {differing} of a {other['type']}"
            )
