"""Opening a live journal: what its files hold, and what must be put right before it goes on.

In: a folder on a `FileSystem` and the settings of the ring. Out: a `Recovered`: records, books,
open transactions, and the `Ring` begun. Steps, each durable before the next and each fit to be
interrupted and done again:

1. carry out or drop a compaction that a crash left half done; remove files that never got a name;
2. read the files by their ids; refuse what another code or damage makes unreadable;
3. wipe what was torn in the last file, so that damage in an older one is known for what it is;
4. begin the ring: free files get new ids, the last data file is continued.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tallystick.errors import CorruptLogError, UnsupportedFormatError
from tallystick.records import Outcome
from tallystick.storage.files import FileSystem, read_source
from tallystick.systems.jboss.format.layout import SYSTEM_NAME, FileHeader, Item, Name
from tallystick.systems.jboss.live.files import Ring, RingFile, RingSettings
from tallystick.systems.jboss.live.folder_repair import (
    finish_compaction,
    remove_short,
    set_aside,
    wipe,
)
from tallystick.systems.jboss.live.reclaim import Books
from tallystick.systems.jboss.read.analysis import FileReading, read_files
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles, Sources, open_files
from tallystick.systems.jboss.read.generations import GENERATIONS, Generation
from tallystick.systems.jboss.read.replay import Applied, Open, Placed, Replay
from tallystick.systems.protocol import LogSource

CODE_OF_SHAPE = {"g1a": "g1a", "g3": "g3-artemis", "hash": "hash"}


@dataclass(slots=True)
class Recovered:
    """What a load found. ``discarded`` transactions still need their rollback records."""

    books: Books = field(default_factory=Books)
    live: dict[int, list[Item]] = field(default_factory=dict)
    prepared: list[Open] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)
    incomplete: list[int] = field(default_factory=list)
    wiped: list[tuple[str, int, int]] = field(default_factory=list)
    """(file, offset, bytes) of what was torn in the last file."""
    max_id: int = -1
    max_transaction: int = -1


def recover(ring: Ring, *, tolerate_damage: bool = False) -> Recovered:
    """Read the files of ``ring.folder`` and begin the ring.

    Raises `UnsupportedFormatError` for files of another format or user version, and
    `CorruptLogError` for damage in a file that was synced before the next was begun, unless
    ``tolerate_damage``: then damaged records are skipped as the original loaders do.
    """
    fs, folder, settings = ring.fs, ring.folder, ring.settings
    finish_compaction(fs, folder)
    journal = open_journal(fs, folder, settings)
    _refuse_others(journal, settings)
    readings = list(read_files(journal))
    if not tolerate_damage:
        _refuse_damage(readings)
    files = [_ring_file(reading, settings) for reading in readings]
    state = Recovered()
    _replay(state, journal, readings, files)
    remove_short(fs, folder, [file.path for file in journal.files if file.header is None])
    ring.note_names((file.name for file in journal.files), (file.file_id for file in files))
    _begin(ring, state, list(zip(readings, files, strict=True)))
    return state


def _begin(ring: Ring, state: Recovered, found: list[tuple[FileReading, RingFile]]) -> None:
    """Wipe what was torn, set aside what cannot be used again, and begin the ring."""
    size, shape = ring.settings.file_size, ring.settings.shape
    data = [(reading, file) for reading, file in found if _has_records(reading)]
    rest = [(reading, file) for reading, file in found if not _has_records(reading)]
    free = [file for reading, file in rest if reading.file.size == size]
    odd = [file.name for reading, file in rest if reading.file.size != size]
    set_aside(ring.fs, ring.folder, odd)
    continues = False
    if data:
        last = data[-1][0]
        state.wiped = wipe(ring.fs, last)
        # A format 1 file is not continued: records of format 2 would vanish from it.
        continues = last.file.size == size and last.shape.name == shape.name
    ring.begin([file for _, file in data], free, continues=continues)


def read_placed(ring: Ring) -> Iterator[Placed]:
    """Every record that counts, in log order; nothing may be written meanwhile."""
    journal = open_journal(ring.fs, ring.folder, ring.settings)
    for order, reading in enumerate(read_files(journal)):
        for one in reading.judged:
            if reading.belongs(one):
                item = reading.item(one)
                yield Placed(item, order, reading.file.stamp, reading.file.path)


def open_journal(fs: FileSystem, folder: str, settings: RingSettings) -> JournalFiles:
    """The journal's files as its reader takes them."""
    names = [name for name in fs.list(folder) if name.endswith("." + settings.extension)]
    paths = tuple(posixpath.join(folder, name) for name in names)
    sources = Sources(lambda path: read_source(fs, path))
    journal = open_files(LogSource(SYSTEM_NAME, folder, paths), sources)
    journal.choose(_generation(settings))
    return journal


