"""The block log as a persist log: the role that write-behind is written against."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tallystick.errors import LogWriteError
from tallystick.roles import Operation, OperationCode, PersistEntry, Ticket
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL
from tallystick.systems.cloudtran.format import entries
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings

_KINDS = {
    OperationCode.OPAQUE: entries.OperationKind.OPAQUE,
    OperationCode.INSERT: entries.OperationKind.INSERT,
    OperationCode.UPDATE: entries.OperationKind.UPDATE,
    OperationCode.DELETE: entries.OperationKind.DELETE,
}
_CODES = {kind: code for code, kind in _KINDS.items()}


class CloudtranPersistLog:
    """`tallystick.roles.PersistLog` on a `BlockLog`.

    It opens with pending transactions, whatever ``settings.on_incomplete`` says, and leaves
    files to its caller: `disposable`, `disposed`. Raises what opening a `BlockLog` raises.
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
        """The format has no place for one."""

    @property
    def last_number(self) -> int:
        return self._log.last_number

    def persisting(
        self, targets: Sequence[str], operations: Iterable[Operation], reference: str = ""
    ) -> tuple[int, Ticket]:
        names = {target: index for index, target in enumerate(targets)}
        return self._log.persisting(
            targets, [_block_operation(one, names) for one in operations], reference
        )

    def persisted(self, number: int, targets: Collection[str]) -> None:
        self._log.persisted(number, targets)

    def persisted_all(self, numbers: Sequence[int], targets: Collection[str]) -> None:
        self._log.persisted_all(numbers, targets)

    def lowest_pending(self) -> int | None:
        return self._log.lowest_pending()

    def discard(self, number: int) -> Ticket:
        return self._log.discard(number)

    def pending(self) -> Iterator[tuple[PersistEntry, frozenset[str]]]:
        for entry, targets in self._log.pending():
            yield _persist_entry(entry), targets

    def sync(self) -> Ticket:
        return self._log.sync()

    def disposable(self) -> Sequence[str]:
        return self._log.disposable()

    def disposed(self, path: str) -> None:
        self._log.disposed(path)

    def close(self) -> None:
        self._log.close()


def _block_operation(one: Operation, names: dict[str, int]) -> entries.Operation:
    if one.target is not None and one.target not in names:
        raise LogWriteError(f"an operation is for {one.target!r}, which is no target of it")
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
