"""Calls of programs that have used up their stack: those without room fail, and nothing else.

In: the calls that are interrupted elsewhere. Out: one run of each for each number of calls, one in
the other, that Python still allows, from none to more than it takes to begin.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.services.journal.test_interrupts import Records
from tests.services.page_store.test_interrupts import Rows
from tests.services.transactions.messaging.test_interrupts import Post
from tests.services.transactions.test_interrupts import Books, Estate
from tests.services.write_behind.test_interrupts import Rows as Behind
from tests.stack import calls_left, deep

pytestmark = pytest.mark.both_cores

LEFT_MAX = 40

CALLS: list[tuple[Callable[[Path], Any], str, str]] = [
    *(
        (lambda path: Records(path / "j", shared=False), call, "check")
        for call in ("append", "submit", "transaction", "prepared", "many", "reads", "tidies")
    ),
    *(
        (lambda path: Records(path / "j", shared=True), call, "check")
        for call in ("append", "transaction", "prepared")
    ),
    *(
        (lambda path: Rows(path / "s", "tally"), call, "check")
        for call in ("with_statement", "commit", "prepared", "settled", "reads")
    ),
    (lambda path: Rows(path / "s", "h2"), "commit", "check"),
    *((lambda path: Behind(path / "s"), call, "check") for call in ("commit", "commit_and_drain")),
    *((Estate, call, "check") for call in ("transfer", "recover")),
    (Books, "book", "check"),
    (Post, "send", "check_sent"),
    (Post, "send_and_relay", "check_sent"),
    (Post, "request", "check_request"),
]


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("make", "name", "check"), CALLS)
def test_a_call_without_room_on_the_stack_fails_alone(
    tmp_path: Path, make: Callable[[Path], Any], name: str, check: str
) -> None:
    service = make(tmp_path)
    call, check_after = getattr(service, name), getattr(service, check)
    failed = 0
    for less in range(LEFT_MAX):
        raised: Exception | None = None
        try:
            deep(call, calls_left() - less)
        except Exception as error:
            raised = error
            failed += 1
        try:
            check_after(raised)
        except Exception as wrong:
            raise AssertionError(f"with {less} calls left: {raised!r}, then {wrong!r}") from raised
    assert failed, "each had room"
    gc.collect()
