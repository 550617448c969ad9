"""Whether tables and their indexes have the same rows after a boot.

In: the containers of a database, and what redo does to their rows. Out: a `Part` where two of one
table have not as many, or where an index leads to others, which is looked at only where redo
changes neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tallystick.printable import counted
from tallystick.records import Answer, Part
from tallystick.storage.source import logical_name
from tallystick.systems.derby.engine.page_files import PageFile
from tallystick.systems.derby.engine.rows_after import RowsAfter
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.layout import SEGMENT
from tallystick.systems.derby.read.containers import Conglomerate

_PLACES_MAX = 1 << 14
"""Rows of a table and its indexes of which the places are compared: that takes time."""


class _Count(NamedTuple):
    """The rows of a container after a boot, at least and at most; ``stored`` of its file."""

    least: int
    most: int
    stored: int


class RowCounts:
    """Counts the rows of tables and indexes.

    Args:
        listed: them, by number.
        paths: their files.
        cipher: with which pages are encrypted.
        redone: the pages that redo changes, by container, and how many versions it adds.
        after: what redo and undo do to their rows; None if it was not followed.
    """

    def __init__(
        self,
        listed: Mapping[int, Conglomerate],
        paths: Mapping[int, str],
        cipher: LogCipher | None,
        redone: Mapping[int, Mapping[int, int]],
        after: RowsAfter | None,
    ) -> None:
        self._listed, self._paths, self._cipher = listed, paths, cipher
        self._redone, self._after = redone, after

    def different(self, changed: Collection[int], odd: Collection[int]) -> Iterator[Part]:
        """Yield a container that has other rows than its table, or than an index of it.

        Args:
            changed: containers that are made or dropped: they are left out, with their tables.
            odd: those of which redo or undo may add more rows than versions. They are left out
                where it is not known how many.
        """
        tables: dict[bytes, list[Conglomerate]] = {}
        for one in self._listed.values():
            tables.setdefault(one.table_id, []).append(one)
        for group in tables.values():
            numbers = {one.number for one in group}
            if len(group) < 2 or not numbers <= self._paths.keys() or numbers & {*changed}:
                continue
            counts = {one: self._count(one, odd) for one in group}
            known = {one: count for one, count in counts.items() if count is not None}
            if len(known) < len(group):
                continue
            one = min(known, key=lambda at: known[at].most)
            other = max(known, key=lambda at: known[at].least)
            if known[one].most < known[other].least:
                yield self._part(one, other, known)
                return
            few = sum(one.stored for one in known.values()) <= _PLACES_MAX
            if few and numbers.isdisjoint((*odd, *self._redone)):
                part = self._leading_elsewhere(group)
                if part is not None:
                    yield part

    def _leading_elsewhere(self, group: Sequence[Conglomerate]) -> Part | None:
        """Return the first index that does not lead to the rows of its table, which redo leaves."""
        places = [(one, self._places(one)) for one in group]
        known = [(one, found) for one, found in places if found is not None]
        for table, rows in known:
            for index, leads in known:
                if not table.is_table or index.is_table or rows == leads:
                    continue
                path = self._paths[index.number]
                part = f"{SEGMENT}/{logical_name(path)}"
                why = f"{part} has other rows than {logical_name(self._paths[table.number])}, of "
                why += "the same table: they are of different times or databases."
                answer = Answer.CANNOT_TELL
                return Part(part, path, "the catalogue", fits=False, why=why, answer=answer)
        return None

    def _places(self, one: Conglomerate) -> frozenset[bytes] | None:
        file = PageFile(self._paths[one.number], self._cipher)
        return file.places(is_index=not one.is_table)

    def _count(self, one: Conglomerate, odd: Collection[int]) -> _Count | None:
        stored = PageFile(self._paths[one.number], self._cipher).rows(is_index=not one.is_table)
        versions = sum(self._redone.get(one.number, {}).values())
        added = None if self._after is None else self._after.added(one.number)
        if stored < 0 or (added is None and one.number in odd):
            return None
        if added is not None:
            return _Count(stored + added, stored + added, stored)
        # Redo adds or takes a row with a version of its page at most.
        return _Count(stored - versions, stored + versions, stored)

    def _part(
        self, one: Conglomerate, other: Conglomerate, known: Mapping[Conglomerate, _Count]
    ) -> Part:
        path = self._paths[one.number]
        part = f"{SEGMENT}/{logical_name(path)}"
        other_path = logical_name(self._paths[other.number])
        why = f"{part} has {counted(known[one].stored, 'row')}, and {other_path}, of the same "
        why += f"table, has {known[other].stored:,}"
        if known[one].stored >= known[other].stored:
            why += f"; after redo {known[one].most:,} and {known[other].least:,}"
        why += ": they are of different times or databases."
        return Part(part, path, "the catalogue", fits=False, why=why, answer=Answer.CANNOT_TELL)
