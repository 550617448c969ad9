"""Pages of a table's tree that are kept for the next search of a key: keys and children only.

In: decoded pages. Out: a `Step` for each, one page on the way from the root to a key; those that
were used last are kept. Redo looks for every row that it adds, and mostly in the same pages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tallystick.systems.h2.format.table_pages import DataLeaf, DataNode

NUMBERS_MAX = 1 << 20
"""Keys and children that are kept, eight bytes each."""


@dataclass(frozen=True, slots=True)
class Step:
    """A leaf, or a node with its ``children``; the keys of a damaged page may be out of order."""

    keys: array[int]
    children: array[int]
    ordered: bool

    def has(self, key: int) -> bool:
        """Return True if the leaf has this key."""
        if not self.ordered:
            return key in self.keys
        at = bisect_left(self.keys, key)
        return at < len(self.keys) and self.keys[at] == key

    def child(self, key: int) -> int:
        """Return the child that has this key: that of the first key which is not smaller."""
        if self.ordered:
            return self.children[bisect_left(self.keys, key)]
        at = next((at for at, limit in enumerate(self.keys) if key <= limit), -1)
        return self.children[at]

    def has_each(self, keys: Any) -> Any:
        """Return which of ascending keys the leaf has."""
        import numpy as np

        own = np.frombuffer(self.keys, np.int64)
        if not self.ordered or not len(own):
            return np.isin(keys, own)
        return own[np.minimum(np.searchsorted(own, keys), len(own) - 1)] == keys

    def parts(self, keys: Any) -> Iterator[tuple[int, int, int]]:
        """Yield the children that have ascending keys, each with the range of its keys."""
        import numpy as np

        if not self.ordered:
            for at, key in enumerate(keys.tolist()):
                yield self.child(key), at, at + 1
            return
        # "right": a key equal to the limit of a child is still below it, as in `child`.
        limits = np.searchsorted(keys, np.frombuffer(self.keys, np.int64), side="right")
        begins, ends = np.append(0, limits), np.append(limits, len(keys))
        for at in np.flatnonzero(begins < ends).tolist():
            yield self.children[at], int(begins[at]), int(ends[at])


@dataclass(slots=True)
class Steps:
    """The steps that were used last, by page and its parent."""

    _kept: OrderedDict[tuple[int, int], Step] = field(default_factory=OrderedDict)
    _numbers: int = 0

    def get(self, page: int, parent: int) -> Step | None:
        """Return a step that is kept."""
        step = self._kept.get((page, parent))
        if step is not None:
            self._kept.move_to_end((page, parent))
        return step

    def put(self, page: int, parent: int, part: DataLeaf | DataNode) -> Step:
        """Keep the step of a page; drop those that were not used for longest."""
        children = part.children if isinstance(part, DataNode) else ()
        ordered = all(one <= other for one, other in pairwise(part.keys))
        step = Step(array("q", part.keys), array("q", children), ordered)
        self._kept[page, parent] = step
        self._numbers += len(step.keys) + len(step.children)
        while self._numbers > NUMBERS_MAX:
            _, old = self._kept.popitem(last=False)
            self._numbers -= len(old.keys) + len(old.children)
        return step

    def clear(self) -> None:
        """Drop all of them."""
        self._kept.clear()
        self._numbers = 0
