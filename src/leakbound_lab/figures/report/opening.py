"""Results that open a report: a sentence for each observer, and a table of all defenses."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR
from typing import Any

import pandas as pd

from leakbound.accounting.risk import bound_text
from leakbound.accounting.statement import NO_BOUND, Statement, upper_bound
from leakbound.words import in_nats
from leakbound_lab.claims.evaluation import VERDICTS
from leakbound_lab.config.data import size_of
from leakbound_lab.config.whole import Config
from leakbound_lab.figures import style

_PICTURES = (
    "beyond/uploads_front",
    "beyond/recipes",
    "beyond/sandwich",
    "beyond/limit",
    "tan2024/fig15_gain",
    "tan2024/fig05",
    "tan2024/fig09",
)
"""Figures that open a report, in the order of preference."""
ATTACKERS = ("strongest", "white_box")
"""Membership attacks on the last weights, in the order of preference."""
_NETWORK = ["dataset", "model"]
_ACCURACY = "test accuracy"
_ERROR = "error from a gradient"
_UPLOADS = "AUC, uploads"
_MEMBERSHIP = "AUC, last weights"
_NATS = "nats, whole training"
_OUTCOMES = {
    _ACCURACY: ("test_accuracy", ("",)),
    _UPLOADS: ("auc", ("likelihood",)),
    _MEMBERSHIP: ("auc", ATTACKERS),
    _ERROR: ("relative_mse", ("attack",)),
}
"""Measured columns of the table that opens a report: their metric, and its variants by preference."""
_COLUMNS = (_ACCURACY, _UPLOADS, _NATS, _MEMBERSHIP, _ERROR)
"""All columns of that table, the server's first."""
_MEANINGS = {
    _UPLOADS: "how well a server that sees every upload recognises members; 0.5 is guessing",
    _MEMBERSHIP: "how well whoever gets the trained network does, by the strongest attack",
    _ERROR: "squared error of the record that an attacker recovers from its gradient; 1 is that of the mean record",
}
"""What the columns of that table say that do not say it themselves."""
_OBSERVERS = {_UPLOADS: "A server that sees every upload", _MEMBERSHIP: "Whoever gets the last weights"}
"""Columns of membership inference, and who makes it."""


def opening_picture(figures: Collection[str]) -> str | None:
    """Return the key ``paper/id`` of the figure that opens a report, None without figures."""
    return next(iter([*(key for key in _PICTURES if key in figures), *figures]), None)


