"""What opening a service says of its log: the answers of ``explain``, and calm only with a proof.

Each log is copied while its service has it open, as a killed process leaves it, and changed.
"""

from __future__ import annotations

import gc
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tallystick.cli.watch import backlog, store
from tallystick.indoubt.doctor import examine
from tallystick.reading import explain
from tallystick.records import Answer
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions.manager import TransactionManager
from tallystick.services.write_behind import WriteBehind, WriteBehindSettings
from tallystick.services.write_behind.targets.target import TargetDownError
from tallystick.storage.shared.members import PREFIX

Service = Callable[[Path], Any]


def _down(_: Any) -> None:
    raise TargetDownError("away")


def _journal(path: Path) -> Journal:
    return Journal(path)


def _store(path: Path) -> PageStore:
    return PageStore(path)


def _behind(path: Path, system: str = "tally") -> WriteBehind:
    settings = WriteBehindSettings(close_timeout=0.0)
    return WriteBehind(
        path, {"orders": _down}, system=system, settings=settings, on_incomplete="hold"
    )


def _blocks(path: Path) -> WriteBehind:
    return _behind(path, "cloudtran")


def _manager(path: Path) -> TransactionManager:
    return TransactionManager(path, {}, node="shop", recovery_interval=None)


def _shared(path: Path) -> Journal:
    return Journal(path, shared=True)


def _shared_manager(path: Path) -> TransactionManager:
    return TransactionManager(path, {}, node="shop", shared=True, recovery_interval=None)


def _work(service: Any) -> None:
    """Acknowledge something."""
    if isinstance(service, Journal):
        service.add(1, b"x" * 600)
    elif isinstance(service, PageStore):
        service.create_table("t")
    elif isinstance(service, WriteBehind):
        with service.begin() as tx:
            tx.insert("orders", {"id": 1}, {"state": "new" * 300})
    else:
        service.decisions.decide(b"g" * 100, ("a" * 120, "b" * 120)).wait()


SERVICES = {
    "journal": _journal,
    "store": _store,
    "behind": _behind,
    "blocks": _blocks,
    "manager": _manager,
    "shared": _shared,
    "shared-manager": _shared_manager,
}
_OF_THIS_BOOT = (f"{PREFIX}*",)
"""What processes that share a log keep beside it: none of them is left."""


def left_by_a_kill(service: Service, folder: Path) -> Path:
    """Return a copy of the service's folder, made while it was open."""
    with service(folder / "live") as opened:
        _work(opened)
        ignored = shutil.ignore_patterns(*_OF_THIS_BOOT)
        shutil.copytree(folder / "live", folder / "left", ignore=ignored)
    gc.collect()
    return folder / "left"


def log_file(path: Path) -> Path:
    """Return the file with the newest records."""
    files = [*path.rglob("0*.tally"), *path.rglob("*.ctlog")]
    return max(files)


def without_its_proof(path: Path) -> None:
    """Change a log so that it opens, and is not known to be whole.

    A byte of the last group of a native log changes; of a block log the last byte is cut off.
    """
    file = log_file(path)
    content = bytearray(file.read_bytes())
    if file.suffix == ".tally":
        content[len(content.rstrip(b"\0")) - 300] ^= 1
    else:
        del content[-1:]
    file.write_bytes(content)


@pytest.fixture(params=SERVICES, ids=str)
def left(request: Any, tmp_path: Path) -> tuple[Service, Path]:
    service = SERVICES[request.param]
    return service, left_by_a_kill(service, tmp_path)


@pytest.mark.sampled(3)
def test_opening_says_what_explain_says(left: tuple[Service, Path]) -> None:
    service, path = left
    (verdict,) = explain(path).logs
    assert verdict.judgement.answer is Answer.SAFE
    with service(path) as opened:
        found = opened.recovered
        assert (found.answer, found.judgement.reason) == (Answer.SAFE, verdict.judgement.reason)
        assert found.judgement.after_crash
        assert str(found).startswith("SAFE AFTER A CRASH: ")
        assert "SAFE" not in repr(opened)


@pytest.mark.sampled(3)
def test_without_its_proof_nothing_calm_is_said(
    left: tuple[Service, Path], caplog: pytest.LogCaptureFixture
) -> None:
    service, path = left
    without_its_proof(path)
    (verdict,) = explain(path).logs
    assert verdict.judgement.answer is not Answer.SAFE
    with caplog.at_level(logging.INFO, "tallystick.recovery"), service(path) as opened:
        found = opened.recovered
        assert found.judgement == verdict.judgement
        assert verdict.judgement.to_dict().items() <= found.to_dict().items()
        assert f"{verdict.judgement.words}, {verdict.judgement.reason}" in repr(opened)
    (line,) = [one for one in caplog.records if str(path) in one.getMessage()]
    assert line.levelno == logging.WARNING
    assert verdict.judgement.words in line.getMessage()


