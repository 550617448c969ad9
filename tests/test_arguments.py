"""What a caller passes becomes exactly bytes, an integer or a text, or an error that says why."""

from __future__ import annotations

import array
import os
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.arguments import (
    SECONDS_MAX,
    bodies_of,
    bytes_of,
    integer,
    integers,
    moment,
    seconds,
    text,
    texts,
    time_left,
)
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import (
    AsyncTransactionManager,
    Outbox,
    Relay,
    Retry,
    TransactionManager,
)
from tallystick.services.write_behind.settings import WriteBehindSettings
from tallystick.systems.tally.live.settings import Settings
from tests.hostile import REFUSALS, VALUES, Lying, LyingInteger, LyingText, bytes_in, integer_in


def test_bytes_are_taken_as_they_are_and_any_other_buffer_is_copied() -> None:
    body = b"body"
    assert bytes_of(body) is body
    given = bytearray(b"given")
    taken = bytes_of(given)
    given[:] = b"later"
    assert taken == b"given"


@pytest.mark.parametrize("name", VALUES)
def test_every_kind_of_value_is_stored_byte_for_byte_or_refused(name: str) -> None:
    due = bytes_in(VALUES[name]())
    try:
        found = bytes_of(VALUES[name]())
    except (TypeError, ValueError):
        assert due is None
    else:
        assert type(found) is bytes
        assert found == due


@pytest.mark.parametrize("name", VALUES)
def test_every_kind_of_value_is_an_integer_in_the_range_or_refused(name: str) -> None:
    due = integer_in(VALUES[name](), -(1 << 63), (1 << 63) - 1)
    try:
        found = integer(VALUES[name](), "id", -(1 << 63), (1 << 63) - 1)
    except REFUSALS:
        assert due is None
    else:
        assert type(found) is int
        assert found == due


@pytest.mark.parametrize("name", VALUES)
def test_every_kind_of_value_is_a_text_or_refused(name: str) -> None:
    try:
        found = text(VALUES[name](), "name", 65_535)
    except (TypeError, ValueError):
        return
    assert type(found) is str
    assert found == str.__str__(VALUES[name]())
    assert len(found.encode()) <= 65_535


@pytest.mark.parametrize("value", [float("inf"), 1 << 2000, 1e300])
def test_a_time_is_one_that_the_system_can_wait(value: float) -> None:
    assert seconds(value, "timeout") == SECONDS_MAX
    assert SECONDS_MAX < threading.TIMEOUT_MAX


def test_a_time_that_is_over_is_none_left() -> None:
    assert [time_left(one, "timeout") for one in (None, -1, 0, 2)] == [None, 0.0, 0.0, 2.0]
    with pytest.raises(ValueError, match="timeout is nan"):
        time_left(float("nan"), "timeout")


REASONS: list[tuple[Any, type[Exception], str]] = [
    (lambda: bytes_of("text"), TypeError, r"body is of type str; .*encode a text: text.encode\(\)"),
    (lambda: bytes_of(5, "key"), TypeError, "key is of type int; expected bytes, or another buff"),
    (lambda: bytes_of(memoryview(b"abcd")[::2]), ValueError, "gaps between its items"),
    (lambda: bytes_of(np.array(["2026"], "M8[Y]")), ValueError, "cannot be read: cannot include"),
    (lambda: bodies_of([b"a", "b"]), TypeError, r"bodies\[1\] is of type str"),
    (lambda: bodies_of(b"ab"), TypeError, "bodies is of type bytes; expected several"),
    (lambda: bodies_of(cast(Any, 7)), TypeError, "bodies is of type int; expected several"),
    (lambda: integer("3", "lsn", 0, 9), TypeError, "lsn is of type str; expected an integer"),
    (lambda: integer(True, "lsn", 0, 9), TypeError, "lsn is of type bool; expected an integer"),
    (lambda: integer(np.arange(2), "lsn", 0, 9), TypeError, "lsn is of type ndarray; expected an"),
    (lambda: integer(10, "lsn", 0, 9), ValueError, "lsn is 10; expected an integer from 0 to 9"),
    (lambda: integer(10**5000, "lsn", 0, 9), ValueError, "lsn is of 16610 bits; expected"),
    (lambda: integers([1, 10], "lsn", 0, 9), ValueError, "lsn is 10; expected"),
    (lambda: text(b"a", "name"), TypeError, r"name is of type bytes; expected a text \(str\)"),
    (lambda: text("a\ud800", "name"), ValueError, "name holds a lone surrogate at character 1"),
    (lambda: text("ä" * 3, "name", 5), ValueError, "name has 6 bytes in UTF-8; expected at most 5"),
    (lambda: texts("abc", "targets", 9), TypeError, "targets is of type str; expected several"),
    (lambda: texts(["a"] * 10, "targets", 9), ValueError, "are 10 texts; expected at most 9"),
]


