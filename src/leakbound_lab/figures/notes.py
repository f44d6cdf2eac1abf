"""Notes under a figure in addition to its caption: ε, attacks without a result, binding grids of learning rates.

They are read from the whole table of the study, because the figure's own conditions may leave out the rows
that state them. The last one is about what is not as in the paper.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from leakbound_lab.claims.selection import rows_of, select_or_nothing, shown_rows
from leakbound_lab.config.catalogue import IMPROVEMENTS, NETWORKS, Conditions, FigureConfig
from leakbound_lab.config.defenses import default_defenses
from leakbound_lab.figures import style

MOST_AT_EDGE = 0.05
"""Share of chosen rates at an edge of their grid, from which on the grid is called binding."""

_QUANTITIES = {
    "model": "networks",
    "dataset": "datasets",
    "replicas": "repeats",
    "members": "members of a network",
    "n_clients": "numbers of clients",
    "max_param_norm": "clipping thresholds",
    "mi_budget": "budgets",
    "budget_spread": "spreads of budgets",
    "records": "records of a client",
}
_SLOT = ["run", "replica", "learning_rate", "length"]
_LEFT_OUT = {"stuck": "did not move", "not_converged": "did not converge", "diverged": "diverged"}
_KEPT = {"grid_edge": "chose a setting at an edge of the attack's own grid and are kept"}
_CONTROLS = ("start", "prior", "aux_mean", "oracle", "target", "references")
_NOUNS = {"model_inversion": "model inversions", "gradient_inversion": "gradient inversions"}


def with_epsilon(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Add the ε of one replica of each row's run as column ``epsilon``, NaN without an ε.

    Args:
        rows: Rows of a figure.
        table: The table that they are from.

    Returns:
        The rows, unchanged if the table states no ε. It is infinite for clipping without noise.
    """
    if not {"run", "source", "variant", "metric"} <= set(table.columns):
        return rows
    stated = select_or_nothing(
        table, {"source": "accounting", "metric": "epsilon", "variant": ["", "replica"]}
    )
    if stated.empty:
        return rows
    return rows.assign(epsilon=rows["run"].map(stated.groupby("run")["value"].max()))


def caption(
    figure: FigureConfig, rows: pd.DataFrame, notes: Sequence[str] = (), *, short: bool = False
) -> str:
    """Write the text under a figure: the catalogue's words, its data, networks and replicas, and notes.

    Args:
        figure: Entry of the catalogue.
        rows: All rows that the figure shows.
        notes: Sentences of :func:`notes`.
        short: True for the title instead of the catalogue's words, for papers that explain figures in their text.
    """
    sentences = [f"{figure.title}." if short else " ".join(figure.caption.split())]
    if "run" in rows.columns and not rows.empty:
        counts = rows[rows["replica"] >= 0].groupby("run")["replica"].nunique()
        # Rows for all replicas have number -1. The catalogue's caption states their number of trials.
        least, most = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
        replicas = str(least) if least == most else f"{least} to {most}"
        datasets, models = (", ".join(sorted(rows[column].unique())) for column in ("dataset", "model"))
        sentences.append(
            f"Data: {datasets}. Network: {models}.{f' n = {replicas} replicas.' if most else ''}"
        )
    return " ".join([*sentences, *notes])


def notes(figure: FigureConfig, table: pd.DataFrame, ran: Mapping[str, Any] = {}) -> list[str]:
    """Write the sentences under a figure.

    Args:
        figure: Entry of the catalogue.
        table: The whole table that it shows.
        ran: Plain configuration that made the table, of which members and the federation are used.
    """
    if "run" not in table.columns or (shown := shown_rows(figure, table)).empty:
        return []
    binding = binding_grid(shown, table)
    different = "; ".join(_differences(figure, shown, table, ran))
    return [
        *_budgets(with_epsilon(shown, table)),
        *_fewer(shown),
        *_no_limit(figure, shown),
        *_invalid(shown, table),
        *_diverged(figure, table),
        *([binding] if binding else []),
        *([f"Unlike in the paper: {different}."] if different else []),
    ]


def at_length(figure: FigureConfig, table: pd.DataFrame, ran: Mapping[str, Any]) -> bool:
    """Say whether a figure shows networks of its paper, after as many rounds as the paper prints.

    Args:
        figure: Entry of the catalogue.
        table: The whole table that it shows.
        ran: Plain configuration that made the table.
    """
    shown = shown_rows(figure, table)
    networks = NETWORKS.get(figure.paper, ())
    rows = shown[shown["model"].isin(networks)] if "model" in shown.columns else shown[:0]
    lengths = [name for name in ("rounds", "communication_rounds") if figure.facts.get(name)]
    return len(rows) > 0 and all(
        {*figure.facts[name]} <= {*_values(name, rows, table, ran)} for name in lengths
    )


