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

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tallystick.errors import LogUnreadableError
from tallystick.printable import counted, first_of
from tallystick.records import Answer, AtStake, Part, Surroundings
from tallystick.storage.source import FOLDER, in_the_way, link_to_nothing, logical_name
from tallystick.systems.jboss.applications.broker_xml import (
    DATABASE,
    FILE_NAME,
    NOTHING,
    BrokerSettings,
)
from tallystick.systems.jboss.applications.large_messages import LISTED_MAX, large_part
from tallystick.systems.jboss.applications.needs import IF_COMMITTED, Known, Needs, needs_of
from tallystick.systems.jboss.applications.paging import (
    foreign_page,
    held_in,
    page_folders,
    pages_part,
    passed_over,
)
from tallystick.systems.jboss.applications.places import (
    BINDINGS,
    LAYOUT,
    Layout,
    Place,
    is_bindings,
    layout_of,
    of_other_case,
)
from tallystick.systems.surroundings import (
    alone,
    names_beside,
    packed_part,
    part_bytes,
    renamed_part,
    unlisted,
)

BROKER: Final = "broker"
"""The kind of what a start of Artemis or HornetQ starts."""
_NEWER, _OLDER = "amq", "hq"
MESSAGE_EXTENSIONS: Final = frozenset({_NEWER, _OLDER})
BINDINGS_EXTENSIONS: Final = frozenset({"bindings", "jms"})
_MESSAGE_ENDINGS: Final = tuple(f".{one}" for one in sorted(MESSAGE_EXTENSIONS))
_BROKERS: Final = MESSAGE_EXTENSIONS | BINDINGS_EXTENSIONS
_MADE: Final = ("journal", "bindings", "large-messages")
"""Parts whose folders a start makes where they are not there. That of pages it makes for a page,
and Artemis the last one for a large message."""
_LOCK: Final = "server.lock"
_LOCKS: Final = (_LOCK, "serverlock.1", "serverlock.2")
"""Files in the folder of the journal that a start of Artemis locks; HornetQ has the first only."""
_ID_AT, _LOCK_SIZE = 3, 19
"""Where the id of the broker begins in the first of them, and ends: a part of it is no id."""
_STARTED_SINCE: Final = (
    "They tell of a start of the broker that the journal does not, and each gives new ids to files "
    "of both"
)
_KEPT: Final = {
    DATABASE: (
        (
            "The settings name a database (database-store): a start reads its journals there, by "
            "JDBC, and none of these files."
        ),
        "the tables of that database; or whether the broker starts with these settings",
    ),
    NOTHING: (
        "The settings say that nothing is kept (persistence-enabled): a start reads no file.",
        "whether the broker starts with these settings",
    ),
}
"""Where a broker keeps what it has, if in no file -> what follows, and what would decide it."""


def surroundings_of(folder: str, extension: str, known: Known) -> Surroundings:
    """Return what a start opens besides the journal, of that extension, in a folder."""
    layout = layout_of(folder)
    if extension.lower() in _BROKERS and extension not in _BROKERS:
        why = f"A broker reads files that end in .{extension.lower()}, not in .{extension}: it "
        return Surroundings(layout.broker, BROKER, (_renamed(folder, why),))
    found = _with_settings(folder, extension, known, layout)
    if extension not in _BROKERS or not layout.settings.damage:
        return found
    parts = (*found.parts, _unread_settings(layout.settings))
    return replace(found, path=layout.broker, kind=BROKER, parts=parts)


