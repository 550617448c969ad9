"""Conversion between systems of one role: everything that matters, there and back."""

from __future__ import annotations

import fcntl
import gzip
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tallystick import Journal, PageStore
from tallystick.cli.act.convert import command
from tallystick.convert.command import convert
from tallystick.disposal.disposers import CompressDisposer, MoveDisposer
from tallystick.disposal.worker import dispose_of
from tallystick.errors import (
    CorruptLogError,
    LogFullError,
    LogLockedError,
    LogWriteError,
    NotALogError,
    TallystickError,
    UnsupportedFormatError,
)
from tallystick.reading.survey import survey
from tallystick.records import Kind, Xid
from tallystick.roles import DecisionOutcome, JournalRecord, Operation, OperationCode
from tallystick.storage.local import UNFINISHED
from tallystick.systems.bitronix.format.layout import HEADER_LENGTH
from tallystick.systems.protocol import ReadOptions
from tallystick.systems.registry import open_decision_log, open_persist_log, open_record_journal
from tallystick.systems.tally.live.roles.journal import TallyJournal
from tallystick.systems.tally.live.settings import Settings
from tallystick.testing import Reporter, run_and_kill
from tests.fixtures import fixture_dir
from tests.kit import untouched
from tests.systems.tally.live.test_retention import filled

JBOSS = fixture_dir("jboss")
SEQUENCES = [["tally"], ["tally", "{own}"], ["{own}"], ["{own}", "tally", "{own}"]]


def through(path: Path, start: Path, own: str, route: list[str]) -> Path:
    """The end of a chain of conversions, each of which leaves its source alone."""
    for index, system in enumerate(route):
        target = path / f"step{index}"
        with untouched(start):
            convert(start, target, system.format(own=own))
        start = target
    return start


@pytest.mark.parametrize("route", SEQUENCES)
def test_decisions_survive_any_route(tmp_path: Path, route: list[str]) -> None:
    log = open_decision_log(tmp_path / "start", "bitronix")
    gtrids = [b"node-1" + bytes(8) + bytes([0, 0, 0, n]) for n in range(5)]
    log.finish(gtrids[4], ["a"], DecisionOutcome.HEURISTIC)  # of an earlier life of its id
    for gtrid in gtrids:
        log.decide(gtrid, ["a", "b"]).wait()
    log.finish(gtrids[0], ["a", "b"], DecisionOutcome.COMMITTED)
    log.finish(gtrids[1], ["a"], DecisionOutcome.COMMITTED)
    log.finish(gtrids[2], ["a", "b"], DecisionOutcome.HEURISTIC)
    log.close()
    end = through(tmp_path, tmp_path / "start", "bitronix", route)
    again = open_decision_log(end, route[-1].format(own="bitronix"))
    assert {g: set(d.resources) for g, d in again.open_decisions().items()} == {
        gtrids[1]: {"b"},
        gtrids[3]: {"a", "b"},
        gtrids[4]: {"a", "b"},
    }
    outcomes = {gtrids[2]: frozenset(("a", "b")), gtrids[4]: frozenset(("a",))}
    assert dict(again.heuristics()) == outcomes
    again.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("route", SEQUENCES)
