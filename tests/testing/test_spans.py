"""`check_tiling` notices every byte that lies in no span, or in two."""

from __future__ import annotations

import pytest

from tallystick.records import (
    LogFile,
    Outcome,
    Span,
)
from tallystick.testing import check_tiling


def _file(*spans: Span) -> LogFile:
    return LogFile("f", 10, "log file", 0, spans=spans)


@pytest.mark.parametrize(
    ("spans", "complaint"),
    [
        ([(0, 4), (5, 5)], "starts at 5, expected 4"),
        ([(0, 6), (4, 6)], "starts at 4, expected 6"),
        ([(0, 9)], "spans end at 9, the file at 10"),
        ([], "spans end at 0, the file at 10"),
        ([(0, 0), (0, 10)], "empty span at 0"),
    ],
)
def test_spans_that_do_not_tile_are_noticed(spans: list[tuple[int, int]], complaint: str) -> None:
    file = _file(*(Span(offset, length, Outcome.VALID, "x") for offset, length in spans))
    with pytest.raises(AssertionError, match=complaint):
        check_tiling(file)


def test_a_span_that_is_not_valid_must_say_why() -> None:
    with pytest.raises(AssertionError, match="gives no reason"):
        check_tiling(_file(Span(0, 10, Outcome.CORRUPT, "record")))
