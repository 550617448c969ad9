"""From entries to transactions.

In: entries in the order of reading. Out: one `Transaction` per number with a persisting entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.records import State, Transaction
from tallystick.systems.cloudtran.format.entries import (
    ALL_TARGETS,
    EntryKind,
    PersistedFlag,
    PersistingFlag,
    signed,
)
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence
from tallystick.systems.cloudtran.read.records import TYPES

_PERSISTING = int(EntryKind.PERSISTING)
_CARRIED, _DISCARDED = int(PersistingFlag.CARRIED_FORWARD), int(PersistedFlag.DISCARDED)
_TYPES = {int(kind): name for kind, name in TYPES.items()}


class Step(NamedTuple):
    """What an entry says of its transaction, and where it stands."""

    path: str
    offset: int
    length: int
    kind: int
    flags: int
    time: int
    targets: tuple[str, ...]


@dataclass(slots=True)
class TransactionFold:
    """The transactions so far."""

    log: str
    known: dict[int, Transaction] = field(default_factory=dict)
    _early: dict[int, list[Step]] = field(default_factory=dict)
    """Persisted entries without a persisting one yet, by number."""

    def add_block(self, occurrence: BlockOccurrence) -> None:
        """Add the entries of a block."""
        block, path = occurrence.block, occurrence.file.path
        for placed in block.entries:
            entry = placed.entry
            offset, length = block.place_of(placed)
            kind, flags, time = int(entry.kind), entry.flags, entry.time
            step = Step(path, offset, length, kind, flags, time, entry.targets)
            self.add(entry.number, step, entry.reference, len(entry.operations))

    def numbers(self) -> set[int]:
        """Return the numbers of all entries so far."""
        return self.known.keys() | self._early.keys()

    def add(self, number: int, step: Step, reference: str, operations: int) -> None:
        """Add an entry."""
        one = self.known.get(number)
        if one is not None:
            _apply(one, step)
        elif step.kind == _PERSISTING:
            self._begin(number, reference, operations, step)
        else:
            self._early.setdefault(number, []).append(step)

    def _begin(self, number: int, reference: str, operations: int, step: Step) -> None:
        """Make a transaction of its first persisting entry."""
        path, offset, length, kind, _, time, targets = step
        one = self.known[number] = Transaction(
            SYSTEM_NAME,
            self.log,
            str(number),
            State.PENDING,
            signed(number),
            name=reference or None,
            participants=targets,
            open_participants=targets,
            first_time=time,
            last_time=time,
            records=1,
            bytes=length,
            files=(path,),
            evidence=(path, offset),
            evidence_type=_TYPES[kind],
            attributes={"operations": operations},
        )
        if earlier := self._early.pop(number, None):
            one.records, one.bytes, one.files = 0, 0, ()
            for each in (*earlier, step):
                _apply(one, each)
        else:
            _advance(one, step)


def _count(one: Transaction, path: str, length: int, time: int) -> None:
    one.records += 1
    one.bytes += length
    one.last_time = time
    if path not in one.files:
        one.files += (path,)


def _apply(one: Transaction, step: Step) -> None:
    _count(one, step.path, step.length, step.time)
    if one.state is State.PENDING:
        one.evidence = (step.path, step.offset)
        one.evidence_type = _TYPES[step.kind]
        _advance(one, step)


def _advance(one: Transaction, step: Step) -> None:
    if step.kind == _PERSISTING:
        if step.flags & _CARRIED:
            one.attributes["carried_forward"] = True
        return
    if step.flags & _DISCARDED:
        one.attributes["discarded"] = list(one.open_participants)
        one.state = State.HEURISTIC
    one.open_participants = _left(one.open_participants, step)
    if not one.open_participants and one.state is State.PENDING:
        one.state = State.COMMITTED


def _left(targets: tuple[str, ...], step: Step) -> tuple[str, ...]:
    if step.flags & ALL_TARGETS:
        return ()
    return tuple(target for target in targets if target not in step.targets)
