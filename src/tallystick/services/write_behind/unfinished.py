"""What an earlier run left pending: under today's names, or refused with its numbers.

In: the pending entries of a log. Out: the same entries with targets renamed, the names that
nobody knows, and the error that a normal start ends with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tallystick.errors import IncompleteLogError
from tallystick.roles import PersistEntry, PersistLog

NUMBERS_SHOWN_MAX = 20


def leftovers(
    log: PersistLog, renamed: Mapping[str, str]
) -> Iterator[tuple[PersistEntry, frozenset[str]]]:
    """Pending entries by ascending number, with the targets that do not hold them."""
    for entry, targets in log.pending():
        names = frozenset(renamed.get(name, name) for name in targets)
        yield _rename(entry, renamed) if renamed else entry, names


def _rename(entry: PersistEntry, renamed: Mapping[str, str]) -> PersistEntry:
    operations = tuple(
        one if one.target is None else one._replace(target=renamed.get(one.target, one.target))
        for one in entry.operations
    )
    targets = tuple(dict.fromkeys(renamed.get(name, name) for name in entry.targets))
    return entry._replace(targets=targets, operations=operations)


def incomplete(path: str, numbers: Sequence[int]) -> IncompleteLogError:
    """The error that names pending transactions."""
    shown = ", ".join(map(str, numbers[:NUMBERS_SHOWN_MAX]))
    more = len(numbers) - NUMBERS_SHOWN_MAX
    return IncompleteLogError(
        f"{len(numbers)} transactions have not reached all of their targets: {shown}"
        + (f" and {more} more" if more > 0 else ""),
        file=path,
        advice="Open with on_incomplete='replay', or look with on_incomplete='hold' first",
    )


def unknown_targets(
    path: str, unknown: Collection[str], known: Collection[str]
) -> IncompleteLogError:
    """The error that names targets which pending transactions are for, and nobody gave."""
    return IncompleteLogError(
        f"pending transactions are for unknown targets: {', '.join(sorted(unknown))}",
        file=path,
        expected=", ".join(known),
        advice="Give these targets, map them with renamed=, or open with on_incomplete='hold' "
        "and discard the transactions",
    )
