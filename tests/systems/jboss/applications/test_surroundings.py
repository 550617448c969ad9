"""A broker is judged with what its start opens besides the journal of messages.

What each case says of the original is what Artemis 2.40 did with it.
"""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tallystick
from tallystick.reading import verify
from tallystick.reading.results import headline
from tallystick.records import Answer, Part, Verdict
from tallystick.systems.jboss.applications.broker_xml import broker_settings
from tallystick.systems.jboss.format.layout import Item, RecordType
from tallystick.systems.jboss.format.messages import (
    ACKNOWLEDGED,
    ALL_TAKEN,
    IDS_GIVEN,
    LARGE_MESSAGE,
    MESSAGE,
    MESSAGE_TAKEN,
    PAGE_TAKEN,
    PAGE_TRANSACTION,
    QUEUE,
    REFERENCE,
    UNFINISHED_LARGE,
)
from tallystick.systems.jboss.runs import analysis
from tallystick.systems.jboss.runs import listed as listed_records
from tallystick.systems.jboss.verdict.file_ids import ID_BATCH
from tallystick.systems.protocol import ReadOptions
from tests.fixtures import fixture_dir
from tests.kit import read_in_runs
from tests.systems.jboss.build import (
    add,
    add_tx,
    commit,
    delete,
    image,
    prepare,
    rollback,
    update,
)
from tests.systems.jboss.format.test_pages import WRITTEN, entry

Change = Callable[[Path], object]
WHOLE, DOUBTED = (Answer.SAFE, "next-file"), (Answer.CANNOT_TELL, "beside-the-log")


@pytest.fixture(params=[False, True], ids=["one by one", "in runs"], autouse=True)
def _in_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_runs(monkeypatch, always=request.param)
    monkeypatch.setattr(analysis, "SPENT_MIN", 1)
    monkeypatch.setattr(listed_records, "HELD_MIN", 0)


def broker(tmp_path: Path, case: str = "whole") -> Path:
    """A copy of the data directory of a real broker."""
    return Path(shutil.copytree(fixture_dir("brokers") / case, tmp_path / "data"))


def judged(data: Path, *, log_only: bool = False) -> tuple[Verdict, list[Part]]:
    """The verdict about the journal of messages, and the parts beside it."""
    found = tallystick.explain(data, options=ReadOptions(log_only=log_only))
    (one,) = (log for log in found.logs if log.path.endswith("journal"))
    return one, list(one.surroundings.parts) if one.surroundings else []


def answer(data: Path) -> tuple[Answer, str, int | None]:
    found = judged(data)[0].judgement
    return found.answer, found.reason, found.at_stake.rows


def gone(*names: str) -> Change:
    def change(data: Path) -> None:
        for name in names:
            path = data / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def test_a_whole_broker_is_safe_and_its_parts_fit(tmp_path: Path) -> None:
    """150 messages and 3 large ones are there after a start; a file was created, not filled."""
    one, parts = judged(broker(tmp_path))
    assert (one.judgement.answer, one.judgement.reason) == (Answer.SAFE, "next-file")
    assert [part.part for part in parts] == ["bindings", "large messages", "paging"]
    assert all(part.fits for part in parts)
    assert one.surroundings is not None
    assert (one.surroundings.kind, one.surroundings.path) == ("broker", str(tmp_path / "data"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["221 (1).msg", "221 - Copy.msg", "._221.msg", "Copy of 221.msg"])
def test_a_copy_of_a_large_message_keeps_newer_brokers_from_starting(
    name: str, tmp_path: Path
) -> None:
    """Since 2.29; the older ones pass over it."""
    data = broker(tmp_path)
    for other in ("221.msg.bak", "notes.txt", "99.copy.msg"):
        (data / "large-messages" / other).write_bytes(b"x")
    assert answer(data) == (Answer.SAFE, "next-file", 0)
    (data / "large-messages" / name).write_bytes(b"x")
    assert answer(data) == (Answer.CANNOT_TELL, "beside-the-log", None)
    (found,) = (one for one in judged(data)[1] if one.why.startswith(name))
    assert "2.29" in found.why


@pytest.mark.parametrize("name", ["000000001 (1).page", "._000000001.page"])
def test_no_broker_starts_with_a_page_that_has_no_number(name: str, tmp_path: Path) -> None:
    data = broker(tmp_path)
    pages = data / "paging" / "b9e0"
    pages.mkdir(parents=True)
    (pages / name).write_bytes(b"")
    assert answer(data) == (Answer.SAFE, "next-file", 0)  # no address: it passes over the folder
    (pages / "address.txt").write_text("orders")
    assert answer(data)[:2] == (Answer.REFUSES, "part-refused")


def test_files_of_messages_under_other_names_are_a_journal(tmp_path: Path) -> None:
    """A broker goes by the end of a name alone."""
    data = broker(tmp_path)
    for one in (data / "journal").glob("*.amq"):
        one.rename(one.with_name(f"{one.stem} (1).amq"))
    answers = [one.judgement for one in tallystick.explain(data).logs]
    assert not any("The journal of messages has no file" in one.text for one in answers)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("change", "rows", "words"),
    [
        (gone("bindings"), 153, "7 (150), 218 (3)"),  # dropped, all of them
        (gone("large-messages/221.msg"), 1, "221.msg is missing"),  # delivered empty
        (gone("large-messages"), 3, "223.msg is missing"),
        (lambda data: (data / "large-messages/223.msg").write_bytes(b""), 1, "223.msg is empty"),
        (lambda data: (data / "large-messages/222.msg").write_bytes(b"x"), 1, "1 of 200,000"),
        (
            lambda data: (data / "large-messages/222.msg").write_bytes(bytes(200_001)),
            1,
            "222.msg has 200,001 of 200,000 bytes, so another file lies in its place",
        ),
    ],
)
def test_what_a_start_drops_is_lost(change: Change, rows: int, words: str, tmp_path: Path) -> None:
    data = broker(tmp_path)
    change(data)
    one, _ = judged(data)
    assert answer(data) == (Answer.LOSES, "part-lost", rows)
    assert words in one.judgement.text
    assert f"silently lose {rows:,} record" in headline(one)
    assert one.log_judgement.answer is Answer.SAFE
    assert judged(data, log_only=True)[0].judgement.answer is Answer.SAFE


def test_a_broker_that_was_stopped_in_order_is_safe(tmp_path: Path) -> None:
    """It had deleted files that it did not need: two ids have no file."""
    assert answer(broker(tmp_path, "clean-stop"))[:2] == (Answer.SAFE, "next-file")


@pytest.mark.parametrize(
    ("case", "rows"), [("bindings-missing", 153), ("small-bindings-missing", 108)]
)
def test_bindings_that_are_not_there_lose_the_messages_of_their_queues(
    case: str, rows: int, tmp_path: Path
) -> None:
    assert answer(broker(tmp_path, case)) == (Answer.LOSES, "part-lost", rows)


def test_how_much_is_at_stake_is_not_known_where_bindings_have_other_queues_or_none(
    tmp_path: Path,
) -> None:
    """They, or the journal, are of another time or broker, which may have kept more."""
    data = broker(tmp_path)
    shutil.rmtree(data / "bindings")
    shutil.copytree(fixture_dir("brokers") / "paged/bindings", data / "bindings")
    assert answer(data) == (Answer.LOSES, "part-lost", None)
    assert "queue 218 (3). The bindings do not have them" in judged(data)[0].judgement.text
    shutil.rmtree(data / "bindings")
    made(data, "bindings", BOUND, {1: [add(1)], 2: []})
    assert answer(data) == (Answer.LOSES, "part-lost", None)
    assert "218 (3). The bindings do not have them" in judged(data)[0].judgement.text