def test_live_records_and_prepared_transactions_survive_any_route(
    tmp_path: Path, route: list[str]
) -> None:
    journal = open_record_journal(tmp_path / "start", "jboss")
    for number in range(5):
        journal.add(number, b"body %d" % number, number - 2).wait()
    journal.update(1, b"updated", 7).wait()
    journal.delete(2).wait()
    journal.add_in(50, 100, b"committed", 1)
    journal.delete_in(50, 3)
    journal.commit(50).wait()
    journal.add_in(51, 101, b"in doubt", 2)
    journal.update_in(51, 1, b"perhaps", 3)
    journal.delete_in(51, 4, b"why")
    journal.prepare(51, b"an Xid").wait()
    journal.close()
    end = through(tmp_path, tmp_path / "start", "jboss", route)
    again = open_record_journal(end, route[-1].format(own="jboss"))
    assert sorted(again.live_records(), key=lambda one: (one.record_id, one.update)) == [
        JournalRecord(0, -2, b"body 0"),
        JournalRecord(1, -1, b"body 1"),
        JournalRecord(1, 7, b"updated", update=True),
        JournalRecord(4, 2, b"body 4"),
        JournalRecord(100, 1, b"committed"),
    ]
    (prepared,) = again.prepared()
    assert (prepared.extra, prepared.deletes) == (b"an Xid", (4,))
    assert prepared.records == (
        JournalRecord(101, 2, b"in doubt"),
        JournalRecord(1, 3, b"perhaps", update=True),
    )
    again.close()


@pytest.mark.parametrize("route", SEQUENCES)
def test_pending_entries_survive_any_route(tmp_path: Path, route: list[str]) -> None:
    log = open_persist_log(tmp_path / "start", "cloudtran")
    operations = [
        Operation(OperationCode.INSERT, "orders", b"k\x00", b"v"),
        Operation(OperationCode.DELETE, "orders", b"k2", None, "two"),
        Operation(OperationCode.OPAQUE, "", b"", b""),
    ]
    for number in range(3):
        _, ticket = log.persisting(["one", "two"], operations, f"order-{number}")
        ticket.wait()
    log.persisted(1, ["one", "two"])
    log.persisted(2, ["one"])
    log.close()
    end = through(tmp_path, tmp_path / "start", "cloudtran", route)
    again = open_persist_log(end, route[-1].format(own="cloudtran"))
    left = [(e.reference, e.targets, list(e.operations), set(t)) for e, t in again.pending()]
    assert left == [
        ("order-1", ("one", "two"), operations, {"two"}),
        ("order-2", ("one", "two"), operations, {"one", "two"}),
    ]
    again.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("generation", sorted(p.name for p in JBOSS.iterdir() if p.is_dir()))
@pytest.mark.parametrize("case", ["basic", "tx-prepared", "tx-multifile"])
@pytest.mark.parametrize("route", [["tally"], ["jboss", "tally"]], ids=" to ".join)
def test_every_generation_comes_over_whole(
    tmp_path: Path, generation: str, case: str, route: list[str]
) -> None:
    """From the files of every original, to the native journal and to that of today's Artemis."""
    folder = JBOSS / generation / case
    oracle = json.loads((folder / "manifest.json").read_text())["oracle"]
    end = through(tmp_path, folder, "jboss", route)
    journal = open_record_journal(end, route[-1])
    found = sorted(journal.live_records(), key=lambda one: (one.record_id, one.update))
    expected = [_record(one) for one in oracle["live_records"]]
    assert found == sorted(expected, key=lambda one: (one.record_id, one.update))
    for mine, real in zip(journal.prepared(), oracle["prepared_transactions"], strict=True):
        assert list(mine.records) == [_record(one) for one in real["records"]]
        assert list(mine.deletes) == [
            one["id"] if isinstance(one, dict) else one for one in real["recordsToDelete"]
        ]
        assert mine.extra.hex() == real.get("extraData", "")
    journal.close()


def _record(one: dict[str, Any]) -> JournalRecord:
    body = bytes.fromhex(one["body"])
    return JournalRecord(one["id"], one["userRecordType"], body, one["isUpdate"])


# -- interruptions ----------------------------------------------------------------------------