def _with_settings(folder: str, extension: str, known: Known, layout: Layout) -> Surroundings:
    """Return what a start opens besides the journal, by its settings."""
    broker, settings, places = layout
    if extension in _BROKERS and settings.kept_in:
        part = _kept_elsewhere(settings.path, settings.kept_in)
        return Surroundings(broker, BROKER, (part,), reads_log=False)
    if extension in _BROKERS and (first := _decides_alone(folder, extension, layout)) is not None:
        return Surroundings(broker, BROKER, (first,))
    if extension in BINDINGS_EXTENSIONS:
        return _beside_bindings(folder, broker, places)
    beside = {part: one for part, one in places.items() if one.there and part != "journal"}
    # The rest belongs to the journal of Artemis where there is one, too.
    older = extension == _OLDER and any(
        name.endswith(f".{_NEWER}") for name in names_beside(folder)
    )
    if extension not in MESSAGE_EXTENSIONS or older or not (beside or settings.path):
        return alone(folder)
    if (packed := packed_part(_opened(folder, extension, places), LAYOUT)) is not None:
        return Surroundings(broker, BROKER, (packed,))
    needs = needs_of(known)
    if needs.large and (nowhere := _leading_nowhere(places, _MADE[2:])) is not None:
        return Surroundings(broker, BROKER, (nowhere,))
    place = places["bindings"]
    queues: dict[int, str] | None = None
    damage = foreign = ""
    if place.there and not (damage := unlisted(place.path)):
        try:
            queues, needs.dropped = known.queues(place.path), known.dropped(place.path)
            foreign = known.foreign(place.path, queues)
            if not foreign and known.is_older(place.path):
                foreign = _STARTED_SINCE
        except LogUnreadableError as error:
            damage = str(error)
    pages = page_folders(places["paging"].path)
    held = held_in(pages, needs, queues or {})
    parts = [
        _bindings(place, needs, queues, damage, foreign, paged=bool(held)),
        _unread(places["large-messages"]) or large_part(places["large-messages"], needs, extension),
        passed_over(places["paging"], queues or {})
        or foreign_page(places["paging"], pages)
        or pages_part(places["paging"], needs, queues or {}, places["large-messages"], held, known),
    ]
    return Surroundings(broker, BROKER, tuple(parts))


def _decides_alone(folder: str, extension: str, layout: Layout) -> Part | None:
    """Return the part with which a start does not come to the others; None without one."""
    broker, settings, places = layout
    if settings.elsewhere and not names_beside(settings.elsewhere):
        return _elsewhere(settings.elsewhere)
    if name := of_other_case(layout):
        why = f"A broker opens {name.lower()}, not {name}, unless its settings say so: it "
        return _renamed(f"{broker}/{name}", why)
    made = _MADE if extension == _OLDER else _MADE[:2]
    return _leading_nowhere(places, made) or _in_the_way(folder, extension, layout)


def _opened(folder: str, extension: str, places: Mapping[str, Place]) -> Iterator[str]:
    """Yield the files of journals and large messages that a start asks for, by their names."""
    for path, endings in (
        (folder, {extension}),
        (places["bindings"].path, BINDINGS_EXTENSIONS),
        (places["large-messages"].path, {"msg"}),
    ):
        for name in sorted(names_beside(path)):
            if logical_name(name).rpartition(".")[2] in endings:
                yield f"{path}/{name}"


def _unread(place: Place) -> Part | None:
    """Return the large messages where their folder is there and cannot be read."""
    if not (damage := unlisted(place.path)):
        return None
    why = f"{damage}. A start delivers what is there of the messages."
    return Part("large messages", place.path, place.found_by, why=why, answer=Answer.CANNOT_TELL)


def _renamed(path: str, why: str) -> Part:
    """Return the part that files or folders are whose names have letters of another case."""
    why += "takes that to be empty until the name is changed."
    decided_by = "whether they are renamed before the start"
    return renamed_part(path, LAYOUT, why, decided_by)


def _unread_settings(settings: BrokerSettings) -> Part:
    """Return the part that the settings are where no broker starts with them."""
    why = (
        f"{settings.damage}. Where it keeps its files is presumed to be as its defaults have it, "
        "but for what can be read there."
    )
    decided_by = f"the {FILE_NAME} with which the broker is to start"
    return Part(
        "settings", settings.path, LAYOUT, True, False, why, Answer.CANNOT_TELL, AtStake(),
        decided_by,
    )  # fmt: skip


def _kept_elsewhere(path: str, kept_in: str) -> Part:
    """Return the part that keeps what a broker has, by settings, where no file does."""
    why, decided_by = _KEPT[kept_in]
    return Part(
        "store", path, FILE_NAME, True, None, why, Answer.CANNOT_TELL, AtStake(), decided_by
    )


def _elsewhere(path: str) -> Part:
    """Return the journal that the settings name in the place of the one that is there."""
    why = f"The settings name {path} as the journal, and nothing is there: a start makes a new one."
    decided_by = "whether the broker starts with these settings"
    return Part(
        "journal", path, FILE_NAME, False, None, why, Answer.CANNOT_TELL, AtStake(), decided_by
    )


