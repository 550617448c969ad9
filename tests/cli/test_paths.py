"""A folder is the same one however it is named."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tallystick
from tallystick.errors import LogUnreadableError, LogWriteError
from tallystick.investigate.rows import export_rows
from tallystick.reading.discovery import with_password
from tallystick.records import Answer
from tallystick.rescue import bundle, repair, salvage
from tallystick.systems.protocol import ReadOptions
from tests.cli.conftest import Run
from tests.indoubt.estates import EXAMPLES
from tests.rescue.kit import unpacked
from tests.systems.h2.test_left import LEFT

COMMANDS = (
    ("triage", "--json"),
    ("explain", "--json"),
    ("inspect", "--json"),
    ("verify", "--json"),
    ("indoubt", "list", "--json"),
    ("backlog", "--json"),
)
SPELLINGS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "dot": (".", lambda _: "."),
    "trailing slash": ("..", lambda folder: f"{folder.name}/"),
    "dot slash": ("..", lambda folder: f"./{folder.name}"),
    "doubled": ("..", lambda folder: f".//{folder.name}//."),
    "up and down": (".", lambda folder: f"../{folder.name}"),
    "link": (".", lambda folder: f"{folder.parent}/link"),
    "bare name": ("..", lambda folder: folder.name),
}
_TOLD = re.compile(r'"(?:answer|code|reason|severity|system|resolution|exit)": *"([^"]*)"')


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a coordinator that has decided for two journals beside it."""
    folder = tmp_path_factory.mktemp("estate") / "coordinator"
    with (
        tallystick.Journal(folder.parent / "a") as one,
        tallystick.Journal(folder.parent / "b") as other,
        tallystick.TransactionManager(folder, {"a": one, "b": other}) as manager,
    ):
        manager.recover()
        with manager.begin() as tx:
            tx["a"].add(1, b"one")
            tx["b"].add(1, b"one")
    return folder


def _told(run: Run, command: tuple[str, ...], path: str) -> tuple[int, list[str]]:
    answer = run(*command, path)
    return answer.code, sorted(_TOLD.findall(answer.out))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("part", ["coordinator", "decisions", "estate", "example"])
def test_a_relative_path_gives_the_answers_of_the_absolute_one(
    run: Run, coordinator: Path, command: tuple[str, ...], part: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    folder = {
        "coordinator": coordinator, "decisions": coordinator / "decisions",
        "estate": coordinator.parent, "example": EXAMPLES / "mid-phase-two",
    }[part]  # fmt: skip
    want = _told(run, command, str(folder))
    assert want[1] or command[0] in ("verify", "backlog", "indoubt")
    (tmp_path / "link").symlink_to(folder)
    for name, (where, spelled) in SPELLINGS.items():
        monkeypatch.chdir(folder / where)
        path = str(tmp_path / "link") if name == "link" else spelled(folder)
        assert _told(run, command, path) == want, name


ADDRESSES = {
    "derby": (
        "jdbc:derby:{}/derby/data", "jdbc:derby:{}/derby/data;create=true;password=secret",
        "JDBC:DERBY:{}/derby/data;create=false",
        "jdbc:derby:directory:derby/data", "jdbc:derby:;create=true;databaseName={}/derby/data",
        "file://{}/derby/data", "file:{}/derby/data/", "file://localhost{}/derby/d%61ta",
        "'{}/derby/data'", '"derby/data" ', "{}/derby/data/log//",
    ),
    "h2": (
        "JDBC:H2:FILE:{}/h2 of/bank",
        "jdbc:h2:{}/h2 of/bank", "jdbc:h2:./h2 of/bank;CIPHER=AES", "jdbc:h2:file:{}/h2 of/bank",
        "jdbc:h2:split:28:nio:h2 of/bank", "jdbc:h2:~/h2 of/bank", "jdbc:h2:file://{}/h2 of/bank",
        "file://{}/h2%20of", "file:h2 of/bank.h2.db", " h2 of ",
    ),
}  # fmt: skip
"""What an operator copies from a setting, by the system that it is of."""


@pytest.mark.parametrize(
    ("system", "url"), [(one, url) for one in ADDRESSES for url in ADDRESSES[one]]
)
def test_an_address_from_a_setting_is_the_path_in_it(
    run: Run, tmp_path: Path, system: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with its quotes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    origin = EXAMPLES / "orphan" / system
    unpacked(origin, tmp_path / "derby/data" if system == "derby" else tmp_path / "h2 of")
    (one,) = run("inspect", "--json", url.format(tmp_path)).json["logs"]
    assert one["system"] == system
    (log,) = tallystick.inspect(url.format(tmp_path)).logs
    assert log.system == system, "the library takes it, too"


PASSWORD = "geheim\xdf"


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    packed = LEFT / "aes-1.4.200-halt.h2.db.gz"
    (tmp_path / "bank.h2.db").write_bytes(gzip.decompress(packed.read_bytes()))
    return tmp_path


@pytest.mark.parametrize(
    ("url", "opens"),
    [
        ("jdbc:h2:{}/bank;CIPHER=AES;USER=sa;PASSWORD=geheim\xdf of sa", True),
        ("JDBC:H2:{}/bank;cipher=AES;password=geheim\xdf of sa", True),
        ("jdbc:h2:{}/bank;CIPHER=AES;PASSWORD=other sa", False),
        ("jdbc:h2:{}/bank;PASSWORD=geheim\xdf sa", False),  # the user's alone
        ("jdbc:h2:{}/bank;CIPHER=AES", False),
    ],
)
def test_the_password_of_the_files_is_taken_from_an_address_and_never_shown(
    run: Run, sealed: Path, url: str, opens: bool
) -> None:
    url = url.format(sealed)
    answer = run("explain", url)
    assert answer.out.startswith("SAFE AFTER A CRASH" if opens else "CANNOT TELL")
    assert "geheim" not in answer.out + answer.err
    assert (tallystick.explain(url).logs[0].judgement.answer is Answer.SAFE) is opens
    assert ("rows" in run("rows", url).out) is opens
    told = run("verify", url, "--boot-password", PASSWORD)
    assert told.code == 0, "what is given is taken rather"
    copy = sealed / "copy"
    assert PASSWORD not in repr(repair(url, copy))


def test_addresses_with_several_passwords_are_refused(run: Run, sealed: Path) -> None:
    urls = [f"jdbc:h2:{sealed}/bank;CIPHER=AES;PASSWORD={one} sa" for one in ("one", "two")]
    answer = run("triage", *urls)
    assert (answer.code, "several passwords" in " ".join(answer.err.split())) == (2, True)
    with pytest.raises(ValueError, match="several passwords"):
        tallystick.explain(urls)


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("jdbc:derby:/data/db;create=false;bootPassword=a=b c;user=x", "a=b c"),
        ("JDBC:DERBY:/data/db;bootpassword=abc", "abc"),
        ("'jdbc:derby:/data/db;bootPassword=abc'", "abc"),
        ("jdbc:derby:/data/db;password=abc", None),
        ("jdbc:postgresql://host/db;bootPassword=abc", None),
        ("/data/db;bootPassword=abc", None),
    ],
)
def test_the_boot_password_of_derby_is_that_of_its_url(url: str, password: str | None) -> None:
    assert with_password([url], None).boot_password == password
    given = ReadOptions(boot_password="given")
    assert with_password([url], given).boot_password == "given"


