"""Ids of global transactions: what a coordinator puts into them, and how people write them.

Bitronix and Tallystick build a gtrid from the coordinator's id, 8 bytes of time and 4 bytes
of sequence; it is read from the end and compared whole: ``bank-1`` is not ``bank-10``.

One id has many spellings: hex here, in capitals in Bitronix' log, ``XID_...`` in H2, others in the
lists of each database. All are accepted, and the beginning of one is enough if it is of one alone.
"""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import fmod

from tallystick.errors import TransactionUsageError
from tallystick.reconcile.gid import GID, parse_gid
from tallystick.records import Xid
from tallystick.roles.undo_redo_log import branch_name, branch_of

BITRONIX = 0x42746E78
"""Format id of coordinators whose records hold none."""

NARAYANA = 0x20005
"""Format id of Narayana's coordinators."""
NARAYANA_UID = 28
"""Bytes of the Uid of the transaction with which a gtrid of Narayana begins."""

SUFFIX = 12
"""Bytes of time and sequence at the end of a gtrid."""

TIME = 8
"""Bytes of time, big-endian: milliseconds since boot (Bitronix before 3.0) or since 1970."""

ALPHABET = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
"""Digits of time and sequence in ids of ours."""

PREFIX_MIN = 4
"""Characters of an id that are asked for, unless it is shorter."""

_VALUES = {digit: value for value, digit in enumerate(ALPHABET.encode())}
_SINCE_1970 = 10**12
"""Milliseconds that no machine has been up: a greater time counts from 1970."""
_CANDIDATES_MAX = 4
_SPELLED = re.compile(r"(-?[0-9]{1,10}):((?:[0-9A-Fa-f]{2})*):((?:[0-9A-Fa-f]{2})*)")


def owner_of(gtrid: bytes) -> bytes | None:
    """Return the coordinator's id; None in a gtrid too short to hold one."""
    return gtrid[:-SUFFIX] if len(gtrid) > SUFFIX else None


def owner_text(format_id: int | None, gtrid: bytes, owner: bytes | None) -> str:
    """Return the coordinator of a gtrid in words; Narayana puts the name of its node at the end."""
    named = gtrid[NARAYANA_UID:] if format_id == NARAYANA else b""
    return bytes(named or owner or b"").decode("ascii", "replace")


def time_of(gtrid: bytes) -> int | None:
    """Return the time in the gtrid as its coordinator counts it."""
    if len(gtrid) <= SUFFIX:
        return None
    return int.from_bytes(gtrid[-SUFFIX : TIME - SUFFIX], "big")


def number_of(digits: bytes) -> int | None:
    """Return the number that digits of ids of ours stand for; None if one is no digit."""
    value = 0
    for digit in digits:
        if digit not in _VALUES:
            return None
        value = value * len(ALPHABET) + _VALUES[digit]
    return value


