"""Copies of headers of a native log that are damaged, as their twins have them.

In: the files of a log. Out: patches of the control block, of segment headers and group headers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.systems.protocol import LogSource, Patch, ReadOptions
from tallystick.systems.tally.format.headers import encode_control, encode_segment_header
from tallystick.systems.tally.format.layout import HEADER_SIZE, encode_group_header
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.files import Catalog, read_catalog
from tallystick.systems.tally.read.scan import Scan, Step

_WHY = "the other copy of this header is whole"


def patches(source: LogSource, options: ReadOptions) -> Iterator[Patch]:
    """Yield the copies of headers that are not whole, as their twins have them.

    Raises:
        UnsupportedFormatError: a file is of a later format version.
    """
    del options
    catalog = read_catalog(source.path, source.files)
    yield from _heads(catalog)
    for step in Scan(catalog).steps():
        if step.place.case is Case.REPAIRED:
            yield from _group(step)


def _heads(catalog: Catalog) -> Iterator[Patch]:
    control, path = catalog.control, catalog.control_path
    if control is not None and path is not None and catalog.control_damage is not None:
        yield Patch(path, catalog.control_damage, encode_control(control), _WHY)
    for one in catalog.segments:
        if one.damaged_copy is not None and one.header is not None:
            yield Patch(one.path, one.damaged_copy, encode_segment_header(one.header), _WHY)


def _group(step: Step) -> Iterator[Patch]:
    header = step.place.header
    assert header is not None  # a copy of it is whole
    whole = encode_group_header(header)
    for place in (step.place.offset, header.end - HEADER_SIZE):
        if step.view.data[place : place + HEADER_SIZE] != whole:
            yield Patch(step.file.path, place, whole, _WHY)
