"""What is installed: extras, the script without its extra, what the package says of itself."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
_OF_OURS = re.compile(r"tallystick\[([\w,-]+)\]")


def packages_of(extra: str) -> set[str]:
    """Return the names of all packages that an extra brings."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        of_ours = _OF_OURS.match(requirement)
        if of_ours is None:
            found.add(re.split(r"[\[<>=;~! ]", requirement)[0])
        else:
            found = found.union(*map(packages_of, of_ours[1].split(",")))
    return found


def test_all_brings_nothing_that_only_its_own_users_want() -> None:
    apart = {"django", "oracledb", "transaction", "pysail", "pyspark-client", "tallystick-fast"}
    everything = set().union(*map(packages_of, EXTRAS))
    assert packages_of("all") == everything - apart


@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        ("cli", {"click", "rich"}),
        ("investigate", {"click", "rich", "pyarrow", "zstandard", "cryptography", "fsspec"}),
        ("service", {"click", "sqlalchemy", "psycopg", "pymysql", "opentelemetry-api"}),
        ("spark", {"pyspark", "pyarrow"}),
    ],
)
def test_an_extra_for_a_person_brings_what_this_person_uses(extra: str, packages: set[str]) -> None:
    found = packages_of(extra)
    assert packages <= found
    assert ("pyspark" in found) == (extra == "spark")


def test_every_extra_that_a_page_or_a_message_names_exists() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    named = {
        extra
        for page in pages
        for one in _OF_OURS.findall(page.read_text("utf-8"))
        for extra in one.split(",")
    }
    assert {"cli", "investigate", "service", "all"} <= named <= set(EXTRAS)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_the_script_without_its_extra_says_so_in_one_sentence_and_exits_with_2(
    missing: str,
) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from tallystick.cli import main"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "tallystick: the command line needs click and rich; type: pip install 'tallystick[cli]'\n"
    )


def test_the_readme_of_a_distribution_leads_to_the_files_of_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hatchling is there only while a distribution is built."""
    path = "hatchling.metadata.plugin.interface"
    interface = ModuleType(path)
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, path, interface)
    hook = runpy.run_path(str(ROOT / "scripts/readme.py"))["AbsoluteLinks"]()
    hook.root = str(ROOT)
    metadata = {"version": PROJECT["version"], "urls": PROJECT["urls"]}
    hook.update(metadata)
    links = re.findall(r"\]\(([^)]*)\)", metadata["readme"]["text"])
    base = f"{PROJECT['urls']['Source']}/blob/v{PROJECT['version']}/"
    assert len(links) > 20
    files = [one.removeprefix(base).partition("#")[0] for one in links]
    assert not [one for one in files if not (ROOT / one).exists()]


def test_a_release_tries_every_extra_and_that_of_the_core_which_it_builds() -> None:
    release = runpy.run_path(str(ROOT / "scripts/release.py"))
    assert set(release["USES"]) == {"", *EXTRAS}
    assert all(release["USES"].values())
    core = tomllib.loads((ROOT / "fast/pyproject.toml").read_text("utf-8"))["project"]
    assert EXTRAS["fast"] == [f"tallystick-fast=={core['version']}; sys_platform == 'linux'"]


def test_a_wheel_that_names_no_c_library_is_not_released() -> None:
    release = runpy.run_path(str(ROOT / "scripts/release.py"))
    core, tags = "tallystick_fast-0.1.0-cp311-abi3-", ("linux_x86_64", "manylinux_2_34_x86_64")
    names = [f"{core}{tag}.whl" for tag in tags] + ["tallystick-0.2.0-py3-none-any.whl"]
    assert release["refused_by_an_index"](names) == [f"{core}linux_x86_64.whl"]
    assert any(one.startswith("auditwheel") for one in release["TOOLS"])


def test_two_builds_of_an_sdist_have_the_same_bytes(tmp_path: Path) -> None:
    settle = runpy.run_path(str(ROOT / "scripts/release.py"))["settle"]
    sdists = []
    for number, names in enumerate((("one", "two"), ("two", "one"))):
        sdist = tmp_path / f"{number}.tar.gz"
        with tarfile.open(sdist, "w:gz") as tar:
            for name in names:
                file = tmp_path / name
                file.write_text(name)
                file.chmod(0o600 + 0o44 * number)
                os.utime(file, (number, number + 0.5))
                tar.add(file, name)
        settle(sdist)
        sdists.append(sdist.read_bytes())
    assert sdists[0] == sdists[1]
    with tarfile.open(tmp_path / "1.tar.gz") as tar:
        assert tar.getnames() == ["one", "two"]
        held = tar.extractfile("one")
        assert held is not None
        assert held.read() == b"one"


def test_distributions_that_name_a_placeholder_are_not_for_an_index() -> None:
    told = runpy.run_path(str(ROOT / "scripts/release.py"))["not_for_an_index"]
    urls = {"Source": "https://tallystick.example/source", "Issues": "https://host.test/issues"}
    assert told(urls).startswith("Source of project.urls")
    assert told({"Issues": urls["Issues"]}) == ""
    placeholder = any("tallystick.example" in one for one in PROJECT["urls"].values())
    assert bool(told(PROJECT["urls"])) == placeholder
    assert ("tallystick.example" in (ROOT / "SECURITY.md").read_text("utf-8")) == placeholder


def test_the_compiled_core_has_the_licence_of_the_package_beside_it() -> None:
    assert (ROOT / "fast/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize(
    ("elsewhere", "needs"),
    [
        ("sys.platform = 'darwin'", "is for Linux"),
        ("sys.platform = 'win32'", "is for Linux"),
        ("sys.byteorder = 'big'", "little-endian"),
        ("sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1", "free-threaded"),
    ],
)
def test_where_the_core_cannot_be_built_one_sentence_says_so(elsewhere: str, needs: str) -> None:
    program = f"import runpy, setuptools, sys, sysconfig; {elsewhere}; runpy.run_path('setup.py')"
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=ROOT / "fast", capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert needs in ran.stderr
    assert "Install tallystick without the extra fast" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_hosted_workflow_runs_the_pythons_that_the_package_names() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "".join(PROJECT["classifiers"]))
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert [one["python"] for one in matrix["include"]] == ["3.14"]
    assert "| 3.14 |" in (ROOT / "docs/versions.md").read_text("utf-8")


def test_the_table_of_versions_is_filled_with_what_runs_here() -> None:
    versions = runpy.run_path(str(ROOT / "scripts/versions.py"))
    page = (ROOT / "docs/versions.md").read_text("utf-8")
    here = dict.fromkeys(versions["here"]())
    assert versions["filled"](page, here) == page
    other = versions["filled"](page, here | {"Python": "3.19"})
    assert re.search(r"^\| Python \| 3\.19 \| .*3\.14 \|$", other, re.MULTILINE)
    with pytest.raises(KeyError):
        versions["filled"](page, {"Oracle": "23"})


def test_every_command_of_the_hosted_workflows_exists() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for workflow in ROOT.glob(".github/workflows/*.yml"):
        jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
        runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        words = {word for run in runs for word in run.split() if "=" not in word}
        assert runs
        assert words - {"make"} <= targets


def test_the_package_names_where_to_report_a_weakness() -> None:
    assert "Security" in PROJECT["urls"]
    assert "*Security*" in (ROOT / "SECURITY.md").read_text("utf-8")
    assert all(one.startswith("https://") for one in PROJECT["urls"].values())
    template = (ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text("utf-8")
    assert PROJECT["urls"]["Security"] in template