def full_logs(folder: Path) -> dict[str, Path]:
    """A log of each role with 300 things to carry, closed."""
    numbers = range(1, 301)
    decisions = open_decision_log(folder / "bitronix", "bitronix")
    tickets = [decisions.decide(b"node" + number.to_bytes(12), ["a", "b"]) for number in numbers]
    journal = open_record_journal(folder / "jboss", "jboss")
    tickets += [journal.add(number, b"body") for number in numbers]
    entries = open_persist_log(folder / "cloudtran", "cloudtran")
    insert = Operation(OperationCode.INSERT, "orders", b"key", b"value")
    tickets += [entries.persisting(["one"], [insert], str(number))[1] for number in numbers]
    for ticket in tickets:
        ticket.wait()
    for log in (decisions, journal, entries):
        log.close()
    return {name: folder / name for name in ("bitronix", "jboss", "cloudtran")}


def carried(folder: Path) -> int:
    """How many things a log holds, by opening it."""
    (log,) = survey(str(folder)).logs
    if log.system == "bitronix":
        decisions = open_decision_log(folder, log.system)
        count = len(decisions.open_decisions())
        decisions.close()
        return count
    found = survey(str(folder)).read(log)
    kinds = [record.kind for record in found.records()]
    return sum(kind in (Kind.DECISION, Kind.ADD, Kind.PERSISTING) for kind in kinds)


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, pytest.param(60, marks=pytest.mark.soak)])
def test_a_killed_conversion_leaves_the_whole_target_or_none(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    cut_short = 0
    for system, source in full_logs(tmp_path / "from").items():
        for to in ("tally", system):
            target = tmp_path / f"{system} to {to}"
            unfinished = target.with_name(target.name + UNFINISHED)

            def work(_: Reporter, source: Path = source, to: str = to, at: Path = target) -> None:
                convert(source, at, to)

            begin = time.monotonic()
            convert(source, target, to)
            seconds = time.monotonic() - begin
            assert carried(target) == 300
            for _ in range(kills):
                shutil.rmtree(target, ignore_errors=True)
                shutil.rmtree(unfinished, ignore_errors=True)
                run_and_kill(work, after=0, seconds=rng.uniform(0, seconds * 1.2))
                cut_short += not target.exists()
                assert not target.exists() or carried(target) == 300
    assert cut_short


def test_a_conversion_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "no space")

    journal = open_record_journal(tmp_path / "from", "jboss")
    journal.add(1, b"body").wait()
    journal.close()
    monkeypatch.setattr("tallystick.convert.roles._add_live", fail)
    with pytest.raises(LogFullError, match="the new log could not be written: no space"):
        convert(tmp_path / "from", tmp_path / "to", "tally")
    assert [one.name for one in tmp_path.iterdir()] == ["from"]


def test_what_an_interrupted_conversion_left_is_not_overwritten(tmp_path: Path) -> None:
    source = fixture_dir("bitronix") / "committed-2pc"
    (tmp_path / ("to" + UNFINISHED)).mkdir()
    with pytest.raises(LogWriteError, match="cut short, or still runs"):
        convert(source, tmp_path / "to", "tally")
    assert not (tmp_path / "to").exists()


# -- refusals ---------------------------------------------------------------------------------


def test_what_cannot_be_converted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALogError, match="0 logs here"):
        convert(tmp_path, tmp_path / "new", "tally")
    bitronix = fixture_dir("bitronix") / "committed-2pc"
    with pytest.raises(UnsupportedFormatError, match="is a decision log, and jboss is none"):
        convert(bitronix, tmp_path / "new", "jboss")
    with pytest.raises(UnsupportedFormatError, match="only beside its pages"):
        convert(fixture_dir("h2") / "clean-2048", tmp_path / "new", "tally")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(LogWriteError, match="not empty"):
        convert(bitronix, tmp_path / "full", "tally")


