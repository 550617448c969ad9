"""Found by Spark because of its name: ``spark.read.format("tallystick")`` needs no registration."""

from __future__ import annotations

from tallystick.pipeline.source.batch import TallystickDataSource

DefaultSource = TallystickDataSource

__all__ = ["DefaultSource"]
