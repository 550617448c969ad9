"""The guide's lines over three logs: ``python -m tests.pipeline.walkthrough FORM HOME JARS``.

They run as they stand in docs/guide/lakehouse.md, but for the folder, and for the jars, which are
here already. Then the logs go on, and they run again. Prints the number of rows of the Delta table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tallystick.pipeline.planning import find
from tallystick.pipeline.session import start
from tallystick.systems.jboss.live.log import CircularJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import system
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import TallyRecordJournal
from tests.pipeline.derby_steps import DerbySteps, write_steps
from tests.pipeline.lakehouse import settings

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "lakehouse.md"
PACKAGES = '"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0"'


def lines(home: Path, jars: str) -> str:
    """The first block of the guide, with the folder and the jars that are here."""
    block = GUIDE.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    assert PACKAGES in block
    assert len(block.strip().splitlines()) <= 25
    return block.replace(PACKAGES, f'"spark.jars": "{jars}"').replace("/data/", f"{home}/")


def write(logs: Path, first: int) -> None:
    """Thirty more keys in every log, and some that change or go."""
    with TallyLog(str(logs / "native")) as log:
        journal = TallyRecordJournal(log)
        for key in range(first, first + 30):
            journal.add(key, b"%d" % key).wait()
        journal.update(first, b"updated").wait()
        journal.delete(first + 1).wait()
    with CircularJournal(str(logs / "artemis"), JournalSettings(file_size=1 << 16)) as journal_log:
        for key in range(first, first + 30):
            journal_log.append_add_record_transactional(first, key, 1, b"%d" % key)
        journal_log.append_commit_record(first).wait()
        journal_log.append_delete_record(first + 2).wait()
    steps = DerbySteps(logs / "derby")
    write_steps(steps, first, 40)
    for number in [*steps.open]:
        steps.log.commit(number)
    steps.close()


def newest(logs: Path) -> dict[tuple[str, str, str], bytes]:
    """The rows that the logs leave, by log, collection and key."""
    found: dict[tuple[str, str, str], bytes] = {}
    for source in find([str(logs)]).logs:
        for one in system(source.system).read(source, ReadOptions()).changes():
            place = source.path, one.collection, one.key
            if one.after is None:
                found.pop(place, None)
            else:
                found[place] = one.after
    return found


def main(_form: str, home: Path, jars: str) -> None:
    """Run the guide's lines twice, and check the table each time."""
    logs = home / "logs"
    spark: Any = None
    for first in (1, 101):
        write(logs, first)
        if spark is None:  # a session as small as the machine needs
            spark = start("local[2]", settings("delta", home, jars))
        exec(compile(lines(home, jars), str(GUIDE), "exec"), {})
        rows = spark.sql(
            f"SELECT log, collection, key, after FROM delta.`{home}/lake/rows`"
        ).collect()
        table = {(row["log"], row["collection"], row["key"]): bytes(row["after"]) for row in rows}
        assert table == newest(logs), sorted(table.items() ^ newest(logs).items())[:5]
    print(len(table))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
