"""Whether every file id that a journal has given out is accounted for by the files that are there.

In: `KnownFile`s by ascending id. Out: ranges of ids that may be those of a lost file.

A counter gives each id once: to a file that is created, which has it in its name for ever, or to
one that is used again. An id has an owner if a file has it in its name, its header, or the records
of an earlier life.

An id without an owner is no loss in itself. A journal deletes files that it does not need, uses
files more than once, and gives new ids to empty ones, or deletes them, at each load. But a file
goes only when all that was added in it is done with. Ids of records rise, too: the id just before
that of the first add after such a file is one that was live when that file was full, or one of its
last. So it stands in an earlier file, or a delete that counts is there, of it or of one next to it.
Where instead many ids before that add are accounted for nowhere, the records that had them may
stand in a lost file. What a transaction that never ended deletes is not done with, and the number
of a transaction is that of no record.

Ids are spent by loads, and files are used in the order in which they were created. So where a
broker was started as often as ids are missing while one file was current, or where a file was
never used and every one before it is there, none is lost.

A compaction replaces all files before the one that is current when it begins. It takes files that
were opened, which have ids as well, and writes lower ones into their headers: those of the replaced
files, from the first on. So

* ids up to the highest of such a file, and of the files before the one that was current, hold
  nothing else that counts;
* such a file has an id of its own above these. If its name cannot be that, it is one of the ids
  without an owner, and a different one for each such file. Where these files are as many as the ids
  without an owner, they are the owners.
* it opens its files one after the other, right after the one that is current, and the next file is
  opened right after them. An id between these without an owner is that of a file of the compaction
  which is gone: lost, unless deletes of as many records as it held are there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise

from tallystick.systems.jboss.format.file_names import extension_of, number_of
from tallystick.systems.jboss.format.layout import FILL_J, LONG_MAX
from tallystick.systems.jboss.read.analysis import GONE_MAX
from tallystick.systems.jboss.read.file_facts import KnownFile
from tallystick.systems.jboss.read.generations import FILE_ID_MAX
from tallystick.systems.jboss.verdict.ends import fills, is_compacted

ID_BATCH = 0x7FFFFFFF
"""Record ids that a broker takes at once; after a kill it goes on with the next batch."""
UNNAMED_MAX = 1
"""Ids in a row that a broker gives to what it does not write, at work."""
UNNAMED_AT_START_MAX = 16
"""The same at a start."""
FIRST_PART, FIRST_MIN = 10, 8
"""The first records of a file: a tenth of them, or so many."""
WAITING_MIN = 2
"""So many of these that wait are no single ones that nobody takes."""
GIVEN_MAX = 256
"""Ids that were given to threads of a broker, and are not written yet."""
CREATED_MIN = 2
"""Files that a journal creates when it begins."""
OPENED_MAX = 2
"""Files that are opened when a compaction begins: the current one, and the next."""
RECORDS_OF_MESSAGE = 2
"""A message and its place in a queue."""


def lost_ids(
    readings: Sequence[KnownFile],
    deleted: Sequence[int],
    *,
    open_since: int | None = None,
    given: range | None = None,
    live: Container[int] = (),
) -> list[range]:
    """Return ranges of file ids that no file, no compaction and no life of a journal explains.

    A load gives new ids, in a row, to all files that hold no records, or deletes them. That
    explains ids between the last file with records and the first without, while the next record
    would have fit into the former.

    Args:
        readings: the files, by ascending id.
        deleted: the ids of records that are nowhere, and are deleted.
        open_since: the id of the first file with a part of a transaction that never ended: the end
            may have been in any file after it. None without such a transaction.
        given: the ids that the broker gave after its last start; None if they are not known.
        live: the ids of live records.
    """
    compacted = [one for one in readings if is_compacted(one)]
    if not compacted and _every_one_is_there(readings):
        return []
    owned = {range(life, life + 1) for one in readings for life in _lives(one)}
    owned |= set(_taken_by_loads(readings, given))
    owned.add(_names_replaced(readings, compacted))
    owned.add(_before_first_use(readings, deleted))
    opened = _opened_after(readings, compacted, owned)
    floor = max(_replaced(readings, compacted), opened.start - 2)
    owned |= {range(one, one + 1) for one in opened}
    # One more than there are files is as good as all: a compaction hides at most one id per file,
    # and a damaged id can leave a gap of millions of millions.
    missing = list(islice(chain.from_iterable(_gaps(owned, floor)), len(readings) + 1))
    if len(missing) <= _hidden(compacted, missing, floor):
        owned |= {range(one, one + 1) for one in missing}
    last = max((one.effective_id for one in readings if one.has_records), default=0)
    empty = [one.effective_id for one in readings if one.effective_id > last]
    if (
        empty
        and last
        and _is_current(readings, last, open_since, given)
        and _opened_later(readings, last, deleted)
    ):
        owned.add(range(last + 1, min(empty) + 1))
    gaps = [*_gaps_between(compacted), *_gaps(owned, floor)]
    told = [one for one in gaps if one.stop <= last]
    known = _done_with(readings, told, deleted, live, open_since=open_since)
    gone = _gone_of_compaction(readings, compacted, owned)
    gone += _last_of_compaction(readings, compacted, deleted)
    gone += _gone_though_kept(readings, compacted)
    return [*gone, *(gap for gap in gaps if gap not in known)]


def _every_one_is_there(readings: Sequence[KnownFile]) -> bool:
    """Return whether every file that ever held records is there, by a file that never did.

    Files are used in the order in which they were created, so those after that one are empty. A
    compaction of HornetQ takes them out of turn.
    """
    unused = (one for one in readings if not one.has_records and not one.facts.stale_ids)
    least = min((number_of(one.file.name) for one in unused), default=0)
    names = {number_of(one.file.name) for one in readings}
    if not _opens_in_order(readings):
        return least == 1
    return least > 0 and names.issuperset(range(1, least))


def _before_first_use(readings: Sequence[KnownFile], deleted: Sequence[int]) -> range:
    """Return the ids up to that of the last file which is used for the first time, in turn.

    The files before it have the ids with which they were created, so they are those of the whole
    past, and no compaction has replaced them: what a load gave between is no file's. A file that
    was used before was full then, and that would be seen after its records, or the next one was.
    If it is full now, ids of records tell: what it held before was done with, so all of that, too,
    was added there, for the files before are those of the past, and deletes of theirs are kept.
    """
    largest = max((one.facts.largest for one in readings), default=0)
    end = 0
    for number, one in enumerate(readings, 1):
        life = one.effective_id
        if number_of(one.file.name) != number or not one.has_records or is_compacted(one):
            break
        later = chain.from_iterable(two.facts.stale_ids for two in readings[number:])
        first = (
            not one.facts.stale_ids and _room(one) >= largest and min(later, default=life) >= life
        )
        if life != number and not first and not _goes_on(readings, one, deleted):
            break
        end = life
    return range(1, end + 1)


def _goes_on(readings: Sequence[KnownFile], file: KnownFile, deleted: Sequence[int]) -> bool:
    """Return whether no more ids are unaccounted for before a file than a start takes."""
    count = _ids_unnamed(readings, [file.effective_id], deleted)[file.effective_id]
    same_start = not _started(_first_added(readings, file.effective_id))
    own = file.first_added() is not None and not file.facts.stale_ids
    return own and same_start and count is not None and count <= UNNAMED_AT_START_MAX


def _taken_by_loads(readings: Sequence[KnownFile], given: range | None) -> Iterator[range]:
    """Yield the ids between files with records that went with loads while the first was current.

    A load takes at least one id, for the file that waits. How often a broker was started between
    two record ids is told by the ids: after a kill it goes on with the next batch of them, and
    ``given`` begins at the last start. A lost file would need one id more.
    """
    used = [one for one in readings if one.has_records]
    for before, after in pairwise(used):
        ids = range(before.effective_id + 1, after.effective_id)
        begin, end = before.first_added(), after.first_added()
        if not ids or is_compacted(before) or begin is None or end is None:
            continue
        loads = end // ID_BATCH - begin // ID_BATCH
        if given is not None and begin < given.start <= end and not _started(given.start):
            loads += 1
        if len(ids) <= loads:
            yield ids
    for one in used[:1]:
        first, number = one.first_added(), number_of(one.file.name)
        if first is None or number != 1 or is_compacted(one) or one.facts.stale_ids:
            continue
        # If it had been used before, three would have had ids before it got a new one.
        if 1 < one.effective_id <= CREATED_MIN + 1 + first // ID_BATCH:
            yield range(1, one.effective_id)


def started_since(readings: Sequence[KnownFile], starts: Sequence[int], started: int) -> bool:
    """Return whether a broker was, or may have been, started after its journal was as it is now.

    Each load gives a new id to every file that waits, so those between the last file with records
    and the first that waits are as many as the loads since that was current; or as many times as
    files wait, which is presumed where nothing was written since the last start. Those loads are
    the starts that are noted with a higher id than that of the first record of any file, but for
    as many as ids are missing between that file and the last; where some notes are gone, the
    batches of ids between, as in `_taken_by_loads`; and of the very first file all that there ever
    were.

    Args:
        readings: the files, by ascending id.
        starts: the first id after each start that is noted, in their order.
        started: how often it was started at least.
    """
    used = [one for one in readings if one.has_records]
    if not used:
        newest = readings[-1].effective_id if readings else 0
        unused = {number_of(one.file.name) for one in readings if not one.facts.stale_ids}
        # The first file is used first: where it never was, none was, and each start gave an id to
        # it and one to a second file, which it kept, or made after it had deleted the one before.
        each = CREATED_MIN if 1 in unused else 1
        return 0 < newest < CREATED_MIN + each * (started - 1)
    file = used[-1]
    waiting = [one.effective_id for one in readings if one.effective_id > file.effective_id]
    if not waiting:
        return False
    if is_compacted(file):
        # A load gives a new id to a file that waits: so none came where one waits that had its id
        # before the compaction created its files.
        created = max(number_of(one.file.name) for one in used if is_compacted(one))
        waits = any(not one.has_records and one.effective_id < created for one in readings)
        named = max(one.named_below([LONG_MAX])[0] for one in used)
        return waits and bool(starts) and named < starts[-1]
    least = started - 1 if file.effective_id == 1 else 0
    for place, since in enumerate(reversed(used) if starts else ()):
        first = None if is_compacted(since) else since.first_added()
        if first is None:
            continue
        noted = len(starts) - bisect_right(starts, first)
        later = max(noted, starts[-1] // ID_BATCH - first // ID_BATCH)
        least = max(least, later - (file.effective_id - since.effective_id - place))
    ids = range(file.effective_id + 1, waiting[0])
    created = sum(number_of(one.file.name) in ids for one in used if is_compacted(one))
    loads = len(ids) - created
    if starts and max(one.named_below([LONG_MAX])[0] for one in used) < starts[-1]:
        # Each load may have found all that wait, or one, and been done with the others then.
        loads //= len(waiting)
    return loads < least


def whole_since(readings: Sequence[KnownFile], *, unknown_deleted: bool) -> int | None:
    """Return the id from which on every record that ever was is in the files; None of none.

    0 where each file with records is in its first life, from the very first one on, and none of
    what they delete was added elsewhere: that tells of a file that was done with. Else it is that
    of the last files in a row that no compaction wrote. A thread is given an id before its record
    is appended, so what has one soon after theirs may stand before them; not what was given after
    the next start, which goes on with ids of another batch.

    Args:
        readings: the files, by ascending id.
        unknown_deleted: whether records are deleted of which no add is there.
    """
    used = [one for one in readings if one.has_records]
    again = any(one.facts.stale_ids for one in readings) or any(map(is_compacted, used))
    if used and used[0].effective_id == 1 and not again and not unknown_deleted:
        return 0
    row: list[KnownFile] = []
    for one in reversed(used):
        if is_compacted(one) or (row and one.effective_id + 1 != row[-1].effective_id):
            break
        row.append(one)
    adds = chain.from_iterable(one.adds() for one in reversed(row))
    first = list(islice(adds, FIRST_MIN))
    return min((first[0] // ID_BATCH + 1) * ID_BATCH, max(first) + GIVEN_MAX) if first else None


def _replaced(readings: Sequence[KnownFile], compacted: Sequence[KnownFile]) -> int:
    """Return the highest id of a file that a compaction has surely replaced; 0 for none.

    A compaction opens its files right after the one that is current when it begins, or after the
    one that waits then. The only file that it did not write waits, if it is empty and has the id
    that it was created with: a load would have given it another one.
    """
    floor = max((one.effective_id for one in compacted), default=0)
    names = (number_of(one.file.name) for one in compacted)
    opened = min((name for name in names if name > floor), default=floor)
    others = [one for one in readings if one.effective_id > floor]
    if len(others) == 1 and not others[0].has_records:
        opened = min(opened, number_of(others[0].file.name))
    return max(floor, opened - 2)


def _opened_after(
    readings: Sequence[KnownFile], compacted: Sequence[KnownFile], owned: Container[range]
) -> range:
    """Return the ids with which the files of a compaction were opened; empty if that is not sure.

    They follow that of the file which was current, the first after them by the ids in headers, and
    the next file has the id after theirs: so none of them is gone.
    """
    names = {number_of(one.file.name) for one in compacted}
    current = _current_then(readings, compacted)
    ids = range(current + 1, current + 1 + len(compacted))
    free = all(one in names or range(one, one + 1) not in owned for one in ids)
    created = all(one in ids for one in names if one > current)
    followed = compacted and current and range(ids.stop, ids.stop + 1) in owned
    sure = followed and free and created and _opens_in_order(readings)
    return ids if sure else range(1, 1)


def _names_replaced(readings: Sequence[KnownFile], compacted: Sequence[KnownFile]) -> range:
    """Return ids that files had which a compaction of HornetQ has replaced; empty if none did.

    It creates its files once the next one is current, and that which waits then beside them. What
    has a lower id is older, though it is above that of the current file where an earlier compaction
    gave it: unless it is the one that waited, and is used once the current one is full.
    """
    current = _current_then(readings, compacted)
    names = sorted(number_of(one.file.name) for one in compacted)
    if _opens_in_order(readings) or not current or not names or names[0] < current:
        return range(1, 1)
    waits = any(names[0] < number_of(one.file.name) < names[-1]
                for one in readings if one not in compacted)  # fmt: skip
    files = [one for one in readings if one.effective_id >= current]
    later = any(one.has_records for one in files[1:])
    roomy = _room(files[0]) >= max(one.facts.largest for one in readings)
    return range(current + 1, names[0]) if waits or (roomy and not later) else range(1, 1)


def _room(file: KnownFile) -> int:
    """Return the bytes after the last record of a file."""
    return file.file.size - file.facts.end


def _opens_in_order(readings: Sequence[KnownFile]) -> bool:
    """Return False of HornetQ, where a compaction creates files before those that wait."""
    return FILL_J not in fills(readings)


def _current_then(readings: Sequence[KnownFile], compacted: Sequence[KnownFile]) -> int:
    """Return the id of the file that was current when a compaction began, if it is there, or 0."""
    floor = max((one.effective_id for one in compacted), default=0)
    return next((one.effective_id for one in readings if one.effective_id > floor), 0)


def _gone_of_compaction(
    readings: Sequence[KnownFile], compacted: Sequence[KnownFile], owned: Container[range]
) -> list[range]:
    """Return the ids of files of a compaction that are gone, and held more than is deleted.

    Only of files that were created for it: their names are the ids with which they were opened.
    """
    names = [number_of(one.file.name) for one in compacted]
    current = _current_then(readings, compacted)
    if not names or names != sorted(names) or not _opens_in_order(readings):
        return []
    if not compacted[-1].effective_id < current < names[0]:
        return []
    following = next(one for one in readings if one.effective_id >= current)
    gaps = list(zip([current, *names], names, [None, *compacted], compacted, strict=False))
    if _room(compacted[-1]) < max(one.facts.largest for one in compacted):
        gaps.append((names[-1], names[-1] + 2, compacted[-1], following))
    found = []
    for low, high, before, after in gaps:
        every = (one for one in range(low + 1, high) if range(one, one + 1) not in owned)
        ids = list(islice(every, GONE_MAX))
        held = len(ids) * min(one.facts.records for one in compacted)
        if ids and RECORDS_OF_MESSAGE * _deleted_between(readings, before, after) < held:
            found.append(range(ids[0], ids[-1] + 1))
    return found


def _gone_though_kept(
    readings: Sequence[KnownFile], compacted: Sequence[KnownFile]
) -> Iterator[range]:
    """Yield the first id of a compaction of Artemis, if a file that was there at its end is gone.

    That end gives new ids to files that are done with while there are fewer than the pool may have,
    and a file is deleted only while there are more. So where the next file, created for the
    compaction, was not used since, and ids after its own were given to such files, each file of
    that time is there: the current one, and one for each id between these two.
    """
    if not compacted or not _opens_in_order(readings):
        return
    following = max(readings, key=lambda one: number_of(one.file.name))
    number = number_of(following.file.name)
    unused = not following.has_records and not following.facts.stale_ids
    freed = any(one.effective_id > number and one.facts.stale_ids for one in readings)
    if not (unused and freed and number == following.effective_id):
        return
    owned = {life for one in readings if one not in compacted for life in _lives(one)}
    current = max((life for life in owned if life < number), default=0)
    if number - current - 1 not in (0, len(compacted)):
        yield range(current + 1, current + 2)


def _last_of_compaction(
    readings: Sequence[KnownFile], compacted: Sequence[KnownFile], deleted: Sequence[int]
) -> list[range]:
    """Return the id that the last file of a compaction had, if it is gone and was not done with.

    The files that are there end in a full one, or records were deleted that came after those in
    them and before what was added since; but many of these are named nowhere.
    """
    current = _current_then(readings, compacted)
    first = _first_added(readings, current) if compacted and current else None
    if first is None or _started(first):
        return []
    low = max(one.named_below([first])[0] for one in compacted)
    high = max((one for one in deleted if low < one < first), default=low)
    full = _room(compacted[-1]) < max(one.facts.largest for one in compacted)
    if first - high - 1 <= UNNAMED_AT_START_MAX or not (full or high > low):
        return []
    last = compacted[-1].effective_id
    return [range(last + 1, last + 2)]


def _deleted_between(
    readings: Sequence[KnownFile], before: KnownFile | None, after: KnownFile
) -> int:
    """Return how many records are deleted whose ids lie between those in two files."""
    high = after.first_added() or LONG_MAX
    low = before.named_below([high])[0] if before else 0
    return len({number for one in readings for number in one.deletes() if low < number < high})


def _gaps_between(compacted: Sequence[KnownFile]) -> Iterator[range]:
    """Yield ids between those of the files of a compaction, which it gives in a row."""
    for before, after in pairwise(one.effective_id for one in compacted):
        if after > before + 1:
            yield range(before + 1, after)


def _is_current(
    readings: Sequence[KnownFile], last: int, open_since: int | None, given: range | None
) -> bool:
    """Return whether the last file with records is the one to which a journal appends.

    The largest record there is would fit into it. If a compaction wrote it, another one was current
    then; but a load makes the last file with records current again. So where it has an id that was
    given after the last start, no file that held records comes after it.
    """
    used = [one for one in readings if one.has_records]
    file = next(one for one in used if one.effective_id == last)
    if _room(file) < max(one.facts.largest for one in used):
        return False
    if given is not None and file.named_below([LONG_MAX])[0] in given:
        return True
    return open_since is None and not is_compacted(file)


def _opened_later(readings: Sequence[KnownFile], last: int, deleted: Sequence[int]) -> bool:
    """Return whether the first file after the last one with records can have the id that it has.

    A load of Artemis deletes files that are empty, where its pool is full, or gives them new ids.
    One of HornetQ deletes none: the first of them has another name then. A file that was created
    later has the next id, or that after those of a compaction whose files are gone: deletes
    of what was copied are there then, and before these ids no files but the one that was current
    for the compaction, and the one that waited.
    """
    first = min((one for one in readings if one.effective_id > last), key=_id)
    if _opens_in_order(readings) or number_of(first.file.name) != first.effective_id:
        return True
    copied = [bool(is_compacted(one)) for one in readings if one.has_records]
    return copied.count(False) <= OPENED_MAX and (bool(deleted) or any(copied))


def _id(reading: KnownFile) -> int:
    return reading.effective_id


def is_current(readings: Sequence[KnownFile]) -> bool:
    """Return whether nothing was appended after the newest file, though no file follows it.

    It is left when it is full, or when a compaction begins, which is not there to be seen.
    """
    newest, used = readings[-1], [one for one in readings if one.has_records]
    largest = max((one.facts.largest for one in used), default=0)
    return _room(newest) >= largest and not any(map(is_compacted, readings))


def _done_with(
    readings: Sequence[KnownFile],
    gaps: Sequence[range],
    deleted: Sequence[int],
    live: Container[int],
    *,
    open_since: int | None,
) -> list[range]:
    """Return of which ids the files were done with, by the records after them.

    Where nothing was added later, a delete of a record that is nowhere stands for it. After the
    beginning of a transaction that never ended every number must be named: its end takes none.

    Where records wait that were among the first in the next file, others waited before them; and
    where those wait that were the last before it, and these do not, what took them is gone.
    """
    before = {gap: next(one for one in readings if one.effective_id >= gap.stop) for gap in gaps}
    unnamed = _ids_unnamed(readings, [one.effective_id for one in before.values()], deleted)
    found = []
    for gap, one in before.items():
        count = unnamed[one.effective_id]
        place = readings.index(one)
        if count is not None and _waited_across(readings, place, live):
            continue
        if place and _taken_after(readings[place - 1], one, live):
            continue
        if open_since is not None and gap.start > open_since:
            if count == 0 and not _started(_first_added(readings, one.effective_id)):
                found.append(gap)
            continue
        begins = place > 0 and is_compacted(readings[place - 1]) and not is_compacted(one)
        limit = UNNAMED_AT_START_MAX if begins else UNNAMED_MAX
        if begins or deleted if count is None else count <= limit:
            found.append(gap)
    return found


def _waited_across(readings: Sequence[KnownFile], place: int, live: Container[int]) -> bool:
    """Return whether records wait that were among the first in a file, and others before it.

    One alone may be of those that nobody takes. Not where no record was added between the files.
    """
    file = readings[place]
    added = list(file.adds())
    if len(added) < FIRST_MIN:
        return False  # it has just begun
    count = _ids_unnamed(readings, [file.effective_id], ())[file.effective_id]
    if count is not None and count <= UNNAMED_MAX:
        return False
    first = sum(one in live for one in added[: _few(added)])
    if not first or first >= WAITING_MIN:
        return first > 0
    earlier = list(readings[place - 1].adds()) if place else []
    return any(one in live for one in earlier[-_few(earlier) :])


def _taken_after(before: KnownFile, after: KnownFile, live: Container[int]) -> bool:
    """Return whether the last records before a gap wait, and the first ones after it do not.

    Messages are taken in the order in which they were sent: what took these stood in the gap.
    """
    last, first = list(before.adds())[-FIRST_MIN:], list(after.adds())
    taken = len(first) >= FIRST_MIN and not any(one in live for one in first[: _few(first)])
    return taken and 2 * sum(one in live for one in last) > FIRST_MIN


def _few(added: Sequence[int]) -> int:
    return max(len(added) // FIRST_PART, FIRST_MIN)


def not_followed(
    readings: Sequence[KnownFile], places: Iterable[tuple[str, int]], deleted: Sequence[int]
) -> list[str]:
    """Return the texts of the places where records may have stood before a file, of that id.

    A compaction that was interrupted changes files as well: the first add in the next one follows
    what is named before it.
    """
    found = list(places)
    unnamed = _ids_unnamed(readings, [file_id for _, file_id in found], deleted)
    counts = ((text, unnamed[file_id]) for text, file_id in found)
    return [text for text, count in counts if count is None or count > UNNAMED_MAX]


def _ids_unnamed(
    readings: Sequence[KnownFile], ids: Sequence[int], deleted: Sequence[int]
) -> dict[int, int | None]:
    """Return how many record ids before the first that is added from a file on are unaccounted for.

    Those that stand in an earlier file are, and so are those of records that were deleted, and of
    transactions that stand in a later file. Any other that a later file names may be that of a
    record which was lost with the file that added it.

    Args:
        readings: the files, by ascending id.
        ids: those of files.
        deleted: the ids of records that are nowhere, and are deleted.

    Returns:
        The number by file id; 0 at a start with new ids, None where nothing is added.
    """
    firsts = {one: _first_added(readings, one) for one in ids}
    limits = sorted({first for first in firsts.values() if first is not None})
    gone = sorted({0, *deleted})
    named = [(one, one.named_below(limits)) for one in readings if limits]
    found: dict[int, int | None] = {}
    for file_id, first in firsts.items():
        if first is None or _started(first):
            found[file_id] = None if first is None else 0
            continue
        at = limits.index(first)
        below = [numbers[at] for one, numbers in named if one.effective_id < file_id]
        low = max(*below, gone[bisect_left(gone, first) - 1], 0)
        later = (one for one in readings if one.effective_id >= file_id)
        taken = {number for one in later for number in one.transactions_between(low, first)}
        found[file_id] = first - low - 1 - len(taken)
    return found


def _first_added(readings: Sequence[KnownFile], file_id: int) -> int | None:
    later = (one for one in readings if one.effective_id >= file_id)
    return next((found for one in later if (found := one.first_added()) is not None), None)


def _started(first: int | None) -> bool:
    """Return whether an id is one of the first that a broker gives after a start."""
    return first is not None and 0 <= first % ID_BATCH <= UNNAMED_AT_START_MAX


def given_up(
    ids: range, since: int, readings: Sequence[KnownFile], deleted: Sequence[int]
) -> int | None:
    """Return one of these ids that a file had which held records and is gone, or was used again.

    None if nothing tells of one. ``ids`` lie between a file that is there and the next one; of
    those up to ``since``, which were given before a stream began, only `lost_ids` count, and of
    Artemis without compaction: a journal removes files that are empty again, and what numbers
    records get elsewhere is the application's.
    """
    there = {one.effective_id for one in readings}
    earlier = (life for one in readings for life in one.facts.earlier_ids)
    reused = (life for life in earlier if life in ids and life > since and life not in there)
    plain = extension_of(readings[0].file.name) == "amq" and not any(map(is_compacted, readings))
    lost = (max(one.start, ids.start) for one in (lost_ids(readings, deleted) if plain else ())
            if one.start < ids.stop and one.stop > ids.start)  # fmt: skip
    owned = [range(life, life + 1) for one in readings for life in _lives(one) if life in ids]
    gaps = _gaps([*owned, range(ids.stop, ids.stop + 1)], ids.start - 1)
    used = (gap.start for gap in gaps if gap.start > since and _held_records(gap, readings))
    return next(chain(reused, lost, used), None)


def _held_records(gap: range, readings: Sequence[KnownFile]) -> bool:
    """Return whether ids without an owner were those of files with records.

    A load gives new ids to empty files, or deletes them. But files are used in the order of their
    ids: if the next one holds records under the id that it was created with, and ids of records are
    between those before and its own, others had these. A compaction takes an id for each file.
    """
    following = next(one for one in readings if one.effective_id >= gap.stop)
    first = following.first_added()
    created = number_of(following.file.name) == following.effective_id
    if first is None or not created or len(gap) <= sum(bool(is_compacted(one)) for one in readings):
        return False
    before = (one for one in readings if one.effective_id < gap.start)
    below = max((one.named_below([first])[0] for one in before), default=first)
    return first // ID_BATCH == below // ID_BATCH and first - below > UNNAMED_AT_START_MAX


def odd_id(readings: Sequence[KnownFile]) -> str:
    """Return in words an id that the journal cannot have given to its file; empty if all fit.

    Ids only rise, and no file, in any of its lives, has an id above that of the newest file. Of
    format 2 one can tell which records a compaction wrote; all others belong to one file only.
    """
    newest = max((one.effective_id for one in readings), default=0)
    owners = Counter(life for one in readings if one.shape.compact for life in set(_lives(one)))
    for one in readings:
        name, number = one.file.name, one.effective_id
        if not 0 < number < FILE_ID_MAX:
            return f"{name} has the id {number} in its header"
        if number < number_of(name) and not one.has_records:
            return f"{name} holds no records and has the id {number}, below that of its name"
        if found := next((life for life in _lives(one) if owners[life] > 1), None):
            return f"{name} has, or had, the id {found}, which another file had"
        if found := next((id_ for id_ in one.facts.stale_ids if not 0 < id_ <= newest), None):
            return f"{name} holds a record under the id {found}, which no file had"
    return ""


def _hidden(compacted: Sequence[KnownFile], missing: Sequence[int], floor: int) -> int:
    """Return how many of the missing ids are surely those of files of a compaction.

    These were opened in the order of the ids that they had, all above ``floor``.
    """
    count, least = 0, floor
    for one in compacted:
        name = number_of(one.file.name)
        later = next((id_ for id_ in missing if id_ > least), None)
        if name > least:
            least = name if later is None else min(name, later)
        elif later is not None:
            count, least = count + 1, later
    return count


def _lives(reading: KnownFile) -> Iterator[int]:
    """Yield the ids that the file surely had."""
    yield number_of(reading.file.name)
    compacted = is_compacted(reading)
    if compacted:
        return  # its header, and the bytes after its records, have ids of replaced files
    if compacted is False:
        yield reading.effective_id
    yield from reading.facts.earlier_ids


def in_first_lives(readings: Sequence[KnownFile]) -> bool:
    """Return whether every file that the journal ever had is there, and none was used again."""
    names = [number_of(one.file.name) for one in readings]
    ids = [one.effective_id for one in readings]
    return names == ids == list(range(1, len(ids) + 1)) and not any(map(is_compacted, readings))


def _gaps(owned: Iterable[range], floor: int) -> Iterator[range]:
    begin = floor + 1
    for ids in sorted(owned, key=lambda one: one.start):
        if ids.start > begin:
            yield range(begin, ids.start)
        begin = max(begin, ids.stop)
