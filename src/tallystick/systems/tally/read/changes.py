"""The change feed of a native log: committed adds, updates and deletes.

In: records in log order. Out: `Change` objects in commit order. Memory grows with open
transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tallystick.records import Change, Kind, Outcome, Record
from tallystick.systems.tally.format.bodies import ROW_HEAD_SIZE
from tallystick.systems.tally.format.layout import SYSTEM_NAME

_CHANGES = {
    "add": Kind.ADD, "update": Kind.UPDATE, "delete": Kind.DELETE, "append": Kind.ADD,
    "redo_add": Kind.ADD, "redo_remove": Kind.DELETE, "truncate": Kind.TRUNCATE,
}  # fmt: skip


class ChangeFeed:
    """Turns records in log order into changes in commit order.

    ``incomplete`` are the transactions that ended with records missing: they change nothing.
    """

    def __init__(self, log: str, incomplete: Mapping[int, str]) -> None:
        self._log = log
        self._incomplete = incomplete
        self._open: dict[int, list[Record]] = {}

    def take(self, records: Iterable[Record]) -> Iterator[Change]:
        """Yield the changes that are committed by these records."""
        for record in records:
            if record.outcome is not Outcome.VALID:
                continue
            number = record.transaction
            if number is None:
                if record.type in _CHANGES:
                    yield _change(self._log, record, record, 0)
            elif record.type in _CHANGES:
                self._open.setdefault(number, []).append(record)
            elif record.type in ("commit", "rollback"):
                elements = self._open.pop(number, [])
                if record.type == "commit" and number not in self._incomplete:
                    for ordinal, element in enumerate(elements):
                        yield _change(self._log, element, record, ordinal)


def _change(log: str, record: Record, commit: Record, ordinal: int) -> Change:
    table = record.attributes.get("table")
    kind = _CHANGES[record.type]
    body = record.body
    if table is not None and body is not None:
        body = body[ROW_HEAD_SIZE:]
    change = Change(
        SYSTEM_NAME,
        log,
        commit.sequence or 0,
        ordinal,
        kind,
        "" if table is None else str(table),
        "" if record.record_id is None else str(record.record_id),
        record.file,
        record.offset,
        transaction=None if record.transaction is None else str(record.transaction),
        time=commit.time,
        after=body,
    )
    return change if kind in (Kind.ADD, Kind.UPDATE) else replace(change, after=None)
