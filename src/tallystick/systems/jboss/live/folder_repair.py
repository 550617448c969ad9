"""Putting a journal's folder right before it is used: every step may be interrupted and done again.

In: a folder on a `FileSystem`, and what a load found in it. Out: the folder without leftovers.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from tallystick.records import Outcome
from tallystick.storage.files import FileSystem, read_source
from tallystick.systems.jboss.format.compaction_control import (
    COMPACTED,
    TEMPORARY,
    Control,
    decode_control,
)
from tallystick.systems.jboss.format.layout import CONTROL_FILE
from tallystick.systems.jboss.read.analysis import FileReading


def finish_compaction(fs: FileSystem, folder: str) -> None:
    """Carry out the control file if there is one; remove leftovers of what never counted."""
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
    """Delete the old files, put the new ones in place; may be interrupted and done again."""
    for name in control.old:
        if fs.exists(posixpath.join(folder, name)):
            fs.remove(posixpath.join(folder, name))
    moves = [(name, name.removesuffix(COMPACTED)) for name in control.new]
    for source, target in (*moves, *control.renames):
        if fs.exists(posixpath.join(folder, source)):
            fs.rename(posixpath.join(folder, source), posixpath.join(folder, target))
    fs.sync_dir(folder)


def wipe(fs: FileSystem, reading: FileReading) -> list[tuple[str, int, int]]:
    """Overwrite what was torn in the last file with zeros, durably."""
    torn = [one for one in reading.judged if one.outcome in (Outcome.TORN, Outcome.CORRUPT)]
    if not torn:
        return []
    handle = fs.open(reading.file.path)
    try:
        for one in torn:
            handle.pwrite(bytes(one.row.size), one.row.offset)
        handle.datasync()
    finally:
        handle.close()
    return [(reading.file.path, one.row.offset, one.row.size) for one in torn]


def remove_short(fs: FileSystem, folder: str, paths: Sequence[str]) -> None:
    """Remove files that are shorter than a header, as Artemis does: they hold nothing."""
    for path in paths:
        fs.remove(path)
    if paths:
        fs.sync_dir(folder)


def set_aside(fs: FileSystem, folder: str, names: Sequence[str]) -> None:
    """Move free files of the wrong size out of the way, into ``attic``."""
    if not names:
        return
    attic = posixpath.join(folder, "attic")
    fs.mkdir(attic)
    for name in names:
        fs.rename(posixpath.join(folder, name), posixpath.join(attic, name))
    fs.sync_dir(attic)
    fs.sync_dir(folder)
