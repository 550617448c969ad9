"""Databases and a broker as a kill leaves them, for ``verdicts.py --beside``.

``python benchmarks/databases.py FOLDER`` makes below a new folder: ``derby`` by the original
(10.14.2.0), whose log of 87 MB changes 11,000 pages that no checkpoint wrote; ``jboss``, a journal
of 64 MB of messages that wait, with bindings beside it; and ``h2``, by our own page store.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import h2_verdict  # noqa: E402 - the path is set above
import jboss_scan  # noqa: E402
from tests.interop.derby.real import derby  # noqa: E402
from tests.systems.jboss.applications.test_tables import write_bindings  # noqa: E402

ROWS = 1 << 15
INTERVAL = 1 << 27
"""Bytes of log up to which Derby makes no checkpoint, and no other file."""


def make_derby(database: Path) -> None:
    """Fill a table by halves, then make most of its rows longer."""
    settings = (f"-Dderby.storage.{one}Interval={INTERVAL}" for one in ("checkpoint", "logSwitch"))
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join(settings)
    steps = [
        "create table t (id int primary key, c varchar(1200))",
        f"insert into t values (0, '{'x' * 1100}')",
        *(
            f"insert into t select id + {1 << bit}, c from t"
            for bit in range(ROWS.bit_length() - 1)
        ),
        f"update t set c = c || 'y' where id < {ROWS * 5 // 8}",
    ]
    derby(database, *(f"sql:{one}" for one in steps), "halt")


def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="is made")
    folder: Path = parser.parse_args().folder
    folder.mkdir()
    make_derby(folder / "derby")
    jboss_scan.generate_messages(folder / "jboss", 64)
    write_bindings(folder / "jboss/bindings")
    (folder / "h2").mkdir()
    h2_verdict.make(folder / "h2", 100_000)
    shutil.rmtree(folder / "h2/made")


if __name__ == "__main__":
    main()