def outcomes(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Compute the means that open a report, for the first dataset and network of the study with most defenses.

    Args:
        tables: Rows of studies by name.

    Returns:
        Means over replicas at the chosen learning rates, of each defense and level in order. The level is
        infinite for a defense without one. Only measured quantities have a column. The attribute ``network``
        holds dataset and model.
    """
    means = {}
    network = None
    for name, (metric, variants) in _OUTCOMES.items():
        rows = (_of_one_network(tables, metric, variant, network) for variant in variants)
        if (measured := next(filter(len, rows), None)) is not None:
            network = measured.iloc[0][_NETWORK]
            arms = measured.fillna({"level": math.inf}).groupby(["defense", "level"])
            means[name] = arms["value"].mean()
    table = pd.DataFrame(means)
    table.attrs["network"] = network
    defenses = style.ordered({defense for defense, _ in table.index})
    defenses.sort(key=lambda name: name in ("early_stopping", "stopped", "clipping"))
    return table.loc[sorted(table.index, key=lambda arm: (defenses.index(arm[0]), arm[1]))]


def attacked_runs(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Choose the run of each defense whose last weights show least of membership, by the name of the defense."""
    network = outcomes(tables).attrs["network"]
    rows = next(filter(len, (_of_one_network(tables, "auc", name, network) for name in ATTACKERS)), None)
    if rows is None:
        return {}
    means = rows.groupby(["defense", "run"])["value"].mean()
    return {defense: means[defense].idxmin() for defense in style.ordered(rows["defense"].unique())}


def bounds(tables: Mapping[str, pd.DataFrame], stated: Mapping[str, Statement]) -> dict[Any, Statement]:
    """Find what is stated of the training of each defense and level that :func:`outcomes` compares.

    Args:
        tables: Rows of studies by name.
        stated: Run to the statement of one replica.
    """
    rows = _of_one_network(tables, *_metric_of(_ACCURACY), None)
    if rows.empty:
        return {}
    runs = rows.fillna({"level": math.inf}).groupby(["defense", "level"])["run"].first()
    return {arm: stated[run] for arm, run in runs.items() if run in stated}


def outcome_lines(tables: Mapping[str, pd.DataFrame], bounds: Mapping[Any, Statement]) -> list[list[str]]:
    """Write :func:`outcomes` and :func:`bounds` as text, the headings first. Empty without outcomes."""
    table = outcomes(tables)
    columns = [name for name in _COLUMNS if name in table.columns or (name == _NATS and bounds)]
    lines = []
    for arm, row in table.iterrows():
        texts = {name: "–" if math.isnan(value) else _number(value) for name, value in row.items()}
        if arm in bounds:
            texts[_NATS] = upper_bound(bounds[arm].nats) if _in_nats(bounds[arm]) else NO_BOUND
        lines.append([*_arm(arm), *(texts.get(name, "–") for name in columns)])
    return [[_written(table), "level", *columns], *lines] if lines else []


def _in_nats(statement: Statement) -> bool:
    """Return whether nats were derived, so that they bound a training if its noise is secret."""
    return statement.derived and math.isfinite(statement.nats)


def meanings(lines: Sequence[Sequence[str]], bounds: Mapping[Any, Statement]) -> dict[str, str]:
    """Explain the columns that the lines of :func:`outcome_lines` have, and no others."""
    texts = {**_MEANINGS, _NATS: _meaning_of_nats(bounds)}
    return {
        column: texts[column] for column in _COLUMNS if texts.get(column) and lines and column in lines[0]
    }


def _meaning_of_nats(bounds: Mapping[Any, Statement]) -> str:
    """Say whose values the nats of the table bound, for whom and with which labels. Empty if none has nats."""
    scopes: dict[str, list[str]] = {}
    for name in style.ordered({defense for defense, _ in bounds}):
        of_defense = [statement for (defense, _), statement in bounds.items() if defense == name]
        for scope in {f"about {each.subject}, {each.scope}": None for each in of_defense if _in_nats(each)}:
            scopes.setdefault(scope, []).append(style.style_of(name).label)
    kinds = "; ".join(f"behind {', '.join(labels)} {scope}" for scope, labels in scopes.items())
    return f"the most that all uploads reveal, if the noise is secret: {kinds}" if kinds else ""


def _written(table: pd.DataFrame) -> str:
    """Write dataset and network of outcomes."""
    return ", ".join(map(style.written, table.attrs["network"]))


def _arm(arm: Any) -> list[str]:
    """Write a defense, and its level with the unit."""
    defense, level = arm
    label = style.level_label(defense, level, unit=True)
    return [style.style_of(defense).label, f"{label} a use" if label.endswith(("nat", "nats")) else label]


def _arm_text(arm: Any) -> str:
    """Write a defense with its level within a sentence."""
    label, level = _arm(arm)
    return f"{label} ({level})" if level else label


def sentences(
    tables: Mapping[str, pd.DataFrame],
    bounds: Mapping[Any, Statement],
    totals: Mapping[str, int],
    config: Config,
) -> list[str]:
    """Write the sentences that open a report: what was trained, what each observer learns at which cost, verdicts.

    Args:
        tables: Rows of studies by name.
        bounds: Defense and level to what :func:`bounds` found to be stated.
        totals: Verdict to number of claims.
        config: Configuration of the results.
    """
    table = outcomes(tables)
    counts = {name: totals[name] for name in VERDICTS if totals.get(name)}
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    total = sum(counts.values())
    verdicts = [f"Of {total} claim{'s' if total != 1 else ''} about experiments: {listed}."] if counts else []
    return [
        *_trained(tables, config),
        *_membership(table),
        *_reconstruction(table),
        *_bounded(table, bounds, config),
        *_demonstrated(tables),
        *verdicts,
    ]


def _trained(tables: Mapping[str, pd.DataFrame], config: Config) -> Iterator[str]:
    """Yield a sentence on the trainings whose results open the report."""
    rows = _of_one_network(tables, *_metric_of(_ACCURACY), None)
    if rows.empty:
        return
    first = rows.iloc[0]
    counts = rows.fillna({"level": math.inf}).groupby(["defense", "level"])["replica"].nunique()
    replicas = " to ".join(map(str, sorted({counts.min(), counts.max()})))
    means = "of one replica" if replicas == "1" else f"means of {replicas} replicas"
    members = size_of(first["dataset"], config.datasets[first["dataset"]]).members
    trained = f"{style.written(first['dataset'])}, {style.written(first['model'])}"
    steps = f"{first['rounds']:,} steps of {first['batch_size']:,}"
    yield f"{trained}: a client trains on {members:,} records in {steps}. Numbers are {means}."


def _metric_of(column: str) -> tuple[str, str]:
    """Return metric and preferred variant of a column."""
    metric, (variant, *_) = _OUTCOMES[column]
    return metric, variant


def _membership(table: pd.DataFrame) -> Iterator[str]:
    """Yield for each observer a sentence on how well it recognises members, undefended and at least, and accuracies."""
    for column, observer in _OBSERVERS.items():
        if {_ACCURACY, column} <= set(table.columns):
            if (both := table.dropna(subset=[_ACCURACY, column])).empty:
                continue
            shown, arms = _undefended_and(both[column], pd.Series.idxmin)
            accuracies = " and ".join(_number(both[_ACCURACY][arm]) for arm in arms)
            least = _rank(both, arms, "the least", "no more than behind any defense")
            yield (
                f"{observer} recognises members with an AUC of {shown}{least} (0.5 is guessing). "
                f"Test accuracy is {accuracies}."
            )


def _reconstruction(table: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence on how well an attacker recovers a record from its gradient, undefended and at worst."""
    if _ERROR in table.columns:
        errors = table[_ERROR].dropna()
        shown, arms = _undefended_and(errors, pd.Series.idxmax)
        most = _rank(errors, arms, "the most", "no less than behind any defense")
        yield (
            f"Whoever sees the gradient of one record recovers it with a squared error of {shown}{most} "
            "(1 is that of the mean record)."
        )


def _undefended_and(values: pd.Series, best: Callable[[pd.Series], Any]) -> tuple[str, list[Any]]:
    """Write the value without a defense and the best one with the arm that has it, and list these arms."""
    arms = [arm for arm in values.index if arm[0] == "none"]
    arms += [arm for arm in [best(values)] if arm not in arms]
    behind = ["undefended" if arm[0] == "none" else f"behind {_arm_text(arm)}" for arm in arms]
    listed = [f"{_number(values[arm])} {text}" for arm, text in zip(arms, behind, strict=True)]
    return " and of ".join(listed), arms


def _rank(measured: pd.DataFrame | pd.Series, arms: Sequence[Any], best: str, alone: str) -> str:
    """Say that the last of the named arms is the best of all, or the only one. Empty if no other was measured."""
    if len(measured) == 1:
        return ""
    return f", {best if len(arms) > 1 else alone}"


def _bounded(table: pd.DataFrame, bounds: Mapping[Any, Statement], config: Config) -> Iterator[str]:
    """Yield a sentence on the smallest bound on average and for each record, and what identification takes."""
    bounded = {arm: statement for arm, statement in bounds.items() if _in_nats(statement)}
    kinds = ([arm for arm in bounded if bounded[arm].every == every] for every in (False, True))
    least = [min(kind, key=lambda arm: bounded[arm].nats) for kind in kinds if kind]
    if not least:
        return
    listed = "; ".join(
        f"behind {_arm_text(arm)} about {bounded[arm].subject} at most {bounded[arm].amount}" for arm in least
    )
    seeded = "" if all(bounded[arm].secure for arm in least) else "; here it comes from seeds"
    dataset = table.attrs["network"]["dataset"]
    members = size_of(dataset, config.datasets[dataset]).members
    yield (
        f"All uploads of a training reveal {listed}. This holds if the noise is secret{seeded}. "
        f"To name one of {members:,} records takes {math.log(members):.1f} nats."
    )


def _demonstrated(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield a sentence on the largest share of a bound that an attack proves."""
    for table in tables.values():
        if not {"run", "metric", "variant", "unit"} <= set(table.columns):
            continue
        rows = table[table["metric"].astype(str).str.endswith("_nats")]
        shares = rows.pivot_table(index=["run", "metric", "unit"], columns="variant", values="value")
        if {"demonstrated", "allowed"} <= set(shares.columns):
            run, metric, _ = best = (shares["demonstrated"] / shares["allowed"]).idxmax()
            shown = bound_text(shares["demonstrated"][best], ROUND_FLOOR)
            allowed = bound_text(shares["allowed"][best])
            release = metric.replace("images", "noisy copies").removesuffix("_nats").replace("_", " ")
            proven = f"Attacks prove {shown} of the {in_nats(allowed)} about one record"
            yield f"{proven} that its {release} may reveal (run {run})."
            return


def _number(value: float) -> str:
    """Write a number with three digits, or one if it is below 0.001."""
    return f"{value:.3g}" if value >= 1e-3 else f"{value:.0e}"


def _of_one_network(
    tables: Mapping[str, pd.DataFrame], metric: str, variant: str, network: pd.Series | None
) -> pd.DataFrame:
    """Choose sound rows of a metric in all studies.

    They are those of the longest training and the smallest batches of the study with most defenses, for a
    dataset and network. Without one, they are those of its first dataset and network.
    """
    sound = []
    for table in tables.values():
        if {"chosen", "defense"} <= set(table.columns):
            rows = table[table["metric"] == metric]
            rows = rows[(rows["variant"] == variant) & rows["chosen"]]
            rows = rows if network is None else rows[(rows[_NETWORK] == network).all(axis=1)]
            sound.append(rows[(rows["status"].astype(str) == "") & rows["value"].notna()])
    best = max(sound, key=lambda rows: rows["defense"].nunique(), default=pd.DataFrame())
    if best.empty:
        return best
    rows = pd.concat(sound)
    rows = rows[(rows[_NETWORK] == best.iloc[0][_NETWORK]).all(axis=1)]
    rows = rows[rows["rounds"] == best["rounds"].max()]
    return rows[rows["batch_size"] == best["batch_size"].min()]
