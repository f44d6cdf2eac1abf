"""Live curves of a training on an MLflow server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound.config.settings import Address, Settings

if TYPE_CHECKING:
    import pandas as pd


class _Watched(Settings):
    """Address of the server."""

    live: Address


LiveOption = Annotated[
    str | None, typer.Option(envvar="LEAKBOUND_LIVE", help="MLflow server that shows live curves.")
]
PresetOption = Annotated[
    str, typer.Option(envvar="LEAKBOUND_PRESET", help="Name of the preset on that server.")
]


@contextmanager
def watching(live: str | None, **facts: Any) -> Iterator[Callable[[pd.DataFrame], None] | None]:
    """Send the curves of a training to an MLflow server while it runs.

    Args:
        live: Address of the server. None for no curves.
        facts: Arguments of :class:`leakbound.tracking.RunFacts`.

    Yields:
        Function that takes the rows of the curves. None without a server.
    """
    if live is None:
        yield None
        return
    from leakbound import tracking
    from leakbound.config.messages import parse

    parse(_Watched, {"live": live}, "--live")
    with tracking.LiveCurves(live, tracking.RunFacts(**facts)) as curves:
        yield curves.on_rows
