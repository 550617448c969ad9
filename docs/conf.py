"""Settings of Sphinx for the documentation site, which ``make docs`` builds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from posixpath import normpath
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")

project = "Tallystick"
author = PROJECT["authors"][0]["name"]
version = release = PROJECT["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
# `text` of a docstring is a name of ours, if it is one.
default_role = "py:obj"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"Tallystick {version}"
html_copy_source = False
html_show_sphinx = False


def lead_to_the_source(_app: object, page: str, text: list[str]) -> None:
    """Let links to what is no page of the site lead to the source of this version."""
    base = f"{PROJECT['urls']['Source']}/blob/v{version}/"

    def absolute(link: re.Match[str]) -> str:
        path = normpath(f"docs/{Path(page).parent}/{link[1]}")
        of_site = path.startswith("docs/") and path.endswith(".md")
        return link[0] if of_site or not (ROOT / path).exists() else f"]({base}{path}"

    text[0] = LINK.sub(absolute, text[0])


def keep_colons(_app: object, what: str, *more: Any) -> None:
    """Keep napoleon from taking the text before a colon for the type of an attribute."""
    if what == "attribute":
        more[-1].insert(0, "")


def setup(app: Any) -> None:
    """Register what the site does besides."""
    app.connect("source-read", lead_to_the_source)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # napoleon has 500
    app.add_lexer("hex", TextLexer)
