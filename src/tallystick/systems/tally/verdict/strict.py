"""Judge a native log: what recovery makes of it, and what its bytes prove.

In: a scan of the log, and its transactions. Out: a `JudgedLog`: the state after recovery, the
findings, and the `Verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tallystick.errors import CorruptLogError, TallystickError, UnsupportedFormatError
from tallystick.printable import counted
from tallystick.records import (
    Difference,
    Finding,
    Judgement,
    Outcome,
    Severity,
    State,
    Transaction,
    Verdict,
)
from tallystick.storage.source import logical_name
from tallystick.systems.answers import judgement_of
from tallystick.systems.findings import FindingBuilder
from tallystick.systems.held_back import held_back
from tallystick.systems.tally.codes import CODES, REASONS, fatal
from tallystick.systems.tally.format.layout import SYSTEM_NAME
from tallystick.systems.tally.format.sealing import KeyMissingError, WrongKeyError
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.scan import Scan
from tallystick.systems.tally.read.state import LogState, apply_step, apply_unsettled, state_of
from tallystick.systems.tally.read.walk import Place
from tallystick.systems.tally.verdict.answer import grounds

HELD_MIN = 2
"""Segments, from which on something open holds old ones: the newest is in use anyway."""
_ENDED = (State.COMMITTED, State.COMMITTING, State.PREPARED, State.PENDING)
"""States of transactions whose outcome stands in the log."""


@dataclass(frozen=True, slots=True)
class JudgedLog:
    """A log after one pass.

    Attributes:
        scan: the pass, with the findings.
        state: the state after recovery, up to the first damage.
        outcomes: number of records, those after damage included, and of groups that are not whole.
    """

    scan: Scan
    state: LogState
    outcomes: Counter[str]

    def verdict(self, log_format: str, transactions: Iterable[Transaction]) -> Verdict:
        """Put the verdict together."""
        strict = self._strict(transactions)
        return Verdict(
            SYSTEM_NAME,
            self.scan.catalog.folder,
            log_format,
            self._engine(),
            strict,
            tuple(self._differences()),
            self.judgement(sum(strict["transactions"].get(one.value, 0) for one in _ENDED)),
        )

    def judgement(self, ended: int | None = None) -> Judgement:
        """Return the answer; ``ended`` is the number of transactions with an outcome, if known."""
        return judgement_of(REASONS, CODES, grounds(self.scan, ended), self.scan.findings)

    def _engine(self) -> dict[str, Any]:
        """Return what `TallyLog` does when it opens the log."""
        scan, state = self.scan, self.state
        headers = [one.header for one in scan.catalog.segments if one.header]
        return {
            "opened": not scan.broken,
            "first_lsn": headers[0].first_lsn if headers else None,
            "last_lsn": scan.next_lsn - 1 if headers else None,
            "segments": [header.number for header in headers],
            "live_records": len(state.live),
            "prepared": sorted(number for number, one in state.open.items() if one.ending),
            "open_decisions": {
                gtrid.hex(): sorted(one.resources) for gtrid, one in sorted(state.decisions.items())
            },
            "pending": {
                str(number): sorted(one.remaining) for number, one in sorted(state.pending.items())
            },
            "findings": self._findings(),
        }

    def _strict(self, transactions: Iterable[Transaction]) -> dict[str, Any]:
        """Return what the bytes prove."""
        states: Counter[str] = Counter()
        in_doubt: list[str] = []
        for one in transactions:
            states[one.state.value] += 1
            if one.state is State.PREPARED:
                in_doubt.append(one.key)
        return {
            "records": dict.fromkeys((one.value for one in Outcome), 0) | dict(self.outcomes),
            "transactions": dict(states),
            "in_doubt": in_doubt,
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


def judge(scan: Scan, key: bytes | None, *, live: bool = True) -> JudgedLog:
    """Walk the whole log; add to the findings of ``scan`` those that the records give.

    Without ``live`` the state lacks live records, and what whole transactions leave behind.
    """
    apply = apply_step if live else apply_unsettled
    state = state_of(scan.catalog.control)
    outcomes: Counter[str] = Counter()
    finding = scan.catalog.finding
    encrypted = clear = 0
    readable = True
    for step in scan.steps():
        _count(step.place, outcomes)
        if step.place.case.whole:
            clear += step.place.count_in_clear
        if step.after_damage or not readable or not step.place.case.whole:
            continue
        try:
            apply(state, step, key)
        except KeyMissingError:
            encrypted += 1
        except (CorruptLogError, UnsupportedFormatError) as error:
            scan.broken = True
            readable = False
            scan.findings.append(_unreadable(finding, error))
    if encrypted:
        message = (
            f"{encrypted} groups are encrypted and no key was given: "
            "only their envelopes were verified"
        )
        scan.findings.append(finding("encrypted", message))
    if 0 < clear < outcomes[Outcome.VALID.value]:
        message = f"{counted(clear, 'record')} of an encrypted log are in clear text"
        scan.findings.append(finding("clear-text", message))
    scan.findings += [
        finding(
            "incomplete-transaction", f"transaction {number} ended with elements missing: {holes}"
        )
        for number, holes in state.incomplete.items()
    ]
    return JudgedLog(scan, state, outcomes)


def _count(place: Place, outcomes: Counter[str]) -> None:
    if place.header is None or place.case is Case.END:
        return
    if place.case.whole:
        outcomes[Outcome.VALID.value] += place.count
    elif place.end > place.offset:
        outcomes[place.case.value] += 1


def _unreadable(finding: FindingBuilder, error: TallystickError) -> Finding:
    file, offset = error.file, error.offset
    error.file = error.offset = None  # the finding has them beside its message
    if isinstance(error, WrongKeyError):
        return finding("wrong-key", str(error), file=file, offset=offset)
    return finding("unreadable-group", str(error), file=file, offset=offset)
