"""The records of sessions as transactions, as a compiled kernel.

In: the table that `walk.walk` fills. Out: which transaction each record is of, and
figures of each transaction. Import this module only where a log is long: it loads the compiler.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.runs.walk import CODE, LENGTH

# Rows of the table of figures, by number.
SLOT, RECORDS, BYTES, CHANGES, PREPARED_AT, LAST, END = range(7)
FIGURES = 7
"""``SLOT``: the number of its session among those of the chunk. ``RECORDS``, ``BYTES``,
``CHANGES``: how much it has so far, earlier chunks included. ``PREPARED_AT``: how many changes come
before its last prepare record. ``LAST``, ``END``: the place in the chunk of its last record that is
no change, and of the one that ends it. -1 stands for none.
"""
NONE = -1

_ADD, _TRUNCATE, _PREPARE, _COMMIT = map(
    int, (Type.ADD, Type.TRUNCATE, Type.PREPARE_COMMIT, Type.COMMIT)
)


@kernel
def number_transactions(
    table: Any, slots: Any, carried: Any, current: Any, numbers: Any, found: Any
) -> int:
    """Give each record of a session the number of its transaction; return how many there are.

    Args:
        table: a column for each record, as `walk.walk` fills it.
        slots: for each record the column of its session in ``carried``, -1 for none.
        carried: the figures of what is open before the first record; the first transaction of a
            session begins with them, and they are set back.
        current: scratch, one item for each column of ``carried``, all -1.
        numbers: takes the number of the transaction of each record, -1 for none.
        found: takes the figures of each transaction, a column for each.
    """
    count = 0
    for row in range(len(slots)):
        slot = slots[row]
        numbers[row] = NONE
        if slot < 0:
            continue
        number = current[slot]
        if number < 0:
            number = count
            count += 1
            current[slot] = number
            _begin(carried, slot, found, number)
        numbers[row] = number
        found[RECORDS, number] += 1
        found[BYTES, number] += table[LENGTH, row]
        code = table[CODE, row]
        if _ADD <= code <= _TRUNCATE:  # the numbers of the types of changes follow each other
            found[CHANGES, number] += 1
            continue
        found[LAST, number] = row
        if code == _PREPARE:
            found[PREPARED_AT, number] = found[CHANGES, number]
        # A ROLLBACK is written over the last prepare record of a transaction. If an earlier one is
        # left, the transaction is in doubt again, and does not end here.
        elif code == _COMMIT or found[PREPARED_AT, number] < 0:
            found[END, number] = row
            current[slot] = NONE
    return count


@kernel
def _begin(carried: Any, slot: int, found: Any, number: int) -> None:
    """Begin a transaction with what its session carries, which is then taken."""
    found[SLOT, number] = slot
    for figure in (RECORDS, BYTES, CHANGES):
        found[figure, number] = carried[figure, slot]
        carried[figure, slot] = 0
    found[PREPARED_AT, number] = carried[PREPARED_AT, slot]
    carried[PREPARED_AT, slot] = NONE
    found[LAST, number] = NONE
    found[END, number] = NONE
