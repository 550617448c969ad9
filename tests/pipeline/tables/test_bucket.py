"""The publishing of tables where no server is needed: into folders, and by what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tallystick.errors import TallystickError
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.runner import Run
from tallystick.pipeline.tables.bucket import MANIFEST, publish, published_files

TABLES = ("files", "records")


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The folder of a run's tables, with a file in each."""
    _write(tmp_path / "run", b"of the first run")
    return str(tmp_path / "run")


def _write(run: Path | str, content: bytes) -> None:
    for table in TABLES:
        Path(run, table).mkdir(parents=True, exist_ok=True)
        Path(run, table, "0-0.parquet").write_bytes(content)


def _read(url: str) -> list[bytes]:
    """The content of all files that the manifest names, by table and name."""
    store: Any = fsspec.filesystem("local")
    return [store.cat_file(file) for files in published_files(url).values() for file in files]


def test_tables_are_published_into_a_folder_that_is_not_there_yet(run: str, tmp_path: Path) -> None:
    url = f"local://{tmp_path}/new/tables #1%20"
    assert publish(run, url, TABLES) == 2
    assert publish(run, url, TABLES) == 0
    assert _read(url) == [b"of the first run"] * 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b"of the"),
        lambda file: file.write_bytes(b"of somebody's own making"),
        lambda file: file.unlink(),
        lambda file: shutil.rmtree(file.parent),
    ],
    ids=["cut", "overwritten", "removed", "removed with its folder"],
)
def test_what_somebody_spoiled_of_published_tables_is_sent_again(
    run: str, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    url = f"local://{tmp_path}/tables"
    publish(run, url, TABLES)
    spoil(Path(published_files(url)["records"][0].removeprefix("local://")))
    assert publish(run, url, TABLES) == 1
    assert _read(url) == [b"of the first run"] * 2


class _Killed(BaseException):  # no error: nothing may catch the end of a process
    """Stands for the end of the process in the middle of what a store writes."""


def test_a_publisher_killed_within_any_file_leaves_whole_tables(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = fsspec.filesystem("local")
    put, pipe = store.put_file, store.pipe_file
    left = 0

    def dying() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    def put_half(file: str, place: str) -> None:
        if dying():
            pipe(place, Path(file).read_bytes()[:3])
            raise _Killed
        put(file, place)

    def pipe_half(place: str, data: bytes) -> None:
        pipe(place, data[: len(data) // 2] if (dies := dying()) else data)
        if dies:
            raise _Killed

    url, seen = f"local://{tmp_path}/tables", []
    for number in range(2):
        _write(run, b"of run %d" % number)
        for step in range(5):
            left = step
            with monkeypatch.context() as patch, suppress(_Killed):
                patch.setattr(store, "put_file", put_half)
                patch.setattr(store, "pipe_file", pipe_half)
                publish(run, url, TABLES)
            with suppress(TallystickError):  # nothing is there before the first one
                seen.append(_read(url))
    first, second = [b"of run 0"] * 2, [b"of run 1"] * 2
    assert [one for one in seen if one not in ([], first, second)] == []
    assert seen[-1] == second


@pytest.mark.parametrize(
    "manifest",
    [b"", b'{"tables": {"fi', b"[]", b'{"tables": []}', b'{"tables": {"files": 5}}', b'{"a": 1}'],
)
def test_what_is_no_manifest_is_refused_and_stays(
    run: str, tmp_path: Path, manifest: bytes
) -> None:
    url = f"local://{tmp_path}/tables"
    publish(run, url, TABLES)
    place = tmp_path / "tables" / MANIFEST
    place.write_bytes(manifest)
    for use in (lambda: publish(run, url, TABLES), lambda: published_files(url)):
        with pytest.raises(OptionError, match="is no manifest of tables"):
            use()
    assert place.read_bytes() == manifest


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        ("/tables", "to an object store"),
        ("", "to an object store"),
        ("file:///tables", "to an object store"),
        ("nothing://host/tables", "no access to this file system"),
    ],
)
def test_a_place_that_is_no_store_is_refused_before_the_run(url: str, refusal: str) -> None:
    with pytest.raises(TallystickError, match=refusal):
        Run(["logs"], "tables", publish=url)


def test_the_manifest_names_nothing_but_tables(run: str, tmp_path: Path) -> None:
    publish(run, f"local://{tmp_path}/tables", TABLES)
    found = json.loads((tmp_path / "tables" / MANIFEST).read_text())
    assert {*found["tables"]} == {*TABLES}
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {MANIFEST, *TABLES}
