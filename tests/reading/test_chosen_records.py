"""Records that a filter leaves out are not decoded, and nothing else changes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import record_batches
from tallystick.reading import tables
from tallystick.reading.filters import Filter, time_text
from tallystick.reading.survey import read_arrow, survey
from tallystick.records import Clock, Kind, Record
from tallystick.systems.derby import reader as derby
from tallystick.systems.jboss import reader as jboss
from tests.fixtures import cases, fixture_dir
from tests.kit import read_in_runs

GENERATIONS = {one.partition("/")[0]: one for one in cases("jboss") if not one.endswith("/empty")}
CASES = [
    *(f"derby/{one}" for one in ("halted", "rollbacks", "switch-archive", "xa-indoubt")),
    "derby/encrypted-aes-external-key",
    *(f"jboss/{one}" for one in GENERATIONS.values()),
    *(f"h2/{one}" for one in ("committed-512", "committed-2048", "corrupt-checksum-2048")),
    "h2/crashed-in-recovery-indoubt-2048",
    *(
        f"cloudtran/{one}"
        for one in ("normal", "compressed", "discarded", "two-files-first-redundant")
    ),
    *(f"bitronix/{one}" for one in ("gtrids", "names", "crash-mid-commit", "made-unsorted")),
]


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_runs(monkeypatch)


def filters(every: list[Record], clock: Clock, draw: random.Random) -> list[Filter]:
    """Some that ask for kinds, for a transaction, an id, a number, a time and a part of a body."""
    kinds = sorted({one.kind for one in every})
    found = [Filter(kinds=frozenset([one])) for one in draw.sample(kinds, min(3, len(kinds)))]
    some = draw.sample(every, min(2, len(every)))
    found += [Filter(transaction=str(one.transaction)) for one in some if one.transaction]
    found += [Filter(key=str(one.record_id)) for one in some if one.record_id]
    found += [Filter(from_lsn=one.sequence, to_lsn=one.sequence) for one in some if one.sequence]
    times = [text for one in some if (text := time_text(one.time, clock))]
    found += [Filter(since=one, until=one) for one in map(datetime.fromisoformat, times)]
    found += [Filter(body=f"0x{one.body[:3].hex()}") for one in some[:1] if one.body]
    found += [Filter(gtrid=one.gtrid.hex()) for one in every if one.gtrid][:1]
    return [*found, Filter(outcome="corrupt")]


def agrees(folder: Path, draw: random.Random) -> int:
    """Return how many records were compared, filter by filter, with those of a whole reading."""
    compared = 0
    found = survey(folder)
    for source in found.logs:
        reading = found.read(source)
        every = list(reading.records())
        for wanted in filters(every, reading.clock, draw):
            expected = [*filter(wanted.of_records(reading.clock), every)]
            assert list(found.selected(found.read(source), wanted)) == expected, wanted
            condition = tables.condition_of(wanted, "records", reading.clock)
            batches = tables.batches_of(found.read(source), "records", condition=condition)
            taken = (wanted.taken_of(one, "records", reading.clock) for one in batches)
            batch = record_batches(expected, reading.source.path, reading.clock.value, 1 << 20)
            told = [one.column("attributes") for one in (*taken,) if len(one)]
            assert pa.chunked_array(told, pa.string()).to_pylist() == [
                text for one in batch for text in one.column("attributes").to_pylist()
            ]
            compared += len(expected)
    return compared


@pytest.mark.sampled(9)
@pytest.mark.parametrize("case", CASES)
def test_what_is_asked_for_is_what_a_whole_reading_finds(case: str, tmp_path: Path) -> None:
    """As they are, and with some bytes flipped, so that runs end and begin anew."""
    system, _, name = case.partition("/")
    draw = random.Random(case)
    assert agrees(fixture_dir(system) / name, draw)
    shutil.copytree(fixture_dir(system) / name, tmp_path / "damaged")
    for source in survey(tmp_path / "damaged").logs:
        for path in source.files:
            content = bytearray(Path(path).read_bytes())
            # Not in the heads of files: then most of them would be unreadable.
            places = [at for at in range(4096, len(content)) if content[at]]
            for at in draw.sample(places, min(2, len(places))):
                content[at] ^= 1 << draw.randrange(8)
            Path(path).write_bytes(content)
    agrees(tmp_path / "damaged", draw)


@pytest.mark.parametrize(("system", "case"), [("derby", "large"), ("jboss", "g3-artemis-main")])
def test_objects_are_made_of_what_is_asked_for(
    system: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_of(every: Callable[..., Iterator[Record]]) -> Callable[..., Iterator[Record]]:
        """Whether a log has any record is asked of one that gives none of those."""

        def records(self: object, **options: bool) -> Iterator[Record]:
            for first in every(self, **options):
                yield first
                pytest.fail("every record is decoded")

        return records

    for reading in (derby.DerbyReading, jboss.JournalReading):
        monkeypatch.setattr(reading, "records", first_of(reading.records))
    wanted = Filter(kinds=frozenset([Kind.COMMIT]))
    rows = read_arrow(fixture_dir(system) / case, wanted=wanted, problems=[]).read_all()
    assert rows.num_rows
    assert {*rows["kind"].to_pylist()} == {"commit"}
    assert rows["attributes"].null_count == 0
