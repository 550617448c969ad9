"""The architecture of docs/architecture.md holds, and these tests notice where it does not."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter import api

from tallystick.systems.registry import NATIVE, systems

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tallystick"
CONFIGURATION = str(ROOT / "pyproject.toml")

MODULES_MAX = 13
"""Modules of one package, without its ``__init__``."""

PLAN = {
    "format": {"layout"},
    "read": {"detect", "files", "records", "scan", "spans", "transactions"},
    "verdict": {"strict"},
    "columns": {"batches"},
    "live": {"log"},
}
"""The modules that every system has, by package; further ones have names of their own."""

WITH_ORIGINAL = {"engine": {"report"}, "verdict": {"differences", "findings"}}
"""The same for systems that have an original, whose recovery is emulated."""

WITH_RUNS = {"runs": {"walk", "chunk", "pieces", "transactions"}}
"""The same for systems whose verdicts read in runs; of the others the kernels are in `columns`."""

NOT_MIRRORED = {"fixtures", "fuzz", "interop"}
"""Folders of tests that have no package of their name: data, mutants, runs of the originals."""


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("tallystick", "pyspark_tallystick", cache_dir=None)


def _layer_contracts() -> list[dict[str, Any]]:
    contracts: list[dict[str, Any]] = api.read_configuration(CONFIGURATION)["contracts_options"]
    return [contract for contract in contracts if contract["type"] == "layers"]


def _names(layer: str) -> list[str]:
    return re.findall(r"\w+", layer)


def _arrows_to_turn() -> Iterator[tuple[str, str, str]]:
    """Yield (contract, upper package, lower package) for neighbouring layers of all contracts."""
    for contract in _layer_contracts():
        for container in contract["containers"]:
            for upper, lower in pairwise(contract["layers"]):
                for one in _names(upper):
                    for other in _names(lower):
                        pair = f"{container}.{one}", f"{container}.{other}"
                        if all(module in _graph().modules for module in pair):
                            yield (contract["name"], *pair)


def _is_broken(graph: grimp.ImportGraph, name: str) -> bool:
    (contract,) = (one for one in _layer_contracts() if one["name"] == name)
    layers = [grimp.Layer(*_names(layer), independent="|" in layer) for layer in contract["layers"]]
    return bool(
        graph.find_illegal_dependencies_for_layers(layers, containers=set(contract["containers"]))
    )


def test_every_contract_of_the_architecture_holds() -> None:
    """In a process of its own: the linter's command line disables the loggers that exist."""
    call = f"lint_imports({CONFIGURATION!r}, no_cache=True)"
    program = f"from importlinter.cli import lint_imports; exit({call})"
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize(("contract", "upper", "lower"), list(_arrows_to_turn()))
def test_an_arrow_that_is_turned_round_breaks_the_contract(
    contract: str, upper: str, lower: str
) -> None:
    graph = deepcopy(_graph())
    assert not _is_broken(graph, contract)
    graph.add_import(importer=lower, imported=upper)
    assert _is_broken(graph, contract)


def test_all_systems_have_the_same_plan() -> None:
    for system in systems():
        folder = SOURCE / "systems" / system.name
        plan = [*PLAN.items(), *(WITH_ORIGINAL.items() if system.name != NATIVE else ())]
        plan += (
            WITH_RUNS.items() if (folder / "runs").exists() else {"columns": {"kernels"}}.items()
        )
        for package, modules in plan:
            present = {path.stem for path in (folder / package).iterdir()}
            assert modules <= present, f"{folder / package} lacks {modules - present}"


def test_no_package_is_larger_than_a_reader_can_take_in() -> None:
    for folder in [SOURCE, *(path for path in SOURCE.rglob("*") if path.is_dir())]:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= MODULES_MAX, f"{folder} has {len(modules)} modules"


def test_nothing_above_the_systems_knows_the_name_of_one() -> None:
    names = {system.name for system in systems()}
    below = {"systems", "storage", "arrow", "roles", "disposal", "testing"}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in below:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                assert node.value not in names, f"{path}:{node.lineno} names {node.value}"
            if isinstance(node, ast.ImportFrom) and (node.module or "").count(".") > 1:
                parts = (node.module or "").split(".")
                named = parts[1] == "systems" and parts[2] in names
                assert not named, f"{path}:{node.lineno} imports {node.module}"


def test_threads_and_clocks_come_through_the_seam() -> None:
    folders = [SOURCE / name for name in ("storage", "services", "disposal")]
    folders += (SOURCE / "systems").glob("*/live")
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        if path == SOURCE / "storage" / "scheduling.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                named = {name.name for name in node.names} & {"threading", "time"}
                assert not named, f"{where} imports {named} past storage.scheduling"
            if isinstance(node, ast.ImportFrom):
                assert node.module not in {"threading", "time"}, f"{where} imports from it"


def test_every_folder_of_tests_mirrors_a_package() -> None:
    tests = ROOT / "tests"
    for path in tests.rglob("__init__.py"):
        parts = path.parent.relative_to(tests).parts
        if not parts or parts[0] in NOT_MIRRORED or parts == ("systems", "example"):
            continue
        assert SOURCE.joinpath(*parts, "__init__.py").exists(), f"no package for {path.parent}"


def test_all_tests_of_the_originals_are_in_the_folders_that_make_interop_collects() -> None:
    (line,) = re.findall(r"(?m)^INTEROP := (.+)$", (ROOT / "Makefile").read_text())
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"mark\.interop", path.read_text())
    }
    assert marked
    assert {one for one in marked if not one.startswith(tuple(line.split()))} == set()


def test_the_name_of_a_system_is_that_of_its_folder_and_its_layout() -> None:
    for system in systems():
        layout = (SOURCE / "systems" / system.name / "format" / "layout.py").read_text("utf-8")
        assert f'SYSTEM_NAME: Final = "{system.name}"' in layout
