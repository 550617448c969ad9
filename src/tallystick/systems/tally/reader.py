"""Reading a native log: files, records, transactions, and both verdicts. Nothing is written.

In: the files of one log. Out: a `TallyReading`. The engine verdict is what `TallyLog.open`
does: it uses everything up to the end of the log, and refuses if acknowledged data is damaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tallystick.errors import (
    CorruptLogError,
    LogUnreadableError,
    TallystickError,
    UnsupportedFormatError,
)
from tallystick.records import (
    Change,
    Clock,
    Difference,
    Finding,
    LogFile,
    Outcome,
    Record,
    Severity,
    Span,
    State,
    Transaction,
    Verdict,
)
from tallystick.systems.base import Folder, LogSource, ReadOptions, Split
from tallystick.systems.tally.catalog import (
    SYSTEM_NAME,
    Catalog,
    Life,
    Reach,
    SegmentFile,
    is_member,
    read_catalog,
)
from tallystick.systems.tally.columns import PLAIN
from tallystick.systems.tally.decision import Case
from tallystick.systems.tally.folding import LateLeaper, fold_step
from tallystick.systems.tally.layout import (
    CONTROL_MAGIC,
    COPY_OFFSET,
    DATA_OFFSET,
    SEGMENT_MAGIC,
    VERSION,
)
from tallystick.systems.tally.rows import envelope_record, records_of
from tallystick.systems.tally.scan import Scan, Step
from tallystick.systems.tally.sealing import KeyMissingError
from tallystick.systems.tally.spans import cut, doubled_spans, remains, segment_spans
from tallystick.systems.tally.splits import split_steps, splits_of
from tallystick.systems.tally.state import LogState
from tallystick.systems.tally.transactions import changes_of, ended_first, transactions_of
from tallystick.systems.tally.walk import Place, SegmentView

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE = (Case.VALID, Case.REPAIRED)


@dataclass(frozen=True, slots=True)
class TallySystem:
    """The native system."""

    name: str = SYSTEM_NAME
    title: str = "Tallystick's own log"

    def detect(self, folder: Folder) -> list[LogSource]:
        """One log per folder that has a file with our magic bytes."""
        members = [entry for entry in folder.entries if is_member(entry.name)]
        if not any(_has_magic(entry.head) for entry in members):
            return []
        return [LogSource(self.name, folder.path, tuple(entry.path for entry in members))]

    def read(self, source: LogSource, options: ReadOptions) -> TallyReading:
        return TallyReading(source, options)


def _has_magic(head: bytes) -> bool:
    return any(
        head[place : place + 8] in (CONTROL_MAGIC, SEGMENT_MAGIC) for place in (0, COPY_OFFSET)
    )


class TallyReading:
    """Everything that can be read of one native log."""

    def __init__(
        self, source: LogSource, options: ReadOptions | None = None, reach: Reach | None = None
    ) -> None:
        self._source = source
        self._key = (options or ReadOptions()).encryption_key
        self._reach = reach or Reach()

    @property
    def source(self) -> LogSource:
        return self._source

    @property
    def format(self) -> str:
        return f"tally {VERSION}"

    @property
    def clock(self) -> Clock:
        return Clock.WALL_US

    @cached_property
    def catalog(self) -> Catalog:
        """The files by their heads. Raises `UnsupportedFormatError`."""
        return read_catalog(self._source.path, self._source.files, self._reach)

    # -- files --------------------------------------------------------------------------

    def files(self) -> Sequence[LogFile]:
        places: dict[str, list[Place]] = {}
        for step in Scan(self.catalog, self._reach).steps():
            places.setdefault(step.file.path, []).append(step.place)
        found = [self._control_file()] if self.catalog.control_path else []
        for file in (*self.catalog.segments, *self.catalog.others):
            found.append(self._file(file, places.get(file.path, []), len(found)))
        return found

    def _control_file(self) -> LogFile:
        path = self.catalog.control_path
        assert path is not None
        control = self.catalog.control
        with self._reach.open(path) as source:
            size = source.size
        spans = doubled_spans(
            size, "control block", self.catalog.control_damage, whole=control is not None
        )
        rest = cut((Span(DATA_OFFSET, size, Outcome.UNUSED, "fill", "behind the block"),), size)
        return LogFile(
            path, size, "control file", 0,
            generation=control.generation if control else None,
            clock=self.clock,
            redundant=False,
            why="it says which segments there must be",
            spans=(*spans, *rest),
        )  # fmt: skip

    def _file(self, file: SegmentFile, places: list[Place], order: int) -> LogFile:
        try:
            source = self._reach.open(file.path)
        except LogUnreadableError:
            return LogFile(file.path, 0, file.life.value, order)
        with source:
            data = bytes(source.data)
        header = file.header
        if header is None or file.life in (Life.SPARE, Life.FREED, Life.FOREIGN):
            spans = list(remains(data, 0, len(data), 0))
        else:
            used = data[: header.size]
            view = SegmentView(used, header, file.durable_lsn)
            spans = segment_spans(file, view, places)
            spans += remains(data, len(used), len(data), header.number)
        return LogFile(
            file.path, len(data), file.life.value, order,
            identity=int.from_bytes(header.identity[:7], "big") if header else None,
            generation=header.number if header else None,
            clock=self.clock,
            redundant=file.life in (Life.FREED, Life.SPARE),
            why=_WHY[file.life],
            spans=tuple(spans),
        )  # fmt: skip

    # -- records ------------------------------------------------------------------------

    def records(self, *, salvage: bool = False) -> Iterator[Record]:
        for step in Scan(self.catalog, self._reach).steps():
            if step.behind and not salvage:
                return
            yield from self._step_records(step)

    def _work_records(self) -> Iterator[Record]:
        """The records but for those of plain groups, which are no part of any transaction,
        decision or entry."""
        for step in _believed(Scan(self.catalog, self._reach).steps()):
            header = step.place.header
            if header is None or header.columns != PLAIN or step.place.case not in _WHOLE:
                yield from self._step_records(step)

    def _step_records(self, step: Step) -> Iterator[Record]:
        place, header = step.place, step.place.header
        path = step.file.path
        if header is None or place.case is Case.END:
            return
        if place.case is Case.CORRUPT:
            if place.end > place.offset:
                yield envelope_record(path, header, Outcome.CORRUPT, reason=place.reason)
        elif place.case is Case.TORN:
            yield envelope_record(path, header, Outcome.TORN, reason=place.reason)
        else:
            yield from self._group_records(step)

    def _group_records(self, step: Step) -> Iterator[Record]:
        header = step.place.header
        assert header is not None
        path = step.file.path
        try:
            yield from records_of(
                path, step.view.inner(header), header, self._key, behind=step.behind
            )
        except KeyMissingError:
            yield envelope_record(path, header, Outcome.VALID, encrypted=True)
        except CorruptLogError as error:
            yield envelope_record(path, header, Outcome.CORRUPT, reason=str(error))

    def transactions(self) -> Iterator[Transaction]:
        """One per transaction, decision and persisting entry; memory grows with their number."""
        state = self._recovered[0]
        yield from transactions_of(self._source.path, self._work_records(), state.incomplete)

    def changes(self) -> Iterator[Change]:
        """Adds, updates, deletes and rows in commit order; memory grows with open transactions."""
        state = self._recovered[0]
        yield from changes_of(self._source.path, self.records(), state.incomplete)

    # -- verdicts -----------------------------------------------------------------------

    @cached_property
    def _recovered(self) -> tuple[LogState, Scan, Counter[str]]:
        """What recovery makes of the log, up to the first damage; and records by outcome, those
        behind damage included, counted by groups."""
        scan = Scan(self.catalog, self._reach, leap=LateLeaper())
        control = self.catalog.control
        state = LogState(
            control.first_segment if control else 1, control.checkpoint_lsn if control else 0
        )
        outcomes: Counter[str] = Counter()
        encrypted = 0
        readable = True
        for step in scan.steps():
            _count(step.place, outcomes)
            if step.behind or not readable or step.place.case not in _WHOLE:
                continue
            try:
                fold_step(state, step, self._key)
            except KeyMissingError:
                encrypted += 1
            except (CorruptLogError, UnsupportedFormatError) as error:
                scan.broken = True
                readable = False
                scan.findings.append(self._unreadable(error))
        if encrypted:
            message = (
                f"{encrypted} groups are encrypted and no key was given: "
                "only their envelopes were verified"
            )
            scan.findings.append(
                Finding("encrypted", Severity.WARNING, SYSTEM_NAME, self._source.path, message,
                        advice="Give the log's key")
            )  # fmt: skip
        scan.findings += [
            Finding("incomplete-transaction", Severity.LOSS, SYSTEM_NAME, self._source.path,
                    f"transaction {number} ended with elements missing: {holes}")
            for number, holes in state.incomplete.items()
        ]  # fmt: skip
        return state, scan, outcomes

    def _unreadable(self, error: TallystickError) -> Finding:
        file, offset = error.file, error.offset
        error.file = error.offset = None  # the finding has them beside its message
        return Finding(
            "unreadable-group", Severity.DAMAGE, SYSTEM_NAME, self._source.path, str(error),
            file=file, offset=offset,
        )  # fmt: skip

    def findings(self) -> Sequence[Finding]:
        return tuple(self._recovered[1].findings)

    def verdict(self) -> Verdict:
        state, scan, outcomes = self._recovered
        states: Counter[str] = Counter()
        in_doubt: list[str] = []
        for one in ended_first(self._source.path, self._work_records(), state.incomplete):
            states[one.state.value] += 1
            if one.state is State.PREPARED:
                in_doubt.append(one.key)
        engine = _engine(state, scan)
        strict = {
            "records": dict.fromkeys((one.value for one in Outcome), 0) | dict(outcomes),
            "transactions": dict(states),
            "in_doubt": in_doubt,
            "lost": [
                finding.to_dict() for finding in scan.findings if finding.severity is Severity.LOSS
            ],
            "findings": dict(Counter(finding.code for finding in scan.findings)),
        }
        differences = tuple(_differences(scan))
        return Verdict(SYSTEM_NAME, self._source.path, self.format, engine, strict, differences)

    # -- batches ------------------------------------------------------------------------

    def batches(
        self, split: Split | None = None, *, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        from tallystick.systems.tally.arrow import step_batches
        from tallystick.systems.tally.leaping import Leaper

        if split is None:
            steps = _believed(Scan(self.catalog, self._reach, leap=Leaper(rows)).steps())
        else:
            steps = split_steps(self.catalog, self._reach, split, Leaper(rows))
        return step_batches(self._source.path, steps, self._key, rows)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        return splits_of(self.catalog, self._reach, target_bytes)


_WHY = {
    Life.LIVE: "it holds records from its first to its last LSN",
    Life.FREED: "its number is below the first segment that the log keeps",
    Life.SPARE: "made ahead of need, or waiting to be recycled",
    Life.DAMAGED: "its header is damaged",
    Life.FOREIGN: "it belongs to another log",
}


def _count(place: Place, outcomes: Counter[str]) -> None:
    if place.header is None or place.case is Case.END:
        return
    if place.case in _WHOLE:
        outcomes[Outcome.VALID.value] += place.count
    elif place.end > place.offset:
        outcomes[place.case.value] += 1


def _engine(state: LogState, scan: Scan) -> dict[str, Any]:
    catalog = scan.catalog
    first = next((one.header.first_lsn for one in catalog.segments if one.header), None)
    return {
        "opened": not scan.broken,
        "first_lsn": first,
        "last_lsn": None if first is None else scan.next_lsn - 1,
        "segments": [one.header.number for one in catalog.segments if one.header],
        "live_records": len(state.live),
        "prepared": sorted(number for number, one in state.open.items() if one.ending),
        "open_decisions": {
            gtrid.hex(): sorted(one.resources) for gtrid, one in sorted(state.decisions.items())
        },
        "pending": {
            str(number): sorted(one.remaining) for number, one in sorted(state.pending.items())
        },
        "findings": dict(Counter(finding.code for finding in scan.findings)),
    }


def _differences(scan: Scan) -> Iterator[Difference]:
    """Recovery is strict, so the two part only where recovery refuses."""
    if not scan.broken:
        return
    for finding in scan.findings:
        if finding.severity in (Severity.DAMAGE, Severity.LOSS):
            yield Difference(
                finding.code,
                "refuses to open",
                finding.message,
                "Nothing is lost as long as the files stay as they are; a salvage would give up "
                "what this names",
                finding.severity,
                finding.file,
                finding.offset,
            )


def _believed(steps: Iterator[Step]) -> Iterator[Step]:
    for step in steps:
        if step.behind:
            return
        yield step
