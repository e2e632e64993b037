"""Sphinx: Markdown pages, no network, every warning an error."""

from __future__ import annotations

import tomllib
from pathlib import Path

_project = tomllib.loads(
    (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
)["project"]

project = "django_streams"
author = "the django_streams authors"
copyright = author
release = version = _project["version"]

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
# Headings of the pages can be linked to, as checks and tests do.
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"django_streams {release}"
html_show_sphinx = False
html_copy_source = False

nitpicky = True
exclude_patterns = ["_build"]
