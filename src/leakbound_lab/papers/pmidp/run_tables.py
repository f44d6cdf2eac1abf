"""Tidy tables of federated runs, and closed forms of the leakage of several rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from leakbound_lab.config.federated import FederatedRun
from leakbound_lab.papers.pmidp.noise_calibration import client_noise, server_leak, static_leak

if TYPE_CHECKING:
    from leakbound_lab.datasets import ImageDataset

_SETTING = ["dataset", "model", "n_clients", "max_param_norm", "mi_budget", "budget_spread", "replica"]
_POINTS = 25


def tabulate_runs(runs: Mapping[FederatedRun, pd.DataFrame]) -> pd.DataFrame:
    """Put the rows of runs into one table, with columns that identify the run of a row.

    Derived rows have unit −1 and no round. ``gap_first`` and ``gap_last`` are the loss of a run with noise
    minus the mean loss of the run without noise on the same dataset, at the first and the last point of the
    curves. ``advantage`` is the final accuracy of a personalized run minus that of the uniform run with the
    same settings, for each replica.

    Args:
        runs: Run to its rows, as :class:`leakbound_lab.papers.pmidp.averaging.FederatedResult` has them.
    """
    frames = [rows.assign(**{"run": run.slug, **run.model_dump()}) for run, rows in runs.items()]
    table = pd.concat(frames, ignore_index=True)
    table = pd.concat([table, _gaps(table), _advantages(table)], ignore_index=True)
    real = dict.fromkeys(("max_param_norm", "mi_budget", "budget_spread", "value"), "float64")
    whole = dict.fromkeys(("n_clients", "replica", "unit"), "int64")
    columns = ["run", *FederatedRun.model_fields, "replica", "communication_round", "unit", "metric", "value"]
    return table.astype({**real, **whole, "communication_round": "Int64"}).reindex(columns=columns)


def _gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Compute the difference of losses with and without noise, at both ends of the curves."""
    losses = table[table["metric"] == "train_loss"]
    ends = losses["communication_round"].agg(["min", "max"])
    clean = losses[losses["scheme"] == "none"].groupby(["dataset", "communication_round"])["value"].mean()
    joined = losses[losses["scheme"] != "none"].merge(
        clean.rename("clean").reset_index(), on=["dataset", "communication_round"]
    )
    gaps = [
        joined[joined["communication_round"] == ends[end]].assign(
            metric=metric, value=lambda rows: rows["value"] - rows["clean"], communication_round=None
        )
        for end, metric in (("min", "gap_first"), ("max", "gap_last"))
    ]
    return pd.concat(gaps).drop(columns="clean") if len(joined) else joined.drop(columns="clean")


def _advantages(table: pd.DataFrame) -> pd.DataFrame:
    """Compute the accuracy that personalized weights and noise gain over equal ones."""
    final = table[table["metric"] == "final_accuracy"]
    personal, uniform = (final[final["scheme"] == scheme] for scheme in ("personalized", "uniform"))
    joined = personal.merge(uniform[[*_SETTING, "value"]], on=_SETTING, suffixes=("", "_uniform"))
    value = joined["value"] - joined["value_uniform"]
    return joined.assign(metric="advantage", value=value, communication_round=None).drop(
        columns="value_uniform"
    )


def parameters(model: str, images: ImageDataset) -> int:
    """Count the parameters of a network.

    Args:
        model: Registered name of the network.
        images: Dataset whose images and classes fix the sizes of its layers.
    """
    from leakbound.randomness.seeding import torch_generator
    from leakbound_lab.models import build

    network = build(model, images.colors, len(images.classes), torch_generator(0, "size"), images.side)
    return sum(parameter.numel() for parameter in network.parameters())


def composition(
    networks: Mapping[str, tuple[str, int]], n_clients: int, rounds: int, mi_budget: float
) -> pd.DataFrame:
    """Tabulate leaks of 1 to ``rounds`` rounds about one client, with equal noise at all clients.

    Args:
        networks: Dataset to the name of its network and the number of its parameters.
        n_clients: Number of clients.
        rounds: Largest number of rounds T, >= 1.
        mi_budget: Budget ε of one round in nats, > 0.

    Returns:
        Columns ``dataset``, ``model``, ``variant``, ``communication_round``, ``metric``, ``value``. The
        metric ``leak`` is in nats over the rounds t. Three variants are leaks to those who see the averages:
        ``printed`` (ε, the paper's level, of one round alone), ``composed`` (t·ε) and ``static`` (the client
        sends the same vector in each round). ``uploads`` is the leak to whoever sees the uploads.
        ``final_leak`` is the leak at t = ``rounds``, ``first_leak`` at 1.
    """
    steps = sorted({round(step) for step in np.geomspace(1, rounds, _POINTS)})
    leaks = []
    for dataset, (model, dimension) in networks.items():
        norms = np.ones(n_clients)
        budgets = np.full(n_clients, mi_budget)
        upload = float(server_leak(client_noise(norms, budgets, dimension), norms, dimension)[0])
        for step in steps:
            values = {
                "printed": mi_budget,
                "composed": step * mi_budget,
                "static": static_leak(mi_budget, dimension, step),
                "uploads": step * upload,
            }
            leaks += [(dataset, model, variant, step, "leak", value) for variant, value in values.items()]
    rows = pd.DataFrame(
        leaks, columns=["dataset", "model", "variant", "communication_round", "metric", "value"]
    )
    last, first = (rows[rows["communication_round"] == step] for step in (rounds, 1))
    return pd.concat(
        [rows, last.assign(metric="final_leak"), first.assign(metric="first_leak")], ignore_index=True
    )


def threat_table(rows: pd.DataFrame, replicas: Sequence[int]) -> list[dict[str, float | None]]:
    """List leaks of the worst client of each replica in nats, for the provenance. None means no bound.

    Args:
        rows: Rows of the run.
        replicas: Numbers of the replicas that did not diverge.
    """
    worst = rows[(rows["unit"] == -1) & rows["metric"].str.startswith("leak_")]
    return [
        {
            str(row.metric): float(row.value) if np.isfinite(row.value) else None
            for row in worst[worst["replica"] == replica].itertuples()
        }
        for replica in replicas
    ]


def curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are curves over rounds, with the columns of a training's curves."""
    part = rows[(rows["unit"] == -1) & rows["metric"].isin(["train_loss", "test_accuracy", "threshold"])]
    return part.rename(columns={"communication_round": "step"})[["replica", "step", "metric", "value"]]


def final_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows about the end of a run and its leaks, with the columns of an attack's rows."""
    part = rows[(rows["unit"] == -1) & rows["metric"].str.startswith(("final_", "leak_", "weight_"))]
    return part.assign(variant="")
