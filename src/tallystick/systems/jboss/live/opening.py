"""Open a live journal: read its files, and repair its folder before anything is appended.

In: a folder on a `FileSystem` and the settings of the ring. Out: a `Recovered`: records, counts,
open transactions, and the `Ring` begun. Steps, each durable before the next; each may be
interrupted and repeated:

1. carry out or drop a compaction that a crash interrupted; remove files that never got their name;
2. read the files by their ids; refuse files of other code, and damage;
3. overwrite the torn end of the last file, so that damage in an older one is known to be damage;
4. begin the ring: free files get new ids, the last data file is continued.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.records import Outcome
from tallystick.storage.files import FileSystem, read_source
from tallystick.systems.jboss.format.compaction_control import Control
from tallystick.systems.jboss.format.file_names import COMPACTED, TEMPORARY
from tallystick.systems.jboss.format.layout import (
    CONTROL_FILE,
    I4,
    SYSTEM_NAME,
    FileHeader,
    RecordType,
)
from tallystick.systems.jboss.live.files import Ring, RingFile, RingSettings
from tallystick.systems.jboss.read.classify import FileReading, read_files
from tallystick.systems.jboss.read.files import (
    JournalFile,
    JournalFiles,
    Sources,
    decode_control,
    open_files,
)
from tallystick.systems.jboss.read.generations import FILE_ID_MAX, GENERATIONS
from tallystick.systems.jboss.read.reclaim_counts import ReclaimCounts
from tallystick.systems.jboss.read.replay import (
    OpenTransaction,
    PlacedRecord,
    RecordFile,
    Replay,
)
from tallystick.systems.jboss.read.spans import never_begun
from tallystick.systems.protocol import LogSource

ATTIC = "attic"
"""Folder for free files of another size, which cannot be reused."""

_LOADERS = {"g3": "g3-artemis"}
"""The loader of a shape, where it is not called as the shape is."""


@dataclass(slots=True)
class Recovered:
    """What a load found.

    Attributes:
        counts: live records and open transactions, for reclaiming.
        live: the ids of live records.
        prepared: transactions in doubt.
        discarded: open transactions without a valid prepare, which still need a rollback record.
        incomplete: these, and committed transactions that were discarded.
        max_id: the highest record id, -1 for none.
        max_transaction: the highest transaction number, -1 for none.
    """

    counts: ReclaimCounts = field(default_factory=ReclaimCounts)
    live: set[int] = field(default_factory=set)
    prepared: list[OpenTransaction] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)
    incomplete: list[int] = field(default_factory=list)
    max_id: int = -1
    max_transaction: int = -1


def recover(ring: Ring, *, tolerate_damage: bool = False) -> Recovered:
    """Read the files of ``ring.folder``, repair the folder and begin the ring.

    Args:
        ring: the ring, not begun.
        tolerate_damage: skip damaged records as the original loaders do.

    Raises:
        UnsupportedFormatError: a file has another format or user version.
        CorruptLogError: a file has an id that none is given; damage in a file that was synced
            before the next was begun, or records under an id that no header has, unless
            ``tolerate_damage``.
    """
    fs, folder, settings = ring.fs, ring.folder, ring.settings
    # First: before it old and new files are there together, and every record would count twice.
    finish_compaction(fs, folder)
    journal = open_journal(fs, folder, settings)
    _refuse_others(journal, settings)
    _refuse_ids(journal)
    readings = list(read_files(journal))
    if not tolerate_damage:
        _refuse_damage(readings)
        _refuse_unheaded(readings)
    files = [_ring_file(reading, settings) for reading in readings]
    state = Recovered()
    _replay(state, journal, readings, files)
    _remove_short(fs, folder, [file.path for file in journal.files if file.header is None])
    # Fill is no id: that of a file full of J would be a large one, and the next id one above it.
    begun = [file.file_id for file in journal.files if not never_begun(file.head)]
    ring.continue_after((file.name for file in journal.files), begun)
    _begin(ring, list(zip(readings, files, strict=True)))
    return state


def _begin(ring: Ring, found: list[tuple[FileReading, RingFile]]) -> None:
    """Erase the torn end, move files that cannot be reused, and begin the ring."""
    size, shape = ring.settings.file_size, ring.settings.shape
    data = [(reading, file) for reading, file in found if reading.has_records]
    rest = [(reading, file) for reading, file in found if not reading.has_records]
    free = [file for reading, file in rest if reading.file.size == size]
    odd = [file.name for reading, file in rest if reading.file.size != size]
    _move_to_attic(ring.fs, ring.folder, odd)
    continues = False
    if data:
        last = data[-1][0]
        _erase_torn(ring.fs, last)
        # A format 1 file is not continued: its loader would ignore records of format 2 in it.
        continues = last.file.size == size and last.shape.name == shape.name
    ring.begin([file for _, file in data], free, continues=continues)


def _ring_file(reading: FileReading, settings: RingSettings) -> RingFile:
    ends = [one.row.end for one in reading.ranges if reading.belongs(one)]
    position = settings.rounded(max(ends, default=settings.data_at))
    return RingFile(reading.file.name, reading.file.file_id, max(position, settings.data_at))


# -- read ------------------------------------------------------------------------------------


def open_journal(fs: FileSystem, folder: str, settings: RingSettings) -> JournalFiles:
    """Return the journal's files as its reader opens them."""
    names = [name for name in fs.list(folder) if name.endswith("." + settings.extension)]
    paths = tuple(posixpath.join(folder, name) for name in names)
    sources = Sources(lambda path: read_source(fs, path))
    journal = open_files(LogSource(SYSTEM_NAME, folder, paths), sources)
    journal.choose(GENERATIONS[_LOADERS.get(settings.shape.name, settings.shape.name)])
    return journal


