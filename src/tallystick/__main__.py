"""``python -m tallystick``: the command line."""

from __future__ import annotations

from tallystick.cli import main

if __name__ == "__main__":
    main()
