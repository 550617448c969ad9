"""Decide which files of a journal its own reclaiming would free, by `read.reclaim_counts`.

In: the strict reading of a journal, with its counts. Out: for every file whether the next load
would reuse or delete it, and why.

A damaged record counts as one that nothing has deleted, and a record that the loader drops counts
like any other: a file is not called redundant for what was lost in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.systems.jboss.read.analysis import Analysis
from tallystick.systems.jboss.read.reclaim_counts import FileCounts, covering, reclaimable

FREE = "holds no record of this life"
CURRENT = "the last file with records, in which the journal goes on"
SPENT = "what it holds was deleted or ended, and nothing that it ends is left in older files"
HOLDS = "holds what counts, or what was deleted only in the last file"
NOT_LOADED = "the journal's own loader gives up on it"
PINNED = "ends what an older file still holds"


def redundancy(analysis: Analysis, refused: str) -> list[tuple[bool | None, str]]:
    """Return for each file of ``analysis.readings`` whether it may go, and why.

    None where a load ends with the error ``refused``: then nothing is reclaimed.
    """
    if refused:
        return [(None, NOT_LOADED)] * len(analysis.file_counts)
    holding = [
        file
        for file, reading in zip(analysis.file_counts, analysis.readings, strict=True)
        if file.positives or reading.has_records
    ]
    # The current file is never reclaimed, whatever it holds.
    last, data = holding[-1:], holding[:-1]
    going = reclaimable(data)
    return [_redundancy(file, last, data, going) for file in analysis.file_counts]


def _redundancy(
    file: FileCounts,
    last: Sequence[FileCounts],
    data: Sequence[FileCounts],
    going: Sequence[FileCounts],
) -> tuple[bool, str]:
    if file in last:
        return False, CURRENT
    if file not in data:
        return True, FREE
    if file in going:
        return True, SPENT
    return False, HOLDS if covering(file, data) < file.positives else PINNED
