"""Rows of columns by what they have in common: equal neighbours, distinct numbers, marked codes.

In: NumPy columns; of neighbours, which are rows that follow each other and are equal, the place of
the first one (`starts_of`). Out: columns with a value for each row, or for all neighbours. No
Arrow; it is imported where NumPy is loaded anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]
Longs = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]

_NEAR = 1 << 14
"""Numbers within a range of this size are told apart without sorting them."""


# -- neighbours -----------------------------------------------------------------------------


def firsts(*columns: Column) -> Bits:
    """Return which rows are the first of neighbours: they differ from the one before somewhere."""
    found = np.zeros(len(columns[0]), np.bool_)
    found[:1] = True
    for one in columns:
        found[1:] |= one[1:] != one[:-1]
    return found


def starts_of(*columns: Column) -> Longs:
    """Return the places of the first rows of neighbours."""
    return np.flatnonzero(firsts(*columns))


def lasts_of(starts: Longs, count: int) -> Longs:
    """Return the places of the last rows of neighbours; all together are ``count`` rows."""
    found: Longs = np.append(starts[1:], count)[: len(starts)] - 1
    return found


def ordinals(*columns: Column) -> Longs:
    """Return the place of each row among its neighbours."""
    places = np.arange(len(columns[0]))
    # The maximum carries the place of the first row of neighbours on to the others.
    found: Longs = places - np.maximum.accumulate(np.where(firsts(*columns), places, 0))
    return found


def sums(values: Column, starts: Longs) -> Longs:
    """Return the sum over neighbours; of booleans, how many are true.

    There must be a row: of none `reduceat` gives the value at the start.
    """
    # As integers: `add` of booleans is a logical or.
    found: Longs = np.add.reduceat(values, starts, dtype=np.int64)
    return found


def last_where(wanted: Bits, starts: Longs) -> Longs:
    """Return the place of the last wanted row of neighbours; -1 if there is none."""
    # `maximum.reduceat` of places, as NumPy has no "last where" by neighbours.
    found: Longs = np.maximum.reduceat(np.where(wanted, np.arange(len(wanted)), -1), starts)
    return found


# -- numbers --------------------------------------------------------------------------------


def distinct(values: Column) -> tuple[list[int], Longs]:
    """Return the numbers of a column, ascending, and the place among them of each row's."""
    if not len(values):
        return [], np.empty(0, np.int64)
    least = values.min()
    if int(values.max()) - int(least) >= _NEAR:
        found, places = np.unique(values, return_inverse=True)
        return found.tolist(), places
    # Sessions and tables have small numbers near each other: to count them is cheaper than to sort.
    found = np.flatnonzero(np.bincount(values - least))
    of_number = np.zeros(int(found[-1]) + 1, np.int64)
    of_number[found] = np.arange(len(found))
    return (found + least).tolist(), of_number[values - least]


def among(values: Column, known: Collection[int]) -> Bits:
    """Return which rows have one of the known numbers; ``known`` is a set or has keys.

    It costs what the smaller side costs: what is open or live in a log may be far more than a chunk
    has, and there are many chunks.
    """
    if len(known) <= len(values):
        return np.isin(values, np.fromiter(known, values.dtype, len(known)))
    return np.fromiter((one in known for one in values.tolist()), np.bool_, len(values))


def marked(codes: Iterable[int]) -> Bits:
    """Return a table of all bytes in which these are true."""
    table = np.zeros(256, np.bool_)
    table[list(codes)] = True
    return table
