"""docs/documents.md: every member of the five documents is there, each name and test exists."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "documents.md"

MEMBERS = {
    "Bitronix": """constructor: restored; constructor: status, gtrid, unique names; status;
        record length; header length; time; sequence number; crc32; gtrid; unique names;
        end record; isCrc32Correct; calculateCrc32; toString; optional checksum;
        order by time and sequence""",
    "JBoss": """header id of 4 bytes; renewed at each reuse; the counter is the maximum;
        basic record; type 11 to 19; health; a record may lie anywhere; a calculated hash;
        commit (18); prepare (17); a missing file means reclaimed""",
    "H2": """readRow(rowFactory, reader, data); addUndo; getUndo;
        logAddOrRemoveRow(session, tableId, row, add); logTruncate; prepareCommit; commit(;
        checkpoint(); flush; free; close;
        openForReading(newLogKey, newFirstTrunkPage, newFirstDataPage);
        openForWriting(newFirstTrunkPage, atEnd); recover(stage); recoverEnd;
        removeUntil(firstUncommittedSection); getInDoubtTransactions;
        setInDoubtTransactionState(sessionId, pageId, commit); getLogSectionId;
        getLogFirstSectionId; getLogPos; getSize; getMinPageId; NOOP 0; UNDO 1; COMMIT 2;
        PREPARE_COMMIT 3; ROLLBACK 4; ADD 5; REMOVE 6; TRUNCATE 7; CHECKPOINT 8; FREE_LOG 9""",
    "CloudTran": """persisting entry; persisted entry; redundant files; ILogDisposer.dispose;
        default disposer; ct.logger.disposer; ct.logger.threadCount; ct.logger.fileSizeMB;
        ct.logger.maxWriteSize; properties file; block: header; H1; H2; H3; H4; H5;
        search by signature""",
    "Derby": """constructor; writeLogRecord(length, instant, data, data_offset, optional_data,
        optional_data_offset, optional_data_length); as if; writeInt; writeLong; write(int);
        write(byte[], off, len); writeEndMarker(marker); switchLogBuffer; flushDirtyBuffers;
        flushLogAccessFile; syncLogAccessFile;
        reserveSpaceForChecksum(length, logFileNumber, currentPosition); corrupt; close;
        free → dirty → free; directWrite; three parts; checksum before the data; encryption;
        mon_numWritesToLog; mon_numBytesToLog; LOG_RECORD_FIXED_OVERHEAD_SIZE;
        LOG_NUMBER_LOG_BUFFERS""",
}


def sections() -> dict[str, str]:
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {re.split(r"[:\n]", part)[0]: part for part in parts}


def rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def named() -> list[str]:
    found: list[str] = []
    for document in MEMBERS:
        base = re.search(r"^Names begin with `(.+)`$", sections()[document], re.MULTILINE)
        assert base is not None, document
        for row in rows(sections()[document]):
            names = quoted(row[1])
            assert names, row
            full = (
                name if name.startswith("tallystick.") else f"{base[1]}.{name}" for name in names
            )
            found += full
    return sorted(set(found))


def all_tests() -> list[str]:
    found: list[str] = []
    for section in sections().values():
        for row in rows(section):
            (test,) = quoted(row[-1])
            found.append(test)
    return sorted(set(found))


@pytest.mark.parametrize("document", MEMBERS)
def test_every_member_has_a_row(document: str) -> None:
    listed = " ".join(row[0].replace("`", "") for row in rows(sections()[document]))
    wanted = [" ".join(one.split()) for one in MEMBERS[document].split(";")]
    assert [one for one in wanted if one not in listed] == []


@pytest.mark.parametrize("name", named())
def test_every_name_can_be_looked_up(name: str) -> None:
    assert looked_up(name)


@pytest.mark.parametrize("test", all_tests())
def test_every_named_test_exists(test: str) -> None:
    path, _, function = test.partition("::")
    assert function.startswith("test_")
    assert function in functions(path)


def test_a_name_or_a_test_that_is_missing_is_noticed() -> None:
    assert not looked_up("tallystick.systems.h2.live.log.PageLog.no_such_member")
    assert not looked_up("tallystick.systems.h2.no_such_module")
    assert "test_no_such_test" not in functions("test_documents.py")


def test_the_page_of_places_names_files_and_tests_that_exist() -> None:
    named = quoted((ROOT / "docs/where.md").read_text())
    places = [
        one for one in named if one.startswith(("src/", "tests/", "scripts/", "docs/", "fast/"))
    ]
    assert len(places) > 40
    assert [one for one in places if "NAME" not in one and not (ROOT / one).exists()] == []


def test_each_thing_in_six_systems_is_where_the_table_says() -> None:
    page = (ROOT / "docs/where.md").read_text()
    table = page.partition("## One thing in six systems")[2].partition("\n## ")[0]
    head, _, *lines = [line.split("|")[1:-1] for line in table.splitlines() if line[:1] == "|"]
    found = 0
    for thing, *cells in lines:
        for system, cell in zip(head[1:], cells, strict=True):
            module = next((one for one in quoted(thing) if "/" in one), "")
            for one in quoted(cell):
                if "/" in one:
                    module = one
                    continue
                path = ROOT / "src/tallystick/systems" / system.strip() / f"{module}.py"
                defined = re.search(rf"^ *(class|def) {one}\b", path.read_text(), re.MULTILINE)
                assert defined, f"{system}, {thing}: no {one} in {module}"
                found += 1
    assert found > 60


def test_the_architecture_is_a_map_that_is_read_in_ten_minutes() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    assert len(page.split()) < 1_700
    assert len(re.findall(r"^\d+\. \*\*", page, re.MULTILINE)) <= 20


def test_lines_of_prose_are_read_without_scrolling() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    for page in pages:
        blocks = re.split(r"^\s*```.*$", page.read_text(), flags=re.MULTILINE)
        lines = [line for block in blocks[::2] for line in block.splitlines()]
        long = [line for line in lines if len(line) > 150 and not line.lstrip().startswith("|")]
        assert long == [], page


def looked_up(name: str) -> bool:
    """True for a module, what it holds, a member of a class, or what its instances are given."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        return has(found, parts[count:])
    return False


def has(found: Any, path: list[str]) -> bool:
    for index, part in enumerate(path):
        if not hasattr(found, part):
            last = index == len(path) - 1
            return last and isinstance(found, type) and is_given(found, part)
        found = getattr(found, part)
    return True


def is_given(owner: type, name: str) -> bool:
    if name in owner.__annotations__:
        return True
    return re.search(rf"^ +self\.{name}\b.*=", inspect.getsource(owner), re.MULTILINE) is not None


@cache
def functions(path: str) -> frozenset[str]:
    file = ROOT / "tests" / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
