"""Fuzz one system: ``python -m tests.fuzz SYSTEM``; see the package for the options."""

from __future__ import annotations

import os
import sys

from tests.fuzz.options import Options

if __name__ == "__main__":
    options = Options.parse()
    # Numba reads these when it is imported.
    if options.compiled:
        os.environ["NUMBA_BOUNDSCHECK"] = "1"
        os.environ["NUMBA_CACHE_DIR"] = f"{options.work}/numba"  # it does not tell the two apart
    else:
        os.environ["NUMBA_DISABLE_JIT"] = "1"
    from tests.fuzz.campaign import run

    sys.exit(run(options))
