"""The report: complete without a browser, and well-behaved in a real one."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tallystick import Journal
from tallystick.arrow.schemas import FINDINGS, LOGS
from tallystick.arrow.texts import whole_text
from tallystick.errors import LogUnreadableError, LogWriteError
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tallystick.report import write_report
from tests.kit import untouched
from tests.report.conftest import BROWSER_SECONDS, answer, due, finding, write_table
from tests.rescue.kit import limited_file_size

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


def test_the_page_holds_everything_it_shows(tables: Path) -> None:
    text = write_report(tables, tables / "report.html").read_text()
    assert "src=" not in text.partition("<script>")[0]
    assert "http-equiv" in text
    assert "lost-commit" in text


def test_the_page_is_its_owners_alone_and_follows_no_link(tables: Path, tmp_path: Path) -> None:
    other, page = tmp_path / "other", tables / "report.html"
    other.write_text("kept")
    page.with_name("report.html.partial").symlink_to(other)
    before = os.umask(0)
    try:
        write_report(tables, page)
    finally:
        os.umask(before)
    assert page.stat().st_mode & 0o777 == 0o600
    assert other.read_text() == "kept"


def test_a_full_disk_leaves_the_page_that_was_there_and_no_part_of_a_new_one(tables: Path) -> None:
    page = tables / "report.html"
    page.write_text("before")
    with limited_file_size(10_000), pytest.raises(LogWriteError, match="cannot write the report"):
        write_report(tables, page)
    assert page.read_text() == "before"
    assert [*tables.glob("report.html*")] == [page]


def test_a_pipe_or_a_link_is_written_to_and_stays_what_it_is(tables: Path, tmp_path: Path) -> None:
    """As root the page took the place of /dev/null."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "page.html")
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        for page in (pipe, link):
            write_report(tables, page)
        assert pipe.is_fifo()
        assert reader.read(15) == link.read_bytes()[:15] == b"<!doctype html>"
    assert link.is_symlink()


