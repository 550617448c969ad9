"""Whether the pages of a broker are there, and hold what its journal knows of them.

In: the folder of the pages, and what the messages of a journal need. Out: a `Part`. A start takes
pages that are not there for read; it says nothing of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tallystick.errors import LogUnreadableError
from tallystick.printable import counted
from tallystick.records import Answer, Part
from tallystick.storage.source import link_to_nothing, logical_name
from tallystick.systems.jboss.applications.large_messages import odd_file, unnumbered
from tallystick.systems.jboss.applications.needs import Known, Needs
from tallystick.systems.jboss.applications.places import Place
from tallystick.systems.jboss.format.pages import (
    LargeMessage,
    PageContents,
    PagedMessage,
    contents_of,
    messages_of,
)
from tallystick.systems.surroundings import names_beside, open_part, part_bytes, unlisted

_ADDRESS: Final = "address.txt"
"""What a folder of pages has, or a start passes over it."""


@dataclass(slots=True)
class Held:
    """What the pages of an address hold.

    Attributes:
        messages: how many they may have held. A start takes pages that are gone for read, and so
            does a count that was written before.
        odd: what no broker leaves, in words.
        large: large messages by their ids and pages.
        transactions: how often, at most, queues have still to take a message of each.
        numbers: those of the pages.
        first: the id of the first message of the first one; None if it is not known.
    """

    messages: int
    odd: str = ""
    large: dict[tuple[int, int], LargeMessage] = field(default_factory=dict)
    transactions: Counter[int] = field(default_factory=Counter)
    numbers: list[int] = field(default_factory=list)
    first: int | None = None


def page_folders(folder: str) -> dict[str, list[str]]:
    """Return the folders of pages that a start does not pass over, and the names in each."""
    below = [f"{folder}/{one}" for one in sorted(names_beside(folder))]
    names = {one: sorted(map(logical_name, names_beside(one))) for one in below}
    return {one: found for one, found in names.items() if _ADDRESS in found}


def held_in(folders: dict[str, list[str]], needs: Needs, queues: dict[int, str]) -> dict[str, Held]:
    """Return for each address what its pages hold."""
    held: dict[str, Held] = {}
    for below, names in folders.items():
        pages = [one for one in names if re.fullmatch(r"\d+\.page", one)]
        if not pages:
            continue
        numbers = [int(one.partition(".")[0]) for one in pages]
        found, counts = Held(0, numbers=numbers), list[int]()
        address = _text(f"{below}/{_ADDRESS}")
        # Queues that are not known are as many as may be.
        own = [one for one, named in queues.items() if named == address] or list(queues) or [0]
        for page, name in zip(numbers, pages, strict=True):
            one = contents_of(_data(f"{below}/{name}"))
            counts.append(one.messages)
            if page == numbers[0]:
                found.first = one.first
            if not one.whole:
                found.odd = f"{name} ends within a message"
            elif not one.messages and page != numbers[-1]:
                found.odd = f"{name} holds no message, and a later page is there"
            found.large |= {(number, page): large for number, large in one.large.items()}
            found.transactions.update(_left(page, one, own, needs))
        found.messages = sum(counts) + (numbers[-1] - len(numbers)) * max(counts)
        held[address] = found
    return held


def _other_address(page: str, address: str, queues: dict[int, str]) -> str:
    """Return the address of a queue that the first message is for, if none of them has this one."""
    first = next(messages_of(_data(page)), None)
    bound = [queues[one] for one in (first.queues if first else ()) if one in queues]
    # Of a queue for many addresses it may be another one.
    if not bound or address in bound or any(sign in one for one in bound for sign in "#*"):
        return ""
    return bound[0]


def passed_over(place: Place, queues: dict[int, str]) -> Part | None:
    """Return the pages, where a start passes over some, or it cannot be told whether it does."""
    path, found_by, there = place
    seen = set[str]()
    top = names_beside(path)
    for below in [path, *(f"{path}/{one}" for one in sorted(top))]:
        names = sorted(map(logical_name, top if below == path else names_beside(below)))
        pages = [one for one in names if re.fullmatch(r"\d+\.page", one, re.IGNORECASE)]
        why, where = "", below.rpartition("/")[2]
        if not names and (damage := unlisted(below)):
            why = f"{damage}. A start reads the pages there."
        elif pages and below != path and _ADDRESS not in names:
            why = f"{where} has no {_ADDRESS}: a start passes over the messages in its pages."
        elif odd := next((one for one in pages if link_to_nothing(f"{below}/{one}")), ""):
            why = f"{where}/{odd} is a link to nothing: what it held is not read."
        elif odd := next((one for one in pages if one != one.lower()), ""):
            why = f"A broker reads {odd.lower()}, not {odd}: it takes that page for read."
        elif pages and below != path:
            address = _text(f"{below}/{_ADDRESS}")
            if bound := _other_address(f"{below}/{pages[0]}", address, queues):
                why = f"{where}/{_ADDRESS} says {address!r}, and its pages are of {bound!r}."
            elif address in seen:
                why = f"The pages of {address} are in two folders, and a start takes one of them."
            seen.add(address)
        if why:
            return Part("paging", path, found_by, there, False, why, Answer.CANNOT_TELL)
    return None


def paged_messages(folder: str, left: Counter[str]) -> Iterator[tuple[int, PagedMessage]]:
    """Yield the messages in the pages below a folder, with the number of the page, in their order.

    What cannot be read is counted in ``left``.
    """
    for below, names in page_folders(folder).items():
        for name in names:
            if not (found := re.fullmatch(r"(\d+)\.page", name)):
                continue
            try:
                data = _data(f"{below}/{name}")
            except LogUnreadableError:
                left["pages, not readable"] += 1
                continue
            if not contents_of(data).whole:
                left["pages cut within a message"] += 1
            yield from ((int(found[1]), one) for one in messages_of(data))


def foreign_page(place: Place, pages: dict[str, list[str]]) -> Part | None:
    """Return the pages, where one has a name that a broker does not start with."""
    path, found_by, there = place
    for below, names in pages.items():
        if foreign := unnumbered(names, ".page"):
            shown = f"{below.rpartition('/')[2]}/{foreign}"
            why = f"{shown} has no number of a page: a broker does not start with it."
            return Part("paging", path, found_by, there, False, why, Answer.REFUSES)
    return None


def pages_part(
    place: Place,
    needs: Needs,
    queues: dict[int, str],
    large_place: Place,
    held: dict[str, Held],
    known: Known,
) -> Part:
    """Return the pages, with what follows from those that are missing, cut or of another time.

    Args:
        place: where they are.
        needs: what the messages of the journal need.
        queues: id -> address of each queue that the bindings have.
        large_place: where the files of large messages are.
        held: address -> what its pages hold, as `held_in` returns it.
        known: what the journals hold.
    """
    path, found_by, there = place
    wanted = Counter[str]()
    for queue, count in needs.paged.items():
        if count > 0:
            # The queues of one address read the same pages.
            address = queues.get(queue, "")
            wanted[address] = max(wanted[address], count)
    if gone := _gone(needs, queues, held, known):
        return Part("paging", path, found_by, there, False, gone, Answer.CANNOT_TELL)
    if unnamed := _unnamed(large_place.path, needs, held, known):
        return Part("paging", path, found_by, there, False, unnamed, Answer.CANNOT_TELL)
    if not wanted and not held:
        return Part("paging", path, found_by, there, True, "No message is known to be in a page.")
    for address in sorted({*wanted, *held}):
        count = wanted[address]
        pages = [held[address]] if address in held else [] if address else list(held.values())
        found = sum(one.messages for one in pages)
        whose = f"of {address} " if address else ""
        why = ""
        if count > found:
            why = (
                f"{counted(count, 'message')} {whose}in pages, by the count in the journal, and "
                f"the pages hold at most {found:,}: pages may be missing, or cut."
            )
        elif odd := next((one.odd for one in pages if one.odd), "") or _between(
            address, queues, held, known
        ):
            why = f"{odd}: messages {whose}may be missing."
        elif large := {key: one for page in pages for key, one in page.large.items()}:
            files = large_place.path
            names = {logical_name(name): name for name in names_beside(files)}
            # Of one that was taken the file goes then, and the page later.
            sizes = {
                number: one.file.size
                for (number, page), one in sorted(large.items())
                if f"{number}.msg" in names or _waits(page, one, needs, queues)
            }
            short = (odd_file(files, names, number, size) for number, size in sizes.items())
            if text := next(filter(None, short), ""):
                why = f"{text}, and a message in a page names it: it may be delivered in part."
        if why:
            return Part("paging", path, found_by, there, False, why, Answer.CANNOT_TELL)
    return Part("paging", path, found_by, there, True, "The pages are there.")


def _waits(page: int, one: LargeMessage, needs: Needs, queues: dict[int, str]) -> bool:
    """Return whether a large message in a page is kept over a start, and a queue has not taken it.

    The transaction of one that was never committed is not known.
    """
    sent = one.transaction <= 0 or one.transaction in needs.transactions
    return (
        sent
        and one.file.durable
        and any(
            page not in needs.finished.get(queue, ())
            and (page, one.place) not in needs.taken.get(queue, ())
            for queue in one.queues
            if queue in queues
        )
    )


def _gone(needs: Needs, queues: dict[int, str], held: dict[str, Held], known: Known) -> str:
    """Return what the journal says of pages that are not there, in words; empty if nothing.

    A page goes when all of its messages were taken, and its records go before. So where a later
    one is there, it may just have gone.
    """
    there = sum((one.transactions for one in held.values()), Counter[int]())
    if gone := sorted(one for one, left in needs.transactions.items() if left > there[one]):
        return (
            f"{counted(len(gone), 'transaction')} with messages in pages, the first of them "
            f"{gone[0]}, {'has' if len(gone) == 1 else 'have'} fewer in those that are there: "
            "pages may be missing, or older."
        )
    # The pages of an address go with the last of its queues.
    needed = {address for queue, address in queues.items() if queue not in needs.dropped}
    for queue in needs.taken.keys() | needs.finished.keys():
        if queue in needs.dropped and queues.get(queue, "") not in needed:
            continue
        pages = {page for page, _ in needs.taken.get(queue, ())}
        pages |= needs.finished.get(queue, set())
        address = queues.get(queue, "")
        of = [held[address]] if address in held else [] if address else list(held.values())
        numbers = {number for one in of for number in one.numbers}
        missing = {page for page in pages - numbers if page > min(numbers, default=0)}
        if missing and (lost := missing - _done_with(address, queues, held, known)):
            return f"A message of {min(lost):09}.page was taken, and that page is not there."
    for address in sorted(held.keys() & set(queues.values())):
        if (first := held[address].numbers[0]) > 1 and known.never_took():
            return f"{first - 1:09}.page of {address} is missing, and nothing was taken from pages."
    return ""


def _unnamed(folder: str, needs: Needs, held: dict[str, Held], known: Known) -> str:
    """Return which file of a large message tells of a page that is not there; empty if none.

    The file is written before the journal or a page names it.
    """
    paged = {number for one in held.values() for number, _ in one.large}
    files = {
        int(found[1]): f"{folder}/{name}"
        for name in names_beside(folder)
        if (found := re.fullmatch(r"(\d{1,19})\.msg", logical_name(name)))
    }
    unnamed = files.keys() - paged - needs.large.keys()
    for number in sorted(known.never_added(unnamed)) if unnamed else ():
        source = open_part(files[number])
        if source is None:
            continue
        with source:
            if source.size:
                return (
                    f"{number}.msg is of a message that neither the journal nor a page names: it "
                    "was being sent, or its page is missing."
                )
    return ""


def _between(address: str, queues: dict[int, str], held: dict[str, Held], known: Known) -> str:
    """Return which page is missing between others, in words; empty if each was done with."""
    numbers = held[address].numbers if address in held else []
    gaps = [range(one + 1, after) for one, after in pairwise(numbers) if one + 1 < after]
    done = _done_with(address, queues, held, known) if gaps else set()
    # One by one: a name may have any number, so a gap may have a thousand million pages.
    lost = next((page for gap in gaps for page in gap if page not in done), None)
    return "" if lost is None else f"{lost:09}.page is missing between others"


def _done_with(
    address: str, queues: dict[int, str], held: dict[str, Held], known: Known
) -> set[int]:
    """Return the pages of which each queue of an address has taken all.

    Artemis deletes such a page wherever it stands, and the records that tell of it after it. Pages
    are numbered anew after a start without any, so only records count that are younger than the
    first message which is there.
    """
    own = [one for one, named in queues.items() if named == address]
    since = held[address].first if address in held else None
    if not own or since is None:
        return set()
    found: dict[int, set[int]] = {one: set() for one in own}
    for (queue, page), number in known.finished().items():
        if queue in found and number > since:
            found[queue].add(page)
    return set.intersection(*found.values())


def _left(page: int, one: PageContents, own: Iterable[int], needs: Needs) -> dict[int, int]:
    """Return how often these queues have still to take a message of each transaction from a page.

    If each message is for all of them: else less often.
    """
    taken = [
        needs.taken.get(queue, set()) for queue in own if page not in needs.finished.get(queue, ())
    ]
    return {
        number: sum((page, place) not in by for place in one.transactions[number] for by in taken)
        for number in one.transactions.keys() & needs.transactions.keys()
    }


def _data(path: str) -> memoryview:
    """Return what a file holds; nothing where it is not there."""
    return memoryview(part_bytes(path) or b"")


def _text(path: str) -> str:
    return str(_data(path), "utf-8", "replace").strip()
