"""The public face: every name is there, typed, and costs nothing that is not used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tallystick

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
