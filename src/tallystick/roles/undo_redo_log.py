"""The role of the log under a store of pages.

In: images of pages, changed rows, ends of transactions. Out: after a crash, pages put back and
rows done again, transactions in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tallystick.records import State, Xid
from tallystick.roles.ticket import Ticket


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A prepared transaction that no one has decided: its session and its name."""

    session: int
    name: str
    state: State = State.PREPARED


def branch_name(xid: Xid) -> str:
    """The name a branch is prepared under; bqual before gtrid, as H2 has it."""
    return f"XID_{xid.format_id}_{xid.bqual.hex()}_{xid.gtrid.hex()}"


def branch_of(name: str) -> Xid | None:
    """The branch behind a name; None if it is not one of these."""
    parts = name.split("_")
    if len(parts) != 4 or parts[0] != "XID":
        return None
    try:
        xid = Xid(int(parts[1]), bytes.fromhex(parts[3]), bytes.fromhex(parts[2]))
    except ValueError:
        return None
    known = -(1 << 31) <= xid.format_id < 1 << 31 and max(len(xid.gtrid), len(xid.bqual)) <= 64
    return xid if known else None


class RecoveryHandler(Protocol):
    """What recovery does to the store behind an undo/redo log."""

    def undo_page(self, page: int, image: bytes | None) -> None:
        """Put the page back to this image; None means it was empty."""
        ...

    def redo_add(self, table: int, key: int, row: bytes) -> None: ...

    def redo_remove(self, table: int, key: int) -> None: ...

    def redo_truncate(self, table: int) -> None: ...


class UndoRedoLog(Protocol):
    """Undo images of pages once per section, redo of rows, in-doubt transactions."""

    def add_undo(self, page: int, image: bytes | None) -> None:
        """Log the page's image as of the last checkpoint, unless this section has it."""
        ...

    def has_undo(self, page: int) -> bool:
        """True if this section holds an image of the page already."""
        ...

    def log_row(self, session: int, table: int, key: int, row: bytes | None) -> None:
        """Log an added row, or with None a removed one."""
        ...

    def log_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        """Log changed rows by table and key, in order: as `log_row` for each, at less cost."""
        ...

    def log_truncate(self, session: int, table: int) -> None: ...

    def prepare_commit(self, session: int, name: str) -> Ticket:
        """Record that the session can commit. One whose name is a `branch_name` is a branch of
        a global transaction, which readers of the log then find."""
        ...

    def commit(self, session: int) -> Ticket: ...

    def rollback(self, session: int) -> Ticket:
        """End a session that is prepared, and alive, without its rows."""
        ...

    def flush(self) -> Ticket:
        """Everything logged so far; to be waited for before a page is written in place."""
        ...

    def checkpoint(self) -> int:
        """Start a new section once every changed page is written; returns its id."""
        ...

    def remove_until(self, section: int) -> None:
        """Free what lies before that section."""
        ...

    def recover(self, handler: RecoveryHandler) -> None:
        """All stages, in order; idempotent, and may be interrupted at any step."""
        ...

    def in_doubt(self) -> Sequence[InDoubt]: ...

    def settle(self, name: str, *, commit: bool) -> Ticket:
        """Decide an in-doubt transaction durably. Raises `KeyError` for an unknown name."""
        ...

    def close(self) -> None: ...
