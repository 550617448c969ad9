"""The report over a large estate: bounded, fast, and readable on a phone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tallystick.arrow.schemas import FILES, FINDINGS, LOGS, TRANSACTIONS
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tallystick.report import data as limits
from tallystick.report import write_report
from tallystick.report.data import load
from tallystick.report.page import ROWS_SHOWN
from tests.report.conftest import (
    BROWSER_SECONDS,
    PROFILE,
    answer,
    due,
    finding,
    processor_seconds,
    write_table,
)
from tests.report.test_page import visible

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

COUNT, DUE, FOUND = 300, 6_000, 4_000

BYTES_MAX = 1_500_000
"""Of a page."""


def _log(number: int) -> str:
    return f"/estates/region-{number % 7}/site-{number:03}/derby/log"


def _tables() -> Iterator[tuple[str, pa.Schema, list[dict[str, Any]]]]:
    logs = [{"system": "derby", "log": _log(number)} for number in range(COUNT)]
    states = ("committed",) * 8 + ("prepared",)
    yield "files", FILES, [
        log | {"file": f"{log['log']}/log{n}.dat", "order": n, "size": 100, "valid_bytes": 100}
        for log in logs for n in range(4)
    ]  # fmt: skip
    yield "transactions", TRANSACTIONS, [log | {"state": s} for log in logs for s in states]
    kinds = (
        ("rollback", None),
        ("commit", "lost-commit"),
        ("heuristic_mismatch", "heuristic-mismatch"),
    )
    yield "global_transactions", GLOBAL_TRANSACTIONS, [
        due(number % 200, *kinds[number % 3 if number > DUE - 300 else 0])
        | {"evidence": f"PREPARE in {_log(number % COUNT)}/log1.dat offset {number}; " * 6}
        for number in range(DUE)
    ]  # fmt: skip
    yield "findings", FINDINGS, [
        finding("damage" if number % 9 else "loss", "torn", f"a record is torn ({number}) " * 5)
        for number in range(FOUND)
    ]  # fmt: skip
    clocks = ("wall_ms", "boot_ms")
    yield "profile", PROFILE, [
        log | {"clock": clocks[n % 2], "bucket": 60 * (m + (1 - n % 2) * 29_000_000),
               "transactions": n + m, "latency_p50": 0.01 * n, "group_records_avg": 3.0}
        for n, log in enumerate(logs) for m in range(60)
    ]  # fmt: skip


def test_a_pipe_or_a_device_gets_one_page_and_nothing_beside_it(
    large: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "pipe-logs").mkdir()
    (tmp_path / "pipe-logs/index.html").write_text("of somebody else")
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text, "utf-8")
        write_report(large, pipe)
    assert "-logs/" not in read.result()
    write_report(large, "/dev/null")
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["index.html", "pipe", "pipe-logs"]
    assert not Path("/dev/null-logs").exists()


def test_standard_output_that_is_a_file_gets_one_page(large: Path, tmp_path: Path) -> None:
    with (tmp_path / "page.html").open("w") as out:
        command = [sys.executable, "-m", "tallystick", "report", str(large), "-o", "/dev/stdout"]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert (text.startswith("<!doctype html>"), "-logs/" in text) == (True, False)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of 300 logs with 6,000 global transactions due."""
    folder = tmp_path_factory.mktemp("large")
    for name, schema, rows in _tables():
        write_table(folder, name, schema, rows)
    return folder


def test_lists_and_charts_are_cut_to_what_matters_most(large: Path) -> None:
    data = load(large)
    assert data.resolutions.total() == DUE
    assert len(data.due) == limits.ROWS_MAX
    assert {row["alarm"] for row in data.due[:100]} == {"lost-commit"}
    assert {row["resolution"] for row in data.due[100:]} == {"heuristic_mismatch"}
    assert data.findings[0]["severity"] == "loss"
    assert len(data.telling) == limits.LOGS_MAX
    assert set(data.profile) == {_log(n) for n in range(COUNT - 12, COUNT)}


def test_the_page_stays_small_and_says_what_it_left_out(large: Path) -> None:
    path = write_report(large, large / "report.html")
    assert path.stat().st_size < BYTES_MAX
    text = path.read_text()
    for reported in ("200 most urgent of 6,000", "gravest 200 of 4,000", "40 of 300 logs",
                 "12 busiest of 300 logs", "60 most telling of 1,200 files"):  # fmt: skip
        assert reported in text


