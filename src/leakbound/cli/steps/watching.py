"""Curves of a training on an MLflow server while they grow."""

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
    str | None, typer.Option(envvar="LEAKBOUND_LIVE", help="MLflow server that shows curves.")
]
PresetOption = Annotated[str, typer.Option(envvar="LEAKBOUND_PRESET", help="Name the curves go by there.")]


@contextmanager
def watching(live: str | None, **facts: Any) -> Iterator[Callable[[pd.DataFrame], None] | None]:
    """Receiver of the curves of a training while they grow, for the server at ``live``; None without one.

    The other arguments are those of :class:`leakbound.tracking.RunFacts`.
    """
    if live is None:
        yield None
        return
    from leakbound import tracking
    from leakbound.config.messages import parse

    parse(_Watched, {"live": live}, "--live")
    with tracking.LiveCurves(live, tracking.RunFacts(**facts)) as curves:
        yield curves.on_rows
