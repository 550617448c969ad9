"""Parts of files that can be read on their own, found by the signature.

In: the files of a log, a function that opens one, and a size. Out: `Split`s that begin at blocks
which their header, a second copy and the prologue all confirm. Only the surroundings of the wanted
offsets are read; packed files, and files whose beginning is damaged, stay whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.systems.cloudtran.format.layout import Prologue
from tallystick.systems.cloudtran.read.block_order import Opener
from tallystick.systems.cloudtran.read.files import ANY_SERIAL, BlockFile
from tallystick.systems.cloudtran.read.header_repair import signature_places
from tallystick.systems.cloudtran.read.scan import FileScan
from tallystick.systems.protocol import Split


def find_splits(files: Iterable[BlockFile], opened: Opener, target_bytes: int) -> list[Split]:
    """Return splits of about ``target_bytes``; together they give every record once."""
    found: list[Split] = []
    for file in files:
        with opened(file) as scan:
            size = len(scan.data)
            packed = not file.path.endswith(file.name)
            starts = [0] if packed else [0, *_starts(scan, file, max(1, target_bytes))]
        ends = [*starts[1:], size]
        found += [
            Split(file.path, begin, end)
            for begin, end in zip(starts, ends, strict=True)
            if begin < end
        ]
    return found


def _starts(scan: FileScan, file: BlockFile, target_bytes: int) -> Iterator[int]:
    head = scan.head_at(0)
    if head is None or file.serial not in (ANY_SERIAL, head[0].serial):
        return
    before, wished = head[0], target_bytes
    while wished < len(scan.data):
        found = _block_from(scan, wished, before)
        if found is None:
            return
        place, before = found
        yield place
        wished = place + target_bytes


def _block_from(scan: FileScan, wished: int, before: Prologue) -> tuple[int, Prologue] | None:
    """Return the first block from ``wished`` on that continues the life of the one before."""
    for place in signature_places(scan.data, scan.finder.signature, wished):
        head = scan.head_at(place)
        if head is None or place % scan.finder.block_size:
            continue
        prologue, _ = head
        # Blocks of an earlier life of the file have another serial, or sequences that are not
        # above.
        if prologue.serial == before.serial and prologue.sequence > before.sequence:
            return place, prologue
    return None
