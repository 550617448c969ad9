"""``python -m tallystick``, and what the script ``tallystick`` calls: the command line."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line; an interrupt is a sentence, also while modules are being loaded."""
    try:
        from tallystick.cli import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("tallystick: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    run()
