"""Parts of files that can be read on their own: they begin at whole records.

In: the files of a journal, and a size. Out: `Split`s. Only the surroundings of the wanted offsets
are read; packed files stay whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.storage.source import PACKINGS, open_source
from tallystick.systems.bitronix.read.search import RecordSearch
from tallystick.systems.protocol import Split
from tallystick.systems.protocol.reading import END


def find_splits(paths: Iterable[str], target_bytes: int) -> list[Split]:
    """Return splits of about ``target_bytes``; together they give every record once.

    Raises:
        LogUnreadableError: a file cannot be read.
    """
    found = []
    for path in paths:
        starts = [0] if path.endswith(PACKINGS) else [0, *_starts(path, max(1, target_bytes))]
        ends = [*starts[1:], END]
        found += [Split(path, *edges) for edges in zip(starts, ends, strict=True)]
    return found


def _starts(path: str, target_bytes: int) -> Iterator[int]:
    with open_source(path) as opened:
        search, place = RecordSearch(opened.data), target_bytes
        while place < opened.size:
            found = search.next_record(place, opened.size)
            if found is None:
                return
            yield found
            place = found + target_bytes