def test_open_decisions_get_files_that_hold_them_and_as_many_again(tmp_path: Path) -> None:
    names = [f"jdbc/{number:0>1000}" for number in range(6)]
    with closing(open_decision_log(tmp_path / "log")) as log:
        for number in range(400):
            ticket = log.decide(b"%d" % number, names)
        ticket.wait()
        expected = set(log.open_decisions())
    report = convert(tmp_path / "log", tmp_path / "new", "bitronix")
    assert (report.carried, report.left) == ({"open decisions": 400}, {})
    sizes = {(tmp_path / "new" / name).stat().st_size for name in ("btm1.tlog", "btm2.tlog")}
    assert sizes == {HEADER_LENGTH + (5 << 20)}
    with closing(open_decision_log(tmp_path / "new", "bitronix")) as log:
        for number in range(300):
            ticket = log.decide(b"new %d" % number, names)
        ticket.wait()
        expected |= set(log.open_decisions())
    convert(tmp_path / "new", tmp_path / "back", "tally")
    with closing(open_decision_log(tmp_path / "back")) as log:
        assert log.open_decisions().keys() == expected
    assert len(expected) == 700


def test_a_damaged_log_is_converted_only_with_force(tmp_path: Path) -> None:
    damaged = fixture_dir("bitronix") / "damaged-hole"
    with pytest.raises(CorruptLogError, match="not sound"):
        convert(damaged, tmp_path / "new", "tally")
    report = convert(damaged, tmp_path / "new", "tally", force=True)
    assert report.carried["open decisions"] >= 3
    assert report.left["damaged pieces of the source"] > 0


def test_what_a_damaged_log_has_lost_is_counted_and_named_and_the_exit_code_is_1(
    tmp_path: Path,
) -> None:
    with Journal(tmp_path / "from", settings=Settings(segment_size=16 << 10)) as journal:
        for number in range(40):
            journal.add(number, bytes(1000))
    sorted((tmp_path / "from").glob("0*.tally"))[1].unlink()
    ran = run(tmp_path / "from", tmp_path / "to", "--to", "tally", "--force")
    assert ran.exit_code == 1, ran.output
    assert "without counterpart: 2 damaged pieces of the source" in ran.output
    assert "segment 2 must be there and is missing" in ran.output
    assert "acknowledged records from record" in ran.output


def test_one_damaged_copy_of_two_takes_nothing_and_is_a_note(tmp_path: Path) -> None:
    with Journal(tmp_path / "from") as journal:
        journal.add(1, b"one")
    with (tmp_path / "from" / "control.tally").open("r+b") as file:
        file.write(bytes(8))
    ran = run(tmp_path / "from", tmp_path / "to", "--to", "tally", "--force")
    assert ran.exit_code == 0, ran.output
    assert "note: damage in the source: " in ran.output


def test_the_command_tells_what_was_carried_and_what_was_left(tmp_path: Path) -> None:
    source = str(fixture_dir("bitronix") / "tm-outcomes")
    ran: Any = CliRunner().invoke(
        command, [source, str(tmp_path / "a"), "--to", "tally", "--force", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.output)
    assert report["role"] == "decision log"
    assert report["over"]["transactions committed"] > 0
    assert not report["left"]
    ran = CliRunner().invoke(command, [source, str(tmp_path / "b"), "--to", "tally", "--force"])
    assert "over: " in ran.output


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "case", sorted(path.parent.name for path in fixture_dir("cloudtran").glob("*/manifest.json"))
)
def test_a_damaged_persist_log_is_converted_by_force_or_refused_in_words(
    case: str, tmp_path: Path
) -> None:
    """Entries that are not pending are passed over by their number, whatever is left of them."""
    with suppress(TallystickError):
        convert(fixture_dir("cloudtran") / case / "log", tmp_path / "to", "tally", force=True)


# -- a copy is a copy -----------------------------------------------------------------------------

KEY = b"k" * 32


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, [str(one) for one in arguments])


