"""Turn the files of a finished job into the record of its MLflow run, by functions without clock or store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from leakbound.accounting.statement import Statement, state
from leakbound.storage import read_arrays_and_metadata
from leakbound_lab.tracking.measurements import (
    ALL_REPLICAS,
    Measurement,
    curve_values,
    headlines,
    means,
    metric_name,
    run_summary,
    score_values,
    so_far_names,
    statement_values,
)
from leakbound_lab.tracking.run_records import Point, RunFacts, RunRecord

_EVENT_PARAMS = ("capacity", "noise", "noise_multiplier", "max_grad_norm", "sampling", "population")
_DIGEST = 16  # hexadecimal digits, as in the report


@dataclass(frozen=True)
class _Job:
    """A finished job, with the values that its run and the runs of its replicas share.

    Attributes:
        facts: Name and coordinates of the run.
        start: Milliseconds since 1970.
        end: Milliseconds since 1970.
        values: Measurements of all replicas.
        diverged: Numbers of the replicas that diverged.
        rates: Replica to the learning rate that it chose.
    """

    facts: RunFacts
    start: int
    end: int
    values: Sequence[Measurement]
    diverged: set[int]
    rates: Mapping[int, float]

    def record(
        self, key: str, name: str, points: Sequence[Point], *, failed: bool, **content: Any
    ) -> RunRecord:
        """Make the record of a run with some points, which begin with the headlines unless the run failed."""
        content |= {"status": "FAILED", "metrics": tuple(points)} if failed else {}
        content.setdefault("metrics", (*headlines(points), *points))
        return RunRecord(key, self.facts.experiment, name, self.start, self.end, **content)

    def child(self, replica: int) -> RunRecord:
        """Make the record of one replica. A diverged one has only its curves, as far as they are finite."""
        failed = replica in self.diverged
        values = [value for value in self.values if value.replica == replica and value.finite]
        points = [value.point for value in values if value.kind == "curve" or not failed]
        return self.record(
            f"{self.facts.slug}#{replica}",
            f"replica {replica}",
            points,
            failed=failed,
            params=_texts({"replica": replica, "learning_rate": self.rates.get(replica)}),
            tags={"replica": str(replica), "slug": self.facts.slug, "mlflow.source.name": "leakbound"},
        )


def describe_run(
    facts: RunFacts,
    curves: pd.DataFrame | None,
    scores: Mapping[str, pd.DataFrame],
    provenance: Mapping[str, Any],
    *,
    channel: Mapping[str, float | str] | None = None,
    files: Sequence[Path] = (),
    over_units: Mapping[str, str] | None = None,
) -> RunRecord:
    """Describe a finished job as an MLflow run with means over replicas, and a child run for each replica.

    Values that are not finite are left out. If a replica diverged, the run is FAILED. It then shows curves as
    far as all replicas have them, but no means of scores, so that diverged replicas never enter a result.

    Args:
        facts: Name and coordinates of the run.
        curves: Rows (replica, step, metric, value) of its training. None for an untrained network.
        scores: Source (``membership``, ``leakage``, ``federated``, ...) to rows (replica, variant, unit,
            metric, value, and optionally low, high). Unit -1 stands for all units, replica -1 for all
            replicas.
        provenance: Record of the job, with ``started`` (seconds since 1970), ``seconds``, and if
            known ``rates`` (a record for each replica and candidate learning rate), ``events`` (privacy
            events) and ``diverged`` (one flag for each replica).
        channel: Facts about the channel, from :func:`channel_facts`.
        files: Artifacts.
        over_units: Source to the summary of its rows over units, by its name in NumPy. Default: the mean.

    Raises:
        ValueError: If the provenance does not state when the job ran.
    """
    if provenance.get("started") is None:
        raise ValueError("provenance.started is missing: MLflow's times come from files; run the job again")
    start = round(float(provenance["started"]) * 1000)
    end = start + round(float(provenance.get("seconds", 0.0)) * 1000)
    stated = statements(provenance)
    values = list(curve_values(curves, start, end, facts.rounds, so_far_names(stated.get("replica"))))
    values += statement_values(stated, end)
    for source in sorted(scores):
        values += score_values(source, scores[source], end, over_units or {})
    diverged = _diverged(provenance, values)
    replicas = sorted({value.replica for value in values} - {ALL_REPLICAS}) or list(range(facts.replicas))
    rates = {rate["replica"]: rate["learning_rate"] for rate in provenance.get("rates", ()) if rate["chosen"]}
    job = _Job(facts, start, end, values, diverged, rates)
    points = means(values, len(replicas), diverged=bool(diverged))
    tags = {name: text for of, each in stated.items() for name, text in each.tags(f"bound_{of}").items()}
    note = run_summary(
        facts, points, " ".join(each.sentence for each in stated.values()), failed=bool(diverged)
    )
    digest = provenance.get("inputs", {}).get("dataset")
    use = "training" if facts.rounds else "attack"
    return job.record(
        facts.slug,
        facts.name,
        points,
        failed=bool(diverged),
        about=facts.about,
        params=_params(facts, provenance, channel or {}),
        tags={**_tags(facts, provenance, diverged), **tags, "mlflow.note.content": note},
        artifacts=tuple((file, "") for file in files),
        data=(facts.dataset, digest[:_DIGEST], use) if digest else None,
        children=tuple(map(job.child, replicas)),
    )


def _diverged(provenance: Mapping[str, Any], values: Sequence[Measurement]) -> set[int]:
    """Return the replicas whose training, or one of whose values, is marked as diverged."""
    trained = {replica for replica, flag in enumerate(provenance.get("diverged") or []) if flag}
    return trained | {value.replica for value in values if value.diverged}


def describe_figures(preset: str, files: Sequence[Path], root: Path, claims: Mapping[str, int]) -> RunRecord:
    """Describe the MLflow run with all figures, tables and verdicts of a configuration.

    Args:
        preset: Name of the configuration.
        files: Artifacts. The newest time of change is the time of the run.
        root: Folder of the artifacts. Their paths below it are kept.
        claims: Verdict to number of claims.

    Raises:
        ValueError: If there are no files.
    """
    if not files:
        raise ValueError(f"{root}: there are no figures to log; draw them first")
    end = max(int(path.stat().st_mtime * 1000) for path in files)
    return RunRecord(
        key="figures",
        experiment=f"{preset}/figures",
        name="figures, tables, claims",
        start=end,
        end=end,
        about=f"Figures, tables and verdicts on claims under preset {preset}",
        tags={"preset": preset, "mlflow.source.name": "leakbound"},
        metrics=tuple(
            Point(metric_name("claims", verdict), 0, end, float(n)) for verdict, n in sorted(claims.items())
        ),
        artifacts=tuple((path, path.parent.relative_to(root).as_posix().removeprefix(".")) for path in files),
    )


def channel_facts(path: Path) -> dict[str, float | str]:
    """Read shape, capacity in nats per use, and noise variances in squared pixel units of a stored channel.

    Raises:
        DamagedFileError: If the file cannot be read.
    """
    arrays, metadata = read_arrays_and_metadata(path)
    variances = arrays["variances"]
    return {
        "shape": metadata["shape"],
        "capacity": float(metadata["capacity"]),
        "noise_variance_min": float(variances.min()),
        "noise_variance_mean": float(variances.mean()),
        "noise_variance_max": float(variances.max()),
    }


def _params(
    facts: RunFacts, provenance: Mapping[str, Any], channel: Mapping[str, float | str]
) -> dict[str, str]:
    """Write the settings that the run has as texts."""
    events = provenance.get("events") or [{}]
    candidates = sorted({rate["learning_rate"] for rate in provenance.get("rates", ())})
    names = ("dataset", "model", "defense", "level", "rounds", "batch_size", "replicas")
    return _texts(
        {
            **{name: getattr(facts, name) for name in names},
            "learning_rate": provenance.get("learning_rate"),
            "learning_rates": ", ".join(f"{rate:g}" for rate in candidates),
            "privacy_noise": provenance.get("settings", {}).get("privacy_noise"),
            **{name: events[0].get(name) for name in _EVENT_PARAMS},
            "uses": max(event.get("uses", 0) for event in events) or None,
            **channel,
        }
    )


def _tags(facts: RunFacts, provenance: Mapping[str, Any], diverged: set[int]) -> dict[str, str]:
    """Write the tags by which a run is found."""
    names = ("slug", "preset", "dataset", "model", "defense", "level", "order")
    return _texts(
        {
            **{name: getattr(facts, name) for name in names},
            "paper": ",".join(facts.papers),
            "figures": ",".join(facts.figures),
            "diverged_replicas": ",".join(map(str, sorted(diverged))),
            **{name: provenance.get(name) for name in ("commit", "dirty", "settings_hash", "device")},
            "mlflow.source.name": "leakbound",
            "mlflow.source.git.commit": provenance.get("commit"),
        }
    )


def statements(provenance: Mapping[str, Any]) -> dict[str, Statement]:
    """Return what a run states of ``replica`` and of all ``replicas``, empty for a job that states nothing.

    Of a federated run they are nats of all rounds for the client that leaks most.
    """
    if "statement" in provenance:
        return {of: Statement.from_numbers(numbers) for of, numbers in provenance["statement"].items()}
    leakage = provenance.get("leakage")
    if "released" not in provenance or not isinstance(leakage, list):
        return {}
    secure = provenance.get("settings", {}).get("privacy_noise") == "secure"
    totals = [float(threat["leak_total"]) for threat in leakage if threat.get("leak_total") is not None]
    facts: dict[str, Any] = {"secure": secure, "labels": "covered", "unit": "client"}
    if len(totals) < len(provenance["diverged"]):
        facts["why_not"] = "no bound was derived for each replica"
    sums = {"replica": max(totals, default=0.0), "replicas": sum(totals)}
    names = {"replica": "the averages of one replica", "replicas": "the averages of all replicas together"}
    return {of: state(names[of], added=total, **facts) for of, total in sums.items()}


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    """Write values that are neither None nor empty as short texts. Whole floats have no point."""
    return {
        name: repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
        for name, value in values.items()
        if value is not None and value != ""
    }
