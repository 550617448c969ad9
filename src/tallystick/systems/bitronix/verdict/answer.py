"""What a restart of 2.1.4 does to the decisions of a journal, and why that can be said.

In: both files and the differences between the engine and the bytes. Out: the `Ground`s of the
answer. A record is forced before its transaction is told to commit, and the position in the file
header is written after the record: so a crash leaves whole records up to the position, or one more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.records import AtStake, Difference, Outcome, Severity
from tallystick.systems.answers import Ground
from tallystick.systems.bitronix.format.layout import CLEAN_LOG_STATE, UNCLEAN_LOG_STATE
from tallystick.systems.bitronix.read.files import DualFiles

_PROOFS = {CLEAN_LOG_STATE: "closed-header", UNCLEAN_LOG_STATE: "unclean-header"}
"""By the state in the header of the later file."""


def grounds(pair: DualFiles, found: Sequence[Difference], open_decisions: int) -> Iterator[Ground]:
    """Yield what holds of the journal; ``open_decisions`` is their number by the bytes."""
    for one in found:
        if one.refuses:
            yield Ground("start-refused", one.meaning, AtStake(open_decisions))
    decisions = [one for one in found if one.what.startswith("decision")]
    if decisions:
        grave = sorted(decisions, key=lambda one: one.severity is not Severity.LOSS)
        yield Ground("decision-changed", grave[0].meaning, AtStake(len(decisions)))
    elif any(one.what == "file in use" for one in found):
        yield Ground("older-file-in-use")
    yield from _proof(pair)


def _proof(pair: DualFiles) -> Iterator[Ground]:
    if any(part.header is None for part in pair.parts):
        return
    for part in pair.parts:
        for span in part.counted_spans():
            if span.outcome is not Outcome.VALID or not span.counted:
                return
    if any(span.record is not None and not span.counted for _, span in pair.records()):
        return
    one, two = (part.header for part in pair.parts)
    later = pair.order()[1].header
    assert one is not None  # looked at above
    assert two is not None
    assert later is not None
    if one.timestamp == two.timestamp:
        yield Ground("same-time")
    elif later.state in _PROOFS:
        yield Ground(_PROOFS[later.state])
