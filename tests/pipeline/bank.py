"""A bank of many sites by our own writers, with every fault of two-phase commit, and the truth.

A site is a coordinator (Bitronix) with a Derby log, an H2 log and an Artemis journal of its own and
a native journal that all sites share. Each global transaction is of one kind of `KINDS`, which says
what the coordinator wrote last, where each branch stood, and what follows from that.
"""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Protocol

from tallystick.records import Xid
from tallystick.systems.bitronix.format import layout
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.h2.live.role import H2UndoRedoLog
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.tally.live.roles.journal import open_journal
from tallystick.systems.tally.live.settings import Settings
from tests.systems.h2.kit import xid_name

FORMAT_ID = 0x42746E78
BODY = b"100 from 7 to 9"

STATES = {"C": "committed", "P": "prepared", "R": "rolled_back", "A": "active", "-": "unknown",
          "H": "committed"}  # fmt: skip
"""Where a branch stands; "-" left nothing in its log, "H" a record of a heuristic commit."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``statuses`` of the coordinator in order, ``branches`` in the order of `NAMES`; the rest is
    what is to be found. A status may be followed by the numbers of the names that it holds."""

    statuses: str
    branches: str
    decision: str | None
    resolution: str
    alarm: str | None = None
    owner: str | None = None
    """Of a coordinator that is not in the estate."""


_WHOLE = "ACTIVE PREPARING PREPARED"

KINDS = {
    "settled": Kind(f"{_WHOLE} COMMITTING COMMITTED", "CCCC", "commit", "none"),
    "unclosed": Kind(f"{_WHOLE} COMMITTING", "CCCC", "commit", "none"),
    "open": Kind(f"{_WHOLE} COMMITTING", "CPPC", "commit", "commit"),
    "nobody-committed": Kind(f"{_WHOLE} COMMITTING", "PPPP", "commit", "commit"),
    "partly-closed": Kind(f"{_WHOLE} COMMITTING COMMITTED:03", "CPPC", "commit", "commit"),
    "closed-one-lost-it": Kind(
        f"{_WHOLE} COMMITTING COMMITTED:03", "PPCC", "commit", "commit", "lost-commit"
    ),
    "h2-lost-it": Kind(
        f"{_WHOLE} COMMITTING COMMITTED", "CPCC", "commit", "commit", "lost-commit"
    ),
    "journal-lost-it": Kind(
        f"{_WHOLE} COMMITTING COMMITTED", "CCCP", "commit", "commit", "lost-commit"
    ),
    "undecided": Kind(_WHOLE, "PPPP", "undecided", "rollback"),
    "preparing": Kind("ACTIVE PREPARING", "PP--", "undecided", "rollback"),
    "no-record": Kind("", "PPPP", None, "rollback"),
    "rolled-back": Kind(f"{_WHOLE} ROLLING_BACK ROLLEDBACK", "R-RR", "rollback", "none"),
    "rolling-back": Kind(f"{_WHOLE} ROLLING_BACK", "RPPR", "rollback", "rollback"),
    "rolled-back-but-one": Kind(
        f"{_WHOLE} ROLLING_BACK ROLLEDBACK", "RPRR", "rollback", "rollback"
    ),
    "rolled-back-by-hand": Kind(
        f"{_WHOLE} COMMITTING COMMITTED",
        "CCRC", "commit", "heuristic_mismatch", "heuristic-mismatch",
    ),
    "rolled-back-by-hand-in-h2": Kind(
        f"{_WHOLE} COMMITTING COMMITTED",
        "CRCC", "commit", "heuristic_mismatch", "heuristic-mismatch",
    ),
    "rolled-back-by-hand-while-open": Kind(
        f"{_WHOLE} COMMITTING", "RPPC", "commit", "heuristic_mismatch", "heuristic-mismatch"
    ),
    "committed-by-hand": Kind(
        _WHOLE, "CPPP", "undecided", "heuristic_mismatch", "heuristic-mismatch"
    ),
    "committed-by-hand-and-noted": Kind(
        _WHOLE, "PPHP", "undecided", "heuristic_mismatch", "heuristic-mismatch"
    ),
    "committed-by-hand-without-record": Kind(
        "", "PPCP", None, "heuristic_mismatch", "heuristic-mismatch"
    ),
    "committed-against-a-rollback": Kind(
        f"{_WHOLE} ROLLING_BACK ROLLEDBACK",
        "R-CR", "rollback", "heuristic_mismatch", "heuristic-mismatch",
    ),
    "unknown-outcome": Kind(
        f"{_WHOLE} COMMITTING UNKNOWN", "CCRC", None, "heuristic_mismatch", "heuristic-outcome"
    ),
    "read-only-derby": Kind(f"{_WHOLE} COMMITTING COMMITTED", "-CCC", "commit", "none"),
    "local": Kind("ACTIVE COMMITTING:0 COMMITTED:0", "C---", "commit", "none"),
    "local-cut-off": Kind("ACTIVE COMMITTING:0", "A---", "commit", "none"),
    "two-of-them": Kind(
        "ACTIVE PREPARING:01 PREPARED:01 COMMITTING:01 COMMITTED:01", "CC--", "commit", "none"
    ),
    "working": Kind("ACTIVE", "A---", "undecided", "none"),
    "foreign": Kind("", "PPCP", None, "foreign", "foreign-branch", "ghost"),
    "foreign-and-done": Kind("", "CCCC", None, "none", None, "ghost"),
}  # fmt: skip

