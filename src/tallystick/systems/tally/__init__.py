"""The native log: one append of a group is one write, one checksum and one columnar batch.

In: records from threads and tasks, or the files of a log. Out: groups on disk, durable when
acknowledged; records, batches and verdicts. Specification: docs/formats/tally.md.
"""

from __future__ import annotations

from tallystick.records import Clock
from tallystick.roles import Role
from tallystick.systems.protocol import ResourceTraits, Statements, System

_ROLES = "tallystick.systems.tally.live.roles"

SYSTEM = System(
    name="tally",
    title="Tallystick's own log",
    detector="tallystick.systems.tally.read.detect:detect",
    reader="tallystick.systems.tally.reader:TallyReading",
    codes="tallystick.systems.tally.codes:CODES",
    mender="tallystick.systems.tally.live.mend:patches",
    numbered=True,
    reasons="tallystick.systems.tally.codes:REASONS",
    roles={
        Role.JOURNAL: f"{_ROLES}.journal:open_journal",
        Role.DECISION_LOG: f"{_ROLES}.decision_log:TallyDecisionLog",
        Role.RECORD_JOURNAL: f"{_ROLES}.record_journal:TallyRecordJournal",
        Role.UNDO_REDO_LOG: f"{_ROLES}.undo_redo_log:TallyUndoRedoLog",
        Role.PERSIST_LOG: f"{_ROLES}.persist_log:TallyPersistLog",
    },
    role_options={
        role: frozenset({"owner"})
        for role in (Role.DECISION_LOG, Role.UNDO_REDO_LOG, Role.PERSIST_LOG)
    },
    shared={Role.DECISION_LOG: f"{_ROLES}.decision_log:TallySharedDecisionLog"},
    reopener=f"{_ROLES}.reopen:reopen",
    role_finder="tallystick.systems.tally.read.claim:role_in",
    name_finder="tallystick.systems.tally.read.claim:names_in",
    clocks=frozenset({Clock.WALL_US}),
    change_feed=True,
    commits_by_lsn=True,
    secrets=frozenset({"encryption_key"}),
    companions=frozenset(
        [
            "backup",
            "closed",
            "closed.old",
            "disposal-refused",
            "fresh",
            "identities.json",
            "identity",
            "lock",
            "lost-before",
            "node",
            "outcomes",
            "pages",
            "recovered",
            "resources.json",
            "traces",
            "traces.old",
            "shared",
        ]
    ),
    persist_entry="tallystick.systems.tally.read.records:stored_entry",
    resource=ResourceTraits(
        statements=Statements(
            where="In a shell, with the directory of the coordinator, while both are stopped",
            settling="tallystick indoubt settle {coordinator} {gtrid} --{verb} "
            "--resource {resource}={store}",
        ),
    ),
)
