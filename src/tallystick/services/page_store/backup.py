"""An online backup: the pages as of a checkpoint, in a folder of their own.

In: the page file, whose pages stay as they are meanwhile. Out: a folder that `PageStore`
opens; it has no log yet, and a mark says that this is meant. The mark is there first: a
mark without pages is a backup that was never finished, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tallystick.errors import LogWriteError
from tallystick.storage.files import File, FileSystem, write_whole

PAGES = "pages"
BACKUP_MARK = "backup"
_PIECE = 1 << 20


def copy_pages(file: File, fs: FileSystem, target: Path) -> None:
    """Copy all pages. Raises `LogWriteError` if the target holds a store already."""
    fs.mkdir(str(target))
    if fs.exists(str(target / PAGES)):
        raise LogWriteError("there is a page store already", file=str(target))
    write_whole(fs, str(target / BACKUP_MARK), [b"pages without a log\n"])
    write_whole(fs, str(target / PAGES), _pieces(file))


def _pieces(file: File) -> Iterator[bytes]:
    place = 0
    while piece := file.pread(_PIECE, place):
        yield piece
        place += len(piece)
