"""Split a journal into parts that can be read on their own.

In: the files of a journal, and the size of a part. Out: ranges of the files' bytes.
"""

from __future__ import annotations

from itertools import pairwise

from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.protocol import Split

PARTS_MAX = 8
"""Most parts of a file: each is scanned from the start of the file."""


def splits(journal: JournalFiles, target_bytes: int) -> list[Split]:
    """Return parts of the data files of about ``target_bytes``, in order of file ids.

    They are larger where a file would have more than `PARTS_MAX`.
    """
    parts = []
    for file in journal.ordered():
        size = file.size
        count = min(PARTS_MAX, max(1, round(size / max(1, target_bytes))))
        edges = [size * index // count for index in range(count + 1)]
        parts += [Split(file.path, *edge) for edge in pairwise(edges)]
    return parts
