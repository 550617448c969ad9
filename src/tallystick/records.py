"""The records that every part of the library understands: spans, transactions, findings, verdicts.

Readers of all six systems return them, and the command line, the pipeline and the report know
nothing else of a log. Nothing here reads a file or knows a format.

* A `Span` says what a range of bytes *is*; the spans of a file tile it.
* A `Record` is one physical log record with its place and its meaning; a `NumberedRecord` is one
  whose number and body are always there.
* A `Transaction` is what one log says of one transaction.
* A `Finding` is something a person should know, with its evidence.
* A `Verdict` compares what the log's own engine would do with what the bytes prove, and its
  `Judgement` is the answer that follows, with the reason for it.
* `Surroundings` are what a restart opens besides the log, each `Part` with what follows from it.

`tallystick.arrow.schemas` has the Arrow schemas of the same things.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from tallystick.printable import printable

_Kind = TypeVar("_Kind")


class Outcome(StrEnum):
    """What a range of bytes can be; in brackets, what recovery does with it."""

    VALID = "valid"
    """A whole record or header of this life of the file (used)."""
    TORN = "torn"
    """The write never finished; nothing after it was ever acknowledged (cut here)."""
    CORRUPT = "corrupt"
    """It was whole once; something acknowledged is damaged (refused, and reported)."""
    STALE = "stale"
    """A whole record of an earlier life of a recycled file (ignored)."""
    UNUSED = "unused"
    """Preallocated, fill, padding, alignment hole (ignored)."""


class Kind(StrEnum):
    """What a record does, in general terms; `Record.type` has the system's own name."""

    BEGIN = "begin"
    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    UNDO = "undo"
    """Before-image of a page, or a compensation record."""
    PAGE = "page"
    """Any other physical change of a page or container."""
    PREPARE = "prepare"
    DECISION = "decision"
    """A coordinator's forced decision to commit."""
    COMMIT = "commit"
    ROLLBACK = "rollback"
    HEURISTIC = "heuristic"
    """A branch or transaction whose outcome differs, or may differ, from the decision."""
    STATUS = "status"
    """A coordinator's note that decides nothing."""
    PERSISTING = "persisting"
    PERSISTED = "persisted"
    CHECKPOINT = "checkpoint"
    CONTROL = "control"
    """Bookkeeping of the log itself: checksum records, free lists, footers, events."""
    NOOP = "noop"
    UNKNOWN = "unknown"


class State(StrEnum):
    """The state of a transaction according to one log."""

    ACTIVE = "active"
    """Begun, not prepared and not ended: a restart rolls it back."""
    PREPARED = "prepared"
    """A participant's branch that waits for its coordinator: in doubt."""
    UNDECIDED = "undecided"
    """A coordinator's transaction that reached the prepare phase and has no decision."""
    COMMITTING = "committing"
    """A coordinator's commit decision that is not closed yet: dangling."""
    COMMITTED = "committed"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    HEURISTIC = "heuristic"
    PENDING = "pending"
    """Write-behind: persisting, and not persisted in every target."""
    INCOMPLETE = "incomplete"
    """Ended in the log, but elements of it are missing or damaged."""
    UNKNOWN = "unknown"


class Fate(StrEnum):
    """What becomes of a change of a row at a restart."""

    COMMITTED = "committed"
    IN_DOUBT = "in_doubt"
    """Of a prepared transaction: it waits for its coordinator."""
    LOST = "lost"
    """It was committed, or prepared, and a restart drops it."""
    UNDONE = "undone"
    """Rolled back, or not ended: a restart leaves nothing of it."""
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """The fate as a text begins with it."""
        return self.value.upper().replace("_", " ")


class Severity(StrEnum):
    """How much a finding matters; the last two make a command exit with status 1."""

    INFO = "info"
    WARNING = "warning"
    DAMAGE = "damage"
    """Bytes are damaged or missing, or the log and the bytes disagree."""
    LOSS = "loss"
    """A restart would lose, or revive, acknowledged data."""


class Answer(StrEnum):
    """What a restart with a log does to what was acknowledged."""

    SAFE = "safe"
    """It keeps everything; said only with a proof."""
    LOSES = "loses"
    """It drops, revives or applies in part something that was acknowledged."""
    REFUSES = "refuses"
    """The log's own system does not start."""
    CANNOT_TELL = "cannot-tell"
    """The bytes do not prove any of the others."""


