"""Files stay for their reader, and chains call every disposer."""

from __future__ import annotations

from pathlib import Path

from tallystick.disposal.disposers import (
    CompressDisposer,
    DeleteDisposer,
    MoveDisposer,
)
from tallystick.disposal.retention import Chain, Copying, KeepForReader, ReaderOffset
from tests.disposal.kit import CONTENT, Log, run, until


def test_files_stay_until_their_reader_has_finished_with_them(tmp_path: Path) -> None:
    log = Log(tmp_path, 3)
    offset = ReaderOffset(str(tmp_path / "offsets"), "stream")
    disposal = run(log, KeepForReader(offset, DeleteDisposer()))
    until(lambda: disposal.counters.postponed > 1)
    offset.commit("log-1")
    until(lambda: log.gone == log.paths[:2])
    offset.commit("log-0")
    assert offset() == "log-1"
    disposal.close(1)
    assert Path(log.paths[2]).exists()


def test_chain_archives_twice_and_then_deletes(file: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    chain = Chain(
        [Copying(MoveDisposer(str(one))), Copying(CompressDisposer(str(two))), DeleteDisposer()]
    )
    chain.dispose(str(file))
    assert not file.exists()
    assert (one / file.name).read_bytes() == CONTENT
    assert (two / f"{file.name}.gz").exists()