def test_recovery_is_not_clean_where_a_decision_may_be_missing(tmp_path: Path) -> None:
    path = left_by_a_kill(_manager, tmp_path)
    without_its_proof(path)
    with _manager(path) as manager:
        report = manager.recover()
    assert report.log is not None
    assert report.log.answer is Answer.CANNOT_TELL
    assert not report.clean
    with _manager(tmp_path / "other") as manager:
        assert manager.recover().clean


def test_a_log_without_a_judgement_of_its_own_is_not_called_safe(tmp_path: Path) -> None:
    with Journal(tmp_path, system="jboss") as journal:
        assert journal.recovered.answer is Answer.CANNOT_TELL
        assert not journal.recovered.judged
        assert "explain" in str(journal.recovered)


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_a_new_log_is_safe(service: Service, tmp_path: Path) -> None:
    with service(tmp_path / "new") as opened:
        assert opened.recovered.answer is Answer.SAFE, str(opened.recovered)


def test_a_member_says_what_the_leader_found(tmp_path: Path) -> None:
    path = left_by_a_kill(_shared, tmp_path)
    without_its_proof(path)
    with _shared(path) as leader, _shared(path) as member:
        assert leader.recovered.answer is Answer.CANNOT_TELL
        assert member.recovered.judgement == leader.recovered.judgement


def with_a_damaged_page(path: Path) -> None:
    """Have all rows in pages, and change a byte of the last one."""
    with _store(path) as store:
        store.checkpoint()
    pages = path / "pages"
    content = bytearray(pages.read_bytes())
    content[-100] ^= 1
    pages.write_bytes(content)


def test_store_check_begins_with_the_answer(tmp_path: Path) -> None:
    path = left_by_a_kill(_store, tmp_path)
    for damage, word, code in (
        (None, "SAFE", 0),
        (without_its_proof, "CANNOT TELL", 1),
        (with_a_damaged_page, "CANNOT TELL", 1),
    ):
        for arguments in ([], ["--json"]):
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy)
            if damage:
                damage(copy)
            result = CliRunner().invoke(store.check, [str(copy), *arguments])
            assert result.exit_code == code, result.output
            if arguments:
                assert json.loads(result.output)["answer"] == word.lower().replace(" ", "-")
            else:
                assert result.output.startswith(word)


@pytest.mark.parametrize("service", [_behind, _blocks])
def test_the_backlog_is_not_calm_where_an_entry_may_be_missing(
    tmp_path: Path, service: Service
) -> None:
    path = left_by_a_kill(service, tmp_path)
    without_its_proof(path)
    result = CliRunner().invoke(backlog.command, [str(path)])
    assert result.exit_code == 1
    assert result.output.startswith("CANNOT TELL")


@pytest.mark.parametrize("service", [_behind, _blocks])
def test_the_backlog_of_a_lost_log_is_not_empty(tmp_path: Path, service: Service) -> None:
    path = left_by_a_kill(service, tmp_path)
    shutil.rmtree(path / "log")
    result = CliRunner().invoke(backlog.command, [str(path)])
    assert result.exit_code == 1
    assert result.output.startswith("CANNOT TELL")
    assert json.loads(CliRunner().invoke(backlog.command, [str(path), "--json"]).output)["problems"]


def test_doctor_does_not_call_a_store_whole_without_proof(tmp_path: Path) -> None:
    path = left_by_a_kill(_journal, tmp_path)
    _manager(tmp_path / "tm").close()
    for damage, level in ((None, "ok"), (without_its_proof, "problem")):
        if damage:
            damage(path)
        checks = examine(str(tmp_path / "tm"), {"mail": f"journal:{path}"})
        (one,) = [one for one in checks if one.what == "store"]
        assert one.level.value == level
        assert one.found.startswith("CANNOT TELL" if damage else "safe after a crash")


def test_doctor_does_not_call_a_decision_log_whole_without_proof(tmp_path: Path) -> None:
    path = left_by_a_kill(_manager, tmp_path)
    (fine,) = [one for one in examine(str(path), {}) if one.what == "decision log"]
    assert (fine.level.value, fine.found) == (
        "ok",
        "safe after a crash; 1 decision not closed",
    )
    without_its_proof(path)
    (bad,) = [one for one in examine(str(path), {}) if one.what == "decision log"]
    assert bad.level.value == "problem"
    assert bad.found.startswith("CANNOT TELL: ")
    assert bad.type_next == f"tallystick explain {path}/decisions"
