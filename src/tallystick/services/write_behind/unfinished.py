"""Transactions that an earlier run left pending, and the errors for them.

In: the pending entries of a log. Out: the same entries with targets renamed; the error that a
normal start raises, and the one for targets that the service does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tallystick.errors import IncompleteLogError
from tallystick.roles import PersistEntry, PersistLog
from tallystick.roles.persist_log import pending_text


def unfinished(
    log: PersistLog, renamed: Mapping[str, str]
) -> Iterator[tuple[PersistEntry, frozenset[str]]]:
    """Yield pending entries by ascending number, with the targets they wait for."""
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
    """Make the error that names pending transactions."""
    advice = "Open with on_incomplete='replay', or look with on_incomplete='hold' first"
    return IncompleteLogError(pending_text(numbers), file=path, advice=advice)


def unknown_targets(
    path: str, unknown: Collection[str], known: Collection[str]
) -> IncompleteLogError:
    """Make the error that names targets of pending transactions that were not given."""
    return IncompleteLogError(
        f"pending transactions are for unknown targets: {', '.join(sorted(unknown))}",
        file=path,
        expected=", ".join(known),
        advice="Give these targets, map them with renamed=, or open with on_incomplete='hold' "
        "and discard the transactions",
    )
