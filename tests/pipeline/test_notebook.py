"""The notebook about the pipeline runs to its end, in the session of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.need import need
from tests.test_examples import run_notebook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_notebook_about_the_pipeline_runs_to_its_end(spark: SparkSession) -> None:
    del spark  # which the notebook finds
    need("streams")
    assert run_notebook("pipeline")
