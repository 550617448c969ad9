"""What a directory holds when its log is opened.

In: a folder on a `FileSystem`. Out: a `Recovered`: open transactions, files, and the numbers
to go on with. Nothing is changed. Raises `CorruptLogError` under the policy ``stop`` if
acknowledged blocks are lost.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tallystick.errors import CorruptLogError
from tallystick.storage.files import FileSystem, read_source
from tallystick.systems.cloudtran.format.entries import Entry, EntryKind, encode_entry
from tallystick.systems.cloudtran.format.file_names import parse_name
from tallystick.systems.cloudtran.live import high_water_mark as mark
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.cloudtran.live.state import LogState, OpenEntry
from tallystick.systems.cloudtran.read.analysis import Loss, Remark, Survey
from tallystick.systems.cloudtran.read.block_order import Opener, Part, Sighting, sightings
from tallystick.systems.cloudtran.read.header_repair import BlockFinder
from tallystick.systems.cloudtran.read.scan import FileScan


@dataclass(slots=True)
class Recovered:
    """The state of a log and what its next file, block and transaction are called."""

    state: LogState
    serial: int
    sequence: int
    number: int
    losses: list[Loss]
    remarks: list[Remark]


def log_parts(fs: FileSystem, folder: str, settings: LogSettings) -> tuple[Part, ...]:
    """The log's files by serial; others in the folder are not ours."""
    found = []
    for name in fs.list(folder):
        parsed = parse_name(name)
        if parsed is None or parsed.extension != settings.file_extension:
            continue
        if parsed.base == settings.file_base_name:
            found.append(Part(posixpath.join(folder, name), name, parsed.serial))
    return tuple(sorted(found, key=lambda part: part.serial))


def recover(fs: FileSystem, folder: str, settings: LogSettings) -> Recovered:
    """Read all files; see the module."""
    parts = log_parts(fs, folder, settings)
    survey = Survey(parts)
    fold = _Fold(survey)
    for sighting in sightings(parts, _opener(fs, settings)):
        survey.add(sighting)
        fold.add(sighting)
    survey.finish()
    if survey.losses and settings.on_damage == "stop":
        raise _damage(survey, folder)
    marked = mark.read(fs, folder, settings.file_base_name)
    return Recovered(
        fold.state(),
        1 + max(marked.serial, parts[-1].serial if parts else 0),
        1 + max(marked.sequence, survey.last_sequence),
        1 + max(marked.number, fold.greatest),
        survey.losses,
        survey.remarks,
    )


def _opener(fs: FileSystem, settings: LogSettings) -> Opener:
    @contextmanager
    def opened(part: Part) -> Iterator[FileScan]:
        with read_source(fs, part.path) as source:
            yield FileScan(
                BlockFinder(
                    source.data,
                    settings.signature,
                    settings.disk_block_size,
                    settings.max_transaction_size,
                )
            )

    return opened


class _Fold:
    """Keeps the entries of open transactions beside the survey that knows which are open."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._entries: dict[int, Entry] = {}
        self.greatest = 0

    def add(self, sighting: Sighting) -> None:
        for placed in sighting.block.entries if sighting.block.readable else ():
            entry = placed.entry
            self.greatest = max(self.greatest, entry.number)
            if entry.kind is EntryKind.PERSISTING:
                self._entries.setdefault(entry.number, entry)
            if entry.number not in self._survey.open:
                self._entries.pop(entry.number, None)

    def state(self) -> LogState:
        """The state as of the last block."""
        survey, state = self._survey, LogState()
        damaged = {loss.file for loss in survey.losses}
        for index, part in enumerate(survey.parts):
            state.add_file(part.serial, part.path, lost=index in damaged)
        for number, one in sorted(survey.open.items()):
            entry = self._entries[number]
            state.entries[number] = OpenEntry.of(entry, encode_entry(entry), one.pending)
            state.settle_in(number, survey.parts[one.home].serial)
        return state


def _damage(survey: Survey, folder: str) -> CorruptLogError:
    loss = survey.losses[0]
    names = ", ".join(f"{one.kind.name.lower()} {one.number}" for one in loss.suspects or ())
    more = len(survey.losses) - 1
    return CorruptLogError(
        f"acknowledged blocks are lost ({loss.state})" + (f", and {more} more places" * (more > 0)),
        file=posixpath.join(folder, loss.name),
        offset=loss.offset,
        expected="every block readable",
        found=f"{loss.count if loss.count is not None else 'an unknown number of'} entries"
        + (f": {names}" if names else ""),
        advice="Copy the directory; then open it with on_damage='report' to go on without them",
    )
