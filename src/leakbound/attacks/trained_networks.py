"""Attacks on all networks of a run: those of the chosen learning rates, and the others where they are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

Attacked = tuple[pd.DataFrame, dict[str, np.ndarray]]


@dataclass(frozen=True)
class Networks:
    """Trained networks of a run.

    Attributes:
        weights: Parameter name to its values (networks, ...).
        rates: A row for each network: columns ``replica``, ``learning_rate`` and ``chosen``, and ``length`` where
            several lengths of a training are kept; else all are ``full``.
    """

    weights: Mapping[str, Tensor]
    rates: pd.DataFrame


@torch.no_grad()
def load(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Replace the parameters of a network by ``weights``, name to values."""
    for name, parameter in network.named_parameters():
        parameter.copy_(weights[name])


def attack_networks(networks: Networks, function: Callable[..., Attacked], *, with_rates: bool = False) -> Attacked:
    """Attack networks in groups that hold at most one of each replica: the chosen ones, then recipe by recipe.

    Args:
        networks: The networks.
        function: Attack, which is given ``weights`` (group, ...) and ``replicas``, the replica of each.
        with_rates: Whether it is also given ``learning_rates``, that of each, and ``lengths`` where there are several.

    Returns:
        Rows of all, with the columns of ``networks.rates`` that say which, and the arrays of the chosen ones.
    """
    rates = networks.rates.reset_index(drop=True)
    recipe = [name for name in ("learning_rate", "length") if name in rates]
    others = rates[~rates["chosen"]].groupby(recipe, sort=True)
    groups = [rates[rates["chosen"]], *(group for _, group in others)]
    tables, kept = [], []
    for group in groups:
        weights = {name: values[group.index.tolist()] for name, values in networks.weights.items()}
        told = {f"{name}s": group[name].tolist() for name in recipe} if with_rates else {}
        rows, arrays = function(weights=weights, replicas=group["replica"].tolist(), **told)
        tables.append(rows.merge(group[["replica", *recipe, "chosen"]], on="replica", how="left"))
        kept.append(arrays)
    return pd.concat(tables, ignore_index=True), kept[0]
