"""The records of sessions as transactions, as a compiled kernel.

In: the table that `record_kernels.walk` fills. Out: which transaction each record is of, and
figures of each transaction; or only what each session has open, and how many have ended. Import
this module only where a log is long: it loads the compiler.
"""

from __future__ import annotations

from typing import Any

from tallystick.arrow.numba_kernel import kernel
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.format.record_kernels import CODE, LENGTH, SESSION, START

# Rows of the table of figures, by number.
SLOT, RECORDS, BYTES, CHANGES, PREPARED_AT, LAST, END = range(7)
FIGURES = 7
"""``LAST``: the row of its last record that is no change; ``END``: of the one that ends it.

``PREPARED_AT``: how many changes come before the last prepare record. -1 stands for none.
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

    ``slots`` has the place of the session of each record in ``carried``, -1 for none; ``carried``
    the figures of what is open before the first record, ``current`` is scratch, all -1.
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
        if _ADD <= code <= _TRUNCATE:
            found[CHANGES, number] += 1
            continue
        found[LAST, number] = row
        if code == _PREPARE:
            found[PREPARED_AT, number] = found[CHANGES, number]
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


# -- what sessions have open ----------------------------------------------------------------

# Columns of the table of what sessions have open, a row for each session, all 0 if nothing.
OPEN_RECORDS, OPEN_BYTES, OPEN_CHANGES, OPEN_PREPARED, OPEN_BEGIN, OPEN_LAST, OPEN_NAMES = range(7)
OPEN_NAME = 7
NAMES_MAX = 4
OPEN_COLUMNS = OPEN_NAME + NAMES_MAX
"""``OPEN_PREPARED`` is 1 more than `PREPARED_AT`; ``OPEN_LAST`` 1 more than the offset in the
stream of the last record that is no change. From ``OPEN_NAME`` on stand the offsets of so many
prepare records as ``OPEN_NAMES`` says."""

LISTED, COMMITS, SESSIONS = range(3)
"""Counts: transactions that were listed and committed, and 1 more than the highest session."""

# Columns of the table of transactions that began before a place and end after it.
CROSSED_SESSION, CROSSED_BEGIN, CROSSED_END, CROSSED_COMMIT, CROSSED_NAME, CROSSED_HALVES = range(6)
CROSSED_COLUMNS = 6
"""``CROSSED_COMMIT`` is the number of its commit, or 0; ``CROSSED_NAME`` is the offset in the
stream of its last prepare record, or -1; ``CROSSED_HALVES``: it may have been taken back."""
ODD = -1


@kernel
def follow_sessions(
    table: Any, rows: tuple[int, int], base: int, place: int, opened: Any, counts: Any, crossed: Any
) -> int:
    """Follow what sessions have open over rows of the table, from one up to another.

    ``base`` is added to the offsets of the table. List those that began before ``place`` and end
    here, and return how many; `ODD` where a session has no row, or too many names.
    """
    count = 0
    for row in range(rows[0], rows[1]):
        code = table[CODE, row]
        if code < _COMMIT or code > _TRUNCATE:
            continue
        session = table[SESSION, row]
        if session < 0 or session >= len(opened):
            return ODD
        at = base + table[START, row]
        if opened[session, OPEN_RECORDS] == 0:
            opened[session, OPEN_BEGIN] = at
            counts[SESSIONS] = max(counts[SESSIONS], session + 1)
        opened[session, OPEN_RECORDS] += 1
        opened[session, OPEN_BYTES] += table[LENGTH, row]
        if code >= _ADD:
            opened[session, OPEN_CHANGES] += 1
            continue
        opened[session, OPEN_LAST] = at + 1
        if code == _PREPARE:
            names = opened[session, OPEN_NAMES]
            if names == NAMES_MAX:
                return ODD
            opened[session, OPEN_PREPARED] = opened[session, OPEN_CHANGES] + 1
            opened[session, OPEN_NAME + names] = at
            opened[session, OPEN_NAMES] += 1
        elif code == _COMMIT or opened[session, OPEN_PREPARED] == 0:
            count += _end(session, at, code == _COMMIT, place, opened, counts, crossed, count)
    return count


@kernel
def _end(
    session: int, at: int, committed: bool, place: int, opened: Any, counts: Any, crossed: Any,
    row: int,
) -> int:  # fmt: skip
    """End what a session has open; return 1 if it is listed in ``row``, else 0."""
    changes, prepared = opened[session, OPEN_CHANGES], opened[session, OPEN_PREPARED]
    begin, names = opened[session, OPEN_BEGIN], opened[session, OPEN_NAMES]
    name = opened[session, OPEN_NAME + names - 1] if names else NONE
    for column in range(OPEN_COLUMNS):
        opened[session, column] = 0
    if changes == 0 and prepared == 0:
        return 0
    halves = committed and prepared > 1 and changes == 2 * (prepared - 1)
    counts[LISTED] += 1
    counts[COMMITS] += committed and not halves
    if begin >= place:
        return 0
    crossed[row, CROSSED_SESSION], crossed[row, CROSSED_BEGIN] = session, begin
    crossed[row, CROSSED_END], crossed[row, CROSSED_NAME] = at, name
    crossed[row, CROSSED_COMMIT] = counts[COMMITS] if committed and not halves else 0
    crossed[row, CROSSED_HALVES] = halves
    return 1
