"""The decision log role on a Bitronix journal.

In: the decisions of a transaction manager. Out: records that the original's recovery understands.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from tallystick.arguments import bytes_of, texts
from tallystick.records import State
from tallystick.roles import Decision, DecisionLog, DecisionOutcome, Role, Ticket
from tallystick.storage.fork import Uncopied
from tallystick.storage.source import logical_name
from tallystick.systems.bitronix.format import layout
from tallystick.systems.bitronix.live.log import MAX_LOG_SIZE
from tallystick.systems.bitronix.live.sharded import open_journal
from tallystick.systems.bitronix.read.detect import part_number
from tallystick.systems.protocol import LogReading

_STATUS_OF_STATE = {
    State.ACTIVE: layout.ACTIVE,
    State.UNDECIDED: layout.PREPARING,
    State.PREPARED: layout.PREPARED,
    State.ROLLING_BACK: layout.ROLLING_BACK,
    State.ROLLED_BACK: layout.ROLLEDBACK,
}
_STATUS_OF_OUTCOME = {
    DecisionOutcome.COMMITTED: layout.COMMITTED,
    DecisionOutcome.ROLLED_BACK: layout.ROLLEDBACK,
    DecisionOutcome.HEURISTIC: layout.UNKNOWN,
}


def reopen(
    folder: str, _role: Role, like: LogReading | None, _key: bytes | None,
    content: DecisionLog | None, *, force: bool,
) -> BitronixDecisionLog:  # fmt: skip
    """Open the journal in ``folder``; see `tallystick.systems.protocol.System.reopener`."""
    files = () if like is None else like.source.files
    names = [logical_name(path) for path in sorted(files, key=lambda one: part_number(one) or 0)]
    options: dict[str, Any] = {"names": tuple(names)} if len(names) == 2 else {}
    if content is not None:
        options["max_log_size"] = _size_for(content)
    return BitronixDecisionLog(folder, skip_corrupted_logs=force, **options)


def _size_for(content: DecisionLog) -> int:
    """Return the size in bytes of files of which what a log holds open takes half at most.

    It is in whole megabytes, as the original counts it, which takes files of any size as they are.
    """
    decisions = {gtrid: one.resources for gtrid, one in content.open_decisions().items()}
    needed = sum(
        layout.RECORD_MIN + len(gtrid) + sum(layout.NAME_LENGTH.size + len(name) for name in names)
        for kept in (decisions, content.heuristics())
        for gtrid, names in kept.items()
    )
    return max(MAX_LOG_SIZE, -(-2 * needed // layout.MEGABYTE) * layout.MEGABYTE)


class BitronixDecisionLog(Uncopied):
    """Implements `tallystick.roles.DecisionLog`; options are those of `open_journal`."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.journal = open_journal(os.fspath(path), **options)

    def note(self, state: State, gtrid: bytes, resources: Collection[str]) -> None:
        """Record a state of a transaction, if the format has a status for it."""
        status = _STATUS_OF_STATE.get(state)
        if status is not None:
            self.journal.log(status, gtrid, resources)

    def decide(self, gtrid: bytes, resources: Collection[str]) -> Ticket:
        """Record the decision to commit; a second one for a gtrid adds its resources.

        A COMMITTING record replaces the one before it, so it must name all resources.
        """
        gtrid = bytes_of(gtrid, "gtrid")
        known = self.journal.dangling_record(gtrid)
        names = set(texts(resources, "resources", layout.NAMES_MAX)) | set(
            () if known is None else known.unique_names
        )
        return self.journal.log_forced(layout.COMMITTING, gtrid, names)

    def finish(self, gtrid: bytes, resources: Collection[str], outcome: DecisionOutcome) -> None:
        """Record the outcome at these resources."""
        self.journal.log(_STATUS_OF_OUTCOME[outcome], gtrid, resources)

    def open_decisions(self) -> Mapping[bytes, Decision]:
        """Return the decisions that are open, by gtrid."""
        return {
            gtrid: Decision(gtrid, frozenset(record.unique_names), record.time)
            for gtrid, record in self.journal.collect_dangling_records().items()
        }

    def heuristics(self) -> Mapping[bytes, frozenset[str]]:
        """Return the resources of heuristic outcomes that are not settled, by gtrid."""
        return {
            gtrid: frozenset(record.unique_names)
            for gtrid, record in self.journal.heuristic_records().items()
        }

    def settle(self, gtrid: bytes) -> Ticket:
        """Close a heuristic outcome that an operator has resolved."""
        return self.journal.settle(gtrid)

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()
