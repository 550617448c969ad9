"""The originals give up where we say so on a prepare of which no element is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.jboss.original import real_journal
from tests.interop.jboss.test_interop import FILE_SIZE
from tests.systems.jboss.build import image, write
from tests.systems.jboss.verdict.test_lone_prepares import CASES

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", ["artemis", "hornetq"])
def test_the_originals_do_with_a_lone_prepare_as_we_say(name: str, tmp_path: Path) -> None:
    refused = {}
    with real_journal(name, tmp_path, file_size=FILE_SIZE) as real:
        for number, (case, (items, *_)) in enumerate(CASES.items()):
            folder = tmp_path / str(number)
            folder.mkdir()
            files = {one: image("g3", one, items if one == 1 else [], FILE_SIZE) for one in (1, 2)}
            write(folder, "g3", files)
            real.tell(f"at {folder}")
            try:
                real.load()
            except AssertionError as error:
                refused[case] = "pendingFiles" in str(error)
            else:
                refused[case] = False
                real.tell("stop")
    column = ["artemis", "hornetq"].index(name)
    assert refused == {case: expected[column] for case, (_, *expected) in CASES.items()}
