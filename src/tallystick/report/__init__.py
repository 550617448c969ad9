"""Self-contained HTML pages made from the tables of the pipeline.

In: the folder of the tables (Parquet). Out: a page that works offline, on a phone, in light
and dark: what not to start, what is due and what to type, findings, the segment map, figures over
time; of many logs also a page for each that has anything to say.

* `data`: tables → figures that do not grow with the input
* `cards`: figures → the first screen
* `pictures`: figures → shapes of maps and lines
* `page`: everything → HTML
"""

from __future__ import annotations

from tallystick.report.page import write_report

__all__ = ["write_report"]
