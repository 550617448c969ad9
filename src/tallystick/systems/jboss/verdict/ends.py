"""Whether a file looks as its own appends leave it: end to end, and untouched after the last one.

In: `KnownFile`s. Out: what no append leaves, in words. A file is filled before it is used, with
one byte over and over, and a reused file still holds the records of its earlier life. Records are
appended without gaps; block-aligned writing fills up to the next block with zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from tallystick.storage.files import SECTOR
from tallystick.storage.zeros import is_zero, last_other_end
from tallystick.systems.jboss.format.file_names import number_of
from tallystick.systems.jboss.format.layout import (
    CHECK_SIZE,
    FILL,
    FILL_J,
    FILL_ZERO,
    is_filled,
)
from tallystick.systems.jboss.read.classify import NO_TYPE, Classified
from tallystick.systems.jboss.read.file_facts import BLOCKS, KnownFile
from tallystick.systems.jboss.read.scan import measure, numbers

_OLD = 3
"""From this compact count on a compaction keeps records in files of their own."""
_TAIL = 16
"""Bytes after the written part of an unfinished record; the first may be zeros that it holds."""
_ZEROS_MAX = 8
"""So many of them: the longest field of an ending record."""


def block_size(readings: Iterable[KnownFile]) -> int | None:
    """Return the block size, in bytes, that explains every gap between records; 1 without gaps.

    None if there is none.
    """
    gaps = [reading.facts for reading in readings if reading.facts.gaps]
    if not gaps:
        return 1
    for block in BLOCKS:
        if all(block in one.gap_blocks for one in gaps):
            return block if all(one.gaps_zero for one in gaps) else None
    return None


def sizes_given(readings: Sequence[KnownFile]) -> set[int]:
    """Return the sizes, in bytes, that the journal gave its files: that of the largest.

    And others that two files at least have, where files of one size stand together: the setting was
    changed between two starts, of which the last may have needed one file yet. One that was never
    used may have been cut or made longer.
    """
    by_id = sorted(readings, key=lambda one: one.effective_id)
    if len({one.file.size for one in by_id}) > 1:
        by_id = [one for one in by_id if not is_blank(one)] or by_id
    ordered = [one.file.size for one in by_id]
    found = {max(ordered, default=0)}
    steps = [size for size, _ in groupby(ordered)]
    others = set(steps) - found
    if len(steps) == len(set(steps)) and all(ordered.count(size) > 1 for size in others):
        found |= {size for size in others if size % SECTOR == 0}
    return found


def never_left(reading: KnownFile, block: int, sizes: Collection[int]) -> str:
    """Return what after the last record of a file no append leaves; empty if there is nothing.

    A file has one of the journal's sizes, in bytes, before it gets its name, and keeps it.
    A last record that was not written whole is such an end if its last bytes were never written.
    One that was never used may have any: a load deletes it where it has not the configured size.
    """
    data, facts = reading.file.data(), reading.facts
    if len(data) not in sizes:
        if is_blank(reading):
            return ""
        return f"it ends at {len(data):,} bytes, others at {max(sizes):,}"
    if (torn := facts.torn) is not None:
        return "" if _unfinished(reading, torn) else "the last record is damaged, not unfinished"
    end = facts.end
    padded = min(-(-end // block) * block, len(data))
    end = padded if is_zero(data, end, padded) else end
    return (
        "" if _untouched(reading, data, end) else "after the last record stand bytes of no record"
    )


def cut_after_record(readings: Sequence[KnownFile], block: int) -> str:
    """Return what shows that the last file with records was cut where one of them ends, or nothing.

    Nothing of its fill is left, and a file that was never used is larger; no other file with
    records has its size, so that the setting was not changed after it.
    """
    used = [one for one in readings if one.has_records]
    if not used:
        return ""
    last = used[-1]
    size, end = last.file.size, -(-last.facts.end // block) * block
    given = max((one.file.size for one in readings if is_blank(one)), default=0)
    if end < size or size >= given or any(one.file.size == size for one in used[:-1]):
        return ""
    return f"{last.file.name}: it ends at {size:,} bytes, with a record, and others at {given:,}"


def is_blank(reading: KnownFile) -> bool:
    """Return whether a file was surely never used, whatever its size.

    The first record stands after the header, or after the first block where blocks are written.
    """
    if reading.has_records or reading.facts.torn is not None or reading.facts.stale_ids:
        return False
    data, start = reading.file.data(), reading.shape.header_size
    if len(data) <= BLOCKS[-1]:
        return False
    return is_filled(data, start, len(data))


def rooms_left(readings: Sequence[KnownFile], block: int) -> Iterator[tuple[str, int]]:
    """Yield which files end although the next record would have fit, and the id of the next file.

    A journal changes files when a record does not fit, and when a compaction begins, whose files
    replace all that were there before. A compaction changes them, too, after records that it has
    copied often.
    """
    for before, after in pairwise(one for one in readings if one.has_records):
        free = before.file.size - -(-before.facts.end // block) * block
        if after.facts.first_size <= free and not _compaction_changed(before, after):
            yield f"{before.file.name} ends {free:,} bytes before it is full", after.effective_id


def empty_before_used(readings: Sequence[KnownFile]) -> str:
    """Return which file without records has a lower id than one with records, or nothing.

    A file is opened, and used, after all that have lower ids.
    """
    last = max((one.effective_id for one in readings if one.has_records), default=0)
    empty = (one for one in readings if not one.has_records and one.effective_id < last)
    return next((one.file.name for one in empty), "")


def is_compacted(reading: KnownFile) -> bool | None:
    """Return whether a compaction wrote the file; None if its records do not tell."""
    if not reading.has_records:
        return False
    if number_of(reading.file.name) > reading.effective_id:
        return True
    return reading.facts.copied


def full_before_empty(readings: Sequence[KnownFile], block: int) -> str:
    """Return which last file with records is full although two files were opened after it.

    A journal opens one file ahead: the second one is opened when the first gets a record. So the id
    after that of the full file was given away, or a second file was created for its id; files that
    are done with get ids, too, and wait. A file is full if the largest record of the journal would
    not fit. Empty if there is no such file.
    """
    used = [one for one in readings if one.has_records]
    empty = [one for one in readings if used and one.effective_id > used[-1].effective_id]
    if not empty:
        return ""
    names = {number_of(one.file.name) for one in readings if one not in empty}
    between = range(used[-1].effective_id + 1, empty[0].effective_id)
    created = any(number_of(one.file.name) == one.effective_id for one in empty[1:])
    if not created and names.issuperset(between[: len(names) + 1]):
        return ""
    largest = max(one.facts.largest for one in used)
    free = used[-1].file.size - -(-used[-1].facts.end // block) * block
    return used[-1].file.name if free < largest else ""


def fills(readings: Iterable[KnownFile]) -> set[int]:
    """Return the bytes with which files end: a journal fills all its files with the same one.

    Not those of a compaction: HornetQ fills these with zeros, and all others with J. Nor zeros of
    one that is used again: a compaction may have created it.
    """
    found = set()
    for one in readings:
        name, end = number_of(one.file.name), one.file.tail
        if name > one.effective_id or not end or end[0] not in FILL or end.strip(end[:1]):
            continue
        if one.facts.end > one.file.size - len(end):
            continue  # no fill; and where parts have read the records, zeros stand for them
        if name == one.effective_id or end[0] == FILL_J:
            found.add(end[0])
    return found


def _compaction_changed(before: KnownFile, after: KnownFile) -> bool:
    """Return whether a compaction began with the second file, or wrote both and split them."""
    if not is_compacted(before):
        return False
    if not is_compacted(after):
        return True
    first, last = after.facts.first_count, before.facts.last_count
    return first is not None and last is not None and last >= _OLD > first


def _unfinished(reading: KnownFile, torn: Classified) -> bool:
    """Return whether what follows the written part was never written: one byte of fill, repeated.

    A writer begins at the type byte, so a record with another one there was damaged; and so was one
    whose last byte, by the size that it claims, was written. A disk writes whole sectors, so the
    written part ends where a sector does, but for fill that it holds.
    """
    data, at = reading.file.data(), torn.row.offset
    claimed = measure(data, at, len(data), numbers(reading.shape)) if torn.reason != NO_TYPE else 0
    if claimed and data[at + claimed - 1] not in FILL:
        return False
    after = bytes(data[torn.row.end : torn.row.end + _TAIL])
    if not after:
        return False  # a file is left before it is full
    # The first bytes may be zeros of the record itself: the upper bytes of a number.
    fill = after.lstrip(bytes([FILL_ZERO]))
    zeros = len(after) - len(fill)
    all_zero = not fill and data[-1] != FILL_J
    few_zeros = bool(fill) and not fill.strip(bytes([FILL_J])) and zeros <= _ZEROS_MAX
    whole_sectors = -torn.row.end % SECTOR <= _ZEROS_MAX
    return torn.reason != NO_TYPE and whole_sectors and (all_zero or few_zeros)


def _untouched(reading: KnownFile, data: memoryview, end: int) -> bool:
    stale = next((one for one in reading.facts.later if one >= end), len(data))
    if is_filled(data, end, stale):
        return True
    # What is left of the record of the earlier life that the last one has overwritten in part.
    tail = last_other_end(data, end, stale, FILL) if stale == len(data) else stale
    tails = range(tail, min(stale, tail + CHECK_SIZE) + 1)
    file = reading.file
    reused = file.file_id != number_of(file.name) or bool(reading.facts.stale_ids)
    return reused and any(_overlaps(data, end, one) for one in tails)


def _overlaps(data: memoryview, end: int, tail: int) -> bool:
    """Return whether a record that ends at ``tail`` says that it began before ``end``."""
    if tail - end < CHECK_SIZE:
        return True
    size = int.from_bytes(data[tail - CHECK_SIZE : tail])
    return tail - end < size < len(data)
