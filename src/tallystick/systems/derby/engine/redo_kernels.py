"""Compiled redo of plain records: the table of open transactions and the versions of pages.

In: columns of `runs.walk`, and two hash tables. Out: the tables, and the row at
which something is left to the caller. A table is an array with a row for each slot; a slot is found
by linear probing, and no table is more than half full.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.arrow.byte_kernels import Number
from tallystick.arrow.numba_kernel import kernel, small_kernel
from tallystick.systems.derby.engine.page_versions import COUNTED, CUT, CUTTING, UNDONE
from tallystick.systems.derby.format import layout, operations
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.operations import CHECKED_FLAGS, OPERATIONS, flags_of
from tallystick.systems.derby.runs import walk

Table = NDArray[np.int64]
Flags = NDArray[np.int64]

NUMBER, FIRST, LAST, INTERNAL, XID, PREPARED, RECORDS = range(7)
"""Columns of the table of transactions. XID is the instant of the XA format id, or -1."""
TRANSACTION_COLUMNS = 7
PAGE_VERSION, PAGE_PLACE, PAGE_FIRST, PAGE_BITS = 3, 4, 5, 6
"""Columns of the table of pages, after segment, container and number of the page: as
`PageVersions.versions` has them."""
PAGE_COLUMNS = 7
FREE = -1
"""In the first column: the slot is free."""

OPEN, PAGES, REDONE, HIGHEST = range(4)
"""Numbers that the kernel counts: slots in use of both tables, records redone, and the highest
number of a transaction that begins."""
COUNTERS = 4

DONE, GROW, GAP, NOTE, LEFT = range(5)
"""Why a kernel stopped: at the end; before a row that needs larger tables; after a row with a gap
between the versions of a page, or one that `PageVersions` has to take; before one that is no plain
case."""

STATUS_MAX = 5
_CHECKED = int(CHECKED_FLAGS)
_FIRST, _LAST, _PREPARE = int(Group.FIRST), int(Group.LAST), int(Group.PREPARE)
_ENDS = _LAST | _PREPARE
_VERSION_MAX = 1 << 62
_MIX, _SHIFT, _KEY_MASK = 0x1E3779B1, 20, 0xFFFFFFFF
"""A product of a masked key and the factor fits 64 bits."""


def _flags() -> Flags:
    table = np.zeros((max(OPERATIONS) + 1, STATUS_MAX), np.int64)
    for number in OPERATIONS:
        table[number] = [int(flags_of(number, status)) for status in range(STATUS_MAX)]
    return table


FLAGS = _flags()
"""The flags that a record has, by operation and status of an end."""
_COUNTED = tuple(COUNTED)
NOTED = operations.CONTAINER_CHANGE, operations.CONTAINER_UNDO, operations.ENCRYPT_CONTAINER


def new_table(columns: int, slots: int) -> Table:
    """Make an empty hash table; the number of slots is a power of two."""
    return np.full((slots, columns), FREE, np.int64)


@kernel
def redo_rows(
    columns: walk.Columns,
    row: Number,
    base: Number,
    redo_mark: Number,
    creating: Number,
    flags: Flags,
    table: Table,
    pages: Table,
    counters: Table,
    gap: Table,
) -> tuple[Number, Number]:
    """Redo rows from ``row`` on, as `engine.recovery` does.

    Args:
        columns: the records of one file.
        row: the first row that was not taken.
        base: the instant of the file's begin.
        redo_mark: the instant before which only the table is kept, or 0.
        creating: not 0 while a transaction that created or encrypted a container is open: its end
            is noted.
        flags: `FLAGS`.
        table: the open transactions.
        pages: the versions of pages.
        counters: array of `COUNTERS` numbers.
        gap: array of two numbers: takes version and place of the earlier change of a page.

    Returns:
        The next row that was not taken, and why it stopped.
    """
    while row < columns.shape[1]:
        if 2 * counters[OPEN] >= len(table) or 2 * counters[PAGES] >= len(pages):
            return row, GROW
        how = _redo(columns, row, base, redo_mark, creating, flags, table, pages, counters, gap)
        if how == LEFT:
            return row, LEFT
        row += 1
        if how != DONE:
            return row, how
    return row, DONE


@kernel
def note_pages(
    columns: walk.Columns,
    row: Number,
    base: Number,
    redo_mark: Number,
    pages: Table,
    counters: Table,
    gap: Table,
) -> tuple[Number, Number]:
    """Note the versions of pages from ``row`` on, all else as `redo_rows` does."""
    while row < columns.shape[1]:
        if 2 * counters[PAGES] >= len(pages):
            return row, GROW
        redone = (base | columns[walk.OFFSET, row]) >= redo_mark and columns[walk.SEGMENT, row] >= 0
        row += 1
        if redone and _has_gap(columns, row - 1, base, pages, counters, gap):
            return row, GAP
    return row, DONE


@small_kernel
def _redo(
    columns: walk.Columns,
    row: Number,
    base: Number,
    redo_mark: Number,
    creating: Number,
    flags: Flags,
    table: Table,
    pages: Table,
    counters: Table,
    gap: Table,
) -> Number:
    """Redo one row; return `LEFT` if it was not taken, else `DONE`, or why to stop after it."""
    if columns[walk.OPERATION, row] == layout.CHECKSUM_OPERATION:
        return DONE
    early = (base | columns[walk.OFFSET, row]) < redo_mark
    group = columns[walk.GROUP, row]
    noted = columns[walk.OPERATION, row] in NOTED
    if early and not group & (_ENDS | _FIRST):
        return NOTE if noted else DONE
    slot = find(table, columns[walk.TRANSACTION, row])
    known = table[slot, NUMBER] != FREE
    # It began before the first record that a boot reads: there is nothing to take out.
    if not known and early and group & _ENDS:
        return DONE
    if not _fits(columns, row, known, flags):
        return LEFT
    _keep(columns, row, base, table, slot, known, counters)
    counters[REDONE] += 0 if early else 1
    if columns[walk.SEGMENT, row] >= 0 and _has_gap(columns, row, base, pages, counters, gap):
        return GAP
    return NOTE if noted or (creating and group & _LAST) else DONE


@kernel
def _fits(columns: walk.Columns, row: Number, known: Number, flags: Flags) -> bool:
    """Return whether a record can come next: its transaction is open, or it begins one."""
    group = columns[walk.GROUP, row]
    begins = group & _FIRST != 0
    # A second begin, or a record of an unknown transaction: no boot, which is said record by
    # record.
    if columns[walk.TRANSACTION, row] < 0 or begins == known:
        return False
    operation = columns[walk.OPERATION, row]
    status = columns[walk.FLAG, row] if operation == operations.END else 0
    # A version near 2^63 would overflow when the number of rows is added to it.
    if status < 0 or status >= flags.shape[1] or columns[walk.VERSION, row] >= _VERSION_MAX:
        return False
    return bool(group & _CHECKED == flags[operation, status])


@kernel
def _keep(
    columns: walk.Columns,
    row: Number,
    base: Number,
    table: Table,
    slot: Number,
    known: Number,
    counters: Table,
) -> None:
    """Take a record into the table of open transactions."""
    place = base | columns[walk.OFFSET, row]
    if not known:
        number = columns[walk.TRANSACTION, row]
        xid = columns[walk.GLOBAL_ID, row]
        table[slot, NUMBER] = number
        table[slot, FIRST] = place
        table[slot, INTERNAL] = columns[walk.FLAG, row] == operations.STATUS_INTERNAL
        table[slot, XID] = -1 if xid < 0 else base | xid
        table[slot, PREPARED] = 0
        table[slot, RECORDS] = 0
        counters[OPEN] += 1
        counters[HIGHEST] = max(counters[HIGHEST], number)
    table[slot, LAST] = place
    table[slot, RECORDS] += 1
    if columns[walk.GROUP, row] & _PREPARE:
        table[slot, PREPARED] = 1
    if columns[walk.GROUP, row] & _LAST:
        remove(table, slot)
        counters[OPEN] -= 1


@kernel
def _has_gap(
    columns: walk.Columns, row: Number, base: Number, pages: Table, counters: Table, gap: Table
) -> bool:
    """Note the version of a page; return whether some are missing before it."""
    segment, container, page = (
        columns[walk.SEGMENT, row],
        columns[walk.CONTAINER, row],
        columns[walk.PAGE, row],
    )
    version = columns[walk.VERSION, row]
    slot = find_page(pages, segment, container, page)
    missing = False
    if pages[slot, 0] == FREE:
        pages[slot, 0] = segment
        pages[slot, 1] = container
        pages[slot, 2] = page
        pages[slot, PAGE_FIRST] = version
        pages[slot, PAGE_BITS] = 0
        counters[PAGES] += 1
    elif version > pages[slot, PAGE_VERSION]:
        gap[0] = pages[slot, PAGE_VERSION]
        gap[1] = pages[slot, PAGE_PLACE]
        missing = True
    counted = columns[walk.OPERATION, row] in _COUNTED
    pages[slot, PAGE_VERSION] = version + (columns[walk.COUNT, row] if counted else 1)
    pages[slot, PAGE_PLACE] = base | columns[walk.OFFSET, row]
    # Undone means: the last change of the page was an undo. The cut stays for ever.
    bits = pages[slot, PAGE_BITS] & ~UNDONE
    if columns[walk.OPERATION, row] == operations.PHYSICAL_UNDO:
        bits |= UNDONE
    if columns[walk.OPERATION, row] in CUTTING:
        bits |= CUT
    pages[slot, PAGE_BITS] = bits
    return missing


@kernel
def find(table: Table, number: Number) -> Number:
    """Return the slot of a transaction, or the free one that it would take."""
    mask = len(table) - 1
    slot = (((number & _KEY_MASK) * _MIX) >> _SHIFT) & mask
    while table[slot, NUMBER] != FREE and table[slot, NUMBER] != number:
        slot = (slot + 1) & mask
    return slot


@kernel
def find_page(pages: Table, segment: Number, container: Number, page: Number) -> Number:
    """Return the slot of a page, or the free one that it would take."""
    mask = len(pages) - 1
    key = (page ^ (container << 7) ^ segment) & _KEY_MASK
    slot = ((key * _MIX) >> _SHIFT) & mask
    while pages[slot, 0] != FREE and (
        pages[slot, 2] != page or pages[slot, 1] != container or pages[slot, 0] != segment
    ):
        slot = (slot + 1) & mask
    return slot


@kernel
def remove(table: Table, slot: Number) -> None:
    """Free a slot, and move up those that were only after it because it was taken."""
    # No tombstones: a log of millions of transactions would fill the table with them.
    mask = len(table) - 1
    # Every later slot up to the next free one may hold a number that was pushed on by this one.
    table[slot, NUMBER] = FREE
    at = (slot + 1) & mask
    while table[at, NUMBER] != FREE:
        home = (((table[at, NUMBER] & _KEY_MASK) * _MIX) >> _SHIFT) & mask
        # Its own slot is not between the free one and here, so a search for it passes the free one.
        if (at - home) & mask >= (at - slot) & mask:
            for column in range(table.shape[1]):
                table[slot, column] = table[at, column]
            table[at, NUMBER] = FREE
            slot = at
        at = (at + 1) & mask


@kernel
def move_transactions(old: Table, new: Table) -> None:
    """Copy a table into a larger one that is empty."""
    for slot in range(len(old)):
        if old[slot, NUMBER] != FREE:
            to = find(new, old[slot, NUMBER])
            for column in range(old.shape[1]):
                new[to, column] = old[slot, column]


@kernel
def move_pages(old: Table, new: Table) -> None:
    """Copy a table of pages into a larger one that is empty."""
    for slot in range(len(old)):
        if old[slot, 0] != FREE:
            to = find_page(new, old[slot, 0], old[slot, 1], old[slot, 2])
            for column in range(old.shape[1]):
                new[to, column] = old[slot, column]
