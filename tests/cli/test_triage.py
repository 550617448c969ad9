"""``tallystick triage``: one screen, the gravest first."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import tallystick
from tests.cli.conftest import Run
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES
from tests.pipeline.fake import MARK


@pytest.fixture
def many(logs: Path) -> Path:
    for number in range(200):
        folder = logs / f"log {number:03}"
        folder.mkdir()
        (folder / "a.fake").write_bytes(MARK + (b"broken\n" if number % 20 == 7 else b""))
    return logs


def test_hundreds_of_logs_fit_on_one_screen(run: Run, many: Path) -> None:
    answer = run("triage", many)
    assert answer.code == 1
    lines = answer.out.splitlines()
    assert len(lines) < 25
    assert f"    tallystick triage --all {many}" in lines
    assert lines[0] == "All 203 logs together"
    losses = lines.index("LOSES  11 logs")
    assert lines[losses - 1] == f"    tallystick indoubt list {many}"
    typed = [line for line in lines[losses:] if line.startswith("    tallystick")]
    assert typed[:2] == [
        f"    tallystick explain {many / 'bad'}", f"    tallystick explain '{many / 'log 007'}'"
    ]  # fmt: skip
    assert lines[-1] == "11 LOSES, 192 SAFE"


def test_a_broker_is_one_row_and_its_files_are_no_strangers(run: Run, tmp_path: Path) -> None:
    data = shutil.copytree(fixture_dir("brokers") / "whole", tmp_path / "data")
    next((data / "large-messages").iterdir()).unlink()
    (tmp_path / "notes.txt").write_text("not a log")
    lines = run("triage", tmp_path).out.splitlines()
    at = lines.index("LOSES  1 broker")
    end = lines.index(f"    tallystick explain {data}")
    assert 1 < end - at <= 3
    assert lines[end + 1 :] == ["No log: notes.txt", "1 LOSES"]


def test_logs_of_one_folder_of_which_the_same_is_said_are_counted_each(
    run: Run, tmp_path: Path
) -> None:
    source = fixture_dir("brokers") / "whole/bindings"
    for file in source.iterdir():
        shutil.copy(file, tmp_path / file.name)
        shutil.copy(file, tmp_path / file.name.replace("bindings", "more"))
    lines = run("triage", tmp_path).out.splitlines()
    rows = [line for line in lines if line.startswith("  jboss")]
    assert (lines[0], len(rows)) == ("SAFE AFTER A CRASH  2 logs", 2)


def test_what_a_broker_has_put_aside_is_named_and_not_unread(run: Run, tmp_path: Path) -> None:
    data = shutil.copytree(fixture_dir("brokers") / "whole", tmp_path / "data")
    shutil.copytree(data / "journal", data / "journal/attic")
    answer = run("triage", tmp_path)
    assert (answer.code, "CANNOT TELL" in answer.out) == (0, False)
    assert "and never reads again" in answer.out
    assert [*tallystick.scan(tmp_path)]  # nor does it end in an error


def test_what_cannot_be_read_stands_above_what_is_safe(run: Run, logs: Path) -> None:
    (logs / "bad/1.fake").write_text("FAKE\ncommitted 1\nrefuse\n")
    lines = run("triage", logs).out.splitlines()
    unread = lines.index("CANNOT TELL  1 not read")
    assert lines[unread + 1].startswith("  damage not-read")
    assert unread < len(lines) - 1
    assert lines[-1] == "2 SAFE, 1 not read"


def test_nothing_but_what_cannot_be_read_is_no_calm(run: Run, logs: Path) -> None:
    (logs / "bad/1.fake").write_text("FAKE\nrefuse\n")
    answer = run("triage", logs / "bad")
    assert (answer.code, answer.out.splitlines()[0]) == (2, "CANNOT TELL  1 not read")


def test_the_estate_fits_on_a_terminal_of_80_by_24(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES.parents[1])
    lines = run("triage", "examples/estate").out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("  LOSES  1 global transaction: closed by bitronix")


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (40, 120), (10, 80)])
def test_at_a_terminal_it_fits_and_the_gravest_stays_in_sight(
    many: Path, monkeypatch: pytest.MonkeyPatch, rows: int, columns: int
) -> None:
    for path, before in ((EXAMPLES, ""), (many, FAKE)):
        monkeypatch.chdir(path.parent)
        shown = at_terminal(rows, columns, before, "triage", path.name)
        assert len(shown) < rows or rows < 24, "\n".join(shown)
        assert max(map(len, shown)) <= columns
        assert shown[-1].startswith(("2 LOSES, 14 SAFE", "11 LOSES, "))
        assert shown[-2] == f"    tallystick indoubt list {path.name}"
        assert any("LOSES  " in line for line in shown[-rows:-2])


def test_at_a_narrow_terminal_lines_that_go_on_in_the_next_are_counted(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, before in ((EXAMPLES, ""), (many, FAKE)):
        monkeypatch.chdir(path.parent)
        shown = at_terminal(24, 60, before, "triage", path.name)
        assert sum(max(-(-len(line) // 60), 1) for line in shown) < 24, "\n".join(shown)


FAKE = "from tallystick.systems import known; known.PACKAGES = {'fake': 'tests.pipeline.fake'}"


def at_terminal(rows: int, columns: int, before: str, *arguments: str) -> list[str]:
    """Return the lines that a command writes to a terminal of this size, without its styles."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    program = f"{before}\nfrom tallystick.cli import main; main()"
    command = [sys.executable, "-c", program, *arguments]
    written = b""
    with subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env=os.environ | {
            "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path),
            "LINES": str(rows), "COLUMNS": str(columns),
        },
    ):  # fmt: skip
        os.close(theirs)
        with contextlib.suppress(OSError):  # its end
            while piece := os.read(ours, 1 << 16):
                written += piece
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode()).splitlines()


