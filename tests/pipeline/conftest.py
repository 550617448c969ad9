"""One Spark session for all tests of the pipeline, and small frames to test stages on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.need import need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine, as `tallystick pipeline run` starts it."""
    need("java")
    from tallystick.pipeline.session import start

    folder = tmp_path_factory.mktemp("spark")
    session = start(
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder),
            "spark.local.dir": str(folder),
            # Frames of a few rows: compiling every plan would take most of the time.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.adaptive.enabled": "false",
        },
        app="tests",
    )
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the session run in one worker."""
    for item in items:
        names: Any = getattr(item, "fixturenames", ())
        if "spark" in names:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
