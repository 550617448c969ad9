"""Participants in the state that Narayana keeps of a transaction.

A state of the type `TRANSACTION` is, in Narayana's packed form (section "Narayana" of
docs/formats/jboss.md): a header with the process and the time of the transaction, whether a first
participant was passed, the prepared participants, which a record type `_NO_MORE` ends, the number
of heuristic participants and these, ended likewise, and three numbers: status, type, and heuristic
decision. A participant is its record type and what its class writes, without a length. So one of
another class than `XA_RESOURCE`, or one that an object recovers, hides the participants that
follow; the end of the state, whose numbers have fixed places, still tells the status, and that the
state is whole. A transaction that a foreign coordinator began puts that one's Xid, or the reference
to it, before the header.

In: the bytes of a state. Out: its participants, None where the bytes are something else.
Source: BasicAction.save_state, XAResourceRecord.save_state, XidImple.packInto and the save_state of
SubordinateAtomicAction (JTA) and of both classes ServerTransaction (JTS) of Narayana 7.0.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from struct import Struct

from tallystick.errors import LogFormatError
from tallystick.records import Xid
from tallystick.systems.jboss.format.bodies import PACKED_MAGIC, UID_SIZE, XID_PART_MAX, uid_text
from tallystick.systems.jboss.format.layout import I4, I8

ACTION = "/StateManager/BasicAction/"
"""What the types of transactions begin with."""
TRANSACTION = f"{ACTION}TwoPhaseCoordinator/AtomicAction"
"""The name of the type of a transaction's state."""
SUBORDINATE = "/SubordinateAtomicAction/JCA"
SERVER = "/ArjunaTransactionImple/ServerTransaction"
"""In the type: a transaction that another coordinator began, by JCA, or by CORBA (JTS)."""
MARK = b"\0\0\0\x09#ARJUNA#\0"
"""What the header of a state begins with."""

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

KINDS = {
    50: "resource with a mark in its database", 101: "recovery record", 111: "persistent object",
    141: "CORBA resource (JTS)", 151: "CORBA resource (JTS)", 161: "WS-AT participant",
    162: "WS-BA participant", 165: "REST-AT participant", 166: "LRA participant",
    167: "LRA child", 168: "LRA parent", XA_RESOURCE: "XA resource", 172: "XA resource (JTS)",
    2**31 - 1: "last resource",
}  # fmt: skip
"""By number what a participant is, of the record types that Narayana itself writes."""

_NO_MORE = 463
_MARKER = "#ARJUNA#"
_TOP, _NESTED = 0, 1
_LAST = Struct(">5i")
"""End of a list, number of heuristic participants if there is none, status, type, decision."""
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
    """The participants of a transaction.

    Attributes:
        found: those that can be read.
        status: of the transaction; None where the end of the state cannot be told.
        complete: False where a participant of another class hides those after it.
        began: when the transaction began, in milliseconds since 1970.
        parent: the transaction's Xid at the coordinator that began it, if that is another one.
        uid: the Uid of the transaction, as its state has it; None if it has none.
    """

    found: tuple[Participant, ...]
    status: str | None
    complete: bool = True
    began: int | None = None
    parent: Xid | None = None
    uid: str | None = None


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

    def header(self) -> tuple[str | None, int]:
        """Read a header; return the transaction, and when it began."""
        if self.text() != _MARKER:
            raise self._unfit(_MARKER, "something else")
        uid = self.packed()
        if any(uid):  # none is all zero, and then has no process
            self.packed()
        began = int.from_bytes(self._take(I8.size), "big", signed=True)
        return uid_text(uid) if any(uid) else None, began

    def parent(self, type_name: str) -> Xid | None:
        """Read what stands before the header of a transaction that another coordinator began."""
        found = None
        if type_name.endswith(SUBORDINATE):
            if self.data.startswith(MARK, self.at):  # not in old versions
                self.header()
            if self.flag():
                found = self.xid()
                self.text()  # the name of its node
        elif SERVER in type_name:
            if type_name.endswith("/JCA") and self.flag():
                found = self.xid()
            if self.flag():
                self.text()  # a reference to its coordinator
        return found

    def last_status(self) -> str | None:
        """Return the status by the last numbers; None where they end no state."""
        if len(self.data) < self.at + _LAST.size:
            return None
        end, none, status, kind, _ = _LAST.unpack_from(self.data, len(self.data) - _LAST.size)
        whole = (none == _NO_MORE or (end, none) == (_NO_MORE, 0)) and kind in (_TOP, _NESTED)
        return STATUSES[status] if whole and 0 <= status < len(STATUSES) else None

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise self._unfit(f"{size} bytes", len(self.data) - self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def _unfit(self, expected: str, found: object) -> LogFormatError:
        return LogFormatError(
            "a state is none of Narayana's", offset=self.at, expected=expected, found=str(found)
        )


def without_fill(state: bytes, type_name: str) -> bytes:
    """Return a state without the zeros after it in a file that was made longer.

    Recovery reads no further than the state. As it is where that is not whole.
    """
    end = len(state.rstrip(b"\0"))
    # Numbers at the end of a state may be zero themselves.
    ends = range(end + -end % I4.size, len(state), I4.size)
    cut = (state[:one] for one in ends[: _LAST.size // I4.size])
    return next((one for one in cut if participants(one, type_name)), state)


def is_local_transaction(state: bytes, uid: str) -> bool:
    """Return whether a state is one of the type `TRANSACTION`, of that Uid, whatever its type says.

    By its participants: those of other types are of other classes, or what stands before the header
    of one that another coordinator began is missing.
    """
    known = participants(state)
    if known is None or known.uid != uid or not known.complete or not known.found:
        return False
    return all(one.record_type == XA_RESOURCE for one in known.found)


def began_elsewhere(type_name: str) -> bool:
    """Return whether another coordinator begins transactions of this type, and decides them."""
    return type_name.endswith(SUBORDINATE) or SERVER in type_name


def participants(state: bytes, type_name: str = TRANSACTION) -> Participants | None:
    """Return the participants in a state of a type of transactions."""
    reader = _Reader(state, len(PACKED_MAGIC) if state.startswith(PACKED_MAGIC) else 0)
    found: list[Participant] = []
    try:
        parent = reader.parent(type_name)
        uid, began = reader.header()
        reader.flag()  # whether a first participant was passed
        whole = _list(reader, found, heuristic=False) and (
            not reader.number() or _list(reader, found, heuristic=True)
        )
        if not whole:
            return Participants(tuple(found), reader.last_status(), False, began, parent, uid)
        status = reader.name(STATUSES)
        reader.number()  # top level, or nested
        reader.number()  # the heuristic decision
    except LogFormatError:
        return None
    if reader.at != len(state):
        return None
    return Participants(tuple(found), status, True, began, parent, uid)


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
