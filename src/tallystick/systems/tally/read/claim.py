"""Whose log a native log is: the claim of its opening against that of its control block.

In: the folder of a log, and the `Claim` of whoever opens it. Out: nothing, or the error that
refuses it before anything is written. A log of an earlier release says nothing: its records are
asked, and the first opening that may write notes its claim in the control block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from tallystick.errors import CorruptLogError, TallystickError, UnsupportedFormatError
from tallystick.printable import logger
from tallystick.roles import Role
from tallystick.storage.files import FileSystem
from tallystick.systems.folders import how_to_open, require_own
from tallystick.systems.tally.format.headers import OWNER_MAX, ROLES, Control
from tallystick.systems.tally.format.kinds import Code
from tallystick.systems.tally.format.layout import SYSTEM_NAME
from tallystick.systems.tally.read.files import Catalog, FileAccess, control_in, read_folder
from tallystick.systems.tally.read.records import rows_of
from tallystick.systems.tally.read.scan import Scan

_log = logger(__name__)
_GROUPS_MAX: Final = 10_000
"""Groups that are looked at: the first record that tells is one of the first."""
_SHOWN: Final = {
    **dict.fromkeys(range(Code.APPEND, Code.MOVED_UPDATE + 1), Role.JOURNAL),
    **dict.fromkeys(range(Code.UNDO, Code.CHECKPOINT + 1), Role.UNDO_REDO_LOG),
    **dict.fromkeys(range(Code.NOTE, Code.SETTLE + 1), Role.DECISION_LOG),
    **dict.fromkeys(range(Code.PERSISTING, Code.DISCARD + 1), Role.PERSIST_LOG),
}
_NUMBERS: Final = {role: number for number, role in ROLES.items()} | {
    Role.RECORD_JOURNAL: next(n for n, role in ROLES.items() if role is Role.JOURNAL)
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What an opening takes a log for.

    Attributes:
        role: the role; None opens a log of any.
        owner: whose log it is, UTF-8 of at most `OWNER_MAX` bytes; empty opens anyone's.
        next_transaction, next_key: of a new log, the first numbers of transactions and of entries.

    Raises:
        ValueError: the owner is too long.
    """

    role: Role | None = None
    owner: str = ""
    next_transaction: int = 1
    next_key: int = 1

    def __post_init__(self) -> None:
        if len(self.owner.encode()) > OWNER_MAX:
            raise ValueError(f"an owner has at most {OWNER_MAX} bytes: {self.owner!r}")

    def require_folder(self, fs: FileSystem, folder: str, key: bytes | None) -> None:
        """Require that a log in ``folder``, if there is one, may be opened; nothing is written.

        Raises:
            UnsupportedFormatError: it is a log of another system or role.
            CorruptLogError: it is the log of another owner.
        """
        require_own(folder, fs, SYSTEM_NAME)
        control = control_in(fs, folder) if self.role is not None else None
        if control is None:
            return
        if control.role:
            self.require(control, folder)
            return
        shown = role_of(*read_folder(fs, folder), key)
        if shown is not None and _NUMBERS[shown] != self._number:
            raise _other_role(folder, shown, self.role)

    def require(self, control: Control, folder: str) -> None:
        """Require that the log with this control block may be opened; raises as above."""
        if self.role is not None and control.role not in (0, self._number):
            raise _other_role(folder, ROLES.get(control.role), self.role)
        owner = control.owner.decode("utf-8", "replace")
        if self.owner and owner not in ("", self.owner):
            raise CorruptLogError(
                "this is the log of another owner",
                file=folder,
                expected=self.owner,
                found=owner,
                advice="Nothing was changed. Bring the files of one owner together again",
            )

    def noted_in(self, control: Control, folder: str) -> Control:
        """Return the control block with this claim, which a log of an earlier release lacks."""
        if self.role is None:
            return control
        if not control.role and control.last_segment:
            _log.warning(
                "%s did not say what it is used for, as it is of an earlier release: "
                "from now on it is a %s",
                folder,
                ROLES[self._number].value,
            )
        owner = control.owner or self.owner.encode()
        return replace(control, role=control.role or self._number, owner=owner)

    def new(self, control: Control) -> Control:
        """Return the control block of a new log with this claim."""
        return replace(
            control,
            role=self._number,
            owner=self.owner.encode(),
            next_transaction=self.next_transaction,
            next_key=self.next_key,
        )

    @property
    def _number(self) -> int:
        return _NUMBERS[self.role] if self.role is not None else 0


ANYONES: Final = Claim()
"""Opens a log of any role and owner, and notes nothing in it."""


def claim_of(control: Control) -> Claim:
    """Return what a control block says."""
    return Claim(
        ROLES.get(control.role),
        control.owner.decode("utf-8", "replace"),
        control.next_transaction,
        control.next_key,
    )


def _other_role(folder: str, role: Role | None, wanted: Role | None) -> UnsupportedFormatError:
    assert wanted is not None
    return UnsupportedFormatError(
        "this log is used for something else",
        file=folder,
        expected=f"{wanted.value}, or nothing",
        found=f"{role.value} of {SYSTEM_NAME}" if role else "a role of a later release",
        advice=f"Nothing was changed. {how_to_open(SYSTEM_NAME, folder, role)}",
    )


# -- the role ------------------------------------------------------------------------------


def role_of(catalog: Catalog, access: FileAccess, key: bytes | None) -> Role | None:
    """Return the role of a log, None if nothing tells it."""
    control = catalog.control
    if control is not None and control.role:
        return ROLES.get(control.role)
    return next((_SHOWN[code] for code in _codes(catalog, access, key) if code in _SHOWN), None)


def _codes(catalog: Catalog, access: FileAccess, key: bytes | None) -> Iterator[int]:
    """Yield the codes of the first records that can be read."""
    try:
        for step in islice(Scan(catalog, access).steps(), _GROUPS_MAX):
            header = step.place.header
            if header is not None and step.place.case.whole:
                for row in rows_of(step.view.payload(header), header, key):
                    yield row.record.code
    except TallystickError:  # damaged, or its key is missing: the opening says so
        return


def role_in(folder: str, fs: FileSystem, key: bytes | None = None) -> Role | None:
    """Return the role of the log in a folder; encrypted records tell it with the ``key`` only."""
    return role_of(*read_folder(fs, folder), key)


def names_in(folder: str, fs: FileSystem) -> tuple[str, str]:
    """Return identity, in hex, and owner of the log in a folder, each empty if nothing tells it."""
    control = control_in(fs, folder)
    return ("", "") if control is None else (control.identity.hex(), claim_of(control).owner)
