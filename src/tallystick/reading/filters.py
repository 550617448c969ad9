"""The one language of filters: which rows, records or lines of a table a person asks for.

In: a `Filter`, whose ids and keys are texts as a person types them. Out: tests of values by column,
the same for `rows`, `scan` and the tables of `read_arrow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tallystick.errors import UnsupportedFormatError
from tallystick.reconcile.ids import find_gtrid
from tallystick.records import Clock, Fate, Record, Row, Xid

if TYPE_CHECKING:
    import pyarrow as pa

Test = Callable[[Any], bool]

TIME_OF_DAY = {Clock.WALL_MS: 10**6, Clock.WALL_US: 10**3, Clock.WALL_NS: 1}
"""Nanoseconds of a unit of the clocks that tell the time of day."""

_OF_CHANGES = {
    "transaction": "transaction", "gtrid": "gtrid", "table": "collection", "key": "key",
    "time": "time",
}  # fmt: skip
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "rows": _OF_CHANGES,
    "changes": _OF_CHANGES,
    "records": {
        "transaction": "transaction", "gtrid": "gtrid", "key": "record_id", "time": "time",
    },
    "transactions": {"transaction": "transaction", "gtrid": "gtrid", "time": "last_time"},
    "findings": {"gtrid": "gtrid"},
}  # fmt: skip
"""By table the columns in which a filter looks."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a person asks for; all of it must fit. Empty, it takes everything.

    Attributes:
        fates: of rows, one of these.
        transaction: the number of the transaction in its log.
        gtrid: the global transaction, by the beginning of its id in any spelling; whole, as hex,
            once it is `known_among` others.
        table: the table, queue or resource, by any of its names.
        key: the key of the row, or the id of the record; for rows also ``COLUMN=VALUE``.
        since: not before this time.
        until: not after this time.
    """

    fates: frozenset[Fate] = frozenset()
    transaction: str | None = None
    gtrid: str | None = None
    table: str | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def timed(self) -> bool:
        """Whether it asks for times."""
        return self.since is not None or self.until is not None

    def known_among(self, known: Iterable[Xid]) -> Filter:
        """Return the filter with the whole id of the one global transaction that is meant.

        Raises:
            TransactionUsageError: there is none, or more than one; it names candidates.
        """
        if self.gtrid is None:
            return self
        return replace(self, gtrid=find_gtrid(self.gtrid, known).hex())

    def require_columns(self, table: str) -> None:
        """Check that a table tells what is asked for.

        Raises:
            UnsupportedFormatError: it has no such column.
        """
        columns = COLUMNS.get(table, {})
        asked = {name for name in ("transaction", "gtrid", "table", "key") if getattr(self, name)}
        if missing := sorted((asked | ({"time"} if self.timed else set())) - columns.keys()):
            raise UnsupportedFormatError(
                f"the table {table} has no {', '.join(missing)} to filter by",
                expected=f"one of {', '.join(columns)}" if columns else "no filter",
                found=", ".join(missing),
            )

    def of_rows(self, clock: Clock) -> Callable[[Row], bool]:
        """Return what tells whether a row of a log with such a clock is asked for."""
        fates, table = self.fates, self.table
        tests = _by_attribute(replace(self, table=None)._tests(clock), _OF_CHANGES)

        def is_asked_for(row: Row) -> bool:
            if fates and row.fate not in fates:
                return False
            if table is not None and table != row.change.collection and table not in row.names:
                return False
            return all(test(get(row.change)) for get, test in tests)

        return is_asked_for

    def of_records(self, clock: Clock) -> Callable[[Record], bool]:
        """Return what tells whether a record of a log with such a clock is asked for."""
        tests = _by_attribute(self._tests(clock), COLUMNS["records"])
        return lambda record: all(test(get(record)) for get, test in tests)

    def taken_of(self, batch: pa.RecordBatch, table: str, clock: Clock) -> pa.RecordBatch:
        """Return the rows of a batch of a table that are asked for."""
        import pyarrow

        for name, test in self._tests(clock).items():
            values = batch.column(COLUMNS[table][name])
            batch = batch.filter(pyarrow.array(map(test, values.to_pylist()), pyarrow.bool_()))
        return batch

    def _tests(self, clock: Clock) -> dict[str, Test]:
        """Return what is asked for by name, as a test of a value."""
        texts = {"transaction": self.transaction, "table": self.table, "key": self.key}
        tests: dict[str, Test] = {
            name: _is(text) for name, text in texts.items() if text is not None
        }
        if self.gtrid is not None:
            tests["gtrid"] = _equals(bytes.fromhex(self.gtrid))
        if self.timed:
            tests["time"] = _within(_ns(self.since), _ns(self.until), TIME_OF_DAY.get(clock))
        return tests


EVERYTHING = Filter()


def _by_attribute(
    tests: Mapping[str, Test], columns: Mapping[str, str]
) -> list[tuple[Callable[[Any], Any], Test]]:
    return [(attrgetter(columns[name]), test) for name, test in tests.items()]


def _is(text: str) -> Test:
    return lambda value: value is not None and str(value) == text


def _equals(wanted: bytes) -> Test:
    return lambda value: value == wanted


def _within(since: int | None, until: int | None, unit: int | None) -> Test:
    """Return whether a time lies between two, in nanoseconds; never where the clock tells none."""

    def test(value: Any) -> bool:
        if value is None or unit is None:
            return False
        time = value * unit
        return (since is None or since <= time) and (until is None or time <= until)

    return test


def _ns(moment: datetime | None) -> int | None:
    """Return nanoseconds since 1970; a time without a zone is UTC."""
    if moment is None:
        return None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return ((since.days * 86400 + since.seconds) * 10**6 + since.microseconds) * 1000


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(time: int | None, clock: Clock) -> str | None:
    """Return a time of a log as ISO with its zone where its clock tells the time of day."""
    unit = TIME_OF_DAY.get(clock)
    if time is None or unit is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=time * unit // 1000)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
