"""Loaders as frameworks show them: those behind an engine, and those that read its records as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leakbound.engine.engine import ChannelEngine
from leakbound.engine.refusals import GuaranteeError


def each_loader(loaders: Any) -> Iterator[Any]:
    """Yield the single loaders of a mapping, a list or a combination of them."""
    if loaders is None:
        return
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    parts = loaders if isinstance(loaders, list | tuple) else getattr(loaders, "flattened", None)
    if parts is None:
        yield loaders
        return
    for part in parts:
        yield from each_loader(part)


def is_protected(engine: ChannelEngine, loader: Any) -> bool:
    """Return whether an engine has protected a loader, or the dataset that it reads."""
    return engine.protects(loader) or engine.protects(getattr(loader, "dataset", None))


def check_training(engine: ChannelEngine, loaders: Any) -> None:
    """Refuse loaders of a training of which one reads records that do not pass the channel.

    Raises:
        GuaranteeError: If there is one, or no loader.
    """
    singles = list(each_loader(loaders))
    clean = [loader for loader in singles if not is_protected(engine, loader)]
    if clean or not singles:
        several = (
            f"{len(clean)} of {len(singles)} training loaders read"
            if len(singles) > 1
            else "the trainer reads"
        )
        raise GuaranteeError(
            f"{several} clean records: give fit the loader that engine.protect returns, or each of several"
        )


def check_evaluation(engine: ChannelEngine, loaders: Any, kind: str) -> None:
    """Refuse loaders of an evaluation of which one reads records of the training as they are.

    Losses and metrics of clean records are released and counted by nobody. Of each dataset some records are
    compared, by their values and by their places in a dataset that is trained on.

    Args:
        engine: Engine that counts the records of the training.
        loaders: Loaders.
        kind: What they are for, e.g. ``validation``.

    Raises:
        GuaranteeError: If there is one.
    """
    for loader in each_loader(loaders):
        if is_protected(engine, loader) or (dataset := getattr(loader, "dataset", None)) is None:
            continue
        if recognised := engine.count_recognised(dataset):
            raise GuaranteeError(
                f"the {kind} loader reads {recognised} records that are trained on behind the channel as they are, and "
                "what is computed from them is released and not counted: give it engine.protect(loader), or records "
                "that are not trained on"
            )


def check_resumed(engine: ChannelEngine, checkpoint: Any) -> None:
    """Refuse a training that goes on from a checkpoint without its counts.

    Raises:
        GuaranteeError: If neither the engine nor a ledger on disk knows a use.
    """
    if engine.ledger is None and not any(uses.any() for uses in engine.uses.values()):
        raise GuaranteeError(
            f"{checkpoint} holds weights of an earlier training and no counts of this engine, so its uses would be "
            "forgotten: save it with the engine's callback, load engine.load_state_dict() first, give for_data a "
            "ledger, or begin with the weights alone"
        )
