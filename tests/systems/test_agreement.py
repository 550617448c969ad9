"""Scan and Arrow batches give the same rows: of every fixture, whole and damaged at random."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.arrow.schemas import RECORDS, json_text
from tallystick.errors import TallystickError
from tallystick.reading import read_arrow, scan
from tallystick.reading.survey import survey
from tallystick.systems import registry
from tallystick.systems.protocol import ReadOptions
from tests.fixtures import cases, fixture_dir
from tests.kit import same_rows

SYSTEMS = ("bitronix", "cloudtran", "derby", "h2", "jboss", "estate")
HEALTHY = {
    "bitronix": "committed-2pc",
    "cloudtran": "block-4096",
    "derby": "ddl",
    "h2": "committed-512",
    "jboss": "g3-artemis-main/tx-commit",
}
SMALL = 400_000
"""Bytes of the logs that are damaged."""
SEEDS = range(40)


def check(path: Path) -> int:
    """Compare every log below the path; return how many rows there are."""
    found, rows = survey(path), 0
    for source in found.logs:
        with found.guard(source):
            rows += same_rows(found.read(source))
    assert not [one for one in found.problems if one.code not in ("unreadable", "no-log")]
    return rows


@pytest.mark.sampled(3)
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_fixture_has_the_same_rows_either_way(system: str) -> None:
    for case in cases(system):
        check(fixture_dir(system) / case)


@pytest.mark.parametrize("system", SYSTEMS[:-1])
def test_attributes_that_scan_has_are_in_the_arrow_table(system: str) -> None:
    case = fixture_dir(system) / cases(system)[0]
    attributes = [one.attributes for one in scan(case, problems=[])]
    texts = read_arrow(case, problems=[]).read_all().column("attributes").to_pylist()
    assert texts == list(map(json_text, attributes))
    assert any(texts)


def test_columns_are_those_that_are_asked_for() -> None:
    case = fixture_dir("bitronix") / "committed-2pc"
    whole = read_arrow(case).read_all()
    part = read_arrow(case, columns=("type", "gtrid")).read_all()
    assert part == whole.select(["type", "gtrid"])
    with pytest.raises(ValueError, match="has no column colour"):
        read_arrow(case, columns=("colour",))
    with pytest.raises(ValueError, match="no table 'rows'"):
        read_arrow(case, "rows")


@pytest.mark.parametrize("system", SYSTEMS[:-1])
def test_no_record_is_made_where_attributes_are_not_asked_for(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that leaving the column out keeps the speed of whole buffers."""
    case = fixture_dir(system) / HEALTHY[system]
    (source,) = survey(case).logs
    reader = type(registry.system(system).read(source, ReadOptions()))
    monkeypatch.setattr(reader, "records", lambda *_, **__: pytest.fail("one by one"))
    columns = [name for name in RECORDS.names if name != "attributes"]
    assert read_arrow(case, columns=columns).read_all().num_rows


def small_cases(system: str) -> Iterator[Path]:
    for case in cases(system):
        path = fixture_dir(system) / case
        if sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) < SMALL:
            yield path


def damage(folder: Path, rng: random.Random) -> None:
    """Flip, overwrite, cut, copy or remove something in a file or two."""
    files = [one for one in sorted(folder.rglob("*")) if one.is_file() and one.suffix != ".json"]
    for path in rng.choices(files, k=rng.randint(1, 2)) if files else ():
        if not path.exists():
            continue
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(6)
        if how == 0:
            del data[at:]
        elif how == 1:
            data[at : at + rng.choice((1, 4, 8))] = rng.randbytes(rng.choice((1, 4, 8)))
        elif how == 2:
            size = rng.choice((16, 512, 4096))
            data[at : at + size] = bytes(len(data[at : at + size]))
        elif how == 3:
            size = rng.choice((64, 512, 2048))
            block = data[(other := rng.randrange(len(data) + 1)) : other + size]
            data[at : at + len(block)] = block
        elif how == 4 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        else:
            path.unlink()
            continue
        path.write_bytes(data)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", SYSTEMS[:-1])
def test_damaged_logs_have_the_same_rows_either_way(system: str, tmp_path: Path) -> None:
    paths = list(small_cases(system))
    rows = 0
    for seed in SEEDS:
        rng = random.Random(f"{system} {seed}")
        folder = tmp_path / str(seed)
        shutil.copytree(case := rng.choice(paths), folder)
        damage(folder, rng)
        try:
            rows += check(folder)
        except AssertionError as error:
            pytest.fail(f"{system}, seed {seed}, {case.name}: {error}")
        except TallystickError:
            continue  # nothing is left that is a log
        shutil.rmtree(folder)
    assert rows
