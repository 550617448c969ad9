"""Opening a live block log: zapping it if configured, recovery, the high-water mark.

In: a folder on a `FileSystem` and the settings. Out: `Recovered`: open transactions, files, and the
numbers of the next file, block and transaction; or the error that refuses the start.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from tallystick.errors import CorruptLogError, IncompleteLogError
from tallystick.printable import counted, logger
from tallystick.records import Judgement
from tallystick.roles.persist_log import pending_text
from tallystick.storage.files import FileSystem, read_source
from tallystick.systems.answers import Ground, judgement_of
from tallystick.systems.cloudtran.codes import CODES, REASONS
from tallystick.systems.cloudtran.format.entries import Entry, EntryKind, encode_entry
from tallystick.systems.cloudtran.format.file_names import parse_name
from tallystick.systems.cloudtran.format.high_water_mark import HighWaterMark
from tallystick.systems.cloudtran.format.layout import SYSTEM_NAME
from tallystick.systems.cloudtran.live.high_water_mark import read_mark, write_mark
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.cloudtran.live.state import LogState, OpenEntry
from tallystick.systems.cloudtran.read.block_order import BlockOccurrence, Opener, occurrences
from tallystick.systems.cloudtran.read.files import BlockFile
from tallystick.systems.cloudtran.read.header_repair import BlockFinder
from tallystick.systems.cloudtran.read.scan import FileScan
from tallystick.systems.cloudtran.runs.analysis import LogAnalysis, LogWarning, Loss
from tallystick.systems.cloudtran.verdict.findings import findings
from tallystick.systems.cloudtran.verdict.strict import judgement
from tallystick.systems.findings import FindingBuilder

_log = logger(__name__)


@dataclass(slots=True)
class Recovered:
    """The state of a log, and the numbers that it has used."""

    state: LogState
    mark: HighWaterMark
    """The numbers that are in use."""
    losses: list[Loss]
    warnings: list[LogWarning]
    judgement: Judgement
    """The answer about the log as it was found."""


def open_log(fs: FileSystem, folder: str, settings: LogSettings) -> Recovered:
    """Recover the log and store the mark of used numbers, durably.

    Raises:
        CorruptLogError: acknowledged blocks are lost and ``on_damage`` is ``stop``.
        IncompleteLogError: transactions are pending and ``on_incomplete`` is ``fail``.
    """
    if settings.zap_log_files:
        _zap(fs, folder, settings)
    found = recover(fs, folder, settings)
    if found.state.entries and settings.on_incomplete == "fail":
        raise IncompleteLogError(
            pending_text(list(found.state.entries)),
            file=folder,
            advice="Replay the log first: on_incomplete='replay', or the command tallystick replay",
        )
    for warning in found.warnings:
        _log.warning("%s at offset %d: %s", warning.name, warning.offset, warning.code)
    _make_durable(fs, folder, settings)
    write_mark(fs, folder, settings.file_base_name, found.mark)
    return found


def _make_durable(fs: FileSystem, folder: str, settings: LogSettings) -> None:
    """Sync what was read: a killed owner may have written it, and not synced."""
    for file in log_files(fs, folder, settings):
        with closing(fs.open(file.path, write=False)) as opened:
            opened.datasync()


def _zap(fs: FileSystem, folder: str, settings: LogSettings) -> None:
    """Delete the files, once the mark has the numbers that they have used."""
    files = log_files(fs, folder, settings)
    if not files:
        return
    used = recover(fs, folder, replace(settings, on_damage="report")).mark
    write_mark(fs, folder, settings.file_base_name, replace(used, kept=used.sequence + 1))
    for file in files:
        fs.remove(file.path)
    fs.sync_dir(folder)


def log_files(fs: FileSystem, folder: str, settings: LogSettings) -> tuple[BlockFile, ...]:
    """Return the log's files by serial; other files in the folder do not belong to it."""
    found = []
    for name in fs.list(folder):
        parsed = parse_name(name)
        if parsed is None or parsed.extension != settings.file_extension:
            continue
        if parsed.base == settings.file_base_name:
            found.append(BlockFile(posixpath.join(folder, name), name, parsed.serial))
    return tuple(sorted(found, key=lambda file: file.serial))


