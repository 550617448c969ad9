"""Random histories of every role, converted there and back: nothing goes without being named.

What the source holds, asked of its own open log, is what the new log holds and what was named as
left. A failure names its seed: `history(seed, …)` makes it again.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tallystick import Journal
from tallystick.convert.command import convert
from tallystick.convert.roles import ConversionReport
from tallystick.errors import RecordIdError
from tallystick.records import Xid
from tallystick.roles import (
    DecisionOutcome,
    HoldsPlainRecords,
    Operation,
    OperationCode,
    PreparedTransaction,
    StepKind,
)
from tallystick.systems.bitronix.live.role import BitronixDecisionLog
from tallystick.systems.cloudtran.live.role import CloudtranPersistLog
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.decision_log import TallyDecisionLog
from tallystick.systems.tally.live.roles.journal import TallyJournal
from tallystick.systems.tally.live.roles.persist_log import TallyPersistLog
from tallystick.systems.tally.live.settings import Settings

SAMPLE, ALL = 6, 2_000
"""Histories in each run, and those under the soak marker."""
IDS = 6
KEY = b"k" * 32
PAIRS = [
    (make, own, to)
    for make, systems in (
        ("journal", ("tally", "jboss")),
        ("decisions", ("tally", "bitronix")),
        ("entries", ("tally", "cloudtran")),
    )
    for own in systems
    for to in systems
]

# -- logs ---------------------------------------------------------------------------------------


def provider(key: bytes | None) -> Callable[[], bytes] | None:
    return None if key is None else lambda: key


def _tally(folder: Path, rng: random.Random, key: bytes | None, **more: Any) -> TallyLog:
    settings = Settings(
        segment_size=16 << 10, compression=rng.choice(["none", "zlib"]), compress_min=64, **more
    )
    return TallyLog(str(folder), settings=settings, key=provider(key))


def opened(folder: Path, system: str, make: str, key: bytes | None = None) -> Any:
    """Open a log as its system does."""
    if system == "tally":
        log = TallyLog(str(folder), key=provider(key))
        roles = {"journal": TallyJournal, "decisions": TallyDecisionLog, "entries": TallyPersistLog}
        return roles[make](log)
    if system == "jboss":
        return JBossRecordJournal(str(folder))
    if system == "bitronix":
        return BitronixDecisionLog(folder)
    return CloudtranPersistLog(folder)


def bytes_of(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 7, 100, 3_000]))


# -- histories ----------------------------------------------------------------------------------


def journal(rng: random.Random, folder: Path, system: str, key: bytes | None) -> None:
    if system == "tally":
        options: dict[str, Any] = {"settings": Settings(
            segment_size=16 << 10, compression=rng.choice(["none", "zlib"]), compress_min=64
        )}  # fmt: skip
        with Journal(folder, key=provider(key), **options) as log:
            _write_journal(rng, log, plain=True)
        return
    settings = JournalSettings(file_size=64 << 10)
    JBossRecordJournal(str(folder), settings).close()
    with Journal(folder, system="jboss", settings=settings) as log:
        _write_journal(rng, log, plain=False)


def _write_journal(rng: random.Random, log: Journal, *, plain: bool) -> None:
    live: set[int] = set()
    for _ in range(rng.randrange(1, 12)):
        what = rng.randrange(5)
        if plain and what == 0:
            log.append_many([bytes_of(rng) for _ in range(rng.randrange(4))])
        elif what <= 1:
            _step(rng, log, live, plain=False)
        else:
            _transaction(rng, log, live, plain=plain)
    if plain and rng.random() < 0.2:
        log.compact(force=True)


def _step(rng: random.Random, to: Any, live: set[int], *, plain: bool) -> None:
    """Add, update or delete a record; every order of them on one id comes up."""
    number, kind = rng.randrange(IDS), rng.randrange(-128, 128)
    with suppress(RecordIdError):  # a prepared transaction holds it, or deletes come last
        if plain and rng.random() < 0.2:
            to.append(bytes_of(rng))
        elif number not in live:
            to.add(number, bytes_of(rng), kind)
            live.add(number)
        elif rng.random() < 0.5:
            to.update(number, bytes_of(rng), kind)
        else:
            to.delete(number)
            live.discard(number)


def _transaction(rng: random.Random, log: Journal, live: set[int], *, plain: bool) -> None:
    tx, seen = log.transaction(), set(live)
    for _ in range(rng.randrange(1, 8)):
        _step(rng, tx, seen, plain=plain)
    end = rng.randrange(4)
    if end == 0:
        tx.rollback()
    elif end == 1:
        xid = Xid(rng.randrange(1 << 31), bytes_of(rng)[:64] or b"g", rng.randbytes(3))
        extra = bytes_of(rng) if plain and rng.random() < 0.3 else b""
        with suppress(RecordIdError):
            tx.prepare(extra, xid if plain and rng.random() < 0.7 else None)
    elif end == 2 or rng.random() < 0.7:
        with suppress(RecordIdError):  # rolled back: a prepared transaction holds one of its ids
            tx.commit()
            live.clear()
            live.update(seen)
    # else it stays without an end


def decisions(rng: random.Random, folder: Path, system: str, key: bytes | None) -> None:
    log: Any = (
        TallyDecisionLog(_tally(folder, rng, key))
        if system == "tally"
        else BitronixDecisionLog(folder, max_log_size=64 << 10)
    )
    with closing(log):
        for number in range(rng.randrange(1, 20)):
            gtrid = b"node%d" % number + rng.randbytes(rng.randrange(50))
            names = rng.sample("abcd", rng.randrange(1, 5))
            log.decide(gtrid, names).wait()
            for name in rng.sample(names, rng.randrange(len(names) + 1)):
                heuristic = rng.random() < 0.3
                outcome = DecisionOutcome.HEURISTIC if heuristic else DecisionOutcome.COMMITTED
                log.finish(gtrid, [name], outcome)
            if rng.random() < 0.1 and gtrid in log.heuristics():
                log.settle(gtrid).wait()


def entries(rng: random.Random, folder: Path, system: str, key: bytes | None) -> None:
    log: Any = (
        TallyPersistLog(_tally(folder, rng, key, recycle=False))
        if system == "tally"
        else CloudtranPersistLog(folder)
    )
    with closing(log):
        for _ in range(rng.randrange(1, 20)):
            names = rng.sample(["one", "two", "drei-ö"], rng.randrange(1, 4))
            operations = [_operation(rng, names) for _ in range(rng.randrange(4))]
            number, ticket = log.persisting(names, operations, rng.choice(["", "ref", "ß"]))
            ticket.wait()
            if held := rng.sample(names, rng.randrange(len(names) + 1)):
                log.persisted(number, held)


def _operation(rng: random.Random, names: list[str]) -> Operation:
    code = rng.choice(list(OperationCode))
    value = None if code is OperationCode.DELETE else bytes_of(rng)[:500]
    target = rng.choice([None, *names])
    return Operation(code, rng.choice(["", "orders"]), bytes_of(rng)[:50], value, target)


HISTORIES: dict[str, Callable[[random.Random, Path, str, bytes | None], None]] = {
    "journal": journal,
    "decisions": decisions,
    "entries": entries,
}


# -- what a log holds -----------------------------------------------------------------------------


def held(log: Any, make: str) -> Counter[tuple[Any, ...]]:
    """Everything that matters in an open log, each thing as one value."""
    found: Counter[tuple[Any, ...]] = Counter()
    if make == "decisions":
        for gtrid, one in log.open_decisions().items():
            found["open decisions", gtrid, *sorted(one.resources)] += 1
        for gtrid, names in log.heuristics().items():
            found["heuristic outcomes", gtrid, *sorted(names)] += 1
    elif make == "entries":
        for place, (entry, rest) in enumerate(log.pending()):
            operations = tuple(entry.operations)
            found["pending entries", place, entry.targets, entry.reference, operations, rest] += 1
    else:
        places: Counter[int] = Counter()
        for one in log.live_records():
            found[
                "live", one.record_id, places[one.record_id], one.user_type, one.body, one.update
            ] += 1
            places[one.record_id] += 1
        for one in log.prepared():
            found[("prepared transactions", *branch(one))] += 1
        if isinstance(log, HoldsPlainRecords):
            for place, (_, body) in enumerate(log.plain_records()):
                found["plain records", place, body] += 1
    return found


def branch(one: PreparedTransaction) -> tuple[Any, ...]:
    """A prepared transaction by its Xid, and by what each record becomes when it commits."""
    effects: dict[int | None, list[tuple[Any, ...]]] = {}
    for step in one.steps:
        some = effects.setdefault(step.record_id, [])
        if step.kind is StepKind.DELETE:
            some.clear()
        some.append((step.kind, step.user_type, step.body))
    extra = None if one.xid else one.extra
    return one.xid, extra, repr(sorted(effects.items(), key=repr))


def require_accounted(
    before: Counter[tuple[Any, ...]], after: Counter[tuple[Any, ...]], report: ConversionReport
) -> None:
    assert not after - before, "the new log holds something that the source does not"
    gone = Counter(one[0] for one in (before - after).elements())
    assert gone == +report.left
    assert gone == Counter({kind: len(names) for kind, names in report.named.items()})


def history(seed: int, folder: Path) -> ConversionReport:
    """Write the history of a seed, convert it there and back, and compare each time."""
    rng = random.Random(seed)
    make, own, to = PAIRS[seed % len(PAIRS)]
    sealed = KEY if own == "tally" and rng.random() < 0.3 else None
    start, there, back = (folder / name for name in ("start", "there", "back"))
    HISTORIES[make](rng, start, own, sealed)
    key_to = KEY if to == "tally" and rng.random() < 0.3 else None
    first = convert(start, there, to, options=ReadOptions(encryption_key=sealed), key_to=key_to)
    if own == "jboss":
        log: Any = JBossRecordJournal(str(start), JournalSettings(file_size=64 << 10))
    else:
        log = opened(start, own, make, sealed)
    with closing(log):
        before = held(log, make)
    with closing(opened(there, to, make, key_to)) as log:
        middle = held(log, make)
    require_accounted(before, middle, first)
    if middle:  # a block log has no file before its first record: then there is no log to convert
        second = convert(there, back, own, options=ReadOptions(encryption_key=key_to))
        with closing(opened(back, own, make)) as log:
            after = held(log, make)
        require_accounted(middle, after, second)
    return first


@pytest.mark.parametrize(
    ("count", "first"),
    [(SAMPLE, None), pytest.param(ALL, 0, marks=pytest.mark.soak)],
)
def test_what_the_source_holds_is_in_the_new_log_or_is_named(
    tmp_path: Path, count: int, first: int | None
) -> None:
    begin = random.randrange(1 << 32) if first is None else first
    for seed in range(begin, begin + count):
        print(f"history of seed {seed}")  # noqa: T201 - a failure names it
        history(seed, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))  # 2,000 of them fill a disk
