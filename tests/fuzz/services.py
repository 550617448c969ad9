"""Mutants of what services keep, and of encrypted logs: ``python -m tests.fuzz.services``.

In: the folder of a service at work, of which any file is damaged: coordinator, journal with
outcomes, shared log, backup, page store, write-behind; and encrypted logs, whose mutants are made
of the cipher text and, with the key, of what it hides. Out: mutants that break one of these:

* only errors of `tallystick.errors` come out of opening, using and closing;
* the processor time is bounded, so is the time, and no thread is left;
* reading changes no file;
* what is acknowledged after the folder was opened is there when it is opened again.

    python -m tests.fuzz.services TARGET SECONDS [SEED] [FOLDER]
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from tallystick.errors import CorruptLogError, TallystickError
from tallystick.reading.scrubbing import scrub
from tallystick.reading.survey import survey
from tallystick.roles.decision_log import DecisionOutcome
from tallystick.services.journal import Journal
from tallystick.services.transactions import TransactionManager
from tallystick.services.write_behind import WriteBehind
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import HEADER_SIZE, find_record, read_envelope
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.tally.format import layout, sealing
from tallystick.systems.tally.format.headers import decode_segment_header
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog
from tests.fuzz import bundle
from tests.fuzz.bundle import Bundle
from tests.fuzz.mutate import Mutator
from tests.fuzz.openers import GTRID, MARK, NUMBER
from tests.fuzz.openers import Derby as DerbyOpener
from tests.fuzz.properties import BrokenPropertyError, _require_no_thread
from tests.fuzz.seals import SEALS
from tests.memory import memory
from tests.services.page_store.test_crash_states import small_store
from tests.services.write_behind.kit import Recorder, put, quick, small_log
from tests.systems.tally.build import TINY, every_item

CPU_S, WALL_S = 5.0, 60.0
"""Processor time, and time, that a mutant may take."""
SEGMENT = 16 << 10
"""Bytes of a segment that stay, with what is in it; zeros take the place of others."""
SEGMENT_MAX = 1 << 20
KEY = bytes(range(32))
DERBY_KEY = bytes(range(16))
DERBY_SETTINGS = {"dataEncryption": "true", "encryptionAlgorithm": "AES/CBC/NoPadding"}


@dataclass(frozen=True)
class Target:
    """What is damaged.

    Attributes:
        make: works in an empty folder.
        use: opens what is in a folder, reads and writes.
        seal: whose checksums are made right.
        inside: changes what is encrypted, in one file.
    """

    make: Callable[[Path], None]
    use: Callable[[Path], None]
    seal: str = "tally"
    inside: Callable[[bytearray, random.Random], None] | None = None


# -- services -----------------------------------------------------------------------------------


@contextmanager
def _coordinator(folder: Path) -> Iterator[tuple[TransactionManager, list[Journal]]]:
    journals: list[Journal] = []
    try:
        for name in "ab":
            journals.append(Journal(folder / name, settings=TINY))
        resources = {n: one.as_resource(n) for n, one in zip("ab", journals, strict=True)}
        log = TallyDecisionLog(TallyLog(str(folder / "decisions"), settings=TINY))
        try:
            manager = TransactionManager(
                folder / "tm", resources, log=log, orphan_interval=0.0, recovery_interval=None
            )
        except BaseException:
            log.close()
            raise
        with manager:
            yield manager, journals
    finally:
        for one in journals:
            one.close()


def _make_coordinator(folder: Path) -> None:
    with _coordinator(folder) as (manager, journals):
        for number in range(1, 4):
            with manager.begin() as tx:
                for name in "ab":
                    tx[name].add(number, b"x")
        manager.decisions.decide(b"left open", ("a", "b")).wait()
        journals[0].as_resource("a").identity()


def _use_coordinator(folder: Path) -> None:
    with _coordinator(folder) as (manager, journals):
        manager.recover()
        with manager.begin() as tx:
            for name in "ab":
                tx[name].add(NUMBER, MARK)
        manager.decisions.decide(GTRID, ("a",)).wait()
        for one in journals:
            _require(NUMBER in [record.record_id for record in one.live_records()])
    log = TallyDecisionLog(TallyLog(str(folder / "decisions"), settings=TINY))
    try:
        _require(GTRID in log.open_decisions())
        log.finish(GTRID, ("a",), DecisionOutcome.COMMITTED)
    finally:
        log.close()


def _make_journal(folder: Path, *, shared: bool = False) -> None:
    with Journal(folder / "log", settings=TINY, shared=shared) as log:
        for number in range(1, 40):
            log.add(number, bytes(200))
        log.checkpoint()
        if not shared:
            log.backup(folder / "copy")


def _use_journal(folder: Path, *, shared: bool = False) -> None:
    with Journal(folder / "log", settings=TINY, shared=shared) as log:
        log.append(MARK)
        log.checkpoint()
    with Journal(folder / "log", settings=TINY, shared=shared) as log:
        _require(MARK in [one.body for one in log.replay()])


def _use_backup(folder: Path) -> None:
    scrub(folder, rate=0)
    _use_journal(folder)
    with Journal(folder / "copy", settings=TINY) as log:
        list(log.live_records())
        log.append(MARK)
        log.backup(folder / "second")


def _make_behind(folder: Path) -> None:
    target = Recorder()
    log = small_log("tally", str(folder / "spool"))
    with WriteBehind(folder / "spool", {"one": target}, log=log, settings=quick()) as behind:
        for number in range(8):
            behind.commit([put(b"%d" % number, bytes(300))])
        behind.drain(30)


def _use_behind(folder: Path) -> None:
    for commit in (True, False):
        target = Recorder()
        log = small_log("tally", str(folder / "spool"))
        try:
            behind = WriteBehind(
                folder / "spool",
                {"one": target},
                log=log,
                settings=quick(),
                on_incomplete="replay",
            )
        except BaseException:
            log.close()
            raise
        with behind:
            if commit:
                behind.commit([put(b"key", MARK)])
                _require(behind.drain(30))


def _make_store(folder: Path) -> None:
    with small_store(folder / "store", "tally", cache_bytes=0) as store:
        store.create_table("t")
        for number in range(60):
            with store.begin() as tx:
                tx.table("t")[number] = b"%d" % number * 80
            if number % 25 == 24:
                store.checkpoint()
        store.backup(folder / "copy")


def _use_store(folder: Path) -> None:
    for name in ("store", "copy"):
        with small_store(folder / name, "tally", cache_bytes=0) as store:
            store.check()
            with store.begin() as tx:
                tx.table("t")[NUMBER] = MARK
            store.checkpoint()
        with small_store(folder / name, "tally") as store, store.begin() as tx:
            _require(tx.table("t")[NUMBER] == MARK)


# -- encrypted logs -----------------------------------------------------------------------------


def _make_sealed(folder: Path) -> None:
    log = TallyLog(str(folder / "log"), settings=TINY, key=lambda: KEY)
    for item in every_item() * 3:
        log.submit(item)
        log.flush()  # several groups, each with a seal of its own
    log.close()


def _use_sealed(folder: Path) -> None:
    _read(folder, ReadOptions(encryption_key=KEY))
    with Journal(folder / "log", settings=TINY, key=lambda: KEY) as log:
        log.append(MARK)
    with Journal(folder / "log", settings=TINY, key=lambda: KEY) as log:
        _require(MARK in [one.body for one in log.replay()])


def _inside_sealed(data: bytearray, rng: random.Random) -> None:
    """Encrypt every group anew: each authenticates the checksum of the one before it."""
    at, size = layout.DATA_OFFSET, layout.HEADER_SIZE
    (chain,) = struct.unpack_from("<I", data, 508) if len(data) > at else (0,)
    while (header := layout.decode_group_header(data, at)) is not None:
        end = at + header.length
        place = slice(at + size, at + size + header.stored)
        try:
            plain = bytearray(sealing._decrypt(data[place], header, KEY))
        except CorruptLogError:
            return
        if rng.random() < 0.5:
            _damage(plain, rng)
        header = replace(header, chain=chain)
        data[place] = sealing.encrypt(bytes(plain), header, KEY)
        crc = crc32(bytes(data[at + size : end - size]))
        data[at : at + size] = layout.encode_group_header(replace(header, payload_crc=crc))
        data[end - size : end] = data[at : at + size]
        (chain,) = struct.unpack_from("<I", data, at + layout.CHECKSUM_AT)
        at = end


def _derby_cipher() -> LogCipher:
    return LogCipher("AES/CBC/NoPadding", DERBY_KEY)


def _open_derby(folder: Path) -> LogToFile:
    return LogToFile(
        str(folder / "log"),
        buffer_size=512,
        switch_interval=4096,
        archive=True,
        cipher=_derby_cipher(),
    )


class _SealedDerby(DerbyOpener):
    def __init__(self, folder: Path) -> None:
        super().__init__(bundle.in_memory({}, "/log"))
        self.log.close()
        self.log = _open_derby(folder)


def _make_derby(folder: Path) -> None:
    opener = _SealedDerby(folder)
    for _ in range(6):
        opener.write()
    opener.close()


def _use_derby(folder: Path) -> None:
    _read(folder, ReadOptions(encryption_key=DERBY_KEY, settings=DERBY_SETTINGS))
    for write in (True, False):
        opener = _SealedDerby(folder)
        try:
            if write:
                opener.write()
            else:
                _require(opener.holds())
        finally:
            opener.close()


def _inside_derby(data: bytearray, rng: random.Random) -> None:
    cipher = _derby_cipher()
    place = find_record(memoryview(bytes(data)), 1, HEADER_SIZE)
    while (
        place is not None
        and (envelope := read_envelope(memoryview(bytes(data)), place)) is not None
    ):
        body = slice(envelope.body, envelope.body + envelope.length)
        if rng.random() < 0.3 and not envelope.length % 16:
            plain = bytearray(cipher.decrypt(bytes(data[body])))
            _damage(plain, rng)
            data[body] = cipher.encrypt(bytes(plain))
        place = find_record(memoryview(bytes(data)), 1, envelope.end)


def _damage(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 6))):
        at = rng.randrange(min(len(data), rng.choice((8, 64, 4096))) or 1)
        data[at : at + 1] = bytes([rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))])


def _read(folder: Path, options: ReadOptions) -> None:
    before = _contents(folder)
    try:
        found = survey(folder, options=options)
        for source in found.logs:
            with found.guard(source):
                reading = found.read(source)
                list(reading.files())
                list(reading.records())
                list(reading.batches())
                reading.verdict()
    finally:
        if _contents(folder) != before:
            raise BrokenPropertyError("reading changed the files")


TARGETS = {
    "coordinator": Target(_make_coordinator, _use_coordinator),
    "backup": Target(_make_journal, _use_backup),
    "shared-log": Target(
        lambda folder: _make_journal(folder, shared=True),
        lambda folder: _use_journal(folder, shared=True),
    ),
    "write-behind": Target(_make_behind, _use_behind),
    "page-store": Target(_make_store, _use_store),
    "sealed-tally": Target(_make_sealed, _use_sealed, "tally", _inside_sealed),
    "sealed-derby": Target(_make_derby, _use_derby, "derby", _inside_derby),
}


# -- trying ---------------------------------------------------------------------------------------


def _require(held: bool) -> None:
    if not held:
        raise BrokenPropertyError("an acknowledged item is lost")


def _contents(folder: Path) -> Bundle:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def made(name: str) -> Bundle:
    """Return the files of a target at work, with little of the fill at their ends."""
    with tempfile.TemporaryDirectory() as folder:
        TARGETS[name].make(Path(folder))
        found = _contents(Path(folder))
    return {
        path: one.rstrip(b"\0").ljust(SEGMENT, b"\0")
        if len(one) > SEGMENT and _is_log(path)
        else one
        for path, one in found.items()
    }


def _is_log(path: str) -> bool:
    return "/log/" in path or "/spare" in path


def mutant(name: str, files: Bundle, seed: int) -> Bundle:
    """Return a mutant of these files."""
    target, rng = TARGETS[name], random.Random(seed)
    if target.inside is not None and rng.random() < 0.5:
        changed = {path: bytearray(content) for path, content in files.items()}
        for path, content in changed.items():
            target.inside(content, rng)
            SEALS[target.seal](path, content)
        return {path: bytes(content) for path, content in changed.items()}
    mutator = Mutator(target.seal, (files,), lambda data, size: rng.randbytes(len(data))[:size])
    return mutator.mutant(files, seed)


def check(name: str, files: Bundle, folder: Path) -> bool:
    """Use a mutant; return whether it could be used to the end.

    Args:
        name: of the target.
        files: the mutant.
        folder: an empty folder, which is empty again afterwards.

    Raises:
        BrokenPropertyError: a property does not hold.
    """
    bundle.write(files, folder)
    _lengthen(files, folder)
    threads = threading.enumerate()
    try:
        with _bounded(), warnings.catch_warnings():
            warnings.simplefilter("error")
            TARGETS[name].use(folder)
        return True
    except TallystickError:
        return False
    except BrokenPropertyError:
        raise
    except Exception as error:
        raise BrokenPropertyError("an error that is not documented", error) from error
    finally:
        for path in list(folder.iterdir()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        _require_no_thread(threads)


def _lengthen(files: Bundle, folder: Path) -> None:
    """Give the segments that `made` has shortened the size in their headers."""
    for path, content in files.items():
        header = decode_segment_header(content) if _is_log(path) else None
        if header is not None and SEGMENT <= len(content) < header.size <= SEGMENT_MAX:
            os.truncate(folder / path, header.size)


class _Late(BaseException):
    """A limit of time; no handler of the code under test catches it."""


@contextmanager
def _bounded() -> Iterator[None]:
    def late(*_: object) -> None:
        raise _Late

    timers = {
        signal.ITIMER_PROF: (signal.SIGPROF, CPU_S),
        signal.ITIMER_REAL: (signal.SIGALRM, WALL_S),
    }
    before = {number: signal.signal(number, late) for number, _ in timers.values()}
    for timer, (_, seconds) in timers.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    except _Late as error:
        raise BrokenPropertyError("a limit of time", error) from error
    finally:
        for timer, (number, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def main(name: str, seconds: str, seed: str = "1", kept: str = "out/fuzz-services") -> int:
    """Try mutants for some seconds; keep those that break a property. Returns their number."""
    files, first, tried, used = made(name), int(seed), 0, 0
    problems: dict[str, int] = {}
    end = time.monotonic() + float(seconds)
    place = Path(kept) / name
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        while time.monotonic() < end:
            changed = mutant(name, files, first + tried)
            tried += 1
            try:
                used += check(name, changed, Path(folder))
            except BrokenPropertyError as problem:
                if problem.key not in problems:
                    place.mkdir(parents=True, exist_ok=True)
                    (place / f"{first + tried - 1}.bundle").write_bytes(bundle.encode(changed))
                    sys.stdout.write(f"{name}: PROBLEM {problem.key}\n")
                problems[problem.key] = problems.get(problem.key, 0) + 1
    sys.stdout.write(f"{name}: {tried} mutants from {first}, {used} used to the end, {problems}\n")
    return len(problems)


if __name__ == "__main__":
    import logging

    logging.disable()
    sys.exit(main(*sys.argv[1:]))