def _generation(settings: RingSettings) -> Generation:
    return GENERATIONS[CODE_OF_SHAPE[settings.shape.name]]


def _refuse_others(journal: JournalFiles, settings: RingSettings) -> None:
    accepts = journal.generation.accepts
    for file in journal.files:
        header = file.header
        if header is None or not accepts or _was_never_begun(file.head):
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


def _check_user_version(file: JournalFile, header: FileHeader, expected: int) -> None:
    if header.user_version != expected:
        raise UnsupportedFormatError(
            "the journal belongs to another user version",
            file=file.path,
            offset=4,
            expected=str(expected),
            found=str(header.user_version),
            advice="Give the user version that the application wrote it with",
        )


def _was_never_begun(head: bytes) -> bool:
    return len(set(head)) == 1 and head[:1] in (b"J", b"\0")


def _refuse_damage(readings: list[FileReading]) -> None:
    last = max((i for i, reading in enumerate(readings) if _has_records(reading)), default=0)
    for reading in readings[:last]:
        for one in reading.judged:
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
    for reading in readings:
        if reading.renewed is not None:
            raise CorruptLogError(
                "records were written under an id that the header never got",
                file=reading.file.path,
                offset=0,
                expected=str(reading.renewed),
                found=str(reading.file.file_id()),
                advice="Export them with tallystick export --salvage before anything else",
            )


def _has_records(reading: FileReading) -> bool:
    return any(reading.belongs(one) for one in reading.judged)


def _ring_file(reading: FileReading, settings: RingSettings) -> RingFile:
    ends = [one.row.end for one in reading.judged if reading.belongs(one)]
    position = settings.rounded(max(ends, default=settings.data_at))
    return RingFile(reading.file.name, reading.file.file_id(), max(position, settings.data_at))


def live_contents(ring: Ring) -> tuple[dict[int, list[Item]], list[Open]]:
    """Live records by id, and transactions in doubt; nothing may be written meanwhile."""
    stamps = [file.stamp for file in (*ring.data, ring.current)]
    replay = Replay(ring.settings.shape, stamps)
    live: dict[int, list[Item]] = {}
    for placed in read_placed(ring):
        _live(live, replay.feed(placed)[0])
    return live, list(replay.in_doubt())


# -- replay ---------------------------------------------------------------------------------


def _replay(
    state: Recovered, journal: JournalFiles, readings: list[FileReading], files: list[RingFile]
) -> None:
    replay = Replay(journal.generation.shape, [file.stamp for file in files])
    for order, (reading, file) in enumerate(zip(readings, files, strict=True)):
        for one in reading.judged:
            if reading.belongs(one):
                item = reading.item(one)
                placed = Placed(item, order, file.stamp, reading.file.path)
                _apply(state, replay, placed, file)
    state.prepared = list(replay.in_doubt())
    state.discarded = [one.transaction for one in replay.discarded()]
    state.incomplete = list(dict.fromkeys([*replay.incomplete, *state.discarded]))


def _apply(state: Recovered, replay: Replay, placed: Placed, file: RingFile) -> None:
    item = placed.item
    state.max_transaction = max(state.max_transaction, item.transaction or 0)
    if item.record_id is not None and item.name not in (Name.DELETE, Name.DELETE_TX):
        state.max_id = max(state.max_id, item.record_id)
    effects, ended = replay.feed(placed)
    if ended is not None and not ended.complete:
        state.books.forget(ended.open.transaction)
    else:
        state.books.take(
            file.account, item.name, item.transaction, item.record_id or 0, item.length
        )
    _live(state.live, effects)


def _live(live: dict[int, list[Item]], effects: Iterable[Applied]) -> None:
    for effect in effects:
        item = effect.placed.item
        number = item.record_id or 0
        if item.name in (Name.DELETE, Name.DELETE_TX):
            live.pop(number, None)
        else:
            live.setdefault(number, []).append(item)
