"""Rests come back as they were packed; damaged and hostile ones are refused."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.systems.cloudtran.runs.rests import Rest as CloudtranRest
from tallystick.systems.derby.columns.closing import Rest as DerbyRest
from tallystick.systems.jboss.columns.closing import Rest as JbossRest
from tallystick.systems.protocol import ClosesBySplit, LogReading, NotClosedInPartsError
from tallystick.systems.rests import items, longs, packed, unpacked
from tallystick.systems.tally.read.closing import Rest as TallyRest
from tests.systems.cloudtran.blocks import reading as block_log
from tests.systems.cloudtran.runs.test_pieces import store, written
from tests.systems.tally.build import reading as native_log
from tests.systems.tally.read.test_closing import interleaved

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=6), inner),
)


def same(value: Any) -> Any:
    return value


@given(VALUES)
@settings(max_examples=50)
def test_a_value_comes_back(value: Any) -> None:
    assert unpacked(packed(value), same) == value


def test_arrays_come_back_as_integers() -> None:
    for array in (np.array([[1, -2], [3, 1 << 62]]), np.empty((2, 0), np.int64)):
        (part,) = unpacked(packed([array]), same)
        assert longs(part).reshape(array.shape).tolist() == array.tolist()


@given(st.data())
def test_damaged_bytes_are_refused(data: st.DataObject) -> None:
    rest = packed({"path": "one", "records": [b"body", 7]})
    place = data.draw(st.integers(2, len(rest) - 1))
    for bad in (rest[:place], rest[:place] + b"\xa5\x5a" + rest[place + 2 :], rest + b"1"):
        with pytest.raises(NotClosedInPartsError):
            unpacked(bad, same)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff\xff\xff\xff{}", b"\2\0\0\0{x", b'\x0f\0\0\0{"bytes":[0,9]}', b"\1\0\0\0\xff"],
)
def test_streams_of_something_else_are_refused(raw: bytes) -> None:
    with pytest.raises(NotClosedInPartsError, match="damaged"):
        unpacked(zlib.compress(raw), same)


def test_items_of_another_number_or_type_are_refused() -> None:
    assert items([1, None], int, int | None) == [1, None]
    for value in ([1], [1, "two"], "12", None):
        with pytest.raises(TypeError):
            items(value, int, int | None)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rest", [TallyRest, CloudtranRest, DerbyRest, JbossRest])
@given(value=VALUES)
@settings(max_examples=25)
def test_other_values_are_no_rests(rest: Any, value: Any) -> None:
    with pytest.raises(NotClosedInPartsError):
        unpacked(packed(value), rest.built)


def in_blocks(folder: Path) -> LogReading:
    store(folder, written(45))
    return block_log(folder)


@pytest.mark.parametrize("log", [in_blocks, lambda _: native_log(interleaved(14))])
def test_rests_with_an_item_exchanged_are_joined_or_refused(
    log: Callable[[Path], LogReading], tmp_path: Path
) -> None:
    reading = log(tmp_path / "log")
    assert isinstance(reading, ClosesBySplit)
    rests = []
    for split in reading.splits(2000):
        closed = reading.close_split(split, 100)
        list(closed.batches)
        rest = closed.rest()
        assert rest is not None
        rests.append(rest)
    assert list(reading.close_rests(rests, 100))
    rng, refused = random.Random(1), 0
    for _ in range(150):
        bad = list(rests)
        index = rng.randrange(len(bad))
        bad[index] = packed(_exchanged(unpacked(bad[index], same), rng))
        try:
            list(reading.close_rests(bad, 100))
        except NotClosedInPartsError:
            refused += 1
    assert refused > 50


def _exchanged(value: Any, rng: random.Random) -> Any:
    """Return a value with another in the place of one that it holds."""
    places = list(_places(value))
    within, key = rng.choice(places)
    within[key] = rng.choice([None, -1, 1 << 70, "", b"", [], {}, [1, 2], "text", 3])
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, list | dict):
        for key in range(len(value)) if isinstance(value, list) else value:
            yield value, key
            yield from _places(value[key])