@pytest.mark.parametrize("command", ["rows", "triage", "explain", "inspect"])
@pytest.mark.parametrize(
    "url",
    [
        "jdbc:derby://host:1527//data/test;password=secret", "jdbc:derby:memory:test",
        "jdbc:derby:classpath:test", "jdbc:derby:", "jdbc:h2:tcp://host/~/test;PASSWORD=secret",
        "jdbc:h2:mem:test", "jdbc:h2:zip:~/db.zip!/test", "jdbc:h2:", "jdbc:postgresql://host/test",
    ],
)  # fmt: skip
def test_an_address_of_no_file_here_is_refused(run: Run, url: str, command: str) -> None:
    answer = run(command, url)
    assert (answer.code, answer.out) == (2, "")
    assert "names no database in files of this machine" in " ".join(answer.err.split())
    assert "secret" not in answer.err
    with pytest.raises(
        LogUnreadableError, match="names no database in files of this machine"
    ) as it:
        list(tallystick.scan(url))
    assert "secret" not in str(it.value)


@pytest.mark.parametrize("url", ["jdbc:derby:{}/data", "file://{}/data"])
def test_what_is_written_of_an_address_stays_out_of_its_folder(tmp_path: Path, url: str) -> None:
    unpacked(EXAMPLES / "orphan" / "derby", tmp_path / "data")
    before, path = sorted(tmp_path.rglob("*")), url.format(tmp_path)
    made = tmp_path / "data" / "made"
    for write in (
        lambda: repair(path, made),
        lambda: salvage(path, made, "derby-import"),
        lambda: bundle(path, made),
        lambda: export_rows(path, "csv", made),
    ):
        with pytest.raises(LogWriteError):
            write()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_database_of_the_other_store_of_h2_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bank.mv.db").write_bytes(b"H:2,block:5\n" * 400)
    answer = run("rows", f"jdbc:h2:{tmp_path}/bank")
    assert answer.code == 2
    assert "MVStore" in answer.err


def test_a_name_that_is_there_is_taken_as_it_is(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("jdbc:h2:bank", "file:bank", "'bank'"):
        with tallystick.Journal(name) as journal:
            journal.add(1, b"one")
        assert run("rows", name).out.startswith(f"tally  {name}\n")
