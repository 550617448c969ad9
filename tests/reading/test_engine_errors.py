"""What an error of an original means, and which databases show it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tallystick.cli import main
from tallystick.reading.engine_errors import look_up
from tallystick.systems import derby
from tallystick.systems.registry import systems
from tests.fixtures import fixture_dir
from tests.rescue.kit import case, change

MESSAGE = (
    "java.sql.SQLException: Failed to start database 'db', see the next exception for details.\n"
    "ERROR XJ040: Failed to start database 'db'\n"
    "ERROR XSDB4: Page Page(1,Container(0, 1168)) is at version 127, the log file contains 277"
)

OF_A_CLIENT = (
    "DERBY SQL error: ERRORCODE: 40000, SQLSTATE: XJ040, SQLERRMC: Failed to start database 'db' "
    "with class loader, see the next exception for details.::SQLSTATE: XSDB6Another instance of "
    "Derby may have already booted the database /data/db."
)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    return int(ended.value.code or 0)


@pytest.mark.parametrize("system", systems(), ids=lambda one: one.name)
def test_every_reason_of_an_error_is_one_of_its_system(system: object) -> None:
    (one,) = (one for one in systems() if one is system)
    for error in one.error_table.values():
        assert set(error.reasons) <= set(one.reason_table), error.code
        assert error.meaning.endswith(".")
        assert not error.advice.endswith(".")


def test_no_two_systems_have_an_error_of_one_code() -> None:
    codes = [code for one in systems() for code in one.error_table]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("text", ["XSDB4", "xsdb4", "ERROR XSDB4: Page(1,Container(0, 1168))"])
def test_an_error_is_found_by_its_code_in_any_text(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--error", text) == 0
    assert "XSDB4  derby: A page in seg0 is older" in capsys.readouterr().out


def test_all_errors_of_a_message_are_told_in_its_order() -> None:
    assert [error.code for _, error in look_up(MESSAGE).errors] == ["XJ040", "XSDB4"]


@pytest.mark.parametrize(
    "code",
    ["50000", "90112", "XSLA1", "XSLA3", "XSLA6", "XSDB3", "XSDB5", "XSDG0", "XBM0Q", "XSTB2"],
)
def test_what_an_opening_can_raise_is_known(code: str) -> None:
    assert [error.code for _, error in look_up(f"ERROR {code}: text").errors] == [code]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("ERROR XSLAN: Database at /data/90031 has an incompatible format", ["XSLAN"]),
        ("Caused by: ERROR XBM0U: No class was registered for identifier 4711.", ["XBM0U"]),
        ('File corrupted while reading record: "page 3" [90030-200]', ["90030"]),
        ("Database may be already in use [90020-200] 90020/90020 (Help)", ["90020"]),
        (OF_A_CLIENT, ["XJ040", "XSDB6"]),
        ("ERROR XJ001: Java exception: ': java.lang.OutOfMemoryError'.", ["XJ001"]),
        ("ERROR 08006: Database 'db' shutdown.", ["08006"]),
        ("ERROR 08004: Connection refused", ["08004"]),
        ('Error opening database: "Could not save" [8000-176]', ["8000"]),
        ("no route to 10.0.0.90020 or host/90031", []),
        ("AMQ224097: Failed to start server", ["AMQ224097"]),
        ("HQ224000: Failure in initialisation", ["AMQ224000"]),
        ("AMQ222005: Must specify a forwarding address", ["AMQ222005"]),
        ("AMQ149005: Message of 10 bytes is bigger", ["AMQ149005"]),
        ("bitronix.tm.utils.InitializationException: failed", ["InitializationException"]),
    ],
)
def test_a_code_is_found_in_a_line_as_it_is_pasted(text: str, codes: list[str]) -> None:
    assert [error.code for _, error in look_up(text).errors] == codes


def test_an_error_that_only_wraps_says_where_the_next_one_stands() -> None:
    wrapping = {error.code: error for one in systems() for error in one.error_table.values()}
    wrapping = {code: error for code, error in wrapping.items() if error.wraps}
    assert wrapping.keys() >= {"XJ040", "XJ041", "XBM01", "8000", "AMQ224000"}
    for code, error in wrapping.items():
        assert error.advice.startswith("Look up the error that follows it: "), code
    followed = [
        error.code for one in systems() for error in one.error_table.values()
        if "error that follows" in error.advice and not error.wraps
    ]  # fmt: skip
    assert not followed


def test_every_error_that_our_texts_name_is_known() -> None:
    sources = Path(derby.__file__).parent.rglob("*.py")
    texts = "".join(one.read_text("utf-8") for one in sources)
    named = set(re.findall(r"(?<=[( ])X[A-Z0-9]{4}(?=[:,)])", texts))
    assert {"XSLAB", "XCY03"} <= named <= derby.SYSTEM.error_table.keys()


def test_an_unknown_code_in_a_message_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--error", "Caused by: ERROR XBM9U: nothing is known of this") == 2
    assert "known by XBM9U; did you mean XBM" in capsys.readouterr().err


def test_a_path_and_an_error_may_change_places(capsys: pytest.CaptureFixture[str]) -> None:
    old = str(fixture_dir("derby_databases") / "page-older-than-log")
    assert run("--error", old, "XJ040") == 1
    said = capsys.readouterr().out
    assert said.startswith("XJ040  derby: The database did not start. This only wraps")
    assert f"{old} shows it" in said


def test_where_no_log_is_there_to_look_at_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--error", "XSDB4", str(fixture_dir("h2"))) == 0
    assert "No log of derby is there to look at" in capsys.readouterr().out
    assert run("--error", "XSDB4", str(tmp_path)) == 0
    assert "No log of derby is there to look at" in capsys.readouterr().out


def test_an_unknown_error_is_wrong_use_and_names_what_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--error", "XYZ99") == 2
    assert "did you mean" not in (said := capsys.readouterr().err)
    assert re.search(r"known are .*\d+ of derby, \d+ of jboss \(--json lists all\)", said)
    assert run("--error", "XSDB99") == 2
    assert "did you mean XSDB" in capsys.readouterr().err
    assert run("--error", "XYZ99", "--json") == 2
    assert "XSDB4" in json.loads(capsys.readouterr().out)["codes"]["derby"]


def test_without_an_error_a_path_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert "PATH" in capsys.readouterr().err


def test_the_databases_below_a_path_show_the_error_or_do_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    databases = fixture_dir("derby_databases")
    old = str(databases / "page-older-than-log")
    assert run("--error", "XSDB4", old, "--json") == 1
    (found,) = json.loads(capsys.readouterr().out)["databases"]
    assert (found["path"], found["shows_error"], found["answer"]) == (old, True, "refuses")
    other = str(databases / "cut-in-group-with-internal-commit")
    assert run("--error", "XSDB4", other) == 0
    assert f"{other} does not show it" in capsys.readouterr().out


def test_databases_of_another_system_are_not_asked(tmp_path: Path) -> None:
    assert not look_up("90030", str(fixture_dir("derby_databases") / "page-older-than-log")).answers
    assert not look_up("XSDB4", str(tmp_path)).answers


@pytest.mark.parametrize(
    ("system", "name", "file", "damage", "code"),
    [
        ("h2", "committed-2048", "db.h2.db", bytes(16), "90030"),
        ("derby", "halted", "log/log.ctrl", None, "XSLAC"),
        ("bitronix", "rollover-1", "", b"", "CorruptedTransactionLogException"),
    ],
)
def test_what_repair_mends_is_said_by_its_command(
    system: str, name: str, file: str, damage: bytes | None, code: str, tmp_path: Path
) -> None:
    log = case(system, name, tmp_path / "log")
    if damage:
        change(log / file, 40, damage)
    elif damage is None:
        (log / file).unlink()
    found = look_up(code, str(log))
    assert found.repair == f"tallystick repair {log} --to COPY"
    assert found.to_dict()["repair"] == found.repair
    assert not look_up("XSDB4" if system == "h2" else "90030", str(log)).repair
    assert not look_up(code).repair


@pytest.mark.parametrize("code", ["90030", "CorruptedTransactionLogException"])
def test_the_advice_of_damage_that_repair_may_mend_names_it(code: str) -> None:
    ((_, error),) = look_up(code).errors
    assert error.advice.startswith("Type tallystick repair F")
