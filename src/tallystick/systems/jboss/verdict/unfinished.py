"""Whether it is known what a load makes of a compaction, or a file, that a crash left unfinished.

In: `JournalFiles`. Out: what is not known, in words. A compaction writes and syncs its files, then
a control file that orders the replacement; the old files are deleted after that, the new ones get
their names, and the control file goes last. So a load has all records either way: without a whole
control file the old files are there, with one the new ones. A file is filled and gets its header
before it gets its name, and holds no records until then. Source: docs/formats/jboss.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.storage.source import logical_name
from tallystick.systems.jboss.format.compaction_control import Control
from tallystick.systems.jboss.format.file_names import COMPACTED, TEMPORARY
from tallystick.systems.jboss.format.layout import CONTROL_FILE, decode_header, is_filled
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.read.generations import shape_of_file


def undecided(journal: JournalFiles) -> str:
    """Return what of the leftovers of a crash may hold records that a load drops, or nothing."""
    paths = {logical_name(path): path for path in journal.leftovers}
    if journal.control is not None:
        return _not_there(journal, journal.control)
    if CONTROL_FILE in paths and not any(name.endswith(COMPACTED) for name in paths):
        return f"{CONTROL_FILE} is not whole, and no file of a compaction is there"
    copied = [path for name, path in paths.items() if name.endswith(COMPACTED)]
    if (first := _first_id(journal, copied)) and all(one.file_id != first for one in journal.files):
        return f"A compaction replaces the files from id {first} on, and that file is gone"
    created = (name for name in paths if name.endswith(TEMPORARY))
    used = next((name for name in created if not _is_empty(journal, paths[name])), "")
    return used and f"{used} holds more than a file that is being created"


def _not_there(journal: JournalFiles, control: Control) -> str:
    """Return which file a whole control file orders to use, and is not there."""
    names = {one.name for one in journal.files}
    gone = next((name for _, name in control.moves() if name not in names), "")
    return gone and f"The compaction has made {gone}, and that file is gone"


def _first_id(journal: JournalFiles, paths: Iterable[str]) -> int:
    """Return the id of the first file that a compaction replaces; 0 if none says it."""
    heads = [journal.sources.head(path) for path in paths]
    shapes = [(shape_of_file(journal.generation, head), head) for head in heads]
    written = [(shape, head) for shape, head in shapes
               if len(head) >= shape.header_size and head.strip(head[:1])]  # fmt: skip
    return min((decode_header(shape, head).file_id for shape, head in written), default=0)


def _is_empty(journal: JournalFiles, path: str) -> bool:
    """Return whether a file holds nothing but its fill after what may be its header."""
    data = journal.sources.data(path)
    begin = shape_of_file(journal.generation, journal.sources.head(path)).header_size
    return is_filled(data, begin, len(data))
