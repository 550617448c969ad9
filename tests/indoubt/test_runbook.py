"""A runbook has for each branch in doubt what to type; settling says it before it asks."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.indoubt.listing import InDoubt, InDoubtReport, list_in_doubt
from tallystick.indoubt.runbook import act_of, runbook
from tests.cli.conftest import Run
from tests.cli.conftest import run as run_fixture
from tests.indoubt.estates import EXAMPLES, damaged_decision
from tests.indoubt.test_indoubt import Site
from tests.kit import untouched

run = run_fixture


def test_the_estate_is_a_page_with_the_gravest_first(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES.parents[1])
    with untouched(EXAMPLES):
        answer = run("runbook", "examples/estate")
    text = answer.out
    assert answer.code == 1
    assert text.startswith("# Runbook: 6 transactions in doubt\n")
    first = text.index("## 1. 62616e6b2d3100000000004f0c2400000055")
    assert first < text.index("lost-commit") < text.index("## 2. ")
    assert "before its coordinator starts" in text[first : text.index("## 2. ")]
    gtrid, bqual = "62616E6B2D3100000000004F0C2400000055", "62616E6B2D3100000000004F0C2A00000057"
    assert f'\nCOMMIT TRANSACTION "XID_1114926712_{bqual}_{gtrid}";\n' in text
    packed = "YmFuay0xAAAAAABObkkAAABUYmFuay0xAAAAAABObkkAAABTnSW2Qg=="
    assert f'commitPreparedTransaction("{packed}")' in text
    assert "    session.rollback(one);\n" in text
    foreign = text[text.index("## 6. ") : text.index("## At the end")]
    assert "Ask the coordinator named by the owner" in foreign
    assert "```" not in foreign
    assert text.count("- [ ] done by") == text.count("```\n") // 2 == 9
    prose = [line for part in text.split("```")[::2] for line in part.splitlines()]
    assert not [line for line in prose if len(line) > 80 and "`" not in line and " " in line[:80]]


def test_its_json_has_the_statements(run: Run) -> None:
    answer = run("runbook", "--json", EXAMPLES / "mid-phase-two").json
    acts = answer["acts"]["62616e6b2d3100000000004e6e4900000053"]
    assert [act["branch"] for act in acts] == ["jms/ledger", "jdbc/branch-b"]
    assert acts[1]["typed"].startswith('COMMIT TRANSACTION "XID_1114926712_')


def test_what_is_not_proved_is_no_plain_line_to_type(run: Run, tmp_path: Path) -> None:
    text = run("runbook", damaged_decision(tmp_path / "estate")).out
    assert "perhaps rollback" in text
    assert "Roll back only if the application knows that it did not commit" in text
    assert "## CANNOT TELL: not all was seen" in text


def test_nothing_in_doubt_is_a_page_too(run: Run) -> None:
    answer = run("runbook", EXAMPLES / "heuristic-h2-rolled-back/artemis")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "# Runbook: 0 transactions in doubt")


@pytest.mark.parametrize(
    ("dialect", "typed"),
    [
        ("postgresql", "ROLLBACK PREPARED '1114926712_CgsMDQ==_/wA=';"),
        ("mysql", "XA ROLLBACK X'0a0b0c0d',X'ff00',1114926712;"),
        ("sqlite", ""),
    ],
)
def test_live_databases_have_statements_of_their_own(dialect: str, typed: str) -> None:
    branch = {
        "system": "live", "log": "live:pg", "resource": "pg", "bqual": b"\xff\x00",
        "state": "prepared", "due": "rollback",
    }  # fmt: skip
    gtrid = bytes.fromhex("0a0b0c0d")
    one = InDoubt(0x42746E78, gtrid, None, None, None, "rollback", None, (branch,), "because", None)
    resources: dict[str, Any] = {"pg": SimpleNamespace(dialect=dialect)}
    assert act_of(one, branch, resources, commit=False).typed == typed
    page = "\n".join(runbook(InDoubtReport([one]), [], resources))
    assert (typed or "What is typed there is not known") in page


@pytest.fixture
def stopped(tmp_path: Path) -> Any:
    site = Site(tmp_path, "before decision")
    site.close()
    return site


def test_settling_looks_before_it_asks_and_writes_nothing(
    run: Run, stopped: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    stores = [f"--resource={name}=page-store:{stopped.folder / name}" for name in "ab"]
    arguments = ["indoubt", "settle", stopped.coordinator, stopped.gtrid.hex()[:-4], *stores]
    for last, code in (("--dry-run", 0), ("", 130)):
        with untouched(stopped.folder):
            answer = run(*arguments, "--commit", *filter(None, [last]))
        assert answer.code == code
        assert answer.out.startswith(f"{stopped.gtrid.hex()}, format 1114926712, made by site-1, ")
        for shown in ("decision: none", "presumed abort", "  age: ", "prepared, due: rollback"):
            assert shown in answer.out
        assert "in the coordinator's log: the decision to commit" in answer.out
        assert answer.out.count(": commit of this branch") == 2
    with untouched(stopped.folder):
        assert run(*arguments[:3], "ffffffff", *stores, "--commit", "--yes").code == 2
    answer = run(*arguments, "--rollback", "--yes")
    assert (answer.code, answer.out) == (0, "a: rolled back\nb: rolled back\n")


def test_a_look_says_what_it_has_not_seen(run: Run, tmp_path: Path) -> None:
    site = Site(tmp_path, "after decision")
    site.close()
    arguments = ["indoubt", "settle", site.coordinator, site.gtrid.hex(), "--commit", "--dry-run"]
    answer = run(*arguments)
    assert "CANNOT TELL  Not all was seen" in answer.out
    assert "nothing, as no branch of it is seen prepared" in answer.out
    answer = run(*arguments, f"--resource=a=page-store:{tmp_path / 'a'}")
    assert answer.out.count(": commit of this branch") == 1
    assert "CANNOT TELL  Not all was seen" in answer.out
    assert "--resource b=URL" in answer.out


def test_what_would_be_refused_is_refused_before_it_is_asked(run: Run, tmp_path: Path) -> None:
    site = Site(tmp_path, "after decision")
    site.close()
    stores = [f"--resource={name}=page-store:{tmp_path / name}" for name in "ab"]
    answer = run("indoubt", "settle", site.coordinator, site.gtrid.hex(), *stores, "--rollback")
    assert (answer.code, answer.out) == (2, "")
    assert "was decided: commit" in answer.err


def test_the_line_for_a_store_of_ours_settles_it(run: Run, stopped: Site) -> None:
    (one,) = list_in_doubt([str(stopped.folder)]).transactions
    lines = [act_of(one, branch, {}, commit=False).typed for branch in one.branches]
    assert all(f"settle {stopped.coordinator} {stopped.gtrid.hex()} --rollback" in s for s in lines)
    for name, line in zip("ab", lines, strict=True):
        _, *arguments = line.replace("NAME=", f"{name}=").split()
        assert run(*arguments, "--yes").out == f"{name}: rolled back\n"
