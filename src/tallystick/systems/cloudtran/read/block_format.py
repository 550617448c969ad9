"""Infer what no file states: the signature of the block headers and the disk block size.

In: the bytes of files, or of their beginnings. Out: the signature, or the block size in bytes that
matches the positions of the headers; None where there are no headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tallystick.storage.source import ByteSource
from tallystick.systems.cloudtran.format import layout
from tallystick.systems.cloudtran.read.header_repair import BlockFinder, signature_places
from tallystick.systems.cloudtran.read.scan import BlockState, FileScan

TRIAL_BYTES_MAX = 32 << 20
"""Bytes of a file, from its first damage on, by which disk block sizes are compared."""
_AFTER_A_CRASH = frozenset((BlockState.OK, BlockState.UNFINISHED, BlockState.TORN))


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """What a reader must know and the files do not state.

    Attributes:
        signature: the 64 bytes at the start of each header.
        block_size: the disk block size in bytes.
        unpacked_max: bytes that the entries of one block may unpack to.
        open_sizes: the block sizes between which damaged files do not decide.
    """

    signature: bytes
    block_size: int
    unpacked_max: int
    open_sizes: tuple[int, ...] = ()


# -- signature ---------------------------------------------------------------------------


def find_signature(sources: Iterable[ByteSource]) -> bytes | None:
    """Return the signature of the files, or of their beginnings; None where no file shows one.

    It is ours, or one learned from the first file that has another.
    """
    for source in sources:
        data = source.data
        if data[: layout.SIGNATURE_SIZE] == layout.SIGNATURE:
            return layout.SIGNATURE
        if may_be_foreign(bytes(data[: layout.HEADER_SIZE + layout.PROLOGUE_SIZE])):
            learned = learned_signature(data)
            if learned is not None:
                return learned
    return None


def may_be_foreign(head: bytes) -> bool:
    """Return whether the first bytes can be a header with another signature.

    Cheap: it compares every field of a first header that has a known value.
    """
    header = layout.parse_header(head, 0)
    return (
        header is not None
        and len(head) >= layout.HEADER_SIZE + layout.PROLOGUE_SIZE
        and header.offset == 0
        # The field has eight bytes, a CRC-32 only four: random bytes pass here once in 2^32 times.
        and header.crc < 1 << 32
        and header.size >= layout.PROLOGUE_SIZE
        and head[layout.HEADER_SIZE] == layout.VERSION
    )


def learned_signature(data: memoryview) -> bytes | None:
    """Return the first 64 bytes if they start a block whose data and second header match."""
    header = layout.parse_header(data, 0)
    if header is None or header.offset != 0:
        return None
    finder = BlockFinder(data, header.signature, layout.BLOCK_SIZES[0])
    if finder.verify(0, header.size, header.crc) is None or not _recurs(data, header):
        return None
    return header.signature


def _recurs(data: memoryview, header: layout.Header) -> bool:
    places = [layout.HEADER_SIZE + header.size]
    places += [
        layout.block_length(header.size, size) - layout.HEADER_SIZE for size in layout.BLOCK_SIZES
    ]
    return any(layout.parse_header(data, place) == header for place in places)


# -- disk block size ---------------------------------------------------------------------


@dataclass(slots=True)
class SizeTrial:
    """Finds the disk block size by trial, file by file.

    A block whose two headers are equal rules out every size that does not place both there. Where
    several sizes are left after the last file, it matters only what follows the first block whose
    headers do not agree (damage, or the end that a crash left): the size is taken under which most
    blocks are readable and fewest are damaged, or of equal ones the first to be tried.

    Attributes:
        signature: the 64 bytes at the start of each header.
        left: the sizes that nothing has ruled out.
        faults: by size: unreadable blocks (as a negative number of readable ones), damaged ones.
    """

    signature: bytes
    left: tuple[int, ...] = layout.BLOCK_SIZES
    faults: dict[int, tuple[int, int]] = field(
        default_factory=lambda: dict.fromkeys(layout.BLOCK_SIZES, (0, 0))
    )

    @property
    def decided(self) -> bool:
        """Whether one size is left."""
        return len(self.left) == 1

    @property
    def size(self) -> int:
        """The size that explains most."""
        return min(self.left, key=lambda size: self.faults[size])

    @property
    def open_sizes(self) -> tuple[int, ...]:
        """The sizes between which the bytes do not decide, and under each of which some is damaged.

        Empty where one size is left, or a size under which all files are whole.
        """
        return () if self.decided or not self.faults[self.size][1] else self.left

    def follow(self, data: memoryview, *, judge: bool) -> None:
        """Rule out sizes by the blocks of a file, until one is left.

        With ``judge`` the sizes that are left at its end are compared by what they make of the
        rest of the file; not to be asked for the mere beginning of a file.
        """
        place: int | None = 0
        unexplained = None
        while place is not None and not self.decided:
            length = self._block_at(data, place)
            if length:
                place += length
                continue
            if unexplained is None:
                unexplained = place
            place = self._next_block(data, place + 1)
        if judge and not self.decided and unexplained is not None:
            # Cut at the end only, as headers name their offset in the file. Blocks before the first
            # unexplained place fit each size that is left: counting them would change no
            # comparison.
            self._judge(data[: unexplained + TRIAL_BYTES_MAX], unexplained)

    def _block_at(self, data: memoryview, place: int) -> int:
        """Return the length of a block with two equal headers and rule out sizes; 0 if none."""
        header = layout.parse_header(data, place)
        if header is None or header.signature != self.signature or header.offset != place:
            return 0
        lengths = {size: layout.block_length(header.size, size) for size in self.left}
        fitting = tuple(
            size
            for size, length in lengths.items()
            if place % size == 0
            and layout.parse_header(data, place + length - layout.HEADER_SIZE) == header
        )
        if not fitting:
            return 0
        self.left = fitting
        return lengths[fitting[0]]

    def _next_block(self, data: memoryview, start: int) -> int | None:
        for place in signature_places(data, self.signature, start):
            if self._block_at(data, place):
                return place
        return None

    def _judge(self, data: memoryview, start: int) -> None:
        for size in self.left:
            readable, damaged = self.faults[size]
            for block in FileScan(BlockFinder(data, self.signature, size)).blocks(start):
                # Negative, so that `min` over the pairs prefers more readable blocks, then fewer
                # damaged ones.
                readable -= block.readable
                # An unfinished or torn end is normal after a crash and speaks against no size.
                damaged += block.state not in _AFTER_A_CRASH
            self.faults[size] = readable, damaged
