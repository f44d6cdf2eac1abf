"""Templates of all pages, in the folder of the same name: what they are given is text in them, never markup."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def templates(**settings: Any) -> Environment:
    """Make an environment of Jinja that knows the templates, and in which an unknown name is an error.

    Args:
        settings: Further settings of the environment.
    """
    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, **settings)