def test_what_has_no_counterpart_is_named_and_the_exit_code_is_1(tmp_path: Path) -> None:
    with Journal(tmp_path / "from") as journal:
        journal.append_many([b"plain"] * 3)
        journal.add(1, b"record")
        with journal.transaction() as tx:
            tx.append(b"in a transaction")
    ran = run(tmp_path / "from", tmp_path / "tally", "--to", "tally")
    assert (ran.exit_code, "4 plain records" in ran.output) == (0, True)
    with Journal(tmp_path / "tally") as journal:
        bodies = [one.body for one in journal.replay() if one.record_id is None]
        assert bodies == [b"plain"] * 3 + [b"in a transaction"]
    ran = run(tmp_path / "from", tmp_path / "jboss", "--to", "jboss")
    assert ran.exit_code == 1
    assert "without counterpart: 4 plain records" in ran.output
    assert ran.output.count("    record ") == 3
    assert "and 1 more; --verbose names all" in ran.output
    ran = run(tmp_path / "from", tmp_path / "again", "--to", "jboss", "--verbose")
    assert ran.output.count("    record ") == 4


def test_the_xid_of_a_prepared_branch_goes_there_and_back(tmp_path: Path) -> None:
    xid = Xid(7, b"gtrid", b"bqual")
    with Journal(tmp_path / "from") as journal:
        tx = journal.transaction()
        tx.add(1, b"in doubt")
        tx.prepare(xid=xid)
    convert(tmp_path / "from", tmp_path / "there", "jboss")
    convert(tmp_path / "there", tmp_path / "back", "tally")
    with Journal(tmp_path / "back") as journal:
        (one,) = journal.prepared()
        assert one.xid == xid


def test_an_encrypted_log_needs_its_key_and_is_not_left_in_clear_without_a_word(
    tmp_path: Path,
) -> None:
    with Journal(tmp_path / "from", key=lambda: KEY) as journal:
        journal.add(1, b"TOPSECRET")
    with pytest.raises(UnsupportedFormatError, match="encrypted"):
        convert(tmp_path / "from", tmp_path / "to", "jboss", force=True)
    assert [one.name for one in tmp_path.iterdir()] == ["from"]
    given = ("--encryption-key", KEY.hex())
    ran = run(tmp_path / "from", tmp_path / "clear", "--to", "tally", *given)
    assert (ran.exit_code, "clear text" in ran.output) == (0, True)
    sealing = ("--encryption-key-to", KEY.hex())
    assert (
        run(tmp_path / "from", tmp_path / "sealed", "--to", "tally", *given, *sealing).exit_code
        == 0
    )
    assert not any(b"TOPSECRET" in one.read_bytes() for one in (tmp_path / "sealed").iterdir())
    with Journal(tmp_path / "sealed", key=lambda: KEY) as journal:
        assert [one.body for one in journal.live_records()] == [b"TOPSECRET"]
    with pytest.raises(UnsupportedFormatError, match="not encrypted"):
        options = ReadOptions(encryption_key=KEY)
        convert(tmp_path / "from", tmp_path / "no", "jboss", options=options, key_to=KEY)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "no key was given"),
        (("--encryption-key", "00" * 32), "expected the key that it was written with"),
        (("--encryption-key", "00" * 8), "has 8 bytes; expected 16, 24 or 32"),
        (("--encryption-key", ""), "has 0 bytes; expected 16, 24 or 32"),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_what_cannot_be_decrypted_is_not_passed_over_by_force(
    tmp_path: Path, given: tuple[str, ...], words: str, cut: bool
) -> None:
    with Journal(
        tmp_path / "from", key=lambda: KEY, settings=Settings(segment_size=16 << 10)
    ) as journal:
        for number in range(40):
            journal.append(b"%d" % number + bytes(1000))
    if cut:
        sorted((tmp_path / "from").glob("0*.tally"))[-1].unlink()
    for force in ((), ("--force",)):
        ran = run(tmp_path / "from", tmp_path / "to", "--to", "tally", *given, *force)
        assert isinstance(ran.exception, UnsupportedFormatError), ran.output
        assert words in str(ran.exception)
        assert "force" not in str(ran.exception)
        assert given or str(tmp_path / "from") in str(ran.exception)
        assert [one.name for one in tmp_path.iterdir()] == ["from"]


