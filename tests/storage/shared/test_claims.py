"""A process that claims an epoch and is stopped at any step, while others lead and are replaced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick.storage.shared import epochs, kernel
from tallystick.storage.shared.epochs import Epoch, Phase

_CALLS = ("open_file", "allocate", "map_file", "try_lock", "rename_new", "names", "remove")
"""What a claim asks of the machine: it may be stopped before each of them."""


def lead(folder: str) -> Epoch:
    """Lead the next epoch as a process does that nothing disturbs."""
    number = max(epochs.numbers(folder), default=0) + 1
    epoch = epochs.claim(folder, number)
    assert epoch is not None
    epochs.depose(folder, number)
    epoch.enter(Phase.READY)
    epochs.remove_before(folder, number)
    return epoch


def one_leads(folder: str) -> list[Epoch]:
    return [lead(folder)]


def one_leads_and_ends(folder: str) -> list[Epoch]:
    lead(folder).close()
    return []


def two_lead_one_after_the_other(folder: str) -> list[Epoch]:
    lead(folder).close()
    return [lead(folder)]


def three_lead_and_end(folder: str) -> list[Epoch]:
    for _ in range(3):
        lead(folder).close()
    return []


def claimed_with_a_stop(
    folder: str, step: int, others: Callable[[str], list[Epoch]], monkeypatch: pytest.MonkeyPatch
) -> tuple[Epoch | None, list[Epoch], str]:
    """Claim epoch 2, and have the others run before a call of this number; "" if there is none."""
    made, stopped, led = 0, "", []

    def watched(name: str) -> Callable[..., Any]:
        call = getattr(kernel, name)

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal made, stopped
            made += 1
            if made == step:
                stopped = name
                led.extend(others(folder))
            return call(*args, **kwargs)

        return run

    with monkeypatch.context() as patch:
        for name in _CALLS:
            patch.setattr(kernel, name, watched(name))
        return epochs.claim(folder, 2), led, stopped


@pytest.mark.parametrize(
    "others", [one_leads, one_leads_and_ends, two_lead_one_after_the_other, three_lead_and_end]
)
def test_a_claim_is_stopped_at_each_step_and_never_fails_nor_leads_beside_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: Callable[[str], list[Epoch]]
) -> None:
    steps = []
    for step in range(1, 100):
        folder = tmp_path / str(step)
        folder.mkdir()
        lead(str(folder)).close()
        claimed, led, stopped = claimed_with_a_stop(str(folder), step, others, monkeypatch)
        with contextlib.ExitStack() as stack:
            for epoch in (*led, *([claimed] if claimed else [])):
                stack.callback(epoch.close)
            if not stopped:
                break
            steps.append(stopped)
            newest = epochs.numbers(str(folder))[-1]
            if claimed is not None:
                assert newest == claimed.number == 2, "it leads only if nobody is newer"
                assert not led
            assert not list(folder.glob("*.new")), "nothing is left of a claim that failed"
        # Whoever comes next leads.
        lead(str(folder)).close()
    assert {"rename_new", "names", "try_lock"} <= set(steps)