FOR_3, FOR_4 = struct.pack(">q", 3), struct.pack(">q", 4)
ADDED, HELD, TAKEN_OFF = (
    add(1, b"", MESSAGE),
    update(1, FOR_3, REFERENCE),
    update(1, FOR_3, ACKNOWLEDGED),
)


@pytest.mark.parametrize(
    ("first", "second", "queues"),
    [
        ([ADDED], [HELD], "3 (1)"),
        ([ADDED, HELD, HELD], [update(1, FOR_4, REFERENCE)], "3 (1), 4 (1)"),
        ([ADDED, HELD, TAKEN_OFF], [update(1, FOR_4, REFERENCE)], "4 (1)"),
        ([ADDED, HELD, TAKEN_OFF], [HELD], "3 (1)"),
        ([ADDED, TAKEN_OFF, HELD], [update(1, FOR_3[1:], REFERENCE)], "3 (1)"),
        ([ADDED, HELD, add(2, b"", MESSAGE), update(2, FOR_4, REFERENCE)], [delete(2)], "3 (1)"),
        ([ADDED, add_tx(9, 2, FOR_4, REFERENCE)], [HELD, commit(9)], "3 (1), 4 (1)"),
        ([ADDED, HELD, add_tx(9, 2, FOR_4, REFERENCE)], [rollback(9)], "3 (1)"),
        ([ADDED, HELD, add_tx(9, 1, FOR_3, ACKNOWLEDGED)], [HELD, commit(9)], ""),
        ([ADDED, HELD], [TAKEN_OFF], ""),
        ([ADDED, HELD], [delete(1)], ""),
    ],
)
def test_a_message_waits_for_a_queue_until_that_has_acknowledged_it(
    first: list[Item], second: list[Item], queues: str, tmp_path: Path
) -> None:
    made(tmp_path, "journal", MESSAGES, {1: first, 2: second})
    (tmp_path / "bindings").mkdir()
    (why,) = (part.why for part in judged(tmp_path)[1] if part.part == "bindings")
    assert why.startswith("A start drops") == bool(queues)
    messages = "1 message" if queues.endswith("(1)") and "," not in queues else "messages"
    assert not queues or f"{messages} of the queue{'s' * ('),' in queues)} {queues}. The" in why


def test_bindings_of_another_day_lose_the_messages_of_queues_that_were_made_since(
    tmp_path: Path,
) -> None:
    """Only the first file's first queue is left; the queue of the large messages came later."""
    data = broker(tmp_path)
    path = data / "bindings/activemq-bindings-1.bindings"
    content = path.read_bytes()
    place = content.index("big".encode("utf-16-le")) - 100
    path.write_bytes(content[:place] + bytes(len(content) - place))
    one, _ = judged(data)
    assert one.judgement.answer is Answer.LOSES
    assert "218 (3)" in one.judgement.text


def test_a_journal_alone_is_judged_alone(tmp_path: Path) -> None:
    data = broker(tmp_path)
    gone("bindings", "large-messages")(data)
    one, parts = judged(data)
    assert (one.judgement.answer, parts) == (Answer.SAFE, [])
    assert one.surroundings is not None
    assert one.surroundings.kind == "log"


def test_the_journal_itself_may_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = broker(tmp_path, "bindings-missing")
    for path in (data / "journal", "journal", "."):
        monkeypatch.chdir(data / "journal" if path == "." else data)
        (one,) = tallystick.explain(path).logs
        assert one.judgement.answer is Answer.LOSES, path


def test_bindings_that_cannot_be_read_decide(tmp_path: Path) -> None:
    data = broker(tmp_path)
    for path in (data / "bindings").iterdir():
        path.unlink()
        path.symlink_to(path.name)
    found, _ = judged(data)
    assert found.judgement.answer in (Answer.CANNOT_TELL, Answer.LOSES)


def test_broker_xml_names_the_places(tmp_path: Path) -> None:
    data = broker(tmp_path)
    (data / "bindings").rename(tmp_path / "elsewhere")
    assert answer(data)[0] is Answer.LOSES
    (tmp_path / "etc").mkdir()
    names = {"journal": "data/journal", "bindings": str(tmp_path / "elsewhere")}
    text = "".join(f"<{one}-directory>{path}</{one}-directory>" for one, path in names.items())
    (tmp_path / "etc/broker.xml").write_text(f"<configuration><!-- x -->{text}</configuration>")
    one, parts = judged(data)
    assert one.judgement.answer is Answer.SAFE
    assert (parts[0].path, parts[0].found_by) == (str(tmp_path / "elsewhere"), "broker.xml")


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ("<database-store><jdbc-connection-url>x</jdbc-connection-url></database-store>", DOUBTED),
        ("<!-- <database-store/> -->", WHOLE),
        ("<file-store/>", WHOLE),
    ],
)
def test_a_journal_in_a_database_is_not_in_the_files(
    store: str, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """Artemis 2.40 starts with the tables of its database, and looks at no journal."""
    data = broker(tmp_path)
    (tmp_path / "etc").mkdir()
    text = f"<configuration><core><store>{store}</store></core></configuration>"
    (tmp_path / "etc/broker.xml").write_text(text)
    assert answer(data)[:2] == expected
    if expected == DOUBTED:
        journal = data / "journal/activemq-data-1.amq"
        journal.write_bytes(b"x" * journal.stat().st_size)
        assert judged(data, log_only=True)[0].judgement.answer is not Answer.CANNOT_TELL
        assert answer(data)[:2] == expected  # a start does not read it
    shutil.rmtree(data / "journal")
    assert bindings_judged(data).judgement.answer is Answer.CANNOT_TELL


WHOLE_XML = (
    '<?xml version="1.0"?>\n<!DOCTYPE configuration [<!ENTITY a "b">]>\n'
    '<configuration xmlns="urn:activemq" xmlns:xi="x"><!-- <a> --><core a="1 > 0">'
    "<name><![CDATA[<no tag>]]></name><xi:include href='a.xml'/></core></configuration>\n"
)


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "broker.xml is empty"),
        (b" \n", "broker.xml is empty"),
        (bytes(4096), "broker.xml is empty"),
        (b"<configuration><core><name>a</name>", "no whole XML: no element found, line 1"),
        (b"<configuration><core></configuration>", "mismatched tag"),
        (b"<configuration></configuration><core/>", "junk after document element"),
        (b"<configuration></configurat", "unclosed token"),
        (b"<configuration/><", "is no whole XML"),
        (b"no XML", "is no whole XML"),
        (WHOLE_XML.encode(), ""),
        (WHOLE_XML.encode("utf-16"), ""),
        (b'<?xml version="1.0" encoding="GBK"?><configuration/>', ""),
        (b'<?xml version="1.0" encoding="nonsense"?><configuration/>', ""),
    ],
)
@pytest.mark.parametrize("place", ["etc/broker.xml", "data/broker.xml"])
def test_settings_with_which_no_broker_starts_are_named(
    text: bytes, says: str, place: str, tmp_path: Path
) -> None:
    data = broker(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / place).write_bytes(text)
    (tmp_path / place).with_name("a.xml").write_text("<a/>")
    one, parts = judged(data)
    if not says:
        assert one.judgement.answer is Answer.SAFE
        return
    assert (one.judgement.answer, one.judgement.reason) == DOUBTED
    assert one.log_judgement.answer is Answer.SAFE
    assert parts[-1].part == "settings"
    assert parts[-1].path == str(tmp_path / place)
    assert says in parts[-1].why
    assert "presumed to be as its defaults have it" in parts[-1].why
    assert bindings_judged(data).judgement.answer is Answer.CANNOT_TELL
    gone("bindings", "large-messages")(data)
    assert answer(data)[0] is Answer.LOSES  # which is graver
    assert judged(data, log_only=True)[0].judgement.answer is Answer.SAFE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<persistence-enabled>false</persistence-enabled>", "nothing is kept"),
        ("<persistence-enabled>true</persistence-enabled>", ""),
        ("<large-messages-directory>${where:./data/large}</large-messages-directory>", "part-lost"),
        ("<paging-directory>${where}/paging</paging-directory>", "a property of the start decides"),
        ("<xi:include href='core.xml'/>", "part-lost"),
        ("<xi:include href='gone.xml'/>", "includes gone.xml, which is not there"),
        ("<xi:include href='/etc/far.xml'/>", ""),  # of the machine that this was copied from
    ],
)
def test_settings_decide_what_a_start_reads(text: str, expected: str, tmp_path: Path) -> None:
    data = broker(tmp_path)
    (tmp_path / "etc").mkdir()
    core = "<core><large-messages-directory>./data/away</large-messages-directory></core>"
    (tmp_path / "etc/core.xml").write_text(core)
    whole = f"<configuration xmlns:xi='x'>{text}</configuration>"
    (tmp_path / "etc/broker.xml").write_text(whole)
    found = judged(data)[0].judgement
    assert expected in (found.reason, found.text) or expected in found.text
    assert (found.answer is Answer.SAFE) is not bool(expected)


