"""An online backup: the pages as of a checkpoint, copied to a new folder.

In: the page file, which does not change meanwhile. Out: a folder that `PageStore` opens. It has no
log yet; a mark file says that this is intended. The mark is written first: a mark without pages is
an unfinished backup, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tallystick.roles.page_store_files import BACKUP_MARK, BACKUP_TEXT, PAGES
from tallystick.storage.files import File, FileSystem, write_whole

_COPY_BYTES = 1 << 20


def copy_pages(file: File, fs: FileSystem, target: Path) -> None:
    """Copy all pages of ``file`` to the folder ``target``, which is absent or empty."""
    fs.mkdir(str(target))
    write_whole(fs, str(target / BACKUP_MARK), [BACKUP_TEXT])
    write_whole(fs, str(target / PAGES), _chunks(file))


def _chunks(file: File) -> Iterator[bytes]:
    offset = 0
    while chunk := file.pread(_COPY_BYTES, offset):
        yield chunk
        offset += len(chunk)
