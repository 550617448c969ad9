"""One log, one exit code: `verify` and `triage` have that of `explain`."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tallystick.reading import explain, triage, verify
from tallystick.records import Answer
from tests.fixtures import fixture_dir

LOGS = {
    "bitronix": "committed-2pc",
    "cloudtran": "*",
    "derby": "*",
    "h2": "committed-512",
    "jboss": "*",
}
"""A fixture of each system that has some; the first one by name for ``*``."""
DAMAGES = ("none", "garbage after", "garbage inside", "zeros inside", "cut")


def damage(path: Path, kind: str) -> None:
    data, rng = bytearray(path.read_bytes()), random.Random(len(kind))
    half = len(data) // 2
    if kind == "garbage after":
        data += rng.randbytes(700)
    elif kind == "garbage inside":
        data[half : half + 300] = rng.randbytes(len(data[half : half + 300]))
    elif kind == "zeros inside":
        data[half : half + 300] = bytes(len(data[half : half + 300]))
    elif kind == "cut":
        del data[half:]
    path.write_bytes(data)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", LOGS)
def test_the_commands_agree_about_a_log(tmp_path: Path, name: str, kind: str) -> None:
    case = next(one for one in sorted(fixture_dir(name).glob(LOGS[name])) if one.is_dir())
    folder = Path(shutil.copytree(case, tmp_path / "log", copy_function=shutil.copy))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"]
    damage(max(files, key=lambda one: one.stat().st_size), kind)
    explained, verified = explain(folder), verify(folder)
    assert verified.exit_code == triage(folder).exit_code == explained.exit_code
    unsafe = any(one.judgement.answer is not Answer.SAFE for one in explained.logs)
    assert explained.exit_code >= unsafe
    assert bool(verified.findings) >= bool(explained.exit_code)


@pytest.mark.parametrize("log", ["h2/indoubt-many-512", "cloudtran/torn-tail-zeros"])
def test_a_safe_log_whose_verdicts_differ_has_one_exit_code(log: str) -> None:
    system, _, case = log.partition("/")
    folder = fixture_dir(system) / case
    explained, found = explain(folder), triage(folder)
    (verdict,), (row,) = explained.logs, found.logs
    assert verdict.judgement.answer is Answer.SAFE
    assert verdict.differences
    assert explained.exit_code == found.exit_code == 1
    assert not row.to_dict()["verdicts_agree"]
    assert row.command.startswith(("tallystick explain", "tallystick indoubt list"))
