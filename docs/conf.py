"""Sphinx settings of the documentation site; `make site` builds it."""

import re

from sphinx.application import Sphinx

project = "leakbound"
project_copyright = author = "The leakbound authors"
extensions = [
    "myst_parser",
    "sphinx_design",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "autoapi.extension",
]

html_theme = "furo"
html_title = "leakbound"
html_copy_source = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# Read, not imported: neither torch nor the package need be there.
autoapi_dirs = ["../src/leakbound"]
autoapi_ignore = [
    f"*/leakbound/{room}/*"
    for room in (
        "cli",
        "jobs",
        "tracking",
        "figures",
        "claims",
        "storage",
        "consensus",
        "theory",
        "config",
        "federated",
    )
] + ["*/leakbound/attacks/*", "*/leakbound/training/*"]
autoapi_file_patterns = ["*.py"]
autoapi_root = "api"
autoapi_options = ["members", "show-module-summary"]
autoapi_add_toctree_entry = False
napoleon_use_ivar = True
suppress_warnings = ["autoapi.python_import_resolution", "ref.python"]

_ANCHOR = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?:results|src|tests|config|examples|workflow)[^)#]*(?<!png)(?<!svg)\)")


def _as_on_the_site(_app: Sphinx, _name: str, content: list[str]) -> None:
    """Say in MyST what pages say in HTML for readers of the repository, where links may lead out of this folder."""
    content[0] = _OUTSIDE.sub(r"\1", _ANCHOR.sub(r"(\1)=", content[0]))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _as_on_the_site)
