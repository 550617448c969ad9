"""A made-up log system, as an author outside the project would add it (docs/extending.md).

``NAME.notes`` has per note the length and the CRC-32 of its body (4 bytes each, big-endian), and
the body.
"""

from tallystick.systems.protocol import System

SYSTEM = System(
    name="example",
    title="Example notes",
    detector="tests.systems.example.read:detect",
    reader="tests.systems.example.read:NotesReading",
    codes="tests.systems.example.read:CODES",
    reasons="tests.systems.example.read:REASONS",
    splittable=False,
)
