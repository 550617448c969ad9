"""Whether every file id that a journal has given out is accounted for by the files that are there.

In: `KnownFile`s by ascending id. Out: ranges of ids that may be those of a lost file.

A counter gives each id once: to a file that is created, which has it in its name for ever, or to
one that is used again. So a file that is lost had ids that no other file ever had, one of them in
its name. Where all ids have another owner, no file can be lost. An id has an owner if a file has
it in its name, its header, or the records of an earlier life.

A compaction replaces all files before the one that is current when it begins. It takes files that
were opened, which have ids as well, and writes lower ones into their headers: those of the replaced
files, from the first on. So

* ids up to the highest of such a file hold nothing else that counts;
* such a file has an id of its own above these. If its name cannot be that, it is one of the ids
  without an owner, and a different one for each such file. Where these files are as many as the ids
  without an owner, they are the owners.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from tallystick.systems.jboss.format.file_names import number_of
from tallystick.systems.jboss.read.file_facts import KnownFile
from tallystick.systems.jboss.read.generations import FILE_ID_MAX
from tallystick.systems.jboss.verdict.ends import is_compacted


def lost_ids(readings: Sequence[KnownFile]) -> list[range]:
    """Return ranges of file ids that no file and no compaction explains.

    A load gives new ids, in a row, to all files that hold no records. That explains ids between the
    last file with records and the first without, and only while half of the former is free: else
    the next record may not have fit. And only if that first one has its id from a load: one that
    has the id of its name was created after every load.
    """
    compacted = [one for one in readings if is_compacted(one)]
    floor = max((one.effective_id for one in compacted), default=0)
    owned = {range(life, life + 1) for one in readings for life in _lives(one)}
    missing = list(islice(chain.from_iterable(_gaps(owned, floor)), len(readings) + 1))
    if len(missing) <= _hidden(compacted, missing, floor):
        return []
    last = next((one for one in reversed(readings) if one.has_records), None)
    if last is not None and is_compacted(last) is False and _half_free(last):
        empty = [one for one in readings if not one.has_records]
        first = min((one.effective_id for one in empty), default=0)
        loaded = all(number_of(one.file.name) < first for one in empty if one.effective_id == first)
        for one in empty:
            owned.add(range(one.effective_id, one.effective_id + 1))
            if loaded:
                owned.add(range(max(number_of(one.file.name), last.effective_id + 1), first + 1))
    return list(_gaps(owned, floor))


def odd_id(readings: Sequence[KnownFile]) -> str:
    """Return which id a journal did not give where it stands, in words; empty if there is none.

    Ids only rise, and no file, in any of its lives, has an id above that of the newest file. Of
    format 2 it can be told which records a compaction wrote; other ones belong to one file only.
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


def _half_free(reading: KnownFile) -> bool:
    return 2 * reading.facts.end <= reading.file.size
