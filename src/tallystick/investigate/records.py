"""Records as a person looks at them: with what stands around them, counted, or as they come.

In: a path and a `Filter`. Out: records with the clock of their log; counts by log; or, of logs that
are written meanwhile, each record once, when it is there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tallystick.callables import checked
from tallystick.errors import TallystickError, UnsupportedFormatError
from tallystick.printable import shell_quoted
from tallystick.reading.filters import EVERYTHING, Filter, time_text
from tallystick.reading.names import log_name
from tallystick.reading.settled import Picture, damage_of, picture, status
from tallystick.reading.survey import (
    Paths,
    Survey,
    damaged_file,
    deliver,
    record_size,
    survey,
    why_not_followed,
)
from tallystick.records import Clock, Finding, Outcome, Record
from tallystick.storage.local import LOCAL
from tallystick.storage.scheduling import time
from tallystick.storage.source import is_remote
from tallystick.systems.protocol import FileByFile, LogReading, LogSource, ReadOptions

POLL_S = 0.25
"""Seconds between two looks at logs in which nothing is new."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A record, and how it came to be shown.

    Attributes:
        record: the record.
        clock: what its time counts.
        fits: False if it is only near one that is asked for.
    """

    record: Record
    clock: Clock
    fits: bool = True

    @property
    def time(self) -> str | None:
        """The time: as ISO where the clock tells the time of day, else as the log has it."""
        time = self.record.time
        return time_text(time, self.clock) or (None if time is None else str(time))


def seen_records(
    path: Paths,
    wanted: Filter = EVERYTHING,
    *,
    context: int = 0,
    salvage: bool = False,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> Iterator[Seen]:
    """Yield what `tallystick.scan` yields, with the records of a log around each.

    Args:
        path: as for `tallystick.scan`.
        wanted: as for `tallystick.scan`.
        context: how many records before each, and as many after it.
        salvage: as for `tallystick.scan`.
        options: as for `tallystick.scan`.
        problems: as for `tallystick.scan`.

    Raises:
        TransactionUsageError: no transaction has the number, or the id, that is asked for.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    wanted = found.known_filter(wanted, "records")

    def of_log(reading: LogReading) -> Iterator[Seen]:
        clock = found.clock_for(reading, wanted)
        if not context:
            return (Seen(one, clock) for one in found.selected(reading, wanted, salvage=salvage))
        found.tells_lsns(reading, wanted)
        every = (Seen(one, clock) for one in reading.records(salvage=salvage))
        return _with_context(every, wanted.of_records(clock), context)

    yield from found.streamed(
        wanted,
        of_log,
        lambda seen: damaged_file(seen.record),
        lambda seen: record_size(seen.record),
    )
    deliver(found, problems)


def _with_context(
    every: Iterable[Seen], fits: Callable[[Record], bool], context: int
) -> Iterator[Seen]:
    before, after = deque[Seen](maxlen=context), 0
    for one in every:
        if fits(one.record):
            yield from before
            before.clear()
            yield one
            after = context
        elif after:
            after -= 1
            yield replace(one, fits=False)
        else:
            before.append(replace(one, fits=False))