def test_a_name_that_is_no_text_is_one_of_a_page(tables: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff")
    assert write_report(tables, odd).read_bytes().startswith(b"<!doctype html>")
    odd.unlink()
    with pytest.raises(LogUnreadableError, match="utf-8"):  # no path of Arrow's
        write_report(shutil.copytree(tables, odd), tables / "report.html")


def test_a_log_whose_name_is_no_text_is_shown_and_typed_as_at_a_terminal(tables: Path) -> None:
    name = os.fsdecode(b"/e/bad\xff")
    write_table(tables, "logs", LOGS, [answer(whole_text(name), "refuses")])
    text = html.unescape(write_report(tables, tables / "report.html").read_text("utf-8"))
    assert ("bad\\udcff" in text, "\ufffd" in text) == (True, False)
    assert "tallystick explain $'/e/bad\\xff'" in text


def test_text_of_a_log_never_becomes_markup(tables: Path) -> None:
    text = write_report(tables, tables / "report.html").read_text()
    assert "<script>alert(1)" not in text
    assert "evidence &lt;2&gt; &amp; more" in text


@pytest.mark.parametrize("bucket", [(1 << 63) // 1_000_000 // 60 * 60, -(1 << 53), 1 << 62])
def test_a_time_that_no_calendar_has_leaves_the_page(tables: Path, bucket: int) -> None:
    (file,) = (tables / "profile").glob("*.parquet")
    rows = parquet.read_table(file)
    row = rows.slice(0, 1).to_pylist()[0] | {"bucket": bucket, "clock": "wall_us"}
    far = pa.Table.from_pylist([row], rows.schema)
    parquet.write_table(pa.concat_tables([rows, far]), file)
    assert "lost-commit" in write_report(tables, tables / "report.html").read_text()


HOSTILE = "<b>x<br>\x1b]0;t\x07\u202e&#x202e;%{x}<script>alert(2)"


@pytest.fixture
def hostile(tables: Path) -> Path:
    """The tables of an estate whose logs have hostile names and messages."""
    for path in tables.rglob("*.parquet"):
        table = parquet.read_table(path)
        for column in ("log", "file", "message", "owner", "evidence"):
            if column in table.schema.names:
                values = [
                    None if one is None else one + HOSTILE for one in table[column].to_pylist()
                ]
                place = table.schema.get_field_index(column)
                table = table.set_column(place, table.schema.field(column), [values])
        parquet.write_table(table, path)
    return tables


def test_control_characters_of_a_log_never_reach_the_page(hostile: Path) -> None:
    text = write_report(hostile, hostile / "report.html").read_text()
    ours = text.partition("<script>")[0] + text.partition('id="figures"')[2]
    assert "\\x1b]0;t\\x07\\u202e" in ours
    assert "\x1b" not in ours
    assert "\u202e" not in ours
    assert "<b>x<" not in ours


def test_what_cannot_be_had_back_comes_first_and_safe_logs_are_one_line(tables: Path) -> None:
    rows = [answer(f"/e/{one}", one) for one in ("safe", "cannot-tell", "loses", "refuses")]
    write_table(tables, "logs", LOGS, rows)
    page = write_report(tables, tables.parent / "report.html").read_text("utf-8")
    titles = re.findall("<h3>(.*)</h3>", page)
    assert titles == [
        "Commit in h2 before its coordinator starts",
        "Mend by hand",
        "LOSES: derby",
        "REFUSES: derby",
        "Leave it to its coordinator",
        "CANNOT TELL: derby",
        "Roll back in h2",
    ]
    assert "<summary>1 of 4 logs is safe</summary>" in page
    assert page.index('id="due"') < page.index('id="answers"') < page.index('id="findings"')


def test_each_card_has_what_is_typed_and_a_button_that_copies_it(tables: Path) -> None:
    page = write_report(tables, tables / "report.html").read_text("utf-8")
    lost = page.partition('id="tx-62616e6b2d31020202020202020202020202"')[2].partition(
        "</article>"
    )[0]
    typed = re.findall('<code>(.*?)</code><button type="button" data-copy>copy</button>', lost)
    assert typed[0] == "62616e6b2d31020202020202020202020202"
    assert typed[1].startswith("COMMIT TRANSACTION &#34;XID_1114926712_")
    assert typed[2] == "tallystick indoubt explain 62616e6b2d31020202020202020202020202 /e"


def test_a_script_keeps_its_lines(tables: Path) -> None:
    branch = {"system": "derby", "log": "/e/d", "resource": "a", "state": "prepared"}
    row = due(2, "commit", "lost-commit") | {"branches": [branch | {"due": "commit"}]}
    write_table(tables, "global_transactions", GLOBAL_TRANSACTIONS, [row])
    page = write_report(tables, tables / "report.html").read_text("utf-8")
    assert "&lt;&lt;&#39;EOF&#39;\nimport javax.transaction.xa.*;\n" in page


def test_evidence_is_a_list(tables: Path) -> None:
    row = due(2, "commit") | {"evidence": "one; two in /e/d offset 7"}
    write_table(tables, "global_transactions", GLOBAL_TRANSACTIONS, [row])
    page = write_report(tables, tables / "report.html").read_text("utf-8")
    assert '<ul class="file"><li>one</li><li>two in /e/d offset 7</li></ul>' in page


@pytest.mark.parametrize(
    ("clock", "time", "said"),
    [
        ("wall_ms", 0, "last heard of 1970-01-01T00:00:00.000Z, "),
        ("wall_us", 10**6, "last heard of 1970-01-01T00:00:01.000Z, "),
        ("boot_ms", 5, None),
        ("none", None, None),
    ],
)
def test_an_age_is_by_the_time_of_day_or_there_is_none(
    tables: Path, clock: str, time: int | None, said: str | None
) -> None:
    row = due(2, "commit") | {"last_time": time, "clock": clock}
    write_table(tables, "global_transactions", GLOBAL_TRANSACTIONS, [row])
    page = write_report(tables, tables / "report.html").read_text("utf-8")
    assert ("last heard of" in page) is (said is not None)
    assert said is None or re.search(re.escape(said) + r"[0-9,]+ days before", page)


def test_a_missing_table_is_said_with_what_to_do(tables: Path) -> None:
    shutil.rmtree(tables / "findings")
    with pytest.raises(LogUnreadableError, match="pipeline run"):
        write_report(tables, tables / "report.html")


def test_a_damaged_table_is_named(tables: Path) -> None:
    (tables / "findings" / "part-0.parquet").write_bytes(b"no parquet")
    with pytest.raises(LogUnreadableError, match="findings"):
        write_report(tables, tables / "report.html")


@pytest.mark.parametrize(
    ("name", "found"),
    [("part-0.json", "part-0.json"), ("part-0.zstd.orc", "part-0.zstd.orc"),
     ("_delta_log", "a table of Delta"), ("metadata", "metadata")],
)  # fmt: skip
def test_tables_in_another_format_are_said_in_one_sentence(
    tables: Path, name: str, found: str
) -> None:
    """Beside Parquet, too: the files of a Delta table hold rows of older versions."""
    (tables / "findings" / name).mkdir()
    with pytest.raises(LogUnreadableError) as refused:
        write_report(tables, tables / "report.html")
    assert str(refused.value) == (
        f"{tables}/findings: the table is not in Parquet; found {found}. The report reads "
        "Parquet; run the pipeline with --format parquet, into another folder"
    )


def test_a_page_that_cannot_be_written_leaves_the_old_one(tables: Path) -> None:
    (tables / "occupied").write_text("a file")
    with pytest.raises(LogWriteError):
        write_report(tables, tables / "occupied" / "report.html")


@pytest.mark.parametrize("name", ["0000000000000001.tally", "lock"])
def test_a_page_never_takes_the_place_of_what_belongs_to_a_log(
    tables: Path, tmp_path: Path, name: str
) -> None:
    with Journal(tmp_path / "log") as journal:
        journal.add(1, b"kept")
    with untouched(tmp_path / "log"), pytest.raises(LogWriteError, match="Name another file"):
        write_report(tables, tmp_path / "log" / name)


@pytest.fixture
def page(tables: Path, browser: Chrome) -> Chrome:
    """The report in the browser."""
    for name in ("browser", "performance"):
        _log(browser, name)  # what was before belongs to another page
    browser.get(write_report(tables, tables / "report.html").as_uri())
    return browser


@pytest.mark.browser
@pytest.mark.timeout(2 * BROWSER_SECONDS)
def test_a_hostile_name_is_text_in_a_browser(hostile: Path, browser: Chrome) -> None:
    browser.get(write_report(hostile, hostile / "report.html").as_uri())
    shown = browser.execute_script("return document.body.textContent")
    assert "<b>x<br>\\x1b]0;t\\x07\\u202e&#x202e;%{x}<script>alert(2)" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.browser
@pytest.mark.timeout(2 * BROWSER_SECONDS)
class TestInBrowser:
    def test_no_console_error_and_no_request_leaves_the_page(self, page: Chrome) -> None:
        assert [line for line in _log(page, "browser") if line["level"] == "SEVERE"] == []
        messages = [json.loads(line["message"])["message"] for line in _log(page, "performance")]
        requests = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        ours = [one["request"]["url"] for one in requests if one["documentURL"] == page.current_url]
        assert ours
        assert [url for url in ours if not url.startswith(("file:", "data:", "blob:"))] == []

    def test_lines_and_maps_are_drawn(self, page: Chrome) -> None:
        points = page.execute_script(
            "return [...document.querySelectorAll('svg.line polyline')].map(e => e.points.length)"
        )
        assert points == [4, 4, 4]
        assert page.execute_script("return document.querySelectorAll('svg.map rect').length") == 2

    def test_a_button_copies_what_stands_before_it(self, page: Chrome) -> None:
        page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
        copied = page.execute_async_script(
            "const done = arguments[0], button = document.querySelector('#due [data-copy]');"
            "button.click();"
            "const look = () => button.textContent === 'copy' ? setTimeout(look, 5)"
            " : navigator.clipboard.readText().then(text => done([button.textContent, text]));"
            "look();"
        )
        assert copied == ["copied", "62616e6b2d31020202020202020202020202"]

    def test_links_lead_to_headings(self, page: Chrome) -> None:
        targets = page.execute_script(
            "const links = [...document.querySelectorAll('nav a')];"
            "return links.map(link => !!document.querySelector(link.hash))"
        )
        assert len(targets) == 5
        assert all(targets)

    @pytest.mark.parametrize(
        ("value", "shown"), [("commit", 1), ("foreign", 1), ("heuristic_mismatch", 1), ("", 4)]
    )
    def test_filters_show_what_they_say(self, page: Chrome, value: str, shown: int) -> None:
        page.execute_script(
            f"document.querySelector('[data-for=cards] button[data-value=\"{value}\"]').click()"
        )
        assert visible(page, "cards") == shown

    def test_search_narrows_the_rows(self, page: Chrome) -> None:
        page.execute_script(
            "const box = document.querySelector('[data-for=finding-rows] input');"
            "box.value = 'IS LOST'; box.dispatchEvent(new Event('input'))"
        )
        assert visible(page, "finding-rows") == 1

    def test_both_themes_can_be_read(self, page: Chrome) -> None:
        colours = []
        for _ in range(2):
            page.execute_script("document.getElementById('theme').click()")
            colours.append(
                page.execute_script(
                    "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
                )
            )
        for text, ground in colours:
            assert _contrast(text, ground) > 7

    def test_nothing_sticks_out_on_a_phone(self, page: Chrome) -> None:
        page.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True},
        )
        try:
            width = page.execute_script("return document.documentElement.scrollWidth")
            search = page.find_element("css selector", ".filters input").size["width"]
        finally:
            page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        assert width <= 390
        assert search >= 240  # what may be searched for is not cut


def _log(page: Chrome, name: str) -> list[dict[str, Any]]:
    get: Any = page.get_log
    lines: list[dict[str, Any]] = get(name)
    return lines


def visible(page: Chrome, rows: str) -> int:
    count = page.execute_script(
        f"return [...document.getElementById('{rows}').children].filter(r => !r.hidden).length"
    )
    return int(count)


def _contrast(one: str, other: str) -> float:
    """The ratio of luminances, as the accessibility guidelines define it."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("risk", [512, None])
def test_a_column_that_nothing_stands_in_is_left_out(tables: Path, risk: int | None) -> None:
    row = finding("loss", "lost-commit", "a commit is lost") | {"bytes_at_risk": risk}
    write_table(tables, "findings", FINDINGS, [row])
    page = write_report(tables, tables / "report.html").read_text("utf-8")
    assert ("Bytes at risk" in page) == (risk is not None)
