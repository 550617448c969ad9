"""Tile the files of a journal with spans, and tell the life of each.

In: classified files. Out: `LogFile`s whose spans cover every byte once: header, records, and the
gaps between them, which are fill or remains of an earlier life. For streams also `FileLife`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tallystick.records import LogFile, Outcome, Span
from tallystick.storage.zeros import first_other, last_other_end
from tallystick.systems.jboss.format.layout import FILL, FILL_J, FILL_ZERO
from tallystick.systems.jboss.read.classify import Classified, read_file
from tallystick.systems.jboss.read.file_facts import KnownFile
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.protocol import FileLife

REMAINS = "no whole record: what an earlier life of the file left, or a destroyed record"
FILLED = "preallocated and never written, or padding"


def log_file(reading: KnownFile, order: int, redundant: bool | None, why: str) -> LogFile:
    """Return the file with the spans that tile it; ``redundant`` and ``why`` as in `LogFile`."""
    data = reading.file.data()
    size = reading.shape.header_size
    header = Span(0, min(size, len(data)), Outcome.VALID, "file header") if len(data) else None
    if never_begun(bytes(data[:size])):
        header = Span(0, size, Outcome.UNUSED, "file header", "created and filled, never begun")
    return LogFile(
        reading.file.path,
        len(data),
        "journal file",
        order,
        identity=reading.file.file_id,
        generation=reading.unheaded_id,
        redundant=redundant,
        why=why,
        spans=tuple(tile(data, header, reading.runs())),
    )


def never_begun(head: bytes) -> bool:
    """Return whether the start of a file is fill: the header was never written."""
    return len(head) > 0 and head in (bytes([FILL_J]) * len(head), bytes([FILL_ZERO]) * len(head))


def whole_file(path: str, size: int, role: str, order: int, outcome: Outcome, why: str) -> LogFile:
    """Return a file that is no data file of this journal, as one span."""
    reason = "" if outcome is Outcome.VALID else why
    spans = (Span(0, size, outcome, role, reason),) if size else ()
    return LogFile(path, size, role, order, why=why, spans=spans)


def tile(data: memoryview, header: Span | None, ranges: Iterable[Classified]) -> Iterator[Span]:
    """Yield spans that tile the file: header, records, and the gaps between them.

    Neighbouring records of one outcome and reason share a span.
    """
    place = 0
    if header is not None:
        yield header
        place = header.length
    run: Span | None = None
    for one in ranges:
        if one.row.offset > place:
            if run is not None:
                yield run
            run = None
            yield from _gap(data, place, one.row.offset)
        run, done = _joined(run, one)
        if done is not None:
            yield done
        place = one.row.end
    if run is not None:
        yield run
    yield from _gap(data, place, len(data))


def _joined(run: Span | None, one: Classified) -> tuple[Span, Span | None]:
    """Return the run with ``one`` in it, and the run that ended if it did not fit."""
    what = "stale records" if one.outcome is Outcome.STALE else "records"
    if one.outcome in (Outcome.TORN, Outcome.CORRUPT):
        what = "damaged record"
    if run is not None and (run.outcome, run.what, run.reason) == (one.outcome, what, one.reason):
        return Span(run.offset, one.row.end - run.offset, one.outcome, what, one.reason), None
    return Span(one.row.offset, one.row.size, one.outcome, what, one.reason), run


def _gap(data: memoryview, begin: int, end: int) -> Iterator[Span]:
    """Yield what is between two records: fill, and remains of something else."""
    first = first_other(data, begin, end, FILL)
    last = last_other_end(data, first, end, FILL)
    if begin < first:
        yield Span(begin, first - begin, Outcome.UNUSED, "fill", FILLED)
    if first < last:
        yield Span(first, last - first, Outcome.STALE, "remains", REMAINS)
    if last < end:
        yield Span(last, end - last, Outcome.UNUSED, "fill", FILLED)


class Lives(Mapping[str, FileLife]):
    """The life of every file by path; only a file that is asked for is read.

    Of a data file the id is its identity, and the id under which it was used again without a new
    header its generation. A torn record ends nothing: no valid one follows it in its file.
    """

    def __init__(self, journal: JournalFiles) -> None:
        self._journal = journal
        self._files = {file.path: file for file in journal.files}
        self._found: dict[str, FileLife] = {}

    def __iter__(self) -> Iterator[str]:
        yield from self._files
        yield from self._journal.leftovers

    def __len__(self) -> int:
        return len(self._files) + len(self._journal.leftovers)

    def __getitem__(self, path: str) -> FileLife:
        if path not in self._found:
            self._found[path] = self._life(path)
        return self._found[path]

    def _life(self, path: str) -> FileLife:
        file = self._files.get(path)
        if file is None and path not in self._journal.leftovers:
            raise KeyError(path)
        if file is None or file.header is None:
            return FileLife(None, None, len(self._journal.sources.data(path)))
        again = read_file(self._journal, file, last=False).unheaded_id
        return FileLife(file.file_id, again, file.size)
