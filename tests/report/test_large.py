"""The report over a large estate: bounded, fast, and readable on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tallystick.arrow.schemas import FILES, FINDINGS, TRANSACTIONS, batch_of
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tallystick.report import data as limits
from tallystick.report import write_report
from tallystick.report.data import load
from tallystick.report.page import ROWS_SHOWN
from tests.report.conftest import BROWSER_SECONDS, PROFILE, due, finding, processor_seconds
from tests.report.test_page import drawn_by, visible

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

LOGS, DUE, FOUND = 300, 6_000, 4_000

BYTES_MAX = 7 << 20
"""Of the page; the library that draws takes two thirds of them."""


def _log(number: int) -> str:
    return f"/estates/region-{number % 7}/site-{number:03}/derby/log"


def _tables() -> Iterator[tuple[str, pa.Schema, list[dict[str, Any]]]]:
    logs = [{"system": "derby", "log": _log(number)} for number in range(LOGS)]
    states = ("committed",) * 8 + ("prepared",)
    yield "files", FILES, [
        log | {"file": f"{log['log']}/log{n}.dat", "order": n, "size": 100, "valid_bytes": 100}
        for log in logs for n in range(4)
    ]  # fmt: skip
    yield "transactions", TRANSACTIONS, [log | {"state": s} for log in logs for s in states]
    kinds = (("rollback", None), ("commit", "lost-commit"), ("heuristic_mismatch", "mismatch"))
    yield "global_transactions", GLOBAL_TRANSACTIONS, [
        due(number % 200, *kinds[number % 3 if number > DUE - 300 else 0])
        | {"evidence": f"PREPARE in {_log(number % LOGS)}/log1.dat offset {number}; " * 6}
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


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of 300 logs with 6,000 global transactions due."""
    folder = tmp_path_factory.mktemp("large")
    for name, schema, rows in _tables():
        (folder / name).mkdir()
        parquet.write_table(
            pa.Table.from_batches([batch_of(rows, schema)]), folder / name / "0.parquet"
        )
    return folder


def test_lists_and_charts_are_cut_to_what_matters_most(large: Path) -> None:
    data = load(large)
    assert data.resolutions.total() == DUE
    assert len(data.due) == limits.ROWS_MAX
    assert {row["resolution"] for row in data.due[:100]} == {"heuristic_mismatch"}
    assert {row["alarm"] for row in data.due[100:200]} == {"lost-commit"}
    assert data.findings[0]["severity"] == "loss"
    assert len(data.telling) == limits.LOGS_MAX
    assert {row["log"] for row in data.profile} == {_log(n) for n in range(LOGS - 12, LOGS)}


def test_the_page_stays_small_and_says_what_it_left_out(large: Path) -> None:
    path = write_report(large, large / "report.html")
    assert path.stat().st_size < BYTES_MAX
    text = path.read_text()
    for reported in ("500 most urgent of 6,000", "gravest 500 of 4,000", "40 of 300 logs",
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
        drawn_by(browser)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        before = processor_seconds(browser)
        browser.execute_script(
            "const box = document.querySelector('[data-for=due-rows] input');"
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
