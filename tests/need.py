"""Things a test may need that a machine may lack.

`need("java")` lets the test go on, skips it with a line that says what is missing, or, where
the environment variable TALLYSTICK_REQUIRE names the thing, fails: a skip must not pass there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from tallystick.core import CORE
from tests.testing import shutdowns


def need(thing: str) -> None:
    """Skip, or fail where it is required, if ``thing`` is not on this machine."""
    if _FINDERS[thing]():
        return
    text = f"{thing} is missing: run scripts/ensure.sh {thing}"
    if thing == "core":
        text = "the compiled core is not installed: pip install ./fast"
    if thing == "streams":
        text = "streams need PySpark 4.2 or later"
    if thing == "fuzzer":
        text = "atheris is not installed: pip install atheris"
    if thing in shutdowns.MAKE:
        text = (
            f"no disk with {thing} can be made and shut down: it needs root, loop devices and mkfs"
        )
    if thing == "core" and os.environ.get("TALLYSTICK_PURE") == "1":
        pytest.skip("the pure twin was asked for")
    if thing in os.environ.get("TALLYSTICK_REQUIRE", "").split(","):
        pytest.fail(text)
    pytest.skip(text)  # nothing else skips in a whole run; -ra prints each reason


@cache
def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else shutil.which("java")
    if command is None:
        return False
    answer = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    version = answer.stderr.partition('version "')[2].partition(".")[0]
    return version.isdigit() and int(version) >= 17


def postgres_bin() -> Path | None:
    """The folder of PostgreSQL's server programs, of the newest version installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    on_path = shutil.which("postgres")
    if found:
        return found[-1].parent
    return Path(on_path).parent if on_path else None


def server_program(name: str) -> Path | None:
    """A server's program, also where the path of a plain user lacks its folder."""
    for candidate in (shutil.which(name), f"/usr/sbin/{name}"):
        if candidate and Path(candidate).exists():
            return Path(candidate)
    return None


MYSQL = os.environ.get("TALLYSTICK_MYSQL")
"""The program of a MySQL server, on which all that is for MariaDB is to run instead."""


def mariadb_program() -> Path | None:
    """The program of a MariaDB server, or of MySQL where that is asked for."""
    return Path(MYSQL) if MYSQL else server_program("mariadbd")


SAIL = Path(__file__).parent.parent / ".venv-sail" / "bin" / "python"
"""An interpreter of its own: the engine needs another PySpark."""

_FINDERS: dict[str, Callable[[], object]] = {
    "core": lambda: CORE is not None,
    "fuzzer": lambda: find_spec("atheris") is not None,
    "java": _java,
    "streams": lambda: find_spec("pyspark.sql.streaming.datasource") is not None,
    "maven": lambda: shutil.which("mvn") is not None,
    "postgres": lambda: postgres_bin() is not None,
    "pgbouncer": lambda: server_program("pgbouncer") is not None,
    "mariadb": lambda: mariadb_program() is not None,
    "sail": lambda: SAIL.exists(),
    **{kind: partial(shutdowns.possible, kind) for kind in shutdowns.MAKE},
    "browser": lambda: bool(shutil.which("chromium") and shutil.which("chromedriver")),
    **{shell: partial(shutil.which, shell) for shell in ("bash", "zsh", "fish")},
}