NAMES = ("jdbc/ledger", "jdbc/audit", "jms/orders", "hub")


@dataclass(frozen=True, slots=True)
class Truth:
    """What really happened to one global transaction."""

    kind: Kind
    coordinator: str | None
    logs: tuple[str, ...]
    """Of the resources, in the order of `NAMES`."""


class Branches(Protocol):
    """One resource: its log, and the life of a branch in it."""

    log: str

    def begin(self, xid: Xid) -> int: ...

    def prepare(self, number: int, xid: Xid) -> None: ...

    def commit(self, number: int) -> None: ...

    def rollback(self, number: int) -> None: ...


class DerbyBranches:
    """In the log of a Derby database."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.log = str(home / "derby" / "log")
        Path(self.log).mkdir(parents=True)
        self._log = stack.enter_context(LogToFile(self.log, write_sync=False))

    def begin(self, xid: Xid) -> int:
        return self._log.begin(xid)

    def prepare(self, number: int, xid: Xid) -> None:  # noqa: ARG002 - known since the beginning
        self._log.prepare(number)

    def commit(self, number: int) -> None:
        self._log.commit(number, sync=False)

    def rollback(self, number: int) -> None:
        self._log.abort(number, sync=False)


class H2Branches:
    """In the page store of an H2 database. A rollback is an operator's: it writes over the name."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.log = str(home / "h2")
        self._log = H2UndoRedoLog(self.log)
        stack.callback(self._log.close)
        self._sessions = count(1)

    def begin(self, xid: Xid) -> int:  # noqa: ARG002 - the name comes with the prepare
        session = next(self._sessions)
        self._log.log_row(session, 1, session, BODY)
        return session

    def prepare(self, number: int, xid: Xid) -> None:
        self._log.prepare_commit(number, xid_name(xid)).wait()

    def commit(self, number: int) -> None:
        self._log.commit(number).wait()

    def rollback(self, number: int) -> None:
        self._log.rollback(number).wait()


class ArtemisBranches:
    """In a broker's journal."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.log = str(home / "artemis")
        self._journal = JBossRecordJournal(self.log)
        stack.callback(self._journal.close)
        self._numbers = count(1)

    def begin(self, xid: Xid) -> int:  # noqa: ARG002 - the name comes with the prepare
        number = next(self._numbers)
        self._journal.add_in(number, number, BODY)
        return number

    def prepare(self, number: int, xid: Xid) -> None:
        self._journal.prepare(number, _packed(xid)).wait()

    def note_commit(self, xid: Xid) -> None:
        """The record of a heuristic commit."""
        self._journal.add(1_000_000 + next(self._numbers), _packed(xid) + b"\1", 38).wait()

    def commit(self, number: int) -> None:
        self._journal.commit(number).wait()

    def rollback(self, number: int) -> None:
        self._journal.rollback(number).wait()


def _packed(xid: Xid) -> bytes:
    bqual, gtrid = ((">i", len(part), part) for part in (xid.bqual, xid.gtrid))
    return struct.pack(">i", xid.format_id) + b"".join(
        struct.pack(form, size) + part for form, size, part in (bqual, gtrid)
    )


class HubBranches:
    """In a native journal."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.log = str(home / "hub")
        settings = Settings(segment_size=1 << 20, spares=0, preallocate=False)
        self._journal = open_journal(self.log, settings=settings)
        stack.callback(self._journal.close)
        self._numbers = count(1)

    def begin(self, xid: Xid) -> int:  # noqa: ARG002 - the name comes with the prepare
        number = next(self._numbers)
        self._journal.add_in(number, number, BODY)
        return number

    def prepare(self, number: int, xid: Xid) -> None:
        self._journal.prepare(number, xid=xid).wait()

    def commit(self, number: int) -> None:
        self._journal.commit(number).wait()

    def rollback(self, number: int) -> None:
        self._journal.rollback(number).wait()


