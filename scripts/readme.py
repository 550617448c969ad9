"""The README of a distribution: that of the repository, with absolute links.

Who reads it has no checkout, so that a relative link leads nowhere. Hatchling calls this hook.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"\]\((?!\w+:|#)")


class AbsoluteLinks(MetadataHookInterface):
    """Adds the field ``readme``; the links lead to the tag of the version."""

    def update(self, metadata: dict) -> None:
        base = f"{metadata['urls']['Source']}/blob/v{metadata['version']}/"
        text = Path(self.root, "README.md").read_text("utf-8")
        readme = {"content-type": "text/markdown", "text": _RELATIVE.sub(f"]({base}", text)}
        metadata["readme"] = readme
