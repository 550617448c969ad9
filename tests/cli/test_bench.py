"""`tallystick bench`: every benchmark of the checkout, and nothing that is none."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from tallystick.cli.build.bench import benchmarks, command


def test_the_list_has_what_runs_by_itself_and_no_helper() -> None:
    listed = CliRunner().invoke(command, ["list"]).output.split()
    assert {"cores", "engine_commit", "transactions", "write_behind"} <= set(listed)
    assert not {"callers", "turns", "estates", "engine_peers", "engine_syncs"} & set(listed)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", benchmarks())
def test_a_benchmark_starts_as_the_command_starts_it(name: str) -> None:
    path = benchmarks()[name]
    done = subprocess.run(
        [sys.executable, str(path), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {path.name}")
