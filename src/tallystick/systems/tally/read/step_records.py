"""The records at the places of a scan.

In: steps. Out: records in log order: all of them, or those that tell of open work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tallystick.errors import CorruptLogError
from tallystick.records import Outcome, Record
from tallystick.systems.tally.format.columns import PLAIN
from tallystick.systems.tally.format.layout import decode_group_header
from tallystick.systems.tally.format.sealing import KeyMissingError
from tallystick.systems.tally.read.decision import Case
from tallystick.systems.tally.read.records import envelope_record, records_of
from tallystick.systems.tally.read.scan import Step


def step_records(step: Step, key: bytes | None) -> Iterator[Record]:
    """What is at one place, which is not that of a leap."""
    header, place = step.place.header, step.place
    path = step.file.path
    if header is None or place.case is Case.END or place.end == place.offset:
        return
    if place.case in (Case.CORRUPT, Case.TORN):
        outcome = Outcome.CORRUPT if place.case is Case.CORRUPT else Outcome.TORN
        yield envelope_record(path, header, outcome, reason=place.reason)
        return
    try:
        yield from records_of(path, step.view.inner(header), header, key, behind=step.behind)
    except KeyMissingError:
        yield envelope_record(path, header, Outcome.VALID, encrypted=True)
    except CorruptLogError as error:
        yield envelope_record(path, header, Outcome.CORRUPT, reason=str(error))


def work_records(steps: Iterable[Step], key: bytes | None) -> Iterator[Record]:
    """Every record of a transaction, decision or entry, and some that are of none."""
    for step in steps:
        for one in _groups_with_work(step):
            yield from step_records(one, key)


def _groups_with_work(step: Step) -> Iterator[Step]:
    place = step.place
    if place.run is None:
        if place.header is None or place.header.columns != PLAIN or not place.case.whole:
            yield step
        return
    for offset in place.run.groups_with_work():
        header = decode_group_header(step.view.data, offset)
        assert header is not None  # the leap has verified it
        one = replace(place, offset=offset, end=header.end, header=header, run=None)
        yield replace(step, place=one)
