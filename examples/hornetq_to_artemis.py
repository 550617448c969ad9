"""A HornetQ journal made into one that today's Artemis reads; the old one stays as it is.

``python examples/hornetq_to_artemis.py HORNETQ ARTEMIS``
"""

from __future__ import annotations

import sys

from tallystick import Journal, explain
from tallystick.convert import convert


def move(source: str, target: str) -> None:
    """Convert a journal whose broker is stopped, and look at what the new one holds."""
    for verdict in explain(source).logs:
        print(f"{verdict.format}: {verdict.judgement.answer}")
    report = convert(source, target, "jboss", service=True)  # which compares the two at its end
    print("carried:", dict(report.carried), "over:", dict(report.over))
    with Journal(target, system="jboss") as log:
        print(len(list(log.live_records())), "records live")
        for branch in log.prepared():  # the coordinator decides, not we
            print("in doubt:", branch.transaction)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    move(*sys.argv[1:])
