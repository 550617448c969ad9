"""What the scenarios of logs share: items of writers, and what a recovery must return of them."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.testing import check_items


class Items:
    """The items that writers have handed in, and those that were reported durable."""

    def __init__(self) -> None:
        self.submitted: list[bytes] = []
        self.acknowledged: list[bytes] = []

    def check(self, recovered: Sequence[bytes]) -> None:
        """Check that nothing acknowledged is lost, nothing invented, and each writer in order."""
        check_items(self.submitted, self.acknowledged, recovered, writer_of=_writer)


def _writer(item: object) -> bytes:
    assert isinstance(item, bytes)
    return item[:1]
