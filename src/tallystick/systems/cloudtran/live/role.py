"""The block log as a persist log: the role that write-behind is written against.

In: transactions with named targets. Out: entries of a `BlockLog`, and back.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tallystick.arguments import texts
from tallystick.errors import LogWriteError
from tallystick.records import Judgement
from tallystick.roles import Operation, OperationCode, PersistEntry, Role, Ticket
from tallystick.storage.files import FileSystem
from tallystick.storage.fork import Uncopied
from tallystick.storage.local import LOCAL
from tallystick.storage.source import logical_name
from tallystick.systems.cloudtran.format import entries
from tallystick.systems.cloudtran.format.file_names import parse_name
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.cloudtran.reader import CloudtranReading
from tallystick.systems.protocol import LogReading

_KINDS = {
    OperationCode.OPAQUE: entries.OperationKind.OPAQUE,
    OperationCode.INSERT: entries.OperationKind.INSERT,
    OperationCode.UPDATE: entries.OperationKind.UPDATE,
    OperationCode.DELETE: entries.OperationKind.DELETE,
}
_CODES = {kind: code for code, kind in _KINDS.items()}


def reopen(
    folder: str, _role: Role, like: LogReading | None, _key: bytes | None, _content: Any, *,
    force: bool,
) -> CloudtranPersistLog:  # fmt: skip
    """Open the log in ``folder``; see `tallystick.systems.protocol.System.reopener`."""
    settings = LogSettings(on_damage="report" if force else "stop")
    if isinstance(like, CloudtranReading):
        form = like.block_format
        names = [parse_name(logical_name(path)) for path in like.source.files]
        found = next((name for name in names if name is not None), None)
        settings = replace(
            settings,
            disk_block_size=form.block_size,
            signature=form.signature,
            max_transaction_size=form.unpacked_max,
            max_write_size=max(settings.max_write_size, 4 * form.block_size),
            file_base_name=found.base if found else settings.file_base_name,
            file_extension=found.extension if found else settings.file_extension,
        )
    return CloudtranPersistLog(folder, settings=settings)


class CloudtranPersistLog(Uncopied):
    """Implements `tallystick.roles.PersistLog` on a `BlockLog`.

    It opens with pending transactions for any ``settings.on_incomplete``, and leaves files to its
    caller: `disposable`, `disposed`. Raises what opening a `BlockLog` raises.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        settings: LogSettings | None = None,
        fs: FileSystem = LOCAL,
    ) -> None:
        chosen = replace(settings or LogSettings(), on_incomplete="replay")
        self._log = BlockLog(os.fspath(path), chosen, fs=fs, disposer=None)

    @property
    def identity(self) -> None:
        """None: the format has no field for one."""

    @property
    def judgement(self) -> Judgement:
        """The answer about the log as its opening found it."""
        return self._log.judgement

    @property
    def last_number(self) -> int:
        """The greatest number that any transaction ever got, or may have got; 0 if none did."""
        return self._log.last_number

    def persisting(
        self, targets: Sequence[str], operations: Iterable[Operation], reference: str = ""
    ) -> tuple[int, Ticket]:
        """Record a transaction; return its number and a ticket for its durability."""
        targets = texts(targets, "targets", entries.TARGETS_MAX)
        names = {target: index for index, target in enumerate(targets)}
        return self._log.persisting(
            targets, [_block_operation(one, names) for one in operations], reference
        )

    def persisted(self, number: int, targets: Collection[str]) -> None:
        """Record, without forcing, that these targets hold the transaction."""
        self._log.persisted(number, targets)

    def persisted_all(self, numbers: Sequence[int], targets: Collection[str]) -> None:
        """Record what `persisted` does for each of these transactions."""
        self._log.persisted_all(numbers, targets)

    def lowest_pending(self) -> int | None:
        """Return the smallest number that is pending in what is durable; None if none is."""
        return self._log.lowest_pending()

    def discard(self, number: int) -> Ticket:
        """Record durably that an operator gave the transaction up."""
        return self._log.discard(number)

    def pending(self) -> Iterator[tuple[PersistEntry, frozenset[str]]]:
        """Yield transactions by ascending number with the targets that do not hold them yet."""
        for entry, targets in self._log.pending():
            yield _persist_entry(entry), targets

    def sync(self) -> Ticket:
        """Return a ticket that is done once everything recorded so far is durable."""
        return self._log.sync()

    def disposable(self) -> Sequence[str]:
        """Return removable files, oldest first."""
        return self._log.disposable()

    def disposed(self, path: str) -> None:
        """Forget a file that was taken out of the folder, durably."""
        self._log.disposed(path)

    def require_in_place(self) -> None:
        """Check that the path still leads to the log; see `Placed.require_in_place`."""
        self._log.require_in_place()

    def close(self) -> None:
        """Flush and close the log."""
        self._log.close()


def _block_operation(one: Operation, names: dict[str, int]) -> entries.Operation:
    if one.target is not None and one.target not in names:
        raise LogWriteError(f"an operation is for {one.target!r}, which is no target of it")
    if one.code not in _KINDS:
        raise ValueError("an operation of a kind that is none")
    target = None if one.target is None else names[one.target]
    return entries.Operation(target, _KINDS[one.code], one.collection, one.key, one.value)


def _persist_entry(entry: entries.Entry) -> PersistEntry:
    operations = tuple(
        Operation(
            _CODES[one.kind],
            one.collection,
            one.key,
            one.value,
            None if one.target is None else entry.targets[one.target],
        )
        for one in entry.operations
    )
    return PersistEntry(entry.number, entry.targets, operations, entry.reference, entry.time)
