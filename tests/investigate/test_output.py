"""Where rows go: a file that is whole, a pipe, a device; never a log that is read."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick import Journal
from tallystick.errors import LogWriteError
from tallystick.investigate.export import export, refuse_input
from tallystick.investigate.rows import export_rows
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES
from tests.kit import untouched
from tests.rescue.kit import unpacked

WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "export": lambda log, target: export(log, "csv", target),
    "rows": lambda log, target: export_rows(log, "csv", target),
    "sql": lambda log, target: refuse_input(target, log),
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A journal of three records."""
    with Journal(tmp_path / "log") as journal:
        for number in range(3):
            journal.add(number, b"%d" % number)
    return tmp_path / "log"


@pytest.mark.parametrize("by_link", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_an_output_never_takes_the_place_of_a_file_of_the_log(
    log: Path, tmp_path: Path, name: str, by_link: bool
) -> None:
    target = log / "0000000000000001.tally"
    if by_link:
        (tmp_path / "link").symlink_to(target)
        target = tmp_path / "link"
    with untouched(log), pytest.raises(LogWriteError, match="Name another file"):
        WRITERS[name](log, target)


@pytest.mark.parametrize("writer", ["export", "rows"])
def test_csv_is_utf8_whatever_a_folder_is_called(log: Path, tmp_path: Path, writer: str) -> None:
    folder = log.rename(os.fsdecode(b"%s/bad\xff" % os.fsencode(tmp_path)))
    WRITERS[writer](folder, tmp_path / "out.csv")
    assert f"{tmp_path}/bad\\udcff" in (tmp_path / "out.csv").read_text("utf-8")


OF_A_LOG = {
    "service.properties": "derby", "service.propertiesold": "derby", "seg0/c10.dat": "derby",
    "jar/APP/a.jar": "derby", "db.lck": "derby", "large-messages/7.msg": "artemis",
    "paging/8d6f/1.page": "artemis", "log/server.lock": "artemis", "pages": "log",
    "log/bank.mv.db": "h2", "log/bank.trace.db": "h2", "log/bank.trace.db.old": "h2",
    "log/bank.lock.db": "h2", "log/bank.h2.db.lck": "h2", "log/bank.lobs.db/7.t9.lob.db": "h2",
    "log/bank.lobs.db/3.lobs.db/1.lobs.db/65792.t9.lob.db": "h2", "log/translog.mark": "cloudtran",
}  # fmt: skip
"""What lies beside a log, and is none of its files."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("read", ["log", "below"])
@pytest.mark.parametrize("name", OF_A_LOG)
def test_an_output_never_takes_the_place_of_a_file_of_a_database_or_broker(
    log: Path, tmp_path: Path, name: str, read: str
) -> None:
    """Derby refuses to boot without `service.properties`."""
    around = tmp_path / "around"
    origins = {
        "derby": EXAMPLES / "orphan/derby/log", "artemis": EXAMPLES / "orphan/artemis",
        "h2": EXAMPLES / "orphan/h2", "cloudtran": fixture_dir("cloudtran") / "all-complete/log",
    }  # fmt: skip
    below = unpacked(origins.get(OF_A_LOG[name], log), around / "log")
    (around / name).parent.mkdir(parents=True, exist_ok=True)
    (around / name).write_bytes(b"of the database")
    refusal = "belongs to a log|among the logs that are read"
    with untouched(around), pytest.raises(LogWriteError, match=refusal):
        export(log if read == "log" else below, "csv", around / name)
    assert export(log, "csv", around / "rows.csv") == export(log, "csv", around / "rows.csv") > 0


@pytest.mark.parametrize("name", [*OF_A_LOG, "seg0", "out.csv"])
def test_a_file_of_that_name_beside_no_log_is_written_anew(
    log: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "elsewhere/deeper" / name
    target.parent.mkdir(parents=True)
    target.write_text("before")
    assert export(log, "csv", target) == len(target.read_text().splitlines()) - 1


@pytest.mark.parametrize("name", ["export", "rows"])
def test_a_file_that_is_there_keeps_its_mode_and_its_links(
    log: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "out.csv"
    target.write_text("before")
    target.chmod(0o640)
    (tmp_path / "link").symlink_to("out.csv")
    WRITERS[name](log, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert len(target.read_text().splitlines()) == 4


@pytest.mark.parametrize("name", ["export", "rows"])
def test_a_pipe_without_a_name_is_written_to(name: str, log: Path) -> None:
    """As a shell makes one: ``-o >(gzip > rows.gz)``, or ``-o /dev/stdout | head``."""
    taking, giving = os.pipe()
    with open(taking, "rb") as pipe:
        WRITERS[name](log, Path(f"/dev/fd/{giving}"))
        os.close(giving)
        assert pipe.read()


@pytest.mark.parametrize("name", ["export", "rows"])
def test_a_pipe_is_written_to_and_stays_one(log: Path, tmp_path: Path, name: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.extend(pipe.read_bytes().splitlines()))
    reader.start()
    WRITERS[name](log, pipe)
    reader.join()
    assert len(lines) == 4
    assert pipe.is_fifo()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("query", ["SELECT * FROM records LIMIT 3", "SELECT count(*) FROM records"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_query_that_reads_a_part_of_a_long_log_ends(
    tmp_path: Path, query: str, form: list[str]
) -> None:
    """With Arrow's own scanner a thread read ahead, which outlived the interpreter."""
    with Journal(tmp_path / "log") as journal:
        journal.append_many([b"%d" % number for number in range(40_000)])
    command = [sys.executable, "-m", "tallystick", "sql", str(tmp_path / "log"), query, *form]
    for _ in range(2):
        ran = subprocess.run(command, capture_output=True, check=False, timeout=300)
        assert (ran.returncode, ran.stderr) == (0, b"")
