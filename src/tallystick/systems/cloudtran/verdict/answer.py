"""What a start does with a block log, and why that can be said.

In: the `LogAnalysis` of the files. Out: the `Ground`s of the answer. A block is one write, synced
before it is acknowledged; a file that was left in order ends in a closing block.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.records import AtStake
from tallystick.storage.files import SECTOR
from tallystick.systems.answers import Ground
from tallystick.systems.cloudtran.runs.analysis import LogAnalysis
from tallystick.systems.cloudtran.verdict.findings import loss_text, lost_numbers

_COUNT_LIMIT = 1 << 63
"""More transactions than any log holds: a damaged number stands far from the others."""


def grounds(analysis: LogAnalysis) -> Iterator[Ground]:
    """Yield what holds of the log."""
    if analysis.losses:
        first = analysis.losses[0]
        count = sum(numbers.stop - numbers.start for numbers in lost_numbers(analysis))
        text = f"{first.name}, offset {first.offset}: {loss_text(first, first.blocks or 'some')}"
        yield Ground("start-stops", text, AtStake(count if 0 < count < _COUNT_LIMIT else None))
    if analysis.mark_damaged:
        yield Ground("mark-damaged")
    if analysis.other_file:
        yield Ground("other-file")
    if analysis.odd_tail:
        yield Ground("odd-tail")
    elif analysis.ends_closed:
        yield Ground("closing-block")
    elif analysis.size % SECTOR:
        yield Ground("odd-size")
    elif analysis.files:
        yield Ground("last-block-whole")
