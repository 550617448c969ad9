"""What a start of Artemis or HornetQ opens besides the journal of messages.

In: the folder of a journal, and what a load of it lists. Out: `Surroundings`: bindings, files of
large messages, pages, each with what follows from it. They are folders beside that of the journal,
under the names that the brokers' own settings and layouts have, or that ``broker.xml`` gives. A
journal with none of them beside it is a log alone. Nothing is written.

A start drops the messages of a queue that no binding names, delivers as much of a large message as
its file has, and takes pages that are not there for read; it says nothing of either. What is put
back from another day shows in what the parts have in common: the starts of the broker, of which
each leaves its ids in bindings and journal, and transactions with messages in pages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tallystick.errors import LogUnreadableError
from tallystick.printable import counted
from tallystick.records import Answer, AtStake, Part, Surroundings
from tallystick.storage.source import logical_name
from tallystick.systems.jboss.applications.broker_xml import (
    FILE_NAME,
    broker_settings,
    database_in,
)
from tallystick.systems.jboss.format import messages
from tallystick.systems.jboss.format.file_names import NEWER, extension_of
from tallystick.systems.jboss.format.layout import Contents
from tallystick.systems.jboss.format.pages import LargeMessage, PageContents, contents_of
from tallystick.systems.surroundings import alone, names_beside, open_part, renamed_part

BROKER: Final = "broker"
"""The kind of what a start of Artemis or HornetQ starts."""
BINDINGS: Final = "bindings"
MESSAGE_EXTENSIONS: Final = frozenset({"amq", "hq"})
BINDINGS_EXTENSIONS: Final = frozenset({"bindings", "jms"})
_MESSAGE_ENDINGS: Final = tuple(f".{one}" for one in sorted(MESSAGE_EXTENSIONS))
_BROKERS: Final = MESSAGE_EXTENSIONS | BINDINGS_EXTENSIONS
_LAYOUT: Final = "the layout of a data directory"
_PLACES: Final = {
    "journal": ("journal",),
    "bindings": ("bindings",),
    "large-messages": ("large-messages", "largemessages", "large"),
    "paging": ("paging",),
}
"""Part -> names of its folder; Artemis names the settings ``bindings-directory`` and so on."""
_ADDRESS: Final = "address.txt"
"""What a folder of pages has, or a start passes over it."""
_STARTED_SINCE: Final = (
    "They tell of a start of the broker that the journal does not, and each gives new ids to files "
    "of both"
)
IF_COMMITTED: Final = "whether these transactions are committed"
_LISTED_MAX: Final = 5
"""Queues and files are listed up to this many."""
REFERENCES: Final = frozenset({messages.REFERENCE, messages.ACKNOWLEDGED})
LISTED: Final = frozenset(
    {
        messages.LARGE_MESSAGE,
        messages.PAGE_TRANSACTION,
        *messages.COUNTERS,
        *messages.PAGE_TAKEN,
    }
)
"""User types of what the journal of messages says of parts beside it, but for references."""


UserTypes = Collection[int]


@dataclass(frozen=True, slots=True)
class Known:
    """What the journals hold, read when it is asked for.

    Attributes:
        listed: the contents of the records of these user types that a load of the journal of
            messages lists.
        waiting: how many messages wait for each queue, and which of some large ones for any.
        in_doubt: the contents of the records that prepared transactions add.
        queues: the queues by id, each with its address, in the bindings of a folder; those that
            were dropped, too.
        dropped: what the bindings of a folder have deleted, by id.
        foreign: what ids and addresses of the journal of messages tell against the bindings of a
            folder with these queues, in words; empty if nothing.
        is_older: whether a start that they note is not one of the journal of messages.
        never_took: whether the journal of messages is all that it ever was, and no message was ever
            taken from a page.
        never_added: of these large messages, those of which the journal of messages surely never
            had a record, and which no queue can have taken from a page.
        finished: queue and page -> the id of the last record by which it has taken all of it, also
            where that was deleted since, as it is after the page.
    """

    listed: Callable[[UserTypes], Iterable[Contents]]
    waiting: Callable[[Set[int]], tuple[Counter[int], Set[int]]]
    in_doubt: Callable[[], Iterable[Contents]]
    queues: Callable[[str], dict[int, str]]
    dropped: Callable[[str], set[int]]
    foreign: Callable[[str, Mapping[int, str]], str]
    is_older: Callable[[str], bool]
    never_took: Callable[[], bool]
    never_added: Callable[[Set[int]], Set[int]]
    finished: Callable[[], dict[tuple[int, int], int]]


@dataclass(slots=True)
class _Contents:
    """What the messages of a journal need.

    Attributes:
        waiting: queue -> how many messages it has not acknowledged; none of 0.
        large: large message -> the size that its record says, in bytes; None where it says none.
        wanted: large messages that wait for a queue.
        paged: queue -> how many of its messages are in pages.
        in_doubt: queue -> how many messages wait for it once transactions in doubt are committed.
        large_in_doubt: large messages among these -> the size that the record says, as in `large`.
        transactions: those that have messages in pages -> how often queues have still to take one.
        taken: queue -> the messages that it has taken from pages, as page and place there.
        finished: queue -> the pages of which it has taken all.
        dropped: what the bindings have deleted, queues among it.
    """

    waiting: Counter[int] = field(default_factory=Counter)
    large: dict[int, int | None] = field(default_factory=dict)
    wanted: Set[int] = frozenset()
    in_doubt: Counter[int] = field(default_factory=Counter)
    large_in_doubt: dict[int, int | None] = field(default_factory=dict)
    paged: Counter[int] = field(default_factory=Counter)
    transactions: dict[int, int] = field(default_factory=dict)
    taken: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    finished: dict[int, set[int]] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)


def surroundings_of(folder: str, extension: str, known: Known) -> Surroundings:
    """Return what a start opens besides the journal, of that extension, in a folder."""
    broker, places = _places(folder)
    if extension.lower() in _BROKERS and extension not in _BROKERS:
        return Surroundings(broker, BROKER, (_renamed(folder, extension),))
    if extension in _BROKERS and (path := database_in(broker, folder)):
        return Surroundings(broker, BROKER, (_in_database(path),), reads_log=False)
    if extension in BINDINGS_EXTENSIONS:
        return _beside_bindings(folder, broker, places)
    beside = {part: one for part, one in places.items() if one[2] and part != "journal"}
    if extension not in MESSAGE_EXTENSIONS or not beside:
        return alone(folder)
    contents = _contents(known.listed(LISTED))
    contents.waiting, contents.wanted = known.waiting(contents.large.keys())
    _add_in_doubt(contents, list(known.in_doubt()))
    place = places["bindings"]
    queues: dict[int, str] | None = None
    damage = foreign = ""
    if place[2]:
        try:
            queues, contents.dropped = known.queues(place[0]), known.dropped(place[0])
            foreign = known.foreign(place[0], queues)
            if not foreign and known.is_older(place[0]):
                foreign = _STARTED_SINCE
        except LogUnreadableError as error:
            damage = str(error)
    pages = _page_folders(places["paging"][0])
    held = _held(pages, contents, queues or {})
    parts = [
        _bindings(place, contents, queues, damage, foreign, paged=bool(held)),
        _large(places["large-messages"], contents, extension),
        _foreign_page(places["paging"], pages)
        or _pages(places["paging"], contents, queues or {}, places["large-messages"], held, known),
    ]
    return Surroundings(broker, BROKER, tuple(parts))


_Place = tuple[str, str, bool]
"""Path of a part, what names it, and whether it is there."""


def _renamed(folder: str, extension: str) -> Part:
    """Return the part that files are whose extension has letters of another case."""
    why = (
        f"A broker reads files whose names end in .{extension.lower()}, not in .{extension}: it "
        "takes the journal to be empty until they are renamed."
    )
    decided_by = "whether they are renamed before the start"
    return renamed_part(folder, _LAYOUT, why, decided_by)


def _in_database(path: str) -> Part:
    """Return the part that the database is in which a broker keeps its journals, by settings."""
    why = (
        "The settings name a database (database-store): a start reads its journals there, by JDBC, "
        "and none of these files."
    )
    decided_by = "the tables of that database; or whether the broker starts with these settings"
    return Part(
        "store", path, FILE_NAME, True, None, why, Answer.CANNOT_TELL, AtStake(), decided_by
    )


def _beside_bindings(folder: str, broker: str, places: dict[str, _Place]) -> Surroundings:
    """Return what lies beside the bindings: the journal judges the rest, if it is there."""
    path, found_by, there = places["journal"]
    if any(map(_has_messages, names_beside(path) | names_beside(folder))):
        return Surroundings(broker, BROKER)
    if not there and not any(places[part][2] for part in ("large-messages", "paging")):
        return alone(folder)
    state = "has no file" if there else "is missing"
    why = f"The journal of messages {state}: a start makes a new one, and what it held is lost."
    part = Part("journal", path, found_by, there, False, why, Answer.CANNOT_TELL)
    return Surroundings(broker, BROKER, (part,))


def _has_messages(name: str) -> bool:
    """Return whether a broker takes a file for one of its journal, whatever begins its name."""
    return logical_name(name).lower().endswith(_MESSAGE_ENDINGS)


def _places(folder: str) -> tuple[str, dict[str, _Place]]:
    """Return the data directory of a journal, and where its parts are."""
    folder = folder.rstrip("/") or "/"
    above, _, name = folder.rpartition("/")
    if name in (".", ".."):
        broker = f"{folder}/.."
    else:
        broker = above or ("/" if folder.startswith("/") else ".")
    names = names_beside(broker)
    inside = any(map(is_bindings, names_beside(folder)))
    settings = broker_settings(broker, folder).folders
    places: dict[str, _Place] = {}
    for part, usual in _PLACES.items():
        if (path := settings.get(part)) is not None:
            parent, _, name = path.rpartition("/")
            there = bool(names_beside(path)) or name in names_beside(parent or "/")
            places[part] = (path, FILE_NAME, there)
            continue
        if part == "bindings" and inside:
            places[part] = (folder, _LAYOUT, True)
            continue
        name = next((one for one in usual if one in names), usual[0])
        places[part] = (f"{broker}/{name}", _LAYOUT, name in names)
    return broker, places


def folder_of(part: str, folder: str) -> str:
    """Return where the broker of the journal in a folder keeps a part."""
    return _places(folder)[1][part][0]


def is_bindings(name: str) -> bool:
    """Return whether a file is one of a journal of bindings, by its name."""
    return extension_of(logical_name(name)) == "bindings"


def waiting(references: Iterable[Contents], large: Set[int]) -> tuple[Counter[int], Set[int]]:
    """Return how many messages wait for each queue, and which of the large ones wait for any.

    ``references`` are the contents of records of `REFERENCES`, in their order.
    """
    held: dict[int, set[int]] = {}
    for number, user_type, body in references:
        if (queue := messages.queue_id(body)) is None:
            continue
        if user_type == messages.REFERENCE:
            held.setdefault(queue, set()).add(number)
        elif queue in held:
            held[queue].discard(number)
    counts = Counter({queue: len(numbers) for queue, numbers in held.items() if numbers})
    return counts, {number for numbers in held.values() for number in numbers & large}


def _contents(listed: Iterable[Contents]) -> _Contents:
    found = _Contents()
    for number, user_type, body in listed:
        queue = messages.queue_id(body)
        if user_type == messages.LARGE_MESSAGE:
            found.large[number] = messages.large_file(body).size
        elif queue is None:
            continue
        elif user_type == messages.PAGE_TRANSACTION:
            count = messages.counted(messages.PAGE_TRANSACTION, body)
            # The record counts them, and updates of it what was taken.
            left = found.transactions.get(queue)
            found.transactions[queue] = count if left is None else left - count
        elif user_type == messages.MESSAGE_TAKEN:
            found.taken.setdefault(queue, set()).add(messages.taken(body))
        elif user_type == messages.ALL_TAKEN:
            found.finished.setdefault(queue, set()).add(messages.taken(body)[0])
        else:
            found.paged[queue] += messages.counted(user_type, body)
    return found


def _add_in_doubt(contents: _Contents, added: list[Contents]) -> None:
    """Add what waits once the transactions in doubt are committed."""
    found = _contents(one for one in added if one[1] in LISTED)
    references = (one for one in added if one[1] in REFERENCES)
    contents.in_doubt, wanted = waiting(references, found.large.keys())
    contents.large_in_doubt = {one: found.large[one] for one in wanted}
    contents.transactions |= found.transactions


def _bindings(
    place: _Place,
    contents: _Contents,
    queues: dict[int, str] | None,
    damage: str,
    foreign: str,
    *,
    paged: bool,
) -> Part:
    path, found_by, there = place
    if damage:
        why = f"{damage}. Messages of queues that it does not name are dropped."
        return Part(BINDINGS, path, found_by, why=why, answer=Answer.CANNOT_TELL)
    others = any(map(is_bindings, names_beside(path)))
    state = "The bindings do not have them" if others else "The bindings are missing"
    if lost := _without(contents.waiting, queues):
        why = f"A start drops {lost.total():,} messages of the queues {_listed(lost)}. {state}."
        # How many of their messages in pages are lost with them, the journal does not say. Where
        # there are bindings, one of the two is of another time, or of another broker.
        stake = AtStake(None, None if paged or others else lost.total())
        return Part(BINDINGS, path, found_by, there, False, why, Answer.LOSES, stake)
    if foreign:
        why = f"{foreign}: one of them is of another time, or of another broker."
        return Part(BINDINGS, path, found_by, there, False, why, Answer.CANNOT_TELL)
    if lost := _without(contents.in_doubt, queues):
        why = (
            f"A start drops {counted(lost.total(), 'message')} of transactions in doubt, of the "
            f"queues {_listed(lost)}. {state}."
        )
        return Part(
            BINDINGS, path, found_by, there, False, why, Answer.CANNOT_TELL, AtStake(),
            IF_COMMITTED,
        )  # fmt: skip
    if not queues:
        why = "The bindings are missing: which queues and addresses they held cannot be told."
        answer = Answer.SAFE if there else Answer.CANNOT_TELL
        return Part(BINDINGS, path, found_by, there, None, why if not there else "", answer)
    return Part(BINDINGS, path, found_by, fits=True, why="They name every queue of a message.")


def _without(counts: Counter[int], queues: dict[int, str] | None) -> Counter[int]:
    """Return those of the queues that no binding names."""
    return Counter({one: count for one, count in counts.items() if one not in (queues or {})})


def _listed(counts: Counter[int]) -> str:
    """Return queues with their messages, in words."""
    first = ", ".join(f"{one} ({count:,})" for one, count in sorted(counts.items())[:_LISTED_MAX])
    more = len(counts) - _LISTED_MAX
    return first if more <= 0 else f"{first} and {more} more"


def _large(place: _Place, contents: _Contents, extension: str) -> Part:
    path, found_by, there = place
    wanted = {one: contents.large[one] for one in contents.wanted}
    names = {logical_name(name): name for name in names_beside(path)}

    def odd_of(sizes: Mapping[int, int | None]) -> list[str]:
        found = (_odd(path, names, one, size) for one, size in sorted(sizes.items()))
        return list(filter(None, found))

    if odd := odd_of(wanted):
        why = f"{'; '.join(odd[:_LISTED_MAX])}{' and more' if len(odd) > _LISTED_MAX else ''}: "
        why += f"a start delivers {len(odd):,} large messages in part, empty, or as another."
        stake = AtStake(None, len(odd))
        return Part("large messages", path, found_by, there, False, why, Answer.LOSES, stake)
    if odd := odd_of(contents.large_in_doubt):
        why = f"{odd[0]}, and a transaction in doubt has sent it: it may be delivered in part."
        return Part(
            "large messages", path, found_by, there, False, why, Answer.CANNOT_TELL, AtStake(),
            IF_COMMITTED,
        )  # fmt: skip
    if extension == NEWER and (foreign := _unnumbered(names, ".msg")):
        why = f"{foreign} has no number of a message: Artemis 2.29 and newer do not start with it."
        decided_by = "which version of the broker starts; or without that file"
        return Part(
            "large messages", path, found_by, there, False, why, Answer.CANNOT_TELL, AtStake(),
            decided_by,
        )  # fmt: skip
    why = "Every large message has its file." if wanted else "No large message waits."
    return Part("large messages", path, found_by, there, True, why)


def _unnumbered(names: Iterable[str], ending: str) -> str:
    """Return a file of which a start takes the name for a number, in vain; empty if none.

    A copy beside the file of a large message or a page, as people, desktops and services make them.
    """
    own = (one for one in sorted(names) if one.endswith(ending))
    return next((one for one in own if not re.fullmatch(r"\d{1,19}", one.partition(".")[0])), "")


def _odd(folder: str, names: dict[str, str], number: int, size: int | None) -> str:
    name = f"{number}.msg"
    if name not in names:
        return f"{name} is missing"
    source = open_part(f"{folder}/{names[name]}")
    if source is None:
        return f"{name} is missing"
    with source:
        found = len(source.data)
    if not found and size != 0:
        return f"{name} is empty"
    if size is None or found == size:
        return ""
    more = "" if found < size else ", so another file lies in its place"
    return f"{name} has {found:,} of {size:,} bytes{more}"


def _page_folders(folder: str) -> dict[str, list[str]]:
    """Return the folders of pages that a start does not pass over, and the names in each."""
    below = [f"{folder}/{one}" for one in sorted(names_beside(folder))]
    names = {one: sorted(map(logical_name, names_beside(one))) for one in below}
    return {one: found for one, found in names.items() if _ADDRESS in found}


def _foreign_page(place: _Place, pages: dict[str, list[str]]) -> Part | None:
    path, found_by, there = place
    for below, names in pages.items():
        if foreign := _unnumbered(names, ".page"):
            shown = f"{below.rpartition('/')[2]}/{foreign}"
            why = f"{shown} has no number of a page: a broker does not start with it."
            return Part("paging", path, found_by, there, False, why, Answer.REFUSES)
    return None


def _pages(
    place: _Place,
    contents: _Contents,
    queues: dict[int, str],
    large_place: _Place,
    held: dict[str, _Held],
    known: Known,
) -> Part:
    path, found_by, there = place
    wanted = Counter[str]()
    for queue, count in contents.paged.items():
        if count > 0:
            # The queues of one address read the same pages.
            address = queues.get(queue, "")
            wanted[address] = max(wanted[address], count)
    if gone := _gone(contents, queues, held, known):
        return Part("paging", path, found_by, there, False, gone, Answer.CANNOT_TELL)
    if unnamed := _unnamed(large_place[0], contents, held, known):
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
            files = large_place[0]
            names = {logical_name(name): name for name in names_beside(files)}
            # Of one that was taken the file goes then, and the page later.
            sizes = {
                number: one.file.size
                for (number, page), one in sorted(large.items())
                if f"{number}.msg" in names or _waits(page, one, contents, queues)
            }
            short = (_odd(files, names, number, size) for number, size in sizes.items())
            if text := next(filter(None, short), ""):
                why = f"{text}, and a message in a page names it: it may be delivered in part."
        if why:
            return Part("paging", path, found_by, there, False, why, Answer.CANNOT_TELL)
    return Part("paging", path, found_by, there, True, "The pages are there.")


def _waits(page: int, one: LargeMessage, contents: _Contents, queues: dict[int, str]) -> bool:
    """Return whether a large message in a page is kept over a start, and a queue has not taken it.

    The transaction of one that was never committed is not known.
    """
    sent = one.transaction <= 0 or one.transaction in contents.transactions
    return (
        sent
        and one.file.durable
        and any(
            page not in contents.finished.get(queue, ())
            and (page, one.place) not in contents.taken.get(queue, ())
            for queue in one.queues
            if queue in queues
        )
    )


def _gone(contents: _Contents, queues: dict[int, str], held: dict[str, _Held], known: Known) -> str:
    """Return what the journal says of pages that are not there, in words; empty if nothing.

    A page goes when all of its messages were taken, and its records go before. So where a later
    one is there, it may just have gone.
    """
    there = sum((one.transactions for one in held.values()), Counter[int]())
    if gone := sorted(one for one, left in contents.transactions.items() if left > there[one]):
        return (
            f"{counted(len(gone), 'transaction')} with messages in pages, the first of them "
            f"{gone[0]}, {'has' if len(gone) == 1 else 'have'} fewer in those that are there: "
            "pages may be missing, or older."
        )
    # The pages of an address go with the last of its queues.
    needed = {address for queue, address in queues.items() if queue not in contents.dropped}
    for queue in contents.taken.keys() | contents.finished.keys():
        if queue in contents.dropped and queues.get(queue, "") not in needed:
            continue
        pages = {page for page, _ in contents.taken.get(queue, ())}
        pages |= contents.finished.get(queue, set())
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


def _unnamed(folder: str, contents: _Contents, held: dict[str, _Held], known: Known) -> str:
    """Return which file of a large message tells of a page that is not there; empty if none.

    The file is written before the journal or a page names it.
    """
    paged = {number for one in held.values() for number, _ in one.large}
    files = {
        int(found[1]): f"{folder}/{name}"
        for name in names_beside(folder)
        if (found := re.fullmatch(r"(\d{1,19})\.msg", logical_name(name)))
    }
    unnamed = files.keys() - paged - contents.large.keys()
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


def _between(address: str, queues: dict[int, str], held: dict[str, _Held], known: Known) -> str:
    """Return which page is missing between others, in words; empty if each was done with."""
    numbers = held[address].numbers if address in held else []
    gaps = [range(one + 1, after) for one, after in pairwise(numbers) if one + 1 < after]
    done = _done_with(address, queues, held, known) if gaps else set()
    # One by one: a name may have any number, so a gap may have a thousand million pages.
    lost = next((page for gap in gaps for page in gap if page not in done), None)
    return "" if lost is None else f"{lost:09}.page is missing between others"


def _done_with(
    address: str, queues: dict[int, str], held: dict[str, _Held], known: Known
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


@dataclass(slots=True)
class _Held:
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


def _held(
    folders: dict[str, list[str]], journal: _Contents, queues: dict[int, str]
) -> dict[str, _Held]:
    """Return for each address what its pages hold."""
    held: dict[str, _Held] = {}
    for below, names in folders.items():
        pages = [one for one in names if re.fullmatch(r"\d+\.page", one)]
        if not pages:
            continue
        numbers = [int(one.partition(".")[0]) for one in pages]
        found, counts = _Held(0, numbers=numbers), list[int]()
        address = _text(f"{below}/{_ADDRESS}")
        # Queues that are not known are as many as may be.
        own = [one for one, named in queues.items() if named == address] or list(queues) or [0]
        for page, name in zip(numbers, pages, strict=True):
            one = _page(f"{below}/{name}")
            counts.append(one.messages)
            if page == numbers[0]:
                found.first = one.first
            if not one.whole:
                found.odd = f"{name} ends within a message"
            found.large |= {(number, page): large for number, large in one.large.items()}
            found.transactions.update(_left(page, one, own, journal))
        found.messages = sum(counts) + (numbers[-1] - len(numbers)) * max(counts)
        held[address] = found
    return held


def _left(page: int, one: PageContents, own: Iterable[int], journal: _Contents) -> dict[int, int]:
    """Return how often these queues have still to take a message of each transaction from a page.

    If each message is for all of them: else less often.
    """
    taken = [
        journal.taken.get(queue, set())
        for queue in own
        if page not in journal.finished.get(queue, ())
    ]
    return {
        number: sum((page, place) not in by for place in one.transactions[number] for by in taken)
        for number in one.transactions.keys() & journal.transactions.keys()
    }


def _page(path: str) -> PageContents:
    source = open_part(path)
    if source is None:
        return PageContents(0, True, {})
    with source:
        return contents_of(source.data)


def _text(path: str) -> str:
    source = open_part(path)
    if source is None:
        return ""
    with source:
        return bytes(source.data).decode("utf-8", "replace").strip()
