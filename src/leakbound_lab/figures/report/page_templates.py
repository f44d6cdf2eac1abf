"""Templates of all pages and texts, in the folder ``templates``. Pages show values as text, never as markup."""

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def templates(**settings: Any) -> Environment:
    """Make a Jinja environment with the templates, in which an unknown name is an error.

    Args:
        settings: Further settings of the environment.
    """
    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=lambda name: not str(name).endswith(".txt"),
        undefined=StrictUndefined,
        **settings,
    )


def picture_address(kind: str, content: bytes) -> str:
    """Write an address that contains a picture itself.

    Args:
        kind: ``png`` or ``svg+xml``.
        content: Bytes of the picture.
    """
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
