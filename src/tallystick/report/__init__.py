"""One self-contained HTML page made from the tables of the pipeline.

In: the folder of the tables (Parquet). Out: a page that works offline, on a phone, in light
and dark: where transactions ended, what is in doubt and what is due, findings with bytes at
risk, the segment map, latency, rate and group sizes over time.

* `data`: tables → figures that do not grow with the input
* `charts`: figures → charts
* `page`: everything → one HTML file
"""

from __future__ import annotations

from tallystick.report.page import write_report

__all__ = ["write_report"]
