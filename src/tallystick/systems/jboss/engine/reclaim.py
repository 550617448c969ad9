"""Which files of a journal may go, by the journal's own reclaiming: section 4.2 of the format.

In: the strict reading of a journal, with its books. Out: for every file whether the next load
would use it again or delete it, and why.

A damaged record counts as one that nothing has deleted, and a record that the loader drops counts
as what it is: a file is not called redundant for what was lost in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.systems.jboss.live.reclaim import Account, covering
from tallystick.systems.jboss.read.analysis import Analysis

FREE = "holds no record of this life"
CURRENT = "the last file with records, in which the journal goes on"
SPENT = "what it holds was deleted or ended, and nothing that it ends is left in older files"
HOLDS = "holds what counts, or what was deleted only in the last file"
NOT_LOADED = "the journal's own loader gives up on it"
PINNED = "ends what an older file still holds"


def redundancy(analysis: Analysis, refused: str) -> list[tuple[bool | None, str]]:
    """Whether each file of ``analysis.readings`` may go, and why, in their order.

    Null where a load ends with the error ``refused``: nothing is reclaimed then.
    """
    if refused:
        return [(None, NOT_LOADED)] * len(analysis.accounts)
    holding = [
        account
        for account, reading in zip(analysis.accounts, analysis.readings, strict=True)
        if account.positives or any(map(reading.belongs, reading.judged))
    ]
    last, data = holding[-1:], holding[:-1]
    going = analysis.books.reclaimable(data)
    return [_judged(account, last, data, going) for account in analysis.accounts]


def _judged(
    account: Account, last: Sequence[Account], data: Sequence[Account], going: Sequence[Account]
) -> tuple[bool, str]:
    if account in last:
        return False, CURRENT
    if account not in data:
        return True, FREE
    if account in going:
        return True, SPENT
    return False, HOLDS if covering(account, data) < account.positives else PINNED
