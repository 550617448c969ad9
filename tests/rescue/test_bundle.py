"""A bundle has what a ticket needs, nothing that is secret, and the same bytes each time."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

import tallystick
from tallystick.errors import LogUnreadableError, LogWriteError
from tallystick.rescue import bundle
from tallystick.rescue.bundling import _Hidden
from tests.fixtures import fixture_dir
from tests.rescue.kit import CONTROL, content, limited_file_size, names, on_device, unpacked

LOGS = Path(__file__).parents[2] / "examples/incident/logs"


def _members(packed: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(packed)) as found:
        return {name: found.read(name) for name in found.namelist()}


def _packed(path: Path) -> bytes:
    out = io.BytesIO()
    bundle(path, out)
    return out.getvalue()


def test_it_has_answers_files_and_texts_and_is_the_same_again(tmp_path: Path) -> None:
    logs = unpacked(LOGS, tmp_path / "logs")
    before = content(logs)
    members = _members(_packed(logs))
    assert _packed(logs) == _packed(logs)
    assert content(logs) == before
    assert list(members)[:3] == ["versions.json", "triage.json", "files.json"]
    assert json.loads(members["versions.json"])["tallystick"] == tallystick.__version__
    told = {one["file"]: one["size"] for one in json.loads(members["files.json"])}
    assert told == {name: len(data) for name, data in before.items()}
    answers = [one["answer"] for one in json.loads(members["explain.json"])["logs"]]
    assert sorted(answers) == ["cannot-tell", "loses", "refuses", "safe"]
    assert sum(name.startswith("logs/") for name in members) == 4
    assert all(str(tmp_path).encode() not in data for data in members.values())


def test_every_spelling_of_a_path_gives_the_same_zip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = unpacked(LOGS, tmp_path / "logs")
    (tmp_path / "way").symlink_to(logs)
    expected = _packed(logs)
    monkeypatch.chdir(logs)
    spellings = (".", "", "../logs", "../way", "h2/..", f"{logs}/", tmp_path / "way")
    assert all(_packed(Path(one)) == expected for one in spellings)
    file = logs / "h2/bank.h2.db"
    monkeypatch.chdir(file.parent)
    assert _packed(Path(file.name)) == _packed(Path("../h2", file.name)) == _packed(file)


def test_several_paths_are_one_estate_each_file_once_under_its_path(tmp_path: Path) -> None:
    logs = unpacked(LOGS, tmp_path / "logs")
    file = logs / "h2/bank.h2.db"
    out = io.BytesIO()
    bundle([logs / "derby", f"{logs}/derby/", logs, file], out)
    members = _members(out.getvalue())
    told = [one["file"] for one in json.loads(members["files.json"])]
    inside = {f"PATH2/{one}" for one in content(logs) if not one.startswith("derby/")}
    inside |= {
        f"PATH1/{one.removeprefix('derby/')}" for one in content(logs) if one[:6] == "derby/"
    }
    assert set(told) == inside
    assert len(told) == len(inside)
    whole, apart = json.loads(_members(_packed(logs))["explain.json"]), members["explain.json"]
    assert len(json.loads(apart)["logs"]) == len(whole["logs"])
    assert all(str(tmp_path).encode() not in data for data in members.values())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("system", "case"),
    [
        ("estate", "mid-phase-two"), ("estate", "committed-record-missing"),
        ("h2", "corrupt-checksum-2048"), ("cloudtran", "damaged-payload"),
        ("jboss", "g3-artemis-main"), ("derby", "xa-indoubt"),
    ],
)  # fmt: skip
def test_no_body_is_in_it_in_any_spelling(system: str, case: str) -> None:
    path = fixture_dir(system) / case
    every = b"\n".join(_members(_packed(path)).values())
    for record in tallystick.scan(path, salvage=True, problems=[]):
        ids = (record.gtrid or b"").hex()
        body = bytes(record.body or b"")
        for at in range(0, len(body) - 12, 12):
            piece = body[at : at + 12]
            if (
                len(set(piece)) > 6
                and piece.hex() not in ids
                and piece not in (record.gtrid or b"")
            ):
                assert piece not in every
                assert piece.hex().encode() not in every.lower()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "at jdbc:postgresql://alice:pw@db1.example:5432/bank?user=a",
            "jdbc:postgresql://***/bank",
        ),
        ("jdbc:derby:bank;bootPassword=secret;x=1", "jdbc:derby:bank;bootPassword=***;x=1"),
        ("PATHx 'CREATE USER SA SALT 0123456789abcdef PASSWORD'", "'***'"),
        (f"key {'ab' * 200}", "key ***"),
    ],
)
def test_secrets_are_masked(text: str, shown: str) -> None:
    hidden = _Hidden({Path("/srv/logs"): "PATH"}).text(text)
    assert shown in hidden
    assert "secret" not in hidden
    assert "alice" not in hidden
    assert "SALT" not in hidden


def test_what_is_too_large_is_named_and_left_out() -> None:
    out = io.BytesIO()
    bundle(LOGS, out, size_max=3000)
    members = _members(out.getvalue())
    assert "explain.json" in members["left-out.txt"].decode()
    assert sum(len(data) for name, data in members.items() if name != "left-out.txt") <= 3000


def test_a_device_takes_it(tmp_path: Path) -> None:
    with tallystick.Journal(tmp_path / "log"):
        pass
    assert bundle(tmp_path / "log", "/dev/null") > 1


def test_a_tree_may_be_deep(tmp_path: Path) -> None:
    logs = unpacked(LOGS / "bitronix", tmp_path / "logs")
    below = [Path(logs, *["d"] * depth) for depth in range(1, 1100)]
    for folder in below:
        folder.mkdir()
    try:
        assert len(json.loads(_members(_packed(logs))["files.json"])) == 2
    finally:  # what removes it later calls itself for each folder
        for folder in reversed(below):
            folder.rmdir()


def test_a_wrong_place_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    logs = unpacked(LOGS, tmp_path / "logs")
    before = content(logs)
    with pytest.raises(LogWriteError, match="among the logs"):
        bundle(logs, logs / "ticket.zip")
    with pytest.raises(LogWriteError, match="take the place"):
        bundle(logs / "h2", logs / "h2/bank.h2.db")
    with pytest.raises(LogUnreadableError):
        bundle(tmp_path / "gone", tmp_path / "ticket.zip")
    with limited_file_size(2048), pytest.raises(OSError):
        bundle(logs, tmp_path / "ticket.zip")
    assert content(logs) == before
    assert names(tmp_path) == ["logs"]


@pytest.mark.parametrize("link", [True, False])
def test_the_files_of_a_log_that_lies_elsewhere_are_listed(link: bool, tmp_path: Path) -> None:
    device = tmp_path / "dev"
    database = on_device(tmp_path, device)
    if link:
        (database / "service.properties").unlink()
        (database / "log").symlink_to(device / "log")
    files = json.loads(_members(_packed(database))["files.json"])
    listed = {one["file"]: one for one in files}
    assert len(listed) == len(files)
    name = f"log/{CONTROL}" if link else f"{device}/log/{CONTROL}"
    assert listed[name]["size"] == 0
    with pytest.raises(LogWriteError, match="among the logs"):
        bundle(database, device / "log/b.zip")
