"""Command: keep tables, figures and verdicts of a finished configuration, with what they were made by."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from leakbound import storage

_FACES = "celeba"  # its agreement forbids publishing the pictures


def reference(
    configfile: Annotated[Path, typer.Option(help="Configuration that has been run.")],
    out: Annotated[Path | None, typer.Option(help="Folder; by default results/reference/<preset>.")] = None,
) -> None:
    """Copy the results of a finished configuration that are worth keeping in the repository."""
    import pandas as pd

    from leakbound import presets

    config = presets.load(configfile)
    catalogue = presets.load_catalogue(config.catalogue, config)
    root, target = Path(config.root), out or Path("results/reference") / config.preset
    if not (root / "claims.parquet").is_file():
        raise typer.BadParameter(f"{root} has no claims.parquet: run snakemake --configfile {configfile} first")
    pictures = {f"{figure.paper}/{figure.id}" for figure in catalogue.figures if figure.plot == "image_grid"}
    kept = [path for kind in ("figures", "tables") for path in sorted((root / kind).rglob("*")) if path.is_file()]
    kept += [root / "claims.parquet", root / "scoreboard.md"]
    for path in kept:
        inside = path.relative_to(root)
        key = str(inside.with_suffix("").relative_to("figures")) if inside.parts[0] == "figures" else ""
        if key in pictures and _FACES in set(pd.read_parquet(path.with_suffix(".parquet"))["dataset"]):
            sys.stdout.write(f"left out {inside}: it shows faces\n")
            continue
        (target / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / inside)
    storage.write_json(target / "provenance.json", _summary(root, config))
    (target / "config.yaml").write_text(presets.as_yaml(config), encoding="utf-8")
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    sys.stdout.write(f"{target}: {size / 1e6:.1f} MB\n")


def _summary(root: Path, config: Any) -> dict[str, Any]:
    """What the runs say of where they come from, and what each box of the chain took."""
    from leakbound.provenance import settings_hash

    runs = [json.loads(path.read_text()) for kind in ("runs", "attacks") for path in (root / kind).rglob("*.json")]
    return {
        "preset": config.preset,
        "config_hash": settings_hash(config.model_dump(mode="json")),
        "jobs": len(runs),
        "commits": dict(Counter(str(run["commit"]) for run in runs)),
        "dirty": any(run["dirty"] for run in runs),
        "devices": dict(Counter(run["device"] for run in runs)),
        "versions": runs[0]["versions"],
        "diverged_replicas": sum(sum(run.get("diverged", [])) for run in runs),
        "data": {path.stem: json.loads(path.read_text())["content"] for path in sorted((root / "data").glob("*.json"))},
        "boxes": _costs(root / "benchmarks"),
    }


def _costs(folder: Path) -> dict[str, dict[str, float]]:
    """Jobs, wall seconds, CPU seconds and largest memory (MiB) of each box, as Snakemake measured them."""
    import pandas as pd

    costs = {}
    for box in sorted({path.relative_to(folder).parts[0] for path in folder.rglob("*.tsv")}):
        files = [folder / box] if (folder / box).is_file() else list((folder / box).rglob("*.tsv"))
        rows = pd.concat([pd.read_csv(path, sep="\t").tail(1) for path in files])
        numbers = {name: pd.to_numeric(rows[name], errors="coerce") for name in ("s", "cpu_time", "max_rss")}
        costs[box.removesuffix(".tsv")] = {
            "jobs": len(rows),
            "seconds": round(float(numbers["s"].sum()), 1),
            "cpu_seconds": round(float(numbers["cpu_time"].sum()), 1),
            "max_rss_mib": round(float(numbers["max_rss"].max()), 1),
        }
    return costs
