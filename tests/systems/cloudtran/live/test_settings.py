"""Settings from a properties file, and the disposer that they name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tests.systems.cloudtran.live.test_log import begin, settings

WHOLE = """\
# the logger of node 1
ct.logger.threadCount = 2
ct.logger.fileSizeMB: 40/1
ct.logger.maxWriteSize=1048576
ct.logger.disposer=tests.systems.cloudtran.live.test_settings.\\
                   Noting
ct.logger.directory = /var/log/\\u00e9
ct.logger.fileDatePattern = yyyyMMdd'T'HHmmss'Z'
ct.logger.logBeforeCommit=false
ct.logger.logAfterCommit=true
ct.logger.compress=TRUE
ct.grid.name = of no interest here
"""


class Noting:
    """Takes files by deleting them, and notes which."""

    paths: ClassVar[list[str]] = []

    def dispose(self, path: str) -> None:
        self.paths.append(path)
        Path(path).unlink()


class WithoutDispose:
    pass


class NeedsMore:
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def dispose(self, path: str) -> None: ...


def test_a_whole_properties_file(tmp_path: Path) -> None:
    path = tmp_path / "ct.properties"
    path.write_text(WHOLE)
    assert LogSettings.from_file(path) == LogSettings(
        thread_count=2,
        file_size_mb=40,
        max_write_size=1 << 20,
        disposer="tests.systems.cloudtran.live.test_settings.Noting",
        directory="/var/log/\u00e9",
        log_before_commit=False,
        log_after_commit=True,
        compress=True,
    )


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("ct.logger.threadCounts=3", "no such property: ct.logger.threadCounts"),
        ("ct.logger.threadCount=many", "ct.logger.threadCount is 'many'"),
        ("ct.logger.threadCount=0", "expected 1 to 64"),
        ("ct.logger.compress=1", "neither true nor false"),
        ("ct.logger.fileDatePattern=yyyy", "file_date_pattern"),
        ("ct.logger.disposer=\\u12", "no character"),
    ],
)
def test_a_wrong_line_is_refused_with_the_files_name(
    tmp_path: Path, line: str, wanted: str
) -> None:
    path = tmp_path / "ct.properties"
    path.write_text(line)
    with pytest.raises(ValueError, match=re.escape(wanted)) as caught:
        LogSettings.from_file(path)
    assert str(caught.value).startswith(str(path))


def test_the_folder_of_the_settings_is_used_where_none_is_given(tmp_path: Path) -> None:
    with BlockLog(settings=settings(directory=str(tmp_path / "log"))) as log:
        assert log.folder == str(tmp_path / "log")
    with BlockLog(str(tmp_path / "other"), settings(directory=str(tmp_path / "log"))) as log:
        assert log.folder == str(tmp_path / "other")
    with pytest.raises(ValueError, match="no folder"):
        BlockLog(settings=settings())


def test_the_disposer_of_the_settings_gets_redundant_files(tmp_path: Path) -> None:
    Noting.paths.clear()
    named = settings(file_size_mb=1, disposer=f"{__name__}.Noting")
    with BlockLog(str(tmp_path), named) as log:
        for _ in range(4):
            number, ticket = begin(log, bytes(600_000))
            ticket.wait()
            log.persisted(number, ("orders", "billing"))
    assert Noting.paths
    assert not any(Path(path).exists() for path in Noting.paths)


@pytest.mark.parametrize(
    "disposer",
    [
        "nowhere",
        "tests.nowhere.Disposer",
        f"{__name__}.Missing",
        f"{__name__}.WithoutDispose",
        f"{__name__}.NeedsMore",
        f"{__name__}.WHOLE",
    ],
)
@pytest.mark.parametrize("by", ["settings", "argument"])
def test_a_disposer_that_is_none_is_refused_before_anything_is_written(
    tmp_path: Path, disposer: str, by: str
) -> None:
    options: dict[str, Any] = {"disposer": disposer} if by == "argument" else {}
    chosen = settings() if by == "argument" else settings(disposer=disposer)
    with BlockLog(str(tmp_path / "log"), settings()) as log:
        begin(log)[1].wait()
    before = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    with pytest.raises(ValueError, match=re.escape(disposer)):
        BlockLog(str(tmp_path / "log"), chosen, **options)
    assert {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()} == before
    with pytest.raises(ValueError, match=re.escape(disposer)):
        BlockLog(str(tmp_path / "fresh"), chosen, **options)
    assert not (tmp_path / "fresh").exists()
