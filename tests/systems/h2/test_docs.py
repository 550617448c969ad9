"""The example of the format page is real, and decodes to what the page says of it."""

from __future__ import annotations

import re
from pathlib import Path

from tallystick.storage.source import open_source
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.numbers import encode_var_int
from tallystick.systems.h2.read.scan import Scan
from tests.fixtures import fixture_dir
from tests.systems.h2.kit import expand, opened, page_file

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "formats" / "h2.md"
NAMES = ROOT / "docs" / "documents.md", ROOT / "docs" / "systems" / "h2.md"


def example() -> bytes:
    (block,) = re.findall(r"```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)
    columns = [line[:50] for line in block.splitlines()]
    return bytes.fromhex("".join(columns))


def test_example_is_in_the_real_file() -> None:
    with open_source(str(fixture_dir("h2") / "committed-512" / "db.h2.db.gz")) as source:
        page = bytes(source.data[13 * 512 : 14 * 512])
    assert page.startswith(example())
    assert layout.checksum_ok(page, 13)
    assert layout.decode_data_header(page) == (5, 1)


def test_example_decodes_to_what_the_page_says() -> None:
    file = opened(bytes(page_file(example()[layout.DATA_START :])))
    assert file.stream is not None
    undo, add, commit, _ = Scan(file.stream, file.zone).entries()
    assert (undo.type, undo.page, undo.size) == ("UNDO", 147, 21)
    assert undo.image == expand(undo.stored, 512)
    assert undo.image[0] == layout.DATA_LEAF | layout.LAST
    assert (add.session, add.table, add.key, len(add.row)) == (3, 16, 1, 14)
    assert [value.text for value in add.values if value] == ["1", "row1-hwmarn"]
    assert (commit.type, commit.session) == ("COMMIT", 3)
    assert encode_var_int(147) == bytes((0x93, 0x01))


def test_every_public_method_of_the_page_log_is_in_a_table_of_names() -> None:

    from tallystick.systems.h2.live.log import PageLog

    text = "".join(page.read_text() for page in NAMES)
    own = {"forget", "counters"}  # the original rolls back by compensating records
    public = {name for name in vars(PageLog) if not name.startswith("_")}
    assert {name for name in public - own if not re.search(rf"[`.]{name}\b", text)} == set()
