"""What a load does with the records of a journal, and why that can be said.

In: an `Evidence`. Out: the `Ground`s of the answer. Records are appended end to end to files that
were filled before, and acknowledged after a sync.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import AtStake, Severity
from tallystick.systems.answers import Ground
from tallystick.systems.jboss.verdict.differences import Evidence, differences


def grounds(evidence: Evidence) -> Iterator[Ground]:
    """Yield what holds of the journal."""
    found = list(differences(evidence))
    for one in found:
        if one.refuses:
            yield Ground("load-refused", f"{one.meaning} The loader {one.engine}.")
    losses = [one for one in found if one.severity is Severity.LOSS]
    if losses:
        partial = sum(one.what == "partial-transaction" for one in losses)
        dropped = evidence.analysis.dropped
        numbers = {one.item.transaction for one in dropped} - {None}
        stake = AtStake((partial + len(numbers)) or None, len(dropped) or None)
        yield Ground("records-lost", losses[0].meaning, stake)
    if orphans := evidence.analysis.orphan_updates:
        yield Ground("file-missing", at_stake=AtStake(None, len(orphans)))
    if evidence.analysis.readings:
        yield Ground("records-end")
