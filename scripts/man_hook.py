"""The manual pages in the distributions, where they were made before (`man_pages.py`).

Hatchling calls this hook. It makes none: they are made of the commands, which need click and rich,
and an installation of a checkout needs neither.
"""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MADE = "build/man"


class ManPages(BuildHookInterface):
    """Brings the pages into ``share/man/man1`` of a wheel, and as they are into an sdist."""

    def initialize(self, version: str, build_data: dict) -> None:  # noqa: ARG002 - of the interface
        kept = "shared_data" if self.target_name == "wheel" else "force_include"
        for page in sorted(Path(self.root, MADE).glob("*.1")):
            place = "share/man/man1" if self.target_name == "wheel" else MADE
            build_data[kept][str(page)] = f"{place}/{page.name}"
