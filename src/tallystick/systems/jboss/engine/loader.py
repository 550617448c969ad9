"""Load the files of a journal as its own loader would.

In: the files of a journal and its generation. Out: an `EngineLoad`. The live records are those of
the loader's list form: an id that is deleted anywhere is gone, whatever comes after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystick.errors import UnsupportedFormatError
from tallystick.systems.jboss.engine.original_scan import UNDERFLOW_TEXT, original_scan
from tallystick.systems.jboss.format.layout import (
    DELETE,
    DELETE_TX,
    I4,
    RAISING_TYPES,
    Item,
    decode,
)
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles, most_common
from tallystick.systems.jboss.read.generations import Generation, shape_of_file
from tallystick.systems.jboss.read.replay import (
    Effect,
    OpenTransaction,
    PlacedRecord,
    RecordFile,
    Replay,
)
from tallystick.systems.jboss.read.scan import VALID, Row, scan

if TYPE_CHECKING:
    from tallystick.systems.jboss.runs.analysis import AnalysisInRuns

NOTHING_PLACED = (
    'java.lang.NullPointerException: Cannot invoke "java.util.Set.iterator()" because '
    '"this.pendingFiles" is null'
)
DELETE_FLUSH = 20_000
"""HornetQ 2.0 and 2.1 apply their list of deletes, and empty it, whenever it is this long."""


@dataclass(slots=True)
class EngineLoad:
    """The outcome of a load.

    Attributes:
        generation: the code that loaded.
        error: the exception that ended the load, if one did.
        live: the live records.
        prepared: the transactions in doubt.
        incomplete: numbers of the transactions that the loader warns of or discards.
        failed: the discarded transactions.
        max_id: the highest record id that it found.
    """

    generation: Generation
    error: str = ""
    live: list[Item] = field(default_factory=list)
    prepared: list[OpenTransaction] = field(default_factory=list)
    incomplete: list[int] = field(default_factory=list)
    failed: list[OpenTransaction] = field(default_factory=list)
    max_id: int = -1

    def leave_open(self, replay: Replay) -> None:
        """Take what ``replay`` has left open after the last record."""
        self.prepared, self.failed = list(replay.in_doubt()), list(replay.discarded())
        failed = (one.transaction for one in self.failed)
        self.incomplete = list(dict.fromkeys([*replay.incomplete, *failed]))


class LoadError(Exception):
    """The loader threw; the text is that of the exception."""


def load(
    files: Sequence[JournalFile], generation: Generation, settings: Mapping[str, str]
) -> EngineLoad:
    """Load as the code of ``generation`` would.

    Args:
        files: the data files.
        generation: the code.
        settings: may have ``file_size`` and ``user_version`` as the journal was configured; without
            them, most files decide.
    """
    outcome = EngineLoad(generation)
    try:
        ordered = admitted(files, generation, settings)
        _replay(ordered, outcome, configured_size(ordered, settings))
    except LoadError as error:
        outcome.error = str(error)
    return outcome


def admitted(
    files: Sequence[JournalFile], generation: Generation, settings: Mapping[str, str]
) -> list[JournalFile]:
    """Return the files by their ids. Raises `LoadError` where the loader throws."""
    if "user_version" not in settings:
        user_version = most_common(file.header.user_version for file in files if file.header)
    else:
        user_version = _number(settings, "user_version")
    stay = []
    for file in files:
        if file.header is None:
            # HornetQ aborts the load; Artemis warns, deletes the file and goes on.
            if not generation.skips_short_files:
                raise LoadError(UNDERFLOW_TEXT)
            continue
        if generation.accepts and file.header.format_version not in generation.accepts:
            raise LoadError(generation.wrong_version)
        # After the format version, as the loader checks: the first that is wrong names the
        # exception.
        if generation.accepts and file.header.user_version != user_version:
            raise LoadError(generation.other_user)
        stay.append(file)
    return sorted(stay, key=lambda file: file.file_id)


def configured_size(files: Sequence[JournalFile], settings: Mapping[str, str]) -> int:
    """Return the size of files by the settings, else that of most files.

    Raises:
        UnsupportedFormatError: the setting is no number.
    """
    if "file_size" in settings:
        return _number(settings, "file_size")
    return most_common(file.size for file in files) or 0


def require_numbers(settings: Mapping[str, str]) -> None:
    """Check the settings of a load. Raises `UnsupportedFormatError` where one is no number."""
    for name in settings.keys() & {"file_size", "user_version"}:
        _number(settings, name)


def _number(settings: Mapping[str, str], name: str) -> int:
    try:
        return int(settings[name])
    except ValueError as error:
        raise UnsupportedFormatError(
            f"the setting {name} does not fit", expected="a number", found=settings[name]
        ) from error


def engine_rows(
    file: JournalFile, generation: Generation, size: int, max_id: int
) -> tuple[Iterable[Row], int]:
    """Return the records that the loader sees in one file, and the maximum id after g1 scans.

    Args:
        file: the file.
        generation: the code.
        size: the configured size of files, in bytes.
        max_id: the maximum id in the files before.

    Raises:
        LoadError: the loader throws.
    """
    shape = shape_of_file(generation, file.head)
    if shape.header_size != I4.size:
        rows = scan(file.data(), shape, file.stamp, events=generation.knows_events)
        return (row for row in rows if row.status == VALID), max_id
    # Only the loader of 2008 insists on the size, and it never reads a surplus.
    if shape.pairs and file.size < size:
        raise LoadError(
            f"java.lang.IllegalStateException: File is wrong size {file.size} "
            f"expected {size} : {file.name}"
        )
    data = file.data()[:size] if shape.pairs else file.data()
    found = original_scan(data, shape, file.stamp, max_id)
    if found.error:
        raise LoadError(found.error)
    return found.rows, found.max_id


def _replay(files: Sequence[JournalFile], outcome: EngineLoad, size: int) -> None:
    generation = outcome.generation
    replay = Replay(generation.shape, [file.stamp for file in files])
    records = _ListForm(generation.flushes_deletes)
    for order, file in enumerate(files):
        rows, outcome.max_id = engine_rows(file, generation, size, outcome.max_id)
        where = RecordFile(file, shape_of_file(generation, file.head), order, file.stamp)
        for placed in _placed(where, rows):
            if not generation.shape.pairs and placed.kind in RAISING_TYPES:
                outcome.max_id = max(outcome.max_id, placed.number)
            records.apply(replay.feed(placed)[0])
        _require_placed(generation, replay)
    _require_placed(generation, replay, done=True)
    outcome.live = records.live()
    outcome.leave_open(replay)


def _require_placed(generation: Generation, replay: Replay, *, done: bool = False) -> None:
    """Check what became of transactions of which no file holds anything. Raises `LoadError`.

    ``done``: the last record was applied, and open transactions are discarded.
    """
    refused = generation.ends_placed_only and replay.ended_unplaced
    if generation.discards_placed_only:
        refused |= replay.discarded_unplaced
        refused |= done and not all(one.placed for one in replay.discarded())
    if refused:
        raise LoadError(NOTHING_PLACED)


def load_in_runs(
    journal: JournalFiles, settings: Mapping[str, str], found: AnalysisInRuns
) -> EngineLoad:
    """Load a journal that was analysed in runs; the loader sees the same records."""
    from tallystick.systems.jboss.runs.analysis import listed

    replay = found.analyser.replay
    outcome = EngineLoad(journal.generation, refusal(journal, settings, replay))
    if not outcome.error:
        outcome.live, outcome.max_id = listed(journal, found.analyser.analysis.live)
        outcome.leave_open(replay)
    return outcome


def refusal(journal: JournalFiles, settings: Mapping[str, str], replay: Replay) -> str:
    """Return the exception of a load whose records were all applied to ``replay``, or nothing.

    Raises:
        UnsupportedFormatError: a setting is no number.
    """
    generation = journal.generation
    try:
        configured_size(admitted(journal.files, generation, settings), settings)
        _require_placed(generation, replay, done=True)
    except LoadError as error:
        return str(error)
    return ""


def _placed(where: RecordFile, rows: Iterable[Row]) -> Iterator[PlacedRecord]:
    data = where.file.data()
    for row in rows:
        yield PlacedRecord.of(decode(where.shape, data, row.offset, row.size), where)


class _ListForm:
    """The list form of the loader: records in order; deletes are collected and applied last."""

    def __init__(self, flushes: bool) -> None:
        self._flushes = flushes
        self._records: list[Item] = []
        self._deleted: set[int] = set()

    def apply(self, effects: Iterable[Effect]) -> None:
        """Add the effects of one record."""
        for effect in effects:
            placed = effect.placed
            if placed.kind not in (DELETE, DELETE_TX):
                self._records.append(placed.item)
                continue
            self._deleted.add(placed.number)
            # So an id that was deleted before a flush and is added after it is listed, unlike in
            # all other code.
            if self._flushes and len(self._deleted) == DELETE_FLUSH:
                self._records = self.live()
                self._deleted.clear()

    def live(self) -> list[Item]:
        """Return the records that are not deleted."""
        return [item for item in self._records if item.record_id not in self._deleted]