def read_placed(ring: Ring) -> Iterator[PlacedRecord]:
    """Yield every record that counts, in log order; nothing may be written meanwhile."""
    journal = open_journal(ring.fs, ring.folder, ring.settings)
    for order, reading in enumerate(read_files(journal)):
        where = RecordFile(reading.file, reading.shape, order, reading.file.stamp)
        for one in reading.ranges:
            if reading.belongs(one):
                yield PlacedRecord.of(reading.item(one), where)


def new_replay(ring: Ring) -> Replay:
    """Return a replay for the records of the ring's files."""
    return Replay(ring.settings.shape, [file.stamp for file in (*ring.data, ring.current)])


def live_contents(ring: Ring) -> tuple[dict[int, list[PlacedRecord]], list[OpenTransaction]]:
    """Return live records by id, and transactions in doubt; nothing may be written meanwhile."""
    replay = new_replay(ring)
    live: dict[int, list[PlacedRecord]] = {}
    for placed in read_placed(ring):
        for effect in replay.feed(placed)[0]:
            item = effect.placed.item
            if item.type in (RecordType.DELETE, RecordType.DELETE_TX):
                live.pop(item.record_id or 0, None)
            else:
                live.setdefault(item.record_id or 0, []).append(effect.placed)
    return live, list(replay.in_doubt())


def _replay(
    state: Recovered, journal: JournalFiles, readings: list[FileReading], files: list[RingFile]
) -> None:
    replay = Replay(journal.generation.shape, [file.stamp for file in files])
    for order, (reading, file) in enumerate(zip(readings, files, strict=True)):
        where = RecordFile(reading.file, reading.shape, order, file.stamp)
        for one in reading.ranges:
            if reading.belongs(one):
                _apply(state, replay, PlacedRecord.of(reading.item(one), where), file)
    state.prepared = list(replay.in_doubt())
    state.discarded = [one.transaction for one in replay.discarded()]
    state.incomplete = list(dict.fromkeys([*replay.incomplete, *state.discarded]))


def _apply(state: Recovered, replay: Replay, placed: PlacedRecord, file: RingFile) -> None:
    item = placed.item
    state.max_transaction = max(state.max_transaction, item.transaction or 0)
    if item.record_id is not None and item.type not in (RecordType.DELETE, RecordType.DELETE_TX):
        state.max_id = max(state.max_id, item.record_id)
    effects, ended = replay.feed(placed)
    if ended is not None and not ended.complete:
        # What the loader drops must not hold its files for ever.
        state.counts.discard(ended.open.transaction)
    else:
        state.counts.add(file.counts, item.type, item.transaction, item.record_id or 0, item.length)
    for effect in effects:
        item = effect.placed.item
        if item.type in (RecordType.DELETE, RecordType.DELETE_TX):
            state.live.discard(item.record_id or 0)
        else:
            state.live.add(item.record_id or 0)


# -- refuse ----------------------------------------------------------------------------------


def _refuse_others(journal: JournalFiles, settings: RingSettings) -> None:
    accepts = journal.generation.accepts
    for file in journal.files:
        header = file.header
        if header is None or not accepts or never_begun(file.head):
            continue
        if header.format_version not in accepts:
            raise UnsupportedFormatError(
                "a journal file of another format version",
                file=file.path,
                offset=0,
                expected=" or ".join(str(version) for version in accepts),
                found=str(header.format_version),
                advice="Open it with the code that wrote it, or convert it",
            )
        _check_user_version(file, header, settings.user_version)


