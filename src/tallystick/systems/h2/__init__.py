"""H2's page store log: undo images once per section, redo of rows, transactions in doubt.

In: ``*.h2.db`` files of H2 1.2 to 1.4.200 (engine "PageStore"). Out: a reading per file with both
verdicts, `live.log.PageLog`, and in `database` the tables of a page store in such a file.
"""

from __future__ import annotations

from tallystick.records import Clock
from tallystick.roles import Role
from tallystick.systems.protocol import ResourceTraits, Statements, System

SYSTEM = System(
    name="h2",
    title="H2 page store",
    detector="tallystick.systems.h2.read.detect:detect",
    reader="tallystick.systems.h2.reader:H2Reading",
    codes="tallystick.systems.h2.codes:CODES",
    mender="tallystick.systems.h2.live.mend:patches",
    reasons="tallystick.systems.h2.codes:REASONS",
    errors="tallystick.systems.h2.codes:ERRORS",
    roles={
        Role.UNDO_REDO_LOG: "tallystick.systems.h2.live.role:H2UndoRedoLog",
        Role.PAGED_LOG: "tallystick.systems.h2.database.paged_log:H2PagedLog",
    },
    role_options={Role.UNDO_REDO_LOG: frozenset({"page_size"})},
    clocks=frozenset({Clock.NONE}),
    # The engine frees the pages of its log at each checkpoint and reuses them at once: records
    # come and go between two polls, and new ones may come before old ones in the file.
    followable=False,
    splittable=False,
    secrets=frozenset({"boot_password"}),
    settings={
        "h2.calendar": "julian, if the writer of dates used the Julian calendar before 1582",
    },
    setting_values={"h2.calendar": ("julian", "julian")},
    named_without=(".h2.db", ".mv.db"),
    url_reader="tallystick.systems.h2.read.detect:path_in",
    url_password="tallystick.systems.h2.read.detect:password_in",
    neighbours=frozenset(
        {
            "*.lck",
            "*.lobs.db",
            "*.lock.db",
            "*.mv.db",
            "*.temp.db",
            "*.trace.db",
            "*.trace.db.old",
        }
    ),
    other_file="tallystick.systems.h2.read.detect:other_file",
    sql="tallystick.systems.h2.format.values.literals:DIALECT",
    log_file="store.h2.db",
    resource=ResourceTraits(
        nameless_end="ended_by_hand",
        statements=Statements(
            where="In SQL, as the only session of this database; it takes effect when the database "
            "is closed and opened again",
            listing="SELECT * FROM INFORMATION_SCHEMA.IN_DOUBT;",
            settling='{VERB} TRANSACTION "{name}";',
        ),
    ),
)
