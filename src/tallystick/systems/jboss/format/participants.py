"""Participants in the state that Narayana keeps of a transaction.

A state of the type `TRANSACTION` is, in Narayana's packed form (section "Narayana" of
docs/formats/jboss.md): a header with the process and the time of the transaction, whether a first
participant was passed, the prepared participants, which a record type `_NO_MORE` ends, the number
of heuristic participants and these, ended likewise, and three numbers: status, type, and heuristic
decision. A participant is its record type and what its class writes, without a length. So one of
another class than `XA_RESOURCE`, or one that an object recovers, hides all that follows.

In: the bytes of a state. Out: its participants, None where the bytes are something else.
Source: BasicAction.save_state, XAResourceRecord.save_state and XidImple.packInto of Narayana 7.0.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tallystick.errors import LogFormatError
from tallystick.records import Xid
from tallystick.systems.jboss.format.bodies import PACKED_MAGIC, UID_SIZE, XID_PART_MAX, uid_text
from tallystick.systems.jboss.format.layout import I4, I8

TRANSACTION = "/StateManager/BasicAction/TwoPhaseCoordinator/AtomicAction"
"""The name of the type of a transaction's state."""

XA_RESOURCE = 171
"""Record type of a participant that is a branch of an XA resource."""

STATUSES = (
    "running", "preparing", "aborting", "abort_only", "aborted", "prepared", "committing",
    "committed", "created", "invalid", "cleanup", "heuristic_rollback", "heuristic_commit",
    "heuristic_mixed", "heuristic_hazard", "disabled", "no_action",
)  # fmt: skip
"""By number the status of a transaction."""

OUTCOMES = (
    "prepare_ok", "prepare_not_ok", "prepare_read_only", "heuristic_rollback", "heuristic_commit",
    "heuristic_mixed", "heuristic_hazard", "finish_ok", "finish_error", "not_prepared",
    "one_phase_error", "invalid_transaction", "one_phase_committed",
)  # fmt: skip
"""By number the outcome of a participant."""

_NO_MORE = 463
_MARKER = "#ARJUNA#"
_BY_NAMES = 1
"""A resource is found again by its names, or from the object; 0: by a class that wrote more."""


@dataclass(frozen=True, slots=True)
class Participant:
    """One participant; what its class does not tell is None.

    ``outcome`` is that of its second phase, ``finish_ok`` before it; ``uid`` is None where the end
    of the participant cannot be found.
    """

    record_type: int
    heuristic: bool
    """True if it is in the list of heuristic participants."""
    uid: str | None = None
    xid: Xid | None = None
    outcome: str | None = None
    committed: bool | None = None
    product_name: str | None = None
    product_version: str | None = None
    jndi_name: str | None = None
    resource_class: str | None = None


@dataclass(frozen=True, slots=True)
class Participants:
    """The participants of a transaction; ``status`` is None where some may be missing."""

    found: tuple[Participant, ...]
    status: str | None


class _Reader:
    """Reads Narayana's packed form; raises `LogFormatError` where the bytes do not fit."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def number(self) -> int:
        return int.from_bytes(self._take(I4.size), "big", signed=True)

    def flag(self) -> bool:
        found = self.number()
        if found not in (0, 1):
            raise self._unfit("0 or 1", found)
        return found == 1

    def packed(self) -> bytes:
        size = self.number()
        found = self._take(size)
        self._take(-size % 4)
        return found

    def text(self) -> str | None:
        raw = self.packed()
        if not raw:
            return None
        if raw[-1]:
            raise self._unfit("text that a zero ends", raw)
        return raw[:-1].decode("utf-8", "replace")

    def uid(self) -> str:
        raw = self.packed()
        if len(raw) != UID_SIZE:
            raise self._unfit(f"a Uid of {UID_SIZE} bytes", len(raw))
        return uid_text(raw)

    def name(self, names: tuple[str, ...]) -> str:
        number = self.number()
        return names[number] if 0 <= number < len(names) else str(number)

    def xid(self) -> Xid:
        form, gtrid, bqual = self.number(), self.number(), self.number()
        data = self.packed()
        sizes = range(min(XID_PART_MAX, len(data)) + 1)
        if gtrid not in sizes or bqual not in sizes or gtrid + bqual > len(data):
            raise self._unfit("lengths of an Xid", (gtrid, bqual))
        return Xid(form, gtrid=data[:gtrid], bqual=data[gtrid : gtrid + bqual])

    def header(self) -> None:
        if self.text() != _MARKER:
            raise self._unfit(_MARKER, "something else")
        if any(self.packed()):  # the transaction; none is all zero, and then has no process
            self.packed()
        self._take(I8.size)  # when it began

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise self._unfit(f"{size} bytes", len(self.data) - self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def _unfit(self, expected: str, found: object) -> LogFormatError:
        return LogFormatError(
            "a state is none of Narayana's", offset=self.at, expected=expected, found=str(found)
        )


def participants(state: bytes) -> Participants | None:
    """Return the participants in a state of type `TRANSACTION`."""
    reader = _Reader(state, len(PACKED_MAGIC) if state.startswith(PACKED_MAGIC) else 0)
    found: list[Participant] = []
    try:
        reader.header()
        reader.flag()  # whether a first participant was passed
        whole = _list(reader, found, heuristic=False) and (
            not reader.number() or _list(reader, found, heuristic=True)
        )
        if not whole:
            return Participants(tuple(found), None)
        status = reader.name(STATUSES)
        reader.number()  # top level, or nested
        reader.number()  # the heuristic decision
    except LogFormatError:
        return None
    return Participants(tuple(found), status) if reader.at == len(state) else None


def _list(reader: _Reader, found: list[Participant], *, heuristic: bool) -> bool:
    """Read one list; return False where what follows a participant cannot be found."""
    while (record_type := reader.number()) != _NO_MORE:
        one = Participant(record_type, heuristic)
        if record_type == XA_RESOURCE:
            one = _resource(reader, one)
        found.append(one)
        if one.uid is None:
            return False
    return True


def _resource(reader: _Reader, one: Participant) -> Participant:
    """Read a branch; without ``uid`` where its end cannot be found."""
    one = replace(one, outcome=reader.name(OUTCOMES), committed=reader.flag())
    if not reader.flag():  # the Xid is a Java object of a foreign class
        return one
    one = replace(one, xid=reader.xid())
    if reader.number() != _BY_NAMES:
        return replace(one, resource_class=reader.text())  # and what that class writes
    names = reader.text(), reader.text(), reader.text()
    resource_class = None
    if reader.flag():
        resource_class = reader.text()
        reader.packed()  # the resource as a Java object
    one = replace(
        one, product_name=names[0], product_version=names[1], jndi_name=names[2],
        resource_class=resource_class, uid=reader.uid(),
    )  # fmt: skip
    reader.text()  # the type of the participant's own state
    return one
