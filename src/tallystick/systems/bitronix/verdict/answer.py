"""What a restart does to the decisions of a journal, and why that can be said.

In: both files, the differences between the engine and the bytes, and the start of each code line.
Out: the `Ground`s of the answer: of a start of 2.1.4, and where the journal counts since 1970 of
the 3.0 line too, for either may have written it. A record is forced before its transaction is told
to commit, and the position in the file header is written after the record: so a crash leaves whole
records up to the position, or one more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.records import AtStake, Difference, Severity
from tallystick.systems.answers import Ground
from tallystick.systems.bitronix.codes import (
    DO_NOT_FOLLOW,
    MADE_APART,
    OF_OTHER_TIME,
    OTHER_TIME,
)
from tallystick.systems.bitronix.engine.opening import Opening
from tallystick.systems.bitronix.format.layout import CLEAN_LOG_STATE, UNCLEAN_LOG_STATE
from tallystick.systems.bitronix.read.files import DualFiles
from tallystick.systems.bitronix.verdict.differences import is_about_one_of
from tallystick.systems.bitronix.verdict.evidence import Evidence

_PROOFS = {CLEAN_LOG_STATE: "closed-header", UNCLEAN_LOG_STATE: "unclean-header"}
"""By the state in the header of the later file."""


def grounds(
    pair: DualFiles,
    evidence: Evidence,
    found: Sequence[Difference],
    starts: tuple[Opening, Opening],
) -> Iterator[Ground]:
    """Yield what holds of the journal.

    Args:
        pair: both files.
        evidence: what they prove.
        found: the differences of 2.1.4 from the bytes.
        starts: the start of 2.1.4 and of the 3.0 line, with ``skipCorruptedLogs`` off.
    """
    open_decisions = len(evidence.decisions)
    if pair.counts_since_1970 and _differ(*starts):
        yield Ground("lines-differ", _difference(*starts), AtStake(open_decisions))
        return
    for one in found:
        if one.refuses:
            yield Ground("start-refused", one.meaning, AtStake(open_decisions))
    decisions = [one for one in found if one.what.startswith("decision")]
    grave = sorted(decisions, key=lambda one: one.severity is not Severity.LOSS)
    why = _of_other_time(pair)
    if decisions and why:
        # They may be those of another journal, or of a time at which they were open.
        yield Ground(OTHER_TIME, f"{why}. If both are whole: {grave[0].meaning}")
    elif not all(is_about_one_of(evidence.unforced, one) for one in decisions):
        yield Ground("decision-changed", grave[0].meaning, AtStake(len(decisions)))
    elif decisions and not evidence.ends_in_notes():
        yield Ground("decision-not-counted", decisions[0].meaning, AtStake(len(decisions)))
    elif any(one.what == "file in use" for one in found):
        yield Ground("older-file-in-use")
    if evidence.proves_its_end():
        yield from _proof(pair, why, ends_in_notes=evidence.ends_in_notes())


def _differ(older: Opening, newer: Opening) -> bool:
    """Return whether one code line starts and the other does not, or finds other decisions."""
    same_refusal = bool(older.refusal) == bool(newer.refusal)
    return not same_refusal or older.decisions != newer.decisions


def _difference(older: Opening, newer: Opening) -> str:
    """Return how the lines differ; empty for the words of the table."""
    if older.refusal and not newer.refusal:
        return f"The 3.0 line starts with this journal, 2.1.4 does not: {older.refusal}."
    if newer.refusal and not older.refusal:
        return f"2.1.4 starts with this journal, the 3.0 line does not: {newer.refusal}."
    return ""


def _of_other_time(pair: DualFiles) -> str:
    """Return what tells that the files are not of one time; empty if nothing does."""
    if pair.of_different_times():
        return OF_OTHER_TIME
    if pair.made_apart():
        return MADE_APART
    return DO_NOT_FOLLOW if pair.do_not_follow() else ""


def _proof(pair: DualFiles, why: str, *, ends_in_notes: bool) -> Iterator[Ground]:
    one, two = (part.header for part in pair.parts)
    later = pair.order()[1].header
    if one is None or two is None or later is None:
        return
    if one.timestamp == two.timestamp:
        yield Ground("same-time")
    elif why:
        yield Ground(OTHER_TIME, f"{why}.")
    elif later.state in _PROOFS:
        yield Ground("notes-not-counted" if ends_in_notes else _PROOFS[later.state])
