"""The answer about a database is the graver of its log's and of what follows from its parts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tallystick.errors import LogUnreadableError
from tallystick.records import Answer, AtStake, Judgement, Part, Surroundings, Verdict
from tallystick.systems.answers import DECIDES_FIRST
from tallystick.systems.surroundings import judged_whole, lying_beside, open_part


def verdict(answer: Answer) -> Verdict:
    return Verdict("one", "/log", "1", {}, {}, judgement=Judgement(answer, "own", "The log."))


def part(answer: Answer) -> Part:
    return Part("name", "/name", "layout", why="The part.", answer=answer, at_stake=AtStake(3))


@pytest.mark.parametrize(("own", "beside"), list(itertools.product(Answer, Answer)))
def test_the_graver_of_log_and_part_is_the_answer(own: Answer, beside: Answer) -> None:
    found = judged_whole(verdict(own), Surroundings("/", "database", (part(beside),)))
    gravest = min(own, beside, key=DECIDES_FIRST.index)
    assert found.judgement.answer is gravest
    assert found.log_judgement.answer is own
    of_part = gravest is not own
    assert found.judgement.text == ("The part." if of_part else "The log.")
    known = of_part and own in (Answer.SAFE, Answer.REFUSES)
    assert found.judgement.at_stake.transactions == (3 if known else None)
    tells = not (of_part and gravest is Answer.CANNOT_TELL)
    assert found.judgement.decided_by == ("" if tells else "/name")


def test_what_the_parts_decide_is_no_answer_any_more() -> None:
    around = Surroundings("/", "database", (part(Answer.SAFE),))
    found = judged_whole(verdict(Answer.CANNOT_TELL), around, Judgement(Answer.SAFE, "whole"))
    assert found.judgement.answer is Answer.SAFE
    assert found.to_dict()["log_answer"] == "cannot-tell"


def test_a_part_that_is_missing_is_none_and_one_that_cannot_be_read_an_error(
    tmp_path: Path,
) -> None:
    assert open_part(f"{tmp_path}/missing") is None
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(LogUnreadableError):
        open_part(f"{tmp_path}/loop")


def test_what_lies_beside_a_missing_part_under_its_name_is_named(tmp_path: Path) -> None:
    missing = Part(
        "seg0/c490.dat", f"{tmp_path}/c490.dat", "the log", there=False, why="It is missing.",
        answer=Answer.REFUSES,
    )  # fmt: skip

    def why() -> str:
        around = Surroundings(str(tmp_path), "database", (missing,))
        found = judged_whole(verdict(Answer.SAFE), around)
        assert found.surroundings is not None
        (one,) = found.surroundings.parts
        assert found.judgement.text == one.why
        return one.why

    (tmp_path / "c4a0.dat").touch()
    assert why() == "It is missing."
    (tmp_path / "c490.dat.bak").touch()
    assert why() == "It is missing. c490.dat.bak lies beside it, and is not looked into."
    (tmp_path / "Copy of C490.DAT").touch()
    assert "Copy of C490.DAT, c490.dat.bak lie beside it, and are not looked into." in why()


def test_a_folder_that_is_missing_has_no_file_of_that_ending_for_a_copy(tmp_path: Path) -> None:
    for name in ("derby.log", "catalog", "logs"):
        (tmp_path / name).touch()
    assert not lying_beside(f"{tmp_path}/log")
    (tmp_path / "log.old").mkdir()
    (tmp_path / "copy of log").mkdir()
    assert lying_beside(f"{tmp_path}/log").startswith("copy of log, log.old lie beside it")