class Clock(StrEnum):
    """What the numbers in `Record.time` count."""

    BOOT_MS = "boot_ms"
    """Milliseconds since the machine booted: comparable within one boot only."""
    WALL_MS = "wall_ms"
    WALL_US = "wall_us"
    WALL_NS = "wall_ns"
    """Milli-, micro-, nanoseconds since 1970-01-01 UTC."""
    NONE = "none"
    """The log holds no times."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes of one file and what it is. The spans of a file tile it in order.

    ``what`` names the structure in the format's words ("file header", "record",
    "fill", "log data page"); ``reason`` says why the outcome is what it is, and may be
    empty where `Outcome.VALID` speaks for itself.
    """

    offset: int
    length: int
    outcome: Outcome
    what: str
    reason: str = ""

    @property
    def end(self) -> int:
        """Return the offset of the first byte after the span."""
        return self.offset + self.length

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        place = f"{self.length:,} bytes at {self.offset}"
        return printable(f"{self.what}, {place}, {self.outcome}{why}")


@dataclass(frozen=True, slots=True)
class Xid:
    """An XA id: signed 32-bit format id and two byte strings of at most 64 bytes each."""

    format_id: int
    gtrid: bytes
    bqual: bytes = b""

    def __str__(self) -> str:
        """Return the one spelling that is printed: ``format:gtrid:bqual``, in lower-case hex."""
        try:
            return f"{self.format_id}:{self.gtrid.hex()}:{self.bqual.hex()}"
        except AttributeError:  # an error that refuses what is no Xid names it, too
            return repr(self)


@dataclass(slots=True)
class Record:
    """One physical log record.

    ``file`` is a path, ``offset`` and ``length`` are bytes in it (where a record is spread over
    pages, the offset of its first byte and the number of its own bytes). ``type`` is the system's
    own name of the record. ``sequence`` and ``time`` are as the log has them (the unit of time is
    the `Clock` of the file), None where it has none. ``transaction`` is the number of a local
    transaction, ``gtrid`` the global id. ``attributes`` holds what only this system has, as plain
    JSON values and bytes.
    """

    system: str
    file: str
    offset: int
    length: int
    outcome: Outcome
    kind: Kind
    type: str
    sequence: int | None = None
    time: int | None = None
    transaction: int | None = None
    format_id: int | None = None
    gtrid: bytes | None = None
    bqual: bytes | None = None
    resources: tuple[str, ...] = ()
    record_id: int | None = None
    body: bytes | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def lsn(self) -> int | None:
        """The number of the record in its log: ``sequence``, which is the LSN of a journal's."""
        return self.sequence

    def __str__(self) -> str:
        said = {
            "number": self.sequence, "transaction": self.transaction, "id": self.record_id,
            "gtrid": None if self.gtrid is None else self.gtrid.hex(),
            "bytes of body": None if self.body is None else len(self.body),
        }  # fmt: skip
        more = "".join(f", {name} {value}" for name, value in said.items() if value is not None)
        place = f"{self.file} at {self.offset}"
        return printable(f"{place}: {self.type} ({self.kind}), {self.outcome}{more}")

    def to_dict(self) -> dict[str, Any]:
        """Return the record as ``tallystick dump --json`` prints it, with binary as lower-case hex.

        ``format_id`` and ``bqual`` become attributes, unless they are None.
        """
        attributes = dict(self.attributes)
        if self.format_id is not None:
            attributes["format_id"] = self.format_id
        if self.bqual is not None:
            attributes["bqual"] = self.bqual
        return {
            "system": self.system,
            "file": self.file,
            "offset": self.offset,
            "length": self.length,
            "outcome": self.outcome.value,
            "kind": self.kind.value,
            "type": self.type,
            "sequence": self.sequence,
            "time": self.time,
            "transaction": self.transaction,
            "gtrid": jsonable(self.gtrid),
            "resources": list(self.resources),
            "record_id": self.record_id,
            "body": jsonable(self.body),
            "attributes": jsonable(attributes),
        }


@dataclass(slots=True)
class NumberedRecord(Record):
    """A record that was read whole, of a log that numbers its records.

    Each whole record of the native log is one, and each that a journal replays or follows: its
    number and its body are always there, the latter empty where it has none.
    """

    sequence: int = 0
    body: bytes = b""

    @property
    def lsn(self) -> int:
        """The number of the record in its log: ``sequence``."""
        return self.sequence


