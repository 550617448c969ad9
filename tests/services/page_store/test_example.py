"""The shop of the examples: killed in the middle of a sale, seen in doubt, settled at its start."""

from __future__ import annotations

import runpy
from pathlib import Path

from tallystick.indoubt.listing import list_in_doubt
from tallystick.reading.survey import survey

SHOP = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "shop.py"))


def test_a_sale_killed_half_way_is_in_doubt_and_settled_by_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    for _ in range(2):  # the second time over what the first has left
        SHOP["sell_and_die"](folder)
        (one,) = list_in_doubt([str(folder)]).transactions
        assert (one.owner, one.decision, one.resolution) == ("shop", "commit", "commit")
        states = {Path(branch["log"]).name: branch["state"] for branch in one.branches}
        assert states == {"log": "prepared", "orders": "committed"}
        answer = SHOP["recover"](folder)
        assert (answer.pears, answer.orders, answer.were_in_doubt) == (9, 1, 1)
        assert [resource for resource, _ in answer.report.committed] == ["stock"]
        assert not answer.report.left
        assert list_in_doubt([str(folder)]).transactions == []
        assert all(not log.verdict().strict["in_doubt"] for log in survey(folder).readings())
