"""Judge a native log: what recovery makes of it, and what its bytes prove.

In: a scan of the log. Out: a `JudgedLog`: the state after recovery, transactions by state, spans,
findings, and the `Verdict`. Memory grows with what is open, and with the ids of live records where
the engine's part of the verdict is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tallystick.errors import CorruptLogError, TallystickError, UnsupportedFormatError
from tallystick.printable import counted
from tallystick.records import (
    Deferred,
    Difference,
    Finding,
    Judgement,
    Outcome,
    Severity,
    Span,
    State,
    Verdict,
)
from tallystick.storage.source import logical_name
from tallystick.systems.answers import Ground, judgement_of
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.held_back import held_back
from tallystick.systems.protocol import NotClosedInPartsError
from tallystick.systems.runs import RunCount
from tallystick.systems.tally.codes import CODES, REASONS, fatal
from tallystick.systems.tally.format.layout import SYSTEM_NAME
from tallystick.systems.tally.format.sealing import KeyMissingError, WrongKeyError
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.scan import Scan, Step
from tallystick.systems.tally.read.spans import add_place
from tallystick.systems.tally.read.state import numbers_of
from tallystick.systems.tally.runs.known import KnownPlace
from tallystick.systems.tally.runs.pieces import chunk_of
from tallystick.systems.tally.runs.state import JudgedState, apply_step
from tallystick.systems.tally.runs.transactions import States, records_with_work
from tallystick.systems.tally.verdict.answer import end_findings, grounds

if TYPE_CHECKING:
    from tallystick.systems.tally.runs.chunk import SortedChunk

HELD_MIN = 2
"""Segments, from which on something open holds old ones: the newest is in use anyway."""
_ENDED = (State.COMMITTED, State.COMMITTING, State.PREPARED, State.PENDING)
"""States of transactions whose outcome stands in the log."""


@dataclass(frozen=True)
class JudgedLog:
    """A log after one pass.

    Attributes:
        scan: the pass, with the findings.
        state: the state after recovery, up to the first damage.
        outcomes: number of records, those after damage included, and of groups that are not whole.
        states: the transactions before the first damage.
        spans: those of the places, by file.
        run_count: how many records of whole groups were read in runs.
    """

    scan: Scan
    state: JudgedState
    states: States
    outcomes: Counter[str] = field(default_factory=Counter)
    spans: dict[str, list[Span]] = field(default_factory=dict)
    run_count: RunCount = field(default_factory=RunCount)

    def verdict(self, log_format: str, live_ids: Callable[[], Collection[int]]) -> Verdict:
        """Put the verdict together; ``live_ids`` returns the ids of live records."""
        return Verdict(
            SYSTEM_NAME,
            self.scan.catalog.folder,
            log_format,
            Deferred(lambda: self._engine(live_ids())),
            self._strict(),
            tuple(self._differences()),
            self.judgement,
        )

    @cached_property
    def judgement(self) -> Judgement:
        """The answer."""
        return judgement_of(REASONS, CODES, self._grounds, self.scan.findings)

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """What is wrong with the log, heads of files first."""
        return (*self.scan.findings, *end_findings(self.scan, self._grounds))

    @cached_property
    def _grounds(self) -> Sequence[Ground]:
        ended = sum(self.states.by_state().get(one.value, 0) for one in _ENDED)
        return tuple(grounds(self.scan, ended))

    def _engine(self, live_ids: Collection[int]) -> dict[str, Any]:
        """Return what `TallyLog` does when it opens the log."""
        scan, state = self.scan, self.state
        headers = [one.header for one in scan.catalog.segments if one.header]
        return {
            "opened": not scan.broken,
            "first_lsn": headers[0].first_lsn if headers else None,
            "last_lsn": scan.next_lsn - 1 if headers else None,
            "segments": [header.number for header in headers],
            "live_records": len(live_ids),
            "prepared": sorted(number for number, one in state.open.items() if one.ending),
            "open_decisions": {
                gtrid.hex(): sorted(one.resources) for gtrid, one in sorted(state.decisions.items())
            },
            "pending": {
                str(number): sorted(one.remaining) for number, one in sorted(state.pending.items())
            },
            "findings": self._findings(),
        }

    def _strict(self) -> dict[str, Any]:
        """Return what the bytes prove."""
        return {
            "records": dict.fromkeys((one.value for one in Outcome), 0) | dict(self.outcomes),
            "transactions": self.states.by_state(),
            "in_doubt": self.states.in_doubt(),
            "lost": [one.to_dict() for one in self.scan.findings if one.severity is Severity.LOSS],
            "findings": self._findings(),
        } | self._held_back()

    def _held_back(self) -> dict[str, Any]:
        """Return what the oldest that is open holds: all segments from that of its begin on."""
        state = self.state
        begins = [
            *((one.first_segment, f"transaction {key}") for key, one in state.open.items()),
            *((one.segment, f"the decision {key.hex()}") for key, one in state.decisions.items()),
            *((one.segment, f"the entry {key}") for key, one in state.pending.items()),
        ]
        heads = [one for one in self.scan.catalog.segments if one.header]
        oldest, name = min(begins, default=(0, ""))
        held = [one for one in heads if one.header and one.header.number >= oldest]
        if not name or len(held) < HELD_MIN:
            return {}
        sizes = [one.header.size for one in held if one.header]
        file = logical_name(held[0].path).rpartition("/")[2]
        return {"held_back": held_back(name, file, None, sizes)}

    def _differences(self) -> Iterator[Difference]:
        """Yield one difference per loss: recovery is strict, so they differ where it refuses."""
        if not self.scan.broken:
            return
        for finding in fatal(self.scan.findings):
            yield Difference(
                finding.code,
                "refuses to open",
                finding.message,
                "Opening it changes nothing; a salvage would give up what this names",
                finding.severity,
                finding.file,
                finding.offset,
                refuses=True,
            )

    def _findings(self) -> dict[str, int]:
        return dict(Counter(finding.code for finding in self.scan.findings))


def live_ids(scan: Scan, key: bytes | None) -> Collection[int]:
    """Walk the whole log once more; return the ids of the records that recovery finds live."""
    state = JudgedState.before(scan.catalog.control)
    state.live_ids = set()
    _judge(scan, key, state)
    return state.live_ids


def judge(scan: Scan, key: bytes | None) -> JudgedLog:
    """Walk the whole log; add to the findings of ``scan`` those that the records give."""
    return _judge(scan, key, JudgedState.before(scan.catalog.control))


def judge_known(scan: Scan) -> JudgedLog:
    """Return findings, spans and the answer of a log of which splits have read every group.

    Raises:
        NotClosedInPartsError: groups came since, or something is wrong: the log has to be read.
    """
    log = JudgedLog(scan, JudgedState(), States(scan.catalog.folder, {}))
    clear = 0
    for step in scan.steps():
        if step.place.case.whole and not isinstance(step.place, KnownPlace):
            raise NotClosedInPartsError("groups that no split has read", file=step.file.path)
        _count(step, log)
        clear += step.place.count_in_clear if step.place.case.whole else 0
    if scan.broken:
        raise NotClosedInPartsError("the log is damaged", file=scan.catalog.folder)
    scan.findings += _in_clear(scan, clear, log.outcomes[Outcome.VALID.value])
    return log


def _in_clear(scan: Scan, clear: int, count: int) -> Iterator[Finding]:
    if 0 < clear < count:
        message = f"{counted(clear, 'record')} of an encrypted log are in clear text"
        yield scan.catalog.finding("clear-text", message)


def _judge(scan: Scan, key: bytes | None, state: JudgedState) -> JudgedLog:
    log = JudgedLog(scan, state, States(scan.catalog.folder, state.incomplete))
    finding = scan.catalog.finding
    encrypted = clear = 0
    readable = True
    for step in scan.steps():
        _count(step, log)
        if step.place.case.whole:
            clear += step.place.count_in_clear
        if step.after_damage:
            continue
        try:
            _apply(step, key, log, recovered=readable)
        except KeyMissingError:
            encrypted += 1
        except (CorruptLogError, UnsupportedFormatError) as error:
            scan.broken = True
            readable = False
            scan.findings.append(_unreadable(finding, error))
    if encrypted:
        message = (
            f"{counted(encrypted, 'encrypted group')} and no key was given: "
            "only their envelopes were verified"
        )
        scan.findings.append(finding("encrypted", message))
    scan.findings += _in_clear(scan, clear, log.outcomes[Outcome.VALID.value])
    scan.findings += [
        finding(
            "incomplete-transaction", f"transaction {number} ended with elements missing: {holes}"
        )
        for number, holes in state.incomplete.values()
    ]
    return log


def _apply(step: Step, key: bytes | None, log: JudgedLog, *, recovered: bool) -> None:
    """Apply a step to the transactions, and where recovery gets to it to the state.

    Raises:
        CorruptLogError: a group cannot be decoded; names its place.
        UnsupportedFormatError: a group is of a later version, or its key is missing.
    """
    state, segment = log.state, step.view.header.number
    chunk, work = chunk_of(step.place), None
    try:
        if chunk is not None:
            begun = log.states.open | state.open.keys() | numbers_of(state.incomplete)
            work = chunk.sorted(segment, begun)
            if recovered:
                state.apply_chunk(work, step.file.path)
        elif recovered and step.place.case.whole:
            apply_step(state, step, key)
    except KeyMissingError:
        raise  # nothing of the group can be read
    except (CorruptLogError, UnsupportedFormatError):
        _follow(step, key, log.states, work)
        raise
    _follow(step, key, log.states, work)


def _follow(step: Step, key: bytes | None, states: States, work: SortedChunk | None) -> None:
    """Apply a step to the transactions: after the state, which finds what lacks records."""
    if work is None:
        states.take(records_with_work(step, key))
    else:
        states.commit(len(work.ends))
        states.take(work.other_records(step.file.path))


def _count(step: Step, log: JudgedLog) -> None:
    place = step.place
    add_place(log.spans.setdefault(step.file.path, []), place)
    if place.is_hole:
        log.outcomes[Outcome.CORRUPT.value] += 1
    elif place.header is None or place.case is Case.END:
        return
    elif place.case.whole:
        log.outcomes[Outcome.VALID.value] += place.count
        if chunk_of(place) is None:
            log.run_count.one_by_one += place.count
        else:
            log.run_count.in_runs += place.count
    elif place.end > place.offset:
        log.outcomes[place.case.value] += 1


def _unreadable(finding: FindingBuilder, error: TallystickError) -> Finding:
    file, offset = error.file, error.offset
    error.file = error.offset = None  # the finding has them beside its message
    if isinstance(error, WrongKeyError):
        return finding("wrong-key", str(error), file=file, offset=offset)
    return finding("unreadable-group", str(error), file=file, offset=offset)
