"""Starting a live block log: throwing it away if that is wanted, recovery, the high-water mark.

In: a folder and its settings. Out: what recovery found, with everything that refuses a start told
as an error; and entries encoded within the limits of the settings.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tallystick.errors import (
    IncompleteLogError,
    LogFormatError,
    LogWriteError,
    RecordTooLargeError,
)
from tallystick.storage.files import FileSystem
from tallystick.systems.cloudtran.format.entries import Entry, encode_entry
from tallystick.systems.cloudtran.live import high_water_mark as mark
from tallystick.systems.cloudtran.live.recovery import Recovered, log_parts, recover
from tallystick.systems.cloudtran.live.settings import LogSettings

NUMBERS_SHOWN_MAX = 20

_log = logging.getLogger(__name__)


def start(fs: FileSystem, folder: str, settings: LogSettings) -> Recovered:
    """What the log holds; the mark of used numbers is durable.

    Raises `CorruptLogError` where acknowledged blocks are lost and ``on_damage`` is ``stop``, and
    `IncompleteLogError` where transactions are pending and ``on_incomplete`` is ``fail``.
    """
    if settings.zap_log_files:
        _zap(fs, folder, settings)
    found = recover(fs, folder, settings)
    if found.state.entries and settings.on_incomplete == "fail":
        raise incomplete(folder, list(found.state.entries))
    for remark in found.remarks:
        _log.warning("%s at offset %d: %s", remark.name, remark.offset, remark.code)
    used = mark.Mark(found.serial - 1, found.sequence - 1, found.number - 1)
    mark.write(fs, folder, settings.file_base_name, used)
    return found


def _zap(fs: FileSystem, folder: str, settings: LogSettings) -> None:
    for part in log_parts(fs, folder, settings):
        fs.remove(part.path)
    fs.sync_dir(folder)


def encoded_entry(entry: Entry, settings: LogSettings, folder: str) -> bytes:
    """The bytes of an entry. Raises `LogWriteError` and `RecordTooLargeError`."""
    try:
        encoded = encode_entry(entry)
    except (LogFormatError, UnicodeEncodeError) as error:
        raise LogWriteError(f"not a transaction that this log can hold: {error}") from error
    if len(encoded) > settings.entry_size_max:
        raise RecordTooLargeError(
            "the transaction is larger than max_transaction_size allows",
            file=folder,
            expected=f"at most {settings.entry_size_max} bytes",
            found=f"{len(encoded)} bytes",
        )
    return encoded


def incomplete(folder: str, numbers: Sequence[int]) -> IncompleteLogError:
    """The error that names pending transactions."""
    shown = ", ".join(map(str, numbers[:NUMBERS_SHOWN_MAX]))
    more = len(numbers) - NUMBERS_SHOWN_MAX
    return IncompleteLogError(
        f"{len(numbers)} transactions have not reached all of their targets: {shown}"
        + (f" and {more} more" if more > 0 else ""),
        file=folder,
        advice="Replay the log first: on_incomplete='replay', or the command tallystick replay",
    )
