"""What each released version wrote is read, opened, and gone on in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tallystick import Answer, Journal, PageStore, TransactionManager, __version__, explain
from tallystick.systems.protocol import ReadOptions
from tests.fixtures import fixture_dir
from tests.fixtures.released import JOURNALS, KEY, contents, live, scanned

VERSIONS = sorted(path.name for path in fixture_dir("released").iterdir())


@pytest.fixture(params=VERSIONS)
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fixture_dir("released") / request.param, tmp_path / "logs"))


@pytest.fixture
def held(released: Path) -> Any:
    return json.loads((released / "manifest.json").read_text())


def test_this_version_has_its_log() -> None:
    assert __version__ in VERSIONS


def test_every_record_of_a_released_version_is_read(released: Path, held: Any) -> None:
    assert {name: scanned(released / name) for name in held["records"]} == held["records"]
    answers = explain(released, options=ReadOptions(encryption_key=KEY))
    assert len(answers.logs) == len(held["records"])
    assert {one.judgement.answer for one in answers.logs} == {Answer.SAFE}


@pytest.mark.parametrize("name", JOURNALS)
def test_a_journal_of_a_released_version_is_gone_on_in(
    released: Path, held: Any, name: str
) -> None:
    folder, records = released / name, held["records"][name]
    with Journal(folder, **JOURNALS[name]) as journal:
        assert live(journal) == held["live"][name]
        assert contents(journal.replay()) == records
        (doubtful,) = journal.prepared()
        journal.commit_prepared(doubtful.transaction)
        lsn = journal.append(b"of today")
    assert scanned(folder)[: len(records)] == records
    assert scanned(folder)[-1] == [lsn, "append", None, None, b"of today".hex()]


def test_a_store_and_a_coordinator_of_a_released_version_are_gone_on_in(
    released: Path, held: Any
) -> None:
    with PageStore(released / "store") as store:
        resources: dict[str, Any] = {"store": store, "lite": f"sqlite:///{released}/lite.db"}
        with TransactionManager(released / "coordinator", resources) as tm, tm.begin() as tx:
            items = tx["store"].table("items")
            assert dict(items) == {n: b"item %d" % n for n in range(held["items"])}
            items[held["items"]] = b"of today"
    with PageStore(released / "store") as store, store.begin() as session:
        assert session.table("items")[held["items"]] == b"of today"