def test_what_can_be_no_key_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with Journal(tmp_path / "from", key=lambda: KEY) as journal:
        journal.add(1, b"TOPSECRET")
    for option, given in (("--encryption-key", "abcd"), ("--encryption-key-to", "00" * 15)):
        keys = {"--encryption-key": KEY.hex(), option: given}
        both = [one for pair in keys.items() for one in pair]
        ran = run(tmp_path / "from", tmp_path / "to", "--to", "tally", *both)
        assert isinstance(ran.exception, UnsupportedFormatError)
        assert f"has {len(given) // 2} bytes; expected 16, 24 or 32" in str(ran.exception)
    for key, words in (
        ("abc", "key is of type str; expected a function that returns the key"),
        (lambda: "abc", "what key returns is of type str; expected bytes"),
        (lambda: b"abc", "what key returns has 3 bytes; expected 16, 24 or 32"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            Journal(tmp_path / "log", key=key)  # type: ignore[arg-type] # one is no function
    assert not (tmp_path / "log").exists()


def test_the_log_of_a_page_store_is_refused(tmp_path: Path) -> None:
    with PageStore(tmp_path / "store") as store:
        store.create_table("a")
    with untouched(tmp_path), pytest.raises(UnsupportedFormatError, match="only beside its pages"):
        convert(tmp_path / "store", tmp_path / "to", "jboss")


@pytest.mark.parametrize("system", ["tally", "jboss", "bitronix", "cloudtran"])
def test_a_log_that_is_open_elsewhere_is_refused(tmp_path: Path, system: str) -> None:
    opened: dict[str, Any] = {
        "tally": open_record_journal,
        "jboss": lambda path: open_record_journal(path, "jboss"),
        "bitronix": lambda path: open_decision_log(path, "bitronix"),
        "cloudtran": lambda path: open_persist_log(path, "cloudtran"),
    }
    log = opened[system](tmp_path / "from")
    if system == "cloudtran":  # it makes its file with the first record
        log.persisting(["one"], [])[1].wait()
    try:
        with pytest.raises(LogLockedError):
            convert(tmp_path / "from", tmp_path / "to", system)
    finally:
        log.close()
    assert not (tmp_path / "to").exists()
    assert not (tmp_path / ("to" + UNFINISHED)).exists()


def test_a_target_inside_the_source_is_refused_by_any_name(tmp_path: Path) -> None:
    Journal(tmp_path / "from").close()
    (tmp_path / "link").symlink_to(tmp_path / "from")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other").symlink_to(tmp_path / "elsewhere")
    for target in ("from/to", "link/to", "from/a/../to", "other"):
        with untouched(tmp_path), pytest.raises(LogWriteError, match=r"inside|symbolic link"):
            convert(tmp_path / "from", tmp_path / target, "tally")


def test_what_differs_after_all_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "from") as journal:
        journal.add(1, b"record")
    monkeypatch.setattr(TallyJournal, "add", lambda log, _number, body, _kind: log.append(body))
    with pytest.raises(LogWriteError, match="does not hold what the source holds: live records"):
        convert(tmp_path / "from", tmp_path / "to", "tally")
    assert [one.name for one in tmp_path.iterdir()] == ["from"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_conversion_that_is_told_to_end_leaves_nothing(tmp_path: Path, number: int) -> None:
    with Journal(tmp_path / "from") as journal:
        journal.append_many([b"x" * 1000] * 2_000)
    # However busy the machine is, it is not done before the signal comes.
    program = (
        "import pathlib, time; rename = pathlib.Path.rename; "
        "pathlib.Path.rename = lambda *given: (time.sleep(300), rename(*given)); "
        "from tallystick.cli import main; main()"
    )
    arguments = ("convert", str(tmp_path / "from"), str(tmp_path / "to"), "--to", "tally")
    process = subprocess.Popen([sys.executable, "-c", program, *arguments])
    unfinished = tmp_path / ("to" + UNFINISHED)
    while process.poll() is None and not unfinished.exists():
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait() == (130 if number == signal.SIGINT else 128 + number)
    assert not unfinished.exists()
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("file", "no folder"),
        ("full", "not empty"),
        (".", "the current folder"),
        ("nothing/..", "the current folder"),
        ("", "the current folder"),
    ],
)
def test_a_target_that_cannot_be_made_is_refused_before_anything(
    target: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is renamed to the current one would take it away from its shell."""
    Journal(tmp_path / "from").close()
    here = tmp_path / "here"
    if words == "the current folder":
        here.mkdir()
    else:
        (here / "full" / "inner").mkdir(parents=True)
        (here / "file").touch()
    monkeypatch.chdir(here)
    with untouched(tmp_path), pytest.raises(LogWriteError, match=words):
        convert(tmp_path / "from", target, "tally")


def test_dots_and_links_on_the_way_to_the_target_lead_where_they_lead(tmp_path: Path) -> None:
    Journal(tmp_path / "from").close()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    convert(tmp_path / "from", tmp_path / "link" / ".." / "to", "tally")
    assert sorted(one.name for one in (tmp_path / "a").iterdir()) == ["b", "to"]


def test_a_log_that_is_open_is_refused_as_such_whatever_its_end_looks_like(tmp_path: Path) -> None:
    """What is being written looks damaged; force would not be the advice."""
    damaged = shutil.copytree(fixture_dir("bitronix") / "damaged-hole", tmp_path / "from")
    with next(damaged.glob("btm1.tlog*")).open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LogLockedError):
            convert(damaged, tmp_path / "to", "tally")
    with pytest.raises(CorruptLogError):
        convert(damaged, tmp_path / "to", "tally")
    assert convert(damaged, tmp_path / "to", "tally", force=True).left.total()


@pytest.mark.parametrize("disposer", [MoveDisposer, CompressDisposer])
def test_an_archive_of_a_service_is_made_a_log_by_force(
    tmp_path: Path, disposer: type[MoveDisposer | CompressDisposer]
) -> None:
    log, written = filled(tmp_path / "log", recycle=False)
    for path in log.disposable():
        dispose_of(disposer(str(tmp_path / "archive")), str(path), log.archive_name(str(path)))
        log.disposed(str(path))
    log.close()
    with pytest.raises(CorruptLogError, match=r"and no log.* convert --force"):
        convert(tmp_path / "archive", tmp_path / "to", "cloudtran")
    report = convert(tmp_path / "archive", tmp_path / "to", "cloudtran", force=True)
    assert report.role == "persist log"
    assert any("may have ended in later ones" in note for note in report.notes)
    with closing(open_persist_log(tmp_path / "to", "cloudtran")) as new:
        pending = [one.number for one, _ in new.pending()]
    assert report.carried["pending entries"] == len(pending) <= len(written)


def test_archived_segments_alone_are_a_log_by_force_only(tmp_path: Path) -> None:
    with Journal(tmp_path / "log", settings=Settings(segment_size=16 << 10)) as journal:
        for number in range(100):
            journal.append(b"%d " % number + bytes(1000))
    (tmp_path / "archive").mkdir()
    for path in sorted((tmp_path / "log").glob("0*.tally"))[:3]:
        (tmp_path / "archive" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(CorruptLogError, match="If these are archived segments"):
        convert(tmp_path / "archive", tmp_path / "to", "tally")
    report = convert(tmp_path / "archive", tmp_path / "to", "tally", force=True)
    assert report.carried["plain records"] > 10
    with Journal(tmp_path / "to") as journal:
        bodies = [one.body for one in journal.replay()]
    numbers = [int(body.split()[0]) for body in bodies if body]
    assert numbers == list(range(report.carried["plain records"]))