@dataclass(slots=True)
class LogFile:
    """One file of a log as a reader found it.

    ``identity`` is the id in its header, ``generation`` the recycling stamp or section, ``order``
    its place in the log (0 first), ``role`` the format's word for it ("log file", "control file",
    "part 1", "passive"). ``spans`` tile the file. ``redundant`` is True if the log's own rules
    allow the file to go, None where they do not apply; ``why`` explains it.
    """

    path: str
    size: int
    role: str
    order: int
    identity: int | None = None
    generation: int | None = None
    clock: Clock = Clock.NONE
    redundant: bool | None = None
    why: str = ""
    spans: Sequence[Span] = ()

    def __str__(self) -> str:
        return printable(f"{self.path}: {self.role}, {self.size:,} bytes")

    def bytes_by_outcome(self) -> dict[Outcome, int]:
        """Return the bytes of the file per outcome; they add up to its size."""
        totals = dict.fromkeys(Outcome, 0)
        for span in self.spans:
            totals[span.outcome] += span.length
        return totals


@dataclass(slots=True)
class Transaction:
    """A transaction, as one log has it.

    ``key`` is unique within the log. ``participants`` are resource or target names. ``complete`` is
    False if elements are missing, and ``holes`` then says which. ``evidence`` is the place (file,
    offset) of the record that decides the state, and ``evidence_type`` the system's name of that
    record. ``bytes`` is the length of its ``records`` together.
    """

    system: str
    log: str
    key: str
    state: State
    transaction: int | None = None
    format_id: int | None = None
    gtrid: bytes | None = None
    bqual: bytes | None = None
    name: str | None = None
    participants: tuple[str, ...] = ()
    open_participants: tuple[str, ...] = ()
    first_time: int | None = None
    last_time: int | None = None
    records: int = 0
    bytes: int = 0
    files: tuple[str, ...] = ()
    complete: bool = True
    holes: str = ""
    evidence: tuple[str, int] | None = None
    evidence_type: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        holes = f"; {self.holes}" if self.holes else ""
        place = "" if self.evidence is None else ", by {} at {}".format(*self.evidence)
        return printable(f"{self.log}: transaction {self.key} is {self.state}{place}{holes}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with binary as lower-case hex."""
        return {name: jsonable(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a person should know about a log, with its evidence.

    ``code`` is a stable slug ("torn-tail", "missing-file"); ``message`` is one sentence for an
    operator; ``bytes_at_risk`` counts bytes that a restart would drop or misread.
    """

    code: str
    severity: Severity
    system: str
    log: str
    message: str
    file: str | None = None
    offset: int | None = None
    length: int | None = None
    expected: str | None = None
    found: str | None = None
    advice: str | None = None
    bytes_at_risk: int = 0
    gtrid: bytes | None = None

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at {self.offset}"
        said = f"{self.file or self.log}{place}: {self.severity}: {self.message}"
        return printable(f"{said}. {self.advice}" if self.advice else said)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with binary as lower-case hex."""
        return {name: jsonable(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Difference:
    """One point where the engine's verdict and the strict one differ.

    ``what`` names it, ``engine`` and ``strict`` are the two values, ``meaning`` tells an operator
    what a restart would do because of it. ``refuses`` is True if the log's own system then does not
    start.
    """

    what: str
    engine: str
    strict: str
    meaning: str
    severity: Severity = Severity.LOSS
    file: str | None = None
    offset: int | None = None
    refuses: bool = False

    def __str__(self) -> str:
        both = f"{self.what}: {self.engine} for the engine, {self.strict} by the bytes"
        return printable(f"{both}. {self.meaning}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: jsonable(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class AtStake:
    """How much an answer is about; None where the log does not tell.

    Attributes:
        transactions: for `Answer.LOSES`, those that a restart drops, revives or applies in part;
            for `Answer.REFUSES`, those whose outcome stands in the log; at least so many.
        rows: rows or records that these changed.
    """

    transactions: int | None = None
    rows: int | None = None

    def __str__(self) -> str:
        counts = {"transaction": self.transactions, "row": self.rows}
        said = [_counted(number, one) for one, number in counts.items() if number is not None]
        return ", ".join(said) or "it is not known how much"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer about one log, and why it is given. Without a reason nothing can be told.

    Attributes:
        answer: what a restart does.
        reason: code of the reason, a row of the system's table (docs/verdicts.md).
        text: the reason, one sentence for an operator.
        after_crash: of `Answer.SAFE`: the log ends as a crash leaves it, not in a positive proof.
        at_stake: how much the answer is about.
        decided_by: of `Answer.CANNOT_TELL`: the file or fact that would decide it.
    """

    answer: Answer = Answer.CANNOT_TELL
    reason: str = "not-judged"
    text: str = "The reader of this system does not judge its logs."
    after_crash: bool = False
    at_stake: AtStake = AtStake()
    decided_by: str = ""

    @property
    def words(self) -> str:
        """The answer as a text begins with it."""
        if self.answer is Answer.SAFE and self.after_crash:
            return "SAFE AFTER A CRASH"
        return self.answer.value.upper().replace("-", " ")

    def __str__(self) -> str:
        decided = f" What would decide it: {self.decided_by}." if self.decided_by else ""
        return printable(f"{self.words}: {self.text}{decided}")

    def to_dict(self) -> dict[str, Any]:
        """Return the answer, why it is given, and what is at stake, as plain JSON values."""
        return {
            "answer": self.answer.value,
            "reason": {
                "code": self.reason,
                "text": self.text,
                "after_crash": self.after_crash,
                "decided_by": self.decided_by or None,
            },
            "at_stake": {"transactions": self.at_stake.transactions, "rows": self.at_stake.rows},
        }


@dataclass(frozen=True, slots=True)
class Part:
    """What a restart opens besides the log: a file or folder of the database or broker.

    Attributes:
        part: its name in the words of its system.
        path: where it is, or would be.
        found_by: what names this place: the layout of the system, or a setting.
        there: it is there.
        fits: it fits the log; None where that was not, or could not be, told.
        why: what tells that, and what follows; one sentence.
        answer: what a restart does because of it; safe where nothing follows from it.
        at_stake: how much that is about.
        decided_by: of `Answer.CANNOT_TELL`: the file or fact that would decide it.
    """

    part: str
    path: str
    found_by: str
    there: bool = True
    fits: bool | None = None
    why: str = ""
    answer: Answer = Answer.SAFE
    at_stake: AtStake = AtStake()
    decided_by: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return one entry of ``surroundings`` in ``tallystick explain --json``."""
        names = ("part", "path", "found_by", "there", "fits", "why")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one restart starts: the database or broker of a log.

    Attributes:
        path: its folder; that of the log where there is nothing but the log.
        kind: ``database`` or ``broker``; ``log`` where there is nothing but the log.
        parts: what a restart opens besides the log; none of a log alone.
        reads_log: whether it reads the log at all; else the parts alone decide.
        other_log: the log of the same database or broker that judges the rest, as a part that
            counts where that one is not judged along.
    """

    path: str
    kind: str
    parts: tuple[Part, ...] = ()
    reads_log: bool = True
    other_log: Part | None = None


class Deferred(Mapping[str, Any]):
    """A mapping that is made when it is first asked for: it may list every record of a log."""

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._made = cache(make)

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key."""
        return self._made()[key]

    def __iter__(self) -> Iterator[str]:
        """Yield the keys."""
        return iter(self._made())

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self._made())


class DeferredList(Sequence[Any]):
    """A list that is made when it is first asked for: it may have an item for every record."""

    def __init__(self, make: Callable[[], Sequence[Any]]) -> None:
        self._made = cache(make)

    def __getitem__(self, index: Any) -> Any:
        """Return an item, or some."""
        return self._made()[index]

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self._made())

    def __eq__(self, other: object) -> bool:
        """Return whether the other one has the same items."""
        return isinstance(other, Sequence) and list(self._made()) == list(other)

    def __hash__(self) -> int:
        return hash(self._made())

    def __repr__(self) -> str:
        return repr(self._made())


@dataclass(slots=True)
class Verdict:
    """Both judgements of one log, and the answer that follows from them.

    ``engine`` is what the log's own software would do, in the words and keys of that
    system's oracle, made when it is first asked for where it lists every record; ``strict``
    is what can be known from the bytes, always with the keys
    ``records`` (counts by outcome), ``transactions`` (counts by state), ``in_doubt``,
    ``lost`` (what a restart would lose silently) and ``findings`` (codes and counts).
    ``judgement`` is the answer about what a restart starts; a system that gives none cannot tell.
    ``surroundings`` is what it opens besides the log, None of systems that look for nothing, and
    ``own`` the answer about the log alone, None where that is the same. ``name`` tells the log from
    others in the folder ``path``, empty where that is not needed; ``place`` has both.
    """

    system: str
    path: str
    format: str
    engine: Mapping[str, Any]
    strict: dict[str, Any]
    differences: tuple[Difference, ...] = ()
    judgement: Judgement = Judgement()
    surroundings: Surroundings | None = None
    own: Judgement | None = None
    name: str = ""

    @property
    def place(self) -> str:
        """What the log is called, different for every log."""
        return f"{self.path}/{self.name}" if self.name else self.path

    @property
    def log_judgement(self) -> Judgement:
        """The answer about the log alone."""
        return self.judgement if self.own is None else self.own

    def __str__(self) -> str:
        lines = [f"{self.place} ({self.system}): {self.judgement}", *map(str, self.differences)]
        return "\n  ".join(map(printable, lines))

    def judged(self, judgement: Judgement) -> Verdict:
        """Return the verdict with another answer; that about the log alone stays."""
        own = self.own if judgement == self.judgement else self.log_judgement
        return replace(self, judgement=judgement, own=own)

    def to_dict(self) -> dict[str, Any]:
        """Return one entry of ``tallystick explain --json``."""
        own = self.log_judgement.to_dict()
        return {
            "path": self.path,
            "name": self.name,
            "system": self.system,
            "format": self.format,
            **self.judgement.to_dict(),
            **{f"log_{name}": value for name, value in own.items()},
            "engine": jsonable(self.engine),
            "strict": jsonable(self.strict),
            "differences": [difference.to_dict() for difference in self.differences],
        }


@dataclass(frozen=True, slots=True)
class Change:
    """One committed row or record change, in commit order.

    ``collection`` is the table, container or queue as the log names it, ``key`` the row
    key or record id, ``before`` and ``after`` are images as far as the log holds them.
    ``commit_sequence`` orders changes within the log; ``ordinal`` within the transaction.
    """

    system: str
    log: str
    commit_sequence: int
    ordinal: int
    kind: Kind
    collection: str
    key: str
    file: str
    offset: int
    transaction: str | None = None
    gtrid: bytes | None = None
    time: int | None = None
    before: bytes | None = None
    after: bytes | None = None
    values: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        what = f"{self.kind} of {self.collection}, key {self.key}"
        values = "" if self.values is None else f": {dict(self.values)}"
        place = f"{self.file} at {self.offset}"
        return printable(f"commit {self.commit_sequence}: {what}{values}, by {place}")


@dataclass(frozen=True, slots=True)
class Row:
    """A change of a row, committed or not, and what becomes of it.

    Attributes:
        fate: what becomes of it at a restart.
        change: the change; ``commit_sequence`` and ``ordinal`` are 0 where no commit is believed.
        names: what its collection is called, too: a queue, an earlier name.
    """

    fate: Fate
    change: Change
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.fate.words}: {self.change}"

    def to_dict(self) -> dict[str, Any]:
        """Return the row as ``tallystick rows --json`` prints it, with binary as lower-case hex."""
        names = [one for one in Change.__slots__ if one not in ("system", "log")]
        said = {name: jsonable(getattr(self.change, name)) for name in ("system", "log", *names)}
        return {"fate": self.fate.value, **said}


def rows_in_columns(
    fates: Iterable[Fate], names: Iterable[tuple[str, ...]], changes: Mapping[str, Sequence[Any]]
) -> list[Row]:
    """Return rows whose fields come as columns: ``changes`` has one for each of `Change`."""
    made = _made(Change, changes, len(changes["key"]))
    return _made(Row, {"fate": fates, "change": made, "names": names}, len(made))


def _made(kind: type[_Kind], columns: Mapping[str, Iterable[Any]], count: int) -> list[_Kind]:
    """Return objects, filled field by field: one by one a frozen one takes three times as long."""
    found = [object.__new__(kind) for _ in range(count)]
    for name, values in columns.items():
        deque(map(getattr(kind, name).__set__, found, values), maxlen=0)
    return found


def _counted(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def jsonable(value: Any) -> Any:
    """Convert a value to JSON: bytes to lower-case hex, sequences to lists, enums to values.

    Of numbers, JSON has none for ``NaN``, ``Infinity`` and ``-Infinity``: they are texts.

    Raises:
        TypeError: The value, or one inside it, has no JSON form.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | DeferredList):
        return [jsonable(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form here")