@pytest.mark.browser
@pytest.mark.timeout(2 * BROWSER_SECONDS)
def test_a_browser_draws_and_filters_it_at_once_and_nothing_sticks_out_on_a_phone(
    large: Path, browser: Chrome
) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        browser.get(write_report(large, large / "report.html").as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        before = processor_seconds(browser)
        browser.execute_script(
            "const box = document.querySelector('[data-for=cards] input');"
            "box.value = 'site-007'; box.dispatchEvent(new Event('input'));"
            "document.body.getBoundingClientRect()"
        )
        assert processor_seconds(browser) - before < 3
        assert browser.execute_script("return document.documentElement.scrollHeight") < 40_000
        assert visible(browser, "finding-rows") == ROWS_SHOWN
        browser.execute_script("document.querySelector('[data-more=finding-rows]').click()")
        assert visible(browser, "finding-rows") == limits.ROWS_MAX
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


OPENED_S = 1.0
"""Processor time for a page over 10,000 logs to be there."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of 10,000 logs, of which every fiftieth has something to say."""
    folder = tmp_path_factory.mktemp("many")
    logs = [{"system": "derby", "log": _log(number)} for number in range(10_000)]
    grave = logs[::50]
    branch = {"system": "derby", "resource": "a", "state": "prepared", "due": "commit"}
    tables: dict[str, tuple[pa.Schema, list[dict[str, Any]]]] = {
        "files": (FILES, [
            log | {"file": f"{log['log']}/log1.dat", "order": 0, "size": 100, "valid_bytes": 100}
            for log in logs
        ]),
        "logs": (LOGS, [answer(log["log"], "safe", after_crash=True) for log in logs]),
        "transactions": (TRANSACTIONS, [log | {"state": "prepared"} for log in grave]),
        "global_transactions": (GLOBAL_TRANSACTIONS, [
            due(number, "commit", "lost-commit") | {"branches": [branch | log]}
            for number, log in enumerate(grave)
        ]),
        "findings": (FINDINGS, [finding("damage", "torn", "torn") | log for log in grave]),
        "profile": (PROFILE, []),
    }  # fmt: skip
    for name, (schema, rows) in tables.items():
        write_table(folder, name, schema, rows)
    return folder


def test_each_log_with_anything_to_say_has_a_small_page_of_its_own(many: Path) -> None:
    path = write_report(many, many / "report.html")
    pages = {one.name: one.read_text("utf-8") for one in (many / "report-logs").iterdir()}
    index = pages.pop("index.html")
    assert path.stat().st_size < BYTES_MAX
    assert len(pages) == 200
    assert max(map(len, pages.values())) < 20_000
    linked = set(re.findall(r'href="([0-9a-f]{16}\.html)"', index))
    assert linked == set(pages)
    (own,) = (text for text in pages.values() if f'<td class="file">derby {_log(50)[9:]}' in text)
    assert own.count("<article") == 1
    assert 'href="../report.html"' in own
    assert set(re.findall(r'href="report-logs/([0-9a-f]{16}\.html)"', path.read_text())) <= linked


def test_pages_of_logs_that_are_silent_now_go_and_files_of_others_stay(many: Path) -> None:
    folder = write_report(many, many / "a #1.html").with_name("a #1-logs")
    assert 'href="../a%20%231.html"' in (folder / "index.html").read_text("utf-8")
    (folder / "notes.txt").write_text("mine")
    (folder / f"{0:016x}.html").write_text("of an earlier report")
    page = write_report(many, many / "a #1.html").read_text("utf-8")
    assert 'href="a%20%231-logs/index.html"' in page
    assert (folder / "notes.txt").exists()
    assert not (folder / f"{0:016x}.html").exists()


def test_few_logs_have_no_pages_of_their_own(tables: Path) -> None:
    write_report(tables, tables / "report.html")
    assert not (tables / "report-logs").exists()


@pytest.mark.browser
@pytest.mark.timeout(2 * BROWSER_SECONDS)
def test_the_page_over_ten_thousand_logs_opens_within_a_second(many: Path, browser: Chrome) -> None:
    page = write_report(many, many / "report.html").as_uri()
    browser.get("about:blank")
    before = processor_seconds(browser)
    browser.get(page)
    browser.execute_script("return document.body.getBoundingClientRect().height")
    assert processor_seconds(browser) - before < OPENED_S
    assert visible(browser, "cards") == ROWS_SHOWN
