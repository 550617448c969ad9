"""What is wrong with containers on pages that the log does not name.

In: the file of a container, and the pages that redo meets. Out: what is wrong, in words.
"""

from __future__ import annotations

from collections.abc import Collection

from tallystick.printable import counted
from tallystick.systems.derby.engine.page_files import PageFile


def damage(file: PageFile, met: Collection[int], *, whole: bool, cut: bool) -> str:
    """Return what is wrong with a container on pages that redo does not meet; empty if nothing.

    Else than ``whole``, of pages after those that its first page counts. Where redo meets that one,
    pages that it counts already were there, if none are ``cut`` off again.
    """
    if file.removed:
        return ""
    if not file.page_size:
        return "has a damaged head"
    there = file.size // file.page_size
    if 0 not in met and (not there or file.pages > there):
        return f"has {counted(there, 'page')} of {max(1, file.pages)}"
    counts = range(there, min(file.pages, file.pages_max)) if there and not cut else ()
    gone = next((one for one in counts if one not in met and one not in file.free()), None)
    if gone is not None:
        return f"does not have page {gone}, which its first page counts"
    first = 0 if whole else file.pages
    pages = (one for one in range(first, min(there, file.pages)) if one not in met)
    damaged = next((one for one in file.heads(pages) if one.version is None), None)
    if damaged is not None:
        return f"is damaged: of page {damaged.number} {damaged.problem}"
    return _of_different_times(file, met, max(1, first))


def _of_different_times(file: PageFile, met: Collection[int], first: int) -> str:
    """Return how pages of a container differ from what its allocation page says of them.

    It is written when pages are taken and given back, and a checkpoint writes both. What comes then
    is in the log before it is in the file. So where redo does not meet the allocation page, that is
    as the log leaves it; and of what redo leads it to, the log has the pages as well.
    """
    free, moved = file.free(), met if 0 in met else ()
    end = min(file.size // file.page_size, file.pages_max)
    for one in file.heads(number for number in range(first, end) if number not in moved):
        counts = one.number < file.pages
        if not counts and not one.version:  # made before it is needed
            continue
        if one.used != counts and one.number not in free:
            says = "does not count page" if one.used else "counts page"
            used = "is in use" if one.used else "is not in use"
            return f"has pages of different times: its first page {says} {one.number}, which {used}"
    return ""
