"""The public face: every name is there, typed, and costs nothing that is not used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tallystick

HEAVY = ("numpy", "pyarrow", "pyspark", "click", "rich", "sqlalchemy", "psycopg", "numba")


@pytest.mark.parametrize("name", tallystick.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(tallystick, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = tallystick.Nothing


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
