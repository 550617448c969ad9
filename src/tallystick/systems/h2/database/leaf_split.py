"""Where a leaf is cut that has become too full: pure functions, no pages.

In: a leaf with one row too many. Out: leaves in its stead, each of which fits into a page, or holds
a single row that fits into none.
"""

from __future__ import annotations

from tallystick.systems.h2.database.nodes import Leaf, entry_size, leaf_head


def beside(long: Leaf, key: int, row: bytes) -> list[Leaf]:
    """A new row and a long one, which stays alone."""
    other = Leaf(long.table, long.columns, 0, [key], [row])
    return [other, long] if key < long.keys[0] else [long, other]


def cut(leaf: Leaf, place: int, page_size: int) -> list[Leaf]:
    """Leaves for the rows of one that is too full because of the row at ``place``. Rows that arrive
    in order leave full leaves behind; others are cut in the middle."""
    keys, rows = leaf.keys, leaf.rows
    ascending = place == len(keys) - 1 and place > 0
    at = place if ascending else _middle(keys, rows)
    pieces = [_piece(leaf, keys[:at], rows[:at]), _piece(leaf, keys[at:], rows[at:])]
    if not pieces[0].keys or any(piece.size() > page_size for piece in pieces):
        return _fill(leaf, page_size)
    return pieces


def _piece(leaf: Leaf, keys: list[int], rows: list[bytes]) -> Leaf:
    return Leaf(leaf.table, leaf.columns, 0, keys, rows)


def _fill(leaf: Leaf, page_size: int) -> list[Leaf]:
    """As many rows as fit in each; what fits nowhere stands alone."""
    room = page_size - leaf_head(leaf.table, leaf.columns)
    pieces, left = [_piece(leaf, [], [])], room
    for key, row in zip(leaf.keys, leaf.rows, strict=True):
        size = entry_size(key, row)
        if size > left and pieces[-1].keys:
            pieces.append(_piece(leaf, [], []))
            left = room
        pieces[-1].keys.append(key)
        pieces[-1].rows.append(row)
        left -= size
    return pieces


def _middle(keys: list[int], rows: list[bytes]) -> int:
    """Where to cut so that both halves hold about as many bytes; 0 for a single row."""
    sizes = list(map(entry_size, keys, rows))
    half, total = sum(sizes) // 2, 0
    for place, size in enumerate(sizes):
        total += size
        if total >= half:
            return min(max(place, 1), len(rows) - 1)
    return 0
