"""Build the compiled core: one module for every CPython from 3.11 on (abi3); Linux only."""

import sys
import sysconfig

from setuptools import Extension, setup

if not sys.platform.startswith("linux") or sys.byteorder != "little":
    raise SystemExit(
        "tallystick-fast is for Linux on little-endian processors. Install tallystick without the "
        "extra fast: it does the same in Python."
    )
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise SystemExit(
        "tallystick-fast needs an interpreter with its lock, which a free-threaded one has not. "
        "Install tallystick without the extra fast: it does the same in Python."
    )

setup(
    ext_modules=[
        Extension(
            "tallystick_fast",
            ["module.c", "objects.c", "queue.c", "log_end.c", "signals.c"],
            depends=["core.h"],
            extra_compile_args=[
                "-O2",
                "-Wall",
                "-Wextra",
                "-Wno-cast-function-type",
                "-fno-strict-aliasing",
            ],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
