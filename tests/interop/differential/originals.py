"""The originals: random work that is halted, and many damaged copies opened in one process.

In: a folder and a seed. Out: `Whole`, a halted database or journal with what its work was told;
and `Found`, what the original finds in a copy.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from subprocess import Popen
from tempfile import gettempdir
from typing import Any, Protocol

from tallystick.systems.bitronix.format.layout import COMMITTED, COMMITTING
from tests.interop.bitronix.original import COORDINATES as BITRONIX
from tests.interop.bitronix.original import NEW, OLD, original
from tests.interop.broker.lives import BROKERS, lived
from tests.interop.java import classpath, compile_java, run_java, start_java
from tests.interop.jboss.original import real_journal
from tests.interop.jboss.test_interop import FILE_SIZE, Work
from tests.interop.jboss.test_narayana import STORES, store

HERE = Path(__file__).parent
LIMIT_MS = 1500
"""Processor time after which an original is taken to open for ever."""
_UNFINISHED = shutil.ignore_patterns("*.tmp", "*.cmp")
"""Files that get another name while they are copied."""
PROPERTIES = "service.properties"
Rows = dict[str, str]


@dataclass(slots=True)
class Whole:
    """A log as a halt left it.

    Attributes:
        folder: the database or journal.
        older: an earlier state of the log's files.
        states: what may be in it: after the last acknowledged transaction, or with the one that was
            being committed.
    """

    folder: Path
    older: Path
    states: list[Rows]

    @property
    def history(self) -> Iterator[Rows]:
        """What was in a database at earlier times."""
        return history_of(self.folder.with_name("ledger"))


@dataclass(slots=True)
class Found:
    """What an original found in a copy; ``broken`` is what it could not read once it was open."""

    opened: bool = False
    rows: Rows = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    error: str = ""


Opener = Callable[[Path], Found]


class Original(Protocol):
    """One original system.

    Attributes:
        summed: whether its log has checksums over all that a record says.
        fill: what stands in its files where nothing was written yet.
        atomic: whether a halt within a commit leaves all of it or nothing; H2 changes a schema in
            several transactions.
    """

    @property
    def name(self) -> str: ...

    @property
    def summed(self) -> bool: ...

    @property
    def fill(self) -> bytes: ...

    @property
    def atomic(self) -> bool: ...

    def make(self, folder: Path, seed: int) -> Whole:
        """Let it work, and halt it."""

    def files(self, folder: Path) -> list[Path]:
        """The files of the log in a database's folder, in their order."""

    def opener(self) -> AbstractContextManager[Opener]:
        """A process that opens copies."""


def states_of(ledger: Path) -> list[Rows]:
    """Return what may be in a database, by the ledger of its workload."""
    rows: Rows = {}
    pending: list[str] = []
    attempted: list[str] | None = None
    for line in ledger.read_text().splitlines():
        if line == "?":
            attempted, pending = pending, []
        elif line == "!":
            assert attempted is not None
            _apply(rows, attempted)
            attempted = None
        else:
            attempted = None
            pending.append(line)
    if attempted is None:
        return [rows]
    after = dict(rows)
    _apply(after, attempted)
    return [rows, after]


def history_of(ledger: Path) -> Iterator[Rows]:
    """Yield what was in a database after each acknowledged transaction, by its ledger."""
    rows: Rows = {}
    lines: list[str] = []
    for line in ledger.read_text().splitlines():
        if line == "!":
            _apply(rows, [one for one in lines if one != "?"])
            lines = []
            yield dict(rows)
        else:
            lines.append(line)


def _apply(rows: Rows, lines: list[str]) -> None:
    for line in lines:
        what, key, *value = line.split(" ")
        if what == "+":
            rows[key] = value[0]
        elif what == "-":
            rows.pop(key, None)
        else:
            for one in [one for one in rows if one.startswith(key)]:
                del rows[one]