def test_every_log_is_shown_where_that_is_asked_for(run: Run, many: Path) -> None:
    lines = run("triage", "--all", many).out.splitlines()
    said = {line.strip() for line in lines if line.startswith("    ")}
    answer = run("triage", "--json", many).json
    for log in answer["logs"]:
        together = log["next"] == answer["estate"]["next"]
        assert (log["path"] if together else log["next"]) in said
    assert not any(" more:" in line for line in lines)


NAMES = ("two words", "it's", "$(touch made)", 'ü";exit 7', "new\nline", "*", "-dash", "x" * 120)


def test_the_commands_that_are_printed_work_as_they_are_pasted(tmp_path: Path) -> None:
    """At 80 columns, each by a shell."""
    for number, name in enumerate(NAMES):
        case = "committed-2pc" if number % 2 else "damaged-hole"
        shutil.copytree(fixture_dir("bitronix") / case, tmp_path / "logs" / name)
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "tallystick"
    program = "import sys; from tallystick.cli import main; sys.exit(main())"
    tool.write_text(f"#!{sys.executable}\n{program}\n")
    tool.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tool.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "COLUMNS": "80",
    }

    def typed(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], cwd=tmp_path / "bin", env=environment, text=True,
            capture_output=True, check=False,
        )  # fmt: skip

    shown = typed("tallystick triage --all ../logs").stdout.splitlines()
    lines = [line.strip() for line in shown if line.startswith("    tallystick ")]
    assert lines.pop(0) == "tallystick indoubt list ../logs"
    assert len(lines) == len(NAMES)
    for line in lines:
        answer = typed(line)
        assert answer.returncode == ("explain" in line), answer.stderr
        assert "itronix" in answer.stdout
    assert not (tmp_path / "bin" / "made").exists()


def test_its_json_has_every_log(run: Run, many: Path) -> None:
    logs = run("triage", "--json", many).json["logs"]
    answers = [log["answer"] for log in logs]
    assert len(logs) > 200
    assert answers == sorted(answers)  # loses, safe
    assert all(log["next"].startswith("tallystick ") for log in logs)


def test_exit_codes(run: Run, logs: Path) -> None:
    assert run("triage", logs / "good").code == 0
    assert run("triage", logs).code == 1
    empty = logs / "nothing"
    empty.mkdir()
    assert run("triage", empty).code == 2
