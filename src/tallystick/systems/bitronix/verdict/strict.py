"""What the bytes of one journal prove, and the `Verdict` put together.

In: both files, what they prove, and the findings about them. Out: the engine's part in the oracle's
keys, the strict part, and the differences between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from tallystick.records import (
    Difference,
    Finding,
    Judgement,
    Severity,
    State,
    Verdict,
)
from tallystick.storage.source import logical_name
from tallystick.systems.answers import judgement_of
from tallystick.systems.bitronix.codes import CODES, REASONS
from tallystick.systems.bitronix.engine.opening import starts_of_lines
from tallystick.systems.bitronix.engine.report import dangling_json
from tallystick.systems.bitronix.format.layout import FORMAT_NAME, SYSTEM_NAME
from tallystick.systems.bitronix.read.files import DualFiles
from tallystick.systems.bitronix.read.transactions import state_of
from tallystick.systems.bitronix.runs.transactions import States, states_of
from tallystick.systems.bitronix.verdict.answer import grounds
from tallystick.systems.bitronix.verdict.differences import differences, lost_decisions
from tallystick.systems.bitronix.verdict.evidence import Evidence
from tallystick.systems.held_back import held_back

_LOOKED_FOR_MAX = 64
"""Most open decisions of which the oldest is told."""


def verdict(
    pair: DualFiles,
    log: str,
    evidence: Evidence,
    findings: Sequence[Finding],
    engine: Mapping[str, Any],
) -> Verdict:
    """Return the whole verdict; linear in the files."""
    found, answer = judged(pair, evidence, findings)
    strict = _strict(pair, evidence, findings, found)
    return Verdict(SYSTEM_NAME, log, FORMAT_NAME, engine, strict, found, answer)


def judged(
    pair: DualFiles, evidence: Evidence, findings: Sequence[Finding]
) -> tuple[tuple[Difference, ...], Judgement]:
    """Return the differences and the answer of `verdict`."""
    older, newer = starts_of_lines(pair.data, [part.alone for part in evidence.parts])
    every = differences(pair, evidence.decisions, older, evidence.unforced)
    found = tuple(one for one in every if not _was_closed(pair, evidence, one))
    holds = grounds(pair, evidence, found, (older.without, newer.without))
    return found, judgement_of(REASONS, CODES, holds, findings)


def _was_closed(pair: DualFiles, evidence: Evidence, one: Difference) -> bool:
    """Return whether a decision that looks open was closed where the earlier file is damaged."""
    earlier, later = (evidence.parts[part.number - 1] for part in pair.order())
    if earlier.whole or not later.whole:
        return False
    return any(map(pair.found_closed, lost_decisions([one])))


# -- the strict verdict ------------------------------------------------------------------------


def _strict(
    pair: DualFiles, evidence: Evidence, findings: Sequence[Finding], found: Iterable[Difference]
) -> dict[str, Any]:
    states = states_of(pair, evidence.decisions)
    return {
        "records": evidence.records(),
        "transactions": dict(states.counts),
        "in_doubt": list(_in_doubt(states, evidence)),
        "lost": [one.meaning for one in found if one.severity is Severity.LOSS],
        "findings": dict(Counter(one.code for one in findings)),
        "in_use": f"part{pair.order()[1].number}",
        "dangling": dangling_json(evidence.decisions),
    } | _held_back(pair, evidence)


def _held_back(pair: DualFiles, evidence: Evidence) -> dict[str, Any]:
    """Return the oldest open decision that a change of files has carried over.

    Each change copies it into the other file, until its branches are committed. Nothing is told of
    more open decisions than `_LOOKED_FOR_MAX`: each is looked for in both files.
    """
    if len(evidence.decisions) > _LOOKED_FOR_MAX:
        return {}
    order = pair.order()
    every = ((gtrid, [[*part.records_of(gtrid)] for part in order]) for gtrid in evidence.decisions)
    carried = [one for one in every if all(one[1])]
    if not carried:
        return {}
    gtrid, found = min(carried, key=lambda one: (one[1][0][0][1].time, one[0]))
    part, (offset, first) = order[0], found[0][0]
    sizes = [sum(len(one.encode()) for _, one in records) for records in found]
    since = ""
    if pair.counts_since_1970:
        with suppress(ValueError, OverflowError, OSError):  # a time that no calendar has
            since = datetime.fromtimestamp(first.time / 1000, UTC).isoformat(timespec="seconds")
    name = logical_name(part.path or "").rpartition("/")[2]
    return {"held_back": held_back(f"the decision {gtrid.hex()}", name, offset, sizes, since)}


def _in_doubt(states: States, evidence: Evidence) -> Iterator[dict[str, Any]]:
    for gtrid, one in states.unfinished.items():
        open_names = evidence.decisions.get(gtrid)
        state = state_of(one.status, is_open=open_names is not None)
        if state in (State.COMMITTING, State.UNDECIDED):
            yield {
                "gtrid": gtrid.hex().upper(),
                "state": state.value,
                "resources": list(one.names if open_names is None else open_names),
                "resolution": "rollback" if open_names is None else "commit",
            }
