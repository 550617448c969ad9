"""What an old log must be before anything is written beside it or over it.

In: a stream, what recovery found, a header. Out: nothing, or a `CorruptLogError`. The pages of an
old log are zeroed once a new one is named, and images go to the pages that they name: numbers
that no writer leaves would destroy a header, or let the file grow without end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tallystick.errors import CorruptLogError, LogWriteError
from tallystick.systems.h2.engine.recovery import Recovery, used_pages
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.layout import VariableHeader
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.read.stream import LogStream

PAGES_MIN = 128
"""In a file of so many pages, or more, `layout.GROWTH_MAX` holds."""
KEY_LIMIT = (1 << 31) - (1 << 24)
COUNTER_LIMIT = (1 << 63) - (1 << 32)
"""Log keys and write counters from here on leave too few numbers for a log that follows."""
_ADVICE = "Restore a backup; 'tallystick verify' tells what is lost"


def require_sound(stream: LogStream) -> None:
    """Require that the header leads to a log, and that its lists name pages that can be its.

    Raises:
        CorruptLogError: they do not.
    """
    path = stream.pages.file
    if stream.misnamed:
        raise CorruptLogError(
            "the numbers lead to no log",
            file=path,
            offset=stream.pages.page_size,
            expected="the first trunk page and data page of a log, or none",
            found=stream.misnamed,
            advice=_ADVICE,
        )
    possible = range(layout.FIRST_FREE_PAGE, _limit(stream.pages.page_count))
    _require_possible(path, used_pages(stream), possible, "the log lists page")


def require_pages(path: str, page_count: int, recovery: Recovery) -> None:
    """Require that images are of pages that the file can have, its headers aside.

    Raises:
        CorruptLogError: one is not.
    """
    possible = range(layout.FREE_LIST_ROOT, _limit(page_count))
    _require_possible(path, recovery.undo, possible, "the log has an image of page")


def _require_possible(path: str, pages: Iterable[int], possible: range, what: str) -> None:
    for page in sorted(pages):
        if page not in possible:
            raise CorruptLogError(
                f"{what} {page}",
                file=path,
                expected=f"pages from {possible.start} to {possible.stop - 1}",
                found=str(page),
                advice=_ADVICE,
            )


def require_numbers(path: str, header: VariableHeader, key: int) -> None:
    """Require that a log key and a write counter can follow.

    Raises:
        CorruptLogError: a number is so high that it must be damaged.
    """
    if key >= KEY_LIMIT or header.write_counter >= COUNTER_LIMIT:
        raise CorruptLogError(
            "no number can follow those in the header",
            file=path,
            expected=f"a key below {KEY_LIMIT} and a counter below {COUNTER_LIMIT}",
            found=f"{key} and {header.write_counter}",
            advice=_ADVICE,
        )


def require_trunk_page(
    store: PageStoreFile, page: int, taken: Collection[int], lists: Mapping[int, bytes]
) -> None:
    """Require that a log can begin at this page.

    Args:
        store: the file.
        page: the page.
        taken: pages of an old log, and pages with an image in it.
        lists: pages of the free list that recovery will restore.

    Raises:
        LogWriteError: it is outside the file, or holds something else.
    """
    found = ""
    if not layout.FIRST_FREE_PAGE <= page < store.page_count:
        found = "no page that can be allocated"
    elif page in store.free_list_pages:
        found = "a page of the free list"
    elif page in taken:
        found = "a page of the log that is open"
    elif store.listed([page], lists):
        found = "a page that the free list marks as used"
    if found:
        raise LogWriteError(
            f"page {page} cannot be the first trunk page",
            file=store.path,
            expected=f"a free page from {layout.FIRST_FREE_PAGE} to {store.page_count - 1}",
            found=found,
            advice="Allocate one with PageStoreFile.allocate, or give none",
        )


def _limit(page_count: int) -> int:
    return max(page_count, PAGES_MIN) * layout.GROWTH_MAX