def warnings(figure: FigureConfig, table: pd.DataFrame) -> dict[str, str]:
    """Write a warning for each claim whose rows come from a grid of learning rates that binds.

    Args:
        figure: Entry of the catalogue.
        table: The whole table that it shows.

    Returns:
        Identifier of a claim to its sentence.
    """
    if not {"run", "chosen"} <= set(table.columns):
        return {}
    rows = rows_of(figure, table)
    sentences = {}
    for claim in figure.claims:
        where: Conditions = claim.options.get("where", {})
        claimed = select_or_nothing(rows, {name: where[name] for name in where if name in rows.columns})
        if text := binding_grid(claimed, table):
            sentences[claim.id] = text
    return sentences


def binding_grid(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """Write a sentence on chosen learning rates if 5 % or more of them lie at an edge of their grid.

    Args:
        rows: Rows of the runs that count.
        table: The table that they are from, with the metric ``at_edge``.

    Returns:
        The sentence, empty if the grid does not bind.
    """
    if "chosen" not in table.columns:
        return ""
    edges = table[(table["metric"] == "at_edge") & table["chosen"] & table["run"].isin(rows["run"].unique())]
    count = int(edges["value"].sum())
    choices = len(edges)
    if not choices or count < MOST_AT_EDGE * choices:
        return ""
    return (
        f"The grid of learning rates binds: {count:,} of {choices:,} chosen ones ({count / choices:.0%}) lie "
        "at its edge."
    )


def _differences(
    figure: FigureConfig, shown: pd.DataFrame, table: pd.DataFrame, ran: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what is not as the paper prints it. What neither rows nor configuration state is left out."""
    for quantity, printed in figure.facts.items():
        values = _values(quantity, shown, table, ran)
        if quantity == "model":
            networks = NETWORKS.get(figure.paper, ())
            values = [
                name if name in networks else f"{style.written(name)} (no network of the paper)"
                for name in values
            ]
        noun = _QUANTITIES.get(quantity, quantity.replace("_", " "))
        if of_defense := quantity in default_defenses():
            noun = f"levels ({style.style_of(quantity).label})"
        if values or of_defense:
            yield from _difference(noun, values, printed)


def _difference(noun: str, values: Sequence[Any], printed: Sequence[Any]) -> Iterator[str]:
    """Yield how the values of a quantity differ from those that the paper prints."""
    common = [value for value in printed if value in values]
    others = [value for value in values if value not in printed]
    if not printed:
        yield f"{noun}, which the text of the paper does not print: {_written(values)}"
    elif noun in ("rounds", "images", "repeats") and len(printed) == 1 == len(values) == len(others):
        of = "of" if values[0] < printed[0] else "instead of"
        yield f"{_written(values)} {of} {_written(printed)} {noun}"
    elif values and not common:
        yield f"{noun}: {_written(values)} instead of {_written(printed)}"
    elif len(common) < len(printed):
        yield f"{_written(common) or 'none'} of {len(printed)} {noun}"
    if common and others:
        yield f"{noun}: {_written(others)} in addition"


def _values(quantity: str, shown: pd.DataFrame, table: pd.DataFrame, ran: Mapping[str, Any]) -> list[Any]:
    """Return the distinct values of a quantity, or levels of a defense, none if they are not stated."""
    if quantity == "replicas":
        return [shown[shown["replica"] >= 0].groupby("run")["replica"].nunique().min()]
    if quantity == "images":
        images = table[table["run"].isin(shown["run"]) & (table["unit"] >= 0)]
        return [images.drop_duplicates(["run", "replica", "unit"]).groupby("run").size().min()]
    if quantity in shown.columns:
        return sorted(shown[quantity].dropna().unique())
    if quantity in default_defenses():
        return sorted(shown.loc[shown["defense"] == quantity, "level"].dropna().unique())
    values = [(ran.get("federated") or {}).get(quantity)]
    if quantity == "members" and ran:
        values = [ran["datasets"][name]["members"] for name in shown["dataset"].unique()]
    return [value for value in dict.fromkeys(values) if value is not None]


def _written(values: Sequence[Any]) -> str:
    """Write names and numbers for people."""
    return ", ".join(style.written(value) if isinstance(value, str) else f"{value:,.6g}" for value in values)


def _budgets(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence with the ε of each defense and level that has one."""
    if "epsilon" not in rows.columns:
        return
    stated = rows.dropna(subset=["epsilon"])
    texts = []
    for defense in style.ordered(stated["defense"]):
        for level, group in stated[stated["defense"] == defense].groupby("level", sort=True):
            ends = dict.fromkeys(
                style.epsilon_text(end) for end in (group["epsilon"].min(), group["epsilon"].max())
            )
            name = f"{style.style_of(defense).label} {style.level_label(defense, float(level))}".strip()
            texts.append(f"{name}: {'–'.join(ends)}")
    if texts:
        yield f"ε of one replica: {'; '.join(texts)}."


def _fewer(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence with the defenses of which a run has fewer replicas than others on its dataset and network."""
    if not {"dataset", "model", "defense", "run"} <= set(rows.columns):
        return
    single = rows[rows["replica"] >= 0]
    counts = single.groupby(["dataset", "model", "defense", "run"])["replica"].nunique()
    least = counts.groupby(level=["dataset", "model", "defense"]).min()
    most = least.groupby(level=["dataset", "model"]).transform("max")
    fewer = least[least < most]
    texts = []
    for defense in style.ordered(fewer.index.get_level_values("defense")):
        of = fewer.xs(defense, level="defense")
        numbers = sorted({f"{count} of {most[*key, defense]}" for key, count in of.items()})
        texts.append(f"{style.style_of(defense).label} ({', '.join(numbers)})")
    if texts:
        yield f"On fewer replicas than the others: {'; '.join(texts)}."


def _no_limit(figure: FigureConfig, rows: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence if an attacker recovers more behind a defense than from undefended gradients.

    An undefended attack is no upper limit then: it is stuck where the defended one is not.
    """
    wanted = figure.options.get("constants", {}).get("no defense")
    if figure.plot != "heatmap" or wanted is None:
        return
    undefended = select_or_nothing(rows, wanted)
    cells = select_or_nothing(rows, figure.options.get("where", {})).dropna(subset="level")
    setting = ["dataset", "model"]
    for metric in sorted(set(cells["metric"]) & set(undefended["metric"])):
        better = 1 if metric in ("psnr", "ssim", "cosine") else -1
        most = undefended[undefended["metric"] == metric].groupby(setting)["value"].mean()
        means = cells[cells["metric"] == metric].groupby([*setting, "defense", "level"])["value"].mean()
        texts = []
        for key, group in means.groupby(level=setting):
            beyond = better * (group - most.get(key, math.nan))
            if (beyond > 0).any():
                _, _, defense, level = beyond.idxmax()
                where = ", ".join(style.written(str(name)) for name in key)
                name = (
                    f"{style.style_of(defense).label} {style.level_label(defense, float(level), unit=True)}"
                )
                values = f"{group[beyond.idxmax()]:.3g} instead of {most[key]:.3g}"
                texts.append(f"{where}: {values} ({name})")
        if texts:
            yield (
                "The attack on undefended gradients is no upper limit, because one behind noise recovers more: "
                f"{'; '.join(texts)}."
            )


def _invalid(shown: pd.DataFrame, table: pd.DataFrame) -> Iterator[str]:
    """Yield the numbers of attacks that gave no result, or that chose an edge of their own grid."""
    if "status" not in table.columns:
        return
    for source, group in _attacks(shown, table).groupby("source", sort=True):
        total = f"of {len(group):,} {_NOUNS.get(str(source), f'{source} attacks'.replace('_', ' '))}"
        for status, words in {**_LEFT_OUT, **_KEPT}.items():
            if count := int((group["status"] == status).sum()):
                yield f"{count:,} {total} {words}{' and are left out' if status in _LEFT_OUT else ''}."


def _diverged(figure: FigureConfig, table: pd.DataFrame) -> Iterator[str]:
    """Yield how many trainings diverged of those that a figure is about, whatever it shows of them."""
    about = {
        column: wanted
        for column, wanted in figure.select.items()
        if column not in ("metric", "source", "variant", "unit", "communication_round")
    }
    ends = rows_of(figure.model_copy(update={"select": about | {"metric": "diverged"}}), table)
    if count := int(ends["value"].sum()):
        finals = table[table["metric"].isin(figure.admitted("metric", ["final_accuracy"]))]
        guessed = len(finals.merge(ends[ends["value"] > 0], on=["run", "replica"])) == count
        yield f"{count:,} of {len(ends):,} trainings diverged and {'count as guesses' if guessed else 'are left out'}."


def _attacks(shown: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return the attacks behind the rows of a figure: one row for each slot, variant and unit.

    Attacks without units have one row for all.
    """
    pairs = {*shown[["source", "variant"]].drop_duplicates().itertuples(index=False, name=None)}
    pairs |= {pair for metric in shown["metric"].unique() for pair in IMPROVEMENTS.get(str(metric), ())}
    slots = [column for column in _SLOT if column in table.columns]
    of = [*slots, "source", "variant", "unit"]
    sources = {source for source, _ in pairs} - {"training", "derived"}
    attacks = table.loc[table["source"].isin(sources) & ~table["variant"].isin(_CONTROLS), [*of, "status"]]
    attacks = attacks[pd.MultiIndex.from_frame(attacks[["source", "variant"]]).isin(pairs)]
    slots_shown = pd.MultiIndex.from_frame(shown[slots].drop_duplicates())
    attacks = attacks[pd.MultiIndex.from_frame(attacks[slots]).isin(slots_shown)]
    has_units = attacks.groupby(["source", "variant"])["unit"].transform("max") >= 0
    attacks = attacks[(attacks["unit"] >= 0) | ~has_units]
    worst = attacks.sort_values("status", key=lambda column: column != "", kind="stable")
    return worst.drop_duplicates(of, keep="last")
