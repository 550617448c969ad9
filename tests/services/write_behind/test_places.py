"""No disposer puts a file where it would be taken for the log of the service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.disposal.archive import ArchiveDisposer
from tallystick.disposal.disposers import CompressDisposer, DeleteDisposer, MoveDisposer
from tallystick.disposal.retention import Chain, Copying, KeepForReader
from tallystick.disposal.worker import LogDisposer
from tallystick.services.write_behind import WriteBehind
from tallystick.systems.cloudtran.live.log import BlockLog
from tests.services.write_behind.kit import SYSTEMS

MAKERS: dict[str, Callable[[str], LogDisposer]] = {
    "move": MoveDisposer,
    "compress": CompressDisposer,
    "archive": ArchiveDisposer,
    "archive, as a URL": lambda folder: ArchiveDisposer(f"file://{folder}"),
    "held": lambda folder: KeepForReader(lambda: None, MoveDisposer(folder)),
    "copied": lambda folder: Chain([Copying(CompressDisposer(folder)), DeleteDisposer()]),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_disposer_into_the_folder_of_the_service_is_refused_at_the_call(
    tmp_path: Path, make: Callable[[str], LogDisposer], system: str
) -> None:
    spool = tmp_path / "spool"
    (tmp_path / "link").symlink_to(spool)
    for inner in ("spool", "spool/.", "spool/log", "spool/log/old", "link", "link/log"):
        with pytest.raises(ValueError, match="give it a folder beside it"):
            WriteBehind(spool, {}, system=system, disposer=make(str(tmp_path / inner)))
    assert not spool.exists()
    for inner in ("spool/old", "spool-2", "log"):
        WriteBehind(spool, {}, system=system, disposer=make(str(tmp_path / inner))).close()
        WriteBehind(spool, {}, system=system).close()


def test_a_relative_path_is_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="give it a folder beside it"):
        WriteBehind("spool", {}, disposer=MoveDisposer("spool/log"))
    assert not list(tmp_path.iterdir())


def test_a_block_log_that_is_opened_alone_refuses_it_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give it a folder beside it"):
        BlockLog(str(tmp_path / "log"), disposer=MoveDisposer(str(tmp_path / "log")))
    assert not list(tmp_path.iterdir())