@pytest.mark.parametrize(("call", "kind", "reason"), REASONS)
def test_an_error_names_the_argument_and_what_was_expected(
    call: Any, kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert re.search(reason, str(caught.value)), str(caught.value)


def test_what_a_value_says_of_itself_is_not_believed() -> None:
    assert bytes_of(Lying(b"true")) == bytes(memoryview(Lying(b"true")))
    assert integer(LyingInteger(5), "id", 0, 9) == 5
    assert text(LyingText("true"), "name", 4) == "true"
    with pytest.raises(ValueError, match="expected an integer from 0 to 4"):
        integer(LyingInteger(5), "id", 0, 4)


@given(
    data=st.binary(max_size=48),
    code=st.sampled_from("bBhHiIqQfd"),
    step=st.sampled_from([1, 2, -1]),
)
def test_a_buffer_of_items_of_any_width_has_the_bytes_of_its_memory(
    data: bytes, code: str, step: int
) -> None:
    width = array.array(code).itemsize
    items = array.array(code, data[: len(data) // width * width])
    view = memoryview(items)[::step]
    if view.c_contiguous:
        assert bytes_of(view) == view.tobytes()
    else:
        with pytest.raises(ValueError, match="gaps"):
            bytes_of(view)


WRONG_OPTIONS: list[tuple[Callable[[Path], object], str]] = [
    (lambda place: Journal(os.fsencode(place)), "path is of type bytes; expected a path"),  # type: ignore[arg-type]
    (lambda _: Journal(None), "path is of type NoneType; expected a path"),  # type: ignore[arg-type]
    (lambda _: PageStore(3), "path is of type int; expected a path"),  # type: ignore[arg-type]
    (lambda place: PageStore(place, lock_timeout="3"), "lock_timeout is of type str; expected"),  # type: ignore[arg-type]
    (lambda place: TransactionManager(place, {}, node=5), "node is of type int; expected a text"),  # type: ignore[arg-type]
    (lambda _: TransactionManager(b"here", {}), "path is of type bytes; expected a path"),  # type: ignore[arg-type]
    (lambda _: Settings(segment_size="64k"), "segment_size is of type str; expected an integer"),  # type: ignore[arg-type]
    (lambda _: Settings(spares=-1), "spares is -1; expected an integer from 0"),
    (lambda _: Settings(delay_s="1"), "delay_s is of type str; expected a number of seconds"),  # type: ignore[arg-type]
    (lambda _: Settings(idle_mark_s=0), "idle_mark_s is 0.0; expected more than 0"),
    (
        lambda _: WriteBehindSettings(busy_timeout="2"),  # type: ignore[arg-type]
        "busy_timeout is of type str; expected a number of seconds",
    ),
    (lambda _: WriteBehindSettings(batch_max=0), "batch_max is 0; expected an integer from 1"),
]


@pytest.mark.parametrize(("make", "text"), WRONG_OPTIONS)
def test_wrong_options_are_refused_in_one_sentence_before_anything_is_made(
    make: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        make(tmp_path / "made")
    assert not list(tmp_path.iterdir())


def test_what_works_later_in_a_thread_refuses_wrong_settings_at_once(tmp_path: Path) -> None:
    resources = {"lite": f"sqlite:///{tmp_path}/lite.db"}
    with TransactionManager(tmp_path / "tm", resources, recovery_interval=None) as tm:
        outbox = Outbox(tm, "lite")
        names = ("batch", "idle", "first", "most", "give_up_after", "lease")
        calls: list[Callable[[Any], object]] = [
            *(lambda value, name=name: Relay(outbox, print, **{name: value}) for name in names),
            *(
                lambda value, name=name: Retry(**{name: value})
                for name in ("times", "first", "most")
            ),
            lambda value: AsyncTransactionManager(tm, connections=value),
            lambda value: AsyncTransactionManager(tm, threads=value),
        ]
        for call in calls:
            for wrong in ("3", b"3", -1, True, 1j, float("nan")):
                with pytest.raises((TypeError, ValueError), match="; expected "):
                    call(wrong)
        for call in (calls[0], calls[4], *calls[-2:]):
            with pytest.raises(ValueError, match="is 0; expected"):
                call(0)


def test_wrong_places_to_read_from_are_refused_at_the_call(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        calls: list[Callable[[Any], object]] = [
            journal.replay, journal.follow, lambda value: journal.replay(0, value),
            lambda value: journal.follow(idle_s=value), lambda value: journal.follow(poll_s=value),
        ]  # fmt: skip
        for call in calls:
            for wrong in ("3", b"3", -1, True, 1j):
                with pytest.raises((TypeError, ValueError), match="; expected "):
                    call(wrong)


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ("2024-03-22", datetime(2024, 3, 22)),
        ("20240322", datetime(2024, 3, 22)),
        ("2024-03-22 12:56", datetime(2024, 3, 22, 12, 56)),
        ("2024-W12-5T12", datetime(2024, 3, 22, 12)),
        ("2024-03-22T12:56:40.5Z", datetime(2024, 3, 22, 12, 56, 40, 500_000, UTC)),
    ],
)
def test_a_time_is_what_iso_8601_has_for_it(given: str, due: datetime) -> None:
    assert moment(given) == due


@pytest.mark.parametrize("given", ["1711112200000", "1711112200", "2024-03-22x12:56", "2024"])
def test_a_count_of_seconds_or_milliseconds_is_no_time(given: str) -> None:
    with pytest.raises(ValueError, match=given):
        moment(given)