# -- counts ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Counts:
    """What was counted of a log.

    Attributes:
        system: its system.
        log: its name.
        clock: what its times count.
        kinds: records by kind.
        transactions: transactions by state; None where what was asked for is of records alone.
        bytes: of all these records.
        damaged: how many of them are damaged.
        first: the least time of a record; None where none has one.
        last: the greatest.
    """

    system: str
    log: str
    clock: Clock
    kinds: Counter[str] = field(default_factory=Counter)
    transactions: Counter[str] | None = None
    bytes: int = 0
    damaged: int = 0
    first: int | None = None
    last: int | None = None

    def add(self, record: Record) -> None:
        """Count a record."""
        self.kinds[record.kind] += 1
        self.bytes += record.length
        self.damaged += record.outcome is Outcome.CORRUPT
        if (time := record.time) is not None:
            self.first = time if self.first is None else min(self.first, time)
            self.last = time if self.last is None else max(self.last, time)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; times are ISO where the clock tells the time of day."""
        times = {name: getattr(self, name) for name in ("first", "last")}
        return {
            "system": self.system, "log": self.log, "records": self.kinds.total(),
            "kinds": dict(self.kinds),
            "transactions": None if self.transactions is None else dict(self.transactions),
            "bytes": self.bytes, "damaged": self.damaged, "clock": self.clock.value,
            **{name: time_text(one, self.clock) or one for name, one in times.items()},
        }  # fmt: skip


def statistics(
    path: Paths,
    wanted: Filter = EVERYTHING,
    *,
    salvage: bool = False,
    options: ReadOptions | None = None,
    problems: list[Finding] | None = None,
) -> Iterator[Counts]:
    """Yield counts of each log: of the records that are asked for, and of the transactions.

    Transactions are chosen by their number and their global id; where anything else is asked of
    records, none are counted. Args and errors are those of `tallystick.scan`.
    """
    found = survey(path, options=options).refuse_unknown_settings()
    wanted = found.known_filter(wanted, "records")
    found.require_named(wanted, "records")
    by_name = Filter(transaction=wanted.transaction, gtrid=wanted.gtrid)
    named = by_name.of_records(Clock.NONE) if wanted == by_name else None

    def count(reading: LogReading) -> Counts | None:
        if not found.tells_lsns(reading, wanted):
            return None
        clock = found.clock_for(reading, wanted)
        counts = Counts(reading.source.system, log_name(reading.source), clock)
        for record in found.selected(reading, wanted, salvage=salvage):
            counts.add(record)
        if named is not None:
            counts.transactions = Counter(one.state for one in reading.transactions() if named(one))
        return counts

    for log in found.observers():
        with found.guard(log.source):
            if (counts := log.observe(count).value) is not None:
                yield counts
                found.require_read(log.source, given=counts.kinds.total() > 0)
    found.require_numbers(wanted)
    deliver(found, problems)


# -- as they come ---------------------------------------------------------------------------


def follow(
    path: Paths,
    wanted: Filter = EVERYTHING,
    *,
    options: ReadOptions | None = None,
    poll_s: float = POLL_S,
    idle_s: float | None = None,
    tell: Callable[[str], object] = lambda _text: None,
) -> Iterator[Seen]:
    """Yield the records that are there, then each as it comes; logs may be written meanwhile.

    Files are looked at every ``poll_s`` seconds, and a log is read on when one has grown. What does
    not end yet is taken for half written. It ends after ``idle_s`` seconds without a record; with
    None never. ``tell`` gets a sentence where nothing may come any more: the log is gone, another
    one is in its place, which is followed from its beginning, or it cannot be read on.

    Raises:
        UnsupportedFormatError: records of a log come and go between two looks; or LSNs or times
            are asked for, and no log has them.
        LogUnreadableError: there is no log.
    """
    tell = checked(tell, "tell")
    found = survey(path, options=options).refuse_unknown_settings()
    deliver(found, None)
    wanted, followed = found.known_filter(wanted, "records"), dict[tuple[str, str], _Followed]()
    for source in found.logs:
        with suppress(TallystickError):  # it is being written
            reading = found.read(source)
            found.clock_for(reading, wanted)
            found.tells_lsns(reading, wanted)
    found.require_numbers(wanted)
    found.require_times(wanted)
    since = time.monotonic()
    while idle_s is None or time.monotonic() - since < idle_s:
        for source in found.logs:
            if why := why_not_followed(source, found.known[source.system]):
                raise UnsupportedFormatError(
                    f"this log cannot be followed: {why}",
                    file=source.path,
                    advice="Without --follow it is read as it is now",
                )
            one = followed.setdefault((source.system, log_name(source)), _Followed())
            for seen in one.news(found, source, wanted, tell):
                since = time.monotonic()
                yield seen
        time.sleep(poll_s)
        with suppress(TallystickError):  # files come and go: the next look sees them
            found = survey(path, options=options)
        here = {(source.system, log_name(source)) for source in found.logs}
        for key in followed.keys() - here:
            followed.pop(key).note_gone(key[1], tell)


@dataclass(slots=True)
class _Followed:
    """How far a log was read: the last LSN, or, where records have none, the end in each file."""

    sequence: int = -1
    ends: dict[tuple[str, int | None], int] = field(default_factory=dict)
    before: Picture | None = None
    identity: str = ""
    unsure: bool = False

    def note_gone(self, log: str, tell: Callable[[str], object]) -> None:
        """Say that the log is not there, once, and forget how far it was read."""
        if self.before is not None:
            tell(f"{log}: the log is gone; one that comes there is followed from its beginning")
        self.before, self.sequence, self.ends = None, -1, {}

    def news(
        self, found: Survey, source: LogSource, wanted: Filter, tell: Callable[[str], object]
    ) -> Iterator[Seen]:
        """Yield the records of a log that have come since."""
        log = log_name(source)
        if not is_remote(source.path) and not any(map(status, source.files)):
            self.note_gone(log, tell)
            return
        if (
            self.before is not None
            and source.files == self.before.source.files
            and all(map(self.before.stands, source.files))
        ):
            if self.unsure:
                self.unsure = False
                with suppress(TallystickError):  # it is being written after all
                    for one in damage_of(found.read(source), found.known, found.options)[:1]:
                        tell(f"{one.message}. Type: tallystick explain {shell_quoted(log)}")
            return
        self.unsure = True  # until a record comes
        with suppress(TallystickError):  # what is being written may not be read: the next look does
            identity, _ = found.known[source.system].names_in(source.path, LOCAL)
            if self.before is not None and identity != self.identity:
                tell(f"{log}: another log is in its place, and is followed from its beginning")
                self.sequence, self.ends = -1, {}
            self.before, self.identity = picture(source), identity
            reading = found.read(source)
            lives = reading.lives() if isinstance(reading, FileByFile) else {}
            fits, clock = wanted.of_records(reading.clock), reading.clock
            later = replace(EVERYTHING, from_lsn=self.sequence + 1)
            for record in found.selected(reading, later if self.sequence >= 0 else EVERYTHING):
                if record.outcome is not Outcome.VALID:
                    continue
                life = lives.get(record.file)
                place = record.file, None if life is None else life.generation
                if record.sequence is None and record.offset < self.ends.get(place, 0):
                    continue
                self.sequence = max(self.sequence, record.sequence or -1)
                self.ends[place] = record.offset + record.length
                self.unsure = False
                if fits(record):
                    yield Seen(record, clock)
