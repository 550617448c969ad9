"""Gather the fragments of changelog.d into CHANGELOG.md, as the chapter of a version.

Usage: python scripts/changes.py VERSION [YYYY-MM-DD]; then the fragments are gone. A person writes
the summary above the lines. No fragment has to name its section, as those of towncrier do: the
words of a line decide, by the table below.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGED = "Changed: read before you upgrade"
OTHERS = "Everything else"
SECTIONS = {
    CHANGED: r"\A- \*\*Changed\*\*",
    "Command line and reports": (
        r"`(tallystick|triage|explain|doctor|indoubt|dump|verify|scrub|inspect|report)\b|report|`make"
    ),
    "Pipeline: Arrow, Spark, tables": (
        r"[Pp]ipeline|Spark|[Ss]tream|Parquet|Delta|Iceberg|data source|Arrow|executor"
    ),
    "Derby": r"Derby",
    "H2": r"\bH2\b",
    "JBoss Messaging, HornetQ, Artemis, Narayana": r"JBoss|HornetQ|Artemis|Narayana|jboss",
    "Bitronix": r"Bitronix",
    "Write-behind and CloudTran": r"CloudTran|[Ww]rite.?[Bb]ehind|block log",
    "Page store": r"[Pp]age ?[Ss]tore",
    "Testing kit and simulator": r"[Kk]it\b|simulat|testing\.|check_recovery",
    "Transactions over several databases": (
        r"[Tt]ransaction|manager|coordinator|branch|[Oo]utbox|[Rr]elay|PostgreSQL|MariaDB|MySQL|"
        r"SQLite|Oracle|SQLAlchemy|Django|psycopg|[Ii]dempotency|resource"
    ),
    "Journal and native log": (
        r"[Jj]ournal|[Nn]ative|segment|group|compiled core|[Cc]heckpoint|\blog\b"
    ),
    OTHERS: "",
}
"""Sections in their order, each with what a line has that belongs there; the first one takes it."""


def entries(text: str) -> Iterator[str]:
    """Yield the entries of a fragment, each with the lines that go on with it."""
    yield from (
        one.rstrip() for one in re.split(r"^(?=- )", text, flags=re.MULTILINE) if one.strip()
    )


def section_of(entry: str) -> str:
    """Return the section of an entry."""
    return next(title for title, words in SECTIONS.items() if re.search(words, entry, re.DOTALL))


def chapter(heading: str, fragments: Iterable[str]) -> str:
    """Return the chapter of a version: its sections, each with its entries."""
    found: dict[str, list[str]] = {title: [] for title in SECTIONS}
    for text in fragments:
        for entry in entries(text):
            found[section_of(entry)].append(re.sub(r"\A- \*\*(Changed|Fixed)\*\*: ", "- ", entry))
    parts = [f"### {title}\n\n" + "\n".join(lines) for title, lines in found.items() if lines]
    return "\n\n".join([f"## {heading}", *parts]) + "\n"


def gather(root: Path, version: str, date: str) -> None:
    """Put the chapter of a version below *Unreleased*, and remove the fragments."""
    paths = sorted((root / "changelog.d").glob("*.md"))
    log = root / "CHANGELOG.md"
    text = chapter(f"{version} ({date})", (path.read_text("utf-8") for path in paths))
    before, unreleased, after = log.read_text("utf-8").partition("## Unreleased\n")
    log.write_text(f"{before}{unreleased}\n{text}{after}", "utf-8")
    for path in paths:
        path.unlink()


if __name__ == "__main__":
    gather(ROOT, sys.argv[1], (sys.argv[2:] or [datetime.date.today().isoformat()])[0])