@pytest.mark.parametrize("piece", ["<!--", "<![CDATA[", "<?", "<!DOCTYPE [", '<a "', "<a", "</a>"])
def test_broken_settings_take_no_time(piece: str, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "broker.xml").write_text("<a>" + piece * 100_000)
    before = time.process_time()
    assert broker_settings(str(tmp_path), str(tmp_path / "journal")).damage
    assert time.process_time() - before < 5


def test_entities_in_entities_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    made = "".join(f'<!ENTITY e{one} "{f"&e{one - 1};" * 10}">' for one in range(1, 12))
    text = f'<!DOCTYPE a [<!ENTITY e0 "haha">{made}]><a>&e11;</a>'
    (tmp_path / "broker.xml").write_text(text)
    before = time.process_time()
    assert "no whole XML" in broker_settings(str(tmp_path), str(tmp_path / "journal")).damage
    assert time.process_time() - before < 5


def test_settings_that_cannot_be_read_are_named_and_a_journal_alone_is_none(
    tmp_path: Path,
) -> None:
    data = broker(tmp_path)
    for name in ("bindings", "large-messages", "paging"):
        shutil.rmtree(data / name, ignore_errors=True)
    (data / "broker.xml").symlink_to("broker.xml")
    found = judged(data)[0]
    assert (found.judgement.answer, found.judgement.reason)[0] is not Answer.SAFE
    around = found.surroundings
    assert around is not None
    assert (around.kind, around.parts[-1].part) == ("broker", "settings")


@pytest.mark.parametrize(
    ("inside", "given"),
    [(".", "data"), ("data", "."), ("data/j2", "."), ("etc", "../data"), (".", "./data/j2/.")],
)
def test_settings_are_found_however_short_the_path_is(
    inside: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = broker(tmp_path)
    for before, after in (("journal", "j2"), ("bindings", "b2"), ("large-messages", "l2")):
        (data / before).rename(data / after)
    (data / "l2/222.msg").write_bytes(b"")
    (tmp_path / "etc").mkdir()
    names = {"journal": "j2", "bindings": "b2", "large-messages": "l2"}
    text = "".join(f"<{one}-directory>data/{at}</{one}-directory>" for one, at in names.items())
    (tmp_path / "etc/broker.xml").write_text(f"<configuration>{text}</configuration>")
    monkeypatch.chdir(tmp_path / inside)
    found = tallystick.explain(given).logs
    assert {one.judgement.answer for one in found if "b2" not in one.path} == {Answer.LOSES}


@pytest.mark.parametrize(
    ("named", "rows", "expected"),
    [
        ("data/j2", False, DOUBTED),  # a start makes a new one there
        ("/var/lib/gone/journal", False, WHOLE),  # copied from another machine
        ("data/journal", True, (Answer.LOSES, "part-lost")),  # its own, and nothing else is there
    ],
)
def test_settings_that_name_a_journal_decide_which_one_a_start_reads(
    named: str, rows: bool, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    data = broker(tmp_path)
    if rows:
        gone("bindings", "large-messages")(data)
    (tmp_path / "etc").mkdir()
    text = f"<configuration><journal-directory>{named}</journal-directory></configuration>"
    (tmp_path / "etc/broker.xml").write_text(text)
    assert answer(data)[:2] == expected


@pytest.mark.parametrize("name", ["journal", "bindings"])
def test_a_journal_on_another_disk_is_read_through_its_link(name: str, tmp_path: Path) -> None:
    data = broker(tmp_path)
    (data / name).rename(tmp_path / "elsewhere")
    (data / name).symlink_to(tmp_path / "elsewhere")
    found = tallystick.explain(data)
    assert sorted(one.path for one in found.logs) == [f"{data}/bindings", f"{data}/journal"]
    assert {one.judgement.answer for one in found.logs} == {Answer.SAFE}
    assert not found.problems
    gone("large-messages")(data)
    assert {one.judgement.answer for one in tallystick.explain(data).logs} == {Answer.LOSES}


PAGED = "paged"


@pytest.mark.parametrize(
    ("name", "refused"),
    [("journal", True), ("bindings", True), ("large-messages", True), ("paging", False)],
)
def test_no_broker_starts_with_a_link_to_nothing_where_it_makes_a_folder(
    name: str, refused: bool, tmp_path: Path
) -> None:
    """A disk that is not there yet: Artemis 2.40 comes to pages only where it reads or has some."""
    data = broker(tmp_path)
    shutil.rmtree(data / name, ignore_errors=True)
    (data / name).symlink_to(tmp_path / "unmounted")
    (found,) = tallystick.explain(data).logs[:1]
    assert (found.judgement.answer is Answer.REFUSES) is refused
    assert ("unmounted, which is not there" in found.judgement.text) is refused


def test_artemis_makes_no_folder_of_large_messages_without_one(tmp_path: Path) -> None:
    data = broker(tmp_path, PAGED)
    shutil.rmtree(data / "large-messages", ignore_errors=True)
    (data / "large-messages").symlink_to(tmp_path / "unmounted")
    assert Answer.REFUSES not in {one.judgement.answer for one in tallystick.explain(data).logs}


def _folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _link_to_nothing(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/unmounted/disk/file")


def _cut(path: Path) -> None:
    path.write_bytes(b"F" * 12)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("journal/server.lock", _folder),
        ("journal/server.lock", _link_to_nothing),
        ("journal/server.lock", _cut),
        ("journal/serverlock.1", _folder),
        ("journal/serverlock.2", _link_to_nothing),
        ("journal/activemq-data-99.amq", _folder),
        ("bindings/x.bindings", _folder),
    ],
)
def test_no_broker_starts_with_something_else_where_it_opens_a_file(
    name: str, change: Change, tmp_path: Path
) -> None:
    """Artemis 2.40 ends with an error, or waits for ever for a lock that it cannot make."""
    data = broker(tmp_path)
    change(data / name)
    found = tallystick.explain(data)
    assert Answer.REFUSES in {one.judgement.answer for one in found.logs}


@pytest.mark.parametrize("data", [b"", b"F", b"F" * 19])
def test_a_lock_of_a_broker_without_an_id_or_with_a_whole_one_is_none_in_the_way(
    data: bytes, tmp_path: Path
) -> None:
    (broker(tmp_path) / "journal/server.lock").write_bytes(data)
    found = tallystick.explain(tmp_path)
    assert {one.judgement.answer for one in found.logs} == {Answer.SAFE}


def _address(data: Path) -> Path:
    return next((data / "paging").rglob("address.txt"))


def _second_folder(data: Path) -> None:
    shutil.copytree(_address(data).parent, data / "paging/again")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: _address(data).unlink(), "has no address.txt"),
        (lambda data: _address(data).rename(_address(data).with_name("ADDRESS.TXT")), "no address"),
        (lambda data: _address(data).write_text(""), "address.txt says ''"),
        (_second_folder, "in two folders"),
        (lambda data: (data / "paging/other").symlink_to("gone"), "No such file"),
        (lambda data: (page(data, 2).with_stem("000000004")).symlink_to("gone"), "000000004.page"),
        (
            lambda data: page(data, 2).rename(page(data, 2).with_suffix(".PAGE")),
            "not 000000002.PAGE",
        ),
    ],
)
def test_pages_that_a_start_does_not_read_are_told(
    change: Change, says: str, tmp_path: Path
) -> None:
    """Artemis 2.40 starts, and has the messages of the other pages alone."""
    data = broker(tmp_path, PAGED)
    assert answer(data)[0] is Answer.SAFE
    change(data)
    one, parts = judged(data)
    assert one.judgement.answer is Answer.CANNOT_TELL
    assert says in parts[-1].why


