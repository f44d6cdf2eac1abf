"""All networks of a run, those of the chosen learning rates and others if they are kept, and attacks on them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from leakbound.attacks.attack_request import Attacked, AttackRequest


@dataclass(frozen=True)
class Networks:
    """Trained networks of a run.

    Attributes:
        weights: Parameter name to its values (networks, ...).
        rates: A row for each network: columns ``replica``, ``learning_rate`` and ``chosen``, and ``length``
            where several lengths of a training are kept. Without it all are ``full``.
    """

    weights: Mapping[str, Tensor]
    rates: pd.DataFrame

    def state_dict(
        self, replica: int = 0, learning_rate: float | None = None, length: str = "full"
    ) -> dict[str, Tensor]:
        """Return copies of the parameters of one network, as ``torch.nn.Module.load_state_dict`` takes them.

        Args:
            replica: Number of the replica.
            learning_rate: Candidate learning rate. Default: the one that validation records chose.
            length: Point of the training: ``half``, ``best`` or ``full``.

        Raises:
            KeyError: If no such network is kept. The message lists those that are.
        """
        rates = self.rates if "length" in self.rates else self.rates.assign(length="full")
        rate = rates["chosen"] if learning_rate is None else rates["learning_rate"] == learning_rate
        places = rates.index[rate & (rates["replica"] == replica) & (rates["length"] == length)]
        if not len(places):
            columns = ["replica", "learning_rate", "length", "chosen"]
            raise KeyError(
                f"replica {replica}, learning rate {learning_rate or 'chosen'}, length {length}: no such network is "
                f"kept, only\n{rates[columns].to_string(index=False)}"
            )
        return {name: values[places[0]].clone() for name, values in self.weights.items()}


@torch.no_grad()
def load_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Replace the parameters of a network by ``weights``, name to values."""
    for name, parameter in network.named_parameters():
        parameter.copy_(weights[name])


def attack_networks(
    networks: Networks, function: Callable[[AttackRequest[Any]], Attacked], request: AttackRequest[Any]
) -> Attacked:
    """Attack networks in groups that hold at most one of each replica: the chosen ones, then recipe by recipe.

    Args:
        networks: The networks.
        function: Attack.
        request: Its arguments, except those that say which networks are attacked.

    Returns:
        Rows of all, with the columns of ``networks.rates`` that say which, and the arrays of the chosen ones.
    """
    rates = networks.rates.reset_index(drop=True)
    recipe = [name for name in ("learning_rate", "length") if name in rates]
    others = rates[~rates["chosen"]].groupby(recipe, sort=True)
    tables, kept = [], []
    for group in (rates[rates["chosen"]], *(group for _, group in others)):
        group_request = replace(
            request,
            weights={name: values[group.index.tolist()] for name, values in networks.weights.items()},
            replicas=group["replica"].tolist(),
            learning_rates=group["learning_rate"].tolist(),
            lengths=group["length"].tolist() if "length" in group else (),
        )
        rows, arrays = function(group_request)
        tables.append(rows.merge(group[["replica", *recipe, "chosen"]], on="replica", how="left"))
        kept.append(arrays)
    return pd.concat(tables, ignore_index=True), kept[0]
