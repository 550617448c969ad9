"""The manager of Django's databases as it is opened, without any database."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.integrations import django


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = SimpleNamespace(DATABASES={}, TALLYSTICK={"COORDINATOR": tmp_path, "DATABASES": []})
    monkeypatch.setattr(django, "settings", found)
    monkeypatch.setattr(django, "_managers", {})
    return tmp_path


def test_a_manager_whose_first_recovery_fails_leaves_nothing_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: TransactionManager) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(TransactionManager, "recover", fail)
        with pytest.raises(ZeroDivisionError):
            django.manager()
    TransactionManager(folder / "0", {}, recovery_interval=None).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_child_that_is_forked_meanwhile_opens_its_own() -> None:
    with django._opening:
        child = os.fork()
        if not child:
            os._exit(0 if django._opening.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
