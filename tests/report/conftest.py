"""A browser that no machine in the world hears of, and tables small enough to write by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tallystick.arrow.schemas import FILES, FINDINGS, RECORDS, TRANSACTIONS, batch_of
from tallystick.reconcile.structures import GLOBAL_TRANSACTIONS
from tests.need import need

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PROFILE = pa.schema(
    [
        ("system", pa.string()),
        ("log", pa.string()),
        ("clock", pa.string()),
        ("resource", pa.string()),
        ("bucket", pa.int64()),
        ("transactions", pa.int64()),
        ("latency_p50", pa.float64()),
        ("group_records_avg", pa.float64()),
    ]
)

BRANCHES: list[dict[str, Any]] = [
    {
        "system": "derby",
        "log": "/e/d",
        "resource": "jdbc/a",
        "bqual": b"a",
        "state": "committed",
        "due": None,
    },
    {
        "system": "h2",
        "log": "/e/h",
        "resource": None,
        "bqual": b"b",
        "state": "prepared",
        "due": "commit",
    },
]


def answer(log: str, answer: str, **more: Any) -> dict[str, Any]:
    """A row of ``logs``."""
    stake = {"transactions_at_stake": None, "rows_at_stake": None}
    row = {"system": "derby", "log": log, "answer": answer, "text": "why", "reason": "x"}
    return row | {"after_crash": False, "decided_by": None} | stake | more


def write_table(folder: Path, table: str, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    """Write rows as the only file of a table."""
    (folder / table).mkdir(parents=True, exist_ok=True)
    batch = pa.Table.from_batches([batch_of(rows, schema)])
    parquet.write_table(batch, folder / table / "part-0.parquet")


def due(number: int, resolution: str, alarm: str | None = None) -> dict[str, Any]:
    """A row of ``global_transactions``."""
    return {
        "format_id": 1114926712,
        "gtrid": b"bank-1" + bytes([number]) * 12,
        "owner": "bank-1",
        "coordinator": None if resolution == "foreign" else "/e/bitronix",
        "branches": BRANCHES,
        "resolution": resolution,
        "alarm": alarm,
        "decision": None,
        "evidence": f"evidence <{number}> & more",
        "last_time": 1_000 * number,
        "clock": "wall_ms",
    }


def finding(severity: str, code: str, message: str) -> dict[str, Any]:
    """A row of ``findings``."""
    return {
        "severity": severity,
        "code": code,
        "message": message,
        "log": "/e/d",
        "file": "/e/d/log1.dat",
        "offset": 77,
        "bytes_at_risk": 512,
    }


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """The tables of a small estate."""
    file = {"system": "derby", "log": "/e/d", "file": "/e/d/log1.dat", "order": 0, "size": 100}
    rows: dict[str, tuple[pa.Schema, list[dict[str, Any]]]] = {
        "files": (FILES, [file | {"valid_bytes": 60, "unused_bytes": 30, "corrupt_bytes": 10}]),
        "records": (
            RECORDS,
            [
                file | {"offset": 0, "length": 60, "outcome": "valid"},
                file | {"offset": 60, "length": 10, "outcome": "corrupt"},
            ],
        ),
        "transactions": (
            TRANSACTIONS,
            [{"system": "derby", "log": "/e/d", "state": s} for s in ("committed", "prepared")],
        ),
        "global_transactions": (
            GLOBAL_TRANSACTIONS,
            [
                due(1, "none"),
                due(2, "commit", "lost-commit"),
                due(3, "rollback"),
                due(4, "foreign", "foreign-branch"),
                due(5, "heuristic_mismatch", "heuristic-mismatch"),
            ],
        ),
        "findings": (
            FINDINGS,
            [
                finding(
                    "loss", "lost-commit", "a commit is lost </script><script>alert(1)</script>"
                ),
                finding("info", "not-a-log", "no log"),
            ],
        ),
        "profile": (
            PROFILE,
            [
                {
                    "system": "derby",
                    "log": "/e/d",
                    "clock": "wall_ms",
                    "bucket": 60 * n,
                    "transactions": n,
                    "latency_p50": 0.1 * n,
                    "group_records_avg": 3.0,
                }
                for n in range(1, 5)
            ],
        ),
    }
    for table, (schema, values) in rows.items():
        write_table(tmp_path / "tables", table, schema, values)
    return tmp_path / "tables"


BROWSER_SECONDS = 900
"""Until a browser that does not answer counts as hung."""


def processor_seconds(browser: Chrome) -> float:
    """Return the processor time that the page's main thread has used so far."""
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Headless Chromium with an empty profile; it logs its console and its requests."""
    need("browser")
    import shutil

    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1280,1000",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.binary_location = shutil.which("chromium") or "chromium"
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    # A busy machine may take its time: what a page may cost is counted in processor time.
    assert not isinstance(driver.command_executor, str)
    driver.command_executor.client_config.timeout = BROWSER_SECONDS
    driver.set_page_load_timeout(BROWSER_SECONDS)
    driver.set_script_timeout(BROWSER_SECONDS)
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    yield driver
    driver.quit()
