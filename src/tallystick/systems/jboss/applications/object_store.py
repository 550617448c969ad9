"""Narayana's stores of files: one file is the state of one transaction.

In: a `LogSource` of such files, or a folder in which they are looked for. Out: an
`ObjectStoreReading`. A state is written, and forced, when all participants are prepared, so it is
the decision to commit; it is written again in its place when a participant fails or answers with a
heuristic outcome, and deleted when all are done. So a file that is cut or empty is a decision that
was never acknowledged, or one that a later write destroyed, and which of the two nothing tells.
Recovery passes over hidden files, shadows and what is locked, and moves what it cannot read to
`Expired`, where it never looks again.

Source: BasicAction, RecoverAtomicAction, AtomicActionRecoveryModule and the stores of Narayana
7.0.2; docs/formats/jboss.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tallystick.errors import LogUnreadableError
from tallystick.records import (
    AtStake,
    Clock,
    Finding,
    Judgement,
    Kind,
    LogFile,
    Outcome,
    Record,
    Row,
    Span,
    State,
    Transaction,
    Verdict,
)
from tallystick.storage.source import link_target, link_to_nothing, open_source
from tallystick.systems.answers import Ground, judgement_of
from tallystick.systems.decisions import CoordinatorReading, decision_rows
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.jboss.applications.coordinated import (
    Place,
    is_transaction,
    transaction_of,
)
from tallystick.systems.jboss.codes import CODES, REASONS
from tallystick.systems.jboss.format.layout import SYSTEM_NAME
from tallystick.systems.jboss.format.object_files import (
    LOCK,
    LOCK_OF_LOCK,
    ObjectFile,
    begins_state,
    ends_recovery,
    folder_by_hash,
    hash_folder_of,
    keeps_readers_out,
    object_file,
)
from tallystick.systems.jboss.format.participants import (
    ACTION,
    SUBORDINATE,
    TRANSACTION,
    is_local_transaction,
    without_fill,
)
from tallystick.systems.protocol import (
    FileLife,
    Folder,
    LogSource,
    Missing,
    Reached,
    ReadOptions,
    Split,
    readable_entries,
)
from tallystick.systems.surroundings import is_missing, names_beside, unlisted

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = {
    State.HEURISTIC: Kind.HEURISTIC,
    State.PREPARED: Kind.PREPARE,
    State.ROLLING_BACK: Kind.ROLLBACK,
    State.COMMITTING: Kind.DECISION,
}
_OWED = (State.COMMITTING, State.PREPARED, State.UNDECIDED)
_EVIDENCE = "state"
_SOME_UID = "0_0_0_0_0"
_TYPES = "/StateManager/BasicAction/TwoPhaseCoordinator/"
"""What the types of transactions begin with."""
_OF_LOCAL = (TRANSACTION, TRANSACTION + SUBORDINATE)
"""The types of which a state that is none of them is read as far as it goes."""
_BY_HASH = frozenset({"HashedStore", "HashedActionStore"})
_BY_TYPE = frozenset({"ShadowNoFileLockStore", "ShadowingStore", "ActionStore"})
_WITHOUT_LOCKS = _BY_HASH | _BY_TYPE - {"ShadowingStore"}
"""Names of stores that Narayana gives to their folders, with and without folders by hash."""


def object_stores(folder: Folder) -> list[LogSource]:
    """Return the stores of which states lie in a folder.

    The name of a folder makes no store: a file in it has the name of an object, and begins as
    states do, or lies where Narayana keeps transactions. Only where nothing at all is left in the
    folder of such a type it is a store without a transaction.
    """
    if not folder.entries:
        named = object_file(f"{folder.path}/{_SOME_UID}")
        if named is None or not named.type_name.startswith(_TYPES):
            return []
        return [LogSource(SYSTEM_NAME, named.store, (), followable=False)]
    found: dict[str, list[str]] = {}
    known = False
    for entry in readable_entries(folder.entries):
        named = object_file(entry.path)
        if named is None:
            continue
        known = known or begins_state(entry.head) or is_transaction(named.type_name)
        found.setdefault(named.store, []).append(entry.path)
    return [
        LogSource(SYSTEM_NAME, one, tuple(files), followable=False)
        for one, files in found.items()
        if known
    ]


@dataclass(frozen=True, slots=True)
class _State:
    """One file as it was read."""

    path: str
    named: ObjectFile
    size: int
    transaction: Transaction | None
    """None of an object that is no transaction."""
    misplaced: bool = False
    """It is in a folder in which recovery does not look for it."""
    locked: bool = False
    """A lock keeps recovery from it."""

    @property
    def in_use(self) -> bool:
        """True if recovery reads it."""
        return self.named.in_use and not self.misplaced and not self.locked

    @property
    def read(self) -> bool:
        """True if all of the state could be read that its class lets us read."""
        return self.transaction is None or self.transaction.state is not State.UNDECIDED

    @property
    def is_owed(self) -> bool:
        """True if branches may wait for what the state decides."""
        return self.transaction is not None and self.transaction.state in _OWED

    @property
    def outcome(self) -> Outcome:
        if not self.in_use:
            return Outcome.STALE
        return Outcome.VALID if self.read else Outcome.CORRUPT

    @property
    def what(self) -> str:
        """What the file is, and why recovery passes over it."""
        named = self.named
        if named.expired:
            return "state that recovery has given up"
        if named.shadow or named.hidden:
            return "shadow of a state" if named.shadow else "hidden state"
        if named.misnamed:
            return "state under another name"
        if self.misplaced:
            return "state in a folder where none of its type is looked for"
        if self.locked:
            return "locked state"
        return "state" if self.size else "empty state"


@dataclass
class ObjectStoreReading(CoordinatorReading):
    """A `LogReading` of one store; every file is read once, and what is decoded is kept."""

    source: LogSource
    options: ReadOptions = field(repr=False)
    format = "Narayana's store of files"
    clock = Clock.WALL_MS

    @cached_property
    def _states(self) -> list[_State]:
        read = ((path, object_file(path)) for path in sorted(self.source.files))
        states = (self._state(path, named) for path, named in read if named is not None)
        found = [one for one in states if one is not None]
        for path in self.source.files:
            if object_file(path) is not None or not _is_folder_of_transactions(path):
                continue
            if why := unlisted(path) or _not_followed(path):
                self._unread.append(LogUnreadableError(why, file=path))
        found = _placed(self.source.path, found)
        found = [replace(one, locked=self._is_locked(one.path)) for one in found]
        in_use = {(one.named.type_name, one.named.uid) for one in found if one.in_use}
        uids = {uid for _, uid in in_use}
        return [
            one
            for one in found
            if not (one.misplaced and one.named.uid in uids)
            and not (one.named.misnamed and (one.named.type_name, one.named.uid) in in_use)
        ]

    @cached_property
    def _locks(self) -> frozenset[str]:
        if _stores_above(self.source.path) & _WITHOUT_LOCKS:
            return frozenset()
        return frozenset(one for one in self.source.files if one.endswith((LOCK, LOCK_OF_LOCK)))

    def _is_locked(self, path: str) -> bool:
        if f"{path}{LOCK_OF_LOCK}" in self._locks:
            return True
        if f"{path}{LOCK}" not in self._locks:
            return False
        try:
            with open_source(f"{path}{LOCK}") as lock:
                return keeps_readers_out(bytes(lock.data))
        except LogUnreadableError as error:
            if not is_missing(error):  # else it was given back
                self._unread.append(error)
            return False

    @cached_property
    def _ends(self) -> list[str]:
        """The files at which recovery ends."""
        files = self.source.files
        hashed = {folder for path in files if (folder := folder_by_hash(path))}
        below = {f"{folder}/{name}" for folder in hashed for name in names_beside(folder)}
        return ends_recovery(sorted({*files, *below}))

    @cached_property
    def _unread(self) -> list[LogUnreadableError]:
        return []

    def _state(self, path: str, named: ObjectFile) -> _State | None:
        try:
            with open_source(path) as opened:
                data = bytes(opened.data)
        except LogUnreadableError as error:
            if not is_missing(error) or link_to_nothing(path):  # else its transaction ended
                self._unread.append(error)
            return None
        type_name = named.type_name
        elsewhere = type_name not in _OF_LOCAL and is_local_transaction(data, named.uid)
        if elsewhere:
            type_name = TRANSACTION
        elif not is_transaction(type_name):
            return _State(path, named, len(data), None)
        place = Place(path, 0, len(data), _EVIDENCE)
        state = without_fill(data, type_name)
        found = transaction_of(self.source.path, named.uid, type_name, state, place)
        if named.misnamed and found.state is State.UNDECIDED:
            return None  # what an editor or a desktop puts beside a file
        found.first_time = found.last_time = found.attributes.pop("began")
        return _State(path, named, len(data), found, elsewhere)

    def files(self) -> Sequence[LogFile]:
        """Return the files by name, each one span."""
        return [
            LogFile(
                one.path,
                one.size,
                one.named.type_name.rpartition("/")[2] or "object",
                order,
                clock=self.clock,
                spans=(Span(0, one.size, one.outcome, one.what, _reason(one)),) if one.size else (),
            )
            for order, one in enumerate(self._states)
        ]

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        """Yield the states by name; with ``salvage`` those that recovery passes over, too."""
        for one in self._states:
            if one.size and (salvage or one.in_use):
                yield _record(one)

    def transactions(self) -> Iterator[Transaction]:
        """Yield the transactions whose states recovery reads."""
        for one in self._states:
            if one.transaction is not None and one.in_use and one.size:
                yield one.transaction

    def fated_changes(self) -> Iterator[Row]:
        """Yield the decisions by participant."""
        return decision_rows(self.transactions(), ())

    def findings(self) -> Sequence[Finding]:
        """Return what a restart leaves undone, and what cannot be read."""
        # First, as reading the states is what fills `_unread`.
        states = self._states
        build = FindingBuilder(SYSTEM_NAME, self.source.path, CODES)
        found = [build.unreadable(one) for one in self._unread]
        for path in self._ends:
            found.append(build("recovery-ends", REASONS["recovery-ends"].meaning, file=path))
        for one in states:
            if one.transaction is None:
                continue
            if one.named.expired:
                found.append(build("state-expired", f"{_named(one)} was given up.", file=one.path))
            elif not one.in_use:
                text = f"{_named(one)} is a {one.what}: no recovery reads it."
                found.append(build("state-passed-over", text, file=one.path))
            elif not one.read:
                text = f"{_named(one)} cannot be read: its state is cut, damaged or of another one."
                found.append(build("state-cut", text, file=one.path, bytes_at_risk=one.size))
        return found

    def verdict(self) -> Verdict:
        """Return both verdicts: what recovery does is what the states say."""
        every = list(self.transactions())
        states = Counter(one.state for one in every)
        strict = {
            "records": dict(Counter(one.outcome.value for one in self._states)),
            "transactions": {state.value: count for state, count in states.items()},
            "in_doubt": [_in_doubt(one) for one in every if one.state is State.PREPARED],
            "lost": [],
            "findings": dict(Counter(one.code for one in self.findings())),
        }
        engine = {"transactions": [self._listed(one) for one in every]}
        return Verdict(
            SYSTEM_NAME, self.source.path, self.format, engine, strict, (), self.judgement
        )

    @cached_property
    def judgement(self) -> Judgement:
        """The answer about the store."""
        findings = self.findings()
        return judgement_of(REASONS, CODES, self._grounds(), findings)

    def _grounds(self) -> Iterator[Ground]:
        states = [one for one in self._states if one.transaction]
        passed_over = [one for one in states if not one.in_use]
        if self._ends:
            text = f"{self._ends[0]}: {REASONS['recovery-ends'].meaning}"
            owed = [one for one in states if one.is_owed and not one.named.expired]
            yield Ground("recovery-ends", text, AtStake(len(owed)))
        for code, some in (
            ("state-cut", [one for one in states if one.in_use and not one.read]),
            ("state-passed-over", [one for one in passed_over if not one.named.expired]),
            ("state-expired", [one for one in states if one.named.expired and one.is_owed]),
        ):
            if some:
                more = f", and {len(some) - 1:,} more" if len(some) > 1 else ""
                text = f"{_named(some[0])}{more}: {REASONS[code].meaning}"
                yield Ground(code, text, AtStake(len(some)))
        yield Ground("states-whole" if any(one.in_use for one in states) else "no-state")

    @staticmethod
    def _listed(one: Transaction) -> dict[str, Any]:
        return {"uid": one.key, "status": one.attributes["status"]}

    # -- what streams ask of logs: a store has no records that follow one another ---------------

    def lives(self) -> Mapping[str, FileLife]:
        """Return none: states are written in their place."""
        return {}

    def number(self, path: str) -> int | None:
        """Return None: no file continues another one."""
        del path
        return None

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return None: a state that is gone is one of a transaction that ended."""
        del path, reached
        return None

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``records()``, all of them or those of a file."""
        from tallystick.arrow.schemas import record_batches

        chosen = (one for one in self.records() if split is None or one.file == split.file)
        return record_batches(chosen, self.source.path, self.clock.value, rows)


def _is_folder_of_transactions(path: str) -> bool:
    """Return whether a path is that of a folder of transactions, or of one above it."""
    named = object_file(f"{path}/{_SOME_UID}")
    type_name = named.type_name if named is not None else ""
    return is_transaction(type_name) or (bool(type_name) and ACTION.startswith(f"{type_name}/"))


def _not_followed(path: str) -> str:
    """Return why a folder that is a link was not searched; empty for others."""
    leads = link_target(path)
    return f"it is a link to {leads}, which recovery follows and is not searched" if leads else ""


def _placed(store: str, states: list[_State]) -> list[_State]:
    """Return the states, with those that are not in the folder that their Uid has there.

    The number of folders by hash is a setting: it is the usual one where one object is in its own.
    """
    by_hash = _is_by_hash(store, [one.named.hash_folder for one in states])
    usual = any(_is_in_own_folder(one.named) for one in states)

    def is_misplaced(one: _State) -> bool:
        if one.transaction is None or not one.named.in_use:
            return False
        hashed = one.named.hash_folder is not None
        return hashed is not by_hash or (hashed and usual and not _is_in_own_folder(one.named))

    return [replace(one, misplaced=True) if is_misplaced(one) else one for one in states]


def _is_in_own_folder(named: ObjectFile) -> bool:
    return bool(named.uid) and named.hash_folder == hash_folder_of(named.uid)


def _is_by_hash(store: str, numbers: list[int | None]) -> bool:
    """Return whether a store has folders by hash: by its name, or else by most of its objects."""
    above = _stores_above(store)
    if above & _BY_TYPE:
        return False
    inside = sum(one is not None for one in numbers)
    return bool(above & _BY_HASH) or inside > len(numbers) - inside


def _stores_above(store: str) -> set[str]:
    """Return the names of folders of which one may be that of the kind of a store."""
    return set(store.split("/")[-2:])


def _record(one: _State) -> Record:
    found = one.transaction
    record = Record(
        SYSTEM_NAME,
        one.path,
        0,
        one.size,
        one.outcome,
        Kind.CONTROL if found is None else _KINDS.get(found.state, Kind.UNKNOWN),
        one.named.type_name or "object",
        attributes={"uid": one.named.uid},
    )
    if found is not None:
        record.time = found.first_time
        record.format_id, record.gtrid = found.format_id, found.gtrid
        record.bqual, record.resources = found.bqual, found.participants
        record.attributes |= {"status": found.attributes["status"]}
    if not one.in_use:
        record.attributes["salvaged"] = True
    return record


def _named(one: _State) -> str:
    return f"{one.named.type_name.rpartition('/')[2]} {one.named.uid}"


def _reason(one: _State) -> str:
    return {Outcome.VALID: "", Outcome.CORRUPT: "cut or damaged"}.get(
        one.outcome, "recovery passes over it"
    )


def _in_doubt(one: Transaction) -> dict[str, Any]:
    return {
        "transaction": one.key, "format_id": one.format_id, "gtrid": one.gtrid,
        "bqual": one.bqual, "complete": one.complete,
    }  # fmt: skip
