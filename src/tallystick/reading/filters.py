"""The one language of filters: which rows, records or lines of a table a person asks for.

In: a `Filter`, whose ids and keys are texts as a person types them. Out: tests of values by column,
the same for `rows`, `scan` and the tables of `read_arrow`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial, reduce
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tallystick.errors import TransactionUsageError, UnsupportedFormatError
from tallystick.reconcile.ids import find_gtrid
from tallystick.records import (
    Change,
    Clock,
    Fate,
    Kind,
    Outcome,
    Record,
    Row,
    State,
    Transaction,
    Xid,
)
from tallystick.systems.protocol import chosen_changes, chosen_splits

if TYPE_CHECKING:
    import pyarrow as pa

    from tallystick.systems.protocol import LogReading, Split, Stretch

Test = Callable[[Any], bool]

TIME_OF_DAY = {Clock.WALL_MS: 10**6, Clock.WALL_US: 10**3, Clock.WALL_NS: 1}
"""Nanoseconds of a unit of the clocks that tell the time of day."""

_OF_CHANGES = {
    "transaction": "transaction", "gtrid": "gtrid", "table": "collection", "key": "key",
    "kind": "kind", "time": "time", "LSN": "commit_sequence", "body": "after before",
}  # fmt: skip
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "rows": _OF_CHANGES | {"resource": "collection", "outcome": "fate"},
    "changes": _OF_CHANGES,
    "records": {
        "transaction": "transaction", "gtrid": "gtrid", "key": "record_id", "kind": "kind",
        "time": "time", "LSN": "sequence", "body": "body", "resource": "resources",
        "outcome": "outcome",
    },
    "transactions": {
        "transaction": "transaction", "gtrid": "gtrid", "time": "last_time",
        "resource": "participants", "outcome": "state",
    },
    "findings": {"gtrid": "gtrid"},
}  # fmt: skip
"""By table the columns in which a filter looks; of two one has to fit."""
OUTCOMES: Mapping[str, tuple[str, ...]] = {
    "rows": tuple(Fate), "records": tuple(Outcome), "transactions": tuple(State),
}  # fmt: skip
"""By table the words for an outcome."""
_KINDS_OF_CHANGES = (Kind.ADD, Kind.UPDATE, Kind.DELETE, Kind.TRUNCATE, Kind.DECISION)
KINDS: Mapping[str, tuple[Kind, ...]] = {
    "rows": _KINDS_OF_CHANGES, "changes": _KINDS_OF_CHANGES, "records": tuple(Kind),
}  # fmt: skip
"""By table the kinds that its rows have."""
PLACED = re.compile(r"(.+)@(\d{1,19})")
"""A transaction by its number, which several may have, and that of its commit."""
NAMED = {
    "transaction": ("no transaction here is", "No transaction here has a number"),
    "table": ("no table, queue or resource here is called", "Nothing here has one"),
    "key": ("nothing here has the key", "Nothing here has a key"),
    "resource": ("no resource here is called", "Nothing here names one"),
}
"""What is asked for by its name, and so has to be there: what is said where it is not."""
_NEAREST = 4
_CANDIDATES_MAX = 10_000
"""Names among which the nearest are looked for."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a person asks for; all of it must fit. Empty, it takes everything.

    Attributes:
        fates: of rows, one of these.
        transaction: the number of the transaction in its log; of rows and changes also with ``@``
            and the number of its commit.
        gtrid: the global transaction, by the beginning of its id in any spelling; whole, as hex,
            once it is `known_among` others.
        table: the table, queue or resource, by any of its names.
        key: the key of the row, or the id of the record; for rows also ``COLUMN=VALUE``.
        since: not before this time.
        until: not after this time.
        kinds: the change or record is of one of these kinds.
        outcome: of a record, its outcome; of a row, its fate; of a transaction, its state.
        resource: the resource, of rows the table, is one of them.
        body: stands in the body, in an image of the row or in one of its values: text, or
            hexadecimal after ``0x``.
        from_lsn: not before this number of a record; of a change that of its commit.
        to_lsn: not after this number.
    """

    fates: frozenset[Fate] = frozenset()
    transaction: str | None = None
    gtrid: str | None = None
    table: str | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    kinds: frozenset[Kind] = frozenset()
    outcome: str | None = None
    resource: str | None = None
    body: str | None = None
    from_lsn: int | None = None
    to_lsn: int | None = None

    @property
    def timed(self) -> bool:
        """Whether it asks for times."""
        return self.since is not None or self.until is not None

    @property
    def numbered(self) -> bool:
        """Whether it asks for LSNs."""
        return self.from_lsn is not None or self.to_lsn is not None

    def of_commit(self) -> Filter:
        """Return the filter by number and commit, where a transaction is named by both."""
        if self.transaction is None or not (found := PLACED.fullmatch(self.transaction)):
            return self
        commit = int(found[2])
        least, most = max(commit, self.from_lsn or commit), min(commit, self.to_lsn or commit)
        return replace(self, transaction=found[1], from_lsn=least, to_lsn=most)

    def known_among(self, known: Iterable[Xid]) -> Filter:
        """Return the filter with the whole id of the one global transaction that is meant.

        Raises:
            TransactionUsageError: there is none, or more than one; it names candidates.
        """
        if self.gtrid is None:
            return self
        return replace(self, gtrid=find_gtrid(self.gtrid, known).hex())

    def require_columns(self, table: str) -> None:
        """Check that a table tells what is asked for, and that it can be meant.

        Raises:
            UnsupportedFormatError: it has no such column, or no such outcome.
            TransactionUsageError: what is to stand in the body is not hexadecimal.
        """
        columns = COLUMNS.get(table, {})
        asked = {name for name in ("transaction", "gtrid", "table", "key") if getattr(self, name)}
        asked |= {name for name in ("resource", "body", "outcome") if getattr(self, name)}
        told = {"kind": bool(self.kinds), "time": self.timed, "LSN": self.numbered}
        asked |= {name for name in told if told[name]}
        if missing := sorted(asked - columns.keys()):
            raise UnsupportedFormatError(
                f"the table {table} has no {', '.join(missing)} to filter by",
                expected=f"one of {', '.join(columns)}" if columns else "no filter",
                found=", ".join(missing),
            )
        if self.outcome is not None and self.outcome not in OUTCOMES[table]:
            raise UnsupportedFormatError(
                f"the table {table} has no such outcome",
                expected=f"one of {', '.join(OUTCOMES[table])}", found=self.outcome,
            )  # fmt: skip
        if others := sorted(self.kinds - set(KINDS.get(table, ()))):
            raise UnsupportedFormatError(
                f"the table {table} has no rows of this kind: its rows are changes, not records",
                expected=f"one of {', '.join(KINDS[table])}", found=", ".join(others),
                advice="Records have it: tallystick dump --kind, or export --table records",
            )  # fmt: skip
        _forms(self.body or "")

    def require(self, name: str, known: Iterable[str]) -> None:
        """Check that what is asked for by name is one of what the logs have.

        Times, LSNs, kinds, outcomes and texts are no names: they may fit nothing.

        Args:
            name: one of `NAMED`.
            known: all of the logs, as texts.

        Raises:
            TransactionUsageError: there is no such transaction; it names candidates.
            UnsupportedFormatError: nothing has the key, or is of the table or resource.
        """
        wanted, others = getattr(self, name), dict[str, None]()
        if wanted is None:
            return
        for one in known:
            if one == wanted:
                return
            if one and len(others) < _CANDIDATES_MAX:
                others[one] = None
        near = get_close_matches(wanted, sorted(others), n=_NEAREST, cutoff=0.3)
        near = near or [*others][-_NEAREST:]
        none, missing = NAMED[name]
        advice = f"Did you mean {', '.join(near)}?" if near else missing
        error = TransactionUsageError if name == "transaction" else UnsupportedFormatError
        raise error(f"{none} {wanted!r}", advice=advice)

    def of_rows(self, clock: Clock) -> Callable[[Row], bool]:
        """Return what tells whether a row of a log with such a clock is asked for."""
        fates, named = self.fates, {self.table, self.resource} - {None}
        # These four are tested below: they are of the row (its fate, all names of its table, its
        # values) and not of the change in it alone.
        of_change = replace(self, table=None, resource=None, outcome=None, body=None)
        tests = _by_attribute(of_change._tests(clock), _OF_CHANGES)
        forms = None if self.body is None else _forms(self.body)

        def is_asked_for(row: Row) -> bool:
            if fates and row.fate not in fates:
                return False
            if self.outcome is not None and row.fate != self.outcome:
                return False
            if named and not named <= {row.change.collection, *row.names}:
                return False
            if forms is not None and not self._stands_in(row.change, forms):
                return False
            return all(test(get(row.change)) for get, test in tests)

        return is_asked_for

    def of_records(self, clock: Clock) -> Callable[[Record | Transaction], bool]:
        """Return a test of whether a record of a log with such a clock is asked for.

        Transactions are tested by what they have in common with records: number and global id.
        """
        tests = _by_attribute(self._tests(clock), COLUMNS["records"])
        return lambda record: all(test(get(record)) for get, test in tests)

    def taken_of(self, batch: pa.RecordBatch, table: str, clock: Clock) -> pa.RecordBatch:
        """Return the rows of a batch of a table that are asked for."""
        for name, test in self._tests(clock).items():
            batch = _fitting(batch, COLUMNS[table][name].split(), test)
        return batch

    def taken_of_rows(
        self, batch: pa.RecordBatch, clock: Clock, names: Mapping[str, Iterable[str]]
    ) -> pa.RecordBatch:
        """Return what `of_rows` takes of a batch of rows, whatever stands in bodies and values.

        ``names`` are further ones of collections, and what the texts of the `NAMED` schema say.
        """
        named = [one for one in (self.table, self.resource) if one is not None]
        of_change = replace(self, table=None, resource=None, body=None)
        tests = {COLUMNS["rows"][name]: test for name, test in of_change._tests(clock).items()}
        calling = [name for name in ("collection", "names") if name in batch.schema.names]
        for each in named:
            batch = _fitting(batch, calling, partial(_is_called, names, each))
        for name, test in tests.items():
            batch = _fitting(batch, [name], test)
        return _fitting(batch, ["fate"], self.fates.__contains__) if self.fates else batch

    def columns_of(self, table: str) -> list[str]:
        """Return the columns of a table in which it looks."""
        asked = (COLUMNS[table][name].split() for name in self._tests(Clock.NONE))
        return [*dict.fromkeys(chain.from_iterable(asked))]

    def _stands_in(self, change: Change, forms: Sequence[bytes]) -> bool:
        """Return whether a text stands in an image of a row, or in one of its values."""
        images = (change.after, change.before)
        if any(form in image for image in images if image for form in forms):
            return True
        return any((self.body or "") in str(value) for value in (change.values or {}).values())

    def splits_in(self, reading: LogReading, table: str = "records") -> list[Split] | None:
        """Return the parts of a log that can hold what is asked for; None where all has to be read.

        LSNs and times alone tell that, of records and of changes.
        """
        of_table = {"records": chosen_splits, "changes": chosen_changes}.get(table)
        if of_table is None or not (self.numbered or self.timed):
            return None
        unit = TIME_OF_DAY.get(reading.clock, 1)
        asked = (self.from_lsn, self.to_lsn), (ns_of(self.since), ns_of(self.until))

        def choose(stretches: Iterable[Stretch]) -> list[Stretch]:
            return [
                one
                for one in stretches
                if _overlap(asked[0], one.lsns, 1) and _overlap(asked[1], one.times, unit)
            ]

        return of_table(reading, choose)

    def _tests(self, clock: Clock) -> dict[str, Test]:
        """Return what is asked for by name, as a test of a value."""
        texts = {
            "transaction": self.transaction, "table": self.table, "key": self.key,
            "outcome": self.outcome,
        }  # fmt: skip
        tests: dict[str, Test] = {
            name: _is(text) for name, text in texts.items() if text is not None
        }
        if self.kinds:
            tests["kind"] = self.kinds.__contains__
        if self.resource is not None:
            tests["resource"] = lambda names: self.resource in (names or ())
        if self.body is not None:
            tests["body"] = _holds(_forms(self.body))
        if self.numbered:
            tests["LSN"] = _within(self.from_lsn, self.to_lsn, 1)
        if self.gtrid is not None:
            tests["gtrid"] = _equals(bytes.fromhex(self.gtrid))
        if self.timed:
            tests["time"] = _within(ns_of(self.since), ns_of(self.until), TIME_OF_DAY.get(clock))
        return tests


EVERYTHING = Filter()


def _by_attribute(
    tests: Mapping[str, Test], columns: Mapping[str, str]
) -> list[tuple[Callable[[Any], Any], Test]]:
    return [(attrgetter(columns[name]), test) for name, test in tests.items()]


def _fitting(batch: pa.RecordBatch, names: Sequence[str], test: Test) -> pa.RecordBatch:
    """Return the rows of which one of these columns fits; null never does."""
    import pyarrow.compute as pc

    fits = [_fits(batch.column(name), test) for name in names]
    return batch.filter(reduce(pc.or_, fits))


def _fits(column: pa.Array, test: Test) -> pa.Array:
    import pyarrow

    if pyarrow.types.is_list(column.type):
        return pyarrow.array(map(test, column.to_pylist()), pyarrow.bool_(), size=len(column))
    values = column.dictionary_encode()
    fits = map(test, values.dictionary.to_pylist())
    known = pyarrow.array(fits, pyarrow.bool_(), size=len(values.dictionary))
    return known.take(values.indices).fill_null(False)


def _is_called(names: Mapping[str, Iterable[str]], name: str, one: str) -> bool:
    return name in (one, *names.get(one, ()))


def _is(text: str) -> Test:
    return lambda value: value is not None and str(value) == text


def _equals(wanted: bytes) -> Test:
    return lambda value: value == wanted


def _holds(forms: Sequence[bytes]) -> Test:
    return lambda value: value is not None and any(form in value for form in forms)


def _forms(text: str) -> tuple[bytes, ...]:
    """Return the bytes that a text may be in a body: in UTF-8, and as Java writes its characters.

    Raises:
        TransactionUsageError: it begins with ``0x``, and no hexadecimal digits follow.
    """
    if not text.startswith(_HEX):
        return tuple(text.encode(code, "surrogatepass") for code in _CODES)
    try:
        return (bytes.fromhex(text.removeprefix(_HEX)),)
    except ValueError as error:
        raise TransactionUsageError(
            f"{text!r} is not hexadecimal", expected="pairs of digits after 0x"
        ) from error


_HEX = "0x"
_CODES = ("utf-8", "utf-16-le", "utf-16-be")


def _within(since: int | None, until: int | None, unit: int | None) -> Test:
    """Return whether a number lies between two, in ``unit``s; never where there is none."""

    def test(value: Any) -> bool:
        if value is None or unit is None:
            return False
        time = value * unit
        return (since is None or since <= time) and (until is None or time <= until)

    return test


def _overlap(
    asked: tuple[int | None, int | None], there: tuple[int | None, int | None], unit: int
) -> bool:
    """Return whether a number of a stretch, in ``unit``s, can lie between two."""
    (least, most), (first, last) = asked, there
    # A stretch without an end may go on for ever.
    before = least is not None and last is not None and last * unit < least
    after = most is not None and first is not None and first * unit > most
    return not (before or after)


def ns_of(moment: datetime | None) -> int | None:
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
        # In whole numbers: a float has too few digits for the microseconds of today.
        moment = _EPOCH + timedelta(microseconds=time * unit // 1000)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
