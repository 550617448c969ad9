"""The public face: every name is there, typed, and costs nothing that is not used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tallystick

OPTIONAL = (
    "click", "cryptography", "django", "duckdb", "fsspec", "greenlet", "jinja2", "numba", "numpy",
    "opentelemetry", "oracledb", "psycopg", "pyarrow", "pymysql", "pyspark", "rich", "sqlalchemy",
    "transaction", "zstandard",
)  # fmt: skip
HEAVY = ("numpy", "pyarrow", "pyspark", "click", "rich", "sqlalchemy", "psycopg", "numba")


@pytest.mark.parametrize("name", tallystick.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(tallystick, name) is not None


def test_every_public_name_has_its_place_in_the_reference() -> None:
    pages = Path(__file__).parents[1].joinpath("docs/api").glob("*.md")
    shown = set(re.findall(r"^\.\. auto\w+:: (\S+)$", "".join(map(Path.read_text, pages)), re.M))
    missing = [
        name
        for name in tallystick.__all__
        if f"tallystick.{name}" not in shown and not hasattr(tallystick.errors, name)
    ]
    assert "tallystick.errors" in shown
    assert missing == ["__version__"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'scann'") as caught:
        _ = tallystick.scann  # type: ignore[attr-defined] # type checkers say so, too
    assert (caught.value.name, caught.value.obj) == ("scann", tallystick)
    assert "scan" in dir(tallystick)


def imported_by(program: str) -> list[str]:
    """Return the modules that a program has imported at its end, besides those of any program."""
    shown = "import sys; before = set(sys.modules)\n{}\nprint(*sorted(set(sys.modules) - before))"
    answer = subprocess.run(
        [sys.executable, "-c", shown.format(program)], capture_output=True, text=True, check=True
    )
    return answer.stdout.split()


def test_importing_the_package_imports_no_other_module_of_it() -> None:
    modules = imported_by("import tallystick")
    assert [one for one in modules if one.startswith("tallystick")] == ["tallystick"]
    assert len(modules) < 60  # those of `typing`: 13 ms of processor time, where all took 180


@pytest.mark.parametrize(
    ("name", "unused"),
    [
        ("Journal", ("tallystick.services.transactions", "tallystick.services.page_store")),
        ("scan", ("tallystick.services",)),
        ("CorruptLogError", ("tallystick.reading", "tallystick.storage")),
        ("records", ("tallystick.reading", "tallystick.services")),
    ],
)
def test_a_name_brings_what_it_needs_and_no_more(name: str, unused: tuple[str, ...]) -> None:
    modules = imported_by(f"import tallystick; tallystick.{name}")
    assert not [one for one in modules if one.startswith(unused)]


def test_importing_the_core_imports_no_third_party_package() -> None:
    program = f"import sys, tallystick; print([m for m in {HEAVY} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_a_log_is_written_and_scanned_with_the_core_alone() -> None:
    """The extras are hidden; a journal and every reader's records still work."""
    program = f"""
import sys, tempfile
for name in {HEAVY}:
    sys.modules[name] = None
import tallystick
with tempfile.TemporaryDirectory() as folder:
    with tallystick.Journal(folder + "/log") as log:
        log.append(b"one")
        with log.transaction() as tx:
            tx.add(7, b"two")
    print([record.body for record in tallystick.scan(folder)][:2])
    tallystick.explain(folder).to_dict()
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert answer.stdout.strip() == "[b'one', b'two']", answer.stderr[-2000:]


def run_without_extras(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program where no package of an extra can be imported."""
    hidden = f"import sys\nsys.modules.update(dict.fromkeys({OPTIONAL}))\n"
    command = [sys.executable, "-c", hidden + program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_public_name_is_there_without_any_extra(tmp_path: Path) -> None:
    program = "from tallystick import *\nimport tallystick\nprint(*sorted(tallystick.__all__))"
    answer = run_without_extras(program, tmp_path)
    assert answer.stdout.split() == sorted(tallystick.__all__), answer.stderr[-2000:]


JOURNAL = "tallystick.Journal('log', {})"
MANAGER = "tallystick.TransactionManager('coordinator', {{'a': '{}://u@127.0.0.1:1/x'}})"
SERVICES = "import tallystick.services.transactions"


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("program", "extra"),
    [
        (JOURNAL.format("key=lambda: bytes(32)"), "crypto"),
        (JOURNAL.format("key=lambda: bytes(32), shared=True"), "crypto"),
        (JOURNAL.format("settings={'compression': 'zstd'}"), "zstd"),
        (JOURNAL.format("settings={'compression': 'zstd'}, shared=True"), "zstd"),
        (MANAGER.format("postgresql"), "postgres"),
        (MANAGER.format("mariadb"), "mysql"),
        (f"{SERVICES}.resources.sqlalchemy", "sql"),
        (f"{SERVICES}.zope", "zope"),
        (f"{SERVICES}.integrations.django", "django"),
        ("import tallystick.testing.simulate", "testing"),
        ("tallystick.read_arrow('.')", "arrow"),
        ("tallystick.sql('.')", "investigate"),
        ("list(tallystick.scan('s3://bucket/log'))", "remote"),
        ("import tallystick.report", "arrow"),
        ("import pyspark_tallystick", "spark"),
    ],
)
def test_what_needs_an_extra_names_it_and_makes_no_log(
    program: str, extra: str, tmp_path: Path
) -> None:
    answer = run_without_extras(f"import tallystick\n{program}", tmp_path)
    assert f"'tallystick[{extra}]'" in answer.stderr.splitlines()[-1], answer.stderr[-2000:]
    assert answer.stderr.splitlines()[-1].startswith("tallystick.errors.MissingExtraError: ")
    assert not tmp_path.joinpath("log").exists()
