"""Put simulated threads, clocks, queues, event loops and randomness in place of the real ones.

In: names of modules. Out: while the block lasts, these modules see the simulated ones, and so
does what tallystick imports meanwhile (`tallystick.storage.scheduling`). What processes share
(`tallystick.storage.shared.kernel`) is simulated in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import queue
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Final

from tallystick.storage import scheduling
from tallystick.storage.shared import kernel
from tallystick.testing.simulate import primitives
from tallystick.testing.simulate.fine import fine_points
from tallystick.testing.simulate.loop import SimulatedPolicy
from tallystick.testing.simulate.machine import KERNEL

_OURS: Final = "tallystick"
_NOT_OURS: Final = "tallystick.testing"
_MODULES: Final[Sequence[tuple[Any, ModuleType]]] = (
    (threading, primitives.THREADING),
    (scheduling.time, primitives.TIME),
    (time, primitives.TIME),
    (queue, primitives.QUEUE),
    (kernel, KERNEL),
)
_SEAMS: Final = ("threading", "time", "kernel")
"""Names under which modules of ours have what is simulated."""

_active = 0


def _replacements() -> dict[int, Any]:
    """Return what stands for what: modules, and the names that a module may have imported."""
    stands_for: dict[int, Any] = {}
    for real, simulated in _MODULES:
        stands_for[id(real)] = simulated
        for name, value in vars(simulated).items():
            original = getattr(real, name, None)
            if callable(original) and original is not value and not name.startswith("_"):
                stands_for[id(original)] = value
    return stands_for


def _named(modules: Sequence[str]) -> list[tuple[str, ModuleType]]:
    """Return the modules of these names, and those of packages of these names."""
    return [
        (name, module)
        for name, module in list(sys.modules.items())
        if any(name == one or name.startswith(f"{one}.") for one in modules)
    ]


def _swap(modules: Sequence[str], stands_for: dict[int, Any]) -> Iterator[Callable[[], None]]:
    """Change the names of every module; yield what changes each of them back."""
    named = dict(_named(modules))
    for name, module in list(sys.modules.items()):
        ours = name.startswith(_OURS) and not name.startswith(_NOT_OURS)
        if not ours and name not in named:
            continue
        names = vars(module)
        for key in _SEAMS if ours else list(names):
            value = names.get(key)
            if value is not None and id(value) in stands_for and not key.startswith("__"):
                names[key] = stands_for[id(value)]
                yield lambda names=names, key=key, value=value: names.__setitem__(key, value)  # type: ignore[misc]


def _swap_all_back(back: Sequence[Callable[[], None]]) -> None:
    """Undo each change of a name, also in modules that were imported meanwhile."""
    for undo in back:
        undo()
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS):
            _swap_back(vars(module))


def _swap_back(names: dict[str, Any]) -> None:
    """Give a module that was imported meanwhile, and so has the simulated ones, the real ones."""
    for key in _SEAMS:
        for real, simulated in _MODULES:
            if names.get(key) is simulated:
                names[key] = real


@contextlib.contextmanager
def swapped(modules: Sequence[str] = (), *, fine: bool = False) -> Iterator[None]:
    """Simulate threads, clocks and randomness in our modules and in those named.

    A second one inside of the block does nothing.

    Args:
        modules: names of modules and packages that are imported already.
        fine: True makes every statement of these a scheduling point.
    """
    global _active
    if _active:
        yield
        return
    _active += 1
    back = list(_swap(modules, _replacements()))
    policy = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(SimulatedPolicy())
    logged = logging.root.manager.disable
    logging.disable()  # of what a crash cuts short there is much to say
    urandom, collecting = os.urandom, gc.isenabled()
    gc.disable()  # a finalizer that runs at some other place would change the trace
    try:
        with (
            fine_points([one for name, one in _named(modules) if fine]),
            warnings.catch_warnings(),
        ):
            # A crash ends tasks that have not begun.
            warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
            yield
    finally:
        _active -= 1
        set_urandom(urandom)
        logging.disable(logged)
        asyncio.set_event_loop_policy(policy)
        _swap_all_back(back)
        if collecting:
            gc.enable()


def set_urandom(urandom: Callable[[int], bytes]) -> None:
    """Replace the source of identities, `os.urandom`."""
    os.urandom = urandom
    random._urandom = urandom  # type: ignore[attr-defined]


def fixed_urandom() -> Callable[[int], bytes]:
    """Return a source of bytes that is the same in every run, so that equal states are equal."""
    return random.Random(0).randbytes