class Copies:
    """A process of ours that opens one copy after the other; started again after a hang."""

    def __init__(
        self, main: str, path: str, options: tuple[str, ...] = (), limit_ms: int = LIMIT_MS
    ) -> None:
        self._start = partial(
            start_java, main, "open", limit_ms, classpath=path, options=["-Xmx512m", *options]
        )
        self._context = self._start()
        self._process: Popen[str] = self._context.__enter__()

    def open(self, folder: Path) -> Found:
        """Return what the original finds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        found = Found()
        for line in self._process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "done":
                break
            self._take(found, word, rest)
        else:
            raise AssertionError(f"the original ended at {folder}")
        if found.error == "hang":
            self.close()
            self._context = self._start()
            self._process = self._context.__enter__()
        return found

    @staticmethod
    def _take(found: Found, word: str, rest: str) -> None:
        if word == "opened":
            found.opened = True
        elif word == "error":
            found.error = rest
        elif word == "hang":
            found.opened, found.error = False, "hang"
        elif word == "broken":
            found.broken.append(rest)
        else:
            found.rows[word] = rest

    def close(self) -> None:
        """End the process."""
        self._context.__exit__(None, None, None)


@cache
def _classes(name: str, *coordinates: str) -> str:
    jars = classpath(coordinates)
    common = f"{compile_java(HERE / 'java' / 'common')}{os.pathsep}{jars}"
    return f"{compile_java(HERE / 'java' / name, common)}{os.pathsep}{common}"


@dataclass(frozen=True)
class Database:
    """Derby or H2, through JDBC.

    Attributes:
        options: system properties for the work and for the opening.
        password: the file password of an encrypted database.
        room: bytes that a file may have: the disk is full then.
        worker: the engine that did the work, where another one opened the database after it.
        copied: whether what is judged is a copy that the engine made of itself while it worked.
        device: whether its log is on a device of its own, beside each copy.
    """

    name: str
    coordinates: tuple[str, ...]
    main: str
    summed: bool
    atomic: bool
    fill: bytes = b"\0"
    transactions: int = 60
    options: tuple[str, ...] = ()
    password: str | None = None
    room: int | None = None
    worker: tuple[str, ...] = ()
    copied: bool = False
    device: bool = False

    def make(self, folder: Path, seed: int) -> Whole:
        """Let it work, and halt it."""
        rng = random.Random(seed)
        database, older, ledger = folder / "db", folder / "older", folder / "ledger"
        if not self.is_derby:
            database.mkdir(parents=True)
        folder.mkdir(parents=True, exist_ok=True)
        options = ["-Dderby.stream.error.file=/dev/null"]
        options.append("-Dderby.locks.waitTimeout=2")  # a prepared branch keeps its locks
        if rng.random() < 0.7:  # turn log files over often
            options.append("-Dderby.storage.logSwitchInterval=100000")
        if rng.random() < 0.5:
            options.append("-Dderby.storage.checkpointInterval=100000")
        count = rng.randrange(2, self.transactions)
        if self.room is not None:
            options.append("-Dcases.full=true")
        if self.copied:
            options.append(f"-Dcases.backup={folder / 'backup'}")
        options += self.options
        if self.device:
            device = device_of(database)
            options += [f"-Dcases.options=;logDevice={device}", f"-Dcases.device={device}"]
        with _room(self.room):
            run_java(
                self.main, "work", database, seed, count, ledger, older,
                classpath=_path(self.main, self.worker or self.coordinates),
                options=options, timeout_s=900,
            )  # fmt: skip
        if self.worker:
            run_java(self.main, "upgrade", database, seed, classpath=self._path(), options=options)
        if self.copied:
            self._restore(folder / "backup", database)
        if self.device:
            (device_of(database) / "log").rename(database / "log")
        return Whole(database, older, states_of(ledger))

    def _restore(self, backup: Path, database: Path) -> None:
        shutil.rmtree(database)
        if self.is_derby:
            (backup / database.name).rename(database)
        else:
            with zipfile.ZipFile(backup) as packed:
                packed.extractall(database)

    def place(self, copy: Path) -> None:
        """Put the log of a copy where its properties say from now on."""
        device, properties = device_of(copy), copy / PROPERTIES
        if not self.device:
            return
        shutil.rmtree(device, ignore_errors=True)
        device.mkdir()
        if (copy / "log").exists():
            (copy / "log").rename(device / "log")
        if properties.exists():
            text = re.sub("(?m)^logDevice=.*", f"logDevice={device}", properties.read_text())
            properties.write_text(text)

    def files(self, folder: Path) -> list[Path]:
        """The files of the log, in their order."""
        if self.is_derby:
            logs = [one for one in (folder / "log").glob("*") if one.suffix in (".dat", ".ctrl")]
            return sorted(logs, key=lambda one: (one.suffix == ".dat", len(one.name), one.name))
        parts = sorted(folder.glob("db.h2.db.*.part"), key=lambda one: int(one.suffixes[-2][1:]))
        return [folder / "db.h2.db", *parts]

    @property
    def is_derby(self) -> bool:
        """Whether it is Derby, of any version."""
        return self.main == "DerbyCases"

    @contextmanager
    def opener(self) -> Iterator[Opener]:
        """A process that opens copies."""
        options = ("-Dderby.stream.error.file=/dev/null", "-Dderby.system.durability=test")
        copies = Copies(self.main, self._path(), (*options, *self.options))
        try:
            yield copies.open
        finally:
            copies.close()

    def _path(self) -> str:
        return _path(self.main, self.coordinates)


def _path(main: str, coordinates: tuple[str, ...]) -> str:
    return _classes(main.removesuffix("Cases").lower(), *coordinates)


def device_of(database: Path) -> Path:
    """Return the device of a database's log, where it has one."""
    return database.with_name("device")


