"""The row that a key means, where an UPDATE has changed it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.arrow.schemas import batches_of_fated
from tallystick.investigate.keys import MeantKey, other_value
from tallystick.records import Change, Clock, Fate, Kind, Row
from tallystick.systems.protocol import LogReading

_KINDS = {"+": Kind.ADD, "-": Kind.DELETE, "~": Kind.UPDATE, "0": Kind.TRUNCATE}


class _Reading:
    """A log of transactions as text: ``+1a`` adds a row at 1 whose NAME is a, ``-1`` deletes it."""

    def __init__(self, system: str, *transactions: str) -> None:
        self.source = SimpleNamespace(system=system)
        self._transactions = transactions

    def fated_changes(self) -> Iterator[Row]:
        for number, text in enumerate(self._transactions, 1):
            for ordinal, word in enumerate(text.split()):
                values = {"NAME": word[2:]} if word[2:] else None
                change = Change(
                    self.source.system, "x", number, ordinal, _KINDS[word[0]], "T", word[1:2],
                    "", 0, transaction=f"{number}", values=values,
                )  # fmt: skip
                yield Row(Fate.COMMITTED, change)


HISTORIES = [
    # An UPDATE of the key, and one of another column before and after it.
    ("h2", ["+1a +5e", "-1 +1a", "-1 +2b", "-2 +2b"], "NAME=b", "+1a -1 +1a -1 +2b -2 +2b"),
    ("h2", ["+1a +5e", "-1 +2b", "-2 +3c"], "NAME=a", "+1a -1 +2b -2 +3c"),
    ("h2", ["+1a", "-1 +2b", "+1z", "-1"], "NAME=b", "+1a -1 +2b"),
    ("h2", ["+1a", "-1 +2b", "+1z", "-1"], "NAME=z", "+1z -1"),
    # Each row takes the key of the next one.
    ("h2", ["+1a +2b", "-1 -2 +2c +3d"], "NAME=d", "+2b -2 +3d"),
    ("h2", ["+1a +2b", "-1 -2 +3c +4d"], "NAME=d", "+2b -2 +4d"),
    # A DELETE before the UPDATE, and an INSERT after it.
    ("h2", ["+1a +2b", "-1 -2 +3c"], "NAME=c", "+2b -2 +3c"),
    ("h2", ["+1a +2b +3c", "-1 -2 -3 +2d"], "NAME=d", "+2b -2 +2d"),
    ("h2", ["+1a", "-1 +2b +3c"], "NAME=c", "+3c"),
    ("h2", ["+1a", "-1 +2b +3c"], "NAME=b", "+1a -1 +2b"),
    # Who deletes in one transaction and adds in another one has two rows.
    ("h2", ["+1a", "-1", "+2b"], "NAME=b", "+2b"),
    ("h2", ["+1a", "-1", "+1b"], "NAME=b", "+1b"),
    ("h2", ["+1a", "-1 +2b", "0"], "NAME=b", "+1a -1 +2b 0"),
    # A key as the log has it is followed, too: some versions of H2 give a new one each time.
    ("h2", ["+1a", "-1 +2a", "-2 +3a"], "1", "+1a -1 +2a -2 +3a"),
    ("derby", ["+1a", "~1", "~1b", "~1", "-1"], "NAME=b", "+1a ~1 ~1b ~1 -1"),
    ("derby", ["+1a", "-1 +2b"], "NAME=b", "+2b"),
    ("derby", ["+1a", "~1b", "+2c"], "1", "+1a ~1b"),
]  # fmt: skip


@pytest.mark.parametrize(("system", "log", "key", "expected"), HISTORIES, ids=str)
def test_a_row_is_followed_through_its_keys(
    system: str, log: list[str], key: str, expected: str
) -> None:
    reading = _Reading(system, *log)
    marks = {kind: mark for mark, kind in _KINDS.items()}
    changes = [
        row.change
        for row in MeantKey(key, cast(LogReading, reading)).chosen(reading.fated_changes())
    ]
    shown = [f"{marks[one.kind]}{one.key}{(one.values or {}).get('NAME', '')}" for one in changes]
    assert " ".join(shown) == expected


class _InColumns(_Reading):
    """The same log, with its rows in batches of so many."""

    clock = Clock.NONE

    def __init__(self, rows: int, *transactions: str) -> None:
        super().__init__("h2", *transactions)
        self._rows = rows

    def fated_batches(self, _rows: int) -> Iterator[pa.RecordBatch]:
        return batches_of_fated(self.fated_changes(), self.clock.value, self._rows)


_WORDS = st.lists(st.sampled_from([f"{mark}{key}" for mark in "+-" for key in "1234"]), max_size=7)


@given(st.lists(_WORDS.map(" ".join), max_size=6), st.sampled_from("1234"), st.integers(1, 9))
def test_columns_tell_the_same_rows_as_objects(log: list[str], key: str, rows: int) -> None:
    one_by_one, in_columns = _Reading("h2", *log), _InColumns(rows, *log)
    every = [*one_by_one.fated_changes()]
    expected = [*MeantKey(key, cast(LogReading, one_by_one)).chosen(every)]
    meant = MeantKey(key, cast(LogReading, in_columns))
    assert [*meant.chosen(every)] == expected
    assert (some := meant.looked_at) is not None
    assert [*meant.chosen(one for one in every if some.has(one.change))] == expected


def test_many_rows_that_get_other_keys_at_once_are_paired_in_a_moment() -> None:
    count = 100_000
    reading = _Reading("h2")
    changes = [
        Change("h2", "x", 1, at, kind, "T", f"{key}", "", 0, transaction="1")
        for at, (kind, key) in enumerate(
            [(Kind.DELETE, n) for n in range(count)] + [(Kind.ADD, n + 7) for n in range(count)]
        )
    ]
    reading.fated_changes = lambda: iter([Row(Fate.COMMITTED, one) for one in changes])  # type: ignore[method-assign]
    found = MeantKey("5", cast(LogReading, reading)).chosen(reading.fated_changes())
    assert [f"{one.change.kind} {one.change.key}" for one in found] == ["delete 5", "add 12"]


@pytest.mark.parametrize(
    ("key", "values", "other"),
    [
        ("ID=2", {"ID": 1}, ("ID", 1)),
        ("id=2", {"ID": "1", "A": 2}, ("ID", "1")),
        ("ID=2", {"ID": "2.0"}, None),
        ("ID=2", {"A": 1}, None),
        ("N=a=b", {"N": "a=b"}, None),
        ("2", {"ID": 1}, None),
    ],
)  # fmt: skip
def test_a_row_under_another_key_is_told(
    key: str, values: dict[str, object], other: object
) -> None:
    assert other_value(key, values) == other