@pytest.mark.parametrize("name", ["bindings", "large-messages", "paging"])
def test_a_folder_that_cannot_be_read_is_not_taken_for_one_that_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = broker(tmp_path, PAGED)
    (data / name).mkdir(exist_ok=True)
    listdir = os.listdir

    def refused(path: str) -> list[str]:
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refused)
    one, parts = judged(data / "journal")
    assert one.judgement.answer is Answer.CANNOT_TELL
    assert [part.path for part in parts if part.answer is not Answer.SAFE] == [str(data / name)]


@pytest.mark.parametrize(
    ("change", "safe"),
    [
        (lambda _: None, True),
        (gone("paging"), False),
        (lambda data: cut(data, 2), False),
        (lambda data: page(data, 3).unlink(), False),
    ],
)
def test_pages_that_are_counted_are_needed(change: Change, safe: bool, tmp_path: Path) -> None:
    data = broker(tmp_path, PAGED)
    change(data)
    found = answer(data)
    assert found[:2] == (
        (Answer.SAFE, "next-file") if safe else (Answer.CANNOT_TELL, "beside-the-log")
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: cut(data, 1), "000000001.page ends within a message"),
        (lambda data: page(data, 2).unlink(), "000000002.page is missing between others"),
        (
            lambda data: page(data, 2).rename(page(data, 2).with_name("999999999.page")),
            "000000002.page is missing between others",
        ),
        (
            lambda data: page(data, 2).write_bytes(b""),
            "000000002.page holds no message, and a later page is there",
        ),
        (lambda data: _address(data).write_text("\ufeffq0"), "and its pages are of 'q0'"),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_page_that_no_broker_leaves_is_told_where_the_count_does_not_tell(
    change: Change, words: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count in the journal is older than the pages: those of the last one are not in it."""
    monkeypatch.setattr("tallystick.systems.jboss.format.messages.counted", lambda *_: number)
    data = broker(tmp_path, PAGED)
    assert answer(data)[0] is Answer.SAFE
    change(data)
    one, parts = judged(data)
    assert one.judgement.answer is Answer.CANNOT_TELL
    assert words in parts[2].why


def test_a_file_of_another_size_of_a_large_message_that_a_page_names_is_told(
    tmp_path: Path,
) -> None:
    """Artemis 2.40 delivers what is there, or what another message had."""
    data = broker(tmp_path, PAGED)
    path = page(data, 1)
    path.write_bytes(path.read_bytes() + entry(WRITTEN))
    (data / "large-messages").mkdir(exist_ok=True)
    large = data / "large-messages" / "271.msg"
    for size, answered in (
        (150_000, Answer.SAFE),
        (60_000, Answer.CANNOT_TELL),
        (150_001, Answer.CANNOT_TELL),
    ):
        large.write_bytes(bytes(size))
        assert answer(data)[0] is answered


def made(data: Path, folder: str, name: str, files: dict[int, list[Item]]) -> None:
    """A journal of files by their ids; their names count from 1."""
    (data / folder).mkdir(parents=True, exist_ok=True)
    for number, (file_id, items) in enumerate(files.items(), 1):
        content = image("g3", file_id, items, fill=b"\0")
        (data / folder / name.format(number)).write_bytes(content)


MESSAGES, BOUND = "activemq-data-{}.amq", "activemq-bindings-{}.bindings"
SAFE, DOUBT = WHOLE, DOUBTED


@pytest.mark.parametrize(
    ("waiting", "notes", "bound", "expected"),
    [
        (2, [(1, ID_BATCH)], 2, SAFE),  # in its first life
        (3, [(1, ID_BATCH), (ID_BATCH + 2, 2 * ID_BATCH)], 3, SAFE),  # killed, and started again
        (2, [(1, ID_BATCH), (ID_BATCH + 2, 2 * ID_BATCH)], 3, DOUBT),
        (3, [(20, ID_BATCH)], 3, SAFE),  # stopped in order, and started again
        (2, [(20, ID_BATCH)], 3, DOUBT),
        (4, [(3 * ID_BATCH, 4 * ID_BATCH)], 3, DOUBT),  # three starts, and two ids
        (5, [(3 * ID_BATCH, 4 * ID_BATCH)], 3, SAFE),
        (3, [], 4, DOUBT),  # files of the bindings tell, too
        (4, [], 4, SAFE),
    ],
)
def test_each_start_that_the_bindings_note_is_one_of_the_journal(
    waiting: int,
    notes: list[tuple[int, int]],
    bound: int,
    expected: tuple[Answer, str],
    tmp_path: Path,
) -> None:
    """Artemis 2.40 drops what was sent since where the journal is that of yesterday."""
    data = tmp_path / "data"
    items = [add(one, limit.to_bytes(8, "big"), IDS_GIVEN) for one, limit in notes]
    made(data, "journal", MESSAGES, {1: [add(10)], waiting: []})
    made(data, "bindings", BOUND, {1: items or [add(1)], bound: []})
    assert answer(data)[:2] == expected


KILLED = [(1, ID_BATCH), (ID_BATCH + 2, 2 * ID_BATCH + 1)]
STOPPED = [(1, ID_BATCH), (90, 90)]
KILLED_NOTE = (ID_BATCH.to_bytes(8, "big"), IDS_GIVEN)


@pytest.mark.parametrize(
    ("notes", "ids", "expected"),
    [
        (KILLED[:1], [10, 300], SAFE),
        (KILLED[:1], [10, 7], DOUBT),  # the queue has that id
        (KILLED, [10, ID_BATCH + 3], SAFE),
        (KILLED, [10, ID_BATCH + 2], DOUBT),  # the note of its second start has it
        (KILLED[:1], [10, ID_BATCH + 30], DOUBT),  # no such id was ever noted
        (STOPPED, [10, 92], SAFE),  # what a broker writes while it stops
        (STOPPED, [10, 200], DOUBT),
    ],
)
def test_a_journal_with_ids_that_the_bindings_do_not_leave_it_is_of_another_broker(
    notes: list[tuple[int, int]], ids: list[int], expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """Artemis 2.40 starts with both, and shows the messages of the other broker."""
    noted = [add(one, limit.to_bytes(8, "big"), IDS_GIVEN) for one, limit in notes]
    made(tmp_path, "journal", MESSAGES, {1: [add(one) for one in ids], 9: []})
    made(tmp_path, "bindings", BOUND, {1: [*noted, QUEUE_7], 2: []})
    assert answer(tmp_path)[:2] == expected


def test_a_transaction_of_both_journals_is_of_two_brokers(tmp_path: Path) -> None:
    """Each is in one of them: of messages, or of what is bound."""
    made(tmp_path, "journal", MESSAGES, {1: [add_tx(9, 10), commit(9, 1)], 20: []})
    for number, expected in ((8, SAFE), (9, DOUBT)):
        bound = [add_tx(number, 7, QUEUE_7.body or b"", QUEUE), commit(number, 1)]
        shutil.rmtree(tmp_path / "bindings", ignore_errors=True)
        made(tmp_path, "bindings", BOUND, {1: [add(1, *KILLED_NOTE), *bound], 2: []})
        assert answer(tmp_path)[:2] == expected


def renamed(address: str) -> Change:
    """Have the bindings name the queues of the address orders by another one, of that length."""

    def change(data: Path) -> None:
        for path in (data / "bindings").glob("*.bindings"):
            before, after = ("orders".encode("utf-16-le"), address.encode("utf-16-le"))
            path.write_bytes(path.read_bytes().replace(before, after))

    return change


@pytest.mark.parametrize(
    ("address", "expected"),
    [("orders", WHOLE), ("claims", DOUBTED), ("bill.#", WHOLE), ("$sys.1", WHOLE)],
)
def test_messages_of_another_address_than_their_queue_are_of_another_broker(
    address: str, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """Artemis 2.40 delivers them to who takes from that queue."""
    data = broker(tmp_path)
    renamed(address)(data)
    assert answer(data)[:2] == expected


def test_hornetq_gives_the_id_of_a_note_once_more(tmp_path: Path) -> None:
    notes = [add(one, limit.to_bytes(8, "big"), IDS_GIVEN) for one, limit in KILLED]
    made(tmp_path, "journal", "hornetq-data-{}.hq", {1: [add(10), add(ID_BATCH + 2)], 9: []})
    made(tmp_path, "bindings", "hornetq-bindings-{}.bindings", {1: [*notes, QUEUE_7], 2: []})
    assert answer(tmp_path)[:2] == SAFE


@pytest.mark.parametrize(("waiting", "expected"), [(4, DOUBT), (5, SAFE)])
def test_a_start_after_a_stop_in_order_took_an_id_too(
    waiting: int, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """The ids of records do not tell of it: those after it go on where those before ended."""
    starts = [(200, ID_BATCH), (ID_BATCH + 2, 2 * ID_BATCH)]
    notes = [add(one, limit.to_bytes(8, "big"), IDS_GIVEN) for one, limit in starts]
    full = [add(one) for one in range(1, 38)]  # as many as a file holds
    made(tmp_path, "journal", MESSAGES, {1: full, 2: [add(99)], waiting: []})
    made(tmp_path, "bindings", BOUND, {1: notes, 9: []})
    assert answer(tmp_path)[:2] == expected


@pytest.mark.parametrize(("waiting", "expected"), [(4, DOUBT), (5, SAFE)])
def test_a_start_before_what_the_last_file_adds_first_took_an_id_after_it_too(
    waiting: int, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """No id is missing before that file, so the file was there at that start."""
    starts = [(50, ID_BATCH), (ID_BATCH + 2, 2 * ID_BATCH)]
    notes = [add(one, limit.to_bytes(8, "big"), IDS_GIVEN) for one, limit in starts]
    full = [add(one) for one in range(1, 38)]
    made(tmp_path, "journal", MESSAGES, {1: full, 2: [delete(5), add(60)], waiting: []})
    made(tmp_path, "bindings", BOUND, {1: notes, 9: []})
    assert answer(tmp_path)[:2] == expected


@pytest.mark.parametrize(
    ("last", "waiting", "expected"), [(2, 3, DOUBT), (2, 4, SAFE), (3, 4, SAFE)]
)
def test_a_start_after_a_file_in_which_nothing_is_added_took_an_id_too(
    last: int, waiting: int, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """It took that of the file that waited then, before or behind the one with deletes alone."""
    notes = [add(ID_BATCH + 2, (2 * ID_BATCH).to_bytes(8, "big"), IDS_GIVEN)]
    full = [add(one) for one in range(1, 38)]
    made(tmp_path, "journal", MESSAGES, {1: full, last: [delete(5)], waiting: []})
    journal = tmp_path / "journal"
    (journal / MESSAGES.format(3)).rename(journal / MESSAGES.format(waiting))
    made(tmp_path, "bindings", BOUND, {1: notes, 2: []})
    assert answer(tmp_path)[:2] == expected


@pytest.mark.parametrize(("waiting", "expected"), [(4, DOUBT), (5, SAFE)])
def test_a_compaction_has_taken_the_ids_that_its_files_have_in_their_names(
    waiting: int, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """Of the two ids after the file that is used one is no start's."""
    notes = [add(ID_BATCH + 2, (2 * ID_BATCH).to_bytes(8, "big"), IDS_GIVEN)]
    copied = [replace(add(one), compact_count=1) for one in range(1, 38)]
    made(tmp_path, "journal", MESSAGES, {1: copied, 2: [add(39)], waiting: []})
    journal = tmp_path / "journal"
    for name, created in ((3, 4), (1, 3)):
        (journal / MESSAGES.format(name)).rename(journal / MESSAGES.format(created))
    made(tmp_path, "bindings", BOUND, {1: notes, 3: []})
    assert answer(tmp_path)[:2] == expected


@pytest.mark.parametrize(
    ("waiting", "last", "expected"),
    [
        ([3, 4], 99, DOUBT),
        ([4, 5], 99, DOUBT),  # it may have found both, or found one and been done with the other
        ([5, 6], 99, SAFE),
        ([4, 5], ID_BATCH + 3, SAFE),  # it has written something since
    ],
)
def test_a_start_gives_each_file_that_waits_a_new_id(
    waiting: list[int], last: int, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """Several wait where a broker has used files again that it was done with."""
    notes = [add(ID_BATCH + 2, (2 * ID_BATCH).to_bytes(8, "big"), IDS_GIVEN)]
    written = [add(99)] if last == 99 else [add(99), add(last)]
    made(tmp_path, "journal", MESSAGES, {2: written} | {one: [] for one in waiting})
    journal = tmp_path / "journal"
    for name, one in reversed(list(enumerate([2, *waiting], 1))):
        (journal / MESSAGES.format(name)).rename(journal / MESSAGES.format(one))
    full = image("g3", 1, [add(one) for one in range(1, 38)], fill=b"\0")
    (journal / MESSAGES.format(1)).write_bytes(full)
    made(tmp_path, "bindings", BOUND, {1: notes, 3: []})
    assert answer(tmp_path)[:2] == expected


@pytest.mark.parametrize(("started", "enough"), [(1, 2), (3, 6), (4, 8)])
def test_a_journal_without_a_record_took_ids_at_each_start_too(
    started: int, enough: int, tmp_path: Path
) -> None:
    made(tmp_path, "bindings", BOUND, {1: [add(1)], started + 1: []})
    made(tmp_path, "journal", MESSAGES, {enough - 1: [], enough: []})
    assert answer(tmp_path)[0] is Answer.SAFE
    if started > 1:
        made(tmp_path, "journal", MESSAGES, {enough - 2: [], enough - 1: []})
        assert answer(tmp_path)[:2] == DOUBT


@pytest.mark.parametrize(("file_id", "expected"), [(5, SAFE), (3, DOUBT)])
def test_a_start_of_a_journal_that_never_held_a_record_takes_two_ids_where_it_deletes_a_file_too(
    file_id: int, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """With a pool of two files Artemis 2.40 keeps the first and deletes the other at each start."""
    made(tmp_path, "bindings", BOUND, {1: [add(1)], 4: []})
    made(tmp_path, "journal", MESSAGES, {file_id: [], file_id + 1: []})
    journal = tmp_path / "journal"
    (journal / MESSAGES.format(2)).rename(journal / MESSAGES.format(file_id + 1))
    assert answer(tmp_path)[:2] == expected


IN_TRANSACTION = struct.pack(">qB", 5, 0) + bytes(40)
TRANSACTION, OF_TWO = struct.pack(">qi", 5, 1), struct.pack(">qi", 5, 2)


@pytest.mark.parametrize(("waiting", "fits"), [([8, 11], False), ([12, 13], True)])
def test_a_start_gives_new_ids_to_files_that_wait_beside_those_of_a_compaction(
    waiting: list[int], fits: bool, tmp_path: Path
) -> None:
    notes = [(1, ID_BATCH), (ID_BATCH + 2, 2 * ID_BATCH)]
    bound = [add(one, limit.to_bytes(8, "big"), IDS_GIVEN) for one, limit in notes]
    made(tmp_path, "bindings", BOUND, {1: bound, 3: []})
    copies = [replace(add(one), compact_count=1) for one in range(2, 76)]
    (tmp_path / "journal").mkdir()
    for name, file_id, items in (
        (9, 1, copies[:37]),
        (10, 2, copies[37:]),
        *((one, one, []) for one in waiting),
    ):
        content = image("g3", file_id, items, fill=b"\0")
        (tmp_path / "journal" / MESSAGES.format(name)).write_bytes(content)
    bindings = judged(tmp_path)[1][0]
    assert (bindings.part, bindings.answer is Answer.SAFE) == ("bindings", fits)


QUEUE_7 = add(7, (struct.pack(">i", 8) + "fast".encode("utf-16-le")) * 2, QUEUE)
TAKEN_FIRST = struct.pack(">qqi", 7, 2, 0)
TAKEN = struct.pack(">qqi", 7, 2, 0)


@pytest.mark.parametrize(
    ("user_type", "body", "pages", "expected"),
    [
        (PAGE_TRANSACTION, TRANSACTION, {1: IN_TRANSACTION}, SAFE),
        (PAGE_TRANSACTION, TRANSACTION, {1: IN_TRANSACTION[8:] + bytes(8)}, DOUBT),
        (PAGE_TRANSACTION, TRANSACTION, {}, DOUBT),
        (PAGE_TRANSACTION, OF_TWO, {1: IN_TRANSACTION, 2: IN_TRANSACTION}, SAFE),
        (PAGE_TRANSACTION, OF_TWO, {2: IN_TRANSACTION}, DOUBT),
        (PAGE_TAKEN[0], TAKEN, {1: bytes(40), 2: bytes(40)}, SAFE),
        (PAGE_TAKEN[0], TAKEN, {1: bytes(40)}, DOUBT),
        (PAGE_TAKEN[1], TAKEN, {1: bytes(40)}, DOUBT),
        (PAGE_TAKEN[0], TAKEN, {3: bytes(40)}, SAFE),  # it has just gone
        (PAGE_TAKEN[0], TAKEN, {}, DOUBT),
    ],
)
def test_a_page_that_the_journal_knows_of_is_needed(
    user_type: int,
    body: bytes,
    pages: dict[int, bytes],
    expected: tuple[Answer, str],
    tmp_path: Path,
) -> None:
    """Artemis 2.40 starts without them, and counts its messages anew."""
    made(tmp_path, "journal", MESSAGES, {1: [add(10, body, user_type)], 2: []})
    made(tmp_path, "bindings", BOUND, {1: [add(1)], 2: []})
    (tmp_path / "paging/one").mkdir(parents=True)
    (tmp_path / "paging/one/address.txt").write_text("fast")
    for number, message in pages.items():
        (tmp_path / f"paging/one/{number:09}.page").write_bytes(entry(message))
    assert answer(tmp_path)[:2] == expected


QUEUE_8 = add(8, QUEUE_7.body or b"", QUEUE)
SENT = struct.pack(">qBBq", -1, 0, 1, 20) + bytes(40)
"""A message with the id 20."""


def all_taken(number: int, queue: int = 7) -> list[Item]:
    """A record that this queue has taken all of the second page, and its end after the page's."""
    return [add(number, struct.pack(">qqi", queue, 2, 0), ALL_TAKEN), delete(number)]


@pytest.mark.parametrize(
    ("listed", "queues", "expected"),
    [
        ([], [QUEUE_7], DOUBT),
        (all_taken(30), [QUEUE_7], SAFE),
        (all_taken(30)[:1], [QUEUE_7], SAFE),  # it was killed between the two
        (all_taken(30), [QUEUE_7, QUEUE_8], DOUBT),
        ([*all_taken(30), *all_taken(31, 8)], [QUEUE_7, QUEUE_8], SAFE),
        (all_taken(19), [QUEUE_7], DOUBT),  # that was a page of an earlier time with that number
        (all_taken(30), [], DOUBT),
    ],
)
def test_a_page_between_others_is_gone_where_each_queue_has_taken_all_of_it(
    listed: list[Item], queues: list[Item], expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """Artemis 2.40 does not wait for the pages before it."""
    made(tmp_path, "journal", MESSAGES, {1: [add(10), *listed], 2: []})
    made(tmp_path, "bindings", BOUND, {1: queues or [add(1)], 2: []})
    (tmp_path / "paging/one").mkdir(parents=True)
    (tmp_path / "paging/one/address.txt").write_text("fast")
    for number in (1, 3):
        (tmp_path / f"paging/one/{number:09}.page").write_bytes(entry(SENT))
    assert answer(tmp_path)[:2] == expected


@pytest.mark.parametrize(("others", "expected"), [([], SAFE), ([8], DOUBT)])
def test_the_pages_of_an_address_go_with_the_last_of_its_queues(
    others: list[int], expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """Artemis 2.40 keeps what a queue has taken when it is dropped, and starts with all else."""
    made(tmp_path, "journal", MESSAGES, {1: [add(10, TAKEN, ALL_TAKEN)], 2: []})
    bound = [QUEUE_7, *(replace(QUEUE_7, record_id=one) for one in others), delete(7)]
    made(tmp_path, "bindings", BOUND, {1: bound, 2: []})
    (tmp_path / "paging").mkdir()
    assert answer(tmp_path)[:2] == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([], DOUBT),
        ([update(10, TRANSACTION, PAGE_TRANSACTION), add(11, TAKEN_FIRST, MESSAGE_TAKEN)], DOUBT),
        ([update(10, TRANSACTION, PAGE_TRANSACTION)], SAFE),  # that was on a page that is gone
    ],
)
def test_what_is_left_of_a_transaction_in_pages_is_there(
    listed: list[Item], expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """A queue that takes a message from a page counts it off, in one transaction."""
    before = add(9, struct.pack(">qqi", 7, 1, 0), MESSAGE_TAKEN)
    items = [before, add(10, OF_TWO, PAGE_TRANSACTION), *listed]
    made(tmp_path, "journal", MESSAGES, {1: items, 2: []})
    made(tmp_path, "bindings", BOUND, {1: [QUEUE_7], 2: []})
    (tmp_path / "paging/one").mkdir(parents=True)
    (tmp_path / "paging/one/address.txt").write_text("fast")
    (tmp_path / "paging/one/000000002.page").write_bytes(entry(IN_TRANSACTION))
    assert answer(tmp_path)[:2] == expected


IN_TRANSACTION_9 = struct.pack(">q", 9) + WRITTEN[8:]
NOT_DURABLE = WRITTEN[:36] + b"\0" + WRITTEN[37:]
ANOTHER_TAKEN, THIS_TAKEN = struct.pack(">qqi", 7, 1, 0), struct.pack(">qqi", 7, 1, 1)


@pytest.mark.parametrize(
    ("message", "queue", "listed", "expected"),
    [
        (WRITTEN, QUEUE_7, add(10), DOUBT),
        (WRITTEN, QUEUE_7, add(10, ANOTHER_TAKEN, MESSAGE_TAKEN), DOUBT),
        (WRITTEN, QUEUE_7, add(10, THIS_TAKEN, MESSAGE_TAKEN), SAFE),
        (WRITTEN, QUEUE_7, add(10, THIS_TAKEN, ALL_TAKEN), SAFE),
        (WRITTEN, add(7), add(10), SAFE),  # the queue is gone
        (NOT_DURABLE, QUEUE_7, add(10), SAFE),
        (IN_TRANSACTION_9, QUEUE_7, add(10), SAFE),  # it may have been rolled back
        (IN_TRANSACTION_9, QUEUE_7, add(10, struct.pack(">qi", 9, 1), PAGE_TRANSACTION), DOUBT),
    ],
)
def test_a_large_message_that_waits_in_a_page_has_its_file(
    message: bytes, queue: Item, listed: Item, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """Artemis 2.40 delivers it without its body, and says nothing."""
    made(tmp_path, "journal", MESSAGES, {1: [listed], 2: []})
    made(tmp_path, "bindings", BOUND, {1: [queue], 2: []})
    (tmp_path / "paging/one").mkdir(parents=True)
    (tmp_path / "paging/one/address.txt").write_text("fast")
    first = struct.pack(">qB", -1, 0) + bytes(40)
    (tmp_path / "paging/one/000000001.page").write_bytes(entry(first) + entry(message))
    assert answer(tmp_path)[:2] == expected


IN_PAGE_OF_9 = struct.pack(">qi", 9, 1)


@pytest.mark.parametrize(
    ("sent", "queue", "part", "words"),
    [
        (add_tx(9, 70, IN_PAGE_OF_9, PAGE_TRANSACTION), QUEUE_7, "paging", "the first of them 9"),
        (add_tx(9, 70, b"", LARGE_MESSAGE), QUEUE_7, "large messages", "70.msg is missing"),
        (add_tx(9, 70, b"", MESSAGE), add(7), "bindings", "1 message of transactions in doubt"),
    ],
)
@pytest.mark.parametrize(
    ("end", "expected"), [(prepare(9, b"xid"), DOUBT), (rollback(9), SAFE), (add(71), SAFE)]
)
def test_what_a_transaction_in_doubt_has_sent_is_there(
    sent: Item,
    queue: Item,
    part: str,
    words: str,
    end: Item,
    expected: tuple[Answer, str],
    tmp_path: Path,
) -> None:
    """Artemis 2.40 starts without, and has nothing to deliver once it is told to commit."""
    held = add_tx(9, 70, struct.pack(">q", 7), REFERENCE)
    begun = [sent] if part == "paging" else [sent, replace(held, type=RecordType.UPDATE_TX)]
    counted = replace(end, count=len(begun)) if end.type is RecordType.PREPARE else end
    made(tmp_path, "journal", MESSAGES, {1: [add(10), *begun, counted], 2: []})
    made(tmp_path, "bindings", BOUND, {1: [queue], 2: []})
    assert answer(tmp_path)[:2] == expected
    if expected == DOUBT:
        (why,) = (one.why for one in judged(tmp_path)[1] if one.part == part)
        assert words in why


@pytest.mark.parametrize(
    ("past", "first", "expected"),
    [
        ([], 1, SAFE),
        ([], 2, DOUBT),
        ([add(11, TAKEN, PAGE_TAKEN[0]), delete(11)], 2, SAFE),  # the first page may be done with
    ],
)
def test_a_first_page_goes_only_after_reads(
    past: list[Item], first: int, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    data = broker(tmp_path, PAGED)
    path = data / "journal/activemq-data-1.amq"
    size = path.stat().st_size
    path.write_bytes(image("g3", 1, [add(10), *past], size, b"\0"))
    for number in range(1, first):
        page(data, number).unlink()
    assert answer(data)[:2] == expected


@pytest.mark.parametrize(
    ("past", "paged", "size", "expected"),
    [
        ([], False, 9, DOUBT),
        ([], True, 150_000, SAFE),
        ([], False, 0, SAFE),  # it was made, and nothing was sent yet
        ([add(271, b"", LARGE_MESSAGE), delete(271)], False, 9, SAFE),  # it goes after its record
        ([add(11, struct.pack(">q", 271), UNFINISHED_LARGE)], False, 9, SAFE),
        ([add(11, TAKEN, PAGE_TAKEN[0]), delete(11)], False, 9, SAFE),  # so it does in a page
    ],
)
def test_a_file_of_a_large_message_that_nothing_names_tells_of_a_page(
    past: list[Item], paged: bool, size: int, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    """Artemis 2.40 takes pages that are not there for read, and leaves the file."""
    made(tmp_path, "journal", MESSAGES, {1: [add(10), *past], 2: []})
    made(tmp_path, "bindings", BOUND, {1: [QUEUE_7], 2: []})
    (tmp_path / "large-messages").mkdir()
    (tmp_path / "large-messages/271.msg").write_bytes(bytes(size))
    if paged:
        (tmp_path / "paging/one").mkdir(parents=True)
        (tmp_path / "paging/one/address.txt").write_text("fast")
        (tmp_path / "paging/one/000000001.page").write_bytes(entry(WRITTEN))
    assert answer(tmp_path)[:2] == expected


@pytest.mark.parametrize(
    ("first", "number", "expected"),
    [
        (ID_BATCH + 2, 2 * ID_BATCH + 9, DOUBT),
        (ID_BATCH + 2, ID_BATCH + 9, SAFE),  # its record may have been in a file that was given up
        (2 * ID_BATCH + 2, 2 * ID_BATCH + 9, SAFE),
        (2 * ID_BATCH + 2, 2 * ID_BATCH + 400, DOUBT),  # given long after the first record there
    ],
)
def test_what_was_sent_after_the_first_record_has_its_own_in_files_in_a_row(
    first: int, number: int, expected: tuple[Answer, str], tmp_path: Path
) -> None:
    made(tmp_path, "journal", MESSAGES, {3: [add(first), add(2 * ID_BATCH + 50)], 5: []})
    made(tmp_path, "bindings", BOUND, {1: [QUEUE_7], 2: []})
    (tmp_path / "large-messages").mkdir()
    (tmp_path / f"large-messages/{number}.msg").write_bytes(bytes(9))
    assert answer(tmp_path)[:2] == expected


def page(data: Path, number: int) -> Path:
    return next((data / "paging").rglob(f"{number:09}.page"))


def cut(data: Path, number: int) -> None:
    path = page(data, number)
    path.write_bytes(path.read_bytes()[:1000])


def bindings_judged(data: Path) -> Verdict:
    found = tallystick.explain(data)
    return next(one for one in found.logs if one.path.endswith("bindings"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: [one.unlink() for one in (data / "journal").glob("*.amq")], "has no file"),
        (gone("journal"), "is missing"),
    ],
)
def test_bindings_without_their_journal_of_messages_are_no_whole_broker(
    change: Change, words: str, tmp_path: Path
) -> None:
    """The broker starts with its queues, and all 153 messages are gone."""
    data = broker(tmp_path)
    change(data)
    found = bindings_judged(data).judgement
    assert (found.answer, found.reason) == (Answer.CANNOT_TELL, "beside-the-log")
    assert f"The journal of messages {words}" in found.text
    assert found.decided_by == str(data / "journal")


@pytest.mark.parametrize("given", ["bindings", "bindings/activemq-bindings-1.bindings"])
def test_bindings_that_are_given_without_their_journal_do_not_tell(
    given: str, tmp_path: Path
) -> None:
    """Without large messages the start loses 600,000 bytes, of which bindings say nothing."""
    data = broker(tmp_path)
    gone("large-messages")(data)
    (one,) = tallystick.explain(data / given).logs
    assert (one.judgement.answer, one.judgement.reason) == DOUBTED
    assert one.judgement.decided_by == str(data / "journal")
    (row,) = tallystick.triage(data / given).logs
    assert row.judgement.answer is Answer.CANNOT_TELL
    (found,) = verify(data / given).findings
    assert (found.file, found.code) == (str(data / "journal"), "not-safe")
    assert bindings_judged(data).judgement.answer is Answer.LOSES
    both = tallystick.triage([data / "bindings", data / "journal"])
    assert {one.judgement.answer for one in both.logs} == {Answer.LOSES}


def test_a_journal_that_is_not_judged_with_its_bindings_does_not_decide(tmp_path: Path) -> None:
    """The settings lie beside the bindings, and nothing leads to them from the journal."""
    data = broker(tmp_path)
    (tmp_path / "far/away").mkdir(parents=True)
    (data / "journal").rename(tmp_path / "far/away/journal")
    (tmp_path / "etc").mkdir()
    text = f"<journal-directory>{tmp_path}/far/away/journal</journal-directory>"
    text += "<bindings-directory>./data/bindings</bindings-directory>"
    (tmp_path / "etc/broker.xml").write_text(f"<configuration>{text}</configuration>")
    found = tallystick.explain(tmp_path)
    assert {one.kind for one in found.databases} == {"broker", "log"}
    assert bindings_judged(data).judgement.decided_by == str(tmp_path / "far/away/journal")
    assert verify(tmp_path).exit_code


@pytest.mark.parametrize("name", ["journal/activemq-data-1.amq", "large-messages/221.msg"])
def test_one_packed_file_among_others_is_not_found_by_a_start(name: str, tmp_path: Path) -> None:
    """Artemis 2.40 has no message of that file."""
    data = broker(tmp_path)
    with gzip.open(f"{data / name}.gz", "wb") as packed:
        packed.write((data / name).read_bytes())
    (data / name).unlink()
    found = judged(data)[0].judgement
    assert (found.answer, found.reason) == DOUBTED
    assert f"does not find {Path(name).name}.gz" in found.text


def test_bindings_alone_are_judged_alone(tmp_path: Path) -> None:
    data = broker(tmp_path)
    gone("journal", "large-messages")(data)
    assert not (data / "paging").exists()
    found = bindings_judged(data)
    assert found.judgement.answer is Answer.SAFE
    assert found.surroundings is not None
    assert found.surroundings.kind == "log"


def test_files_whose_names_a_broker_does_not_list_are_told(tmp_path: Path) -> None:
    """As some copies make them; it starts with no queue and no message."""
    data = broker(tmp_path)
    for folder in ("journal", "bindings"):
        for file in (data / folder).iterdir():
            file.rename(file.with_name(file.name.upper()))
    one, parts = judged(data)
    assert one.judgement.answer is Answer.CANNOT_TELL
    assert ".amq, not in .AMQ" in parts[0].why
    assert one.judgement.decided_by == "whether they are renamed before the start"
    assert [part.fits for part in parts] == [False]
    assert bindings_judged(data).judgement.answer is Answer.CANNOT_TELL


@pytest.mark.parametrize("name", ["bindings", "large-messages", "journal"])
def test_folders_whose_names_a_broker_does_not_know_are_told(name: str, tmp_path: Path) -> None:
    """It makes new ones, and is empty: as a copy through a file system without letters' case."""
    data = broker(tmp_path)
    (data / name).rename(data / name.title())
    found = tallystick.explain(data)
    assert {one.judgement.answer for one in found.logs} == {Answer.CANNOT_TELL}
    (database,) = found.databases
    assert f"opens {name}, not {name.title()}" in database.judgement.text


def test_the_folders_of_an_old_application_server_are_those_of_a_broker(tmp_path: Path) -> None:
    data = broker(tmp_path)
    for folder in sorted(data.iterdir()):
        folder.rename(data / f"messaging{folder.name.replace('-', '')}")
    one, parts = judged(data)
    assert [part.part for part in parts if part.fits] == ["bindings", "large messages", "paging"]
    assert one.judgement.answer is Answer.SAFE


def test_what_lies_beside_is_not_of_a_journal_of_hornetq_where_artemis_has_one(
    tmp_path: Path,
) -> None:
    """Artemis 2.40 starts with its own, and with no message of HornetQ's."""
    data = broker(tmp_path)
    for file in (fixture_dir("jboss") / "g3-hornetq-2.4.9" / "basic").glob("*.hq*"):
        shutil.copy(file, data / "journal")
    found = tallystick.triage(data)
    assert {one.judgement.answer for one in found.logs} == {Answer.SAFE}
    kinds = {Path(one.path).name: one.kind for one in found.databases if one.kind != "log"}
    assert kinds == {"data": "broker"}
    assert {one.kind for one in found.databases} == {"broker", "log"}
