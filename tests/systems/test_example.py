"""A seventh system, one package and one line, works with everything that is there.

The crash kit runs on its live log; library, command line and Spark read it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import tallystick
from tallystick import cli
from tallystick.investigate.export import export
from tallystick.records import Outcome
from tallystick.storage.files import FileSystem
from tallystick.systems import known
from tallystick.systems.protocol import LogSource, ReadOptions
from tallystick.testing import RecordingFileSystem, check_recovery, check_tiling
from tests.need import need
from tests.systems.example.notes import NotesLog, encode
from tests.systems.example.read import NotesReading

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "systems" / "example"
BODIES = [b"one", b"two" * 300, b"three"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three notes and a torn one; the system is registered."""
    monkeypatch.setitem(known.PACKAGES, "example", "tests.systems.example")
    log = NotesLog(str(tmp_path / "notes"))
    for body in BODIES:
        log.append(body)
    log.close()
    with (tmp_path / "notes" / "log.notes").open("ab") as file:
        file.write(encode(b"four")[:-1])
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    return int(ended.value.code or 0), capsys.readouterr().out


def test_the_example_is_one_small_package() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in PACKAGE.glob("*.py"))
    assert lines < 150


def test_the_library_reads_it(folder: Path) -> None:
    records = list(tallystick.scan(folder))
    assert [one.body for one in records[:3]] == BODIES
    assert [one.outcome for one in records] == [Outcome.VALID] * 3 + [Outcome.TORN]
    assert tallystick.read_arrow(folder).read_all()["outcome"].to_pylist() == [
        one.outcome.value for one in records
    ]
    (summary,) = tallystick.inspect(folder).logs
    assert (summary.system, summary.title, summary.files) == ("example", "Example notes", 1)
    (verdict,) = tallystick.explain(folder).logs
    assert verdict.strict["records"] == {"valid": 3}


def test_its_spans_tile_the_file(folder: Path) -> None:
    path = folder / "notes" / "log.notes"
    source = LogSource("example", str(path.parent), (str(path),))
    (file,) = NotesReading(source, ReadOptions()).files()
    check_tiling(file)
    assert file.size == path.stat().st_size


@pytest.mark.parametrize("command", ["inspect", "explain", "verify"])
def test_the_command_line_reads_it(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(capsys, command, str(folder))
    assert code == 0
    assert "torn" in out


def test_dump_and_export_print_its_records(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(capsys, "dump", str(folder), "--json")
    assert code == 0
    assert bytes.fromhex(json.loads(out.splitlines()[0])["body"]) == b"one"
    assert export(folder, "parquet", tmp_path_factory.mktemp("out") / "records.parquet") == 4


@pytest.mark.long
def test_an_installed_distribution_adds_it_for_spark(folder: Path) -> None:
    """By an entry point: the workers of Spark are processes of their own."""
    need("java")
    info = folder / "site" / "notes-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: notes\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{known.GROUP}]\nexample = tests.systems.example\n")
    program = f"""
from tallystick.pipeline.session import start
spark = start("local[1]")
rows = spark.read.format("tallystick").load({str(folder / "notes")!r}).orderBy("offset")
print([bytes(row.body) for row in rows.where("outcome = 'valid'").collect()] == {BODIES!r})
spark.stop()
"""
    paths = os.pathsep.join(map(str, (info.parent, ROOT, ROOT / "src")))
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.stdout.strip() == "True", answer.stderr[-2000:]


def test_its_live_log_survives_every_crash() -> None:
    fs = RecordingFileSystem()
    log = NotesLog("/notes", fs=fs)
    for body in BODIES:
        fs.submitted(body)
        log.append(body)
        fs.acknowledged(body)

    def recover(disk: FileSystem) -> Iterable[bytes]:
        again = NotesLog("/notes", fs=disk)
        again.close()
        return [note.body for note in again.notes]

    report = check_recovery(fs, recover, writer_of=lambda _: "one writer", again=50)
    assert report.sampled_points == 0