@dataclass(frozen=True, slots=True)
class Maker:
    """Who made a global id, and when.

    Attributes:
        coordinator: the coordinator's id.
        milliseconds: the time, since 1970 or since the machine of the coordinator began.
        sequence: the number of the id among those of the coordinator.
    """

    coordinator: str
    milliseconds: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.coordinator}, {self.time}, number {self.sequence:,}"

    @property
    def time(self) -> str:
        """Return the time in words: ISO with its zone where the clock allows that."""
        if self.milliseconds < _SINCE_1970:
            return f"{timedelta(seconds=self.milliseconds // 1000)} after its machine began"
        moment = datetime.fromtimestamp(self.milliseconds / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def to_dict(self) -> dict[str, str | int]:
        """Return plain JSON values."""
        shown = {"coordinator": self.coordinator, "time": self.time}
        return {**shown, "milliseconds": self.milliseconds, "sequence": self.sequence}


def maker_of(format_id: int, gtrid: bytes) -> Maker | None:
    """Return who made this id, if it is Bitronix' or ours; None for another."""
    owner = (owner_of(gtrid) or b"").decode("ascii", "replace")
    if format_id != BITRONIX or not owner or not (owner.isascii() and owner.isprintable()):
        return None
    time, number = gtrid[-SUFFIX : TIME - SUFFIX], gtrid[TIME - SUFFIX :]
    milliseconds, sequence = number_of(time), number_of(number)
    if milliseconds is None or sequence is None:
        milliseconds, sequence = int.from_bytes(time, "big"), int.from_bytes(number, "big")
    # Later than the year 2109 is no time of either.
    return None if milliseconds >= 1 << 42 else Maker(owner, milliseconds, sequence)


def xid_of(text: str) -> Xid | None:
    """Return the branch that a text spells whole; None for any other text."""
    if match := _SPELLED.fullmatch(text):
        return Xid(int(match[1]), bytes.fromhex(match[2]), bytes.fromhex(match[3]))
    return branch_of(text) or parse_gid(text)


def literal(xid: Xid) -> str:
    """Return an id as XA statements of MySQL and MariaDB take it, whatever its bytes."""
    return f"X'{xid.gtrid.hex()}',X'{xid.bqual.hex()}',{xid.format_id}"


def forms(xid: Xid) -> dict[str, str]:
    """Return the spellings of a branch that statements of databases and brokers take, by name."""
    # As XidImpl of HornetQ and Artemis packs it: the remainder by 255 of each shift of the format.
    packed = bytes(int(fmod(xid.format_id >> 8 * at, 255)) & 255 for at in range(4))
    return {
        "gtrid": xid.gtrid.hex(),
        "bqual": xid.bqual.hex(),
        "format_id": str(xid.format_id),
        "name": branch_name(xid).upper(),
        "gid": GID.format(xid.format_id, *map(_base64, (xid.gtrid, xid.bqual))),
        "literal": literal(xid),
        "packed": base64.urlsafe_b64encode(xid.bqual + xid.gtrid + packed).decode(),
    }


def find_gtrid(text: str, known: Iterable[Xid]) -> bytes:
    """Return the one global transaction that a person means.

    Args:
        text: its id, or the beginning of it, in any spelling.
        known: the global transactions that there are, each branch of them on its own.

    Raises:
        TransactionUsageError: there is none, or more than one; it names candidates.
    """
    wanted = text.strip().strip("'\"")
    spelled: dict[str, set[bytes]] = defaultdict(set)
    for one in known:
        for name in _spellings(one):
            spelled[name].add(one.gtrid)
    exact = spelled.get(wanted, set()) | spelled.get(wanted.lower(), set())
    if not exact and len(wanted) < PREFIX_MIN:
        raise TransactionUsageError(
            f"{text!r} is too short for an id",
            expected=f"its first {PREFIX_MIN} characters or more",
        )
    begin = wanted, wanted.lower()
    found = exact or set().union(*(of for name, of in spelled.items() if name.startswith(begin)))
    if len(found) == 1:
        return found.pop()
    if found:
        raise TransactionUsageError(
            f"{len(found):,} global transactions begin with {text!r}",
            advice=f"Give more of it: {_candidates(found)}",
        )
    every = {gtrid for of in spelled.values() for gtrid in of}
    alike = {gtrid for name, of in spelled.items() if wanted.lower() in name for gtrid in of}
    # Its branch at another resource has another id.
    alike = alike or {one for one in every if len(one) > 3 and one.hex() in wanted.lower()}
    alike = alike or _nearest(wanted.lower(), every)
    advice = f"Did you mean {_candidates(alike)}?" if alike else "No global transaction is here"
    raise TransactionUsageError(f"no global transaction here begins with {text!r}", advice=advice)


def _base64(part: bytes) -> str:
    return base64.b64encode(part).decode()


def _spellings(xid: Xid) -> set[str]:
    """Return all that a branch may be called, hexadecimal ones in lower case."""
    shown = forms(xid)
    names = {str(xid), xid.gtrid.hex(), shown["name"].lower(), shown["literal"].lower()}
    of_derby = str(xid).replace(":", ",")
    # As XA RECOVER CONVERT XID of MySQL has both parts.
    names |= {f"0x{xid.gtrid.hex()}", f"0x{xid.gtrid.hex()}{xid.bqual.hex()}"}
    return names | {shown["gid"], shown["packed"], f"({of_derby})"}


def _nearest(wanted: str, gtrids: Iterable[bytes]) -> set[bytes]:
    """Return the ids that have the most characters from the first on in common with the text."""
    known = set(gtrids)
    for size in range(len(wanted), 0, -1):
        if near := {gtrid for gtrid in known if gtrid.hex().startswith(wanted[:size])}:
            return near
    return known


def _candidates(gtrids: Iterable[bytes]) -> str:
    names = sorted(gtrid.hex() for gtrid in gtrids)
    more = len(names) - _CANDIDATES_MAX
    rest = [f"or one of {more:,} more"] if more > 0 else []
    return ", ".join(names[:_CANDIDATES_MAX] + rest)
