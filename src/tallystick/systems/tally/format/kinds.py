"""The codes of the records of a native log.

In: a code. Out: its `Kind`, and the name of its type. The bodies are in
`tallystick.systems.tally.format.bodies` and ``entries``. A reader may skip a code that it does not
know if the bit `IGNORABLE` is set; any other unknown code makes a reader refuse the log.

    codes   role            body
    1-6     record journal  the application's bytes
    16-19   transactions    begin: none; prepare, commit: `Ending`; rollback: none
    32-37   undo/redo       undo: image; redo: table, row; truncate: table; checkpoint: `bytes`
    48-52   decisions       resources; heuristic and settle too; note: state and resources
    64-66   persist log     persisting: entry; persisted: targets; discard: none
    128     events of a newer version that may be ignored
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tallystick.records import Kind

IGNORABLE: Final = 0x80


class Code(IntEnum):
    """The codes of this version."""

    APPEND = 1
    """A plain record of the application, without id."""
    ADD = 2
    UPDATE = 3
    DELETE = 4
    MOVED_ADD = 5
    """A live record written again by compaction: replaces everything known of its id."""
    MOVED_UPDATE = 6
    BEGIN = 16
    PREPARE = 17
    COMMIT = 18
    ROLLBACK = 19
    UNDO = 32
    """The image of a page (key) as of the last checkpoint."""
    UNDO_EMPTY = 33
    """The page (key) was empty as of the last checkpoint."""
    REDO_ADD = 34
    REDO_REMOVE = 35
    TRUNCATE = 36
    CHECKPOINT = 37
    NOTE = 48
    DECISION = 49
    FINISH = 50
    HEURISTIC = 51
    SETTLE = 52
    PERSISTING = 64
    PERSISTED = 65
    DISCARD = 66

    @property
    def type_name(self) -> str:
        """The type in `Record.type`."""
        return self.name.lower()


KIND_OF: Final[dict[Code, Kind]] = {
    Code.APPEND: Kind.ADD,
    Code.ADD: Kind.ADD,
    Code.UPDATE: Kind.UPDATE,
    Code.DELETE: Kind.DELETE,
    Code.MOVED_ADD: Kind.ADD,
    Code.MOVED_UPDATE: Kind.UPDATE,
    Code.BEGIN: Kind.BEGIN,
    Code.PREPARE: Kind.PREPARE,
    Code.COMMIT: Kind.COMMIT,
    Code.ROLLBACK: Kind.ROLLBACK,
    Code.UNDO: Kind.UNDO,
    Code.UNDO_EMPTY: Kind.UNDO,
    Code.REDO_ADD: Kind.ADD,
    Code.REDO_REMOVE: Kind.DELETE,
    Code.TRUNCATE: Kind.TRUNCATE,
    Code.CHECKPOINT: Kind.CHECKPOINT,
    Code.NOTE: Kind.STATUS,
    Code.DECISION: Kind.DECISION,
    Code.FINISH: Kind.COMMIT,
    Code.HEURISTIC: Kind.HEURISTIC,
    Code.SETTLE: Kind.STATUS,
    Code.PERSISTING: Kind.PERSISTING,
    Code.PERSISTED: Kind.PERSISTED,
    Code.DISCARD: Kind.PERSISTED,
}
NAMES: Final[dict[int, tuple[Kind, str]]] = {
    code.value: (kind, code.type_name) for code, kind in KIND_OF.items()
}
WITH_RESOURCES: Final = frozenset(
    {Code.NOTE, Code.DECISION, Code.FINISH, Code.HEURISTIC, Code.PERSISTING, Code.PERSISTED}
)
"""Codes whose bodies name resources or targets."""
ELEMENTS: Final = frozenset(
    {
        Code.APPEND, Code.ADD, Code.UPDATE, Code.DELETE, Code.BEGIN,
        Code.REDO_ADD, Code.REDO_REMOVE, Code.TRUNCATE,
    }
)  # fmt: skip
"""Codes that, in a transaction, are counted by its prepare and commit records."""


def name_of(code: int) -> tuple[Kind, str]:
    """Return kind and type name of any code; unknown ones are `Kind.UNKNOWN`."""
    return NAMES.get(code) or (Kind.UNKNOWN, f"code {code}")


def must_know(code: int) -> bool:
    """Return True for an unknown code that may not be skipped."""
    return code not in NAMES and not code & IGNORABLE
