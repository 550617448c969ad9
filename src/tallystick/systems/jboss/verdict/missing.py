"""What a journal lacks between files that follow each other, and at its end.

In: the files, how far a stream has read them, and what the analysis has found. Out: `Missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from tallystick.records import LogFile, Outcome
from tallystick.storage.zeros import first_other
from tallystick.systems.jboss.format.layout import FILL
from tallystick.systems.jboss.read.changes import gives_places, place_of
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles, most_common
from tallystick.systems.jboss.read.spans import never_begun
from tallystick.systems.jboss.verdict.answer import begun, unexplained_ids
from tallystick.systems.jboss.verdict.differences import Evidence
from tallystick.systems.jboss.verdict.file_ids import given_up
from tallystick.systems.protocol import Missing, Reached


class FileOrder:
    """The files of a journal in the order of their ids.

    Args:
        journal: the files.
        evidence: gives what the analysis has found; it is asked only about ids without a file.
        files: gives the spans of the files; asked only about a file that is shorter than others.
    """

    def __init__(
        self,
        journal: JournalFiles,
        evidence: Callable[[], Evidence],
        files: Callable[[], Sequence[LogFile]],
    ) -> None:
        self._journal = journal
        self._evidence = evidence
        self._files = files

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The id in the header of each file, by path."""
        # The last four bytes, which records carry, too: where the first are damaged, these are not.
        return {
            file.path: file.file_id & 0xFFFFFFFF
            for file in self._journal.files
            if file.header is not None and not never_begun(file.head)
        }

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return what a journal lacks before a file, unless the files that are there explain it.

        Args:
            path: the file.
            reached: how far the file before was read; None if this is the first one.
        """
        found, number = f"file id {self.ids[path]}", self.ids[path]
        if reached is None:
            # Before the first file any number of files may have been deleted: only those count
            # whose absence nothing but a loss explains.
            gone = next((one.start for one in self._lost if one.start < number), None)
            return None if gone is None else Missing(f"file id {gone}", found, certain=False)
        wanted = range(reached.number + 1, number)
        if not reached.there:
            return Missing(f"the end of the file with id {reached.number}", found, certain=False)
        if (cut := self._cut_after(reached.place)) is not None:
            return cut
        there = {one for one in self.ids.values() if one in wanted}
        if len(there) == len(wanted):
            return None
        lost = given_up(
            wanted,
            reached.since,
            begun(self._evidence()),
            self._evidence().analysis.unknown_deleted,
        )
        first = next(one for one in wanted if one not in there) if lost is None else lost
        return Missing(f"file id {first}", found, certain=False, usual=lost is None)

    def missing_at_end(self, place: int | None) -> Missing | None:
        """Return what is missing of a file that was cut after the last record.

        Files are filled to their size before they are used. One that is shorter than most, and
        has fill after its records, was made so, or has lost no more than fill.

        Args:
            place: that of the last record that was read; None if none was.
        """
        for file in self._journal.files:
            read = self._offset_in(file, place or 0)
            missing = self._cut(file, read) if read is not None and read >> 32 <= 0 else None
            if missing is not None:
                return missing
        return None

    def _cut_after(self, place: int | None) -> Missing | None:
        """Return what is missing of the file of a record that is followed by another file.

        Damage after that record is a finding of its own.
        """
        for file in self._journal.files if place is not None else ():
            read = self._offset_in(file, place or 0)
            if read is None or read >> 32:
                continue
            missing = self._cut(file, read)
            if missing is None or self._is_damaged_after(file, read):
                continue
            return missing._replace(certain=True)  # the next file is used once one is full
        return None

    def _offset_in(self, file: JournalFile, place: int) -> int | None:
        """Return the offset of a place in a file; None if the file's id gives no places.

        It is negative for a place in a file before, and more than 32 bits for one in a file after.
        """
        has_places = file.path in self.ids and gives_places(file)
        return place - place_of(file, 0) if has_places else None

    def _is_damaged_after(self, file: JournalFile, read: int) -> bool:
        spans = (span for one in self._files() if one.path == file.path for span in one.spans)
        return any(span.outcome is Outcome.CORRUPT and span.end > read for span in spans)

    @cached_property
    def _usual_size(self) -> int:
        return most_common(one.size for one in self._journal.files) or 0

    def _cut(self, file: JournalFile, read: int) -> Missing | None:
        size = self._usual_size
        if file.size >= size:
            return None
        begin = max(read, self._journal.shape(file).header_size)
        if begin < file.size and first_other(file.data(), begin, file.size, FILL) == file.size:
            return None
        expected = f"{size} bytes of {file.name}, as of others"
        return Missing(expected, f"{file.size} bytes", certain=False)

    @cached_property
    def _lost(self) -> list[range]:
        return unexplained_ids(self._evidence())
