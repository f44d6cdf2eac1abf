"""Commands: show finished jobs in MLflow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound import storage
from leakbound.cli.figures import CURVES, SCORES, RootOption
from leakbound.cli.files import SettingsOption, check_outputs, read_record, read_settings, read_table
from leakbound.cli.jobs import LogJob

if TYPE_CHECKING:
    import pandas as pd

MarkerOption = Annotated[Path, typer.Option(help="Record of what was sent, and whether it arrived.")]
ConfigOption = Annotated[Path, typer.Option(help="Configuration whose store is meant.")]
LiveOption = Annotated[str | None, typer.Option(envvar="LEAKBOUND_LIVE", help="MLflow server that shows curves.")]
PresetOption = Annotated[str, typer.Option(envvar="LEAKBOUND_PRESET", help="Name the curves go by there.")]


@contextmanager
def watching(live: str | None, **facts: Any) -> Iterator[Callable[[pd.DataFrame], None] | None]:
    """What takes the curves of a training while they grow; nothing without a server.

    Args:
        live: Address of the server.
        **facts: What the run is called there, as :class:`leakbound.tracking.RunFacts` takes it.
    """
    if live is None:
        yield None
        return
    from leakbound import tracking

    with tracking.LiveCurves(live, tracking.RunFacts(**facts)) as curves:
        yield curves.on_rows


def log(settings: SettingsOption, root: RootOption, marker: MarkerOption) -> None:
    """Write what a finished run has left to MLflow; a store that is away is noted and `sync` sends it later."""
    from leakbound import tracking
    from leakbound.jobs.runs import Run

    check_outputs(marker)
    job = read_settings(settings, LogJob)
    run = Run.from_slug(job.slug)
    attacks = {name: root / "attacks" / run.slug / name for name in job.attacks}
    if not (run.rounds or attacks):
        raise typer.BadParameter(f"{run.slug}: is an untrained network, so --settings must name its attacks")
    training = root / "runs" / run.slug
    source = training / "provenance.json" if run.rounds else next(iter(attacks.values())).with_suffix(".json")
    provenance = read_record(source, "train" if run.rounds else "attack")
    channel = root / job.channel if job.channel else None
    facts = tracking.RunFacts(
        preset=job.preset,
        slug=run.slug,
        dataset=run.dataset,
        model=run.model,
        defense=run.defense,
        level=run.level,
        rounds=run.rounds,
        batch_size=run.batch_size,
        replicas=job.replicas,
        mechanism=job.mechanism,
        papers=job.papers,
        figures=job.figures,
    )
    scores = {name: read_table(path.with_suffix(".parquet"), SCORES, "attack") for name, path in attacks.items()}
    if provenance.get("leakage"):
        scores["accounting"] = _leakage_rows(provenance["leakage"])
    record = tracking.describe(
        facts,
        read_table(training / "training.parquet", CURVES, "train") if run.rounds else None,
        scores,
        provenance,
        channel=tracking.channel_facts(channel) if channel else None,
        files=[source, *([channel] if channel else [])],
        over_units={"model_inversion": "median"},  # over classes, as the paper has it
    )
    outcome = tracking.log(record, job.uri, marker)
    sys.stderr.write(f"{run.slug}: {outcome.status} {outcome.reason or ''}\n")


def _leakage_rows(leakage: dict[str, int | float]) -> pd.DataFrame:
    """Leakage of a run, in nats, as an attack's rows; replica -1 stands for all replicas."""
    import pandas as pd

    known = {name: value for name, value in leakage.items() if name != "uses"}
    columns = {"replica": -1, "variant": "leakage", "unit": -1, "metric": list(known), "value": list(known.values())}
    return pd.DataFrame(columns).assign(low=float("nan"), high=float("nan"))


def log_figures(
    preset: Annotated[str, typer.Option(help="Name of the configuration.")],
    uri: Annotated[str, typer.Option(help="Tracking store.")],
    root: RootOption,
    marker: MarkerOption,
) -> None:
    """Keep all figures, tables and verdicts of a configuration in one MLflow run."""
    from leakbound import tracking

    check_outputs(marker)
    below = [path for kind in ("figures", "tables") for path in (root / kind).rglob("*") if path.is_file()]
    files = sorted(path for path in below if not path.name.startswith("."))
    verdicts = {}
    if (root / "claims.parquet").is_file():
        claims = storage.read_rows(root / "claims.parquet")
        overall = claims[claims["dataset"] == "all"]
        verdicts = {str(name): int(count) for name, count in overall["verdict"].value_counts().items()}
        files += [root / "claims.parquet", root / "scoreboard.md"]
    for path in files:
        storage.check(path)
    outcome = tracking.log(tracking.describe_figures(preset, files, root, verdicts), uri, marker)
    sys.stderr.write(f"figures of {preset}: {outcome.status} {outcome.reason or ''}\n")


def sync(
    configfile: ConfigOption = Path("config/config.yaml"),
    everything: Annotated[bool, typer.Option(help="Send what has arrived too, e.g. to fill a new store.")] = False,
) -> None:
    """Send to MLflow what could not be sent when its job finished."""
    from leakbound import tracking
    from leakbound.config import reading

    config = reading.load(configfile)
    folder = Path(config.root) / "tracking"
    outcomes = tracking.sync(folder, config.tracking.uri, everything=everything)
    for outcome in outcomes:
        sys.stdout.write(f"{outcome.marker}: {outcome.status} {outcome.reason or ''}\n")
    sys.stdout.write(f"{sum(outcome.status == 'stored' for outcome in outcomes)} of {len(outcomes)} stored\n")
    if any(outcome.status != "stored" for outcome in outcomes):
        raise typer.Exit(1)


def ui(
    configfile: ConfigOption = Path("config/config.yaml"),
    port: Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)] = 5000,
) -> None:
    """Open MLflow's pages on the runs of a configuration, for this machine only."""
    from leakbound import tracking
    from leakbound.config import reading

    uri = reading.load(configfile).tracking.uri
    if uri.startswith("http"):
        sys.stdout.write(f"The runs are at {uri}\n")
        return
    tracking.upgrade_store(uri)
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    sys.stdout.write(f"Runs: http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning (end with Ctrl-C)\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    os.execv(sys.executable, [*command, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"])