def recover(fs: FileSystem, folder: str, settings: LogSettings) -> Recovered:
    """Read all files; change nothing.

    Raises:
        CorruptLogError: acknowledged blocks are lost and ``on_damage`` is ``stop``.
    """
    files = log_files(fs, folder, settings)
    marked = read_mark(fs, folder, settings.file_base_name)
    analysis = LogAnalysis(files, marked)
    open_entries = _OpenEntries(analysis)
    for occurrence in occurrences(files, _opener(fs, settings)):
        analysis.add(occurrence)
        open_entries.add(occurrence)
    analysis.finish()
    analysis.size = fs.size(files[-1].path) if files else 0
    if analysis.losses and settings.on_damage == "stop":
        raise _damage(analysis, folder)
    sequence = max(marked.sequence, analysis.last_sequence)
    # Not the smallest: a file that repeats blocks may begin with one that the log does not have.
    first = next(iter(analysis.firsts.values()), sequence + 1)
    used = HighWaterMark(
        max(marked.serial, files[-1].serial if files else 0),
        sequence,
        max(marked.number, open_entries.greatest),
        max(marked.kept, first),
    )
    return Recovered(
        open_entries.state(),
        used,
        analysis.losses,
        analysis.warnings,
        _judged(analysis, folder),
    )


def notes_suffice(folder: str, fs: FileSystem) -> bool:
    """Return whether a log with the usual settings opens in a folder that has its mark alone."""
    try:
        recover(fs, folder, LogSettings())
    except CorruptLogError:
        return False
    return True


def _judged(analysis: LogAnalysis, folder: str) -> Judgement:
    """Return the answer about the files, by the rules of the reader, which sees no empty log."""
    mark = analysis.mark
    if not analysis.files and not mark.serial:
        text = "The log is new: no block was written before."
    elif not analysis.files and mark.kept > mark.sequence:
        text = "No file is left: the mark says that each was offered for disposal."
    else:
        build = FindingBuilder(SYSTEM_NAME, folder, CODES)
        return judgement(analysis, findings(analysis, build, {}))
    return judgement_of(REASONS, CODES, [Ground("last-block-whole", text)], ())


def _opener(fs: FileSystem, settings: LogSettings) -> Opener:
    @contextmanager
    def opened(file: BlockFile) -> Iterator[FileScan]:
        with read_source(fs, file.path) as source:
            yield FileScan(
                BlockFinder(
                    source.data,
                    settings.signature,
                    settings.disk_block_size,
                    settings.max_transaction_size,
                )
            )

    return opened


class _OpenEntries:
    """Keeps the entries of open transactions; the analysis decides which are open."""

    def __init__(self, analysis: LogAnalysis) -> None:
        self._analysis = analysis
        self._entries: dict[int, Entry] = {}
        self.greatest = 0

    def add(self, occurrence: BlockOccurrence) -> None:
        """Add the entries of the next block."""
        for placed in occurrence.block.entries if occurrence.block.readable else ():
            entry = placed.entry
            self.greatest = max(self.greatest, entry.number)
            if entry.kind is EntryKind.PERSISTING:
                self._entries.setdefault(entry.number, entry)
            if entry.number not in self._analysis.open:
                self._entries.pop(entry.number, None)

    def state(self) -> LogState:
        """Return the state after the last block."""
        analysis, state = self._analysis, LogState()
        damaged = {loss.file for loss in analysis.losses}
        for index, file in enumerate(analysis.files):
            lost = index in damaged
            state.add_file(file.serial, file.path, analysis.firsts.get(index), lost=lost)
        for number, one in sorted(analysis.open.items()):
            entry = self._entries[number]
            state.entries[number] = OpenEntry.of(entry, encode_entry(entry), one.pending)
            state.set_file(number, analysis.files[one.file].serial)
        return state


# -- errors ------------------------------------------------------------------------------


def _damage(analysis: LogAnalysis, folder: str) -> CorruptLogError:
    loss = analysis.losses[0]
    more = len(analysis.losses) - 1
    return CorruptLogError(
        f"acknowledged blocks are lost ({loss.state})"
        + (f", and {counted(more, 'more place')}" * (more > 0)),
        file=posixpath.join(folder, loss.name),
        offset=loss.offset,
        expected="every block readable",
        found=f"{loss.count if loss.count is not None else 'an unknown number of'} entries"
        + (f": {loss.suspects_text}" if loss.suspects_text else ""),
        advice="Copy the directory; then open it with on_damage='report' to go on without them",
    )
