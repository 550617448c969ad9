"""The simulated machine has everything that a shared log asks of the kernel."""

from __future__ import annotations

import inspect

import pytest

from tallystick.storage.shared import kernel
from tallystick.testing.simulate.machine import KERNEL

ASKED = [
    name
    for name, one in inspect.getmembers(kernel, inspect.isfunction)
    if one.__module__ == kernel.__name__ and not name.startswith("_")
]


@pytest.mark.parametrize("name", ASKED)
def test_every_function_of_the_kernel_is_simulated(name: str) -> None:
    assert getattr(KERNEL, name) is not getattr(kernel, name)