def _in_the_way(folder: str, extension: str, layout: Layout) -> Part | None:
    """Return a file that a start writes, or asks for, with which it does not start."""
    settings, places = layout.settings, layout.places
    opened = {folder: {extension}}
    if extension in MESSAGE_EXTENSIONS:
        opened[places["bindings"].path] = {"bindings"}
    for place, endings in opened.items():
        for name in sorted(names_beside(place)):
            if name.rpartition(".")[2] in endings and in_the_way(f"{place}/{name}") == FOLDER:
                return _no_start(place, name, "is a folder, and a journal opens it as its file")
    locks = settings.folders.get("node-manager-lock", places["journal"].path)
    for name in _LOCKS if extension == _NEWER else _LOCKS[:1]:
        if there := in_the_way(f"{locks}/{name}"):
            return _no_start(locks, name, f"is {there}, and a start writes and locks it")
    if _ID_AT < len(part_bytes(f"{locks}/{_LOCK}") or b"") < _LOCK_SIZE:
        return _no_start(locks, _LOCK, "was cut: a start stops at a part of the id that it has")
    return None


def _no_start(folder: str, name: str, why: str) -> Part:
    """Return the part that a file is with which no broker starts."""
    path = f"{folder}/{name}"
    text = f"{path} {why}: the broker does not start."
    return Part(name, path, LAYOUT, fits=False, why=text, answer=Answer.REFUSES)


def _leading_nowhere(places: Mapping[str, Place], names: Iterable[str]) -> Part | None:
    """Return the first part that is a link to nothing in whose place no start makes a folder."""
    for name in names:
        path, found_by, _ = places[name]
        if nowhere := link_to_nothing(path):
            why = f"{path} is a link to {nowhere}, which is not there: the broker does not start."
            return Part(name, path, found_by, there=False, why=why, answer=Answer.REFUSES)
    return None


def _beside_bindings(folder: str, broker: str, places: Mapping[str, Place]) -> Surroundings:
    """Return what lies beside the bindings: the journal judges the rest, if it is there."""
    path, found_by, there = places["journal"]
    for one in (path, folder):
        if any(map(_has_messages, names_beside(one))):
            return Surroundings(broker, BROKER, other_log=_judged_there(one, found_by))
    if not there and not any(places[part].there for part in ("large-messages", "paging")):
        return alone(folder)
    state = "has no file" if there else "is missing"
    why = f"The journal of messages {state}: a start makes a new one, and what it held is lost."
    part = Part("journal", path, found_by, there, False, why, Answer.CANNOT_TELL)
    return Surroundings(broker, BROKER, (part,))


def _judged_there(path: str, found_by: str) -> Part:
    """Return the journal of messages, which tells what all of the broker is about."""
    why = (
        "The journal of messages decides with these bindings, and was not judged with them: give "
        "the folder that holds both."
    )
    return Part("journal", path, found_by, True, None, why, Answer.CANNOT_TELL)


def _has_messages(name: str) -> bool:
    """Return whether a broker takes a file for one of its journal, whatever begins its name."""
    return logical_name(name).lower().endswith(_MESSAGE_ENDINGS)


def _bindings(
    place: Place,
    needs: Needs,
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
    if lost := _without(needs.waiting, queues):
        of = counted(lost.total(), "message")
        why = f"A start drops {of} of the {_listed(lost)}. {state}."
        # How many of their messages in pages are lost with them, the journal does not say. Where
        # there are bindings, one of the two is of another time, or of another broker.
        stake = AtStake(None, None if paged or others else lost.total())
        return Part(BINDINGS, path, found_by, there, False, why, Answer.LOSES, stake)
    if foreign:
        why = f"{foreign}: one of them is of another time, or of another broker."
        return Part(BINDINGS, path, found_by, there, False, why, Answer.CANNOT_TELL)
    if lost := _without(needs.in_doubt, queues):
        why = (
            f"A start drops {counted(lost.total(), 'message')} of transactions in doubt, of the "
            f"{_listed(lost)}. {state}."
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
    """Return queues with their messages, in words: ``queues 7 (150), 9 (1)``."""
    texts = [f"{one} ({count:,})" for one, count in sorted(counts.items())]
    return f"queue{'s' * (len(counts) > 1)} {first_of(texts, LISTED_MAX)}"
