"""The files that a live log writes: one open at a time, blocks in sequence, roll-over.

In: blocks without their place. Out: files as `format.layout` describes them. A write that fails
because the disk is full leaves the file as it was. After a failed sync the file is abandoned as it
is, and blocks that were never acknowledged go to the next file under the same numbers; a second
failure is raised.
"""

from __future__ import annotations

import posixpath
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tallystick.errors import LogFullError
from tallystick.refusals import SPACE_ERRORS, room_advice
from tallystick.storage.files import File, HeldFolder
from tallystick.storage.scheduling import time
from tallystick.systems.cloudtran.format.file_names import FileName
from tallystick.systems.cloudtran.format.layout import (
    CODEC_NONE,
    CODEC_ZLIB,
    PROLOGUE_SIZE,
    Prologue,
    block_length,
    encode_block,
    encode_data,
)
from tallystick.systems.cloudtran.live.settings import LogSettings


@dataclass(slots=True)
class ReadyBlock:
    """A block without its place: the bytes after the prologue, as they will be written."""

    count: int
    codec: int
    packed: bytes
    closing: bool = False
    serial: int = 0
    """Serial of the file that it was last written to."""

    @classmethod
    def of(cls, entries: bytes, count: int, *, compress: bool) -> ReadyBlock:
        """Return the block of these entries."""
        if compress:
            return cls(count, CODEC_ZLIB, zlib.compress(entries))
        return cls(count, CODEC_NONE, entries)

    @property
    def data_size(self) -> int:
        """Bytes of prologue and entries."""
        return PROLOGUE_SIZE + len(self.packed)


@dataclass(slots=True)
class FileSeries:
    """The current file and its successors. Not safe for several threads.

    Attributes:
        fs: the file system.
        folder: the folder of the log.
        settings: the settings of the log.
        next_serial: serial of the next file.
        sequence: sequence number of the next block.
        on_file: called with serial and path of each new file, and the sequence of its first block.
        on_durable: called with the serial of the current file and the sequence of the last block,
            which is durable: after the first sync of each file, and after its last.
        clock: seconds since 1970, for the names of files.
    """

    fs: HeldFolder
    folder: str
    settings: LogSettings
    next_serial: int
    sequence: int
    on_file: Callable[[int, str, int], None]
    on_durable: Callable[[int, int], None]
    clock: Callable[[], float] = time.time
    _file: File | None = None
    _serial: int = 0
    _end: int = 0
    _name_is_new: bool = False
    _is_noted: bool = False
    _unsynced: list[tuple[int, ReadyBlock]] | None = None

    def write(self, block: ReadyBlock) -> int:
        """Write a block and return its sequence number.

        Raises:
            LogFullError: the disk is full; nothing of the block is in the file.
            LogWriteError: another file is needed, and the folder was moved; the same.
            OSError: two files failed.
        """
        if self._file is not None and self._is_full(block):
            self.fs.require_in_place()
            self._roll()
        self._place(self.sequence, block)
        self.sequence += 1
        return self.sequence - 1

    def sync(self) -> None:
        """Make every block durable, in another file if this one fails.

        Raises:
            OSError: two files failed.
        """
        if self._file is None:
            return
        try:
            self._sync_file(self._file)
        except OSError:
            self._move_on()
        self._unsynced = []
        if not self._is_noted:
            self._note()

    def close(self) -> None:
        """End the current file with a closing block.

        Raises:
            OSError: two files failed.
        """
        if self._file is not None:
            self._finish_file(self._file)

    def drop(self) -> None:
        """Abandon the current file as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- placing -----------------------------------------------------------------------------

    def _is_full(self, block: ReadyBlock) -> bool:
        size = self.settings.disk_block_size
        # With its closing block, for which a file must always have room.
        lengths = block_length(block.data_size, size) + block_length(PROLOGUE_SIZE, size)
        # A block that is larger than a file may be has one of its own.
        return self._end > 0 and self._end + lengths > self.settings.file_size

    def _place(self, sequence: int, block: ReadyBlock) -> None:
        try:
            self._append(sequence, block)
        except OSError as error:
            self._after_failed_write(error)
            self._move_on()
            self._append(sequence, block)
        if self._unsynced is None:
            self._unsynced = []
        # Only now, as `_move_on` writes again all that stands in there.
        self._unsynced.append((sequence, block))

    def _append(self, sequence: int, block: ReadyBlock) -> None:
        file = self._file or self._create(sequence)
        prologue = Prologue(self._serial, sequence, block.codec, block.closing)
        data = encode_data(prologue, block.packed)
        settings = self.settings
        raw = encode_block(
            self._end, block.count, data, settings.disk_block_size, settings.signature
        )
        file.pwrite(raw, self._end)
        self._end += len(raw)
        block.serial = self._serial

    def _after_failed_write(self, error: OSError) -> None:
        """Cut off what may have been written; on a full disk the file stays in use."""
        if self._file is not None:
            try:
                self._file.truncate(self._end)
            except OSError:
                return
        if error.errno in SPACE_ERRORS:
            raise LogFullError(
                "no space for the log",
                file=self.folder,
                advice=f"{room_advice(error)}; waiting persisted entries are written then",
            ) from error
        if self._file is None:
            raise error

    def _create(self, first: int) -> File:
        self.fs.require_in_place()
        serial = self.next_serial
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.clock()))
        base, extension = self.settings.file_base_name, self.settings.file_extension
        path = posixpath.join(self.folder, str(FileName(base, serial, stamp, extension)))
        self._file = self.fs.create(path)
        self._serial, self.next_serial = serial, serial + 1
        self._end = 0
        self._name_is_new = True
        self._is_noted = False
        self.on_file(serial, path, first)
        return self._file

    # -- ending a file -----------------------------------------------------------------------

    def _roll(self) -> None:
        assert self._file is not None
        try:
            self._finish_file(self._file)
        except OSError:
            self._move_on()
        else:
            self._unsynced = []

    def _finish_file(self, file: File) -> None:
        closing = ReadyBlock(0, CODEC_NONE, b"", closing=True)
        end = self._end
        try:
            self._append(self.sequence, closing)
            # Not as a closing block, if it goes to the next file after all: its number has to be
            # there, as a gap is a loss to a reader.
            place = (self.sequence, ReadyBlock(0, CODEC_NONE, b""))
            self._unsynced = [*(self._unsynced or []), place]
            self.sequence += 1
        except OSError:
            # without its closing block the file looks like one that ended in a crash
            with suppress(OSError):
                file.truncate(end)
        self._sync_file(file)
        self._note()
        file.close()
        self._file = None

    def _move_on(self) -> None:
        """Abandon the current file; write blocks that are not known to be durable to a new one."""
        self.drop()
        # Under the numbers that they have: a reader takes an old number at the head of a file for a
        # repetition (format, Which header is right).
        repeated, self._unsynced = self._unsynced or [], []
        file = self._create(repeated[0][0] if repeated else self.sequence)
        for sequence, block in repeated:
            self._append(sequence, block)
        self._sync_file(file)

    def _note(self) -> None:
        """Say what is durable; without syncs nothing is."""
        if self.settings.sync != "none":
            self.on_durable(self._serial, self.sequence - 1)
        self._is_noted = True

    def _sync_file(self, file: File) -> None:
        if self.settings.sync == "none":
            return
        file.datasync()
        # Nothing in a new file is durable before its name is.
        if self._name_is_new or self.settings.sync == "full":
            self.fs.sync_dir(self.folder)
            self._name_is_new = False