@dataclass
class Site:
    """One coordinator and its resources."""

    home: Path
    owner: bytes
    journal: DiskJournal
    resources: Sequence[Branches]
    _sequence: Iterator[int] = field(default_factory=lambda: count(1))

    def transfer(self, kind: Kind) -> tuple[bytes, Truth]:
        """One global transaction of that kind; returns its gtrid."""
        gtrid = self._id(self.owner if kind.owner is None else kind.owner.encode())
        branches = [self._begin(one, state, gtrid) for one, state in self._branches(kind)]
        statuses = kind.statuses.split()
        for status in statuses[:3]:
            self._log(status, gtrid)
        for status in statuses[3:]:
            self._log(status, gtrid)
        for (resource, state), number in zip(self._branches(kind), branches, strict=True):
            if state in "CH":
                resource.commit(number)
            elif state == "R":
                resource.rollback(number)
        logs = tuple(resource.log for resource in self.resources)
        return gtrid, Truth(kind, None if kind.owner else self.journal.path, logs)

    def _branches(self, kind: Kind) -> Iterator[tuple[Branches, str]]:
        yield from zip(self.resources, kind.branches, strict=True)

    def _begin(self, resource: Branches, state: str, gtrid: bytes) -> int:
        if state == "-":
            return 0
        xid = Xid(FORMAT_ID, gtrid, self._id(self.owner))
        number = resource.begin(xid)
        if state != "A":
            resource.prepare(number, xid)
        if state == "H" and isinstance(resource, ArtemisBranches):
            resource.note_commit(xid)
        return number

    def _log(self, status: str, gtrid: bytes) -> None:
        name, _, some = status.partition(":")
        names = set() if name == "ACTIVE" else {NAMES[int(n)] for n in some or "0123"}
        self.journal.log(getattr(layout, name), gtrid, names)

    def _id(self, owner: bytes) -> bytes:
        milliseconds = time.time_ns() // 1_000_000
        return owner + milliseconds.to_bytes(8, "big") + next(self._sequence).to_bytes(4, "big")


@contextmanager
def site(home: Path, owner: str, hub: Branches) -> Iterator[Site]:
    """A site at work; closed as a halt would leave it."""
    with ExitStack() as stack:
        journal = DiskJournal(
            str(home / "bitronix"), max_log_size=8 << 20, forced_write_enabled=False
        )
        stack.callback(journal.close)
        own = [make(home, stack) for make in (DerbyBranches, H2Branches, ArtemisBranches)]
        yield Site(home, owner.encode(), journal, [*own, hub])


def write_bank(root: Path, owners: Sequence[str], rounds: int) -> dict[bytes, Truth]:
    """Sites with these owners (some may be equal), each with every kind as often as ``rounds``
    says; backups of the first site's logs from the middle of its work lie beside it."""
    truths: dict[bytes, Truth] = {}
    with ExitStack() as stack:
        hub = HubBranches(root, stack)
        for number, owner in enumerate(owners):
            home = root / f"site-{number}"
            with site(home, owner, hub) as one:
                for turn in range(rounds):
                    truths |= dict(one.transfer(kind) for kind in KINDS.values())
                    if number == 0 and turn == rounds // 2:
                        one.journal.force()
                        shutil.copytree(home, root / "backup" / "site-0")
                # The journal reaches back before everything that it should know.
                truths |= dict([one.transfer(KINDS["settled"])])
    return truths
