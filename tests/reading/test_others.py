"""Files that are no log are named as what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.reading import explain


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (bytes(100), "only zeros"),
        (bytes(1 << 20), "zeros in its first 65536 bytes"),
        (b"nothing of the kind", "content of no known log"),
    ],
)
@pytest.mark.parametrize("name", ["log1.dat", "a.bin"])
def test_a_file_that_is_no_log_is_named(
    tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for where in (tmp_path, path):
        (problem,) = explain(where).problems
        assert (problem.code, problem.found) == ("no-log", f"1 other file: {name} ({text})")


def test_of_many_files_the_first_are_named(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.bin").touch()
    (problem,) = explain(tmp_path).problems
    assert (problem.found or "").startswith("9 other files: 0.bin (empty), 1.bin (empty)")
    assert (problem.found or "").endswith(" and 3 more")
