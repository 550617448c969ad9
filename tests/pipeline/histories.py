"""Random histories of changes, as rows of the table ``changes``."""

from __future__ import annotations

import random
from typing import Any

Row = dict[str, Any]


def history_row(version: int, kind: str, key: str, **given: Any) -> Row:
    """One row of `CHANGES`."""
    row = {"system": "h2", "log": "/l", "commit_sequence": version, "ordinal": 0, "kind": kind}
    row |= {"collection": "T", "key": key, "clock": "none", "file": "f", "offset": 0}
    return row | given


def random_history(seed: int, count: int) -> list[Row]:
    """Random changes; an update is one row, or a delete and an add."""
    choice, rows = random.Random(seed), []
    alive: set[tuple[str, str]] = set()
    for version in range(1, count + 1):
        place = choice.choice("TU"), str(choice.randrange(6))
        after, values = b"%d" % version, f'{{"V": {version}}}'
        given: Row = {"collection": place[0], "after": after, "values": values}
        roll = choice.random()
        if roll < 0.03:
            rows.append(history_row(version, "truncate", "", collection=place[0]))
            alive = {one for one in alive if one[0] != place[0]}
        elif place not in alive:
            rows.append(history_row(version, "add", place[1], **given))
            alive.add(place)
        elif roll < 0.3:
            rows.append(history_row(version, "delete", place[1], collection=place[0]))
            alive.discard(place)
        elif roll < 0.6:
            rows.append(history_row(version, "update", place[1], **given))
        else:
            rows.append(history_row(version, "delete", place[1], collection=place[0]))
            rows.append(history_row(version, "add", place[1], ordinal=1, **given))
    return rows