def _refuse_ids(journal: JournalFiles) -> None:
    # The next file would get a higher one, and no reader takes such a file for one of a journal.
    for file in journal.files:
        if file.file_id >= FILE_ID_MAX and not never_begun(file.head):
            raise CorruptLogError(
                "a journal file has an id that none is given",
                file=file.path,
                offset=0,
                expected=f"below {FILE_ID_MAX}",
                found=str(file.file_id),
                advice="Look at it with tallystick explain before anything else",
            )


def _check_user_version(file: JournalFile, header: FileHeader, expected: int) -> None:
    if header.user_version != expected:
        raise UnsupportedFormatError(
            "the journal belongs to another user version",
            file=file.path,
            offset=I4.size,
            expected=str(expected),
            found=str(header.user_version),
            advice="Give the user version that the application wrote it with",
        )


def _refuse_damage(readings: list[FileReading]) -> None:
    last = max((i for i, reading in enumerate(readings) if reading.has_records), default=0)
    for reading in readings[:last]:
        for one in reading.ranges:
            if one.outcome is Outcome.CORRUPT:
                raise CorruptLogError(
                    f"a damaged record: {one.reason}",
                    file=reading.file.path,
                    offset=one.row.offset,
                    expected="whole records in every file but the last",
                    found=f"{one.row.size} damaged bytes",
                    advice="Look at it with tallystick explain; open it with tolerate_damage "
                    "to go on without them, as the original does",
                )


def _refuse_unheaded(readings: list[FileReading]) -> None:
    for reading in readings:
        unbegun = never_begun(reading.file.head) and reading.has_records
        if reading.unheaded_id is not None or unbegun:
            raise CorruptLogError(
                "records were written under an id that the header never got",
                file=reading.file.path,
                offset=0,
                expected=str(reading.unheaded_id or "the file id of the records"),
                found="fill" if unbegun else str(reading.file.file_id),
                advice="Export them with tallystick export --salvage before anything else",
            )


# -- repair the folder -----------------------------------------------------------------------


def finish_compaction(fs: FileSystem, folder: str) -> None:
    """Carry out the control file if there is one; remove leftovers of unfinished files."""
    path = posixpath.join(folder, CONTROL_FILE)
    if fs.exists(path):
        source = read_source(fs, path)
        control = decode_control(source.data)
        if control is not None:
            carry_out(fs, folder, control)
        fs.remove(path)
        fs.sync_dir(folder)
    leftovers = [name for name in fs.list(folder) if name.endswith((COMPACTED, TEMPORARY))]
    for name in leftovers:
        fs.remove(posixpath.join(folder, name))
    if leftovers:
        fs.sync_dir(folder)


def carry_out(fs: FileSystem, folder: str, control: Control) -> None:
    """Delete the old files and rename the new ones; may be interrupted and repeated."""
    for name in control.old:
        if fs.exists(posixpath.join(folder, name)):
            fs.remove(posixpath.join(folder, name))
    for source, target in control.moves():
        if fs.exists(posixpath.join(folder, source)):
            fs.rename(posixpath.join(folder, source), posixpath.join(folder, target))
    fs.sync_dir(folder)


def _erase_torn(fs: FileSystem, reading: FileReading) -> None:
    """Overwrite bad records of the last file with zeros, durably."""
    torn = [one for one in reading.ranges if one.outcome in (Outcome.TORN, Outcome.CORRUPT)]
    if not torn:
        return
    handle = fs.open(reading.file.path)
    try:
        for one in torn:
            handle.pwrite(bytes(one.row.size), one.row.offset)
        handle.datasync()
    finally:
        handle.close()


def _remove_short(fs: FileSystem, folder: str, paths: Sequence[str]) -> None:
    """Remove files that are shorter than a header, as Artemis does: they hold nothing."""
    for path in paths:
        fs.remove(path)
    if paths:
        fs.sync_dir(folder)


def _move_to_attic(fs: FileSystem, folder: str, names: Iterable[str]) -> None:
    """Move free files of another size into `ATTIC`."""
    names = list(names)
    if not names:
        return
    attic = posixpath.join(folder, ATTIC)
    fs.mkdir(attic)
    for name in names:
        fs.rename(posixpath.join(folder, name), posixpath.join(attic, name))
    fs.sync_dir(attic)
    fs.sync_dir(folder)
