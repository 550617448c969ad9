"""Decisions of coordinators as rows: one for each resource that a decision names.

In: what a log says of a global transaction. Out: `Row`s whose collection is the resource; and what
the readings of all such logs have in common.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tallystick.records import Change, Fate, Kind, Record, Row, State, Transaction
from tallystick.systems.protocol import LogSource, Reading, Split

if TYPE_CHECKING:
    from tallystick.systems.protocol import Longs

FATES = {
    State.COMMITTED: Fate.COMMITTED,
    State.COMMITTING: Fate.COMMITTED,
    State.ROLLED_BACK: Fate.UNDONE,
    State.ROLLING_BACK: Fate.UNDONE,
    State.UNDECIDED: Fate.UNDONE,
    State.ACTIVE: Fate.UNDONE,
    State.PREPARED: Fate.IN_DOUBT,
    State.INCOMPLETE: Fate.LOST,
}
"""By the state of a coordinator's transaction what becomes of its decision; else it is unknown."""


def decision_rows(
    transactions: Iterable[Transaction], lost: Container[bytes], doubtful: Container[bytes] = ()
) -> Iterator[Row]:
    """Yield what a coordinator's log says of its transactions; ``lost``, ``doubtful`` are gtrids.

    The transaction of a row is its own id in the log, where that is another one than the gtrid.
    """
    for one in transactions:
        known = Fate.UNKNOWN if one.gtrid in doubtful else FATES.get(one.state, Fate.UNKNOWN)
        fate = Fate.LOST if one.gtrid in lost else known
        file, offset = one.evidence or (next(iter(one.files), ""), 0)
        gtrid = (one.gtrid or b"").hex()
        change = Change(
            one.system, one.log, 0, 0, Kind.DECISION, "", gtrid or one.key, file, offset,
            transaction=None if one.key == gtrid else one.key, gtrid=one.gtrid, time=one.last_time,
        )  # fmt: skip
        yield from _of_each(
            change, fate, one.participants, one.state.value.replace("_", " "), one.open_participants
        )


def recorded_decision(record: Record, log: str, fate: Fate) -> Iterator[Row]:
    """Yield what a record decides."""
    change = Change(
        record.system, log, 0, 0, Kind.DECISION, "", (record.gtrid or b"").hex(), record.file,
        record.offset, gtrid=record.gtrid, time=record.time,
    )  # fmt: skip
    return _of_each(change, fate, record.resources, "committing", ())


def _of_each(
    change: Change, fate: Fate, resources: Iterable[str], state: str, still: Container[str]
) -> Iterator[Row]:
    for ordinal, resource in enumerate(tuple(resources) or ("",)):
        values = {"decision": state} | ({"open": True} if resource in still else {})
        yield Row(fate, replace(change, ordinal=ordinal, collection=resource, values=values))


class CoordinatorReading(Reading):
    """A coordinator's log holds decisions, not data; and its files are small."""

    source: LogSource

    def changes(self) -> Sequence[Change]:
        """Return none."""
        return ()

    def places(self, file: str, ends: Longs, sequences: Longs) -> Longs:
        """Return the ends of records: nothing is committed at any place."""
        del file, sequences
        return ends

    def changes_between(self, after: int | None, until: int) -> Iterator[Change]:
        """Yield none."""
        del after, until
        return iter(())

    def splits(self, target_bytes: int) -> Sequence[Split]:  # noqa: ARG002 - files are small
        """Return one per file."""
        return [Split(path, 0, 1 << 62) for path in self.source.files]
