"""The sentence that stands first under a log is true, whatever state the log is in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import tallystick
from tallystick.reading.results import headline
from tallystick.records import Answer, AtStake, Judgement, Severity, Verdict
from tests.fixtures import fixture_dir
from tests.indoubt.estates import EXAMPLES


def sentence(system: str, case: str) -> str:
    return sentence_of(fixture_dir(system) / case)


def sentence_of(path: Path) -> str:
    answer = tallystick.explain(path)
    (verdict,) = answer.logs
    return headline(verdict)


@pytest.mark.parametrize(
    ("system", "case"),
    [
        ("bitronix", "damaged-name-length-huge"),
        ("bitronix", "damaged-empty-both"),
        ("cloudtran", "both-headers-damaged"),
        ("h2", "truncated-2048"),
    ],
)
def test_a_system_that_would_not_start_is_said_not_to(system: str, case: str) -> None:
    assert sentence(system, case).startswith("A restart would fail. ")


def test_a_native_log_that_is_damaged_before_its_end_is_said_not_to_start(tmp_path: Path) -> None:
    with tallystick.Journal(tmp_path) as journal:
        for number in range(3):
            journal.append(b"row %d" % number)
    (segment,) = tmp_path.glob("0*.tally")
    assert "fail" not in sentence_of(tmp_path)
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"row 1", b"wor 1"))
    assert sentence_of(tmp_path).startswith("A restart would fail. ")


def test_nothing_is_promised_of_an_encrypted_log_without_its_key() -> None:
    said = sentence("derby", "encrypted-aes-external-key")
    assert "cannot be told" in said
    assert "nothing" not in said


def test_a_sound_log_loses_nothing() -> None:
    assert sentence("bitronix", "committed-2pc").endswith("and lose nothing silently.")


def test_a_loss_that_a_restart_does_not_add_to_is_not_passed_over() -> None:
    said = sentence("jboss", "g3-artemis-main/missing-first-file")
    assert said.endswith("and lose changes that cannot be counted.")


@pytest.mark.parametrize(
    ("stake", "said"),
    [
        (AtStake(49, 60), "and silently lose 49."),
        (AtStake(None, 11), "and silently lose 11 records."),
        (AtStake(), "and lose changes that cannot be counted."),
        (AtStake(0, 0), "and lose changes that cannot be counted."),
    ],
)
def test_what_is_lost_is_counted_in_transactions_and_never_in_findings(
    stake: AtStake, said: str
) -> None:
    strict = {"transactions": {"committed": 2}, "lost": [{"what": "a finding"}]}
    judgement = Judgement(Answer.LOSES, at_stake=stake)
    one = Verdict("example", "/log", "1", {}, strict, (), judgement)
    assert headline(one).endswith(said)


@pytest.mark.parametrize("answer", list(Answer))
def test_calm_words_stand_beside_the_answer_safe_alone(answer: Answer) -> None:
    strict = {"transactions": {"committed": 2}}
    said = headline(Verdict("example", "/log", "1", {}, strict, (), Judgement(answer)))
    assert ("nothing" in said) is (answer is Answer.SAFE)
    assert ("cannot be told" in said) is (answer is Answer.CANNOT_TELL)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", ["bitronix", "cloudtran", "derby", "h2", "jboss"])
def test_no_calm_word_stands_beside_damage_in_any_fixture(system: str) -> None:
    answer = tallystick.explain(fixture_dir(system))
    for verdict, findings in zip(answer.logs, answer.findings, strict=True):
        damaged = any(one.severity is Severity.DAMAGE for one in findings)
        said = headline(verdict)
        assert not (damaged and "nothing silently" in said), verdict.path


@pytest.mark.parametrize("system", ["bitronix", "derby", "h2", "jboss"])
def test_inspect_counts_the_records_that_dump_prints(system: str) -> None:
    folder = EXAMPLES / "mid-phase-two" / {"jboss": "artemis"}.get(system, system)
    (log,) = tallystick.inspect(folder).logs
    printed = Counter(record.outcome.value for record in tallystick.scan(folder))
    assert log.records == printed
