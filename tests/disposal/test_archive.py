"""Archives hold a whole and equal copy before the file goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from tallystick.disposal.archive import ArchiveDisposer
from tests.disposal.kit import CONTENT, check_copies


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_archive_on_a_local_folder_is_verified_before_the_file_goes(
    file: Path, tmp_path: Path
) -> None:
    disposer = ArchiveDisposer(str(tmp_path / "archive"))
    disposer.dispose(str(file))
    assert [path.name for path in (tmp_path / "archive").iterdir()] == [file.name]
    check_copies(disposer, file)


def test_archive_on_an_object_store(file: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    disposer = ArchiveDisposer("s3://logs/shop", options={"endpoint_url": s3})
    disposer.dispose(str(file))
    check_copies(disposer, file)


def test_archive_that_cannot_be_reached_keeps_the_file(file: Path) -> None:
    disposer = ArchiveDisposer("http://127.0.0.1:9/nothing")
    with pytest.raises(Exception, match=r".*"):
        disposer.dispose(str(file))
    assert file.read_bytes() == CONTENT
