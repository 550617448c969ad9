"""For users: test your own recovery, and readers of your own formats.

* `spans`: the invariant that every byte of a file lies in exactly one span
"""

from __future__ import annotations

from tallystick.testing.spans import check_tiling

__all__ = ["check_tiling"]