@contextmanager
def _room(size: int | None) -> Iterator[None]:
    """Let no file of a process that is started here have more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@dataclass(frozen=True)
class Journal:
    """The journal of Artemis or HornetQ."""

    name: str
    fill: bytes
    operations: int = 300
    summed: bool = False
    atomic: bool = True

    def make(self, folder: Path, seed: int) -> Whole:
        """Let it work, and kill it."""
        journal, older = folder / "journal", folder / "older"
        journal.mkdir(parents=True)
        work, rng = Work(seed), random.Random(seed)
        count = rng.randrange(5, self.operations)
        copied = rng.randrange(count)
        with real_journal(self.name, journal, file_size=FILE_SIZE) as real:
            real.load()
            for number in range(count):
                if number == copied:
                    shutil.copytree(journal, older, ignore=_UNFINISHED)
                self._step(real.tell, work, rng)
            real.kill()
        return Whole(journal, older, [_live(work)])

    @staticmethod
    def _step(tell: Callable[[str], object], work: Work, rng: random.Random) -> None:
        if rng.random() < 0.01:
            tell("compact")  # brokers change files when one is full, or for this
        elif work.open and rng.random() < 0.03:
            tell(f"prepare {rng.choice(list(work.open))} {rng.randbytes(20).hex()}")
        else:
            tell(work.line())

    def files(self, folder: Path) -> list[Path]:
        """The files of the log, in the order of their ids."""
        return sorted(folder.glob("*.amq"), key=lambda one: (one.read_bytes()[8:16], one.name))

    @contextmanager
    def opener(self) -> Iterator[Opener]:
        """A process that opens copies."""
        with real_journal(self.name, Path(gettempdir()), file_size=FILE_SIZE) as real:

            def opened(folder: Path) -> Found:
                real.tell(f"at {folder}")
                try:
                    loaded = real.load()
                except AssertionError as refused:
                    if "refused" not in str(refused):
                        raise
                    return Found(error=str(refused))
                real.tell("stop")
                found = Found(opened=True)
                for number, kind, update, body in loaded.live:
                    before = found.rows.get(str(number), "")
                    found.rows[str(number)] = f"{before}{'u' if update else 'a'}{kind}:{body};"
                for transaction, extra, added, deleted in loaded.prepared:
                    found.rows[f"xa/{transaction}"] = f"{extra}:{added}:{deleted}"
                return found

            yield opened


@dataclass(frozen=True)
class Server:
    """A broker of Artemis, with all that its data directory has: as `lives` leaves it.

    One of two has pages and many large messages: see `lived`.
    """

    name: str = "artemis-broker"
    summed: bool = False
    fill: bytes = b"\0"
    atomic: bool = False

    def make(self, folder: Path, seed: int) -> Whole:
        """Let it live, and kill or stop it; what it keeps is what a start shows."""
        data, older = folder / "data", folder / "older"

        def keep(life: int) -> None:
            if life:
                shutil.rmtree(older, ignore_errors=True)
                shutil.copytree(data, older, ignore=shutil.ignore_patterns("*.lock"))

        older.mkdir(parents=True)
        lived("artemis", data, seed, keep, pages=seed % 2 == 0)
        return Whole(data, older, [{}, {}])

    def files(self, folder: Path) -> list[Path]:
        """All of them."""
        return sorted(one for one in folder.rglob("*") if one.is_file() and one.suffix != ".lock")

    @contextmanager
    def opener(self) -> Iterator[Opener]:
        """A process that starts a broker with each copy."""
        jars = BROKERS["artemis"].coordinates
        copies = Copies("BrokerCases", _classes("broker", *jars), limit_ms=20 * LIMIT_MS)
        try:
            yield copies.open
        finally:
            copies.close()


def _live(work: Work) -> Rows:
    numbers = set(work.live).union(*(deleted for _, deleted in work.open.values()))
    return dict.fromkeys(map(str, numbers), "")


@dataclass(frozen=True)
class Manager:
    """The disk journal of Bitronix, of one of its lines.

    2.1.4 itself goes on with the wrong file once it has changed files, so it comes to no change.
    """

    name: str
    line: str
    sizes: tuple[int, ...] = (200, 9_000, 20_000, 40_000)
    summed: bool = True
    fill: bytes = b"\0"
    atomic: bool = True

    def make(self, folder: Path, seed: int) -> Whole:
        """Let it log as many decisions as one of the sizes at most, and halt it."""
        journal, older = folder / "journal", folder / "older"
        journal.mkdir(parents=True)
        rng = random.Random(seed)
        waiting: list[bytes] = []
        count = rng.randrange(rng.choice(self.sizes))
        copied = rng.randrange(count + 1)
        more = random.Random(seed + 1)
        days = {more.randrange(count + 1): number for number in range(4)}
        resources = [f"resource-{one}" for one in range(4)]
        named: dict[bytes, list[str]] = {}
        with original(journal, self.line) as real:
            real.open()
            for number in range(count):
                if number == copied:
                    shutil.copytree(journal, older)
                if number in days:
                    shutil.copytree(journal, folder / f"day-{days[number]}")
                gtrid = rng.randbytes(rng.randrange(8, 40))
                named[gtrid] = rng.sample(resources, rng.randrange(1, 4))
                real.log(COMMITTING, gtrid, named[gtrid])
                waiting.append(gtrid)
                while len(waiting) > rng.choice((0, 1, 3)) and rng.random() < 0.95:
                    done = waiting.pop(rng.randrange(len(waiting)))
                    real.log(COMMITTED, done, named[done])
            real.force()
            if rng.random() < 0.2:
                real.close()
            real.halt()
        if not older.exists():
            shutil.copytree(journal, older)
        return Whole(
            journal,
            older,
            [{one.hex().upper(): ",".join(sorted(named[one])) for one in waiting}],
        )

    def files(self, folder: Path) -> list[Path]:
        """Both files."""
        return sorted(folder.glob("*.tlog"))

    @contextmanager
    def opener(self) -> Iterator[Opener]:
        """A process that opens copies."""
        copies = Copies("BitronixCases", _classes("bitronix", *BITRONIX[self.line]), limit_ms=600)
        try:
            yield copies.open
        finally:
            copies.close()


@dataclass(frozen=True)
class Coordinator:
    """Narayana on one of its stores of files, which the seed chooses; a copy says which."""

    name: str = "narayana"
    summed: bool = False
    fill: bytes = b""
    atomic: bool = False
    ends: tuple[str, ...] = ("both", "undone", "heuristic", "mixed", "failed")

    def make(self, folder: Path, seed: int) -> Whole:
        """Let it coordinate, mostly also recover, and coordinate until it is killed."""
        copy, older, rng = folder / "whole", folder / "older", random.Random(seed)
        kind = rng.choice(STORES)
        copy.mkdir(parents=True)
        (copy / "kind").write_text(kind)

        def work(most: int) -> list[str]:
            return rng.choices(self.ends, k=rng.randrange(most))

        def run(verb: str, *named: str) -> None:
            run_java("Files", verb, kind, copy / "store", *named, classpath=store())

        run("write", *work(7))
        shutil.copytree(copy, older)
        if rng.random() < 0.6:
            run("recover")
        if rng.random() < 0.5:
            run("write", *work(7), "halted")
            return Whole(copy, older, [{}, {}])
        named = ("write", kind, copy / "store", *work(3), *("failed", "both") * 500)
        with start_java("Files", *named, classpath=store()) as process:
            assert process.stdout is not None
            for _, _ in zip(range(rng.randrange(80)), process.stdout, strict=False):
                pass
            process.kill()
        return Whole(copy, older, [{}, {}])

    def files(self, folder: Path) -> list[Path]:
        """The states of transactions, by name."""
        return sorted(one for one in folder.rglob("BasicAction/**/*") if one.is_file())

    @contextmanager
    def opener(self) -> Iterator[Opener]:
        """A process that has recovery scan copies."""
        path = f"{_classes('narayana')}{os.pathsep}{store()}"
        copies = Copies("NarayanaCases", path, limit_ms=20 * LIMIT_MS)
        try:
            yield copies.open
        finally:
            copies.close()


def _jars(*coordinates: str) -> tuple[str, ...]:
    return tuple(f"org.apache.derby:{one}" for one in coordinates)


_derby = partial(Database, main="DerbyCases", summed=True, atomic=True)
_h2 = partial(Database, main="H2Cases", summed=False, atomic=False)
DERBY, OLDER_DERBY = _jars("derby:10.14.2.0"), _jars("derby:10.10.2.0")
NEWER_DERBY = _jars("derby:10.16.1.1", "derbytools:10.16.1.1")
OTHER_DERBYS = ("10.11.1.1", "10.12.1.1", "10.13.1.1")
H2_12, H2_13, OLDER_H2, NEWER_H2 = (
    (f"com.h2database:h2:{version}",) for version in ("1.2.147", "1.3.160", "1.3.176", "1.4.200")
)
_ALL: tuple[Original, ...] = (
    _derby("derby", DERBY),
    _h2("h2-1.4.200", NEWER_H2),
    _h2("h2-1.3.176", OLDER_H2),
    Journal("artemis", b"\0"),
    Journal("hornetq", b"J"),
    Manager("bitronix", OLD, sizes=(30, 200, 4_000)),
    Manager("bitronix-3.0", NEW),
)
ORIGINALS = {one.name: one for one in _ALL}
_FULL = 200_000
SECRET = "secret-secret"


def _h2_in(cipher: str, more: tuple[str, ...] = ()) -> dict[str, Any]:
    """What makes an encrypted database of H2."""
    options = (f"-Dcases.options=;CIPHER={cipher}", f"-Dcases.password={SECRET} user", *more)
    return {"options": options, "password": SECRET}


def _derby_in(cipher: str) -> dict[str, Any]:
    """What makes an encrypted database of Derby."""
    how = f";dataEncryption=true;bootPassword={SECRET}{cipher}"
    return {"options": (f"-Dcases.options={how}",), "password": SECRET}


_AES_192 = ";encryptionAlgorithm=AES/CBC/NoPadding;encryptionKeyLength=192"
_SPLIT, _NO_OTHER_STORE = ("-Dcases.prefix=split:15:",), ("-Dcases.store=",)
# 1.3.176 has no files of large objects any more; it reads those that are there.
_LOBS = (*_NO_OTHER_STORE, "-Dh2.lobInDatabase=false", "-Dcases.lobs=true")
_MORE: tuple[Original, ...] = (
    Server(),
    Coordinator(),
    _derby("derby-10.10", OLDER_DERBY),
    _derby("derby-10.16", NEWER_DERBY),
    *(_derby(f"derby-{version[:5]}", _jars(f"derby:{version}")) for version in OTHER_DERBYS),
    _derby("derby-10.15", _jars("derby:10.15.2.0", "derbytools:10.15.2.0")),
    _derby("derby-10.10-to-10.16", NEWER_DERBY, worker=OLDER_DERBY),
    _derby("derby-10.10-to-10.14", DERBY, worker=OLDER_DERBY),
    _derby("derby-full", DERBY, room=_FULL),
    _derby("derby-des", DERBY, **_derby_in("")),
    _derby("derby-10.16-aes", NEWER_DERBY, **_derby_in(_AES_192)),
    _derby("derby-device", DERBY, device=True),
    _derby("derby-10.16-device", NEWER_DERBY, device=True),
    _derby("derby-backup", DERBY, copied=True),
    _derby("derby-10.10-backup", OLDER_DERBY, copied=True),
    _derby("derby-10.16-backup", NEWER_DERBY, copied=True),
    _h2("h2-1.4.200-full", NEWER_H2, room=_FULL),
    _h2("h2-1.3.176-full", OLDER_H2, room=_FULL),
    _h2("h2-1.4.200-aes", NEWER_H2, **_h2_in("AES")),
    _h2("h2-1.3.176-xtea", OLDER_H2, **_h2_in("XTEA")),
    _h2("h2-1.4.200-split", NEWER_H2, options=_SPLIT),
    _h2("h2-1.3.176-split", OLDER_H2, options=_SPLIT),
    _h2("h2-1.3.176-split-aes", OLDER_H2, **_h2_in("AES", _SPLIT)),
    _h2("h2-1.3.160-lobs", H2_13, options=_LOBS),
    _h2("h2-1.3.160-lobs-xtea", H2_13, **_h2_in("XTEA", _LOBS)),
    _h2("h2-1.3.160-lobs-split", H2_13, options=(*_SPLIT, *_LOBS)),
    _h2("h2-1.3.160-lobs-backup", H2_13, options=_LOBS, copied=True),
    _h2("h2-1.2.147-lobs", H2_12, options=_LOBS),
    _h2("h2-1.2.147", H2_12, options=(*_NO_OTHER_STORE, "-Dh2.lobInDatabase=true")),
    _h2("h2-1.2.147-to-1.3.176-lobs", OLDER_H2, options=_LOBS, worker=H2_12),
    _h2("h2-1.3.176-to-1.4.200", NEWER_H2, worker=OLDER_H2),
    _h2("h2-1.3.160-to-1.3.176-lobs", OLDER_H2, options=_LOBS, worker=H2_13),
    _h2("h2-1.3.176-backup", OLDER_H2, copied=True),
    _h2("h2-1.4.200-backup", NEWER_H2, copied=True),
    _h2("h2-1.3.176-log-0", OLDER_H2, options=("-Dcases.options=;LOG=0",)),
    _h2("h2-1.4.200-delayed", NEWER_H2, options=("-Dcases.options=;CACHE_SIZE=16",)),
)
OTHERS = {one.name: one for one in _MORE}
"""Other versions, forms and ends of the same."""
