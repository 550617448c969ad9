"""Files stay for their reader, and chains call every disposer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.disposal.disposers import (
    CompressDisposer,
    DeleteDisposer,
    MoveDisposer,
)
from tallystick.disposal.retention import Chain, Copying, KeepForReader, ReaderOffset
from tallystick.errors import CorruptLogError
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


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"name": "log-1"}', b"\xff\xfe", b"7"])
def test_an_offset_that_cannot_be_read_keeps_the_files_and_says_what_to_do(
    content: bytes, tmp_path: Path
) -> None:
    log = Log(tmp_path, 2)
    offset = ReaderOffset(str(tmp_path), "stream")
    offset.path.write_bytes(content)
    with pytest.raises(CorruptLogError, match="offset of a reader cannot be read"):
        offset()
    disposal = run(log, KeepForReader(offset, DeleteDisposer()))
    until(lambda: "offset of a reader" in disposal.counters.last_error)
    assert not log.gone
    offset.path.unlink()
    offset.commit("log-1")
    until(lambda: log.gone == log.paths)
    disposal.close(1)


def test_chain_archives_twice_and_then_deletes(file: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    chain = Chain(
        [Copying(MoveDisposer(str(one))), Copying(CompressDisposer(str(two))), DeleteDisposer()]
    )
    chain.dispose(str(file))
    assert not file.exists()
    assert (one / file.name).read_bytes() == CONTENT
    assert (two / f"{file.name}.gz").exists()
