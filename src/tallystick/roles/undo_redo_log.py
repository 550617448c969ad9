"""The role of the log of a store of pages.

In: images of pages, changed rows, ends of transactions. Out: after a crash, pages put back and
rows redone, and the transactions in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tallystick.printable import printable
from tallystick.records import State, Xid
from tallystick.roles.ticket import Ticket

_BRANCH = re.compile(r"XID_(-?[0-9]{1,10})_([0-9A-Fa-f]{0,128})_([0-9A-Fa-f]{0,128})")


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A prepared transaction whose outcome is not decided: its session and its name."""

    session: int
    name: str
    state: State = State.PREPARED

    def __str__(self) -> str:
        return printable(f"{self.name} is {self.state}, in session {self.session}")


def branch_name(xid: Xid) -> str:
    """Return the name a branch is prepared under; bqual before gtrid, as in H2."""
    return f"XID_{xid.format_id}_{xid.bqual.hex()}_{xid.gtrid.hex()}"


def branch_of(name: str) -> Xid | None:
    """Return the branch that a name stands for: ``XID_<format id>_<bqual hex>_<gtrid hex>``.

    `branch_name` and H2's JDBC driver make such names, in lower and in upper case hex. None is a
    name that a person chose.
    """
    match = _BRANCH.fullmatch(name)
    if match is None or len(match[2]) % 2 or len(match[3]) % 2:
        return None
    format_id = int(match[1])
    if not -(1 << 31) <= format_id < 1 << 31:
        return None
    return Xid(format_id, gtrid=bytes.fromhex(match[3]), bqual=bytes.fromhex(match[2]))


class RecoveryHandler(Protocol):
    """What recovery does to the store of an undo/redo log."""

    def undo_page(self, page: int, image: bytes | None) -> None:
        """Put the page back to this image; None means it was empty."""
        ...

    def redo_add(self, table: int, key: int, row: bytes) -> None:
        """Set the row of a key."""
        ...

    def redo_remove(self, table: int, key: int) -> None:
        """Remove the row of a key, if there is one."""
        ...

    def redo_truncate(self, table: int) -> None:
        """Remove all rows of a table."""
        ...


class UndoRedoLog(Protocol):
    """Undo images of pages once per section, redo of rows, in-doubt transactions."""

    @property
    def sealed(self) -> bool:
        """Return True if the log is encrypted."""
        ...

    @property
    def row_max(self) -> int:
        """Return the size in bytes of the longest row that the log can hold."""
        ...

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Log the page's image as of the last checkpoint, unless this section has it."""
        ...

    def has_undo(self, page: int) -> bool:
        """Return True if this section holds an image of the page already."""
        ...

    def log_row(self, session: int, table: int, key: int, row: bytes | None) -> None:
        """Log an added row, or with None a removed one."""
        ...

    def log_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log changed rows by table and key, in order, at less cost than `log_row` for each.

        None stands for a removed row.
        """
        ...

    def commit_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log rows as `log_rows` does, commit the session, and return when both are durable.

        This costs less than the two calls.
        """
        ...

    def log_truncate(self, session: int, table: int) -> None:
        """Log that all rows of a table are removed."""
        ...

    def prepare_commit(self, session: int, name: str) -> Ticket:
        """Record that the session can commit.

        Args:
            session: The session's number.
            name: With a `branch_name`, readers of the log find the branch it stands for.

        Returns:
            The promise that this and the session's rows are durable.
        """
        ...

    def commit(self, session: int) -> Ticket:
        """Commit the session."""
        ...

    def rollback(self, session: int) -> Ticket:
        """Give up the rows of a session, which may be a prepared one of this run."""
        ...

    def flush(self) -> Ticket:
        """Promise that all logged so far is durable; wait before a page is written."""
        ...

    def checkpoint(self, mark: int = 0) -> int:
        """Start a new section, durably, once every changed page is written; returns its id.

        Args:
            mark: a number of at most 62 bits that `marks` gives back, if the log has a place for
                it.
        """
        ...

    def marks(self) -> Sequence[int]:
        """Return the marks of the kept sections of earlier runs, in order; 0 for one without."""
        ...

    def remove_until(self, section: int) -> None:
        """Free what lies before that section."""
        ...

    def recover(self, handler: RecoveryHandler) -> None:
        """Run all stages in order; may be interrupted at any step and repeated."""
        ...

    def in_doubt(self) -> Sequence[InDoubt]:
        """Return the prepared transactions that earlier runs left undecided."""
        ...

    def settle(self, name: str, *, commit: bool) -> Ticket:
        """Decide an in-doubt transaction durably.

        Raises:
            KeyError: No transaction in doubt has this name.
        """
        ...

    def close(self) -> None:
        """Make everything durable and release the log."""
        ...
