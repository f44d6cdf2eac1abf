"""Command: what differs between two results, in settings, measured values and verdicts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound import storage
from leakbound.commands.terminal import text_table
from leakbound.registry import nearest_path
from leakbound.words import shown
from leakbound_lab.config.messages import read_yaml

if TYPE_CHECKING:
    import pandas as pd

_MOST = 40
_KEY = ["run", "source", "variant", "metric"]
_CLAIM = ["paper", "figure", "claim", "dataset", "model"]


def diff(
    first: Annotated[
        Path, typer.Argument(help="Folder of results, e.g. results/quick, or of one of its runs.")
    ],
    second: Annotated[Path, typer.Argument(help="The same of other results.")],
    every: Annotated[
        bool, typer.Option("--all", help=f"Every difference, not the {_MOST} largest of a kind.")
    ] = False,
) -> None:
    """Print what differs between two results: settings, means over replicas at their chosen rates, verdicts.

    Exit with code 1 if anything differs. Of two single runs the values are compared whatever their names are.

    Example: leakbound diff results/quick results/mine
    """
    sides = first, second
    runs = [_run_of(side) for side in sides]
    if (runs[0] is None) != (runs[1] is None):
        raise typer.BadParameter(f"{first} and {second}: give two folders of results, or two runs")
    most = None if every else _MOST
    means = [_means(side, run) for side, run in zip(sides, runs, strict=True)]
    parts = [_section("Settings", *_settings(sides, single=runs[0] is not None), most)]
    parts.append(_section("Values", *_values(*means), most))
    if runs[0] is None:
        parts.append(_section("Verdicts", *_verdicts(*map(_claims, sides)), most))
    sys.stdout.write("\n".join(text for text, _ in parts))
    if any(count for _, count in parts):
        raise typer.Exit(1)


def _run_of(folder: Path) -> str | None:
    """Return the name of the run that a folder holds, None for a folder of results."""
    if not folder.is_dir():
        raise typer.BadParameter(f"{folder}: there is no such folder{nearest_path(folder)}")
    return "/".join(folder.absolute().parts[-4:]) if (folder / "rates.parquet").is_file() else None


def _settings(sides: Sequence[Path], *, single: bool) -> tuple[list[list[str]], int]:
    """List the settings that differ, and the runs that only one side has."""
    flat = [dict(flat_settings(_settings_of(side, single=single))) for side in sides]
    names = dict.fromkeys([*flat[0], *flat[1]])
    absent = object()
    pairs = [(name, *(side.get(name, absent) for side in flat)) for name in names]
    lines = [
        [name, *("–" if value is absent else shown(value) for value in values)]
        for name, *values in pairs
        if values[0] != values[1]
    ]
    return [["setting", *map(str, sides)], *lines], len(names)


def _settings_of(folder: Path, *, single: bool) -> Mapping[str, Any]:
    """Return the settings of a run, of all runs of a folder by name, or the configuration of kept results."""
    if single:
        return dict(storage.read_json(folder / "provenance.json")["settings"])
    files = sorted(folder.glob("runs/*/*/*/*/provenance.json"))
    if not files:
        return read_yaml(folder / "config.yaml") if (folder / "config.yaml").is_file() else {}
    return {
        str(path.parent.relative_to(folder / "runs")): storage.read_json(path)["settings"] for path in files
    }


def flat_settings(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings with the path to each, in points."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat_settings(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _means(folder: Path, run: str | None) -> pd.Series:
    """Return means over replicas of all metrics of a run or a folder, at chosen rates and in full length."""
    import pandas as pd

    folder = folder.absolute().parents[4] if run else folder
    kept = (folder / "MANIFEST.sha256").is_file()  # hashes of all files, in place of a seal each
    means: list[pd.Series] = []
    for path in sorted((folder / "tables").rglob("*.parquet")):
        rows = storage.read_rows(path, sealed=not kept)
        if not {*_KEY, "value"} <= {*rows.columns}:
            continue
        rows = rows[rows["run"] == run] if run else rows
        for column, wanted in (("chosen", True), ("length", "full")):
            rows = rows[rows[column] == wanted] if column in rows else rows
        rows = rows.assign(run="") if run else rows
        means.append(rows.groupby(_KEY, dropna=False)["value"].mean())
    if not means or not sum(map(len, means)):
        raise typer.BadParameter(
            f"{folder / 'tables'}: has no values{f' of {run}' if run else ''}; run snakemake first"
        )
    together = pd.concat(means)
    return together[~together.index.duplicated()]


def _values(first: pd.Series, second: pd.Series) -> tuple[list[list[str]], int]:
    """List the values that differ, the largest relative differences first, then those that one side lacks."""
    import numpy as np

    table = first.to_frame("first").join(second.to_frame("second"), how="outer")
    same = (table["first"] == table["second"]) | table.isna().all(axis=1)
    apart = table[~same].assign(apart=lambda table: (table["second"] - table["first"]).abs())
    relative = apart["apart"] / apart[["first", "second"]].abs().max(axis=1)
    apart = apart.iloc[np.argsort(-relative.to_numpy(), kind="stable")]
    lines = []
    for key, row in zip(apart.index, apart.to_numpy(float), strict=True):
        numbers = ("–" if np.isnan(value) else f"{value:.4g}" for value in row)
        lines.append([" ".join(filter(None, map(str, key))), *numbers])
    return [["run, attack, metric", "first", "second", "apart"], *lines], len(table)


def _claims(folder: Path) -> pd.DataFrame:
    """Read the verdicts of results, none if no figure makes a claim."""
    import pandas as pd

    path = folder / "claims.parquet"
    rows = pd.DataFrame(columns=[*_CLAIM, "verdict"])
    if path.is_file():
        rows = storage.read_rows(path, sealed=not (folder / "MANIFEST.sha256").is_file())
    return rows.set_index(_CLAIM)


def _verdicts(first: pd.DataFrame, second: pd.DataFrame) -> tuple[list[list[str]], int]:
    """List the claims whose verdicts differ."""
    sides = first["verdict"].to_frame("first"), second["verdict"].to_frame("second")
    table = sides[0].join(sides[1], how="outer").fillna("–")
    apart = table[table["first"] != table["second"]]
    rows = zip(apart.index, apart.to_numpy(str), strict=True)
    lines = [[" ".join(filter(None, key)), *row] for key, row in rows]
    return [["claim", "first", "second"], *lines], len(table)


def _section(title: str, lines: list[list[str]], total: int, most: int | None) -> tuple[str, int]:
    """Write a heading and a table, and return them with the number of differences."""
    count = len(lines) - 1
    left_out = count - most if most is not None else 0
    text = f"{title}: {count:,} of {total:,} differ\n"
    text += text_table(lines[: None if most is None else most + 1]) if count else ""
    return text + (f"… and {left_out:,} more: --all\n" if left_out > 0 else ""), count
