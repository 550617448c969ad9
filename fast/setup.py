"""Build the compiled core: one module for every CPython from 3.11 on (abi3); Linux only."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "tallystick_fast",
            ["tallystick_fast.c", "signals.c"],
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
