"""Values come back from JSON as they were, and plain ones are plain JSON."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import TransactionUsageError
from tallystick.values import TAG, decode_value, encode_value

PLAIN: list[Any] = [None, True, 7, 1.5, "grün", [1, "two", None], {"a": {"b": [1]}}, {}, 10**30]
OTHERS: list[Any] = [
    datetime(2026, 1, 31, 12, 30, 1, 250),
    datetime(2026, 1, 31, 12, tzinfo=UTC),
    datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    date(2026, 1, 31),
    time(12, 30, 0, 1),
    time(12, 30, tzinfo=timezone(timedelta(hours=2))),
    timedelta(days=-1, microseconds=1),
    Decimal("1.10"),
    Decimal("-Infinity"),
    UUID(int=7),
    b"\0\xff",
    math.inf,
    {TAG: 1},
    {TAG: ["uuid", "no tag of ours"]},
    {"deep": [{"x": Decimal("0E-10")}, {TAG: {TAG: b""}}]},
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.datetimes(timezones=st.none() | st.just(UTC)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just(TAG), inner),
    max_leaves=8,
)


class NoOffset(tzinfo):
    """A zone that knows no offset."""

    def utcoffset(self, _: datetime | None, /) -> None:
        """Know none."""

    dst = utcoffset

    def tzname(self, _: datetime | None, /) -> str:
        """Return its name."""
        return "none"


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_plain_value_is_plain_json(value: Any) -> None:
    form: dict[str, Any] = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}
    assert encode_value(value) == json.dumps(value, **form)
    assert decode_value(encode_value(value)) == value


@pytest.mark.parametrize("value", OTHERS, ids=repr)
def test_another_value_comes_back_exactly(value: Any) -> None:
    found = decode_value(encode_value(value))
    assert found == value
    assert type(found) is type(value)
    assert str(found) == str(value)


@given(VALUES)
def test_whatever_is_encoded_comes_back(value: Any) -> None:
    text = encode_value(value)
    json.loads(text, parse_constant=lambda one: pytest.fail(f"{one} is no JSON"))
    assert decode_value(text) == value


def test_nan_and_the_second_of_two_equal_hours_are_carried() -> None:
    assert math.isnan(decode_value(encode_value(math.nan)))
    late = datetime(2026, 10, 25, 2, 30, fold=1)
    assert decode_value(encode_value(late)).fold == 1


class Moment(datetime):
    """As freezegun, pendulum and pandas make them, the last with nanoseconds, too."""

    nanosecond = 0

    def __eq__(self, other: object) -> bool:
        return not self.nanosecond and super().__eq__(other)

    __hash__ = datetime.__hash__


class Id(UUID):
    """As asyncpg makes them."""


class Money(Decimal):
    """An amount that says its currency."""

    def __str__(self) -> str:
        return f"{super().__str__()} EUR"


def test_a_subclass_counts_as_what_it_equals_or_is_refused() -> None:
    moment, one = Moment(2026, 1, 31, 12, 30), Id(int=7)
    assert decode_value(encode_value([moment, one])) == [datetime(2026, 1, 31, 12, 30), UUID(int=7)]
    assert type(decode_value(encode_value(moment))) is datetime
    moment.nanosecond = 1
    for value in (moment, Money("1.10")):
        with pytest.raises(TransactionUsageError, match="no encoding"):
            encode_value({"a": value})
        assert encode_value({"a": value}, lambda _: "text") == '{"a":"text"}'


def test_a_value_without_an_encoding_is_refused_or_serialised() -> None:
    for value in (object(), {1, 2}, {"a": [object()]}):
        with pytest.raises(TransactionUsageError, match=r"no encoding.*serializer="):
            encode_value(value)
    assert decode_value(encode_value({"a": {2, 1}}, sorted)) == {"a": [1, 2]}
    with pytest.raises(TransactionUsageError, match="no encoding"):
        encode_value({"a": object()}, lambda one: one)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TransactionUsageError, match="no encoding"):
        encode_value(loop)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1: "a"}, "keys of type int"),
        ({None: "a"}, "keys of type NoneType"),
        ({"a": [({True: Decimal(1)},)]}, "keys of type bool"),
        ("a\ud800b", "surrogates not allowed"),
        ({"a": {"\udfff": Decimal(1)}}, "surrogates not allowed"),
        ({"a": time(1, 2, tzinfo=ZoneInfo("Europe/Berlin"))}, "it would lose its zone"),
        (datetime(2026, 1, 31, tzinfo=NoOffset()), "it would lose its zone"),
    ],
)
def test_what_would_come_back_as_another_value_is_refused(value: Any, why: str) -> None:
    with pytest.raises(TransactionUsageError, match=why):
        encode_value(value)


def test_a_value_that_is_nested_too_deeply_is_refused_as_such() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(TransactionUsageError, match="nested too deeply"):
        encode_value(deep)


def test_what_earlier_versions_wrote_is_read() -> None:
    assert decode_value('{"a": 1, "b": [Infinity]}') == {"a": 1, "b": [math.inf]}
    assert decode_value('{"$tallystick": ["of a later version", 1]}') == {
        TAG: ["of a later version", 1]
    }


@pytest.mark.parametrize("text", ['["uuid", "x"]', '["decimal", "x"]', '["datetime", 7]'])
def test_a_damaged_tag_is_no_value(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        decode_value(f'{{"$tallystick": {text}}}')
