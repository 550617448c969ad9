"""The circular journal of JBoss Messaging (2008), HornetQ, Artemis and Narayana.

Narayana's other store, a file for each state, is read, too.

In: folders with ``PREFIX-N.EXT`` files of any generation, or calls of an
application. Out: records, transactions and both verdicts, or such files.
"""

from __future__ import annotations

from tallystick.records import Clock
from tallystick.roles import Role
from tallystick.systems.protocol import ResourceTraits, Statements, System

SYSTEM = System(
    name="jboss",
    title="JBoss Messaging, HornetQ and Artemis journal",
    detector="tallystick.systems.jboss.read.detect:detect",
    reader="tallystick.systems.jboss.reader:reading_of",
    codes="tallystick.systems.jboss.codes:CODES",
    numbered=True,
    reasons="tallystick.systems.jboss.codes:REASONS",
    errors="tallystick.systems.jboss.codes:ERRORS",
    roles={
        Role.RECORD_JOURNAL: "tallystick.systems.jboss.live.role:JBossRecordJournal",
    },
    reopener="tallystick.systems.jboss.live.role:reopen",
    clocks=frozenset({Clock.NONE}),
    companions=frozenset({"outcomes"}),
    neighbours=frozenset(
        {
            "journal.lock",
            "large-messages",
            "largemessages",
            "paging",
            "server.activation.sequence",
            "server.lock",
            "serverlock.*",
        }
    ),
    folders=frozenset(
        {
            *("bindings", "journal", "messagingbindings", "messagingjournal"),
            *("StateManager", "BasicAction", "TwoPhaseCoordinator", "AtomicAction"),
            *("SubordinateAtomicAction", "JCA", "Expired"),
            *(f"#{number}#" for number in range(255)),  # of a store by hash
        }
    ),
    change_feed=True,
    settings={
        "user_version": "the user version that the application expects in file headers",
        "file_size": "the configured size of a file in bytes",
        "generation": "the generation of the code that wrote the journal",
    },
    setting_values={
        "user_version": ("-?[0-9]{1,10}", "a number"),
        "file_size": ("[0-9]{1,12}", "a number of bytes"),
        "generation": (
            "g1a|g1b|g1c|g1d|g2|g3-hornetq|g3-artemis|hash",
            "g1a, g1b, g1c, g1d, g2, g3-hornetq, g3-artemis or hash",
        ),
    },
    resource=ResourceTraits(
        messages=True,
        statements=Statements(
            where="An operation of the broker, in its web console or by JMX "
            "(org.apache.activemq.artemis:broker=..., org.hornetq:module=Core,type=Server)",
            listing="listPreparedTransactions()",
            settling='{verb}PreparedTransaction("{packed}")',
        ),
    ),
    put_aside="tallystick.systems.jboss.read.detect:put_aside",
)
