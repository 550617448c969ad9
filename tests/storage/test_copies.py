"""Whoever copies what holds something open gets an error, and what is open stays as it is."""

from __future__ import annotations

import ast
import copy
import gc
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import tallystick
from tallystick.errors import LogLockedError
from tallystick.storage.fork import Uncopied
from tallystick.storage.local import LOCAL, LocalFile

SOURCE = Path(tallystick.__file__).parent
OPENS = {
    "Lock", "OwnedLock", "RLock", "Condition", "Event", "Thread", "ThreadPoolExecutor", "mmap",
    "map_file", "os.open", "os.dup", "fs.open", "self.fs.open", "LocalFile",
}  # fmt: skip
"""Calls whose result is a lock, a thread, a mapping or a descriptor."""


def _holders() -> Iterator[tuple[str, str]]:
    """Modules and classes that keep the result of such a call in an attribute."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(("tallystick", *path.relative_to(SOURCE).with_suffix("").parts))
        if not module.startswith("tallystick.testing"):
            for found in ast.walk(ast.parse(path.read_text())):
                if isinstance(found, ast.ClassDef) and any(map(_opens, ast.walk(found))):
                    yield module, found.name


def _opens(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    calls = [ast.unparse(one.func) for one in ast.walk(node.value) if isinstance(one, ast.Call)]
    kept = any(isinstance(one, ast.Attribute) for one in targets)
    return kept and any(one in OPENS or one.rpartition(".")[2] in OPENS for one in calls)


def test_every_class_that_keeps_a_lock_a_thread_or_a_descriptor_refuses_to_be_copied() -> None:
    holders = list(_holders())
    assert len(holders) > 60, "the search finds them"
    classes = [getattr(importlib.import_module(module), name) for module, name in holders]
    assert [one for one in classes if not issubclass(one, Uncopied)] == []


class _Holder:
    """Somebody's settings."""

    def __init__(self, held: object) -> None:
        self.held = held


def test_a_file_is_not_copied_with_what_holds_it_and_stays_open(tmp_path: Path) -> None:
    file = LOCAL.create(str(tmp_path / "file"))
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"a LocalFile cannot be copied .* open it in the proc"):
            copied(file)
    with pytest.raises(TypeError, match="a LocalFile cannot be copied"):
        copy.deepcopy({"settings": [_Holder(file)]})
    gc.collect()
    file.pwrite(b"whole", 0)
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_a_finalizer_closes_only_what_its_own_object_has_opened(tmp_path: Path) -> None:
    file = cast(LocalFile, LOCAL.create(str(tmp_path / "file")))
    half_made = LocalFile.__new__(LocalFile)
    by_hand = LocalFile.__new__(LocalFile)
    for name in ("_fd", "_opener", "path"):
        object.__setattr__(by_hand, name, getattr(file, name))
    with pytest.raises(FileNotFoundError):
        LocalFile(str(tmp_path / "absent"), os.O_RDWR)
    with pytest.raises(TypeError):
        cast(Any, LocalFile)()
    del half_made, by_hand
    gc.collect()
    file.pwrite(b"whole", 0)
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_a_lock_is_not_released_by_a_copy_of_it(tmp_path: Path) -> None:
    lock = LOCAL.lock(str(tmp_path / "lock"))
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.copy(lock)
    gc.collect()
    with pytest.raises(LogLockedError):
        LOCAL.lock(str(tmp_path / "lock"))
    lock.release()
