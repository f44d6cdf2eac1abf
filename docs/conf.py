"""Sphinx settings of the documentation site; `make site` builds it."""

import atexit
import json
import os
import re
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

_ROOT = Path(__file__).parents[1]
_CITED = yaml.safe_load((_ROOT / "CITATION.cff").read_text(encoding="utf-8"))
project = "leakbound"
version = release = str(_CITED["version"])
project_copyright = author = "The leakbound authors"
extensions = ["myst_nb", "sphinx_design", "sphinx.ext.napoleon", "sphinx_copybutton", "autoapi.extension"]

html_theme = "furo"
html_title = f"leakbound {release}"
html_math_renderer = "mathml"
# The address of the repository, once CITATION.cff has one that is no placeholder.
if (address := _CITED["repository-code"]) and not urlsplit(address).netloc.endswith("example.org"):
    html_theme_options = {"source_repository": address, "source_branch": "main", "source_directory": "docs/"}
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

# Read, not imported: neither torch nor the package need be there.
autoapi_dirs = ["../src/leakbound", "../src/leakbound_lab"]
autoapi_ignore = [
    *(f"*/leakbound/{room}/*" for room in ("commands", "storage")),
    *(f"*/leakbound_lab/{room}/*" for room in ("commands", "steps", "jobs", "tracking", "figures", "claims", "config")),
]
autoapi_file_patterns = ["*.py"]
autoapi_root = "api"
autoapi_options = ["members", "show-module-summary"]
autoapi_add_toctree_entry = False
napoleon_use_ivar = True
suppress_warnings = ["autoapi.python_import_resolution", "ref.python"]

# Notebooks run in this checkout's environment; what Jupyter needs beside it is that of the site, last on the path.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
_KERNEL = f"import sys; sys.path.append({sysconfig.get_path('platlib')!r}); from ipykernel import kernelapp; "
_SPEC = {
    "argv": [
        str(_ROOT / ".venv/bin/python"),
        "-c",
        f"{_KERNEL}kernelapp.launch_new_instance()",
        "-f",
        "{connection_file}",
        "--log-level=40",
    ],
    "display_name": "leakbound",
    "language": "python",
    "env": {"PYTHONPATH": str(_ROOT / "src"), "OMP_NUM_THREADS": "1"},
}
_JUPYTER = Path(tempfile.mkdtemp(prefix="leakbound-site-"))
atexit.register(shutil.rmtree, _JUPYTER, ignore_errors=True)
(_JUPYTER / "kernels/leakbound").mkdir(parents=True)
(_JUPYTER / "kernels/leakbound/kernel.json").write_text(json.dumps(_SPEC), encoding="utf-8")
os.environ["JUPYTER_PATH"] = str(_JUPYTER)

_ANCHOR = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)
_EXAMPLE = re.compile(r"\]\(\.\./examples/(\w+)\.py\)")
_OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:docs/pictures|results|src|tests|config|examples|workflow)[^)#]*(?<!png)(?<!svg)\)"
)


def _as_on_the_site(_app: Sphinx, _name: str, content: list[str]) -> None:
    """Say in MyST what pages say in HTML for readers of the repository, where links may lead out of this folder."""
    content[0] = _EXAMPLE.sub(lambda found: f"](examples.md#{found[1].replace('_', '-')})", content[0])
    content[0] = _OUTSIDE.sub(r"\1", _ANCHOR.sub(r"(\1)=", content[0]))


def _formula(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers set themselves: the site asks nobody for a script."""
    block = isinstance(node, nodes.math_block)
    written = tex2mathml(node.astext(), as_block=block)
    translator.body.append(f'<div class="math">{written}</div>' if block else written)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _as_on_the_site)
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
