"""What a killed writer leaves is no damage, whichever of its writes was the last one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.reading import verify
from tallystick.reading.results import is_severe
from tallystick.storage.local import LOCAL, LocalFile
from tests.systems.live_logs import LIVE


# Not Bitronix: a decision that its header does not count yet is called lost. Nor the native log,
# which makes files in a thread: its crash states are enumerated.
@pytest.mark.parametrize("name", ["jboss", "h2", "cloudtran", "derby"])
def test_no_write_leaves_what_is_called_damage(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, copy = tmp_path / "log", tmp_path / "copy"
    seen: list[set[str]] = []

    def look() -> None:
        shutil.copytree(folder, copy)
        seen.append({one.code for one in verify(copy).findings if is_severe(one)})
        shutil.rmtree(copy)

    def then_look(write: Callable[..., None]) -> Callable[..., None]:
        def written(*arguments: object) -> None:
            write(*arguments)
            look()

        return written

    log = LIVE[name](LOCAL, str(folder))
    held = list(range(1, 13))
    for number in held:
        log.put(number)
    log.close()
    log = LIVE[name](LOCAL, str(folder))
    look()
    at_rest = seen.pop()  # of the test's own table of H2
    for one in ("pwrite", "pwritev", "truncate"):
        monkeypatch.setattr(LocalFile, one, then_look(getattr(LocalFile, one)))
    for number in range(13, 25):
        log.put(number)
        log.drop(held.pop(0))
    log.close()
    LIVE[name](LOCAL, str(folder)).close()
    assert len(seen) > 12
    assert set().union(*seen) <= at_rest
