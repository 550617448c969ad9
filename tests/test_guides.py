"""Every Python example of the guides runs alone, in an empty folder; links lead somewhere."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tallystick import Journal
from tests.servers import Server

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHELVES = ("tutorials", "how-to", "reference", "explanation")
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")
GUIDES = [
    "README.md",
    "docs/extending.md",
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/guide/*.md"))),
]
# What a reader tries first, and then once more in the same folder.
TRIED_TWICE = ("README.md", *(f"docs/guide/{one}.md" for one in ("log-as-tables", "own-store")))
# These need Spark, servers or modules of their own, or go on from block to block, and are run by
# tests beside what they are about.
ELSEWHERE = {
    f"docs/guide/{one}.md"
    for one in [
        *("lakehouse", "moving", "pipeline", "simulate", "testing"),
        *("two-databases", "typed-tables"),
    ]
}


def _examples() -> list[tuple[str, int]]:
    """Return guide and line of every example."""
    found = []
    for name in GUIDES:
        if name not in ELSEWHERE:
            text = (ROOT / name).read_text("utf-8")
            found += [(name, text.count("\n", 0, one.start(1))) for one in _BLOCK.finditer(text)]
    return found


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("name", "line"), _examples())
def test_every_example_runs_alone_as_it_stands(name: str, line: int, tmp_path: Path) -> None:
    rest = (ROOT / name).read_text("utf-8").split("\n", line)[line]
    file = tmp_path / "example.py"
    # So that a traceback names the line in the guide.
    file.write_text("\n" * line + rest.partition("\n```")[0])
    folder = tmp_path / "folder"
    folder.mkdir()
    if name == "docs/guide/cli.md":  # it reads the logs that there are
        with Journal(folder / "logs") as journal:
            journal.add(1, b"one")
    for _ in range(2 if name in TRIED_TWICE else 1):
        ran = subprocess.run(
            [sys.executable, "-W", "error", str(file)],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr


def test_the_store_of_the_guide_is_the_example() -> None:
    (block,) = _BLOCK.findall((ROOT / "docs/guide/own-store.md").read_text("utf-8"))
    assert block == (ROOT / "examples/key_value_store.py").read_text("utf-8")


@pytest.mark.postgres
@pytest.mark.mariadb
def test_two_databases_are_one_commit_as_the_guide_says(
    tmp_path: Path, postgres_server: Server, mariadb_server: Server
) -> None:
    page = (ROOT / "docs/guide/two-databases.md").read_text("utf-8")
    (tables,) = re.findall(r"^```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    transfer, killed = _BLOCK.findall(page)
    urls = {"pg": postgres_server.url, "maria": mariadb_server.url}
    to_maria = pymysql.connect(
        host="127.0.0.1", port=mariadb_server.port, user="root",
        database=mariadb_server.database, autocommit=True,
    )  # fmt: skip
    with psycopg.connect(postgres_server.url, autocommit=True) as to_pg, to_maria:
        looks: list[Any] = [to_pg.cursor(), to_maria.cursor()]
        for one, statement in itertools.product(looks, tables.split(";")[:-1]):
            one.execute(statement)
        balances, said = [], []
        for program, status in ((transfer, 0), (killed, -signal.SIGKILL), (transfer, 0)):
            for line in ("PG = ", "MARIA = "):
                url = urls[line.split()[0].lower()]
                program = re.sub(f"^{line}.*$", f"{line}{url!r}", program, flags=re.MULTILINE)
            ran = subprocess.run(
                [sys.executable, "-W", "error", "-c", program],
                cwd=tmp_path, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert ran.returncode == status, ran.stderr
            said.append(ran.stdout)
            for one in looks:
                one.execute("SELECT balance FROM accounts")
            balances.append([int(one.fetchone()[0]) for one in looks])
    assert balances == [[90, 110], [90, 110], [75, 125]]
    assert said == ["nothing was changed: the account is not covered\n", "", said[0]]


@pytest.mark.parametrize(("page", "count"), [("index.md", 2), ("guide/investigating.md", 11)])
def test_a_page_shows_what_the_commands_print(tmp_path: Path, page: str, count: int) -> None:
    # A copy: some commands have a log to themselves.
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "logs").symlink_to(tmp_path / "examples/estate")
    text = (ROOT / "docs" / page).read_text("utf-8")
    pictures = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    commands = [
        one
        for picture in pictures
        for one in re.findall(r"^\$ tallystick (.*)\n((?:(?!\$).*\n)+)", picture, re.MULTILINE)
    ]
    assert len(commands) == count
    for command, shown in commands:
        ran = subprocess.run(
            [sys.executable, "-m", "tallystick", *shlex.split(command)],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = ran.stdout + ran.stderr
        assert (shown + "\0").removesuffix("...\n\0").removesuffix("\0") in said


def test_every_page_of_the_docs_stands_on_a_shelf() -> None:
    shelves = [(ROOT / "docs" / f"{one}.md").read_text("utf-8") for one in _SHELVES]
    listed = set(re.findall(r"^[\w/-]+$", "\n".join(shelves), re.MULTILINE))
    pages = {str(path.relative_to(ROOT / "docs"))[:-3] for path in ROOT.glob("docs/**/*.md")}
    assert pages - {"index", *_SHELVES} == listed


def test_every_link_of_the_docs_leads_to_a_file_and_its_heading() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    wrong = []
    for page in pages:
        for target, heading in _LINK.findall(page.read_text("utf-8")):
            file = page.parent / target if target else page
            if not file.exists() or (heading and heading not in _headings(file)):
                wrong.append(f"{page.relative_to(ROOT)}: {target}#{heading}")
    assert not wrong


def _headings(page: Path) -> set[str]:
    """Return the names of a page's headings, as links spell them."""
    found = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in found}


def test_a_fragment_of_the_change_log_says_changed_in_one_way() -> None:
    lines = [
        f"{path.name}: {line}"
        for path in sorted((ROOT / "changelog.d").glob("*.md"))
        for line in path.read_text("utf-8").splitlines()
        if "Changed" in line.removeprefix("- **Changed**: ")
    ]
    assert not lines
