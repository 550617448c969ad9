"""A store's transaction that is a branch of a global one is ended by that one alone.

In: whether it is one. Out: an error for an application that would end or prepare it by itself: what
it committed would stay, whatever becomes of the other branches.
"""

from __future__ import annotations

from tallystick.errors import TransactionUsageError


def refuse_in_branch(in_branch: bool) -> None:
    """Raise `TransactionUsageError` for a branch."""
    if in_branch:
        raise TransactionUsageError(
            "this is a branch of a transaction of a manager, which ends it",
            advice="Use the handle as it is, without a block; commit or roll back that transaction",
        )
