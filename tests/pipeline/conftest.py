"""One Spark session for all tests of the pipeline, and small frames to test stages on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.need import need
from tests.pipeline.quick import QUICK, end
from tests.servers import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def storage_options() -> Iterator[dict[str, str]]:
    """Where an object store is to be found, in the environment: Spark's workers get theirs when
    Java starts, so this comes before the session, and the server only where a test asks."""
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in options.items():
            patch.setenv(name, value)
        yield options


@pytest.fixture
def streams() -> None:
    """Streams of the data source: the oldest PySpark has none."""
    need("streams")


@pytest.fixture(scope="package")
def spark(
    tmp_path_factory: pytest.TempPathFactory,
    storage_options: dict[str, str],  # noqa: ARG001 - set before Java starts
) -> Iterator[SparkSession]:
    """A session on this machine, as `tallystick pipeline run` starts it."""
    need("java")
    from tallystick.pipeline.session import start

    folder = tmp_path_factory.mktemp("spark")
    session = start(
        "local[2]",
        {
            **QUICK,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder),
            "spark.local.dir": str(folder),
        },
        app="tests",
    )
    yield session
    end(session)
